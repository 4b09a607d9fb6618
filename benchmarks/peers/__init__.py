"""Ours against other libraries and other methods, one file per subject."""
