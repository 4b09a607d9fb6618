"""Moments of predictions equal explicit sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manylens.pruning.selection import held_out_error
from manylens.summaries.prediction_moments import FoldedMoments, KernelMoments, PredictionMoments
from tests.pruning.conftest import predictions
from tests.summaries.contract import SummaryContract

seeds = st.integers(0, 10_000)


class TestPredictionMoments(SummaryContract):
    def make(self):
        return PredictionMoments()

    def batch(self, which, dtype=np.float64):
        P, Y = predictions(0, C=3)
        weight = np.random.default_rng(1).uniform(0.1, 2, Y.shape)
        return tuple(array[which].astype(dtype) for array in (P, Y, weight))

    def result(self, summary):
        return [*summary.centered(), *summary.means(), summary.sizes_]

    def refused(self):
        P, Y, weight = self.batch(np.arange(5))
        return [(P[:, :, 0], Y), (P, Y[:3]), (P, Y, weight[:, :2]), (P[:, 1:], Y), (P[:, :, :1], Y[:, :1])]

    def test_a_batch_without_rows_changes_nothing(self):
        assert PredictionMoments().update(np.zeros((0, 8, 3)), np.zeros((0, 3))).n_rows_ == 0

    def test_merging_moments_of_other_predictors_raises(self):
        P, Y = predictions(0)
        with pytest.raises(ValueError, match=r"7 predictors .* cannot be merged into moments of 8"):
            PredictionMoments().update(P, Y).merge(PredictionMoments().update(P[:, 1:], Y))


class TestMomentsWithKernels(TestPredictionMoments):
    def make(self):
        return PredictionMoments(pairs=True)

    def result(self, summary):
        return [*super().result(summary), *summary.kernel_products()]


class TestKernelMoments(TestPredictionMoments):
    def make(self):
        return KernelMoments()

    def result(self, summary):
        return [*summary.kernel_products()]


class TestFoldedMoments(TestPredictionMoments):
    def make(self):
        return FoldedMoments(4, pairs=True)

    def result(self, summary):
        whole = summary.whole()
        return [*super().result(whole), *whole.kernel_products(), *summary.single.kernel_products()]

    def test_merging_moments_with_other_folds_raises(self):
        with pytest.raises(ValueError, match="Moments in 5 folds cannot be merged into moments in 4"):
            FoldedMoments(4).merge(FoldedMoments(5))

    def test_folds_of_merged_moments_add_up(self):
        parts = [self.make().update(*self.batch(which)) for which in self.parts(0)]
        merged = self.make()
        for part in parts:
            merged.merge(part)
        for others, part in merged.splits(merged.whole()):
            both = PredictionMoments(merged.pairs).merge(others).merge(part)
            wanted = self.result(merged)[:6]
            for ours, theirs in zip([*both.centered(), *both.means(), both.sizes_], wanted, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-9)


@given(seeds, st.integers(1, 4))
def test_moments_equal_explicit_sums(seed, C):
    P, Y = predictions(seed, C=C)
    weight = np.random.default_rng(seed).uniform(0.1, 2, Y.shape)
    moments = PredictionMoments().update(P, Y, weight)
    mean = (P * weight[:, None]).sum(axis=0) / weight.sum(axis=0)
    target = (Y * weight).sum(axis=0) / weight.sum(axis=0)
    G = np.einsum("ikc,ilc,ic->kl", P - mean, P - mean, weight)
    b = np.einsum("ikc,ic,ic->k", P - mean, Y - target, weight)
    np.testing.assert_allclose(moments.centered().G, G, atol=1e-9)
    np.testing.assert_allclose(moments.centered().b, b, atol=1e-9)
    np.testing.assert_allclose(moments.centered(np.array([1, 4])).G, G[np.ix_([1, 4], [1, 4])], atol=1e-9)
    np.testing.assert_allclose(moments.means()[0], mean, atol=1e-9)
    np.testing.assert_allclose(moments.means()[1], target, atol=1e-9)


@given(seeds, st.integers(1, 4), st.booleans())
def test_kernel_moments_equal_explicit_kernels(seed, C, weighted):
    P, Y = predictions(seed, n=30, p=4, C=C)
    weight = np.random.default_rng(seed).uniform(0.1, 2, Y.shape) if weighted else np.ones(Y.shape)
    Q = np.concatenate([P, Y[:, None]], axis=1)
    Q = (Q - (Q * weight[:, None]).sum(axis=0) / weight.sum(axis=0)) * np.sqrt(weight)[:, None]
    kernels = np.stack([(Q[:, k] @ Q[:, k].T).ravel() for k in range(5)])
    M = kernels @ kernels.T
    given = (P, Y, weight if weighted else None)
    pairs, single = (KernelMoments(which).update(*given).kernel_products() for which in (True, False))
    np.testing.assert_allclose(pairs.M, M[:-1, :-1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(single.M, np.diag(M)[:-1], rtol=1e-9)
    for found in (pairs, single):
        np.testing.assert_allclose(found.a, M[:-1, -1], rtol=1e-9, atol=1e-9)
        assert found.total == pytest.approx(M[-1, -1])


@given(seeds, st.integers(1, 3), st.integers(1, 59))
def test_folds_hold_every_fifth_row_for_any_batches(seed, C, cut):
    P, Y = predictions(seed, C=C)
    folded = FoldedMoments().update(P[:cut], Y[:cut]).update(P[cut:], Y[cut:])
    whole = folded.whole()
    np.testing.assert_allclose(whole.centered()[0], PredictionMoments().update(P, Y).centered()[0], atol=1e-9)
    for k, (others, part) in enumerate(folded.splits(whole)):
        out = np.arange(60) % 5 == k
        for moments, rows in ((others, ~out), (part, out)):
            wanted = PredictionMoments().update(P[rows], Y[rows])
            assert moments.n_rows_ == rows.sum()
            for ours, theirs in zip(moments.centered(), wanted.centered(), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-8)
        weights = np.random.default_rng(seed).uniform(size=8) * (np.arange(8) % 2)
        intercept = Y[~out].mean(axis=0) - weights @ P[~out].mean(axis=0)
        wrong = np.sum((Y[out] - np.einsum("ikc,k->ic", P[out], weights) - intercept) ** 2)
        assert held_out_error(weights, others, part) == pytest.approx(wrong, abs=1e-8)
