"""Forests whose nodes with few training rows become leaves: no value is refitted.

Neither the cuts nor the values depend on the targets of out-of-bag rows, so their losses are held-out losses,
as for the whole forest, and no tree has to be fitted again. The models are larger than refitted ones of the
same loss, but their difference from the whole forest is known more exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from manylens.pruning.members import Link
from manylens.pruning.node_path import (
    Nodes,
    RowLeaves,
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
from manylens.typing import IntArray

SMOOTHINGS = (0.1, 1.0)  # weight of a node in the values of its children, in training rows
FIRST = 4.0  # nodes with fewer training rows become leaves; the limit is doubled from step to step
LEAST_PARTS = 8  # the largest limit is an eighth of all rows
HALVINGS = 3  # how often the number of trees is halved


class CoverPath(NamedTuple):
    """Some trees of a forest, with more and more nodes cut: one step per limit on the training rows."""

    candidate: Candidate
    smoothing: float
    judged: JudgedRows
    losses: LossPath
    sizes: list[Size]


def cover_paths(evaluator: HeldOutEvaluator, few: int, link: str, most: float) -> Iterator[list[CoverPath]]:
    """Held-out losses of all cuts, with several smoothings and links, for increasing numbers of trees."""
    ensemble, T = evaluator.ensemble, len(evaluator.ensemble.trees.roots)
    nodes = open_nodes(ensemble, T)
    links: list[Link] = ["identity"] if link != "logistic" or ensemble.classes is None else []
    links += ["logistic"] if link != "identity" and ensemble.classes is not None else []
    above = [places_above(nodes, level) for level in cover_levels(nodes)]
    rows = [evaluator.rows._replace(node=up[evaluator.rows.node]) for up in above]
    even = [smoothed(nodes, smoothing) for smoothing in SMOOTHINGS]
    for count in sorted({max(few, T >> k) for k in range(HALVINGS + 1)}):
        end, voting = int(nodes.roots[count]), evaluator.voting_trees(count)
        remain = [int(np.sum(up[:end] == np.arange(end))) for up in above]
        found = []
        for smoothing, values in zip(SMOOTHINGS, even, strict=True):
            for each in links:
                candidate = Candidate(count, each, np.inf)
                losses = [losses_of(values, part, each, count) for part in rows]
                for i, part in enumerate(rows if voting > count and ensemble.classes is not None else ()):
                    if losses[i].loss[evaluator.used].mean() <= most:  # others are not good enough
                        losses[i] = losses[i]._replace(error=losses_of(values, part, each, voting).error)
                sizes = [full_size(ensemble, candidate, m) for m in remain]
                judged = evaluator.compare(losses, count)
                found.append(CoverPath(candidate, smoothing, judged, evaluator.path_of(judged), sizes))
        yield found


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
        model, places = renumbered(nodes, nodes.value, inner & (nodes.cover < level))
        models.append(as_log_odds(model, moved(rows, places)) if path.candidate.link == "logistic" else model)
    return models


def cover_levels(nodes: Nodes) -> list[float]:
    """Numbers of training rows below which nodes become leaves; 0 for no cut."""
    largest = float(nodes.cover[nodes.roots[:-1]].max()) / LEAST_PARTS
    count = int(np.log2(max(largest / FIRST, 0.5))) + 1 if largest >= FIRST else 0
    return [0.0, *(FIRST * 2.0**k for k in range(count))]


def places_above(nodes: Nodes, level: float) -> IntArray:
    """For each node (m,), the ancestor that becomes a leaf, or the node itself."""
    goes_up = (nodes.parent >= 0) & (nodes.cover[nodes.parent] < level)
    above = np.where(goes_up, nodes.parent, np.arange(len(nodes.parent))).astype(np.uint32)
    while not np.array_equal(further := above[above], above):  # twice as far up in each round
        above = further
    return above


def losses_of(nodes: Nodes, rows: RowLeaves, link: str, n_trees: int) -> RowLosses:
    """Losses of rows by the first trees, with one of the links."""
    value = nodes.value[: nodes.roots[n_trees]] * (nodes.n_trees / n_trees)
    nodes, rows = nodes._replace(value=value, column=nodes.column[:n_trees]), rows.first_trees(n_trees)
    if link == "logistic":
        nodes = as_log_odds(nodes, rows)
        rows = rows._replace(target=rows.target[:, -len(nodes.intercept) :].copy())
    return row_losses(nodes, rows)
