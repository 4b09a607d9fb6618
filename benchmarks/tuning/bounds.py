"""How far the bounds on the modular loss are from the modules, for three modules or more.

    python -m benchmarks.tuning.bounds          # random spectra of five kinds: both bounds, and random starts
    python -m benchmarks.tuning.bounds --horn   # small dimensions: all of Horn's inequalities

The gap is (loss - bound) / bound: with the closed form alone, and with the families of Horn's inequalities
that `manylens.modules.bounds` adds. Where more than 1e-4 remains, L-BFGS from random starts looks for better
modules; "below" is how far the best of them is below ours, relative to the loss.

With --horn, all of Horn's inequalities are listed, so that the bound is the least loss of any modules
(docs/theory.md): "above" is how far the modules are above it.
"""

import argparse
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, permutations

import numpy as np

from manylens.modules.bounds import beyond_cone, sharpen_bound
from manylens.modules.solver import modular_loss, polish, solve_modules

DIVERSITIES = (0.5, 0.9, 0.99, 0.999)
OPEN = 1e-4  # gap from which random starts look for better modules
# modules and dimensions for which all inequalities are listed
SMALL = ((3, 5), (3, 6), (3, 7), (4, 5), (4, 6))
KINDS = {
    "flat": lambda n, _: np.ones(n),
    "nearly flat": lambda n, rng: 1 + 0.2 * rng.random(n),
    "tied": lambda n, rng: rng.integers(1, 4, n).astype(float),
    "stepped": lambda n, rng: np.where(
        np.arange(n) < rng.integers(1, n + 1), 1.0, rng.choice([0.1, 0.3, 0.6])
    ),
    "decaying": lambda n, rng: (1.0 + np.arange(n)) ** -rng.uniform(0.5, 3),
}


# --- random spectra ---


def random_problem(kind, rng):
    """A spectrum between H + 1 and M H values long, largest first, M, H and the diversity."""
    M, H = int(rng.integers(3, 7)), int(rng.integers(2, 7))
    n = int(rng.integers(H + 1, M * H + 1))
    return np.sort(KINDS[kind](n, rng))[::-1], M, H, float(rng.choice(DIVERSITIES))


def best_of_starts(q, M, H, diversity, starts, rng):
    """The least loss that L-BFGS reaches from random modules."""
    padded = np.pad(q, (0, M * H - len(q)))
    found = []
    for _ in range(starts):
        start = rng.standard_normal((M, H, M * H)) * np.sqrt(padded / H)
        found.append(modular_loss(polish(start, padded, diversity, 2000), padded, diversity))
    return min(found)


def gaps(kind, draws, starts, rng):
    """Gaps (draws, 2) of the closed form and of the sharper bound, and how far random starts end below."""
    found, below = [], []
    for _ in range(draws):
        q, M, H, diversity = random_problem(kind, rng)
        plain = solve_modules(q, M, H, diversity, rng)
        sharp = sharpen_bound(plain, q, diversity)
        found.append((plain.optimality_gap, sharp.optimality_gap))
        if sharp.optimality_gap > OPEN and starts:
            below.append(1 - best_of_starts(q, M, H, diversity, starts, rng) / plain.loss)
    return np.array(found), below


def random_spectra(draws, starts, seed):
    """A line per kind of spectrum."""
    rng = np.random.default_rng(seed)
    print(f"{draws} spectra of each kind, 3 to 6 modules of 2 to 6 dimensions, diversity in {DIVERSITIES}")
    titles = "closed form: > 1e-4", "> 1 %", "largest", "Horn: > 1e-4", "> 1 %", "largest", "below, at most"
    print(f"{'':12s}" + "".join(f"{title:>20s}" for title in titles))
    for kind in KINDS:
        found, below = gaps(kind, draws, starts, rng)
        cells = []
        for gap in found.T:
            cells += [f"{np.sum(gap > OPEN)}", f"{np.sum(gap > 0.01)}", f"{gap.max():.2g}"]
        cells.append(f"{max(below):.1e} of {len(below)}" if below else "-")
        print(f"{kind:12s}" + "".join(f"{cell:>20s}" for cell in cells), flush=True)


# --- all of Horn's inequalities ---


def partition(subset):
    """λ(I) = (i_r - r, ..., i_1 - 1) of a set of numbers from 0 on, in falling order."""
    return np.array(subset)[::-1] - np.arange(len(subset))[::-1]


@lru_cache
def horn_sets(n, M):
    """All (I_1, ..., I_M; K) of Horn for n dimensions, by size r < n; I_1 ... I_M in ascending order.

    Σ_{k in K} c_k <= Σ_m Σ_{i in I_m} a^m_i holds for the eigenvalues c of every sum of M matrices with
    eigenvalues a^m. (I; K) belongs to them if matrices of r dimensions with eigenvalues λ(I_m) and sum λ(K)
    exist, which the inequalities for r dimensions decide (Klyachko, Knutson and Tao).
    """
    return [entry for r in range(1, n) for entry in sets_of_size(n, r, M)]


def sets_of_size(n, r, M):
    """Those of `horn_sets` with r numbers in every set."""
    subsets = list(combinations(range(n), r))
    shapes = np.array([partition(subset) for subset in subsets])  # (n_subsets, r)
    sizes = shapes.sum(axis=1)
    smaller = [(order, L) for F, L in horn_sets(r, M) for order in set(permutations(F))]
    chosen = []
    for numbers in combinations_with_replacement(range(len(subsets)), M):
        wanted = np.flatnonzero(sizes == sizes[list(numbers)].sum())  # the trace
        if len(wanted) and smaller:
            right = [
                sum(shapes[number][list(f)].sum() for number, f in zip(numbers, F, strict=True))
                for F, _ in smaller
            ]
            left = np.stack([shapes[wanted][:, list(L)].sum(axis=1) for _, L in smaller], axis=1)
            wanted = wanted[(left <= right).all(axis=1)]
        chosen += [(tuple(subsets[number] for number in numbers), subsets[K]) for K in wanted]
    return chosen


def horn_cone(N, M, H):
    """Rows a (N + H,) with a.(t, g) <= 0: all conditions on the eigenvalues t of the mean of modules, if all
    modules have the eigenvalues g, 0 ... 0."""
    rows = []
    for first, size in ((0, N), (N, H)):  # both fall, and are not negative
        falling = np.eye(N + H)[first + 1 : first + size] - np.eye(N + H)[first : first + size - 1]
        rows += [*falling, -np.eye(N + H)[first + size - 1]]
    trace = np.r_[np.ones(N), -np.ones(H)]
    rows += [trace, -trace]
    for sets, K in horn_sets(N, M):
        row = np.zeros(N + H)
        row[list(K)] = 1.0
        for subset in sets:
            row[[N + i for i in subset if i < H]] -= 1 / M
        rows.append(row)
    return np.unique(np.array(rows), axis=0)


def least_loss(q, M, H, diversity):
    """The minimum of the loss over all modules, for a positive spectrum q (N,) with N <= M H."""
    N, H = len(q), min(H, len(q))
    root = np.sqrt(np.r_[np.full(N, diversity), np.full(H, 1 - diversity)])
    d = np.r_[q / np.sqrt(diversity), np.zeros(H)]
    residual = beyond_cone(horn_cone(N, M, H) / root, d)
    return float(q @ q - residual @ residual)


def all_inequalities(draws, seed):
    """A line per random spectrum in few dimensions for which the closed form leaves a gap."""
    rng = np.random.default_rng(seed)
    print("Spectra with a gap to the closed form, and all of Horn's inequalities:")
    titles = "M", "H", "N", "inequalities", "diversity", "closed form", "families", "all: above"
    print(f"{'':12s}" + "".join(f"{title:>14s}" for title in titles))
    worst = []
    for M, N in SMALL:
        for _ in range(draws):
            kind, q, H, diversity, plain = open_problem(M, N, rng)
            families = sharpen_bound(plain, q, diversity).optimality_gap
            worst.append((families, plain.loss / least_loss(q, M, H, diversity) - 1))
            cells = M, H, N, len(horn_sets(N, M)), diversity
            gaps_left = "".join(f"{gap:14.1e}" for gap in (plain.optimality_gap, *worst[-1]))
            print(f"{kind:12s}" + "".join(f"{cell:14}" for cell in cells) + gaps_left, flush=True)
    families, above = np.max(worst, axis=0)
    print(f"largest gap of {len(worst)}: {families:.1e} with the families, {above:.1e} with all inequalities")


def open_problem(M, N, rng):
    """A random spectrum of N values (flat ones aside) for which the closed form leaves more than 1e-4."""
    while True:
        kind = str(rng.choice(list(KINDS)[1:]))
        H = int(rng.integers(-(-N // M), N))
        q, diversity = np.sort(KINDS[kind](N, rng))[::-1], float(rng.choice(DIVERSITIES))
        plain = solve_modules(q, M, H, diversity, rng)
        if plain.optimality_gap > OPEN:
            return kind, q, H, diversity, plain


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--horn", action="store_true", help="list all of Horn's inequalities")
    parser.add_argument("--draws", type=int, help="spectra of each kind (80), or of each size (10)")
    parser.add_argument("--starts", type=int, default=10, help="random starts of L-BFGS")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.horn:
        all_inequalities(options.draws or 10, options.seed)
    else:
        random_spectra(options.draws or 80, options.starts, options.seed)


if __name__ == "__main__":
    main()
