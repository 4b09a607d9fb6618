"""Two synthetic tasks for ensembles: Friedman's function and concentric shells."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

from manylens.typing import FloatArray, IntArray, Seed
from manylens.validation import check_choice, check_count, check_real, check_seed, require_memory

LARGEST_NOISE = 1e300  # still finite after multiplication by a normal variable


def make_friedman(
    n_samples: int = 3000, *, square: bool = True, noise: float = 1.0, random_state: Seed = None
) -> tuple[FloatArray, FloatArray]:
    """Friedman's regression task: ten uniform features, five of which matter.

    y = 10 sin(π x_1 x_2) + 20 (x_3 - 1/2)² + 10 x_4 + 5 x_5 + noise ε,  x_j ~ U(0, 1),  ε ~ N(0, 1).

    Parameters
    ----------
    n_samples : int, default=3000
        Number of rows.
    square : bool, default=True
        If False, the third term is 20 (x_3 - 1/2), as printed in equation 4.11 of the thesis on ensemble
        pruning.
    noise : float, default=1.0
        Standard deviation of the noise.
    random_state : int, RandomState or None, default=None
        Seed of the rows and the noise.

    Returns
    -------
    X : ndarray, shape (n_samples, 10)
        Features.
    y : ndarray, shape (n_samples,)
        Target.
    """
    check_count(n_samples, "n_samples")
    check_choice(square, "square", (True, False))
    if check_real(noise, "noise", 0) > LARGEST_NOISE:
        raise ValueError(f"noise={noise:g} would overflow: give at most {LARGEST_NOISE:g}.")
    require_memory(120.0 * n_samples, f"A data set of {n_samples} rows")
    rng = check_seed(random_state)
    X = rng.uniform(size=(n_samples, 10))
    third = (X[:, 2] - 0.5) ** (2 if square else 1)
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * third + 10 * X[:, 3] + 5 * X[:, 4]
    return X, y + noise * rng.standard_normal(n_samples)


def make_shells(
    n_samples: int = 3000, *, n_features: int = 10, n_classes: int = 3, random_state: Seed = None
) -> tuple[FloatArray, IntArray]:
    """Equally probable classes that are concentric shells of a normal distribution.

    The class of x ~ N(0, I_d) is the number of k in 1, ..., C - 1 for which |x|² exceeds the k/C quantile of
    the χ² distribution with d degrees of freedom (Hastie, Rosset, Zhu and Zou 2009).

    Parameters
    ----------
    n_samples : int, default=3000
        Number of rows.
    n_features : int, default=10
        Number of features d.
    n_classes : int, default=3
        Number of shells C.
    random_state : int, RandomState or None, default=None
        Seed of the rows.

    Returns
    -------
    X : ndarray, shape (n_samples, n_features)
        Features.
    y : ndarray of int, shape (n_samples,)
        Classes; class 0 is the innermost.
    """
    for name, value in (("n_samples", n_samples), ("n_features", n_features), ("n_classes", n_classes)):
        check_count(value, name)
    if n_classes > n_samples:
        raise ValueError(f"n_classes={n_classes} is more than n_samples={n_samples}: give fewer classes.")
    require_memory(16.0 * n_samples * n_features, f"A data set of {n_samples} rows and {n_features} columns")
    rng = check_seed(random_state)
    X = rng.standard_normal((n_samples, n_features))
    radii = chi2.ppf(np.arange(1, n_classes) / n_classes, n_features)
    return X, np.searchsorted(radii, np.sum(X**2, axis=1), side="left")
