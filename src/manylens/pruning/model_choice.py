"""Choose one of the refitted models, and estimate how optimistic this makes its held-out loss.

Of many models, the smallest that is good enough on some rows looks better on these rows than on others. How
much better is estimated by cross-validation of the choice: nine tenths of the rows choose a model, and the
last tenth shows by how much its loss was too small. No model is fitted again for that, because the losses of
single rows are known for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from manylens.pruning.cover_cuts import CoverPath, smallest_cut
from manylens.pruning.node_path import Nodes, open_nodes
from manylens.pruning.path_losses import Candidate, Judge, JudgedRows, Path, Size, nodes_size
from manylens.pruning.size_limits import Dials, Goal, expected_size, full_size
from manylens.pruning.tree_ensembles import tree_ends
from manylens.typing import BoolArray, FloatArray, IntArray

BEST = 2  # the best candidates in one trial are evaluated in all trials, until one is good enough
COARSE = 2  # candidates are compared on every second step, which favors those that hardly refit
FOLDS = 10  # of judged rows; each tests the models that the others choose


class Choice(NamedTuple):
    """A path of models, one of its steps, and by how much the loss of this step is too small."""

    way: Candidate
    path: Path
    models: Sequence[Nodes]
    step: int
    optimism: float


class Course(NamedTuple):
    """Losses of judged rows along the path of one candidate, and the sizes of its models."""

    judged: JudgedRows
    sizes: Sequence[Size]

    def seen_by(self, rows: BoolArray) -> JudgedRows:
        """Losses of some rows; courses in one trial have only the first of all rows."""
        return self.judged.of_rows(rows[: len(self.judged.reference)])


def choose_refit(
    judge: Judge, dials: Dials, goal: Goal, ways: Sequence[Candidate], limited: bool, whole_bytes: int
) -> Choice | None:
    """The model that the dials ask for, on the path of the best candidate; None if none is good enough."""
    shares = [dials.shares(judge, way) for way in ways]
    stride = 1 if limited else COARSE  # with limits, every step counts
    coarse = [each[stride::stride] or each[:1] for each in shares]
    courses = [
        Course(judged, [expected_size(judge, way, share) for share in each])
        for judged, way, each in zip(judge.evaluate(ways, coarse, [0]), ways, coarse, strict=True)
    ]
    as_asked = limited or dials.loss is None  # otherwise, the model must also be smaller than the whole
    complete: dict[int, Course] = {}  # candidates evaluated in all trials

    def rank(course: Course, rows: BoolArray) -> tuple[float, float]:
        return dials.rank(judge.path_of(course.seen_by(rows)), course.sizes, goal)

    def order(rows: BoolArray) -> list[int]:
        best = sorted(range(len(ways)), key=lambda k: rank(courses[k], rows))[:BEST]
        if as_asked and all(k in complete for k in best):
            return sorted(best, key=lambda k: rank(complete[k], rows))
        if limited or judge.ensemble.averages or len(ways) - 1 in best:
            return best
        return [*best, len(ways) - 1]  # the one without refits, which at worst stops boosting early

    def chosen_by(rows: BoolArray) -> FloatArray | None:
        for k in order(rows):
            course = complete.get(k, courses[k])
            if len(course.judged.reference) < n_rows:  # evaluated in one of several trials only
                continue
            step = dials.choose(judge.path_of(course.seen_by(rows)), course.sizes, goal, limited)
            if step is not None:
                return judge.adjusted(course.judged)[step]
        return None

    def complete_course(k: int) -> Course:
        if k not in complete:
            [judged] = judge.evaluate([ways[k]], [shares[k]], range(len(judge.trials)))
            complete[k] = Course(judged, [expected_size(judge, ways[k], share) for share in shares[k]])
        return complete[k]

    n_rows = sum(len(trial.number) for trial in judge.trials)
    everything = np.ones(n_rows, dtype=bool)
    for k in order(everything) if as_asked else ():
        complete_course(k)
    for k in order(everything):
        judged = complete_course(k).judged
        path = judge.path_of(judged)
        if as_asked or dials.good(path, goal).any():
            models = judge.path(ways[k], shares[k])
            sizes = [nodes_size(model) for model in models]
            step = dials.choose(path, sizes, goal, limited)
            if step is not None and (as_asked or sizes[step][2] < whole_bytes):
                complete[k] = Course(judged, sizes)
                gain = judge.gain_of_all_rows(ways[k], shares[k][: step + 1], judged.loss[step].mean())
                too_small = optimism(chosen_by, n_rows, path.rise_error[step]) - gain
                return Choice(ways[k], path, models, step, too_small)
    return None


def choose_prefix(
    judge: Judge, dials: Dials, goal: Goal, counts: IntArray, judged: JudgedRows
) -> Choice | None:
    """Stop boosting early, without cuts: the smallest of some numbers of trees that is good enough."""
    trees, link = judge.ensemble.trees, judge.ensemble.link
    ends = tree_ends(trees)
    ways = [Candidate(int(k), link, np.inf) for k in counts]
    sizes = [full_size(judge.ensemble, way, int(ends[way.n_trees - 1])) for way in ways]

    def step_by(rows: BoolArray) -> int | None:
        return dials.choose(judge.path_of(judged.of_rows(rows)), sizes, goal, False)

    def chosen_by(rows: BoolArray) -> FloatArray | None:
        found = step_by(rows)
        return None if found is None else judge.adjusted(judged)[found]

    n_rows = len(judged.reference)
    step = step_by(np.ones(n_rows, dtype=bool))
    if not step:  # none, or all trees
        return None
    path = Path(*(each[: step + 1] for each in judge.path_of(judged)))
    models = [open_nodes(judge.ensemble, way.n_trees) for way in ways[: step + 1]]
    return Choice(ways[step], path, models, step, optimism(chosen_by, n_rows, path.rise_error[step]))


def cut_optimism(
    judge: Judge, cuts: Sequence[CoverPath], dials: Dials, goal: Goal, whole_bytes: int, rise_error: float
) -> float:
    """The amount by which the loss of the cut that `smallest_cut` finds is too small."""

    def chosen_by(rows: BoolArray) -> FloatArray | None:
        seen = [cut._replace(losses=judge.path_of(cut.judged.of_rows(rows))) for cut in cuts]
        found = smallest_cut(seen, dials, goal, whole_bytes)
        return None if found is None else judge.adjusted(found[0].judged)[found[1]]

    return optimism(chosen_by, len(judge.whole), rise_error)


def optimism(chosen_by: Callable[[BoolArray], FloatArray | None], n_rows: int, rise_error: float) -> float:
    """The amount by which the loss of a chosen model seems smaller than it is.

    `chosen_by` returns the losses (n_rows,) by the model that some of the rows choose. The mean difference
    between the losses of rows that did not choose a model and of those that did is 0 if all choose the same.
    It is limited to the standard error of the rise: the optimism is hardly larger, but single rows with large
    losses could make it seem so.
    """
    fold, differences = np.arange(n_rows) % FOLDS, []
    for k in range(FOLDS if n_rows >= FOLDS else 0):
        losses = chosen_by(fold != k)
        if losses is not None:
            differences.append(losses[fold == k].mean() - losses[fold != k].mean())
    return float(np.clip(np.mean(differences), 0.0, rise_error)) if differences else 0.0
