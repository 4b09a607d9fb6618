"""Rows for node pruning: as a dense array, and which of them trees were fitted to."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from manylens.pruning.members import ForestMembers
from manylens.pruning.training_moments import resemble_training_rows, some_errors, warn_of_training_rows
from manylens.pruning.tree_ensembles import TreeEnsemble
from manylens.typing import BoolArray, FloatArray, IntArray
from manylens.validation import require_memory


class SampledForest(ForestMembers):
    """A forest whose samples of n rows are known."""

    def __init__(self, forest: Any, n_rows: int) -> None:
        super().__init__(forest)
        self._samples = forest_samples(forest, n_rows)

    def samples(self) -> Sequence[IntArray] | None:
        return self._samples


def forest_samples(forest: Any, n_rows: int) -> Sequence[IntArray]:
    """The rows that each tree of a forest was fitted to, like `estimators_samples_`.

    That makes a generator for every tree, which takes a tenth of the time of fitting small trees. Here one
    generator is seeded for each tree; if that gives wrong samples for the first or the last tree,
    `estimators_samples_` is used.
    """
    trees = forest.estimators_
    few = copy.copy(forest)
    few.estimators_ = [trees[0], trees[-1]]
    known = few.estimators_samples_
    random, samples = np.random.RandomState(), []
    for tree in trees:
        random.seed(tree.random_state)
        samples.append(random.randint(0, n_rows, len(known[0])).astype(known[0].dtype))
    same = all(np.array_equal(a, b) for a, b in zip(known, (samples[0], samples[-1]), strict=True))
    return samples if same else forest.estimators_samples_


def out_of_bag(ensemble: Any, whole: TreeEnsemble, X: Any, target: FloatArray) -> BoolArray | None:
    """Mask (t, n) of the rows that are not in the sample of each tree; None if all rows are held out.

    Warns if rows that cannot be matched with the samples of a forest resemble its training rows.
    """
    if not whole.averages or not ensemble.bootstrap:
        return None
    forest = SampledForest(ensemble, X.shape[0])
    samples = forest.samples()
    if samples is None:
        return None
    if forest.in_bag(X) is None:
        if resemble_training_rows(some_errors(forest, X, target, None)[1], samples):
            warn_of_training_rows(forest)
        return None
    return unseen_rows(samples, X.shape[0])


def unseen_rows(samples: Sequence[IntArray], n_rows: int) -> BoolArray:
    """Mask (t, n) of the rows that are not in each of t samples."""
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
