"""Held-out rows that judge pruned models: no tree was fitted to them.

If the rows are held out from the ensemble, each part of them judges models that were pruned with the other
parts. This does not work with the rows that a forest was fitted to. Its out-of-bag rows can judge the forest,
but not refitted leaves: trees that were fitted to a row have splits that agree with its target, refits to
neighboring rows compensate for that in the other trees, and the loss looks larger than it is. So a few trees
are fitted again to a part of the rows, and pruned like those of the forest.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone

from manylens.pruning.node_path import RowLeaves, row_leaves
from manylens.pruning.path_losses import Trial
from manylens.pruning.pruned_ensemble import comparable_rows
from manylens.pruning.pruning_rows import dense, forest_samples, unseen_rows
from manylens.pruning.tree_ensembles import TreeEnsemble, TreeFormat
from manylens.typing import AnyArray, FloatArray, IntArray

FOLDS = 4  # parts of rows that are held out from the ensemble
FEW_ROWS = 1000  # up to this many rows, all folds judge in turn; beyond, two of them
MANY_ROWS = 10_000  # from this many on, one of them: 2,500 rows judge well, and a second trial takes as long
PARTS = 3  # parts of rows that a forest was fitted to; one judges trees that are fitted to the others


def held_out_trials(ensemble: TreeEnsemble, rows: RowLeaves, random: np.random.RandomState) -> list[Trial]:
    """Trials in which one part of the held-out rows judges models that learn from the other parts."""
    n = len(rows.target)
    folds = min(FOLDS, n)
    fold = random.permutation(np.arange(n) % folds)
    return [
        Trial(ensemble, rows.of_rows(fold != k), rows.of_rows(fold == k), np.flatnonzero(fold == k))
        for k in range(folds if n <= FEW_ROWS else 2 if n < MANY_ROWS else 1)
    ]


def refitted_trials(
    ensemble: Any,
    reader: TreeFormat,
    X: Any,
    y: AnyArray,
    target: FloatArray,
    random: np.random.RandomState,
    used: IntArray | None = None,
) -> Callable[[int], list[Trial]]:
    """Trials, by growing numbers of trees, in which a part of the rows judges trees fitted to the others.

    Trees are fitted to all of the others, like those of the ensemble, but leaves are refitted by and models
    are judged by the rows that are `used` for pruning only.
    """
    part = stratified_parts(target, random)
    learn, judge = np.flatnonzero(part != 0), np.flatnonzero(part == 0)
    number = np.arange(len(target))
    used = number if used is None else used
    learn_by, judge = np.isin(learn, used), judge[np.isin(judge, used)]
    number[used] = np.arange(len(used))
    seed = random.randint(2**31)
    forest = clone(ensemble).set_params(random_state=seed, warm_start=False, oob_score=False)
    if isinstance(forest.max_samples, Integral):
        forest.max_samples = max(1, int(forest.max_samples) * len(learn) // len(target))

    def trials(n_trees: int) -> list[Trial]:
        if not len(judge) or not len(learn[learn_by]):
            return []
        with warnings.catch_warnings():  # balanced weights of classes stay right for the same rows
            warnings.filterwarnings("ignore", message="class_weight presets")
            forest.set_params(n_estimators=n_trees).fit(X[learn], y[learn])
        forest.warm_start = True
        small = reader.read(forest)
        unseen = unseen_rows(forest_samples(forest, len(learn)), len(learn))[:, learn_by]
        few = learn[learn_by]
        seen, new = (comparable_rows(dense(X[rows]), small.trees) for rows in (few, judge))
        learned = row_leaves(seen, small.trees, unseen, target[few])
        return [Trial(small, learned, row_leaves(new, small.trees, None, target[judge]), number[judge])]

    return trials


def own_trial(ensemble: TreeEnsemble, rows: RowLeaves) -> list[Trial]:
    """A trial in which all out-of-bag rows both learn and judge, for very few rows."""
    used = rows.counts() > 0
    return [Trial(ensemble, rows, rows.of_rows(used), np.flatnonzero(used))]


def stratified_parts(target: FloatArray, random: np.random.RandomState) -> IntArray:
    """Parts (n,) of equal size, with equal shares of classes; -1 for the only row of a class.

    All classes are then in the rows outside of any part.
    """
    order = random.permutation(len(target))
    if not np.isin(target, (0.0, 1.0)).all():
        return order % PARTS
    label = target @ np.arange(1, target.shape[1] + 1)
    order = order[np.argsort(label[order], kind="stable")]
    part = np.empty(len(target), dtype=np.int64)
    part[order] = np.arange(len(target)) % PARTS
    _, number, count = np.unique(label, return_inverse=True, return_counts=True)
    part[count[number] == 1] = -1
    return part
