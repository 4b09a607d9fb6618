import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from manylens import ModularAutoencoder, ModuleNeighbors, retrieval_precision
from manylens.ensembles.faiss_finder import choose_faiss_plan
from manylens.ensembles.finders import (
    DEFAULT_LEADING,
    PROVING_SHARE,
    as_near,
    distances_lost,
    proving_width,
    ranks_on_leading,
    shares_found,
)
from manylens.ensembles.graph_finder import GraphFinder, rounding_error
from manylens.ensembles.recall_calibration import (
    COARSE,
    FINE,
    calibration_queries,
    choose_leading_plan,
    exact_neighbors,
    fewest_candidates,
    has_near_copies,
    is_enough,
)
from manylens.ensembles.search_plans import CalibrationQueries, SearchPlan, SearchRequest
from manylens.native.search_graph import coarse_scale, to_grid

DIGITS = load_digits().data


def rows_of_spectrum(n, variances, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, len(variances))) * np.sqrt(variances)).astype(np.float32)


def test_ranks_equal_those_of_a_sort():
    points = rows_of_spectrum(700, np.linspace(3, 1, 12))
    queries, widths = calibration_queries(points), np.array([2, 5, 12])
    _, nearest = exact_neighbors(points, queries, 4)
    ranks = ranks_on_leading(points, queries, nearest, widths)
    for w, d in enumerate(widths):
        for i, row in enumerate(queries.own):
            distances = np.sum((points[:, :d].astype(float) - points[row, :d]) ** 2, axis=1)
            order = [j for j in np.argsort(distances) if j != row]
            expected = np.sort([order.index(j) + 1 for j in nearest[i]])
            # Rows that are as far but for rounding may come in either order.
            assert np.abs(expected - ranks[w, i]).max() <= 1


def test_neighbors_of_rows_and_of_queries_are_scikit_learns():
    points, queries = rows_of_spectrum(300, np.ones(6)), rows_of_spectrum(40, np.ones(6), seed=1)
    search = NearestNeighbors(n_neighbors=5).fit(points)
    _, of_rows = exact_neighbors(points, calibration_queries(points), 5)
    expected = search.kneighbors(return_distance=False)[calibration_queries(points).own]
    np.testing.assert_array_equal(np.sort(of_rows), np.sort(expected))
    _, of_queries = exact_neighbors(points, CalibrationQueries(queries, None), 5)
    np.testing.assert_array_equal(
        np.sort(of_queries), np.sort(search.kneighbors(queries, return_distance=False))
    )


@pytest.mark.parametrize("width", [5, 96, 300])
@pytest.mark.parametrize("decay", [0.5, 1.0])
def test_the_proving_width_holds_most_squares_and_no_more_columns_than_needed(width, decay):
    queries = rows_of_spectrum(40, decay ** np.arange(width))
    squares = np.cumsum(np.sum(queries.astype(float) ** 2, axis=0))
    found = proving_width(queries)
    assert squares[found - 1] >= PROVING_SHARE * squares[-1]
    assert found <= DEFAULT_LEADING or squares[found - 2] < PROVING_SHARE * squares[-1]
    assert min(width, DEFAULT_LEADING) <= found <= width
    assert proving_width(0 * queries) == min(width, DEFAULT_LEADING)


def share_found(points, queries, n_leading, n_candidates, k):
    """Literal: the candidates on leading coordinates against the neighbors by all of them."""
    near = NearestNeighbors(n_neighbors=n_candidates).fit(points[:, :n_leading])
    named = near.kneighbors(queries[:, :n_leading], return_distance=False)
    true = NearestNeighbors(n_neighbors=k).fit(points).kneighbors(queries, return_distance=False)
    return np.mean([np.isin(a, b).mean() for a, b in zip(true, named, strict=True)])


@pytest.mark.parametrize("fall", [0.0, 0.5, 1.0, 2.0])
def test_the_chosen_plan_reaches_the_recall_for_other_queries(fall):
    variances = np.arange(1, 81) ** -fall
    points, queries = rows_of_spectrum(8000, variances), rows_of_spectrum(400, variances, seed=1)
    plan = choose_leading_plan(points, calibration_queries(points), 10, 0.95)
    n_candidates = int(np.ceil(10 * plan.candidates_per_neighbor))
    assert share_found(points, queries, plan.n_leading, n_candidates, 10) >= 0.95


def test_a_slower_decrease_of_the_variances_makes_the_search_cost_more():
    def cost(fall):
        points = rows_of_spectrum(8000, np.arange(1, 81) ** -fall)
        plan = choose_leading_plan(points, calibration_queries(points), 10, 0.99)
        return 8000 * plan.n_leading + 25_000 * 10 * plan.candidates_per_neighbor

    costs = [cost(fall) for fall in (0.0, 1.0, 2.0, 3.0)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0] / 2


def test_given_candidates_get_the_fewest_coordinates_that_suffice():
    points = rows_of_spectrum(4000, np.arange(1, 41) ** -1.0)
    plans = [
        choose_leading_plan(points, calibration_queries(points), 10, 0.99, n_candidates=m)
        for m in (10, 100, 1000)
    ]
    widths = [plan.n_leading for plan in plans]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == 40  # ten candidates for ten neighbors: all coordinates
    assert widths[-1] < 20


def test_given_coordinates_get_as_many_candidates_as_they_need():
    points = rows_of_spectrum(4000, np.arange(1, 41) ** -1.0)
    plans = [
        choose_leading_plan(points, calibration_queries(points), 10, 0.99, n_leading=d) for d in (4, 10, 400)
    ]
    assert [plan.n_leading for plan in plans] == [4, 10, 40]
    shares = [plan.candidates_per_neighbor for plan in plans]
    assert shares[0] > shares[1] > shares[2] == 2
    given = choose_leading_plan(points, calibration_queries(points), 10, 0.99, n_leading=7, n_candidates=30)
    assert given == SearchPlan(7, 3)


def test_copies_of_a_row_do_not_count_as_nearer():
    points = np.repeat(rows_of_spectrum(50, np.ones(10)), 100, axis=0)
    assert choose_leading_plan(points, calibration_queries(points), 10, 0.99).candidates_per_neighbor == 2


def test_a_base_of_one_row_leaves_nothing_to_calibrate():
    points = rows_of_spectrum(1, np.ones(5))
    assert choose_leading_plan(points, calibration_queries(points), 10, 0.99) == SearchPlan(5, 2)
    nothing = np.empty((1, 0), dtype=np.int64)
    assert choose_faiss_plan(None, 5, calibration_queries(points), nothing, 0.99) == SearchPlan(5, 2)


class Shuffled:
    """Lists that name every row, true neighbors at places known beforehand, and the query first."""

    def __init__(self, queries, nearest, places, n):
        self.named, self.shape = np.full((len(nearest), n), -1), (n, 4)
        self.named[:, 0] = queries.own
        self.named[:, places] = nearest

    def search(self, leading, n_candidates):
        return None, self.named[:, :n_candidates]


def test_lists_get_as_many_candidates_as_their_order_requires():
    points = rows_of_spectrum(1000, np.ones(4))
    queries = calibration_queries(points)
    _, nearest = exact_neighbors(points, queries, 10)

    def candidates(places):
        lists = Shuffled(queries, nearest, places, 1000)
        neighbors = exact_neighbors(points, queries, 10)[1]
        return choose_faiss_plan(lists, 4, queries, neighbors, 1.0).candidates_per_neighbor

    far = [1, 2, 3, 4, 5, 6, 7, 8, 9, 70]
    assert candidates(far) == 7
    assert candidates(list(range(1, 11))) == 2
    never = [*far[:-1], 900]  # farther than lists are asked to go: more candidates would not help
    assert candidates(never) == 2
    assert candidates(list(range(900, 910))) == 64


def noisy_copies(n_copies, scale=2.0):
    rng = np.random.default_rng(0)
    return np.vstack([DIGITS[:1200] + rng.normal(scale=scale, size=(1200, 64)) for _ in range(n_copies)])


def found(index, queries):
    exact = ModuleNeighbors(index.modules_, method="exact").fit(index.base)
    return retrieval_precision(index.kneighbors(queries)[1], exact.kneighbors(queries)[1])


def test_an_index_keeps_its_recall_after_it_has_grown():
    rows = noisy_copies(8)
    lenses = ModularAutoencoder(8, 6, diversity=1.0, random_state=0).fit(rows)
    index = ModuleNeighbors(lenses, n_leading=12).fit(rows[:1200])
    few = index.candidates_per_neighbor_
    for start in range(1200, len(rows), 1200):
        index.partial_fit(rows[start : start + 1200])
    assert index.candidates_per_neighbor_ > 1.5 * few
    index.base = rows
    noise = np.random.default_rng(1).normal(scale=2, size=(1200, 64))
    assert found(index, DIGITS[:1200] + noise) >= 0.98


def test_an_index_can_be_tuned_for_queries_from_another_distribution():
    # A row of the base finds the other copies of its image; an image that is not in it has none to find.
    rows, others = noisy_copies(12, scale=0.5), DIGITS[1200:]
    lenses = ModularAutoencoder(8, 6, diversity=1.0, random_state=0).fit(rows)
    with pytest.warns(UserWarning, match="Most rows have near copies"):
        index = ModuleNeighbors(lenses, n_leading=12, backend="graph").fit(rows)
    index.base = rows
    before, after = found(index, others[300:]), found(index.tune(others[:300]), others[300:])
    assert before < 0.9
    assert after >= 0.98
    for backend in ("auto", "numpy"):  # may prove the results of a scan
        index = ModuleNeighbors(lenses, n_leading=12, backend=backend).fit(rows)
        index.base = rows
        assert found(index, others[300:]) == 1.0


def test_a_saved_index_keeps_its_plan(tmp_path):
    index = ModuleNeighbors(ModularAutoencoder(8, 6, diversity=1.0, random_state=0), recall=0.999).fit(DIGITS)
    index.save(tmp_path)
    again = ModuleNeighbors.load(tmp_path, index.modules_)
    assert again.recall == 0.999
    assert again.n_leading_ == index.n_leading_
    assert again.candidates_per_neighbor_ == index.candidates_per_neighbor_
    np.testing.assert_array_equal(again.kneighbors(DIGITS[:50])[1], index.kneighbors(DIGITS[:50])[1])
    again.tune(DIGITS[:100]).partial_fit(DIGITS[:10])
    assert again.n_samples_fit_ == len(DIGITS) + 10


@pytest.mark.parametrize("method", ["exact", "paper"])
def test_tuning_a_method_without_choices_raises(method):
    index = ModuleNeighbors(ModularAutoencoder(3, 2), method=method).fit(DIGITS[:200])
    with pytest.raises(ValueError, match="nothing to tune"):
        index.tune(DIGITS[:50])


@pytest.mark.parametrize("recall", [0, -0.1, 1.5])
def test_a_recall_outside_zero_and_one_raises(recall):
    with pytest.raises(ValueError, match="recall"):
        ModuleNeighbors(ModularAutoencoder(3, 2), recall=recall).fit(DIGITS[:200])


def test_a_missed_neighbor_costs_one_place_and_equally_near_rows_none():
    exact = np.array([[1.0, 2, 3], [1, 1, 1]])
    np.testing.assert_array_equal(as_near(np.array([[2.0, 3, 4], [1, 1, 1]]), exact).sum(axis=1), [2, 3])


@pytest.mark.parametrize("needed", [2.0, 2.1, 7.3, 60.0])
def test_a_graph_gets_hardly_more_candidates_than_suffice(needed):
    found = fewest_candidates(lambda candidates: candidates >= needed, 2.0, graph=True)
    assert needed <= found <= FINE * needed
    assert fewest_candidates(lambda _: False, 2.0, graph=True) is None


def test_recall_has_to_exceed_what_was_asked_for_by_standard_errors():
    shares = np.repeat([1.0, 0.9], 200)  # mean 0.95, standard error 0.0025
    assert is_enough(shares, 0.95, graph=False)
    assert is_enough(shares, 0.946, graph=True)
    assert not is_enough(shares, 0.947, graph=True)  # more than one standard error, less than 1.5
    rare = np.repeat([1.0, 0.9], [995, 5])  # mean 0.9995, standard error 0.00022
    assert is_enough(rare, 0.999, graph=True)
    assert not is_enough(rare, 0.9992, graph=True)  # more than one standard error, less than two


def test_the_error_of_8_bits_is_that_of_rounded_rows():
    points = rows_of_spectrum(3000, 0.97 ** np.arange(40))
    queries = calibration_queries(points)
    neighbors = exact_neighbors(points, queries, 10)[1]
    scale = coarse_scale(points)
    grid = to_grid(points, scale, np.int8) / scale
    whole, rounded = (
        np.sum((rows[queries.own] - rows[neighbors[:, -1]]) ** 2, axis=1) for rows in (points, grid)
    )
    error = rounding_error(points, queries, neighbors)
    assert error == pytest.approx(np.std((rounded - whole) / whole), rel=0.3)
    assert rounding_error(10 * points, queries._replace(coordinates=10 * points[queries.own]), neighbors) < (
        2 * error  # the step is a power of two
    )


def test_rows_that_coincide_have_no_8_bit_plan():
    points = np.ones((50, 4), dtype=np.float32)
    queries = calibration_queries(points)
    assert rounding_error(points, queries, exact_neighbors(points, queries, 5)[1]) == np.inf


def far_row(points, times):
    """The rows with one of them `times` as far away along the first axis."""
    rows = points.copy()
    rows[7] *= times
    return rows


@pytest.mark.parametrize(("times", "bits"), [(1, 8), (300, 16)])
def test_leading_coordinates_have_8_bits_unless_a_far_row_makes_them_coarse(times, bits):
    points = far_row(rows_of_spectrum(6000, 0.95 ** np.arange(40)), times)
    index = ModuleNeighbors(backend="graph", n_jobs=1).fit(points)
    finder = index.index_.finders[0]
    assert isinstance(finder, GraphFinder)
    assert finder.bits == index.index_.plan.bits == bits
    assert index.recall_ >= 0.985


def test_16_bits_are_tried_if_8_do_not_reach_the_recall(monkeypatch):
    points = far_row(rows_of_spectrum(6000, 0.95 ** np.arange(40)), 300)
    monkeypatch.setattr("manylens.ensembles.recall_calibration.COARSE", np.inf)
    index = ModuleNeighbors(backend="graph", n_jobs=1).fit(points)
    assert index.index_.finders[0].bits == 16
    assert index.recall_ >= 0.985
    assert COARSE < 1


def test_rows_of_few_coordinates_are_searched_by_all_that_save_time():
    rows = rows_of_spectrum(25_000, np.ones(12))
    plan = ModuleNeighbors(n_jobs=1, recall=0.95).fit(rows).index_.plan
    assert plan.n_leading == 12  # with half of them, hundreds of candidates would be needed


@pytest.mark.parametrize(("backend", "chosen"), [("auto", "numpy"), ("graph", "graph")])
def test_a_graph_that_needs_too_many_candidates_gives_way_to_a_scan(backend, chosen):
    rows = rows_of_spectrum(21_000, np.ones(40))
    index = ModuleNeighbors(backend=backend, n_jobs=1, recall=0.97).fit(rows)
    assert index.index_.backend == chosen
    assert index.recall_ >= 0.97


def test_the_recall_that_is_shown_is_that_of_the_tuned_queries():
    rows, others = noisy_copies(12, scale=0.5), DIGITS[1200:]
    lenses = ModularAutoencoder(8, 6, diversity=1.0, random_state=0).fit(rows)
    index = ModuleNeighbors(lenses, n_leading=12).fit(rows)
    index.base = rows
    index.tune(others)
    assert index.measured_.space == "modules"  # inputs are not kept
    assert abs(index.recall_ - found(index, others)) < 0.02
    assert f"measured {index.recall_:.3f} in the modules space)" in repr(index)


def test_a_tuned_index_of_all_coordinates_is_measured_in_the_input_space():
    rows = np.random.default_rng(0).normal(size=(1500, 12))  # equal variances: no coordinate is left out
    index = ModuleNeighbors(n_neighbors=5).fit(rows[:1000])
    fitted = index.measured_
    assert index.tune(rows[1000:]).measured_ != fitted
    assert index.measured_.space == "input"


def test_an_index_says_with_how_many_rows_its_recall_was_measured():
    index = ModuleNeighbors().fit(DIGITS[:1000])
    assert "space)" in repr(index)
    index.partial_fit(DIGITS[1000:1300]).remove(range(100))
    assert "space with 1,000 rows)" in repr(index)


def test_lost_distances_are_those_to_neighbors_elsewhere():
    points = rows_of_spectrum(400, np.linspace(3, 1, 12))
    points[200:] = points[:200]
    queries, widths = CalibrationQueries(points[:20], np.arange(20)), np.array([3, 6, 12])
    _, near = exact_neighbors(points, queries, 5)
    others = np.array([[row for row in line if row % 200 != i] for i, line in enumerate(near)])
    gaps = points[others].astype(float) - points[:20, None]
    literal = [1 - np.linalg.norm(gaps[..., :w], axis=2) / np.linalg.norm(gaps, axis=2) for w in widths]
    np.testing.assert_allclose(distances_lost(points, queries, near, widths), np.mean(literal, axis=(1, 2)))
    copies = np.arange(200, 220)[:, None]
    np.testing.assert_array_equal(distances_lost(points, queries, copies, widths), 1)


@pytest.mark.parametrize("copies", [12, 20])
def test_copies_of_rows_do_not_hide_what_coordinates_are_needed(copies):
    items = rows_of_spectrum(900, np.arange(1, 41) ** -1.4)
    base, queries = np.repeat(items[:700], copies, axis=0), items[700:]
    index = ModuleNeighbors().fit(base)
    distances, _ = index.kneighbors(queries, 10)
    exact = NearestNeighbors(n_neighbors=10).fit(base).kneighbors(queries)[0]
    assert np.mean(distances <= exact[:, -1:] * 1.0001) >= 0.98
    np.testing.assert_allclose(index.kneighbors(queries, 10, where=np.ones(len(base), bool))[0], exact, 1e-3)


@pytest.mark.parametrize("n", [2, 11, 15])
def test_few_rows_keep_all_their_coordinates(n):
    rows = np.random.default_rng(n).normal(size=(n + 9, 30))
    index = ModuleNeighbors().fit(rows[:n])
    exact = NearestNeighbors(n_neighbors=1).fit(rows[:n]).kneighbors(rows[n:])
    found = index.kneighbors(rows[n:], 1)
    np.testing.assert_allclose(found[0], exact[0], 1e-4)
    np.testing.assert_array_equal(found[1], exact[1])


def test_tight_groups_are_measured_also_in_float32():
    rng = np.random.default_rng(0)
    centers = np.repeat(rng.standard_normal((60, 20)), 50, axis=0)
    rows = (centers + 3e-5 * rng.standard_normal((3000, 20))).astype(np.float32)
    with pytest.warns(UserWarning, match="leave n_leading and n_candidates to the calibration"):
        index = ModuleNeighbors(n_leading=4, n_candidates=10, n_neighbors=10).fit(rows)
    exact = exact_neighbors(rows, calibration_queries(rows), 10)[1]
    found = index.kneighbors()[1][calibration_queries(rows).own]
    share = np.mean([len(set(one) & set(other)) for one, other in zip(found, exact, strict=True)]) / 10
    assert index.measured_.n_queries > 200
    assert abs(index.recall_ - share) < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_a_few_rows_among_copies_are_too_little_evidence_for_a_graph(seed):
    rng = np.random.default_rng(seed)
    items = (rng.standard_normal((900, 40)) * np.arange(1, 41) ** -0.2).astype(np.float32)
    base = rng.permutation(np.concatenate([np.repeat(items[:680], 12, axis=0), items[680:690]]))
    index = ModuleNeighbors(backend="graph").fit(base)
    assert index.index_.plan.prove
    distances, exact = index.kneighbors(items[690:])[0], literal_distances(base, items[690:], 10)
    np.testing.assert_allclose(distances, exact, rtol=1e-4)


def literal_distances(base, queries, k):
    gaps = queries[:, np.newaxis].astype(float) - base
    return np.sort(np.sqrt(np.sum(gaps**2, axis=2)), axis=1)[:, :k]


def augmented(items, times, seed=0):
    """Each row several times, each time with other noise."""
    rng = np.random.default_rng(seed)
    return np.repeat(items, times, axis=0) + 0.5 * rng.standard_normal((times * len(items), items.shape[1]))


@pytest.mark.parametrize("recall", [0.9, 0.99])
@pytest.mark.parametrize("times", [10, 20, 60])
def test_new_rows_without_near_copies_find_their_neighbors_among_near_copies(recall, times):
    base, queries = augmented(DIGITS[:600], times), DIGITS[1000:1200]
    index = ModuleNeighbors(recall=recall).fit(base)
    exact = literal_distances(base, queries, 10)[:, -1:]
    assert np.mean(index.kneighbors(queries)[0] <= exact * (1 + 1e-6)) >= recall
    assert index.index_.plan.prove


@pytest.mark.parametrize("metric", ["cosine", "inner_product"])
def test_near_copies_are_noticed_with_other_metrics(metric):
    index = ModuleNeighbors(metric=metric).fit(augmented(DIGITS[:600], 15))
    assert index.index_.plan.prove
    assert not ModuleNeighbors(metric=metric).fit(DIGITS).index_.plan.prove


def test_a_graph_of_near_copies_is_kept_with_a_warning_and_can_be_tuned():
    base, queries = augmented(DIGITS[:600], 20), DIGITS[1000:1200]
    with pytest.warns(UserWarning, match="Most rows have near copies in this index") as caught:
        index = ModuleNeighbors(backend="graph").fit(base)
    assert caught[0].filename == __file__
    assert index.index_.backend == "graph"
    few = ModuleNeighbors(backend="graph").fit(base[:2000:20])
    with pytest.warns(UserWarning, match="Most rows have near copies in this index") as caught:
        few.partial_fit(base)
    assert caught[0].filename == __file__
    index.tune(DIGITS[1200:])
    exact = literal_distances(base, queries, 10)[:, -1:]
    assert np.mean(index.kneighbors(queries)[0] <= exact * (1 + 1e-6)) > 0.97


@pytest.mark.parametrize("k", [1, 5, 10, 30])
def test_groups_curves_and_clouds_are_not_taken_for_near_copies(k):
    rng = np.random.default_rng(0)
    t = rng.permutation(3000) / 300
    curve = np.stack([np.sin(t), np.cos(t), t], axis=1)
    groups = np.repeat(5 * rng.standard_normal((10, 8)), 300, axis=0) + rng.standard_normal((3000, 8))
    line = rng.uniform(size=(3000, 1)) * np.ones(20)
    request = SearchRequest(k, 0.99, None, None, 1)
    for rows in (curve, groups, DIGITS, rng.standard_normal((3000, 3)), line[:, :1], line):
        assert not has_near_copies(rows, calibration_queries(rows), request)
    base = augmented(DIGITS[:200], 15 + k)
    assert has_near_copies(base, calibration_queries(base), request)
    assert not has_near_copies(base, calibration_queries(base), request, np.full(9, 1e3))  # far neighbors


def test_near_copies_do_not_count_as_neighbors_found():
    exact, lengths = np.array([[1.0, 1.1, 3, 3.1], [1, 1.2, 1.4, 1.6]]), np.ones(2)
    found = np.array([[1.0, 1.1, 3, 9], [1, 1.2, 1.4, 9]])
    np.testing.assert_allclose(shares_found(found, exact, lengths), [0.5, 0.75])


def test_missed_near_copies_do_not_make_the_other_neighbors_missed():
    exact, found = np.array([[1.0, 1.1, 1.2, 1.3, 3]]), np.array([[1.0, 1.1, 1.2, 3, 9]])
    assert shares_found(found, exact, np.ones(1)) == [1.0]
