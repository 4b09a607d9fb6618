"""What shows only after many batches, or with checks that are too slow for everyday use."""

import json
import os
import subprocess
import sys

import pytest

from tests.faults import soak
from tests.faults.test_files import ROOT, run


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory from /proc")
def test_memory_is_flat_while_batches_arrive():
    batches = 200
    done = run("tests.faults.soak", "--batches", str(batches))
    assert done.returncode == 0, done.stderr
    measured = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(measured) == 6
    kept = batches * soak.ROWS * soak.COLUMNS * 8  # bytes, if every batch stayed in memory
    assert all(one["growth"] < kept / 4 for one in measured), measured


@pytest.mark.slow
@pytest.mark.skipif(bool(os.environ.get("NUMBA_BOUNDSCHECK")), reason="this is the run with bounds checks")
def test_no_loop_reads_or_writes_outside_an_array(tmp_path):
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "not python"]
    done = subprocess.run(
        [*command, *(f"tests/native/test_{name}.py" for name in ("count_sketch", "nearest", "trees"))],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=500,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
