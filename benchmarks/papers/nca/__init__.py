"""Reducing the computational cost of neighborhood components analysis (chapter 4 of the thesis)."""

PAPER = "Fast neighborhood components"
