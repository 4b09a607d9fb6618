"""The annotations are usable from outside: a strictly typed program passes mypy, and runs."""

import importlib.util
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONSUMER = ROOT / "tests" / "typed_consumer.py"


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_a_strictly_typed_program_passes_mypy():
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(CONSUMER)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_same_program_runs(capsys):
    pytest.importorskip("matplotlib").use("Agg")
    spec = importlib.util.spec_from_file_location("typed_consumer", CONSUMER)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    program.main()
    assert capsys.readouterr().out


def test_the_package_is_marked_as_typed():
    assert resources.files("manylens").joinpath("py.typed").is_file()
