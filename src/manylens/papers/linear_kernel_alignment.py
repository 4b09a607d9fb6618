"""Linear kernel alignment: the thesis's algorithms, literally, with its equation numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.optimize import minimize

from manylens.typing import FloatArray

# --- Comparing representations ---
# Chapters 1 and 2, with repairs: all kernels are centered, and two sketches that are compared share S.


def centered_kernel(X: FloatArray) -> FloatArray:
    """H X Xᵀ H with H = I - 1 1ᵀ/N, for features (N, d)."""
    N = len(X)
    H = np.eye(N) - np.ones((N, N)) / N
    return H @ X @ X.T @ H


def kernel_alignment(K1: FloatArray, K2: FloatArray) -> float:
    """Eq. 1.1 and 2.1: ρ = <K₁, K₂> / (|K₁| |K₂|), for kernel matrices (N, N)."""
    return float(np.sum(K1 * K2) / (np.linalg.norm(K1) * np.linalg.norm(K2)))


def cka(X: FloatArray, Y: FloatArray) -> float:
    """Eq. 2.1 for centered linear kernels, from matrices (N, N)."""
    return kernel_alignment(centered_kernel(X), centered_kernel(Y))


def linear_cka(X: FloatArray, Y: FloatArray) -> float:
    """Eq. 2.2: |XᵀY|² / (|XXᵀ| |YYᵀ|), for zero-centered features (N, d_x) and (N, d_y)."""
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    return float(np.sum((X.T @ Y) ** 2) / (np.linalg.norm(X @ X.T) * np.linalg.norm(Y @ Y.T)))


def feature_sketch(batches: Iterable[FloatArray], n_buckets: int, seed: int = 0) -> FloatArray:
    """Algorithm 1: add every row, with a random sign, to one random of the M buckets; (M, d).

    The same seed gives the same S to every representation of the same rows.
    """
    rng = np.random.default_rng(seed)
    sketch: FloatArray | None = None
    for A in batches:
        sketch = np.zeros((n_buckets, A.shape[1])) if sketch is None else sketch
        for row in A:
            sign, bucket = rng.choice([-1.0, 1.0]), rng.integers(n_buckets)
            sketch[bucket] += sign * row
    if sketch is None:
        raise ValueError("There is nothing to sketch: no batch was given.")
    return sketch


def sketched_cka(SX: FloatArray, SY: FloatArray) -> float:
    """Eq. 1.5: |XᵀSᵀS Y|² / (|S X XᵀSᵀ| |S Y YᵀSᵀ|), from one sketch (M, d) of centered features each.

    Biased upward unless M is large against the stable ranks: one sketch overestimates every norm.
    """
    return float(np.sum((SX.T @ SY) ** 2) / (np.linalg.norm(SX @ SX.T) * np.linalg.norm(SY @ SY.T)))


def combined_alignment(mu: FloatArray, features: Sequence[FloatArray], Y: FloatArray) -> float:
    """The objective of eq. 1.4: alignment of Σ μ_i X_i X_iᵀ with Y Yᵀ, all centered."""
    K = sum(weight * centered_kernel(X) for weight, X in zip(mu, features, strict=True))
    return kernel_alignment(np.asarray(K), centered_kernel(Y))


def alignf(features: Sequence[FloatArray], Y: FloatArray) -> FloatArray:
    """Eq. 1.4: weights μ ≥ 0, |μ| = 1, that maximize the alignment, found by ascent from equal weights."""
    start = np.ones(len(features))
    scales = np.array([np.linalg.norm(centered_kernel(X)) for X in features])
    # The objective does not depend on the scale of μ; one unit per kernel makes the ascent well conditioned.
    found = minimize(
        lambda v: -combined_alignment(v / scales, features, Y),
        start,
        bounds=[(0, None)] * len(features),
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000},
    )
    mu = found.x / scales
    return mu / np.linalg.norm(mu)


def align(features: Sequence[FloatArray], Y: FloatArray) -> FloatArray:
    """Each weight is the alignment <K_i, K_Y> / |K_i| of its own kernel (Cortes, Mohri and Rostamizadeh)."""
    target = centered_kernel(Y)
    kernels = [centered_kernel(X) for X in features]
    mu = np.array([np.sum(K * target) / np.linalg.norm(K) for K in kernels])
    return mu / np.linalg.norm(mu)
