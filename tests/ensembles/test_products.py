"""Search by inner products, through one more column and Euclidean distances."""

import pickle

import numpy as np
import pytest
from scipy import sparse

from manylens import ModularAutoencoder, ModuleNeighbors
from manylens.ensembles import product_calibration
from manylens.ensembles.product_calibration import rows_as_queries
from manylens.ensembles.recall_calibration import exact_neighbors
from manylens.ensembles.search_coordinates import InputRows

RNG = np.random.default_rng(0)
BASE = (RNG.standard_normal((3000, 30)) * np.linspace(2, 0.2, 30) + 0.3).astype(np.float32)
BASE *= RNG.uniform(0.2, 3, (3000, 1)).astype(np.float32)  # norms that matter
QUERIES = RNG.standard_normal((200, 30)).astype(np.float32) * RNG.uniform(1e-3, 1e3, (200, 1)).astype(
    np.float32
)


def literal(base, queries, k=10):
    products = queries.astype(float) @ base.astype(float).T
    rows = np.argsort(-products, axis=1)[:, :k]
    return np.take_along_axis(products, rows, axis=1), rows


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_exact_search_finds_the_largest_products(scale, kind):
    base, queries = BASE.astype(float) * scale, QUERIES.astype(float)
    index = ModuleNeighbors(metric="inner_product", method="exact").fit(kind(base))
    products, rows = index.kneighbors(kind(queries))
    expected, nearest = literal(base, queries)
    np.testing.assert_array_equal(rows, nearest)
    np.testing.assert_allclose(products, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


def test_rows_that_calibrate_are_not_their_own_neighbors(monkeypatch):
    seen = []
    measure = product_calibration.recall_for_queries
    monkeypatch.setattr(
        product_calibration, "recall_for_queries", lambda *given: seen.append(given[1]) or measure(*given)
    )
    rows = 10 * np.eye(40, dtype=np.float32)[np.arange(400) % 40]
    rows *= np.linspace(1, 2, 400, dtype=np.float32)[:, None]
    index = ModuleNeighbors(metric="inner_product", n_jobs=1).fit(rows)
    (checks,) = seen
    own = rows[checks.own] / np.linalg.norm(rows[checks.own], axis=1, keepdims=True)
    np.testing.assert_allclose(index.kneighbors(own, 1)[0][:, 0], np.max(own @ rows.T, axis=1), rtol=1e-5)
    _, near = exact_neighbors(index.index_.coordinates, checks, 5)
    assert not np.any(near == checks.own[:, None])


@pytest.mark.parametrize("backend", ["numpy", "graph"])
def test_the_default_reaches_the_recall(backend):
    index = ModuleNeighbors(metric="inner_product", backend=backend).fit(BASE)
    products, rows = index.kneighbors(QUERIES)
    expected, _ = literal(BASE, QUERIES)
    assert np.mean(products >= expected[:, -1:] - 1e-5 * np.abs(expected[:, -1:])) > 0.96
    assert index.recall_ >= 0.98
    assert products.dtype == np.float32
    assert np.all(np.diff(products, axis=1) <= 1e-5 * np.abs(products[:, 1:]))
    again = pickle.loads(pickle.dumps(index))
    np.testing.assert_array_equal(again.kneighbors(QUERIES)[1], rows)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("width", [30, 300])  # of many columns only the leading axes are kept
def test_stored_rows_become_the_queries_made_from_the_input(scale, width):
    rows = np.random.default_rng(1).standard_normal((500, width)) * np.geomspace(1, 1e-3, width) * scale
    index = ModuleNeighbors(metric="inner_product", n_leading=5).fit(rows)
    assert index.index_.axes.completed == (width == 300)
    made = rows_as_queries(index.index_.axes, index.index_.coordinates, index.modules_.longest_)
    expected = index.coordinates(rows)
    made = index.index_.to_module_units(made)
    np.testing.assert_allclose(made, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("n", [3000, 10_000])
def test_a_base_that_has_doubled_keeps_the_recall(n):
    rng, spread = np.random.default_rng(2), np.geomspace(1, 1 / 40, 40)
    base = (rng.standard_normal((n, 40)) * spread).astype(np.float32)
    base[0] *= np.linalg.norm(base, axis=1).max() / np.linalg.norm(base[0])  # no added row is longer
    queries = (rng.standard_normal((500, 40)) * spread).astype(np.float32)
    index = ModuleNeighbors(metric="inner_product", recall=0.95, backend="graph").fit(base[: n // 2 - 1])
    index.partial_fit(base[n // 2 - 1 :])
    products, expected = index.kneighbors(queries)[0], literal(base, queries)[0]
    assert np.mean(products >= expected[:, -1:] - 1e-5 * np.abs(expected[:, -1:])) >= 0.94


def test_filters_ids_and_changes_work_with_products(tmp_path):
    index = ModuleNeighbors(metric="inner_product").fit(BASE[:2000], ids=np.arange(2000) + 7)
    index.partial_fit(0.5 * BASE[2000:], ids=np.arange(2000, 3000) + 7).remove([7])
    index.replace([8], 0.9 * BASE[4:5])
    rows = np.concatenate([BASE[:2000], 0.5 * BASE[2000:]])
    rows[1] = 0.9 * BASE[4]
    index.save(tmp_path / "index")
    for one in (index, ModuleNeighbors.load(tmp_path / "index")):
        mask = np.arange(2999) % 3 == 0
        _, found = one.kneighbors(QUERIES, where=mask)
        np.testing.assert_array_equal(found, literal(rows[1:][mask], QUERIES)[1] * 3 + 8)


def test_a_query_of_zeros_has_products_of_zero():
    index = ModuleNeighbors(metric="inner_product").fit(BASE)
    np.testing.assert_array_equal(index.kneighbors(np.zeros((1, 30), dtype=np.float32))[0], np.zeros((1, 10)))
    flat = ModuleNeighbors(metric="inner_product").fit(np.zeros((20, 3)))
    np.testing.assert_allclose(flat.kneighbors(np.ones((1, 3)))[0], 0, atol=1e-12)


def test_what_products_cannot_do_is_refused_and_changes_nothing():
    index = ModuleNeighbors(metric="inner_product").fit(BASE)
    with pytest.raises(ValueError, match=r"Row 1 of X has norm .* longest row .* fit it again"):
        index.partial_fit(np.array([[1.0] * 30, [1e3] * 30]))
    with pytest.raises(ValueError, match="has no distances, so no radius: use kneighbors"):
        index.radius_neighbors(QUERIES, 1.0)
    with pytest.raises(ValueError, match="does not treat rows of the base as queries: give X"):
        index.kneighbors()
    with pytest.raises(ValueError, match="metric='inner_product' is for modules=None"):
        ModuleNeighbors(ModularAutoencoder(2, 2), metric="inner_product").fit(BASE)
    assert len(index) == 3000


def test_distances_between_columns_give_the_products():
    rows = InputRows("inner_product").fit(BASE)
    base, queries = rows.base_columns(BASE), rows.transform(QUERIES)
    np.testing.assert_allclose(np.linalg.norm(base, axis=1), rows.longest_, rtol=1e-4)
    distances = np.linalg.norm(queries[:, None].astype(float) - base[:50], axis=2)
    np.testing.assert_allclose(
        rows.products(QUERIES, distances), QUERIES.astype(float) @ BASE[:50].T, rtol=1e-3, atol=1e-2
    )
