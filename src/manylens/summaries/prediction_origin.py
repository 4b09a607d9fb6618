"""What the summaries of predictions share: the checks of a batch and the origin of their sums."""

from __future__ import annotations

import numpy as np

from manylens.typing import FloatArray


def first_origin(Q: FloatArray) -> FloatArray:
    """Mean (p + 1, C) of a first batch, relative to its first row: a constant predictor has no variance."""
    return np.asarray(Q[0] + (Q - Q[0]).mean(axis=0))


def check_batch(
    P: FloatArray, Y: FloatArray, weight: FloatArray | None, seen: tuple[int, ...] | None
) -> None:
    """Raise unless the shapes match one another and those of earlier batches, `seen` (p + 1, C)."""
    weight_fits = weight is None or weight.shape == Y.shape
    if P.ndim != 3 or Y.shape != (P.shape[0], P.shape[2]) or not weight_fits:
        shapes = f"{P.shape} and {Y.shape}" + ("" if weight is None else f", with weights {weight.shape}")
        raise ValueError(
            f"Predictions and target have shapes {shapes}: give (n, p, C) and (n, C), and weights (n, C)."
        )
    given = (P.shape[1] + 1, P.shape[2])
    if seen is not None and given != seen:
        raise ValueError(f"A batch of {_described(given)} follows batches of {_described(seen)}.")


def check_same_predictors(theirs: tuple[int, ...], ours: tuple[int, ...]) -> None:
    """Raise unless two summaries have origins of the same shape (p + 1, C)."""
    if theirs != ours:
        raise ValueError(
            f"Moments of {_described(theirs)} cannot be merged into moments of {_described(ours)}."
        )


def _described(shape: tuple[int, ...]) -> str:
    return f"{shape[0] - 1} predictors with {shape[1]} columns each"
