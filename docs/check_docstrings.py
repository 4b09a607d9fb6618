"""Numpydoc validation of every public name of manylens and its public methods."""

import inspect
import sys
import tomllib
from importlib import import_module
from pathlib import Path

from numpydoc.validate import validate

PACKAGES = ("manylens", "manylens.plotting", "manylens.datasets")
SETTINGS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
CHECKS = set(SETTINGS["tool"]["numpydoc_validation"]["checks"])


def documented_names():
    """Dotted names of the public objects, and of the methods they define themselves."""
    values = [getattr(import_module(room), name) for room in PACKAGES for name in import_module(room).__all__]
    for value in filter(callable, values):
        home = f"{value.__module__}.{value.__qualname__}"
        yield home
        if inspect.isclass(value):
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and inspect.isfunction(getattr(member, "__func__", member)):
                    yield f"{home}.{attribute}"


def main():
    faults = 0
    for name in documented_names():
        for code, message in validate(name)["errors"]:
            if code in CHECKS:
                print(f"{name}: {code} {message}")
                faults += 1
    print(f"{faults} faults in docstrings")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
