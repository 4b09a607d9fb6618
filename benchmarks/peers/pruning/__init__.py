"""Pruning ensembles, compared with other libraries and methods."""
