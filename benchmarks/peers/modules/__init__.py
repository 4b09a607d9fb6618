"""Learning modules, against other libraries and methods."""
