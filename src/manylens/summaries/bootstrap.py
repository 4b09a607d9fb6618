"""Bootstrap samples of rows that live in blocks: counts of each row, and moments weighted by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from manylens.summaries.base import Summary, check_same_kind
from manylens.summaries.moments import Moments
from manylens.typing import AnyArray, FloatArray
from manylens.validation import check_count, check_rows, finite_array, require_memory

OBJECT_BYTES = 4096.0  # upper bound on the size of one Moments object without its matrix


def bootstrap_counts(n_samples: int, lengths: Sequence[int], number: int, seed: int) -> FloatArray:
    """Counts (n_samples, lengths[number]) of the rows of one block in bootstrap samples of all n rows.

    A multinomial draw of n rows is a multinomial draw of their blocks, then one within each block. Both come
    from the seed, so each block computes its counts independently, and together they add up to n.
    """
    n = sum(lengths)
    shares = np.asarray(lengths, dtype=np.float64) / n
    drawn = np.random.default_rng([seed, 1]).multinomial(n, shares, size=n_samples)[:, number]
    rng, size = np.random.default_rng([seed, 1, number]), lengths[number]
    within = [rng.multinomial(k, np.full(size, 1 / size)) for k in drawn]
    return np.stack(within).astype(np.float64)


class BootstrapMoments(Summary):
    """Moments of all rows, and of bootstrap samples with the counts of each row as weights."""

    def __init__(self, n_features: int, n_samples: int) -> None:
        self.whole = Moments(n_features)
        each = 8.0 * n_features**2 + OBJECT_BYTES
        require_memory(each * check_count(n_samples, "n_samples"), f"{n_samples} samples")
        self.samples = [Moments(n_features) for _ in range(n_samples)]

    def update(self, rows: Any, counts: AnyArray) -> Self:
        """Add rows (n, d), which occur counts (n_samples, n) times."""
        rows = check_rows(rows, "rows")
        counts = finite_array(counts, "counts", 2)
        if (counts < 0).any():
            raise ValueError("counts has negative numbers: give how often each row occurs in each sample.")
        if counts.shape != (len(self.samples), rows.shape[0]):
            raise ValueError(
                f"counts has shape {counts.shape}, but {len(self.samples)} samples of {rows.shape[0]} rows "
                "need one count for each."
            )
        self.whole.update(rows)
        for sample, weights in zip(self.samples, counts, strict=True):
            sample.update(rows, weights)
        return self

    def merge(self, other: Self) -> Self:
        check_same_kind(self, other)
        if len(other.samples) != len(self.samples):
            raise ValueError(
                f"Moments of {len(other.samples)} samples cannot be merged into those of {len(self.samples)}."
            )
        self.whole.merge(other.whole)
        for sample, theirs in zip(self.samples, other.samples, strict=True):
            sample.merge(theirs)
        return self

    def fresh(self) -> Self:
        return type(self)(self.whole.n_features, len(self.samples))
