"""Forests whose nodes with few training rows become leaves: no value is refitted.

Neither the cuts nor the values depend on the targets of out-of-bag rows, so their losses are held-out losses,
as for the whole forest, and no tree has to be fitted again. The models are larger than refitted ones of the
same loss, but their difference from the whole forest is known more exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from manylens.native.threads import in_threads
from manylens.native.tree_nodes import find_stand_ins, smooth_down
from manylens.pruning.members import Link
from manylens.pruning.node_path import (
    Nodes,
    RowLosses,
    as_log_odds,
    moved,
    open_nodes,
    renumbered,
    row_losses,
    smoothed,
)
from manylens.pruning.path_losses import Candidate, HeldOutEvaluator, JudgedRows, LossPath, Size
from manylens.pruning.size_limits import Goal, SizeLimits, full_size
from manylens.pruning.summed_votes import VoteSums, halves_of
from manylens.typing import FloatArray, IntArray

SMOOTHINGS = (0.1, 1.0)  # weight of a node in the values of its children, in training rows
FIRST = 4.0  # nodes with fewer training rows become leaves; the limit is doubled from step to step
LEAST_PARTS = 8  # the largest limit is an eighth of all rows
HALVINGS = 3  # how often the number of trees is halved
EVIDENT = 2.0  # standard errors by which fewer votes must be wrong more often, so that no cut is tried

# From nodes, the node that stands for each leaf, and a number of first trees: losses, one per link.
FindLosses: TypeAlias = Callable[[Nodes, IntArray, int], list[RowLosses]]


class CoverPath(NamedTuple):
    """Some trees of a forest, with more and more nodes cut: one step per limit on the training rows."""

    candidate: Candidate
    smoothing: float
    judged: JudgedRows
    losses: LossPath
    sizes: list[Size]


def cover_paths(
    evaluator: HeldOutEvaluator, few: int, link: str, most: float, rise: float = np.inf
) -> Iterator[list[CoverPath]]:
    """Held-out losses of all cuts, with several smoothings and links, for increasing numbers of trees.

    Wrong classes are counted only for losses up to `most`. There are no cuts of numbers of trees whose fewer
    votes alone raise the share of wrong classes by more than `rise`.
    """
    ensemble, T = evaluator.ensemble, len(evaluator.ensemble.trees.roots)
    nodes = open_nodes(ensemble, T)
    links: list[Link] = ["identity"] if link != "logistic" or ensemble.classes is None else []
    links += ["logistic"] if link != "identity" and ensemble.classes is not None else []
    above = [places_above(nodes, level) for level in cover_levels(nodes)]
    even, done = [nodes._replace(value=np.empty_like(nodes.value)) for _ in SMOOTHINGS], 0
    by_votes = ensemble.classes is not None
    find = losses_by_votes(evaluator, links, most) if by_votes else losses_by_values(evaluator)
    for count in sorted({max(few, T >> k) for k in range(HALVINGS + 1)}):
        if by_votes and evidently_above(evaluator.errors_of_fewer(count), rise):
            yield []
            continue
        end = int(nodes.roots[count])
        remain = [int(np.sum(up[:end] == np.arange(end))) for up in above]
        read = int(nodes.roots[evaluator.voting_trees(count) if by_votes else count])
        for smoothing, values in zip(SMOOTHINGS, even, strict=True):  # only those of trees that are read
            values.value[done:read] = nodes.value[done:read]
            smooth_down(nodes.children, nodes.cover, smoothing, done, read, values.value)
        done = read
        found = []
        for smoothing, values in zip(SMOOTHINGS, even, strict=True):
            losses: list[list[RowLosses]] = [[] for _ in above]

            def run(first: int, last: int, values: Nodes = values, losses: Any = losses) -> None:
                for i in range(first, last):
                    losses[i] = find(values, above[i], count)  # noqa: B023 (called in this step only)

            in_threads(run, len(above))
            for each, by_level in zip(links, zip(*losses, strict=True), strict=True):
                candidate = Candidate(count, each, np.inf)
                sizes = [full_size(ensemble, candidate, m) for m in remain]
                judged = evaluator.compare(by_level, count)
                found.append(CoverPath(candidate, smoothing, judged, evaluator.path_of(judged), sizes))
        yield found


def evidently_above(differences: FloatArray, most: float) -> bool:
    """Whether the mean (n,) exceeds a number by more than some standard errors."""
    error = differences.std() / np.sqrt(max(1, len(differences) - 1))
    return bool(differences.mean() - EVIDENT * error > most)


def losses_by_votes(evaluator: HeldOutEvaluator, links: Sequence[Link], most: float) -> FindLosses:
    """A function that finds the losses of a forest of classes, one per link.

    Wrong classes are counted with as many votes as new rows get, but only if the loss is at most `most`.
    """
    parts = halves_of(evaluator.rows)

    def find(nodes: Nodes, above: IntArray, count: int) -> list[RowLosses]:
        sums, voting, target = VoteSums(nodes, above, parts), evaluator.voting_trees(count), parts[0].target
        votes = sums.first(count)
        found = [votes.losses(target, link, count) for link in links]
        good = [losses.loss[evaluator.used].mean() <= most for losses in found]
        if voting > count and any(good):
            votes = sums.first(voting)
            for i, link in enumerate(links):
                if good[i]:
                    found[i] = found[i]._replace(error=votes.losses(target, link, voting).error)
        return found

    return find


def losses_by_values(evaluator: HeldOutEvaluator) -> FindLosses:
    """A function that finds the losses of a forest for regression."""

    def find(nodes: Nodes, above: IntArray, count: int) -> list[RowLosses]:
        value = nodes.value[: nodes.roots[count]] * (nodes.n_trees / count)
        rows = evaluator.rows.first_trees(count)
        nodes = nodes._replace(value=value, column=nodes.column[:count])
        return [row_losses(nodes, rows._replace(node=above[rows.node]))]

    return find


def smallest_cut(
    cuts: Sequence[CoverPath], limits: SizeLimits, goal: Goal, whole_bytes: int
) -> tuple[CoverPath, int] | None:
    """Path and step of the smallest model that is good enough (of equal ones, that with the smallest loss);
    None if no such model is smaller than the whole."""
    found = []
    for number, cut in enumerate(cuts):
        step = limits.choose(cut.losses, cut.sizes, goal, limited=False)
        if step is not None and cut.sizes[step][2] < whole_bytes:
            found.append((cut.sizes[step][2], float(cut.losses.loss[step]), number, step))
    return (cuts[min(found)[2]], min(found)[3]) if found else None


def cover_models(evaluator: HeldOutEvaluator, path: CoverPath) -> list[Nodes]:
    """The models of a path."""
    nodes = smoothed(open_nodes(evaluator.ensemble, path.candidate.n_trees), path.smoothing)
    rows, inner = (
        evaluator.rows.first_trees(path.candidate.n_trees),
        nodes.children[:, 0] != np.arange(len(nodes.cover)),
    )
    models = []
    for level in cover_levels(nodes):
        model, places, _ = renumbered(nodes, nodes.value, inner & (nodes.cover < level))
        models.append(
            as_log_odds(model, moved(rows, places, model)[0]) if path.candidate.link == "logistic" else model
        )
    return models


def cover_levels(nodes: Nodes) -> list[float]:
    """Numbers of training rows below which nodes become leaves; 0 for no cut."""
    largest = float(nodes.cover[nodes.roots[:-1]].max()) / LEAST_PARTS
    count = int(np.log2(max(largest / FIRST, 0.5))) + 1 if largest >= FIRST else 0
    return [0.0, *(FIRST * 2.0**k for k in range(count))]


def places_above(nodes: Nodes, level: float) -> IntArray:
    """For each node (m,), the highest ancestor that becomes a leaf, or the node itself."""
    above = np.empty(len(nodes.parent), dtype=np.uint32)
    find_stand_ins(nodes.parent, nodes.cover, level, above)
    return above
