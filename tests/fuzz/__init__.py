"""Hostile calls of every public name: ``python -m tests.fuzz --seconds 60``."""
