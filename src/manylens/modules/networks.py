"""Networks of the same shape and their common loss in NumPy, so that trained models predict without torch.

Notation: M networks F_1 ... F_M with Q outputs each, F̄ their mean, y targets, λ the diversity. The loss is

    L = mean_m |F_m - y|² - λ mean_m |F_m - F̄|² = (1-λ) mean_m |F_m - y|² + λ |F̄ - y|², averaged over rows.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.preprocessing import StandardScaler
from sklearn.utils import gen_batches

from manylens.modules.solver import Ambiguity
from manylens.scoring import finite_score
from manylens.summaries.moments import block_rows, column_means
from manylens.typing import FloatArray, Rows
from manylens.validation import (
    is_sparse,
    refuse_extreme,
    refuse_overflow,
    require_memory,
    safe_scale,
    times_power,
)

ACTIVATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "identity": lambda values: values,
    "relu": lambda values: np.maximum(values, 0),
    "tanh": np.tanh,
    "logistic": expit,
}


class StackedNetworks:
    """M networks of the same shape."""

    def __init__(self, weights: list[FloatArray], biases: list[FloatArray], activations: list[str]) -> None:
        self.weights = weights  # (M, in, out) per layer
        self.biases = biases  # (M, out) per layer
        self.activations = activations  # after each layer, a key of ACTIVATIONS

    def __len__(self) -> int:
        return len(self.weights[0])

    def layers(self, first: int, last: int | None) -> StackedNetworks:
        """Networks made of layers first ... last - 1; they share the arrays."""
        part = slice(first, last)
        return StackedNetworks(self.weights[part], self.biases[part], self.activations[part])

    def outputs(self, rows: FloatArray) -> FloatArray:
        """Outputs (M, n, Q) for rows (n, d) that all networks see, or rows (M, n, d) per network."""
        for W, b, name in zip(self.weights, self.biases, self.activations, strict=True):
            rows = ACTIVATIONS[name](rows @ W.astype(rows.dtype) + b[:, None].astype(rows.dtype))
        return rows

    def in_blocks(
        self, rows: Rows, reduce: Callable[[FloatArray], FloatArray], prepare: Callable[[Any], FloatArray]
    ) -> FloatArray:
        """reduce(outputs(prepare(block))) of blocks of rows, concatenated."""
        batches = gen_batches(rows.shape[0], self.block_rows(rows.dtype.itemsize))
        with np.errstate(over="ignore", invalid="ignore"):
            outputs = [reduce(self.outputs(prepare(rows[batch]))) for batch in batches]
        return refuse_overflow(np.concatenate(outputs))

    def block_rows(self, itemsize: int) -> int:
        """Number of rows per block, chosen by the outputs of the widest layer."""
        return block_rows(len(self) * max(W.shape[2] for W in self.weights), itemsize)


def random_networks(
    n_networks: int, widths: Sequence[int], activations: Sequence[str], rng: np.random.Generator
) -> StackedNetworks:
    """Random networks: uniform weights of variance 2/(in + out), biases of zero (Glorot and Bengio)."""
    weights: list[FloatArray] = []
    size = sum(float(n_in) * n_out for n_in, n_out in pairwise(widths))
    require_memory(8.0 * n_networks * size, f"A set of {n_networks} networks with these layers")
    for n_in, n_out in pairwise(widths):
        limit = np.sqrt(6 / (n_in + n_out))
        weights.append(rng.uniform(-limit, limit, size=(n_networks, n_in, n_out)))
    return StackedNetworks(weights, [np.zeros((n_networks, n)) for n in widths[1:]], list(activations))


def network_loss(outputs: Any, targets: Any, diversity: float) -> Any:
    """The loss L of outputs (M, n, Q) on targets (n, Q), as a sum without cancellation; arrays or tensors."""
    individual = ((outputs - targets) ** 2).sum(-1).mean()
    ensemble = ((outputs.mean(0) - targets) ** 2).sum(-1).mean()
    return (1 - diversity) * individual + diversity * ensemble


def output_gradient(outputs: Any, targets: Any, diversity: float) -> Any:
    """Derivative of L with respect to the outputs, 2/(M n) ((F_m - y) - λ (F_m - F̄)), (M, n, Q)."""
    M, n, _ = outputs.shape
    return 2 / (M * n) * ((outputs - targets) - diversity * (outputs - outputs.mean(0)))


def output_ambiguity(outputs: FloatArray, targets: FloatArray) -> Ambiguity:
    """Ambiguity decomposition of outputs: |F̄ - y|² = mean_m |F_m - y|² - mean_m |F_m - F̄|²."""
    mean = outputs.mean(axis=0)
    parts = outputs - targets, outputs - mean, mean - targets
    with np.errstate(over="ignore"):
        return Ambiguity(*(finite_score(np.mean(np.sum(part**2, axis=-1))) for part in parts))


def check_network_diversity(diversity: Any, n_networks: int) -> float:
    """`diversity` as a float; raise unless it is in [0, 1].

    The curvature of the loss is 2/M (1-λ) along changes of the outputs that keep their mean, and
    2/M (1 - λ (M-1)/M) along the output of one network: between 1 and M/(M-1) joint training diverges.
    """
    is_number = isinstance(diversity, numbers.Real) and not isinstance(diversity, bool)
    if is_number and 0 <= float(diversity) <= 1:
        return float(diversity)
    if not is_number or not diversity > 1 or n_networks < 2:
        raise ValueError(
            f"diversity={diversity!r:.99} is not a number in [0, 1]: at 0 each network is trained "
            "separately, at 1 all are trained as one big network."
        )
    raise ValueError(
        f"diversity={diversity!r} is outside [0, 1]: above 1 the loss of all {n_networks} networks together "
        f"has no minimum, and they diverge. M/(M-1) = {n_networks / (n_networks - 1):.4g}, often given as "
        "the limit, applies to one network while the others are fixed. Choose 1 or less."
    )


def column_scales(X: Rows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Means, variances and scales (d,) of the columns, in float64; the scale of constant columns is 1."""
    refuse_extreme(X)
    exponent = safe_scale(X)
    scaled = times_power(X, -exponent)
    scaler = StandardScaler(with_mean=not is_sparse(X)).fit(scaled)
    mean, scale = column_means(scaled), np.asarray(scaler.scale_, dtype=np.float64)
    return np.ldexp(mean, exponent), np.ldexp(scaler.var_, 2 * exponent), np.ldexp(scale, exponent)


def standardize(rows: Rows, shift: ArrayLike, scale: ArrayLike) -> FloatArray:
    """(rows - shift) / scale, dense, in the rows' own precision."""
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return (dense - np.asarray(shift, dtype=rows.dtype)) / np.asarray(scale, dtype=rows.dtype)
