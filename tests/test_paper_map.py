"""docs/papers.md names functions, tests and benchmarks that exist."""

import importlib
import re
from operator import attrgetter
from pathlib import Path

import pytest

import manylens
from benchmarks.harness import benchmark

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "papers.md"
SECTIONS = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]


def titled(section):
    return section.partition("\n")[0]


def rows(section):
    """Backticked names by column: as printed, in the library, tests, benchmarks."""
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    cells = [[re.findall(r"`([^`]+)`", cell) for cell in line[1:-1].split("|")] for line in lines]
    assert cells
    assert all(len(row) == 5 for row in cells)
    return cells


def in_library(name):
    """The object of a dotted name below `manylens`, whose rooms are imported when needed."""
    found = manylens
    for part in name.split("."):
        if not hasattr(found, part):
            importlib.import_module(f"{found.__name__}.{part}")
        found = attrgetter(part)(found)
    return found


def names_of_tests():
    return {
        name for path in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }


@pytest.mark.parametrize("section", SECTIONS, ids=titled)
def test_every_name_in_the_table_exists(section):
    module = importlib.import_module(re.search(r"as printed: `(\S+)`", section)[1])
    known_tests, known_benchmarks = names_of_tests(), benchmark.discover()
    for _, printed, used, tests, records in rows(section):
        assert printed or used
        for name in printed:
            assert hasattr(module, name), name
        for name in used:
            assert in_library(name), name
        assert set(tests) <= known_tests
        assert set(records) <= set(known_benchmarks)


def test_every_reproduction_is_in_a_table():
    listed = {name for section in SECTIONS for row in rows(section) for name in row[4]}
    known = benchmark.discover()
    assert listed == {name for name, kind in known.items() if kind.kind == "reproduction"}
