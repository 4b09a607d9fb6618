"""Data that benchmarks share."""
