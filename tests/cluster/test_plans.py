"""Estimators that are fitted on blocks in their own way: bootstrap, pruning, NCA, and fits of one pass."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import (
    BaggingRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)

from manylens import NCA, AlignmentPruner, ModularAutoencoder, ModularKernelPCA
from manylens.baselines import BaggingAutoencoder, BootstrapKernelPCA
from manylens.cluster import Blockwise
from manylens.metric import Stochastic
from manylens.summaries import BootstrapMoments, Moments
from manylens.summaries.bootstrap import bootstrap_counts

X, Y = load_digits(return_X_y=True)
X, Y = X[:600], Y[:600]
BATCHES, LABELS = np.array_split(X, 7), np.array_split(Y, 7)
LENGTHS = [len(batch) for batch in BATCHES]
D, T = load_diabetes(return_X_y=True)
DB, TB = np.array_split(D, 5), np.array_split(T, 5)


def all_counts(n_samples, seed):
    return np.hstack([bootstrap_counts(n_samples, LENGTHS, k, seed) for k in range(len(LENGTHS))])


def test_counts_of_blocks_are_a_bootstrap_sample_of_all_rows():
    counts = all_counts(4000, seed=0)
    np.testing.assert_array_equal(counts.sum(axis=1), 600)
    # multinomial: mean 1, variance 1 - 1/n, covariance of two rows -1/n, within a block and between blocks
    assert abs(counts.mean() - 1) < 1e-12
    covariance = np.cov(counts[:, [0, 1, 300, 599]].T)
    # 5 standard errors of a variance of 1 with 4,000 draws (kurtosis of a Poisson: 4) and of a covariance
    np.testing.assert_allclose(np.diag(covariance), 1 - 1 / 600, atol=5 * np.sqrt(3 / 4000))
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 5 / np.sqrt(4000)
    assert not np.array_equal(all_counts(2, seed=1), all_counts(2, seed=2))


@pytest.mark.parametrize(
    "estimator",
    [
        BootstrapKernelPCA(3, 4, rank=100, random_state=5),
        BootstrapKernelPCA(3, 4, kernel="linear", feature_map="linear", random_state=5),
        BootstrapKernelPCA(3, 4, kernel="polynomial", rank=300, random_state=5),  # the root is applied early
        BaggingAutoencoder(3, 4, random_state=5),
    ],
    ids=["nystroem", "linear", "early root", "autoencoder"],
)
def test_bootstrap_modules_are_principal_components_of_the_samples(estimator):
    fitted = Blockwise(estimator).fit(BATCHES).estimator_
    counts = all_counts(3, seed=5).astype(int)
    for m in range(3):
        rows = np.repeat(X, counts[m], axis=0)
        if isinstance(estimator, BaggingAutoencoder):
            coordinates = rows
            weights = fitted.encoders_[m].T
        else:
            coordinates = fitted.feature_map_.apply_root(fitted.feature_map_.features(rows))
            psi = fitted.feature_map_.apply_root(fitted.feature_map_.features(X))
            Z = fitted.split(fitted.transform(X))[:, m]
            weights = np.linalg.lstsq(psi - psi.mean(axis=0), Z - Z.mean(axis=0), rcond=1e-11)[0]
        covariance = Moments(coordinates.shape[1]).update(coordinates).covariance()
        captured = np.trace(weights.T @ covariance @ weights)
        best = np.linalg.eigvalsh(covariance)[::-1][:4].sum()
        assert captured == pytest.approx(best, rel=1e-5)
        np.testing.assert_allclose(weights.T @ weights, np.eye(4), atol=1e-4)
    again = Blockwise(estimator).fit(BATCHES).estimator_
    assert again.components_.tobytes() == fitted.components_.tobytes()


def test_bootstrap_needs_counts_of_the_same_rows():
    model = BootstrapKernelPCA(2, 2, rank=50, random_state=0).fit_feature_map(X)
    with pytest.raises(ValueError, match="counts is None"):
        model.summarize(X)
    with pytest.raises(ValueError, match=r"counts has shape \(2, 10\), but 2 samples of 600 rows"):
        model.summarize(X, np.ones((2, 10)))
    with pytest.raises(ValueError, match="negative"):
        model.summarize(X, -np.ones((2, 600)))
    with pytest.raises(TypeError, match="BootstrapMoments"):
        model.learn_from(Moments(50))
    with pytest.raises(ValueError, match="2 modules"):
        model.learn_from(BootstrapMoments(50, 3))


@pytest.mark.parametrize(
    "ensemble",
    [
        RandomForestRegressor(30, random_state=0),
        BaggingRegressor(n_estimators=20, random_state=0),
        GradientBoostingRegressor(n_estimators=40, random_state=0),
    ],
    ids=lambda each: type(each).__name__,
)
def test_pruning_on_held_out_blocks_is_pruning_on_all_rows(ensemble):
    ensemble.fit(D[::2], T[::2])
    pruner = AlignmentPruner(ensemble, cv=None, anchor=0.25)
    whole = clone(pruner).fit(D[1::2], T[1::2])
    parts = Blockwise(pruner).fit(np.split(D[1::2], [50, 100, 150]), np.split(T[1::2], [50, 100, 150]))
    assert parts.estimator_.ensemble is ensemble
    np.testing.assert_array_equal(parts.estimator_.kept_, whole.kept_)
    np.testing.assert_allclose(parts.estimator_.weights_, whole.weights_, atol=1e-6)
    assert parts.estimator_.error_ == pytest.approx(whole.error_, rel=1e-7)
    np.testing.assert_allclose(np.concatenate(list(parts.predict(DB))), whole.predict(D), rtol=1e-5)


@pytest.mark.parametrize("cv", ["auto", "oob"])
def test_pruning_recognizes_training_rows_in_their_order(cv):
    forest = RandomForestClassifier(25, random_state=0).fit(X, Y)
    whole = AlignmentPruner(forest, cv=cv).fit(X, Y)
    parts = Blockwise(AlignmentPruner(forest, cv=cv), sample_rows=250).fit(BATCHES, LABELS).estimator_
    assert whole.error_ > 1e-3  # out-of-bag
    assert parts.error_ == pytest.approx(whole.error_, rel=1e-6)
    np.testing.assert_allclose(parts.weights_, whole.weights_, atol=1e-5)


def test_pruning_of_training_rows_in_another_order_is_refused_or_warned_of():
    forest = RandomForestRegressor(25, random_state=0).fit(D, T)
    order = np.random.default_rng(0).permutation(len(D))
    blocks, targets = np.array_split(D[order], 5), np.array_split(T[order], 5)
    with pytest.raises(ValueError, match="cv='oob' needs members"):
        Blockwise(AlignmentPruner(forest, cv="oob")).fit(blocks, targets)
    with pytest.warns(UserWarning, match="These rows resemble rows"):
        Blockwise(AlignmentPruner(forest)).fit(blocks, targets)
    with pytest.raises(ValueError, match="fit_ensemble=True refits the ensemble"):
        Blockwise(AlignmentPruner(forest, fit_ensemble=True)).fit(DB, TB)
    with pytest.raises(ValueError, match="cv=3 refits"):
        Blockwise(AlignmentPruner(forest, cv=3)).fit(DB, TB)
    with pytest.raises(ValueError, match="requires y"):
        Blockwise(AlignmentPruner(forest)).fit(DB)


def test_pruning_takes_blocks_of_one_class_and_missing_values():
    order = np.argsort(Y[:400], kind="stable")
    rows = X[:400].copy()
    rows[::7, 20] = np.nan
    boosting = HistGradientBoostingClassifier(max_iter=10, random_state=0).fit(X[400:], Y[400:])
    parts = Blockwise(AlignmentPruner(boosting)).fit(
        np.array_split(rows[order], 20), np.array_split(Y[:400][order], 20)
    )
    assert (parts.estimator_.predict(rows) == Y[:400]).mean() > 0.6


def test_nca_is_fitted_to_the_sample():
    nca = NCA(3, max_iter=15, tol=1e-3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = clone(nca).fit(X, Y)
        parts = Blockwise(nca).fit(iter(BATCHES), iter(LABELS)).estimator_  # one pass
        few = Blockwise(nca, sample_rows=200).fit(BATCHES, LABELS)
    np.testing.assert_array_equal(parts.components_, whole.components_)
    Z = np.vstack(list(few.transform(BATCHES)))
    nearest = np.argsort(((Z[:, None] - Z) ** 2).sum(axis=2), axis=1)[:, 1]
    assert (Y[nearest] == Y).mean() > 0.75
    with pytest.raises(ValueError, match="requires y"):
        Blockwise(nca).fit(BATCHES)


def test_nca_walks_over_all_blocks_if_stochastic():
    nca = NCA(3, method=Stochastic(base=150), max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = Blockwise(nca, sample_rows=300).fit(BATCHES, LABELS).estimator_
        start = fitted.n_iter_ - len(BATCHES)
        again = Blockwise(nca, sample_rows=300).fit(BATCHES, LABELS).estimator_
    assert start >= 1  # epochs over the sample, then one step per block
    assert fitted.components_.tobytes() == again.components_.tobytes()
    with pytest.raises(TypeError, match="can be read only once"):
        Blockwise(nca).fit(iter(BATCHES), iter(LABELS))


@pytest.mark.parametrize(
    "estimator",
    [
        ModularAutoencoder(3, 4, random_state=0),
        ModularKernelPCA(3, 4, feature_map="linear", kernel="linear", random_state=0),
        ModularKernelPCA(3, 4, feature_map="fourier", gamma=0.001, rank=40, random_state=0),
        ModularKernelPCA(
            3, 4, feature_map="nystroem", landmarks=X[::20], gamma=0.001, rank=30, random_state=0
        ),
    ],
    ids=["autoencoder", "linear", "fourier", "landmarks"],
)
def test_one_pass_if_nothing_is_learned_from_the_sample(estimator, monkeypatch):
    once = Blockwise(estimator).fit(iter(BATCHES)).estimator_
    monkeypatch.setattr(type(estimator), "_needs_sample", lambda _: True)
    twice = Blockwise(estimator).fit(BATCHES).estimator_
    # the landmarks' Gram matrix is computed relative to other rows
    np.testing.assert_allclose(
        once.transform(X), twice.transform(X), atol=1e-9 * np.abs(once.transform(X)).max()
    )


def test_one_pass_still_names_the_block():
    with pytest.raises(ValueError, match=r"Block 1 \(the first is 0\): X has 60 features"):
        Blockwise(ModularAutoencoder(3, 4)).fit([X[:50], X[50:100, :60]])
    with pytest.raises(ValueError, match=r"Block 2 .*NaN"):
        Blockwise(ModularAutoencoder(3, 4)).fit([X[:50], X[50:100], np.full((5, 64), np.nan)])


def test_a_target_that_is_not_used_is_ignored():
    model = ModularKernelPCA(3, 4, rank=50, random_state=0)
    expected = Blockwise(model).fit(BATCHES).estimator_.components_.tobytes()
    assert Blockwise(model).fit(BATCHES, LABELS).estimator_.components_.tobytes() == expected
    pairs = list(zip(BATCHES, LABELS, strict=True))
    assert Blockwise(model).fit(pairs).estimator_.components_.tobytes() == expected
    with pytest.raises(TypeError, match=r"Block 0 \(the first is 0\): the block has 3 parts"):
        Blockwise(NCA(2)).fit([(X, Y, Y)])


def test_files_and_folders_are_blocks(tmp_path):
    for k, (rows, labels) in enumerate(zip(BATCHES, LABELS, strict=True)):
        for name, part in {"rows": rows, "labels": labels}.items():
            (tmp_path / name).mkdir(exist_ok=True)
            np.save(tmp_path / name / f"{k}.npy", part)
    model = ModularKernelPCA(3, 4, rank=50, random_state=0)
    expected = Blockwise(model).fit(BATCHES).estimator_.components_.tobytes()
    fitted = Blockwise(model).fit(tmp_path / "rows")
    assert fitted.estimator_.components_.tobytes() == expected
    paths = sorted((tmp_path / "rows").glob("*.npy"))
    assert Blockwise(model).fit(paths).estimator_.components_.tobytes() == expected
    assert Blockwise(model).fit(iter(map(str, paths))).estimator_.components_.tobytes() == expected
    Z = np.vstack(list(fitted.transform(str(tmp_path / "rows"))))
    np.testing.assert_allclose(Z, fitted.estimator_.transform(X), atol=1e-12)
    forest = RandomForestClassifier(10, random_state=0).fit(X, Y)
    pruner = AlignmentPruner(forest)
    parts = Blockwise(pruner).fit(tmp_path / "rows", tmp_path / "labels").estimator_
    np.testing.assert_array_equal(parts.weights_, Blockwise(pruner).fit(BATCHES, LABELS).estimator_.weights_)

    pd, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    (tmp_path / "table").mkdir()
    for k, rows in enumerate(BATCHES):
        pd.DataFrame(rows, columns=[f"p{j}" for j in range(64)]).to_parquet(
            tmp_path / "table" / f"{k}.parquet"
        )
    table = Blockwise(model).fit(tmp_path / "table").estimator_
    np.testing.assert_allclose(
        table.transform(pd.DataFrame(X, columns=table.feature_names_in_)), Z, atol=1e-10
    )
    assert table.feature_names_in_[3] == "p3"


def test_files_that_cannot_be_read(tmp_path):
    model = ModularAutoencoder(2, 2)
    with pytest.raises(FileNotFoundError, match="neither a file nor a folder"):
        Blockwise(model).fit(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"holds no file that ends in \.npy"):
        Blockwise(model).fit(tmp_path)
    np.save(tmp_path / "0.npy", X[:50])
    with pytest.raises(RuntimeError, match=r"Block 1 \(the first is 0\) could not be read: FileNotFound"):
        Blockwise(model).fit([tmp_path / "0.npy", tmp_path / "1.npy"])
    np.save(tmp_path / "1.npy", np.array([{}], dtype=object), allow_pickle=True)
    damaged = r"Block 1 .*could not be read: .*1\.npy is damaged, or is not"
    for content in (None, b"", b"not a file of numpy", b"PK\x03\x04 half an archive"):
        if content is not None:
            (tmp_path / "1.npy").write_bytes(content)
        with pytest.raises(RuntimeError, match=damaged):
            Blockwise(model).fit(tmp_path)
    (tmp_path / "1.npy").write_bytes((tmp_path / "0.npy").read_bytes()[:300])  # cut off
    with pytest.raises(RuntimeError, match=damaged):
        Blockwise(model).fit(tmp_path)
    with pytest.raises(RuntimeError, match=r"Block 0 .*ends in '\.txt'"):
        Blockwise(model).fit([tmp_path / "0.txt"])
    with pytest.raises(ValueError, match="different numbers of files"):
        Blockwise(model).fit({"a": [tmp_path / "0.npy"], "b": tmp_path})


@pytest.mark.parametrize("bad", [np.full((3, X.shape[1]), np.nan), X[0]], ids=["NaN", "one dimension"])
def test_errors_of_blocks_are_one_sentence(bad):
    model = Blockwise(ModularKernelPCA(2, 2, rank=20, random_state=0))
    with pytest.raises(ValueError, match=r"^Block 1 \(the first is 0\): [^\n]{10,140}$"):
        model.fit([X[:50], bad])
    with pytest.raises(ValueError, match=r"^Block 1 \(the first is 0\): [^\n]{10,140}$"):
        list(model.fit([X[:50]]).transform([X[:50], bad]))


def test_progress_is_printed(capsys):
    Blockwise(ModularKernelPCA(2, 2, rank=20, random_state=0), verbose=1).fit(BATCHES)
    assert capsys.readouterr().out.splitlines() == [
        "[manylens] sample: 7 blocks",
        "[manylens] summarize: 7 blocks",
    ]
