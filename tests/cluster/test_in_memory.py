"""Fits from batches in memory: the same protocol as on a cluster, without dask."""

import threading

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.decomposition import PCA

from manylens import (
    CountSketch,
    LayerRidgeClassifier,
    LayerRidgeRegressor,
    ModularAutoencoder,
    ModularKernelPCA,
    StreamingCKA,
    cka_matrix,
    stable_rank,
)
from manylens.baselines import (
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)
from manylens.cluster import Blockwise, summarize_blocks
from manylens.cluster.dask_runner import LONGEST_SECONDS, check_patience
from manylens.cluster.reduction import count_rows
from manylens.cluster.sample import RowSample
from manylens.summaries import Moments, merge_tree

X, Y = load_digits(return_X_y=True)
X, Y = X[:600], Y[:600]
BATCHES = np.array_split(X, 7)
LABELS = np.array_split(Y, 7)

TRANSFORMERS = [
    ModularKernelPCA(4, 3, random_state=0),
    ModularKernelPCA(4, 3, rank=100, random_state=0),
    ModularKernelPCA(4, 3, feature_map="fourier", rank=50, random_state=0),
    ModularAutoencoder(4, 3, random_state=0),
    MonolithicKernelPCA(10, rank=100, random_state=0),
    PartitionKernelPCA(4, 3, rank=100, random_state=0),
    RandomKernelProjection(4, 3, rank=100, random_state=0),
]


@pytest.mark.parametrize("estimator", TRANSFORMERS, ids=repr)
def test_a_sample_of_all_rows_gives_the_fit_of_all_rows(estimator):
    whole = clone(estimator).fit(X)
    parts = Blockwise(estimator).fit(BATCHES).estimator_
    assert type(parts) is type(whole)
    assert parts.get_params() == whole.get_params()
    np.testing.assert_allclose(parts.spectrum_, whole.spectrum_, rtol=1e-7, atol=1e-12 * whole.spectrum_[0])
    Z, W = parts.transform(X), whole.transform(X)
    np.testing.assert_allclose(Z @ Z.T, W @ W.T, atol=1e-6 * np.abs(W @ W.T).max())


def test_float32_and_sparse_batches():
    single = Blockwise(ModularAutoencoder(3, 3, random_state=0)).fit([b.astype(np.float32) for b in BATCHES])
    assert next(single.transform([X.astype(np.float32)])).dtype == np.float32
    rows = [sparse.csr_matrix(batch) for batch in BATCHES]
    thin = Blockwise(ModularKernelPCA(3, 3, rank=80, random_state=0), sample_rows=200).fit(rows)
    dense = Blockwise(ModularKernelPCA(3, 3, rank=80, random_state=0), sample_rows=200).fit(BATCHES)
    np.testing.assert_allclose(thin.estimator_.spectrum_, dense.estimator_.spectrum_, rtol=1e-6)


def test_rows_in_memory_are_passed_on():
    fitted = Blockwise(TRANSFORMERS[1]).fit(BATCHES)
    np.testing.assert_array_equal(fitted.transform(X), fitted.estimator_.transform(X))


def test_a_small_sample_fixes_only_the_feature_map():
    estimator = ModularKernelPCA(4, 3, rank=60, random_state=0)
    fitted = Blockwise(estimator, sample_rows=100).fit(BATCHES).estimator_
    again = clone(estimator).fit_feature_map(fitted.feature_map_.landmarks_)
    again.feature_map_ = fitted.feature_map_
    again.learn_from(again.summarize(X))
    np.testing.assert_allclose(fitted.spectrum_, again.spectrum_, rtol=1e-9)


def test_layer_ridge_classifier():
    model = LayerRidgeClassifier(layer_slices=[32, 32], kernel="linear")
    parts = Blockwise(model).fit(BATCHES, LABELS).estimator_
    same_alpha = clone(model).set_params(alphas=[parts.alpha_]).fit(X, Y)
    np.testing.assert_allclose(parts.decision_function(X), same_alpha.decision_function(X), atol=1e-6)
    # all rows are in the sample, so leave-one-out is that of all rows, exactly
    assert parts.loo_score_ == pytest.approx(same_alpha.loo_score_, abs=1e-12)
    assert parts.temperature_ == pytest.approx(same_alpha.temperature_, rel=1e-4)


def test_rows_sorted_by_class_are_calibrated_on_all_classes(monkeypatch):
    monkeypatch.setattr("manylens.transfer.layer_estimators.CALIBRATION_ROWS", 200)
    order = np.argsort(Y, kind="stable")
    model = LayerRidgeClassifier(kernel="linear")
    parts = Blockwise(model).fit(np.array_split(X[order], 7), np.array_split(Y[order], 7)).estimator_
    whole = clone(model).set_params(alphas=[parts.alpha_]).fit(X, Y)
    assert parts.loo_score_ == pytest.approx(whole.loo_score_, abs=0.05)
    assert parts.temperature_ == pytest.approx(whole.temperature_, rel=0.25)


def test_layer_ridge_with_landmarks_dict_layers_and_strings():
    names = np.array([f"digit {k}" for k in Y])
    layers = [{"a": batch[:, :32], "b": batch[:, 32:]} for batch in BATCHES]
    batches = list(zip(layers, np.array_split(names, 7), strict=True))
    fitted = Blockwise(LayerRidgeClassifier(rank=150, random_state=0), sample_rows=300).fit(batches)
    predicted = np.concatenate(list(fitted.predict([rows for rows, _ in batches])))
    assert np.mean(predicted == names) > 0.95
    proba = np.vstack(list(fitted.predict_proba([rows for rows, _ in batches])))
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)


def test_layer_ridge_regressor():
    D, t = load_diabetes(return_X_y=True)
    model = LayerRidgeRegressor(kernel="linear")
    fitted = Blockwise(model).fit(np.array_split(D, 4), np.array_split(t, 4)).estimator_
    whole = clone(model).set_params(alphas=[fitted.alpha_]).fit(D, t)
    np.testing.assert_allclose(fitted.predict(D), whole.predict(D), rtol=1e-6)
    assert fitted.loo_score_ == pytest.approx(whole.loo_score_, abs=1e-9)


def test_summaries_of_batches():
    layers = [{"a": b, "b": b[:, :20] ** 2} for b in BATCHES]
    stream = summarize_blocks(StreamingCKA(), layers)
    expected = cka_matrix({"a": X, "b": X[:, :20] ** 2})
    np.testing.assert_allclose(stream.result(), expected, atol=1e-10)
    sketch = summarize_blocks(CountSketch(64), BATCHES)  # rows are hashed by their number
    np.testing.assert_allclose(sketch.summary_, CountSketch(64).update(X).summary_, atol=1e-9)
    moments = summarize_blocks(Moments(64), iter(BATCHES))  # one pass: an iterator will do
    assert stable_rank(moments) == pytest.approx(stable_rank(X), rel=1e-9)
    assert stable_rank(moments, center=False) == pytest.approx(stable_rank(X, center=False), rel=1e-9)


def test_the_stable_rank_of_equal_rows_is_refused():
    with pytest.raises(ValueError, match="constant"):
        stable_rank(Moments(3).update(np.full((50, 3), 0.1)))


def test_no_seed_gives_another_result_each_time_and_stays_a_parameter():
    fits = [Blockwise(ModularKernelPCA(2, 2, rank=20), sample_rows=50).fit(BATCHES) for _ in range(2)]
    assert fits[0].estimator_.random_state is None
    assert not np.array_equal(fits[0].estimator_.components_, fits[1].estimator_.components_)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([X[:50], X[50:100, :60]], "Blocks 0 and 1 do not fit together: the columns differ: 64"),
        ([X[:50], np.where(X[50:100] > 15, np.nan, X[50:100])], r"Block 1 \(the first is 0\): Input X cont"),
        ([X[:50], X[50:100], X[:0]], r"Block 2 .*0 sample"),
        ([], "X holds no block"),
    ],
)
def test_errors_name_the_block(blocks, message):
    with pytest.raises(ValueError, match=message):
        Blockwise(ModularKernelPCA(2, 2)).fit(blocks)


def test_what_is_not_in_blocks_or_cannot_be_fitted_in_parts():
    with pytest.raises(TypeError, match="A block of X is 120: give blocks of rows"):
        count_rows(None, 0, 120)
    with pytest.raises(TypeError, match="X is ndarray, which is not in blocks"):
        Blockwise(ModularKernelPCA(2, 2)).fit(X)
    with pytest.raises(TypeError, match="PCA does not learn from a summary"):
        Blockwise(PCA(2)).fit(BATCHES)
    with pytest.raises(TypeError, match="can be read only once"):
        Blockwise(ModularKernelPCA(2, 2)).fit(iter(BATCHES))
    with pytest.raises(ValueError, match="no rows to divide"):
        Blockwise(ModularKernelPCA(2, 2, kernel="precomputed")).fit(BATCHES)
    with pytest.raises(ValueError, match="Pre-images are learned from all rows"):
        Blockwise(ModularKernelPCA(2, 2, fit_inverse_transform=True)).fit(BATCHES)
    with pytest.raises(ValueError, match="'stacked' needs all rows"):
        Blockwise(LayerRidgeClassifier(weights="stacked")).fit(BATCHES, LABELS)
    with pytest.raises(TypeError, match="give an empty Summary"):
        summarize_blocks(ModularKernelPCA(), BATCHES)
    array = pytest.importorskip("dask.array").from_array(X, chunks=(40, X.shape[1]))
    with pytest.raises(TypeError, match=r"X\['b'\] is list, but other feature sets are dask collections"):
        summarize_blocks(StreamingCKA(), {"a": array, "b": BATCHES})


@pytest.mark.parametrize("n", range(1, 18))
def test_the_tree_pairs_neighbors(n):
    def by_levels(level):
        while len(level) > 1:
            pairs = [level[k : k + 2] for k in range(0, len(level), 2)]
            level = [f"({''.join(pair)})" if len(pair) == 2 else pair[0] for pair in pairs]
        return level[0]

    leaves = [f"{k}," for k in range(n)]
    assert merge_tree(iter(leaves), lambda one, other: f"({one}{other})") == by_levels(leaves)


def test_the_sample_is_uniform_and_does_not_depend_on_the_order():
    counts = np.zeros(40)
    for seed in range(2000):
        parts = [RowSample(10, seed).update(k, np.arange(10.0)[:, None] + 10 * k) for k in range(4)]
        backward = RowSample(10, seed)
        for part in reversed(parts):
            backward.merge(part)
        (rows,) = merge_tree(parts).arguments()
        assert len(rows) == 10
        np.testing.assert_array_equal(rows, backward.arguments()[0])
        counts[rows.ravel().astype(int)] += 1
    # each row is in a sample with probability 1/4: 500 +- 5 standard deviations of 19.4
    assert np.all(np.abs(counts - 500) < 97)


@pytest.mark.parametrize("patience", [1e308, 2.0**63, 10**30])
def test_any_positive_patience_is_a_number_of_seconds(patience):
    seconds = check_patience(patience)
    assert seconds == LONGEST_SECONDS
    assert seconds < threading.TIMEOUT_MAX


def test_sparse_rows_that_are_a_dict_of_entries_are_not_taken_for_layers():
    with pytest.raises(TypeError, match="X is dok_array, which is not in blocks"):
        summarize_blocks(Moments(3), sparse.dok_array(np.eye(3)))
