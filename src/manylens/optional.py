"""Optional dependencies: imported when they are first used, with a readable error if they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_optional(module: str, purpose: str, install: str) -> ModuleType:
    """Import an optional dependency, or raise an ImportError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ImportError(f"{purpose} needs {package}: pip install {install}") from None


def import_torch(purpose: str = "Training networks") -> ModuleType:
    """The torch module, or an error that says how to install it."""
    return import_optional("torch", purpose, "'manylens[torch]'")
