"""Summaries of rows that `update(block)` and `merge(other)`: every pass over the data is one of these."""
