"""How time and memory grow with each size."""
