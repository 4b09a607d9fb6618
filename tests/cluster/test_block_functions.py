"""Functions of all rows, computed from blocks: the same numbers as from all rows at once."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from manylens import (
    NCA,
    CountSketch,
    LayerRidgeClassifier,
    ModularKernelPCA,
    StreamingCKA,
    align_kernels,
    cka,
    cka_matrix,
    rank_models,
    stable_rank,
)
from manylens.cluster import over_blocks
from manylens.cluster.block_functions import ColumnScales
from manylens.cluster.targets import TargetKind
from tests.summaries.contract import SummaryContract

X, Y = load_digits(return_X_y=True)
X, Y = X[:500], Y[:500]
SETS = {"raw": X, "squares": X[:, :20] ** 2, "noise": np.random.default_rng(0).standard_normal((500, 5))}
CUTS = [90, 91, 300, 440]
PARTS = [
    dict(zip(SETS, rows, strict=True))
    for rows in zip(*(np.split(v, CUTS) for v in SETS.values()), strict=True)
]
LABELS = np.split(Y, CUTS)


def order_of(ranking):
    return [row.name for row in ranking]


@pytest.mark.parametrize("settings", [{}, {"estimator": "unbiased"}, {"center": False}, {"return_": "angle"}])
def test_cka_matrix(settings):
    found = over_blocks(cka_matrix, PARTS, **settings)
    np.testing.assert_allclose(found, cka_matrix(SETS, **settings), atol=1e-7)
    assert list(found.index) == list(SETS)


@pytest.mark.parametrize("method", ["alignf", "align", "r2", "uniform"])
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_kernel_weights(method, estimator):
    found = over_blocks(align_kernels, PARTS, LABELS, method=method, estimator=estimator)
    expected = align_kernels(SETS, Y, method=method, estimator=estimator)
    assert found == pytest.approx(expected, abs=1e-7)


def test_targets_of_values_strings_and_ambiguous_numbers():
    values = X[:, 20] + 0.3 * X[:, 30]
    expected = align_kernels(SETS, values)
    assert over_blocks(align_kernels, PARTS, np.split(values, CUTS)) == pytest.approx(expected, abs=1e-7)
    two = np.column_stack([values, X[:, 11]])
    expected = align_kernels(SETS, two, target="values")
    assert over_blocks(align_kernels, PARTS, np.split(two, CUTS)) == pytest.approx(expected, abs=1e-7)
    names = np.array([f"digit {y}" for y in Y])
    found = over_blocks(align_kernels, list(zip(PARTS, np.split(names, CUTS), strict=True)))
    assert found == pytest.approx(align_kernels(SETS, Y), abs=1e-7)
    as_floats = np.split(Y.astype(float), CUTS)
    with pytest.raises(ValueError, match="whole numbers stored as floats"):
        over_blocks(align_kernels, PARTS, as_floats)
    found = over_blocks(align_kernels, PARTS, as_floats, target="classes")
    assert found == pytest.approx(align_kernels(SETS, Y), abs=1e-7)
    with pytest.raises(ValueError, match="target='classes', but y holds real numbers"):
        over_blocks(align_kernels, PARTS, np.split(values, CUTS), target="classes")
    with pytest.raises(ValueError, match="class"):
        over_blocks(align_kernels, PARTS, [np.zeros(len(part), int) for part in LABELS])


@pytest.mark.parametrize("metric", ["cka", "biased-cka"])
@pytest.mark.parametrize("standardize", [True, False])
def test_model_ranking(metric, standardize):
    found = over_blocks(rank_models, PARTS, LABELS, metric=metric, standardize=standardize)
    expected = rank_models(SETS, Y, metric=metric, standardize=standardize)
    assert order_of(found) == order_of(expected)
    np.testing.assert_allclose([r.score for r in found], [r.score for r in expected], atol=1e-7)
    # a jackknife over ten groups of rows, not over all rows
    for one, other in zip(found, expected, strict=True):
        assert 0.3 < one.standard_error / other.standard_error < 3
    assert [r.too_close for r in found] == [r.too_close for r in expected]
    assert found.target == expected.target == "10 classes"
    without = over_blocks(rank_models, PARTS, LABELS, metric=metric, standardize=standardize, n_groups=0)
    assert without[0].standard_error is None
    assert without[0].score == pytest.approx(found[0].score, abs=1e-9)


def test_a_ranking_reads_targets_as_rank_models_does():
    assert over_blocks(rank_models, PARTS, np.split(Y.astype(float), CUTS)).target == "10 classes"
    assert over_blocks(rank_models, PARTS, np.split(X[:, 20] + 0.1 * X[:, 3], CUTS)).target == "real numbers"
    equal = [part | {"noise": np.ones((len(part["raw"]), 2))} for part in PARTS]
    with pytest.raises(ValueError, match="noise is constant"):
        over_blocks(rank_models, equal, LABELS)


class TestColumnScales(SummaryContract):
    def make(self):
        return ColumnScales()

    def batch(self, which, dtype=np.float64):
        return ({"a": 5 + SETS["noise"][which].astype(dtype)},)

    def result(self, summary):
        return [summary.means["a"], summary.squares["a"]]


def test_stable_rank():
    batches = np.split(X, CUTS)
    assert over_blocks(stable_rank, iter(batches)) == pytest.approx(stable_rank(X), rel=1e-9)
    assert over_blocks(stable_rank, batches, center=False) == pytest.approx(stable_rank(X, False), rel=1e-9)


def test_folders_of_files(tmp_path):
    for name, rows in SETS.items():
        (tmp_path / name).mkdir()
        for k, part in enumerate(np.split(rows, CUTS)):
            np.save(tmp_path / name / f"{k}.npy", part)
    folders = {name: tmp_path / name for name in SETS}
    np.testing.assert_allclose(over_blocks(cka_matrix, folders), cka_matrix(SETS), atol=1e-9)
    some = {name: folders[name] for name in ("raw", "noise")}
    found = over_blocks(cka_matrix, some, others={"raw": folders["raw"], "squares": folders["squares"]})
    expected = cka_matrix(
        {name: SETS[name] for name in some}, {name: SETS[name] for name in ("raw", "squares")}
    )
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert list(found.index) == ["raw", "noise"]
    assert list(found.columns) == ["raw", "squares"]


def test_what_needs_all_rows_is_refused():
    with pytest.raises(ValueError, match="kernel='rbf' needs all pairs of rows"):
        over_blocks(cka_matrix, PARTS, kernel="rbf")
    with pytest.raises(ValueError, match="metric='logme' needs all rows at once"):
        over_blocks(rank_models, PARTS, LABELS, metric="logme")
    with pytest.raises(TypeError, match="cannot be computed from blocks: give cka_matrix"):
        over_blocks(cka, PARTS)
    with pytest.raises(TypeError, match="list of 0 items> cannot be computed"):
        over_blocks([], PARTS)
    with pytest.raises(TypeError, match="takes no target"):
        over_blocks(cka_matrix, PARTS, LABELS)
    with pytest.raises(ValueError, match="requires y"):
        over_blocks(align_kernels, PARTS, target="values")
    with pytest.raises(ValueError, match="n_groups=1"):
        over_blocks(rank_models, PARTS, LABELS, n_groups=1)
    with pytest.raises(ValueError, match=r"Block 1 .*raw has 1 rows and y has 2"):
        over_blocks(align_kernels, PARTS, [LABELS[0], LABELS[1].repeat(2), *LABELS[2:]])
    with pytest.raises(ValueError, match="y has 4 blocks and X has more"):
        over_blocks(align_kernels, PARTS, LABELS[:4])
    with pytest.raises(TypeError, match="y is int, but X is in blocks"):
        over_blocks(align_kernels, PARTS, 3, target="values")
    with pytest.raises(ValueError, match=r"Block 0 .*One array was given, but several feature sets"):
        over_blocks(align_kernels, [part["raw"] for part in PARTS], LABELS)
    with pytest.raises(TypeError, match=r"Block 0 .*has 2 parts, but no target is used"):
        over_blocks(cka_matrix, list(zip(PARTS, LABELS, strict=True)))
    with pytest.raises(TypeError, match="others needs dicts"):
        over_blocks(cka_matrix, PARTS, others=PARTS)
    broken = [*PARTS[:3], PARTS[3] | {"raw": np.full_like(PARTS[3]["raw"], np.nan)}, PARTS[4]]
    with pytest.raises(ValueError, match=r"Block 3 \(the first is 0\): raw contains NaN or infinity"):
        over_blocks(cka_matrix, broken)


class TestTargetKind(SummaryContract):
    def make(self):
        return TargetKind()

    def batch(self, which, dtype=np.float64):
        return (Y[which].astype(dtype),)

    def result(self, summary):
        return [summary.distinct, np.array(summary.n_rows)]


@pytest.mark.parametrize(
    "call",
    [
        lambda rows: cka_matrix({"a": rows, "b": rows}),
        lambda rows: cka(rows, rows),
        lambda rows: stable_rank(rows),
        lambda rows: align_kernels([rows, rows], Y),
        lambda rows: rank_models([rows, rows], Y),
        lambda rows: StreamingCKA().update({"a": rows}),
        lambda rows: CountSketch(8).update(rows),
        lambda rows: ModularKernelPCA(2, 2).fit(rows),
        lambda rows: NCA(2).fit(rows, Y),
        lambda rows: LayerRidgeClassifier().fit(rows, Y),
    ],
)
def test_dask_arrays_are_not_copied_in_silence(call):
    da = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match=r"is a dask Array, whose rows .*manylens\.cluster\."):
        call(da.from_array(X, chunks=100))
