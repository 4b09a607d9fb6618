"""Rows and targets for node pruning: dense rows, columns of targets, and what trees were fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from manylens.pruning.members import ForestMembers
from manylens.pruning.tree_ensembles import TreeEnsemble
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray
from manylens.validation import plain_conversion_errors, require_memory


def target_of(y: AnyArray, whole: TreeEnsemble) -> FloatArray:
    """Target (n, C): values, one column per class, or one of 0 and 1."""
    if whole.classes is None:
        with plain_conversion_errors("y"):
            y = y.astype(np.float64)
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity.")
        return y[:, np.newaxis]
    check_classification_targets(y)
    unknown = np.setdiff1d(y, whole.classes)
    if len(unknown):
        raise ValueError(
            f"y has classes that the ensemble was not fitted to: {', '.join(map(str, unknown[:5]))}."
        )
    columns = (y[:, np.newaxis] == whole.classes).astype(np.float64)
    return columns[:, 1:] if whole.n_outputs == 1 else columns


class SampledForest(ForestMembers):
    """A forest whose samples are drawn again only once."""

    @cached_property
    def _samples(self) -> Sequence[IntArray] | None:
        return super().samples()

    def samples(self) -> Sequence[IntArray] | None:
        return self._samples


def out_of_bag(ensemble: Any, whole: TreeEnsemble, X: Any) -> BoolArray | None:
    """Which rows (t, n) are not in the sample of each tree; None if all rows are held out."""
    if not whole.averages or not ensemble.bootstrap:
        return None
    forest = SampledForest(ensemble)
    samples = forest.samples()
    if samples is None or forest.in_bag(X) is None:
        return None
    return unseen_rows(samples, X.shape[0])


def unseen_rows(samples: Sequence[IntArray], n_rows: int) -> BoolArray:
    """Which rows (t, n) are not in any of t samples."""
    unseen = np.ones((len(samples), n_rows), dtype=bool)
    for rows, sample in zip(unseen, samples, strict=True):
        rows[sample] = False
    return unseen


def dense(X: Any) -> FloatArray:
    """Rows as a dense array."""
    if not hasattr(X, "toarray"):
        return X
    require_memory(8.0 * X.shape[0] * X.shape[1], "A dense copy of the sparse rows")
    return X.toarray()
