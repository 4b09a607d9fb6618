"""Canonical correlations and Procrustes of arrays of any library of the array API, on their device."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal

import numpy as np

from manylens.alignment.cca_and_procrustes import Directions, kept_rank
from manylens.alignment.device_alignments import unit_rows
from manylens.alignment.feature_sets import Names
from manylens.alignment.measure_base import sides
from manylens.arrays import check_matrices, to_host
from manylens.typing import FloatArray

Matching = Literal["mean", "projection", "procrustes"]


def device_matches(
    xp: ModuleType,
    arrays: Sequence[Any],
    names: Names,
    split: int | None,
    matching: Matching,
    variance: float = 1.0,
) -> FloatArray:
    """Similarities (p, q) by matched directions; only they reach the host."""
    checked = check_matrices(xp, names, arrays)
    each = [device_directions(xp, X, name, variance) for X, name in zip(checked, names, strict=True)]
    ones, others = sides(each, split)
    return np.array([[device_match(xp, one, other, matching) for other in others] for one in ones])


def device_directions(xp: ModuleType, X: Any, name: Any, variance: float) -> Directions:
    """Directions of rows (n, d) that explain this share of the variance, as `principal_directions`."""
    X = unit_rows(xp, xp.astype(X, xp.float64), True, name)[0]
    n, d = X.shape
    squares, vectors = xp.linalg.eigh(xp.matmul(X.T, X) if d < n else xp.matmul(X, X.T))
    squares, vectors = xp.flip(squares), xp.flip(vectors, axis=1)
    rank = kept_rank(to_host(xp, squares), max(n, d), variance)
    values, vectors = xp.sqrt(squares[:rank]), vectors[:, :rank]
    if d < n:
        return Directions(xp.matmul(X, vectors / values), values, vectors * values)
    return Directions(vectors, values, xp.matmul(X.T, vectors))


def device_match(xp: ModuleType, one: Directions, other: Directions, matching: Matching) -> float:
    """Similarity of two sets of directions, as by the function of `canonical` for this kind of matching."""
    if matching == "procrustes":
        X, Y = (each.vectors * (each.values / xp.linalg.vector_norm(each.values)) for each in (one, other))
        return min(float(xp.sum(xp.linalg.svdvals(xp.matmul(X.T, Y)))), 1.0)
    turn, correlations, _ = xp.linalg.svd(xp.matmul(one.vectors.T, other.vectors), full_matrices=False)
    correlations = xp.clip(correlations, 0.0, 1.0)
    if matching == "mean":
        return float(xp.mean(correlations))
    weights = xp.sum(xp.abs(xp.matmul(one.loadings, turn)), axis=0)
    return float(xp.sum(correlations * weights) / xp.sum(weights))
