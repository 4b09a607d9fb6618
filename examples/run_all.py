"""Run every example in its own process, one per core, and save its figures to examples/figures."""

import os
import runpy
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent


def draw(path):
    """Run one example in this process and save the figures that it leaves open under its name."""
    import matplotlib.pyplot as plt

    warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
    runpy.run_path(str(path), run_name="__main__")
    for number in plt.get_fignums():
        name = path.stem if number == 1 else f"{path.stem}_{number}"
        plt.figure(number).savefig(HERE / "figures" / f"{name}.png", dpi=120)


def run(path):
    """Run one example in its own process; True if it succeeded."""
    # Examples are small and run side by side: more BLAS threads would wait for each other.
    environment = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", **os.environ, "MPLBACKEND": "Agg"}
    start = time.perf_counter()
    finished = subprocess.run([sys.executable, __file__, path], env=environment)
    outcome = "failed" if finished.returncode else f"{time.perf_counter() - start:.1f} s"
    print(f"{path.name}: {outcome}", flush=True)
    return finished.returncode == 0


def main(arguments):
    """Run the given examples, or all of them."""
    (HERE / "figures").mkdir(exist_ok=True)
    if arguments:
        for argument in arguments:
            draw(Path(argument))
        return 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return int(not all(list(pool.map(run, sorted(HERE.glob("plot_*.py"))))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
