"""The cost of coordinates and candidates in `ModuleNeighbors`, and what it chooses.

    python -m benchmarks.tuning.candidates

Prints the time of a search of MNIST (60,000 rows, 15 modules of 20) for several numbers of leading
coordinates and candidates, the products of two coordinates that a candidate is worth by least squares, and
what the default chooses for kernel PCA and for linear autoencoders, with the share of exact neighbors that
test rows then find.
"""

import time

import numpy as np

from manylens import ModularAutoencoder, ModularKernelPCA, ModuleNeighbors, retrieval_precision
from manylens.datasets import load_dataset

LEADING, CANDIDATES = (16, 24, 32, 40, 64), (20, 40, 80, 160)
REPEATS = 4


def best_time(index, coordinates):
    """Best time of several searches."""
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        index.search(coordinates)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def worth_of_a_candidate(lenses, base, queries):
    """Fit the times by n d, n and the number of candidates, and print them."""
    rows, times = [], []
    for d in LEADING:
        index = ModuleNeighbors(lenses, n_leading=d, n_candidates=CANDIDATES[0]).fit(base)
        coordinates = index.coordinates(queries)
        for m in CANDIDATES:
            times.append(best_time(index.set_params(n_candidates=m), coordinates))
            rows.append((len(base) * d, len(base), m))
            print(f"{d:4d} coordinates {m:4d} candidates {1e3 * times[-1]:8.1f} ms", flush=True)
    product, _, candidate = np.linalg.lstsq(np.array(rows, dtype=float), np.array(times), rcond=None)[0]
    return candidate / product


def main():
    data = load_dataset("mnist")
    X = data.X.astype(np.float32) / 255
    base, queries = X[: data.n_train], X[data.n_train :][:5000]
    lenses = ModularKernelPCA(15, 20, diversity=1.0, rank=1000, random_state=0).fit(base)
    worth = worth_of_a_candidate(lenses, base, queries)
    print(f"a candidate is worth {worth:,.0f} products of two coordinates")
    coders = ModularAutoencoder(15, 20, diversity=1.0, random_state=0).fit(base)
    for name, modules in (("kernel PCA", lenses), ("linear autoencoders", coders)):
        index = ModuleNeighbors(modules).fit(base)
        exact = ModuleNeighbors(modules, method="exact").fit(base)
        found = retrieval_precision(index.kneighbors(queries)[1], exact.kneighbors(queries)[1])
        print(
            f"{name}: {index.n_leading_} coordinates, {index.candidates_per_neighbor_:.1f} candidates for "
            f"each neighbor; {100 * found:.1f} % of the exact neighbors found"
        )


if __name__ == "__main__":
    main()
