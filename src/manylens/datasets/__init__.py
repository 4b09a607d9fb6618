"""Loaders and generators for the data that the examples and benchmarks use."""

from manylens.datasets.generators import make_friedman, make_shells
from manylens.datasets.loaders import data_available, load_dataset

__all__ = ["data_available", "load_dataset", "make_friedman", "make_shells"]
