"""Rows for node pruning: as a dense array, and which of them trees were fitted to."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy.special import gammainc, gammaincc, gammaln, xlogy

from manylens.pruning.class_weights import class_weighting, constraint_of
from manylens.pruning.members import ForestMembers, has_new_values
from manylens.pruning.node_path import residuals
from manylens.pruning.pruned_ensemble import dense_rows, probabilities
from manylens.pruning.training_moments import resemble_training_rows, some_errors, warn_of_training_rows
from manylens.pruning.tree_ensembles import TreeEnsemble, TreeFormat, tree_ends
from manylens.typing import BoolArray, FloatArray, IntArray
from manylens.validation import require_memory

BY_CHANCE = 1e-6  # largest probability of counts of rows in leaves that are no coincidence
COMPARED = 64  # trees in which rows are compared with those that the ensemble was fitted to
TINY = 1e-300  # instead of a probability of zero
TOLERANCES = 1e-4, 1e-3  # relative tolerances of counts, and of XGBoost's sums of second derivatives
LEAST_LEAVES = 10  # that tell whether targets can be those of training
MANY_LEAVES = 6  # of a stage, from which on they tell its learning rate and penalties
NOISE = 1e-3  # share of the squared residuals from which on targets are others

Leaves: TypeAlias = tuple[IntArray, FloatArray, FloatArray]  # of a tree: number and mass of rows; cover


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

    Raises if rows that cannot be matched with the samples of a forest include its training rows, and warns if
    they resemble some of them.
    """
    if not whole.averages or not ensemble.bootstrap:
        return None
    if has_new_values(ensemble):
        warn_of_training_rows(ForestMembers(ensemble))
        return None
    forest = SampledForest(ensemble, X.shape[0])
    samples = forest.samples()
    if samples is None:
        return None
    if forest.in_bag(X) is None:
        known = likely_training_rows(leaves_of_forest(forest, samples, X), TOLERANCES[0], independent=True)[1]
        trees, few = whole.trees, forest.members[:COMPARED]
        leaves = (trees.leaf[root + tree.apply(X)] for root, tree in zip(trees.roots, few, strict=False))
        bounded = constraint_of(ensemble)
        if known and (bounded or within_targets(len(trees.roots) * trees.value, leaves, target)):
            raise ValueError(
                f"These rows include those that the {type(ensemble).__name__} was fitted to, in another "
                "order or among others: give exactly these rows, in the order of its fit, or only rows that "
                "it was not fitted to."
            )
        if known:
            warn_of_same_points(ensemble)
        elif resemble_training_rows(some_errors(forest, X, target, None)[1], samples):
            warn_of_training_rows(forest)
        return None
    return unseen_rows(samples, X.shape[0])


def unseen_rows(samples: Sequence[IntArray], n_rows: int) -> BoolArray:
    """Mask (t, n) of the rows that are not in each of t samples."""
    unseen = np.ones((len(samples), n_rows), dtype=bool)
    for rows, sample in zip(unseen, samples, strict=True):
        rows[sample] = False
    return unseen


def warn_of_same_points(ensemble: Any) -> None:
    """Warn that rows have the features of the training rows, but other targets."""
    warnings.warn(
        f"These rows have the features of those that the {type(ensemble).__name__} was fitted to, but as "
        "their targets seem to be others, they are used as new measurements at the same points: losses say "
        "little about other points, and nothing if these are its training rows, which weights, DART or "
        "limits of leaf values can hide.",
        stacklevel=6,
    )


def refuse_training_rows(
    ensemble: Any, whole: TreeEnsemble, at: IntArray, target: FloatArray, reader: TreeFormat
) -> None:
    """Raise if rows that end in these nodes (t, n) must be those that the ensemble was fitted to.

    Warn if their features are, but not their targets, unless values are known not to be plain means.
    """
    if getattr(ensemble, "bootstrap", False):  # see `out_of_bag`
        return
    given = at[:COMPARED], training_counts(ensemble, whole), reader.cover_is_curvature
    if fitted_to(whole, *given):
        weighted = class_weighting(ensemble, whole.n_outputs == 1) is not None
        weighted |= not np.allclose(given[1], whole.cover[: len(given[1])])
        unclear = has_new_values(ensemble) or constraint_of(ensemble) or (weighted and not whole.averages)
        if not unclear and not could_be_fitted_to(whole, target, *given):
            warn_of_same_points(ensemble)
            return
        again = ", or use fit_ensemble=True: it fits a copy to 80 % of the rows and prunes it on the rest"
        raise ValueError(
            f"These are the rows that the {type(ensemble).__name__} was fitted to, or most of them, perhaps "
            "among others, and its errors on them say nothing about new rows. Give "
            f"others{again if hasattr(ensemble, 'fit') else ''}."
        )


def fitted_to(ensemble: TreeEnsemble, at: IntArray, cover: FloatArray, curved: bool = False) -> bool:
    """Whether rows that end in these nodes (t, n) of the first trees must be those that they were fitted to.

    A part of them may be left out, or others added. The cover of nodes is the number of training rows, or,
    if `curved`, the sum of second derivatives of their losses.
    """
    curved = curved and ensemble.link == "logistic"
    found = leaves_of_boosting(ensemble, at, cover, curved)
    return bool(likely_training_rows(found, TOLERANCES[curved], independent=False).any())


def likely_training_rows(trees: Iterable[Leaves], rounded: float, *, independent: bool) -> BoolArray:
    """Whether rows must be the training rows, must include them all, and must be most of them.

    In every leaf, there are then as large a share, at least as many, and at most as many rows as in training.
    This may be chance. With n rows, N training rows and K leaves, (D + K - 1)!/(D! (K - 1)!) sets of counts
    do that for D = |n - N|, and none is more probable than the shares in training. The number of rows in a
    leaf is about Poisson distributed, which gives another bound. Trees that split the rows alike count once.
    Unless trees are `independent`, k of them count as sqrt(k) for the last two: stages of boosting have
    similar leaves, so that new rows which pass one by chance are likely to pass others.
    """
    possible, chances, known = np.ones(3, dtype=bool), np.zeros(3), set()
    for number, mass, cover in trees:
        n, unit = float(number.sum()), float(mass.sum() / number.sum())
        if len(cover) < 2 or cover.sum() <= 0 or unit <= 0:
            continue
        count, trained = mass / unit, cover / unit
        N, K, share = trained.sum(), len(cover), cover / cover.sum()
        slack = rounded * trained + 1e-3
        possible[0] &= np.allclose(count / n, share, rtol=rounded, atol=1e-7)
        possible[1] &= np.all(count >= trained - slack)
        possible[2] &= np.all(count <= trained + slack) and n >= N / 2
        if not possible.any():
            break
        if (key := number.tobytes()) in known:
            continue
        known.add(key)
        rate, apart = n * share, abs(n - N)
        exact = gammaln(n + 1) - np.sum(gammaln(rate + 1) - xlogy(rate, share))
        ways = exact + gammaln(apart + K) - gammaln(apart + 1) - gammaln(K)
        tails = np.stack([gammainc(trained, rate), gammaincc(trained + 1, rate)])  # at least, at most as many
        more, fewer = np.log(np.maximum(tails, TINY)).sum(axis=1)
        chances += exact, min(ways, more), min(ways, fewer)
    if not independent:
        chances[1:] /= np.sqrt(max(1, len(known)))
    return possible & (chances < np.log(BY_CHANCE))


def leaves_of_forest(forest: ForestMembers, samples: Sequence[IntArray], X: Any) -> Iterator[Leaves]:
    """How many rows reach the leaves of some trees, and how many different rows did in training."""
    for member, sample in list(zip(forest.members, samples, strict=True))[:COMPARED]:
        nodes = member.tree_
        if nodes.n_node_samples[0] <= len(np.unique(sample)):  # otherwise, repeated rows count repeatedly
            leaf = nodes.children_left == -1
            number = np.bincount(member.apply(X), minlength=nodes.node_count)[leaf]
            yield number, number.astype(np.float64), nodes.n_node_samples[leaf].astype(np.float64)


def leaves_of_boosting(
    ensemble: TreeEnsemble, at: IntArray, cover: FloatArray, curved: bool
) -> Iterator[Leaves]:
    """How many rows reach the leaves of the first trees, with the second derivatives of their losses.

    XGBoost's are p (1 - p) for two classes and 2 p (1 - p) for more, by the probabilities before each stage.
    """
    trees, ends, C = ensemble.trees, tree_ends(ensemble.trees), ensemble.n_outputs
    score, mass = np.tile(ensemble.intercept, (at.shape[1], 1)), np.ones((at.shape[1], C))
    for k, nodes in enumerate(at):
        first, last, column = trees.roots[k], ends[k], int(trees.column[k])
        if curved and k % C == 0:
            p = probabilities(score, "logistic")[:, -C:]
            mass = min(C, 2) * p * (1 - p)
        leaf = trees.children[first:last, 0] == np.arange(first, last)
        number = np.bincount(nodes - first, minlength=last - first)[leaf]
        weight = np.bincount(nodes - first, mass[:, column], minlength=last - first)[leaf]
        yield number, weight, cover[first:last][leaf].astype(np.float64)
        if curved:
            score[:, column] += trees.value[trees.leaf[nodes], 0]


def could_be_fitted_to(
    ensemble: TreeEnsemble, target: FloatArray, at: IntArray, cover: FloatArray, curved: bool
) -> bool:
    """Whether leaves with the rows of training have the values of these targets (n, C), or too few tell."""
    trees = ensemble.trees
    trained = cover[trees.children[: len(cover), 0] == np.arange(len(cover))]
    if ensemble.averages:
        same = np.isclose(np.bincount(trees.leaf[at].ravel(), minlength=len(trained)), trained)
        return within_targets(len(trees.roots) * trees.value[: len(trained)], trees.leaf[at], target, same)
    stages = list(leaf_equations(ensemble, target, trees.leaf[at], trained, curved))
    rounded = 4 * float(np.finfo(np.float32).eps) * float(np.abs(target).max(initial=0))
    slack = rounded**2 if trees.threshold.dtype == np.float32 else 0.0  # residuals of XGBoost have 32 bits
    together = np.concatenate([np.empty((5, 0)), *stages], axis=1)
    if together.shape[1] < LEAST_LEAVES or misfit_share([together], slack) <= NOISE:
        return True
    large = [each for each in stages if each.shape[1] >= MANY_LEAVES]  # the learning rate may have changed
    return sum(each.shape[1] for each in large) >= LEAST_LEAVES and misfit_share(large, slack) <= NOISE


def misfit_share(parts: Iterable[FloatArray], slack: float) -> float:
    """Share of the mean squares of residuals that factors per part of `leaf_equations` leave unexplained.

    `slack` is the mean square of a residual that is due to rounding.
    """
    left = squares = 0.0
    for each in parts:
        misfit = each[3] - each[:3].T @ np.linalg.lstsq(each[:3].T, each[3])[0]
        left += max(0.0, float(np.sum(misfit**2)) - slack * each.shape[1])
        squares += float(each[4].sum())
    return left / squares if squares > 0 else 0.0


def leaf_equations(
    ensemble: TreeEnsemble, target: FloatArray, leaves: IntArray, trained: FloatArray, curved: bool
) -> Iterator[FloatArray]:
    """Of leaves with the rows of training: v H, v, sign(v) and G over sqrt(n); mean square of the residuals.

    A leaf of boosting whose n rows have residuals that sum to G, and second derivatives that sum to H, has
    the value v with G = v (a H + b) + c sign(v), with the same a, b and c in all leaves of a stage, and
    mostly of all stages: the learning rate and penalties. The first stage of several is left out: LightGBM's
    holds the intercept.
    """
    C, T = ensemble.n_outputs, len(ensemble.trees.roots)
    score, log_loss = np.tile(ensemble.intercept, (len(target), 1)), ensemble.link == "logistic"
    for k, (leaf, column) in enumerate(zip(leaves, ensemble.trees.column, strict=False)):
        if k % C == 0:
            residual = -residuals(score, target, ensemble.link)
            p = target - residual
            curvature = p * (1 - p) if log_loss else np.ones_like(p)
        here, inside = np.unique(leaf, return_inverse=True)
        v, cover = ensemble.trees.value[here, 0], trained[here]
        r, h = residual[:, column], curvature[:, column]
        n, G, H, squares = (np.bincount(inside, each) for each in (np.ones(len(r)), r, h, r**2))
        mass = min(C, 2) * H if curved and log_loss else n
        shares = np.allclose(mass / mass.sum(), cover / cover.sum(), rtol=TOLERANCES[1])
        same = shares | np.isclose(mass, cover, rtol=TOLERANCES[1])
        same &= v != 0  # penalties may set values to 0
        if k >= C or T == C:
            yield (np.stack([v * H, v, np.sign(v), G, squares / np.sqrt(n)]) / np.sqrt(n))[:, same]
        score[:, column] += ensemble.trees.value[leaf, 0]


def within_targets(
    value: FloatArray, leaves: Iterable[IntArray], target: FloatArray, same: BoolArray | None = None
) -> bool:
    """Whether leaf values (m, C) are between the targets (n, C) of rows there, as weighted means are."""
    low, high = np.full(value.shape, np.inf), np.full(value.shape, -np.inf)
    for leaf in leaves:
        np.minimum.at(low, leaf, target)
        np.maximum.at(high, leaf, target)
    reached, slack = low <= high, 1e-9 * np.abs(value).max()
    beyond = reached & ((value < low - slack) | (value > high + slack))
    return not np.any(beyond if same is None else beyond[same])


def training_counts(ensemble: Any, whole: TreeEnsemble) -> FloatArray:
    """Training rows in the nodes of the first trees, whatever their weights, if they are known."""
    if not hasattr(ensemble, "estimators_"):
        return whole.cover
    trees = np.ravel(np.array(ensemble.estimators_, dtype=object))[:COMPARED]
    return np.concatenate([tree.tree_.n_node_samples for tree in trees]).astype(np.float64)


def dense(X: Any, absent: float = 0.0) -> FloatArray:
    """Rows as a dense array, with this value for entries that a sparse matrix does not store."""
    if not hasattr(X, "toarray"):
        return X
    require_memory(8.0 * X.shape[0] * X.shape[1], "A dense copy of the sparse rows")
    return dense_rows(X, absent)
