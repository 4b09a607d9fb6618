"""Similarities by matching directions: canonical correlations and orthogonal Procrustes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manylens.alignment.feature_sets import centered
from manylens.typing import FloatArray
from manylens.validation import safe_scale, times_power


class Directions(NamedTuple):
    """Left singular vectors and singular values of the centered rows of one representation."""

    vectors: FloatArray  # U, (n, r), in float64
    values: FloatArray  # descending, (r,)
    loadings: FloatArray  # Xᵀ U, (d, r)


def principal_directions(X: FloatArray, variance: float = 1.0) -> Directions:
    """Directions of rows (n, d) that explain this share of the variance, from the smaller Gram matrix."""
    X = centered(times_power(X, -safe_scale(X)).astype(np.float64))
    n, d = X.shape
    squares, vectors = np.linalg.eigh(X.T @ X if d < n else X @ X.T)
    squares, vectors = squares[::-1], vectors[:, ::-1]
    rank = kept_rank(squares, max(n, d), variance)
    values, vectors = np.sqrt(squares[:rank]), vectors[:, :rank]
    if d < n:
        return Directions(X @ (vectors / values), values, vectors * values)
    return Directions(vectors, values, X.T @ vectors)


def kept_rank(squares: FloatArray, size: int, variance: float) -> int:
    """Number of descending eigenvalues of a Gram matrix that explain this share of the variance."""
    # Eigenvalues of a Gram matrix have half the digits: smaller ones are rounding errors.
    rank = int(np.sum(squares > size * np.finfo(np.float64).eps * squares[0]))
    if variance == 1.0:
        return rank
    shares = np.cumsum(squares[:rank]) / squares[:rank].sum()
    return min(rank, int(np.searchsorted(shares, variance)) + 1)


def mean_correlation(one: Directions, other: Directions) -> float:
    """Mean of the canonical correlations, the min(r_x, r_y) singular values of U_xᵀ U_y."""
    correlations = np.linalg.svd(one.vectors.T @ other.vectors, compute_uv=False)
    return float(np.clip(correlations, 0.0, 1.0).mean())


def projection_weighted_correlation(one: Directions, other: Directions) -> float:
    """Canonical correlations, weighted by how much of X their directions h_i in X explain.

    The weights are proportional to Σ_j |h_i.x_j| over the columns x_j of X (Morcos, Raghu and Bengio 2018).
    """
    turn, correlations, _ = np.linalg.svd(one.vectors.T @ other.vectors, full_matrices=False)
    weights = np.abs(one.loadings @ turn).sum(axis=0)
    return float(np.clip(correlations, 0.0, 1.0) @ weights / weights.sum())


def procrustes_similarity(one: Directions, other: Directions) -> float:
    """|XᵀY|_* / (|X| |Y|), the largest cosine between X and a rotation of Y, both centered.

    The Procrustes distance of X/|X| and Y/|Y| is the root of 2 - 2 times it, and its arccos a metric.
    """
    X, Y = (each.vectors * (each.values / np.linalg.norm(each.values)) for each in (one, other))
    return float(min(np.linalg.svd(X.T @ Y, compute_uv=False).sum(), 1.0))
