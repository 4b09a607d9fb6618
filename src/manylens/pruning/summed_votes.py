"""Losses of a forest of classes from the sums of its votes, which both links and more trees share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manylens.native.tree_nodes import add_values
from manylens.pruning.members import Link
from manylens.pruning.node_path import (
    Nodes,
    RowLeaves,
    RowLosses,
    best_slope,
    class_losses,
    excess_of_halves,
    extrapolated,
    true_classes,
)
from manylens.typing import FloatArray, IntArray


class SummedVotes(NamedTuple):
    """Mean probabilities by some trees; zeros if none of them votes for a row."""

    mean: FloatArray  # (n, C)
    halves: FloatArray  # (2, n, C): by trees with even and with odd numbers
    votes: IntArray  # (2, n): how many trees of each half vote for a row

    def losses(self, target: FloatArray, link: Link, n_trees: int) -> RowLosses:
        """The losses (n,) of `row_losses`, extrapolated to `n_trees` trees.

        With link="logistic", those of `as_log_odds`.
        """
        mean, halves, truth = self.mean, self.halves, true_classes(target)
        if link == "logistic":
            if mean.shape[1] == 2:  # a single log-odds, 0 if both classes are as probable
                mean, halves = mean[:, 1:] - 0.5, halves[..., 1:] - 0.5
            slope = best_slope(mean, truth)
            mean, halves = slope * mean, slope * halves
        loss, error = class_losses(mean, truth, link)
        k = self.votes.sum(axis=0)
        if np.all(k >= n_trees):
            return RowLosses(loss, error)
        by_half = [class_losses(half, truth, link)[0] for half in halves]
        excess = excess_of_halves(by_half, loss, self.votes[0], k, n_trees)
        return RowLosses(extrapolated(loss, excess, k, n_trees, link), error)


class VoteSums:
    """Adds up the votes of the trees of a forest, whose nodes may stand for leaves below them.

    `above` (m,) is the node that stands for each leaf; `parts` are from `halves_of`.
    """

    def __init__(self, nodes: Nodes, above: IntArray, parts: tuple[RowLeaves, RowLeaves]) -> None:
        self._nodes, self._above, self._parts, self._done = nodes, above, parts, [0, 0]
        n, C = parts[0].target.shape
        self._sums, self._count = np.zeros((2, n, C)), np.zeros((2, n), dtype=np.int64)

    def first(self, n_trees: int) -> SummedVotes:
        """The votes of the first trees, at least as many as in the last call."""
        for half, (rows, before) in enumerate(zip(self._parts, self._done, strict=True)):
            last = self._done[half] = (n_trees + 1 - half) // 2
            start = rows.start[before : last + 1]
            some = slice(start[0], start[-1])
            entries = start - start[0], rows.row[some], self._above[rows.node[some]]
            column = np.zeros(last - before, dtype=np.uint32)
            add_values((*entries, column), self._nodes.value, self._sums[half])
            self._count[half] += np.bincount(rows.row[some], minlength=len(rows.target))
        T, count = self._nodes.n_trees, self._count.copy()
        halves = self._sums * (T / np.maximum(count, 1))[..., np.newaxis]
        mean = self._sums.sum(axis=0) * (T / np.maximum(count.sum(axis=0), 1))[:, np.newaxis]
        return SummedVotes(mean, halves, count)


def halves_of(rows: RowLeaves) -> tuple[RowLeaves, RowLeaves]:
    """The rows in trees with even, and in trees with odd numbers."""
    counts, T = np.diff(rows.start), len(rows.start) - 1
    odd, row = np.repeat(np.arange(T) % 2 == 1, counts), np.tile(rows.row, T) if rows.shared else rows.row
    even, uneven = (
        RowLeaves(np.append(0, np.cumsum(counts[half::2])), row[which], rows.node[which], rows.target)
        for half, which in enumerate((~odd, odd))
    )
    return even, uneven
