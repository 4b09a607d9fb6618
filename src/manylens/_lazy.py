"""Lazy attributes of packages (Scientific Python SPEC 1): a name is imported when it is first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def attach(
    package: str, names: Mapping[str, Iterable[str]], subpackages: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` for a package; `names` maps each module to the names it provides."""
    home = {name: module for module, provided in names.items() for name in provided}
    packages = set(subpackages)

    def get(name: str) -> Any:
        if name in packages:
            return importlib.import_module(f"{package}.{name}")
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*home, *packages})
