"""Many small, diverse views of the same data: learn them, compare them, keep the few that matter."""

__version__ = "0.1.0.dev0"

__all__ = ["__version__"]
