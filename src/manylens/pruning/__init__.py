"""Keeping few predictors of an ensemble."""
