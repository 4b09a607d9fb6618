"""Validate the docstrings of all public names and their public methods with numpydoc."""

import inspect
import sys
import tomllib
from pathlib import Path

from numpydoc.validate import validate
from public_names import public_names, resolve

SETTINGS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
CHECKS = set(SETTINGS["tool"]["numpydoc_validation"]["checks"])


# For rooms that contributors extend, and for the hooks of NCA's method objects, one line will do.
EXTENDED_BY_CONTRIBUTORS = ("kernels", "summaries", "papers")


def documented_names():
    """Pairs of a dotted name and the checks to apply, for public objects and the methods they define."""
    for room, name in public_names():
        value = resolve(name)
        if not hasattr(value, "__qualname__"):
            continue  # an alias of a type
        checks = {"GL08"} if room in EXTENDED_BY_CONTRIBUTORS else CHECKS
        home = f"{value.__module__}.{value.__qualname__}"
        yield home, checks
        if room == "metric" and name != "manylens.NCA":
            checks = {"GL08"}
        if inspect.isclass(value):
            for attribute, member in vars(value).items():
                documented = inspect.isfunction(member) and (member.__doc__ or not inherits(value, attribute))
                if documented and not attribute.startswith("_"):
                    yield f"{home}.{attribute}", checks


def inherits(kind, attribute):
    """Whether a base class documents this method."""
    return any(getattr(vars(base).get(attribute), "__doc__", None) for base in kind.__mro__[1:])


def main():
    errors = 0
    for name, checks in dict(documented_names()).items():
        for code, message in validate(name)["errors"]:
            if code in checks:
                print(f"{name}: {code} {message}")
                errors += 1
    print(f"{errors} errors in docstrings")
    return int(errors > 0)


if __name__ == "__main__":
    sys.exit(main())
