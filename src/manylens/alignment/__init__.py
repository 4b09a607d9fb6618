"""Comparing lenses: centered kernel alignment, kernel weights, transferability."""
