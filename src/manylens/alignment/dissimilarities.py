"""Representational similarity analysis: dissimilarities of all pairs of rows, and their correlation."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import rankdata

from manylens.alignment.feature_sets import centered
from manylens.alignment.neighborhoods import unit_rows
from manylens.native.distance_correlation import distances_from_products
from manylens.typing import FloatArray
from manylens.validation import safe_scale, times_power

Distance: TypeAlias = Literal["correlation", "euclidean", "cosine"]
Correlation: TypeAlias = Literal["spearman", "pearson"]


def dissimilarities(X: FloatArray, distance: Distance) -> FloatArray:
    """Dissimilarities (n (n - 1) / 2,) of the pairs i < j of rows (n, d), in float64.

    "correlation" is 1 minus the Pearson correlation of two rows, "cosine" 1 minus their cosine, and
    "euclidean" their distance.
    """
    X = times_power(X, -safe_scale(X)).astype(np.float64)
    upper = np.triu_indices(len(X), 1)
    if distance == "euclidean":
        X = np.ascontiguousarray(centered(X))
        products = X @ X.T
        distances_from_products(X, X, products)
        return products[upper]
    if distance == "correlation":
        X = centered(np.ascontiguousarray(X.T)).T
    X = unit_rows(X)
    return 1.0 - (X @ X.T)[upper]


def standardized(values: FloatArray, correlation: Correlation) -> FloatArray:
    """Values (m,), or their ranks, centered and of length 1, so that products are correlations.

    Zeros if all values are equal up to rounding.
    """
    spread = float(np.ptp(values))
    if spread <= 64 * np.finfo(np.float64).eps * float(np.abs(values).max(initial=0.0)):
        return np.zeros_like(values)
    values = rankdata(values) if correlation == "spearman" else values / spread
    values = values - values.mean()
    return values / np.linalg.norm(values)
