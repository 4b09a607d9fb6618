"""Recognize the rows that the members of a bagged ensemble were trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from manylens.typing import BoolArray, FloatArray, IntArray

OTHER_ROWS = 1e-9  # the ensemble was fitted to other rows if its samples are less probable than this
CHECKED_TREES = 8  # trees whose leaves are compared with the rows
LARGEST_MASK = 2**28  # entries of a mask of all training rows
SIGNIFICANT = 4.0  # standard errors
SHIFTS = 8  # fractions of a turn by which the members are shifted
# Shares of rows that resemble training rows more than with shifted members, and than with opposite errors; by
# chance 0.5. In tests, training rows have at least 0.68 and 0.84, held-out rows at most 0.65 or at most 0.70.
MORE_THAN_SHIFTED, MORE_THAN_OPPOSITE = 0.66, 0.75


def bag_mask(samples: Sequence[IntArray], n_rows: int) -> BoolArray | None:
    """Mask (n, p) of the rows each member was trained on; None if all were, or if n is not their number."""
    top = max(int(rows.max()) for rows in samples) + 1
    if top > n_rows:
        return None
    mask = np.zeros((n_rows, len(samples)), dtype=bool)
    for k, rows in enumerate(samples):
        mask[rows, k] = True
    # a few of the last rows may be in no sample by chance; if many are, the ensemble was fitted to fewer rows
    never = np.prod(1 - mask[:top].mean(axis=0))
    return None if mask.all() or never ** (n_rows - top) < OTHER_ROWS else mask


def grown_from(tree: Any, X: Any, sample: IntArray) -> bool:
    """Whether the rows X[sample] reach every leaf of a fitted tree as often as in its training.

    Rows may have been left out because their weight was zero, so that more are allowed.
    """
    nodes = tree.tree_
    seen = np.unique(sample) if nodes.n_node_samples[0] <= len(np.unique(sample)) else sample
    counts = np.bincount(tree.apply(X[seen]), minlength=nodes.node_count)
    leaves = nodes.children_left == -1
    return bool(np.all(counts[leaves] >= nodes.n_node_samples[leaves]))


def in_bag_advantage(errors: FloatArray, in_bag: BoolArray) -> float:
    """How much smaller the errors (m, p) of members trained on a row are, in standard errors."""
    match = np.einsum("ik,ik->i", _standardized(-errors), _standardized(in_bag.astype(np.float64)))
    return float(match.sum() / np.sqrt(max(1, len(match)) / max(1, in_bag.shape[1] - 1)))


def resemble_training_rows(errors: FloatArray, samples: Sequence[IntArray]) -> bool:
    """Whether the errors (m, p) of members for some rows are those for training rows, in any order.

    Members err less on their own training rows, so the errors for a training row are correlated with which
    members were trained on it. The largest correlation with any training row is compared with those after
    the members were shifted (chance alone), and with that of the errors' negatives: held-out rows near a
    training row depend on it too, but err as often more as less.
    """
    p = len(samples)
    n_rows = max(int(rows.max()) for rows in samples) + 1
    if p < 5 or n_rows * p > LARGEST_MASK:
        return False
    in_bag = np.zeros((n_rows, p), dtype=np.float32)
    for k, rows in enumerate(samples):
        in_bag[rows, k] = 1
    partners, given = _standardized(in_bag), _standardized(-errors)
    given = given[np.any(given != 0, axis=1)]
    if not len(given):
        return False
    found = (given @ partners.T).max(axis=1)
    turns = [np.roll(given, max(1, p * turn // SHIFTS), axis=1) for turn in range(1, SHIFTS)]
    by_chance = np.mean([found > (each @ partners.T).max(axis=1) for each in turns])
    opposite = np.mean(found > (-given @ partners.T).max(axis=1))
    return bool(by_chance > MORE_THAN_SHIFTED and opposite > MORE_THAN_OPPOSITE)


def _standardized(values: FloatArray) -> FloatArray:
    """Values (m, p) minus the means of rows and of columns, with rows of length 1 or 0."""
    values = values - values.mean(axis=0)
    values -= values.mean(axis=1, keepdims=True)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(length > 0, length, 1)
