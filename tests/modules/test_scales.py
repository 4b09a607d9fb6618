"""Huge and tiny rows: results scale as they must, or one sentence says what to do."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone

from manylens import (
    ModularAutoencoder,
    ModularKernelPCA,
    ModuleVotingRegressor,
    NegativeCorrelationClassifier,
    NegativeCorrelationRegressor,
    NetworkAutoencoder,
)
from manylens.baselines import (
    BaggingAutoencoder,
    BootstrapKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)
from manylens.kernels import (
    RBF,
    IsomapKernel,
    LaplacianEigenmapKernel,
    LocallyLinearKernel,
    Polynomial,
    bandwidth,
)
from manylens.summaries import Moments
from manylens.validation import safe_scale, times_power

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 6)) @ rng.standard_normal((6, 6)) + rng.standard_normal(6)

KERNEL = ModularKernelPCA(3, 2, random_state=0)
SCALE_FREE = {  # codes do not depend on the unit of the rows
    "rbf": KERNEL,
    "median": clone(KERNEL).set_params(gamma="median"),
    "laplacian": clone(KERNEL).set_params(kernel="laplacian"),
    "polynomial": clone(KERNEL).set_params(kernel="polynomial"),
    "cosine": clone(KERNEL).set_params(kernel="cosine"),
    "locally linear": clone(KERNEL).set_params(kernel=LocallyLinearKernel(5)),
    "eigenmaps": clone(KERNEL).set_params(kernel=LaplacianEigenmapKernel(5)),
    "nystroem": clone(KERNEL).set_params(feature_map="nystroem", rank=20),
    "k-means": clone(KERNEL).set_params(landmarks="k-means", rank=20),
    "count-sketch": clone(KERNEL).set_params(landmarks="count-sketch", rank=20),
    "fourier": clone(KERNEL).set_params(feature_map="fourier", rank=20),
    "monolithic": MonolithicKernelPCA(2, random_state=0),
    "partition": PartitionKernelPCA(3, 2, random_state=0),
    "bootstrap": BootstrapKernelPCA(3, 2, random_state=0),
    "projection": RandomKernelProjection(3, 2, random_state=0),
}
LINEAR = {  # codes have the unit of the rows
    "linear": clone(KERNEL).set_params(kernel="linear"),
    "linear exact": clone(KERNEL).set_params(kernel="linear", feature_map="exact"),
    "linear nystroem": clone(KERNEL).set_params(kernel="linear", feature_map="nystroem", rank=20),
    "linear sketch": clone(KERNEL).set_params(kernel="linear", landmarks="count-sketch", rank=20),
    "isomap": clone(KERNEL).set_params(kernel=IsomapKernel(5)),
    "autoencoder": ModularAutoencoder(3, 2, random_state=0),
    "bagging": BaggingAutoencoder(3, 2, random_state=0),
}
containers = pytest.mark.parametrize("container", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
widths = pytest.mark.parametrize("copies", [1, 8], ids=["tall", "wide"])


def codes(estimator, rows):
    """Codes of rows by a model fitted to them, with every warning of NumPy an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return clone(estimator).fit(rows).transform(rows).astype(np.float64)


def skip_sparse_differences(name, container):
    if name == "locally linear" and container is not np.asarray:
        pytest.skip("refuses sparse rows")


@containers
@widths
@pytest.mark.parametrize("name", SCALE_FREE)
def test_codes_of_scale_free_kernels_are_the_same_at_every_scale(name, copies, container):
    skip_sparse_differences(name, container)
    wide = np.hstack([X] * copies)
    plain = codes(SCALE_FREE[name], container(wide))
    for power in (-980, 300, 1015):
        np.testing.assert_array_equal(codes(SCALE_FREE[name], container(np.ldexp(wide, power))), plain)
    narrow = wide.astype(np.float32)
    plain = codes(SCALE_FREE[name], container(narrow))
    for power in (-95, 60, 120):  # in the safe range, rows are not scaled and round differently
        scaled = codes(SCALE_FREE[name], container(np.ldexp(narrow, power)))
        np.testing.assert_allclose(scaled, plain, atol=1e-5 * np.abs(plain).max())


@containers
@widths
@pytest.mark.parametrize("name", LINEAR)
def test_codes_of_linear_modules_have_the_unit_of_the_rows(name, copies, container):
    wide = np.hstack([X] * copies)
    plain = codes(LINEAR[name], container(wide))
    for power in (-190, 190):
        scaled = np.ldexp(codes(LINEAR[name], container(np.ldexp(wide, power))), -power)
        np.testing.assert_allclose(scaled, plain, atol=1e-12 * np.abs(plain).max())
    narrow = wide.astype(np.float32)
    plain = codes(LINEAR[name], container(narrow))
    for power in (-95, 60, 120):
        scaled = np.ldexp(codes(LINEAR[name], container(np.ldexp(narrow, power))), -power)
        np.testing.assert_allclose(scaled, plain, atol=1e-5 * np.abs(plain).max())


@containers
@pytest.mark.parametrize("power", [-1000, -400, 400, 1000])
@pytest.mark.parametrize("name", LINEAR)
def test_rows_whose_loss_is_beyond_float64_are_refused(name, power, container):
    with pytest.raises(ValueError, match=r"beyond the range of float64: divide X by"):
        codes(LINEAR[name], container(np.ldexp(X, power)))


@pytest.mark.parametrize("name", ["linear", "autoencoder"])
def test_the_certificate_has_the_unit_of_the_loss(name):
    plain, scaled = clone(LINEAR[name]).fit(X), clone(LINEAR[name]).fit(np.ldexp(X, 100))
    degree = 4 if name == "linear" else 2
    assert np.ldexp(scaled.loss_, -100 * degree) == pytest.approx(plain.loss_, rel=1e-12)
    assert np.ldexp(scaled.lower_bound_, -100 * degree) == pytest.approx(plain.lower_bound_, rel=1e-12)


@settings(max_examples=10, deadline=None)
@given(power=st.integers(-900, 900), seed=st.integers(0, 100))
def test_neighbors_in_all_modules_do_not_depend_on_the_unit(power, seed):
    rows = np.random.default_rng(seed).standard_normal((30, 3))
    plain, scaled = codes(KERNEL, rows), codes(KERNEL, np.ldexp(rows, power))
    np.testing.assert_array_equal(plain, scaled)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_new_rows_at_any_distance_have_finite_codes(kernel):
    model = ModularKernelPCA(3, 2, kernel=kernel, random_state=0).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        far = model.transform(X * 1e300)
    np.testing.assert_allclose(
        far, np.broadcast_to(-model.offset_, far.shape), atol=1e-12
    )  # all kernels are 0


def test_new_rows_whose_codes_overflow_are_refused():
    model = ModularKernelPCA(3, 2, kernel="polynomial", random_state=0).fit(X)
    with pytest.raises(ValueError, match="so much larger than the rows of fit"):
        model.transform(X * 1e200)


@pytest.mark.parametrize("rule", [0.5, "mean"])
def test_a_given_gamma_keeps_its_unit(rule):
    big = RBF(rule).fit(np.ldexp(X, 300))
    same = RBF(float(np.ldexp(0.5, 600)) if rule == 0.5 else rule).fit(X)
    np.testing.assert_array_equal(big(np.ldexp(X, 300), np.ldexp(X, 300)), same(X, X))


def test_gamma_is_reported_in_the_unit_of_the_rows_or_refused():
    assert Polynomial().fit(np.ldexp(X, 300)).gamma_ == pytest.approx(
        np.ldexp(Polynomial().fit(X).gamma_, -600)
    )
    assert bandwidth(np.ldexp(X, 300)) == np.ldexp(bandwidth(X), -600)
    with pytest.raises(ValueError, match="gamma is beyond the range of float64"):
        bandwidth(np.ldexp(X, 900))


@containers
@pytest.mark.parametrize("power", [-100, -60, 60, 100])
def test_moments_of_float32_rows_do_not_overflow(power, container):
    narrow = X.astype(np.float32)
    plain, scaled = Moments(6).update(narrow), Moments(6).update(container(np.ldexp(narrow, power)))
    tolerance = 1e-4 * np.abs(plain.scatter).max()
    np.testing.assert_allclose(np.ldexp(scaled.scatter, -2 * power), plain.scatter, atol=tolerance)


def test_moments_refuse_rows_whose_squares_overflow_and_stay_as_they_were():
    moments = Moments(6).update(X)
    with pytest.raises(ValueError, match="squares beyond the range of float64"):
        moments.update(X * 1e200)
    np.testing.assert_array_equal(moments.scatter, Moments(6).update(X).scatter)


@given(power=st.integers(-1000, 1000))
def test_safe_scale_brings_rows_to_the_safe_range_exactly(power):
    rows = np.ldexp(X, power)
    exponent = safe_scale(rows)
    scaled = times_power(rows, -exponent)
    assert 2.0**-201 <= np.abs(scaled).max() <= 2.0**200
    np.testing.assert_array_equal(times_power(scaled, exponent), rows)
    assert exponent or scaled is rows


@containers
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_networks_train_alike_at_every_scale(dtype, container):
    pytest.importorskip("torch")
    rows, y = X.astype(dtype), X[:, 0] > 0
    powers = (-100, 60, 100) if dtype == np.float32 else (-190, 190)
    for model in (NetworkAutoencoder(3, 2, max_iter=3), NegativeCorrelationClassifier(3, max_iter=3)):
        model.set_params(random_state=0)
        method = "transform" if hasattr(model, "transform") else "predict_proba"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            plain = getattr(clone(model).fit(container(rows), y), method)(container(rows))
            for power in powers:
                big = container(np.ldexp(rows, power))
                scaled = getattr(clone(model).fit(big, y), method)(big)
                np.testing.assert_allclose(scaled, plain, atol=1e-4)


def test_targets_beyond_float32_are_predicted_from_float32_rows():
    pytest.importorskip("torch")
    model, rows = NegativeCorrelationRegressor(3, max_iter=3, random_state=0), X.astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        plain = clone(model).fit(rows, X[:, 0]).predict(rows)
        scaled = clone(model).fit(rows, np.ldexp(X[:, 0], 190)).predict(rows)
        np.testing.assert_allclose(np.ldexp(scaled, -190), plain, rtol=1e-4)
        with pytest.raises(ValueError, match="y has entries up to about 1e"):
            clone(model).fit(rows, np.ldexp(X[:, 0], 900))
        with pytest.raises(ValueError, match="so much larger than the rows of fit"):
            model.fit(rows, np.ldexp(X[:, 0], 190)).predict(X * 1e300)


@pytest.mark.parametrize("name", ["rbf", "projection", "autoencoder"])
def test_float32_codes_are_those_of_float64_for_one_seed(name):
    model = {**SCALE_FREE, **LINEAR}[name]
    wide, narrow = codes(model, X), codes(model, X.astype(np.float32))
    # Random projections use directions of any variance, so they are computed in float64.
    tolerance = 1e-6 if name == "projection" else 1e-3
    np.testing.assert_allclose(narrow, wide, atol=tolerance * np.abs(wide).max())


@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    ("model", "methods"),
    [
        (NegativeCorrelationRegressor(2, max_iter=2, random_state=0), "score individual_scores ambiguity"),
        (ModuleVotingRegressor(ModularAutoencoder(2, 1, random_state=0)), "score individual_scores"),
    ],
    ids=["networks", "voting"],
)
def test_scores_of_predictions_whose_squares_overflow_are_refused(model, methods):
    if isinstance(model, NegativeCorrelationRegressor):
        pytest.importorskip("torch")
    model.fit(X, X[:, 0])
    for method in methods.split():
        with pytest.raises(ValueError, match="squared errors of the predictions are beyond the range"):
            getattr(model, method)(1e200 * X, X[:, 0])
