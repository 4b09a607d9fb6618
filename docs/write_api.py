"""Write docs/api.md: the public names, by room."""

from pathlib import Path

from public_names import ROOMS, public_names


def main():
    names = public_names()
    lines = ["# Reference", ""]
    for room, title in ROOMS.items():
        found = sorted(name for home, name in names if home == room)
        if found:
            lines += [
                f"## {title}",
                "",
                "```{eval-rst}",
                ".. autosummary::",
                "   :toctree: api/generated",
                "",
            ]
            lines += [f"   {name}" for name in found] + ["```", ""]
    Path(__file__).with_name("api.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
