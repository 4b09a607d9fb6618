"""Representations that the papers compare modules with, behind the same interface."""
