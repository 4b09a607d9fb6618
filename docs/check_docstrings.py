"""Numpydoc validation of every public name of manylens and its public methods."""

import inspect
import sys
import tomllib
from pathlib import Path

from numpydoc.validate import validate

import manylens

SETTINGS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
CHECKS = set(SETTINGS["tool"]["numpydoc_validation"]["checks"])


def documented_names():
    """Dotted names of the public objects, and of the methods they define themselves."""
    for name in manylens.__all__:
        value = getattr(manylens, name)
        if not callable(value):
            continue
        home = f"{value.__module__}.{value.__qualname__}"
        yield home
        if inspect.isclass(value):
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and inspect.isfunction(member):
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
