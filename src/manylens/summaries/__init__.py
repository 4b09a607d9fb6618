"""Summaries of rows with `update(batch)` and `merge(other)`: every pass over the data is one of these."""

from manylens.summaries.base import Summary, merge_tree, summarize
from manylens.summaries.bootstrap import BootstrapMoments
from manylens.summaries.count_sketch import CountSketch
from manylens.summaries.cross_moments import CrossMoments
from manylens.summaries.moments import Moments

__all__ = ["BootstrapMoments", "CountSketch", "CrossMoments", "Moments", "Summary", "merge_tree", "summarize"]
