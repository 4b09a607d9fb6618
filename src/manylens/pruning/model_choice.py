"""Choose one of the refitted models, and estimate how optimistic this makes its held-out loss.

Of many models, the smallest that is good enough on some rows looks better on these rows than on others. How
much better is estimated by cross-validation of the choice: nine tenths of the rows choose a model, and the
last tenth shows by how much its loss was too small. No model is fitted again for that, because the losses of
single rows are known for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from manylens.pruning.cover_cuts import CoverPath, smallest_cut
from manylens.pruning.node_path import Nodes
from manylens.pruning.path_losses import (
    LARGEST_GAIN,
    Candidate,
    HeldOutEvaluator,
    JudgedRows,
    LossPath,
    Size,
    first_sizes,
    nodes_size,
)
from manylens.pruning.size_limits import Goal, SizeLimits, expected_sizes
from manylens.typing import FloatArray, IntArray

BEST = 2  # the best candidates in one trial are evaluated in all trials, until one is good enough
COARSE = 2  # candidates are compared on every second step, which favors those that hardly refit
EVIDENCE = 0.75  # standard errors by which another model must be better than the first trees within a limit
EVIDENCE_BY_LOSS = 2.5  # the same if `loss` decides on the size: then a larger model may be kept instead
DOUBT = 2.0  # of n + 2 rows, the number that might have another class; 1 is the rule of succession
FOLDS = 10  # of judged rows; each tests the models that the others choose


class Choice(NamedTuple):
    """A path of models, one of its steps, and by how much the loss of this step is too small."""

    candidate: Candidate
    path: LossPath
    models: Sequence[Nodes]
    step: int
    optimism: float

    @property
    def held_out_loss(self) -> float:
        """The loss of this step, corrected for the choice."""
        return float(self.path.loss[self.step]) + self.optimism


class CandidateLosses:
    """Losses of judged rows along the path of one candidate, and the sizes of its models."""

    def __init__(self, evaluator: HeldOutEvaluator, judged: JudgedRows, sizes: Sequence[Size]) -> None:
        self.evaluator, self.judged, self.sizes = evaluator, judged, sizes

    def seen_without(self, fold: int | None) -> LossPath:
        """Means by all rows but those of a fold; None for all rows."""
        return self.path if fold is None else self._without[fold]

    @cached_property
    def path(self) -> LossPath:
        return self.evaluator.path_of(self.judged)

    @cached_property
    def _without(self) -> list[LossPath]:
        return self.evaluator.paths_without(self.judged, FOLDS)

    @cached_property
    def adjusted(self) -> FloatArray:
        return self.evaluator.adjusted(self.judged)


def choose_refit(
    evaluator: HeldOutEvaluator,
    limits: SizeLimits,
    goal: Goal,
    candidates: Sequence[Candidate],
    limited: bool,
    whole_bytes: int,
    known_optimism: float = 0.0,  # of the number of trees of all candidates
) -> Choice | None:
    """The model that the limits ask for, on the path of the best candidate; None if none is good enough."""
    shares = [limits.shares(evaluator, candidate) for candidate in candidates]
    stride = 1 if limited else COARSE  # with limits, every step counts
    coarse = [each[stride::stride] or each[:1] for each in shares]
    first = evaluator.evaluate(candidates, coarse, [0])
    in_one_trial = [
        CandidateLosses(evaluator, judged, expected_sizes(evaluator, candidate, each))
        for judged, candidate, each in zip(first, candidates, coarse, strict=True)
    ]
    as_asked = limited or limits.loss is None  # otherwise, the model must also be smaller than the whole
    in_all_trials: dict[int, CandidateLosses] = {}  # by number of the candidate

    def rank(losses: CandidateLosses, without: int | None) -> tuple[float, float]:
        return limits.rank(losses.seen_without(without), losses.sizes, goal)

    def order(without: int | None = None) -> list[int]:
        best = sorted(range(len(candidates)), key=lambda k: rank(in_one_trial[k], without))[:BEST]
        if as_asked and all(k in in_all_trials for k in best):
            return sorted(best, key=lambda k: rank(in_all_trials[k], without))
        if limited or evaluator.ensemble.averages or len(candidates) - 1 in best:
            return best
        return [*best, len(candidates) - 1]  # the one without refits, which at worst stops boosting early

    def chosen_by(without: int) -> FloatArray | None:
        for k in order(without):
            losses = in_all_trials.get(k, in_one_trial[k])
            if len(losses.judged.reference) < n_rows:  # evaluated in one of several trials only
                continue
            step = limits.choose(losses.seen_without(without), losses.sizes, goal, limited)
            if step is not None:
                return losses.adjusted[step]
        return None

    def evaluate_in_all_trials(k: int) -> CandidateLosses:
        if k not in in_all_trials:
            [judged] = evaluator.evaluate([candidates[k]], [shares[k]], range(len(evaluator.trials)))
            expected = expected_sizes(evaluator, candidates[k], shares[k])
            in_all_trials[k] = CandidateLosses(evaluator, judged, expected)
        return in_all_trials[k]

    n_rows = sum(len(trial.number) for trial in evaluator.trials)
    for k in order() if as_asked else ():
        evaluate_in_all_trials(k)
    for k in order():
        losses = evaluate_in_all_trials(k)
        judged, path = losses.judged, losses.path
        evaluator.refused |= limits.refused_for_errors(path, goal)
        if as_asked or limits.good(path, goal).any():
            models = evaluator.path(candidates[k], shares[k])
            sizes = [nodes_size(model) for model in models]
            step = limits.choose(path, sizes, goal, limited)
            if step is not None and (as_asked or sizes[step][2] < whole_bytes):
                losses.sizes = sizes
                down_to_step, loss = shares[k][: step + 1], judged.loss[step].mean()
                gain = evaluator.gain_of_all_rows(candidates[k], down_to_step, loss)
                flattered = known_optimism + optimism(chosen_by, n_rows, path.rise_error[step])
                too_small = min(flattered, float(path.rise_error[step])) - gain
                refit = Choice(candidates[k], path, models, step, too_small)
                by_loss = limits.loss is not None and bool(limits.good(path, goal)[step])
                as_they_are = any(each.link == evaluator.ensemble.link for each in candidates)
                if as_they_are and (limited or by_loss):
                    return unless_first_trees(evaluator, limits, refit, judged.loss[step], by_loss)
                return refit
    return None


def unless_first_trees(
    evaluator: HeldOutEvaluator, limits: SizeLimits, refit: Choice, losses: FloatArray, by_loss: bool
) -> Choice | None:
    """A refitted model with these losses of judged rows, unless the first trees, unchanged, are as good.

    These are as many trees as the limits allow, or, if the size of the refit was chosen `by_loss`, as have at
    most its bytes, but at least one stage. Neither a refit nor fewer stages of boosting replace them without
    evidence: both are the best of many, and on few rows such a winner is often chance. None if more of the
    first trees are needed, because a refit `by_loss` is better without evidence; with limits, it is kept.
    """
    ensemble, grown = evaluator.ensemble, first_sizes(evaluator.ensemble)
    unchanged = refit.step == 0 and np.isinf(refit.candidate.shrinkage)
    if by_loss and (unchanged or ensemble.averages):  # forests that meet a loss have much fewer bytes
        return refit
    within = SizeLimits(None, None, None, nodes_size(refit.models[refit.step])[2]) if by_loss else limits
    stage = 1 if ensemble.averages else ensemble.n_outputs
    fitting = [k for k in range(stage, len(grown) + 1, stage) if within.fit(grown[k - 1])]
    unlimited = limits[1:] == (None, None, None)
    if not fitting and not unlimited:
        return refit
    counts = evaluator.first_counts(fitting[-1] if fitting else stage)
    judged = evaluator.first_trees(counts)
    path, n_rows = evaluator.path_of(judged), len(losses)
    # within limits, doubts cost more than they save: nothing larger may be kept instead
    n_classes = len(ensemble.classes) if by_loss and ensemble.classes is not None else 0

    def lower(held_out: float, rows: FloatArray) -> bool:
        """Whether a model is better than the most trees, by the evidence that is needed."""
        first, found = (doubted(each, n_classes) for each in (judged.loss[0], rows))
        gain = np.minimum(first - found, LARGEST_GAIN * evaluator.whole_loss)
        error = np.std(gain) / np.sqrt(max(1, n_rows - 1))
        added = max(0.0, float(np.mean(found - rows) - np.mean(first - judged.loss[0])))
        return bool(held_out + added + (EVIDENCE_BY_LOSS if by_loss else EVIDENCE) * error < path.loss[0])

    step, too_small = 0, 0.0
    best = 0 if ensemble.averages else int(np.argmin(path.loss))
    if best > 0:
        flattered = stage_optimism(evaluator, judged)
        if lower(float(path.loss[best]) + flattered, judged.loss[best]):
            step, too_small = best, flattered
    if lower(refit.held_out_loss, losses) and refit.held_out_loss <= path.loss[step] + too_small:
        return refit
    if by_loss and refit.held_out_loss < path.loss[step]:
        return None if unlimited else refit
    models = [evaluator.first_nodes(ensemble, int(k)) for k in counts]
    return Choice(Candidate(int(counts[step]), ensemble.link, np.inf), path, models, step, too_small)


def doubted(losses: FloatArray, n_classes: int) -> FloatArray:
    """Log losses (n,) as if DOUBT of n + 2 rows had another class; squared errors (no classes) as they are.

    If no row is wrong, models with larger scores always have smaller losses, until a new row is wrong. The
    other classes share the remaining probability equally.
    """
    if not n_classes:
        return losses
    share = DOUBT / (len(losses) + 2)
    others = np.maximum(-np.expm1(-losses), np.finfo(np.float64).eps) / (n_classes - 1)
    return (1 - share) * losses - share * np.log(others)


def choose_prefix(
    evaluator: HeldOutEvaluator, limits: SizeLimits, goal: Goal, counts: IntArray, judged: JudgedRows
) -> Choice | None:
    """Stop boosting early, without cuts: the smallest of some numbers of trees that is good enough."""
    ensemble = evaluator.ensemble
    sizes = [tuple(each) for each in first_sizes(ensemble)[counts - 1].tolist()]

    losses = CandidateLosses(evaluator, judged, sizes)

    def step_by(without: int | None) -> int | None:
        path = losses.seen_without(without)
        return limits.choose(path, sizes, goal._replace(best_loss=float(path.loss.min())), False)

    def chosen_by(without: int) -> FloatArray | None:
        found = step_by(without)
        return None if found is None else losses.adjusted[found]

    n_rows = len(judged.reference)
    step = step_by(None)
    if not step:  # none, or all trees
        fewer, best = LossPath(*(each[1:] for each in losses.path)), float(losses.path.loss.min())
        evaluator.refused |= limits.refused_for_errors(fewer, goal._replace(best_loss=best))
        return None
    path = LossPath(*(each[: step + 1] for each in losses.path))
    models = [evaluator.first_nodes(ensemble, int(k)) for k in counts[: step + 1]]
    candidate = Candidate(int(counts[step]), ensemble.link, np.inf)
    return Choice(candidate, path, models, step, optimism(chosen_by, n_rows, path.rise_error[step]))


def stage_optimism(evaluator: HeldOutEvaluator, prefixes: JudgedRows) -> float:
    """The amount by which the loss of boosting at its best number of stages is too small."""
    losses = CandidateLosses(evaluator, prefixes, ())

    def best_by(without: int) -> FloatArray:
        return losses.adjusted[np.argmin(losses.seen_without(without).loss)]

    error = losses.path.rise_error[np.argmin(losses.path.loss)]
    return optimism(best_by, len(prefixes.reference), float(error))


def cut_optimism(
    evaluator: HeldOutEvaluator,
    cuts: Sequence[CoverPath],
    limits: SizeLimits,
    goal: Goal,
    whole_bytes: int,
    rise_error: float,
) -> float:
    """The amount by which the loss of the cut that `smallest_cut` finds is too small."""

    losses = [CandidateLosses(evaluator, cut.judged, cut.sizes) for cut in cuts]

    def chosen_by(without: int) -> FloatArray | None:
        paths = [each.seen_without(without) for each in losses]
        seen = [cut._replace(losses=path) for cut, path in zip(cuts, paths, strict=True)]
        found = smallest_cut(seen, limits, goal, whole_bytes)
        return None if found is None else evaluator.adjusted(found[0].judged)[found[1]]

    return optimism(chosen_by, len(evaluator.whole), rise_error)


def optimism(chosen_by: Callable[[int], FloatArray | None], n_rows: int, rise_error: float) -> float:
    """The amount by which the loss of a chosen model seems smaller than it is.

    `chosen_by` returns the losses (n_rows,) by the model that all rows but those of a fold choose. The mean
    difference between the losses of rows that did not choose a model and of those that did is 0 if all choose
    the same. It is limited to the standard error of the rise: the optimism is hardly larger, but single rows
    with large losses could make it seem so.
    """
    fold, differences = np.arange(n_rows) % FOLDS, []
    for k in range(FOLDS if n_rows >= FOLDS else 0):
        losses = chosen_by(k)
        if losses is not None:
            differences.append(losses[fold == k].mean() - losses[fold != k].mean())
    return float(np.clip(np.mean(differences), 0.0, rise_error)) if differences else 0.0
