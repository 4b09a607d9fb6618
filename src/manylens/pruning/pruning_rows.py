"""Rows for node pruning: as a dense array, and which of them trees were fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from manylens.pruning.members import ForestMembers
from manylens.pruning.tree_ensembles import TreeEnsemble
from manylens.typing import BoolArray, FloatArray, IntArray
from manylens.validation import require_memory


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
