"""Search at every scale: scaling by a power of two, an offset or uneven columns lose no neighbor."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, load_iris
from tests.ensembles.modules import TwoHalves

from manylens import ModuleNeighbors, ScanNeighborsClassifier
from manylens.ensembles.finders import ScanFinder
from manylens.ensembles.search_coordinates import FARTHEST, Frame, check_near, frame_of

DIGITS, LABELS = load_digits(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
METHODS = ["nested", "exact", "paper"]
EXPONENTS = {np.float32: 110, np.float64: 1000}  # times digits up to 16


def literal_neighbors(base, queries, k):
    """Ascending distances by differences in long double, which has a wider range than float64."""
    gaps = np.subtract(queries[:, None], base, dtype=np.longdouble)
    return np.sqrt(np.sort(np.sum(gaps * gaps, axis=2), axis=1)[:, :k])


def measured(base, queries, rows):
    gaps = np.subtract(queries[:, None], base[rows], dtype=np.longdouble)
    return np.sqrt(np.sum(gaps * gaps, axis=2))


def check_exact(index, base, queries, k=5, rtol=1e-5):
    """The rows found are as near as the nearest, whatever the order of equally near ones."""
    distances, rows = index.kneighbors(queries, k)
    nearest = literal_neighbors(base, queries, k)
    assert rows.min() >= 0
    np.testing.assert_allclose(
        (measured(base, queries, rows) / nearest.max()).astype(float),
        (nearest / nearest.max()).astype(float),
        atol=rtol,
    )
    np.testing.assert_allclose(
        (distances * np.sqrt(np.longdouble(2)) / nearest.max()).astype(float),
        (nearest / nearest.max()).astype(float),
        atol=rtol,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_scaling_by_a_power_of_two_changes_no_neighbor_and_no_proof(method, dtype, data):
    limit = EXPONENTS[dtype]
    exponent = data.draw(st.integers(-limit, limit), label="exponent")
    base, queries = DIGITS[:400].astype(dtype), DIGITS[400:430].astype(dtype)
    scaled_base, scaled_queries = np.ldexp(base, exponent), np.ldexp(queries, exponent)
    index = ModuleNeighbors(TwoHalves(), method=method).fit(base)
    scaled = ModuleNeighbors(TwoHalves(), method=method).fit(scaled_base)
    distances, rows, proven = index.search(index.coordinates(queries), 7)
    other_distances, other_rows = scaled.kneighbors(scaled_queries, 7)
    np.testing.assert_array_equal(np.sort(other_rows), np.sort(rows))
    np.testing.assert_allclose(np.ldexp(other_distances, -exponent), distances, rtol=1e-5)
    assert scaled.n_leading_ == index.n_leading_
    assert scaled.candidates_per_neighbor_ == index.candidates_per_neighbor_
    if method == "exact":
        assert scaled.search(scaled.coordinates(scaled_queries), 7).proven.mean() == proven.mean()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["nested", "exact"])
@pytest.mark.parametrize("scale", [1e-36, 1e-23, 1e-15, 1.0, 1e15, 1e20, 1e35])
def test_neighbors_are_exact_at_every_scale(method, scale, dtype):
    rows = (IRIS * scale).astype(dtype)
    index = ModuleNeighbors(TwoHalves(), method=method, recall=1.0).fit(rows[::2])
    check_exact(index, rows[::2], rows[1::2])


@pytest.mark.parametrize("offset", [1e3, 1e6, -1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_far_from_the_origin_keep_their_neighbors(offset, dtype):
    rows = (IRIS + offset).astype(dtype)
    for method in ("nested", "exact"):
        check_exact(
            ModuleNeighbors(TwoHalves(), method=method, recall=1.0).fit(rows[::2]), rows[::2], rows[1::2]
        )


@pytest.mark.parametrize("method", ["nested", "exact"])
@pytest.mark.parametrize("spread", [1e2, 1e4, 1e6])
def test_columns_of_very_different_scales_keep_their_neighbors(method, spread):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 5, (600, 4)) * np.array([1.0, spread, 1 / spread, 1.0])
    index = ModuleNeighbors(TwoHalves(), method=method, recall=1.0).fit(rows[:500])
    found = index.kneighbors(rows[500:], 5, return_distance=False)
    # The small columns decide between rows that agree on the large one, which float32 cannot tell apart.
    gaps = measured(rows[:500], rows[500:], found) - literal_neighbors(rows[:500], rows[500:], 5)
    assert np.mean(gaps > 1e-9 * spread) <= (0 if method == "exact" else 0.02)


@pytest.mark.parametrize("scale", [1e-300, 1e-36, 1e-23, 1.0, 1e20, 1e36, 1e300])
def test_the_classifier_predicts_the_same_at_every_scale(scale):
    plain = ScanNeighborsClassifier(5).fit(IRIS[::2], SPECIES[::2])
    scaled = ScanNeighborsClassifier(5).fit(IRIS[::2] * scale, SPECIES[::2])
    assert scaled.score(IRIS[1::2] * scale, SPECIES[1::2]) == plain.score(IRIS[1::2], SPECIES[1::2]) > 0.94


def test_the_classifier_sees_columns_that_float32_cannot_tell_apart():
    rng = np.random.default_rng(0)
    rows = np.column_stack([1e7 * rng.integers(0, 3, 900), rng.integers(0, 2, 900) + 0.1 * rng.random(900)])
    labels = (rows[:, 1] > 0.5).astype(int)
    assert ScanNeighborsClassifier(3).fit(rows[:600], labels[:600]).score(rows[600:], labels[600:]) == 1.0


@settings(max_examples=50, deadline=None)
@given(
    exponent=st.integers(-1000, 900),
    query_exponent=st.integers(-60, 40),
    width=st.integers(1, 6),
    seed=st.integers(0, 999),
)
def test_bounds_are_below_all_distances_at_every_scale(exponent, query_exponent, width, seed):
    rng = np.random.default_rng(seed)
    rows = np.ldexp(rng.standard_normal((50, 6)), exponent)
    queries = np.ldexp(rng.standard_normal((5, 6)), exponent + query_exponent)
    frame = frame_of(rows)
    points, sought = frame.enter(rows), check_near(frame.enter(queries), "X")
    finder = ScanFinder(points[:, :width])
    keys, found = finder.search(sought[:, :width], 9)
    bounds = finder.bounds(sought[:, :width], keys, 6)
    exact = np.sum((sought[:, None] - points) ** 2, axis=2)
    assert np.all(bounds <= np.take_along_axis(exact, found, axis=1))
    others = np.ones(exact.shape, dtype=bool)
    np.put_along_axis(others, found, False, axis=1)
    assert np.all(bounds[:, -1:] <= np.where(others, exact, np.inf))


def test_a_bound_allows_for_products_that_underflow():
    rows = np.full((40, 3), 1e-24)
    finder = ScanFinder(rows)  # without a frame: every product is zero in float32
    keys, _ = finder.search(3 * rows[:2], 5)
    assert np.all(finder.bounds(3 * rows[:2], keys, 3) <= 12e-48)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_rows_without_distances_are_refused_and_leave_the_index_as_it_was(value):
    index = ModuleNeighbors(TwoHalves(), n_neighbors=3).fit(IRIS)
    before = index.kneighbors(IRIS[:4])
    queries = IRIS[:4].copy()
    queries[2, 1] = value
    message = "Row 2 of X is so far" if value == 1e200 else "contains (NaN|infinity)"
    for act in (index.kneighbors, index.kneighbors_graph, index.partial_fit, index.coordinates):
        with pytest.raises(ValueError, match=message):
            act(queries)
    coordinates = index.coordinates(IRIS[:4])
    coordinates[1, 0] = value
    for act in (index.search, lambda rows: index.rank_candidates(rows, np.zeros((4, 1), int), 1)):
        with pytest.raises(ValueError, match="Row 1 of coordinates is so far" if value == 1e200 else message):
            act(coordinates)
    np.testing.assert_array_equal(index.kneighbors(IRIS[:4])[1], before[1])
    classifier = ScanNeighborsClassifier(3).fit(IRIS, SPECIES)
    with pytest.raises(ValueError, match=message):
        classifier.predict(queries)


class Explodes(TwoHalves):
    def transform(self, X):
        with np.errstate(over="ignore"):
            return np.exp(X)


def test_modules_that_return_infinity_are_refused():
    with pytest.raises(ValueError, match="The modules map some rows to NaN or infinity"):
        ModuleNeighbors(Explodes()).fit(IRIS * 1e3)


@pytest.mark.parametrize("scale", [1e-30, 1e20, 1e37])
@pytest.mark.parametrize("backend", ["numpy", "graph", "faiss"])
def test_neither_lists_nor_graphs_contain_minus_one(scale, backend):
    if backend == "faiss":
        pytest.importorskip("faiss", reason="the faiss backend needs faiss")
    rows = (IRIS * scale).astype(np.float32)
    for method in ("nested", "paper"):
        index = ModuleNeighbors(TwoHalves(), n_neighbors=4, backend=backend, method=method).fit(rows)
        assert index.kneighbors(rows, 150)[1].min() == 0
        graph = index.kneighbors_graph(mode="distance")
        assert graph.indices.min() >= 0
        assert np.isfinite(graph.toarray()).all()


def test_a_frame_is_the_identity_in_the_usual_range_but_for_the_mean():
    frame = frame_of(DIGITS)
    assert (frame.before, frame.after, frame.exponent) == (0, 0, 0)
    np.testing.assert_allclose(frame.center, DIGITS.mean(axis=0))
    tiny = frame_of(np.ldexp(DIGITS, -1000))
    np.testing.assert_array_equal(
        tiny.enter(np.ldexp(DIGITS, -1000)), np.ldexp(frame.enter(DIGITS), -tiny.exponent - 1000)
    )
    assert frame_of(np.zeros((3, 2))).exponent == 0


def test_the_farthest_row_is_accepted_and_one_beyond_is_not():
    near = np.array([[0.0, 1.0], [FARTHEST, 0.0]])
    assert check_near(near, "X") is near
    with pytest.raises(ValueError, match="Row 1 of X is so far from the rows of the base"):
        check_near(2 * near, "X")
    assert isinstance(Frame(0, np.zeros(2)), Frame)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_all_rows_are_within_a_huge_radius():
    rows = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    found = ModuleNeighbors().fit(rows).radius_neighbors(rows[:2], radius=1e30, return_distance=False)
    assert [sorted(each) for each in found] == [list(range(30))] * 2
