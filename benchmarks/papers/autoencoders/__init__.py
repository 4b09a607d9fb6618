"""Reeve and Brown: Modular autoencoders for ensemble feature extraction."""
