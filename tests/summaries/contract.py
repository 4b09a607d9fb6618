"""Contract of summaries. Inherit from `SummaryContract` and give `make`, `batch` and `result`."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from manylens.summaries.base import Summary, merge_tree, summarize


def same_state(one: Any, other: Any) -> bool:
    """Whether two objects hold equal settings and arrays that are equal bit by bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    if sparse.issparse(one):
        return one.shape == other.shape and (one != other).nnz == 0
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(same_state(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same_state, one, other))
    if hasattr(one, "__dict__") and not callable(one):
        return same_state(vars(one), vars(other))
    return bool(one == other)


class SummaryContract:
    """Order, splitting, merging, precision, refusal and pickling of one kind of summary.

    A subclass gives `make`, `batch` and `result`. It may change `n_rows`, the tolerances, and list in
    `refused` batches that must raise ValueError once the summary has seen other rows.
    """

    n_rows = 60
    rtol = 1e-10  # of results against one pass over all rows
    atol = 1e-10
    float32_rtol = 1e-4  # of single precision rows against double precision ones
    float32_atol = 1e-4

    def make(self) -> Summary:
        """An empty summary."""
        raise NotImplementedError

    def batch(self, which: np.ndarray, dtype: type = np.float64) -> tuple[Any, ...]:
        """The arguments of `update` for the rows with these numbers, of 0 ... n_rows - 1."""
        raise NotImplementedError

    def result(self, summary: Any) -> list[np.ndarray]:
        """The arrays that are learned from the summary, to be compared."""
        raise NotImplementedError

    def refused(self) -> list[tuple[Any, ...]]:
        """Arguments that `update` must refuse."""
        return []

    def whole(self) -> Summary:
        return self.make().update(*self.batch(np.arange(self.n_rows)))

    def parts(self, seed: int, n_parts: int = 5, shuffle: bool = True) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        order = rng.permutation(self.n_rows) if shuffle else np.arange(self.n_rows)
        cuts = np.sort(rng.choice(np.arange(1, self.n_rows), n_parts - 1, replace=False))
        return np.split(order, cuts)

    def assert_close(self, summary: Summary, wanted: Summary, rtol: float, atol: float) -> None:
        for ours, theirs in zip(self.result(summary), self.result(wanted), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)

    @pytest.mark.parametrize("seed", range(5))
    def test_batches_of_any_size_in_any_order_give_the_same_result(self, seed):
        batches = (self.batch(part) for part in self.parts(seed))
        self.assert_close(summarize(self.make, batches), self.whole(), self.rtol, self.atol)

    def test_batches_of_one_row_give_the_same_result(self):
        batches = (self.batch(np.array([row])) for row in range(self.n_rows))
        self.assert_close(summarize(self.make, batches), self.whole(), self.rtol, self.atol)

    @pytest.mark.parametrize("seed", range(5))
    def test_merging_gives_the_result_of_one_pass(self, seed):
        one, other, *rest = [self.make().update(*self.batch(part)) for part in self.parts(seed)]
        merged = self.make().merge(one).merge(other)
        for summary in rest:
            merged = summary.merge(merged)
        self.assert_close(merged, self.whole(), self.rtol, self.atol)

    def test_an_empty_summary_merges_as_nothing(self):
        summary = self.whole()
        before = copy.deepcopy(summary)
        assert same_state(summary.merge(self.make()), before)
        self.assert_close(self.make().merge(summary), before, 0.0, 0.0)

    def test_merging_leaves_the_other_summary_unchanged(self):
        first, second = self.parts(0, 2)
        other = self.make().update(*self.batch(second))
        before = copy.deepcopy(other)
        summary = self.make().merge(other)
        summary.update(*self.batch(first))
        assert same_state(other, before)

    @pytest.mark.parametrize("n_parts", [1, 2, 3, 7])
    def test_a_merge_tree_gives_the_same_bits_however_the_parts_finished(self, n_parts):
        parts = self.parts(1, n_parts, shuffle=False)

        def merged(order):
            finished = {k: self.make().update(*self.batch(parts[k])) for k in order}
            return merge_tree([finished[k] for k in range(n_parts)])

        wanted = merged(range(n_parts))
        assert same_state(merged(np.random.default_rng(0).permutation(n_parts)), wanted)
        self.assert_close(wanted, self.whole(), self.rtol, self.atol)

    def test_single_precision_rows_give_the_same_result_up_to_rounding(self):
        batches = [self.batch(part, np.float32) for part in self.parts(2)]
        summary = summarize(self.make, batches)
        self.assert_close(summary, self.whole(), self.float32_rtol, self.float32_atol)

    def test_a_fresh_summary_is_empty_and_has_the_same_settings(self):
        summary = self.whole()
        before = copy.deepcopy(summary)
        fresh = summary.fresh()
        assert same_state(fresh, self.make())
        fresh.update(*self.batch(np.arange(self.n_rows)))
        assert same_state(fresh, before)
        assert same_state(summary, before)

    def test_update_and_merge_return_the_summary_itself(self):
        summary = self.make()
        assert summary.update(*self.batch(np.arange(self.n_rows))) is summary
        assert summary.merge(self.whole()) is summary

    def test_a_refused_batch_leaves_the_summary_unchanged(self):
        for batch in self.refused():
            summary = self.whole()
            before = copy.deepcopy(summary)
            with pytest.raises(ValueError, match=r"\w"):
                summary.update(*batch)
            assert same_state(summary, before)

    def test_a_summary_survives_pickling_and_continues(self):
        first, second = self.parts(3, 2)
        summary = self.make().update(*self.batch(first))
        resumed = pickle.loads(pickle.dumps(summary))
        assert same_state(resumed, summary)
        assert same_state(resumed.update(*self.batch(second)), summary.update(*self.batch(second)))
