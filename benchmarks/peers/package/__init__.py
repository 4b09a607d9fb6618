"""Importing the package and first calls."""
