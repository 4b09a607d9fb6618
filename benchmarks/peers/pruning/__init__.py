"""Pruning ensembles, against other libraries and methods."""
