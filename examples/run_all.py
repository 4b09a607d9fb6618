"""Run every example in a process of its own, one a core; each writes its figure to examples/figures."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent


def run(path):
    """Run one example; True where it succeeded."""
    # Examples are small, and run beside each other: the threads of a matrix product would only wait.
    environment = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", **os.environ, "MPLBACKEND": "Agg"}
    start = time.perf_counter()
    finished = subprocess.run([sys.executable, path], env=environment)
    verdict = "failed" if finished.returncode else f"{time.perf_counter() - start:.1f} s"
    print(f"{path.name}: {verdict}", flush=True)
    return finished.returncode == 0


def main():
    (HERE / "figures").mkdir(exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return int(not all(list(pool.map(run, sorted(HERE.glob("plot_*.py"))))))


if __name__ == "__main__":
    sys.exit(main())
