"""Summaries of rows that `update(block)` and `merge(other)`: every pass over the data is one of these."""

from manylens.summaries.count_sketch import CountSketch
from manylens.summaries.moments import Moments, block_rows, bootstrap_moments, column_means

__all__ = ["CountSketch", "Moments", "block_rows", "bootstrap_moments", "column_means"]
