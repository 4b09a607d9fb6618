"""Limits on the size of the source; `python tools/house.py` prints all figures."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
house = importlib.util.module_from_spec(SPEC)
sys.modules["house"] = house
SPEC.loader.exec_module(house)


def test_the_source_is_short_annotated_and_not_drowned_in_docstrings():
    count = house.count_source()
    assert count.lines < house.MOST_LINES
    assert count.docstring_ratio <= 0.7
    assert count.annotated == count.functions


@pytest.mark.parametrize("name", house.PARAMETER_LIMITS)
def test_estimators_have_few_parameters(name):
    assert house.parameters()[name] <= house.PARAMETER_LIMITS[name]


def test_every_fit_passes_through_at_most_ten_files():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "tools" / "house.py"), "--walks"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    lengths = {name: int(number) for name, number in (line.split("\t") for line in done.stdout.splitlines())}
    assert len(lengths) == 5
    assert max(lengths.values()) <= house.LONGEST_WALK, lengths


def test_the_map_of_contributing_names_every_room():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    drawn = text[text.index("    src/manylens/") : text.index("    tests/  ")]
    rooms = {path.parent.name for path in (ROOT / "src" / "manylens").glob("*/__init__.py")}
    assert set(re.findall(r"^      (\w+)/", drawn, flags=re.MULTILINE)) == rooms


def test_the_design_page_has_the_layers_of_the_import_contract():
    text = (ROOT / "docs" / "design.md").read_text()
    drawn = re.search(r"^    cli  >(?:.+\n)+", text, flags=re.MULTILINE)[0]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [set(re.findall(r"manylens\.(\w+)", layer)) for layer in contract["layers"]]
    assert [set(re.findall(r"\w+", layer)) for layer in drawn.split(">")] == layers
