"""Run every example in a process of its own; each writes its figure to examples/figures."""

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def main():
    (HERE / "figures").mkdir(exist_ok=True)
    # Examples are small: on a busy machine the threads of a matrix product would wait for each other.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "MPLBACKEND": "Agg"}
    for path in sorted(HERE.glob("plot_*.py")):
        start = time.perf_counter()
        finished = subprocess.run([sys.executable, path], env=environment)
        if finished.returncode:
            print(f"{path.name} failed")
            return 1
        print(f"{path.name}: {time.perf_counter() - start:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
