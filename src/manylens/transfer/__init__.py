"""Using a network's layers."""
