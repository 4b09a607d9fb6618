"""Data for examples and benchmarks: loaders by name, and two generators."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.datasets.generators import make_friedman, make_shells
    from manylens.datasets.loaders import data_available, load_dataset

__all__ = ["data_available", "load_dataset", "make_friedman", "make_shells"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.datasets.generators": ["make_friedman", "make_shells"],
        "manylens.datasets.loaders": ["data_available", "load_dataset"],
    },
)
