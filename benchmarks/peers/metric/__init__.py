"""NCA, against other libraries and methods."""
