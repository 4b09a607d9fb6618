"""Write docs/api.md: the public names, by the room they live in."""

from collections import defaultdict
from importlib import import_module
from pathlib import Path

PACKAGES = ("manylens", "manylens.plotting", "manylens.datasets")  # whose public names are listed

TITLES = {
    "modules": "Many diverse lenses",
    "metric": "One supervised lens",
    "alignment": "Comparing lenses",
    "summaries": "Summaries of rows",
    "ensembles": "Using modules",
    "transfer": "Using a network's layers",
    "pruning": "Keeping few predictors",
    "plotting": "Displays",
    "datasets": "Data",
    "persistence": "Saving and loading",
}


def main():
    rooms = defaultdict(list)
    for package in PACKAGES:
        for name in import_module(package).__all__:
            value = getattr(import_module(package), name)
            if callable(value):
                rooms[value.__module__.split(".")[1]].append(f"{package}.{name}")
    lines = ["# Reference", ""]
    for room, title in TITLES.items():
        if rooms[room]:
            lines += [f"## {title}", "", "```{eval-rst}"]
            lines += [".. autosummary::", "   :toctree: api/generated", ""]
            lines += [f"   {name}" for name in sorted(rooms[room])] + ["```", ""]
    Path(__file__).with_name("api.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
