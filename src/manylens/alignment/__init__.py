"""Comparing lenses: centred kernel alignment, kernel weights, transferability."""
