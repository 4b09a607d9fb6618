"""Kernels and feature maps called directly with rows and parameters that cannot be used."""

import inspect

import numpy as np
import pandas as pd
import pytest

from manylens.kernels import (
    RBF,
    Cosine,
    CountSketchMap,
    ExactMap,
    FourierMap,
    FromCallable,
    IsomapKernel,
    Laplacian,
    LaplacianEigenmapKernel,
    Linear,
    LinearMap,
    LocallyLinearKernel,
    NystroemMap,
    Polynomial,
    Precomputed,
    bandwidth,
    make_feature_map,
)

X = np.random.default_rng(0).normal(size=(20, 4))
GRAPHS = [IsomapKernel(5), LocallyLinearKernel(5), LaplacianEigenmapKernel(5)]
KERNELS = [Linear(), RBF(), Laplacian(), Polynomial(), Cosine(), FromCallable(np.inner), *GRAPHS]
MAPS = [LinearMap(), ExactMap(), NystroemMap(), CountSketchMap(), FourierMap()]


@pytest.mark.parametrize("fits", KERNELS + MAPS, ids=lambda fits: type(fits).__name__)
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, 2.0], [3.0]], "X cannot be read as an array of numbers: its rows have different lengths"),
        (X[0], "Expected 2D array"),
        (np.where(X > 1, np.nan, X), "contains NaN"),
        (np.empty((0, 4)), "Found array with 0 sample"),
        (object(), "X cannot be read|Expected 2D array"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_in_fit(fits, rows, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fits.fit(rows)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_a_gram_matrix_needs_the_columns_of_fit_and_takes_any_container(kernel):
    gram = kernel.fit(X).gram(X)
    np.testing.assert_allclose(kernel.gram(pd.DataFrame(X)), gram, rtol=1e-9)
    np.testing.assert_allclose(kernel.gram(X.tolist()), gram, rtol=1e-9)
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 4 features"):
        kernel.gram(X[:, :3])


@pytest.mark.parametrize("kernel", GRAPHS, ids=lambda kernel: type(kernel).__name__)
def test_the_gram_matrix_of_a_graph_is_that_of_its_own_rows_only(kernel):
    with pytest.raises(ValueError, match="compares rows with the 20 that it was fitted on; 10 rows"):
        kernel.fit(X).gram(X[:10])


def test_a_precomputed_gram_matrix_must_be_square():
    with pytest.raises(ValueError, match="must be square; 20 x 4"):
        Precomputed().gram(X)


@pytest.mark.parametrize("feature_map", MAPS, ids=lambda feature_map: type(feature_map).__name__)
def test_maps_refuse_other_columns_and_nan_in_transform(feature_map):
    feature_map.fit(X)
    with pytest.raises(ValueError, match=r"X has 5 features, but .* is expecting 4 features"):
        feature_map.transform(np.ones((3, 5)))
    with pytest.raises(ValueError, match="contains NaN"):
        feature_map.transform(np.full((3, 4), np.nan))


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (NystroemMap, {"rank": len}, "rank must be an instance of"),
        (NystroemMap, {"landmarks": [[1.0, 2.0], [3.0]]}, "landmarks cannot be read as an array of numbers"),
        (CountSketchMap, {"n_hashes": dict}, "n_hashes must be an instance of"),
        (LocallyLinearKernel, {"reg": np.inf}, "reg=inf is not finite: give a number above 0"),
        (FourierMap, {"rank": 0}, "rank == 0, must be >= 1"),
        (FourierMap, {"orthogonal": "yes"}, "orthogonal='yes' is unknown"),
        (FourierMap, {"kernel": {}}, "kernel=<dict of 0 items> is unknown"),
        (CountSketchMap, {"kernel": 3}, "kernel=3 is unknown"),
        (NystroemMap, {"random_state": "seed"}, "random_state='seed' must be an integer"),
        (ExactMap, {"random_state": -1}, "random_state=-1 must be an integer"),
    ],
)
def test_parameters_of_maps_are_checked(kind, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        kind(**options).fit(X)


def test_maps_take_a_kernel_by_name_like_estimators():
    for kind in (ExactMap, NystroemMap, CountSketchMap, FourierMap):
        Z = kind("laplacian", random_state=0).fit_transform(X)
        np.testing.assert_array_equal(Z, kind(Laplacian(), random_state=0).fit_transform(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": np.array([1, 2])}, r"gamma=<ndarray of shape \(2,\)> is unknown"),
        ({"rule": True}, "gamma=True is unknown"),
        ({"rule": -1.0}, "gamma=-1.0 is not a positive number"),
        ({"kernel": "cosine"}, "kernel='cosine' is unknown"),
        ({"X": [[1.0], [2.0, 3.0]]}, "X cannot be read as an array of numbers"),
    ],
)
def test_a_bandwidth_names_what_it_cannot_use(options, message):
    with pytest.raises(ValueError, match=message):
        bandwidth(**{"X": X, **options})


def test_a_bandwidth_takes_any_container():
    assert bandwidth(X.tolist()) == bandwidth(pd.DataFrame(X)) == bandwidth(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_map": np.ones(2)}, r"feature_map=<ndarray of shape \(2,\)> is unknown: give 'auto'"),
        ({"feature_map": "nonsense"}, "feature_map='nonsense' is unknown"),
        ({"kernel": None}, "kernel=None is unknown"),
        ({"rank": "many"}, "rank must be an instance of"),
        ({"X": X[0]}, "Expected 2D array"),
    ],
)
def test_make_feature_map_names_what_it_cannot_use(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make_feature_map(**{"feature_map": "auto", "kernel": RBF(), "X": X, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": b"x"}, "function=b'x' cannot be called"),
        ({"function": np.inner, "params": [1]}, "params=<list of 1 items> must be a dict"),
        ({"function": len}, "kernel function len takes neither two sets of rows nor two rows"),
    ],
)
def test_functions_that_are_no_kernels_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        FromCallable(**options).fit(X)


def test_the_scaling_of_rows_is_not_part_of_the_interface():
    methods = [name for name, _ in inspect.getmembers(RBF, inspect.isfunction) if not name.startswith("_")]
    assert "scaled" not in methods


def test_a_polynomial_kernel_that_overflows_is_refused():
    huge = 1e120 * X
    with pytest.raises(ValueError, match=r"gamma=0\.1 and degree=3 overflows on these rows: scale them"):
        Polynomial(gamma=0.1).fit(huge).gram(huge)
    assert np.isfinite(Polynomial().fit(huge).gram(huge)).all()


@pytest.mark.parametrize("kernel", [Linear(), Linear(centered=True)])
def test_a_gram_matrix_beyond_float64_is_refused(kernel):
    with pytest.raises(ValueError, match="so much larger than the rows of fit"):
        kernel.fit(X).gram(1e300 * X)


def test_more_fourier_features_than_the_memory_holds_are_refused(monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda _name: 2**10)
    with pytest.raises(
        ValueError, match=r"A map of 1000000 Fourier features takes .* GB, and this machine has"
    ):
        FourierMap(rank=10**6).fit(X)
    FourierMap(rank=100).fit(X)
