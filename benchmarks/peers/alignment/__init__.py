"""Comparing representations, against other libraries and methods."""
