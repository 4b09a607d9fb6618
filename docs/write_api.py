"""Write docs/api.md: the public names, by the room they live in."""

from collections import defaultdict
from pathlib import Path

import manylens

TITLES = {
    "modules": "Many diverse lenses",
    "metric": "One supervised lens",
    "alignment": "Comparing lenses",
    "streaming": "Summaries of rows",
    "ensembles": "Using modules",
    "transfer": "Using a network's layers",
    "pruning": "Keeping few predictors",
    "plotting": "Displays",
    "persistence": "Saving and loading",
}


def main():
    rooms = defaultdict(list)
    for name in manylens.__all__:
        value = getattr(manylens, name)
        if callable(value):
            rooms[value.__module__.split(".")[1]].append(name)
    lines = ["# Reference", ""]
    for room, title in TITLES.items():
        if rooms[room]:
            lines += [f"## {title}", "", "```{eval-rst}", ".. currentmodule:: manylens", ""]
            lines += [".. autosummary::", "   :toctree: api/generated", ""]
            lines += [f"   {name}" for name in sorted(rooms[room])] + ["```", ""]
    Path(__file__).with_name("api.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
