"""Diversity for workers that answer with probability p: `python -m benchmarks.tuning.unreliable_workers`.

The drop-module theorem gives the minimizer of the expected inner-product loss of the modules that answer,
lambda = M p / (1 + p (M - 1)). This prints that loss, relative to the squared norm of the kernel, and the
precision at 10 against pixels (rows of the digits that no module was fitted to, at least one module
answering) for lambda and for diversity 1.
"""

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from manylens import ModularKernelPCA

SHAPES = ((15, 4),)  # modules, components
PROBABILITIES = (0.05, 0.1, 0.2, 0.5, 0.8, 0.95)
DRAWS = 30


def split_rows(seed):
    """Rows to fit and search, and queries."""
    X = load_digits().data
    X = X[np.random.default_rng(seed).permutation(len(X))]
    return X[:1400], X[1400:]


def expected_loss(Z, gram, p):
    """Expected squared error of the best multiple of the answering modules' inner products, over the norm.

    With b_m = 1 if module m answers, sum_m b_m K_m has mean p S and variance p (1 - p) sum_m |K_m|², S the
    sum of all K_m; the scale that minimizes the expected error is found in closed form.
    """
    kernels = [module @ module.T for module in Z]
    total = sum(kernels)
    square = p**2 * np.sum(total**2) + p * (1 - p) * sum(np.sum(kernel**2) for kernel in kernels)
    inner = p * np.sum(total * gram)
    return 1 - inner**2 / (square * np.sum(gram**2))


def precision(squares, relevant, p, rng):
    """Mean precision at 10 over draws of the modules that answer, at least one."""
    shares = []
    for _ in range(DRAWS):
        some = rng.random(len(squares)) < p
        some[rng.integers(len(some))] |= not some.any()
        found = np.argpartition(squares[some].sum(axis=0), 9, axis=1)[:, :10]
        shares.append(np.mean([np.isin(*pair).mean() for pair in zip(relevant, found, strict=True)]))
    return np.mean(shares)


def main(seed=0):
    """Print the table."""
    base, queries = split_rows(seed)
    relevant = np.argsort(cdist(queries, base), axis=1)[:, :10]
    print("modules x components     p  lambda   loss at lambda, at 1   precision at lambda, at 1")
    for n_modules, n_components in SHAPES:
        fitted = ModularKernelPCA(n_modules, n_components, diversity=1, rank=400, random_state=seed).fit(base)
        features = fitted.principal_coordinates(base)
        gram = features @ features.T
        for p in PROBABILITIES:
            diversity = n_modules * p / (1 + p * (n_modules - 1))
            losses, shares = [], []
            for model in (fitted.with_diversity(diversity), fitted):
                Z, B = (model.split(model.transform(rows)).transpose(1, 0, 2) for rows in (queries, base))
                squares = np.stack([cdist(z, b, "sqeuclidean") for z, b in zip(Z, B, strict=True)])
                losses.append(expected_loss(B, gram, p))
                shares.append(precision(squares, relevant, p, np.random.default_rng(seed)))
            print(
                f"{n_modules:8d} x {n_components:<10d} {p:5.2f}  {diversity:.3f}   "
                f"{losses[0]:.4f} {losses[1]:.4f}   {shares[0]:.3f} {shares[1]:.3f}"
            )


if __name__ == "__main__":
    main()
