"""The README's first page must run as written."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S))
def test_the_first_page_runs_as_written(block):
    exec(compile(block, str(README), "exec"), {})


def test_every_name_in_the_table_is_public():
    import manylens

    table = README.read_text().split("## What is inside")[1].split("##")[0]
    names = re.findall(r"`([A-Za-z_]+)`", table)
    assert names
    for name in names:
        assert name in manylens.__all__, name


def test_every_public_name_is_in_the_table():
    import manylens

    table = README.read_text().split("## What is inside")[1].split("##")[0]
    for name in manylens.__all__:
        assert name == "__version__" or f"`{name}`" in table, f"{name} is missing from README's table"
