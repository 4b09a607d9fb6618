"""Reeve, Mu and Brown: Modular dimensionality reduction."""
