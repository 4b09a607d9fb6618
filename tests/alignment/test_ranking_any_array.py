"""`rank_models` and `align_kernels` of arrays of other libraries: the values of NumPy, on the device."""

import numpy as np
import pytest

from manylens import align_kernels, rank_models
from manylens.alignment import device_probes

pytest.importorskip("array_api_compat")
LIBRARIES = ("torch", "array_api_strict")


def task(n=90, seed=0):
    """Three sets of features of three classes: sharp, wide and in odd units, and noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    sharp = np.eye(3)[y] + 0.3 * rng.standard_normal((n, 3))
    wide = (sharp @ rng.standard_normal((3, 120)) + rng.standard_normal((n, 120))) * 1e5
    return {"sharp": sharp, "wide": wide, "noise": rng.standard_normal((n, 4)) + 100}, y


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("metric", ["auto", "ridge", "knn"])
@pytest.mark.parametrize("standardize", [True, False])
def test_rankings_are_those_of_numpy(name, metric, standardize):
    asarray = pytest.importorskip(name).asarray
    models, y = task()
    wanted = rank_models(models, y, metric, standardize=standardize)
    foreign = {key: asarray(X) for key, X in models.items()}
    found = rank_models(foreign, asarray(y), metric, standardize=standardize)
    for one, other in zip(found, wanted, strict=True):
        assert one.name == other.name
        assert one.too_close == other.too_close
        assert one.score == pytest.approx(other.score, abs=1e-12)
        assert one.standard_error == pytest.approx(other.standard_error, abs=1e-12)
    assert found.target == wanted.target


@pytest.mark.parametrize("name", LIBRARIES)
def test_real_targets_and_one_dimension_of_rows(name):
    asarray = pytest.importorskip(name).asarray
    models, _ = task()
    values = models["sharp"] @ [1.0, -2.0, 0.5]
    wanted = {row.name: row for row in rank_models(models, values)}
    for row in rank_models({key: asarray(X) for key, X in models.items()}, values):
        assert row.score == pytest.approx(wanted[row.name].score, abs=1e-9)
        assert row.ridge == pytest.approx(wanted[row.name].ridge, abs=1e-9)


def test_no_features_leave_the_device(monkeypatch):
    torch = pytest.importorskip("torch")
    models, y = task()
    seen = []

    def watched(array):
        seen.append(tuple(array.shape))
        return np.asarray(array)

    monkeypatch.setattr(device_probes, "labels_on_host", watched)
    rank_models({"wide": torch.asarray(models["wide"])}, y)
    assert seen
    assert all(shape == (len(y), 3) for shape in seen)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("options", [{}, {"method": "align"}, {"method": "r2"}, {"estimator": "biased"}])
def test_kernel_weights_are_those_of_numpy(name, options):
    asarray = pytest.importorskip(name).asarray
    models, y = task()
    wanted = align_kernels(models, y, **options)
    foreign = {key: asarray(X) for key, X in models.items()}
    found = align_kernels(foreign, asarray(y), **options)
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    listed = align_kernels(list(foreign.values()), y, **options)
    assert type(listed) is type(foreign["wide"])
    np.testing.assert_allclose(np.asarray(listed), list(wanted.values()), rtol=1e-6, atol=1e-9)


def test_bad_input_gets_one_sentence():
    torch = pytest.importorskip("torch")
    models, y = task()
    sharp = torch.asarray(models["sharp"])
    for arguments, kind, message in [
        (([sharp, sharp.to("meta")], y), ValueError, "Arrays on the devices cpu and meta were given"),
        (([sharp, models["wide"]], y), TypeError, "Arrays of numpy and torch were given"),
        (([sharp, sharp[:5]], y), ValueError, "0 has 90 rows and 1 has 5"),
        (([sharp, 0 * sharp + 3], y), ValueError, "1 is constant"),
        (([sharp / 0], y), ValueError, "0 contains NaN or infinity"),
        (([sharp.to("meta")], y, "logme"), ValueError, "metric='logme' runs on the host, but .* device meta"),
        (([sharp], y[:4]), ValueError, "y has 4 rows and the features have 90"),
    ]:
        with pytest.raises(kind, match=message) as raised:
            rank_models(*arguments)
        assert len(str(raised.value)) < 250
    with pytest.raises(ValueError, match="support kernel='linear' only"):
        align_kernels([sharp, sharp], y, "rbf")
    assert rank_models([sharp], y, "logme")[0].score == rank_models([models["sharp"]], y, "logme")[0].score


def test_features_that_are_part_of_a_graph_are_ranked():
    torch = pytest.importorskip("torch")
    X = torch.randn(30, 3, dtype=torch.float64)
    y = np.arange(30) % 3
    plain = rank_models([X], y)[0].score
    assert rank_models([X.clone().requires_grad_()], y)[0].score == plain


def test_features_with_gradients_are_ranked_without_a_warning(recwarn):
    torch = pytest.importorskip("torch")
    models, y = task()
    found = rank_models({key: torch.tensor(X, requires_grad=True) for key, X in models.items()}, y)
    assert [row.name for row in found] == [row.name for row in rank_models(models, y)]
    assert not recwarn.list
