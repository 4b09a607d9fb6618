"""Reducing the computational cost of neighbourhood components analysis (chapter 4 of the thesis)."""

PAPER = "Fast neighbourhood components"
