"""Held-out losses along the paths of models that node pruning compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from manylens.native.threads import in_threads
from manylens.native.tree_nodes import add_values
from manylens.pruning.members import Link
from manylens.pruning.node_path import (
    SMOOTHING,
    Nodes,
    RowLeaves,
    RowLosses,
    as_log_odds,
    log_odds,
    open_nodes,
    prune_path,
    row_leaves,
    row_losses,
    score_losses,
    smoothed,
)
from manylens.pruning.tree_ensembles import TreeEnsemble, leaf_values, tree_ends
from manylens.typing import BoolArray, FloatArray, IntArray

SHRINKAGES = (0.3, 3.0, 30.0, np.inf)  # candidates: rows per tree that the original leaf values count for
LARGEST_GAIN = 4.0  # gains are clipped at this multiple of the mean loss; larger ones inflate standard errors
TINY = 1e-300  # instead of a mean loss of zero
ROUNDING = 1e-12  # share of the largest variance below which one is zero up to rounding
MANY_TREES = 64  # from this many trees on, log-odds of trials can be extrapolated to more trees
MANY_ENTRIES = 2**17  # rows x trees from which on threads pay: on fewer, they wait for the interpreter
LEAST_ROWS = 20  # held-out rows needed to estimate the gain from more rows
PREFIXES = 40  # numbers of stages that are tried for boosting

Size = tuple[int, int, int]  # members, nodes and bytes of a model


class Candidate(NamedTuple):
    """One way to prune."""

    n_trees: int  # first trees of the ensemble
    link: Link  # of the pruned model
    shrinkage: float


class LossPath(NamedTuple):
    """Held-out losses along a path of models, one entry per step."""

    loss: FloatArray  # mean loss on held-out rows
    loss_error: FloatArray  # its standard error
    rise: FloatArray  # by how much it is above that of the whole ensemble
    rise_error: FloatArray  # standard error of the rise
    error_rise: FloatArray  # rise of the share of wrong classes
    error_rise_error: FloatArray  # standard error of this rise


class JudgedRows(NamedTuple):
    """Losses of n judged rows along a path, and the losses to compare them with."""

    loss: FloatArray  # (steps, n)
    wrong: FloatArray  # (steps, n): 1 if the class is wrong
    reference: FloatArray  # (n,): losses by the whole ensemble of the trial
    uncut: FloatArray  # (n,): 1 if the class is wrong without cuts; less the rise by fewer trees, if known
    control: FloatArray  # (n,): losses by this ensemble with the link of the path
    known: tuple[float, float]  # mean of such losses of all rows, and its standard error
    fewer: tuple[float, float] = (0.0, 0.0)  # rise of wrong classes by fewer trees and its standard error


class Trial(NamedTuple):
    """An ensemble, rows to prune it with, and rows that judge it, to which no tree was fitted."""

    ensemble: TreeEnsemble
    learned: RowLeaves  # in the trees that may be used for each of them
    judged: RowLeaves  # in all trees
    number: IntArray  # of the judged rows among all rows


class HeldOutEvaluator:
    """Held-out losses of the pruned models of one ensemble.

    `rows` holds all rows, each in the trees that were not fitted to it.
    """

    def __init__(
        self,
        ensemble: TreeEnsemble,
        X: FloatArray,
        rows: RowLeaves,
        trials: Sequence[Trial],
        retrain: Callable[[int], Sequence[Trial]] | None = None,  # trials with a number of trees
    ) -> None:
        self.ensemble, self.X, self.rows, self.trials, self.retrain = ensemble, X, rows, list(trials), retrain
        counts, T = rows.counts(), len(ensemble.trees.roots)
        self.used: BoolArray = counts > 0
        if not self.used.any():
            raise ValueError(
                "Every row is in the samples of all trees, so that no row can tell how well a smaller model "
                "predicts: use more trees, or give more rows."
            )
        self.held_out, self.share = bool(np.all(counts == T)), float(counts[self.used].mean()) / T  # of votes
        self._leaves = rows._replace(node=ensemble.trees.leaf[rows.node])
        self.row_losses, self.refused = self._first_losses(T), False  # refits, for their error rate alone
        self.whole = self.row_losses.loss[self.used]
        self.whole_loss = float(self.whole.mean())
        self.whole_error = float(self.row_losses.error[self.used].mean())
        self._largest = np.inf if ensemble.classes is None else float(np.log(2 * T))  # loss of half a vote
        self._references = [trial_losses(trial, T) for trial in trials]
        self._known = mean_and_error(self.whole, self._largest)
        self._linked: dict[Link, tuple[tuple[float, float], list[FloatArray]]] = {}
        self._errors: dict[int, FloatArray] = {}
        self._nodes = None if ensemble.averages else open_nodes(ensemble, T)  # trials have the same ensemble
        self._starts: dict[tuple[int, int, Link], tuple[Nodes, RowLeaves, RowLeaves, FloatArray]] = {}

    def retrained(self, n_trees: int) -> HeldOutEvaluator | None:
        """The same with trials of more trees, if only the error rate refused refits of fewer."""
        trials = [] if self.retrain is None or not self.refused else self.retrain(n_trees)
        return HeldOutEvaluator(self.ensemble, self.X, self.rows, trials) if trials else None

    def _first_losses(self, n_trees: int) -> RowLosses:
        """Losses of the first trees, unchanged."""
        return row_losses(leaf_values(self.ensemble, n_trees), self._leaves.first_trees(n_trees))

    def errors_of_fewer(self, n_trees: int) -> FloatArray:
        """Rise (n,) of wrong classes if only the first `n_trees` trees of a forest vote; right on average.

        Only trees that were not fitted to a row vote for it, a share q, so that q k votes of the first k
        trees are compared with q T votes. The share of wrong classes is about linear in 1/votes.
        """
        T, k = len(self.ensemble.trees.roots), self.voting_trees(n_trees)
        if n_trees not in self._errors:
            k = k if self.held_out else max(1, min(k, T // 2))
            factor = (1 / n_trees - 1 / T) / (1 / k - 1 / T) * self.share if n_trees < T else 0.0
            votes = self.rows.first_trees(k).counts()[self.used] > 0
            more = np.where(votes, (self._first_losses(k).error - self.row_losses.error)[self.used], 0.0)
            self._errors[n_trees] = factor * more / max(votes.mean(), 1 / len(votes))
        return self._errors[n_trees]

    def voting_trees(self, n_trees: int) -> int:
        """How many trees, at most all, give a row as many votes as `n_trees` trees give to new rows."""
        return min(len(self.ensemble.trees.roots), int(np.ceil(n_trees / self.share)))

    def n_leaves(self, n_trees: int) -> int:
        """Number of leaves of the first trees, without those of trees that have no split."""
        ends = tree_ends(self.ensemble.trees)[:n_trees]
        inner = (ends[-1] - n_trees) // 2
        return int(inner + np.sum(np.diff(ends, prepend=0) > 1))

    def first_nodes(self, ensemble: TreeEnsemble, n_trees: int) -> Nodes:
        """The first trees of the ensemble, or of that of a trial, to be cut."""
        if self._nodes is None:
            return open_nodes(ensemble, n_trees)
        return self._nodes.first_trees(n_trees)

    def _start(self, trial: int, candidate: Candidate) -> tuple[Nodes, RowLeaves, RowLeaves, FloatArray]:
        """The result of `start_of` for a trial, and which classes (n,) are wrong without cuts."""
        key = (trial, candidate.n_trees, candidate.link)
        if key not in self._starts:
            uncut = trial_losses(self.trials[trial], None, candidate.n_trees).error
            self._starts[key] = (*self.start_of(self.trials[trial], candidate), uncut)
        return self._starts[key]

    def start_of(self, trial: Trial, candidate: Candidate) -> tuple[Nodes, RowLeaves, RowLeaves]:
        """The nodes from which a candidate starts, and the rows to learn from and to judge."""
        nodes = self.first_nodes(trial.ensemble, candidate.n_trees)
        learned, judged = (rows.first_trees(candidate.n_trees) for rows in (trial.learned, trial.judged))
        averages_classes = nodes.averages and nodes.classes is not None
        if trial.ensemble.link == candidate.link:
            return smoothed(nodes, SMOOTHING) if averages_classes else nodes, learned, judged
        nodes = as_log_odds(nodes, learned)
        C = len(nodes.intercept)
        learned, judged = (each._replace(target=each.target[:, -C:].copy()) for each in (learned, judged))
        return nodes, learned, judged

    def evaluate(
        self, candidates: Sequence[Candidate], shares: Sequence[Sequence[float]], trials: Sequence[int]
    ) -> list[JudgedRows]:
        """Held-out losses in these trials along the paths of candidates, cut to shares of the leaves."""
        starts = [[self._start(trial, candidate) for trial in trials] for candidate in candidates]
        ends = np.cumsum([len(self.trials[k].number) for k in trials])
        losses = [np.empty((2, len(each), ends[-1])) for each in shares]
        tasks = [(k, number) for number in range(len(trials)) for k in range(len(candidates))]

        def run(first: int, last: int) -> None:
            for k, number in tasks[first:last]:
                nodes, learned, rows, uncut = starts[k][number]
                place = slice(ends[number] - len(uncut), ends[number])
                goals = leaf_goals(shares[k], nodes.n_split_leaves)
                path = prune_path(nodes, learned, candidates[k].shrinkage, goals, rows)
                for step, (model, reached, score) in enumerate(path):
                    losses[k][:, step, place] = row_losses(model, reached, score=score)

        entries = max(len(learned.node) for each in starts for _, learned, _, _ in each)
        in_threads(run, len(tasks), alone=entries < MANY_ENTRIES)
        reference = np.concatenate([self._references[k].loss for k in trials])
        errors = [np.concatenate([start[-1] for start in each]) for each in starts]  # without cuts
        judged = []
        for candidate, (loss, wrong), uncut in zip(candidates, losses, errors, strict=True):
            known, parts = self._controls(candidate.link)
            control = np.concatenate([parts[k] for k in trials])
            more = self.errors_of_fewer(candidate.n_trees) if self.ensemble.averages else np.zeros(1)
            fewer = float(more.mean()), float(more.std() / np.sqrt(max(1, len(more) - 1)))
            judged.append(JudgedRows(loss, wrong, reference, uncut, control, known, fewer))
        return judged

    def _controls(self, link: Link) -> tuple[tuple[float, float], list[FloatArray]]:
        """What is known of losses by the ensemble with this link, and those of the judged rows of trials."""
        fewest = min(len(trial.ensemble.trees.roots) for trial in self.trials)
        if link == self.ensemble.link or fewest < MANY_TREES:
            return self._known, [each.loss for each in self._references]
        if link not in self._linked:
            T = len(self.ensemble.trees.roots)
            known = with_log_odds(self.ensemble, self.rows, self.rows, T)
            losses = [with_log_odds(*trial[:3], T) for trial in self.trials]
            self._linked[link] = mean_and_error(known[self.used], self._largest), losses
        return self._linked[link]

    def gain_of_all_rows(self, candidate: Candidate, shares: Sequence[float], loss: float) -> float:
        """The decrease of the loss at the last share if all held-out rows refit the leaves.

        Trials learn from three of four parts. Refits by n rows have an excess loss of about c/n, so that it
        falls from two parts to three by c/6 (of a part), and from three to four by c/12: by half as much. The
        excess c/3 is at most the loss, and the decrease is therefore at most a quarter of the loss.
        """
        if not (self.held_out and np.isfinite(candidate.shrinkage)) or len(self.rows.target) < LEAST_ROWS:
            return 0.0
        fewer, random = copy(self), np.random.RandomState(0)
        fewer._starts, fewer.trials = {}, []
        for trial in self.trials:
            third = random.permutation(len(trial.learned.target)) % 3 == 0
            learned = trial.learned.first_trees(candidate.n_trees).of_rows(~third)
            fewer.trials.append(trial._replace(learned=learned))
        [judged] = fewer.evaluate([candidate], [shares], range(len(fewer.trials)))
        return min(float(judged.loss[-1].mean()) - loss, loss / 2) / 2

    def path_of(self, judged: JudgedRows) -> LossPath:
        """Means and standard errors of losses along a path."""
        return path_of(judged, self.whole_loss, self._largest)

    def paths_without(self, judged: JudgedRows, n_folds: int) -> list[LossPath]:
        """The same by all rows but k, k + n_folds, ... for each fold k."""
        others = np.arange(len(judged.reference))[:, np.newaxis] % n_folds != np.arange(n_folds)
        return paths_of(judged, others.astype(np.float64), self.whole_loss, self._largest)

    def adjusted(self, judged: JudgedRows) -> FloatArray:
        """Losses (steps, n) minus the part that the losses of the ensemble explain."""
        slope, control = regression_on_ensemble(judged, self._largest)
        return judged.loss - slope[:, np.newaxis] * control

    def compare(self, found: Sequence[RowLosses], n_trees: int) -> JudgedRows:
        """Losses of all rows by models of the first trees whose values do not depend on these rows."""
        losses = np.array([each.loss[self.used] for each in found])
        errors = np.array([each.error[self.used] for each in found])
        voting = self._first_losses(self.voting_trees(n_trees)).error[self.used]
        uncut = voting - self.errors_of_fewer(n_trees)
        return JudgedRows(losses, errors, self.whole, uncut, self.whole, self._known)

    def first_counts(self, most: int) -> IntArray:
        """Numbers of first trees to compare, descending from `most`: whole stages, or halves of a forest."""
        if self.ensemble.averages:
            return most >> np.arange(int(most).bit_length())
        step = self.ensemble.n_outputs
        return step * np.unique(np.geomspace(1, most // step, PREFIXES).astype(int))[::-1]

    def first_trees(self, counts: IntArray) -> JudgedRows:
        """Losses of the judged rows by the first trees, unchanged; for descending numbers of trees."""
        ensemble, numbers = self.ensemble, np.concatenate([trial.number for trial in self.trials])
        losses = np.empty((len(counts), 2, len(numbers)))
        if ensemble.averages:  # those of a trial are extrapolated to more trees than it has
            for place, k in enumerate(counts):
                few = [min(int(k), len(trial.ensemble.trees.roots)) for trial in self.trials]
                parts = [trial_losses(trial, int(k), n) for trial, n in zip(self.trials, few, strict=True)]
                losses[place] = np.concatenate(parts, axis=1)
            whole, uncut = np.concatenate(self._references, axis=1)
        else:
            rows, value, column = self._leaves, ensemble.trees.value, ensemble.trees.column
            total, before = np.zeros((len(rows.target), ensemble.n_outputs)), 0
            for place, k in zip(range(len(counts))[::-1], counts[::-1], strict=True):
                entries = rows.start[before : k + 1], rows.row, rows.node, column[before:k]
                add_values(entries, value, total)
                found = score_losses(ensemble, ensemble.intercept + total, rows.target)
                losses[place] = np.array(found)[:, numbers]
                before = k
            whole, uncut = (each[numbers] for each in self.row_losses)
        loss, wrong = losses.transpose(1, 0, 2)
        return JudgedRows(loss, wrong, whole, uncut, whole, self._known)

    def path(self, candidate: Candidate, shares: Sequence[float]) -> list[Nodes]:
        """The models of a candidate, pruned with all rows."""
        none = np.zeros(0, dtype=np.int64)
        nothing = row_leaves(self.X[:0], self.ensemble.trees, None, self.rows.target[:0])
        nodes, rows, unused = self.start_of(Trial(self.ensemble, self.rows, nothing, none), candidate)
        path = prune_path(nodes, rows, candidate.shrinkage, leaf_goals(shares, nodes.n_split_leaves), unused)
        return [model for model, *_ in path]  # later steps change only values of inner nodes

    def judge_models(self, models: Sequence[Nodes]) -> LossPath:
        """Losses of models that have not seen y; NaN if the rows are not held out from all trees."""
        losses = np.full((2, len(models), len(self.used)), np.nan)
        for number, model in enumerate(models):
            if self.held_out:
                rows = row_leaves(self.X, model.ensemble().trees, None, self.rows.target)
                losses[:, number] = row_losses(model, rows)
        whole = self.row_losses
        known = mean_and_error(whole.loss, self._largest)
        return self.path_of(JudgedRows(losses[0], losses[1], whole.loss, whole.error, whole.loss, known))

    def fresh_losses(self, sizes: IntArray) -> FloatArray:
        """Losses of the first trees of the ensemble that take at most these bytes; at least one tree."""
        grown = first_sizes(self.ensemble)[:, 2]
        counts = np.maximum(1, np.searchsorted(grown, np.asarray(sizes), side="right"))
        found = {}
        for k in np.unique(counts):
            some = self.rows.first_trees(int(k)).counts() > 0
            losses = self._first_losses(int(k)).loss
            found[k] = float(losses[some].mean()) if some.any() else np.nan
        return np.array([found[k] for k in counts])


def first_sizes(ensemble: TreeEnsemble) -> IntArray:
    """Members, nodes and bytes (t, 3) of the first 1, 2, ... trees."""
    trees, nodes = ensemble.trees, tree_ends(ensemble.trees)
    members = np.arange(1, len(nodes) + 1)
    leaves = (nodes + members) // 2
    size = (17 + trees.threshold.itemsize) * nodes + 8 * trees.value.shape[1] * leaves + 16 * members
    return np.stack([members, nodes, size], axis=1)


def leaf_goals(shares: Sequence[float], n_leaves: int) -> list[int | None]:
    """Numbers of leaves along a path; None for no cut."""
    return [None if share >= 1 else max(1, int(share * n_leaves)) for share in shares]


def trial_losses(trial: Trial, toward: int | None, n_trees: int | None = None) -> RowLosses:
    """Losses of the judged rows by the first trees, unchanged, extrapolated to `toward` trees."""
    count = n_trees or len(trial.ensemble.trees.roots)
    leaves = trial.judged._replace(node=trial.ensemble.trees.leaf[trial.judged.node]).first_trees(count)
    return row_losses(leaf_values(trial.ensemble, count), leaves, toward)


def with_log_odds(ensemble: TreeEnsemble, learned: RowLeaves, judged: RowLeaves, toward: int) -> FloatArray:
    """Log losses of judged rows by `toward` trees that add log-odds, with the best factor for `learned`."""
    leaves, leaf = leaf_values(ensemble, len(ensemble.trees.roots)), ensemble.trees.leaf
    value, intercept = log_odds(leaves, learned._replace(node=leaf[learned.node]))
    leaves = leaves._replace(value=value, intercept=intercept, link="logistic")
    target = judged.target[:, -len(intercept) :].copy()
    return row_losses(leaves, judged._replace(node=leaf[judged.node], target=target), toward).loss


def regression_on_ensemble(judged: JudgedRows, largest: float) -> tuple[FloatArray, FloatArray]:
    """Regression slopes (steps,) of losses on those of the ensemble, and the latter (n,), the control.

    The control is clipped at the largest plausible loss: a forest in which no tree votes for a class gives it
    probability 0.
    """
    control, level = np.minimum(judged.control, largest), judged.loss.mean(axis=1)
    centered = control - control.mean()
    spread = float(centered @ centered)
    slope = (judged.loss - level[:, np.newaxis]) @ centered / spread if spread > 0 else np.ones(len(level))
    # a relative change of the ensemble's losses changes the others by no more than that
    return np.clip(slope, 0.0, np.clip(level / max(float(control.mean()), TINY), 0.0, 1.0)), control


def path_of(judged: JudgedRows, whole_loss: float, largest: float) -> LossPath:
    """Means and standard errors of losses, and how they differ from that of the ensemble.

    Judged rows may be easier or harder than all rows, whose losses by the ensemble are known, and
    trees of a trial are fitted to fewer rows. So the mean loss is corrected by regression on the losses of
    judged rows by the ensemble of the trial (a control variate).
    """
    root = np.sqrt(max(1, len(judged.reference) - 1))
    slope, control = regression_on_ensemble(judged, largest)
    mean = judged.loss.mean(axis=1) + slope * float(judged.known[0] - control.mean())
    noise = (judged.loss - slope[:, np.newaxis] * control).std(axis=1) / root
    loss_error = np.hypot(noise, slope * judged.known[1])
    rise = np.maximum(judged.loss - judged.reference, -LARGEST_GAIN * whole_loss)
    more = judged.wrong - judged.uncut
    errors = more.mean(axis=1) + judged.fewer[0], np.hypot(more.std(axis=1) / root, judged.fewer[1])
    return LossPath(mean, loss_error, mean - whole_loss, rise.std(axis=1) / root, *errors)


def paths_of(judged: JudgedRows, rows: FloatArray, whole_loss: float, largest: float) -> list[LossPath]:
    """The same for k sets of rows (n, k), with 1 for each row in a set, from moments: up to rounding."""
    shares = rows / (counts := rows.sum(axis=0))
    root, control = np.sqrt(np.maximum(1, counts - 1)), np.minimum(judged.control, largest)

    def centered(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Differences from the mean of all rows; means, means of differences, and variances by set."""
        mean = values.mean(axis=-1, keepdims=True)
        apart = values - mean
        first = apart @ shares
        return apart, mean + first, first, np.maximum(apart**2 @ shares - first**2, 0.0)

    loss, level, more, variance = centered(judged.loss)
    given, known, shift, spread = centered(control)
    common = (loss * given) @ shares - more * shift
    slope = np.where(spread > ROUNDING * spread.max(), common / np.maximum(spread, TINY), 1.0)
    slope = np.clip(slope, 0.0, np.clip(level / np.maximum(known, TINY), 0.0, 1.0))
    mean = level + slope * (judged.known[0] - known)
    noise = np.sqrt(np.maximum(variance + slope * (slope * spread - 2 * common), 0.0)) / root
    rise = centered(np.maximum(judged.loss - judged.reference, -LARGEST_GAIN * whole_loss))[3]
    _, errors, _, error_variance = centered(judged.wrong - judged.uncut)
    found = (
        *(mean, np.hypot(noise, slope * judged.known[1]), mean - whole_loss, np.sqrt(rise) / root),
        *(errors + judged.fewer[0], np.hypot(np.sqrt(error_variance) / root, judged.fewer[1])),
    )
    return [LossPath(*each) for each in np.transpose(found, (2, 0, 1))]


def mean_and_error(losses: FloatArray, largest: float) -> tuple[float, float]:
    """Mean of clipped losses, and its standard error."""
    clipped = np.minimum(losses, largest)
    return float(clipped.mean()), float(clipped.std() / np.sqrt(max(1, len(losses) - 1)))


def candidates(ensemble: TreeEnsemble, n_trees: int, link: str) -> list[Candidate]:
    """The ways to prune that are compared."""
    forest_of_classes = ensemble.averages and ensemble.classes is not None
    if not forest_of_classes:
        return [Candidate(n_trees, ensemble.link, each) for each in SHRINKAGES]
    found = []
    if link in ("auto", "logistic"):
        found += [Candidate(n_trees, "logistic", each) for each in SHRINKAGES[:3]]
    if link in ("auto", "identity"):
        found += [Candidate(n_trees, "identity", each) for each in SHRINKAGES[2 if link == "auto" else 1 :]]
    return found


def nodes_size(nodes: Nodes) -> Size:
    """Members, nodes and bytes of a model."""
    m, t = len(nodes.children), nodes.n_trees
    return t, m, (17 + nodes.threshold.itemsize) * m + 8 * nodes.value.shape[1] * nodes.n_leaves + 16 * t
