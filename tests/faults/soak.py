"""Learn from batch after batch and watch the memory: `python -m tests.faults.soak --batches 5000`.

Whatever learns from batches keeps a summary, a base of fixed size, or as many rows as were not removed. Its
memory is then the same after 100 batches and after 100,000.
"""

import argparse
import gc
import json
import sys
from collections.abc import Callable

import numpy as np

from manylens import NCA, LayerRidgeClassifier, ModularKernelPCA, ModuleNeighbors
from manylens.alignment import StreamingCKA
from manylens.metric import Stochastic
from manylens.summaries import CountSketch

ROWS, COLUMNS = 64, 16
WARM_UP = 60  # batches until buffers and caches have their size


def resident_bytes() -> int:
    """Memory of this process that is not backed by a file."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def learners(rng: np.random.Generator) -> dict[str, Callable[[np.ndarray, np.ndarray], object]]:
    """What to call with each batch and its classes, by name."""
    first, classes = rng.standard_normal((512, COLUMNS)), np.arange(512) % 3
    lenses = ModularKernelPCA(3, 2, rank=64, random_state=0)
    nca = NCA(2, method=Stochastic(base=256), random_state=0)
    ridge = LayerRidgeClassifier(random_state=0)
    index = ModuleNeighbors().fit(first, ids=np.arange(512))
    cka, sketch = StreamingCKA(), CountSketch(256, random_state=0)
    waiting = list(range(512))

    def replace_rows(X, y):
        """As many rows come as go, and a search in between."""
        new = waiting[-1] + 1 + np.arange(ROWS)
        index.partial_fit(X, ids=new)
        index.kneighbors(X[:4])
        index.remove(waiting[:ROWS])
        waiting[:] = [*waiting[ROWS:], *new.tolist()]

    return {
        "ModularKernelPCA": lambda X, _: lenses.partial_fit(X),
        "NCA": nca.partial_fit,
        "LayerRidgeClassifier": lambda X, y: ridge.partial_fit({"a": X, "b": X[:, :4]}, y, classes[:3]),
        "ModuleNeighbors": replace_rows,
        "StreamingCKA": lambda X, _: cka.update({"a": X, "b": X[:, :4] ** 2}),
        "CountSketch": lambda X, _: sketch.update(X),
    }


def growth(learn: Callable[[np.ndarray, np.ndarray], object], batches: int, rng: np.random.Generator) -> int:
    """Bytes by which the memory grows from the end of the warm-up to the end of all batches."""
    start = 0
    for number in range(WARM_UP + batches):
        if number == WARM_UP:
            gc.collect()
            start = resident_bytes()
        learn(rng.standard_normal((ROWS, COLUMNS)), rng.permutation(np.arange(ROWS) % 3))
    gc.collect()
    return resident_bytes() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=5000)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    for name, learn in learners(rng).items():
        if given.only in name:
            print(json.dumps({"name": name, "growth": growth(learn, given.batches, rng)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
