"""The page computes the same weights, losses and neighbors as Python."""

import numpy as np
import pytest

from manylens import ModularAutoencoder, ModularKernelPCA
from manylens.explorer.page_data import describe_diverse, diverse_stops, module_weights
from manylens.explorer.page_hosts import module_source
from manylens.modules.solver import lower_bound, solve_modules

CALL = """async ([source, name, calls]) => {
  const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
  const module = await import(url);
  const plain = (v) => ArrayBuffer.isView(v) ? [...v] : v;
  const result = (v) => v.coverage ? {...v, coverage: plain(v.coverage), level: plain(v.level)} : plain(v);
  return calls.map((call) => result(module[name](...call)));
}"""


@pytest.fixture
def javascript(new_page):
    page = new_page()
    return lambda name, calls: page.evaluate(CALL, [module_source(), name, calls])


def spectra():
    rng = np.random.default_rng(0)
    for M, H in [(1, 4), (2, 3), (3, 1), (3, 4), (5, 4), (4, 7), (10, 10)]:
        for length in (M * H, max(1, M * H - 2), M * H + 5):
            for steepness in (0.3, 2.0):
                yield M, H, np.sort(rng.random(length) * np.exp(-steepness * np.arange(length)))[::-1]
        yield M, H, np.ones(M * H)


def test_coverage_loss_and_bound_are_those_of_the_solver(javascript):
    cases = [(M, H, q, d) for M, H, q in spectra() for d in (0.0, 1e-11, 0.1, 0.5, 0.9, 0.99, 1.0)]
    calls = [[q.tolist(), M, H, d, float(q @ q)] for M, H, q, d in cases]
    for (M, H, q, d), found in zip(cases, javascript("solve", calls), strict=True):
        energy = float(q @ q)
        assert found["bound"] == pytest.approx(lower_bound(q, M, H, d), abs=1e-12 * energy)
        assert found["loss"] >= found["bound"] - 1e-12 * energy
        solution = solve_modules(q, M, H, d, np.random.default_rng(0))
        assert found["loss"] == pytest.approx(solution.loss, abs=1e-8 * energy)
        np.testing.assert_allclose(found["coverage"], solution.coverage, atol=2e-5 * q[0])


@pytest.mark.parametrize("kind", [ModularKernelPCA, ModularAutoencoder])
def test_weights_give_the_mean_squared_distance_over_modules(kind, javascript, digits):
    lenses = kind(5, 4, diversity=0.7, random_state=0).fit(digits.data[:300])
    stops, width = diverse_stops(lenses, [0, 0.3, 0.95, 1]), min(lenses.weights_.shape)
    meta = describe_diverse(lenses, stops, width)
    calls = [[meta["spectrum"], *meta["shape"], stop["diversity"], meta["energy"]] for stop in meta["stops"]]
    solved = javascript("solve", calls)
    found = javascript("distanceWeights", [[meta["spectrum"], one, meta["weighting"]] for one in solved])
    for stop, described, solution, weights in zip(stops, meta["stops"], solved, found, strict=True):
        W = module_weights(stop, width)
        gram = np.einsum("mhi,mhj->ij", W, W) / len(W)
        np.testing.assert_allclose(np.diag(weights), gram, atol=1e-6 * gram.max())
        assert solution["loss"] == pytest.approx(described["loss"], abs=1e-9 * meta["energy"])
        share = np.mean(described["shares"], axis=0)
        covered = np.array(solution["coverage"])[:width] / meta["spectrum"]
        np.testing.assert_allclose(share, covered, atol=1e-5)


def test_neighbors_are_sorted_and_the_first_row_wins_among_equals(javascript):
    rng = np.random.default_rng(1)
    distances = [rng.integers(0, 6, 40).astype(float).tolist() for _ in range(20)]
    found = javascript("nearest", [[d, 7, 3] for d in distances])
    for d, rows in zip(distances, found, strict=True):
        order = [row for row in np.argsort(d, kind="stable") if row != 3]
        assert rows == order[:7]


def test_rows_that_are_abandoned_early_are_no_neighbors(javascript):
    rng, calls, wanted = np.random.default_rng(2), [], []
    for _ in range(40):
        n, k, count = int(rng.integers(2, 200)), int(rng.integers(1, 30)), int(rng.integers(1, 12))
        rows = rng.integers(0, 3, (n, k)).astype(float)  # many ties
        weights = rng.integers(0, 3, k) * (np.arange(k) <= rng.integers(k))
        query = int(rng.integers(-1, n))
        center = rows[query] if query >= 0 else rng.integers(0, 3, k)
        likely = rng.permutation(n)[: rng.integers(0, 15)].tolist()
        calls.append([rows.ravel().tolist(), n, k, weights.tolist(), center.tolist(), count, query, likely])
        squared = ((rows - center) ** 2) @ weights
        order = [row for row in np.argsort(squared, kind="stable") if row != query][:count]
        wanted.append({"together": order, "distances": np.sqrt(squared[order]).tolist()})
    for found, expected in zip(javascript("weightedNearest", calls), wanted, strict=True):
        assert found["together"] == expected["together"]
        assert found["distances"] == pytest.approx(expected["distances"])
