"""The public names of manylens: the top level and the rooms."""

import importlib

import manylens

# room -> title of its section in the reference
ROOMS = {
    "modules": "Diverse modules",
    "ensembles": "Search and voting",
    "metric": "Metric learning",
    "alignment": "Comparing representations",
    "transfer": "Layers of a network",
    "pruning": "Smaller ensembles",
    "kernels": "Kernels and feature maps",
    "summaries": "Summaries of rows",
    "cluster": "Many machines",
    "plotting": "Displays",
    "explorer": "Explorer",
    "baselines": "Baselines of the papers",
    "papers": "Algorithms of the papers",
    "datasets": "Data sets",
    "persistence": "Saving and loading",
}


def public_names():
    """List pairs of a room and a dotted name: top-level names first, then those only a room exports."""
    top = {name: getattr(manylens, name) for name in manylens.__all__}
    names = [
        (value.__module__.split(".")[1], f"manylens.{name}") for name, value in top.items() if callable(value)
    ]
    for room in ROOMS:
        module = importlib.import_module(f"manylens.{room}")
        exported = [name for name in getattr(module, "__all__", ()) if name not in top]
        names += [(room, f"manylens.{room}.{name}") for name in exported if callable(getattr(module, name))]
    return names


def resolve(dotted):
    """Return the object with a dotted name."""
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(module), name)
