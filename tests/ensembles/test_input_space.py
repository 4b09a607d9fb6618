"""The default index: recall of the nearest rows in the input space."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from manylens import ModularKernelPCA, ModuleNeighbors, retrieval_precision
from manylens.ensembles.recall_calibration import calibrating_rows, held_out_rows, measured_recall
from manylens.ensembles.search_coordinates import MAX_COLUMNS, composite_axes, frame_of, typical_rows
from manylens.ensembles.search_plans import SearchRequest

DIGITS, LABELS = load_digits(return_X_y=True)


def falling_rows(n, d=80, fall=1.0, seed=0):
    """Rows whose variances fall like 1/i^(2 fall), mixed by a rotation."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(np.random.default_rng(99).standard_normal((d, d)))[0]
    return (rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -fall) @ rotation


def nearest_rows(base, queries, k=10):
    return NearestNeighbors(n_neighbors=k, algorithm="brute").fit(base).kneighbors(queries)


@pytest.mark.parametrize("recall", [0.9, 0.99])
@pytest.mark.parametrize("fall", [0.2, 1.0, 2.0])
def test_the_default_reaches_the_recall_in_the_input_space(fall, recall):
    base, queries = falling_rows(4000, fall=fall), falling_rows(500, fall=fall, seed=1)
    index = ModuleNeighbors(recall=recall).fit(base)
    found = retrieval_precision(index.kneighbors(queries)[1], nearest_rows(base, queries)[1])
    assert found >= recall - 0.01
    assert index.recall_ >= recall
    assert abs(index.recall_ - found) < 4 * index.measured_.standard_error + 0.02
    if fall != 1.0:  # only coordinates that matter are kept
        assert (index.coordinates_.shape[1] < 80) == (fall == 2.0)
    assert (" coordinates kept of 80" in repr(index)) == (index.coordinates_.shape[1] < 80)


def test_with_all_coordinates_distances_are_those_of_the_input():
    index = ModuleNeighbors(method="exact").fit(DIGITS[:1500])
    distances, _ = index.kneighbors(DIGITS[1500:])
    np.testing.assert_allclose(distances, nearest_rows(DIGITS[:1500], DIGITS[1500:])[0], atol=1e-6)
    assert index.recall_ == 1.0


def test_sparse_rows_give_the_same_index_as_dense_ones():
    dense = ModuleNeighbors().fit(DIGITS[:800])
    thin = ModuleNeighbors().fit(sparse.csr_matrix(DIGITS[:800]))
    assert thin.measured_ == dense.measured_
    queries = DIGITS[800:900]
    np.testing.assert_allclose(thin.kneighbors(sparse.csr_matrix(queries))[0], dense.kneighbors(queries)[0])
    thin.partial_fit(sparse.csr_matrix(DIGITS[900:950]))
    assert thin.n_samples_fit_ == 850


def test_the_recall_of_modules_is_measured_in_the_input_space_too():
    lenses = ModularKernelPCA(5, 4, diversity=0.5, random_state=0)
    index = ModuleNeighbors(lenses).fit(DIGITS[:1500])
    found = retrieval_precision(
        index.kneighbors(DIGITS[1500:])[1], nearest_rows(DIGITS[:1500], DIGITS[1500:])[1]
    )
    measured = index.measured_
    assert measured.space == "input"
    assert index.recall_ == measured.recall <= measured.reachable + 0.02
    assert abs(measured.recall - found) < 4 * measured.standard_error + 0.03
    assert measured.recall < 0.9  # 20 numbers per row, weighted by the modules, are not the input's distances


def test_a_plan_that_the_user_fixes_too_low_is_reported():
    with pytest.warns(UserWarning, match=r"finds 0\.\d+ of the nearest rows, less than recall=0.99: leave"):
        ModuleNeighbors(n_leading=2, n_candidates=10).fit(falling_rows(2000, fall=0.2))


def test_rows_unlike_the_base_are_noticed():
    rng = np.random.default_rng(0)
    index = ModuleNeighbors().fit(falling_rows(3000, fall=2.0))
    assert index.composite_.axes.shape[1] < 80
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.partial_fit(falling_rows(300, fall=2.0, seed=3))
    with pytest.warns(UserWarning, match=r"axes of this index miss \d+\.\d% of the variance .* fit it again"):
        index.partial_fit(rng.standard_normal((300, 80)))
    assert index.n_samples_fit_ == 3600  # added all the same


@pytest.mark.parametrize(("fall", "message"), [(2.0, "axes of this index miss"), (0.7, "say less about")])
def test_replaced_rows_unlike_the_base_are_noticed(fall, message):
    index = ModuleNeighbors().fit(falling_rows(3000, fall=fall))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.replace(range(300), falling_rows(300, fall=fall, seed=3))
    with pytest.warns(UserWarning, match=f"{message} .* fit it again"):
        index.replace(range(300), np.random.default_rng(0).standard_normal((300, 80)))


@pytest.mark.parametrize("n", [3000, 9000])
def test_rows_with_other_leading_axes_are_noticed_once(n):
    scales = np.linspace(3, 0.01, 60)
    rng = np.random.default_rng(0)

    def rows(m, scales=scales):
        return (rng.standard_normal((m, 60)) * scales).astype(np.float32)

    index = ModuleNeighbors(n_jobs=1).fit(rows(n))
    assert index.composite_.axes.shape[1] == 60  # so that the axes miss nothing
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for m in (1, 3, 40, 400):
            index.partial_fit(rows(m))
    with pytest.warns(UserWarning, match=r"leading coordinates .* say less about these rows .* fit it again"):
        index.partial_fit(rows(200, scales[::-1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.partial_fit(rows(200, scales[::-1]))
    index = ModuleNeighbors(n_jobs=1).fit(rows(n))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for row in rows(20, scales[::-1]):
            index.partial_fit(row[None])
    assert [len(found), "say less about these rows" in str(found[0].message)] == [1, True]


def test_the_share_that_axes_miss_is_the_variance_off_the_axes():
    rows = falling_rows(2000, fall=2.0)
    axes = ModuleNeighbors().fit(rows).composite_
    centered = rows - axes.frame.center
    off = centered - centered @ axes.axes @ axes.axes.T
    literal = np.sum(off**2) / np.sum(centered**2)
    assert axes.missed == pytest.approx(literal, rel=1e-6)
    assert axes.missed_share(rows, axes.coordinates(rows)) == pytest.approx(literal, rel=1e-4)


def test_held_out_rows_are_not_those_of_the_calibration():
    index = ModuleNeighbors(method="exact").fit(DIGITS)
    measured = measured_recall(
        index.index_, index.index_.coordinates, "input", SearchRequest(10, 0.99, None, None, 1)
    )
    assert (measured.recall, measured.standard_error, measured.reachable) == (1.0, 0.0, 1.0)
    assert len(held_out_rows(1797, 0.99)) > 200
    assert len(held_out_rows(10_000, 0.99)) > 200
    assert len(held_out_rows(50, 0.99)) >= 45  # the calibration takes all of so few rows, so they are shared
    assert not np.isin(held_out_rows(1797, 0.99), np.linspace(0, 1796, 256).astype(int)).any()
    assert held_out_rows(1, 0.99).tolist() == [0]
    for n, recall, times in ((7_000, 0.999, 4), (100_000, 0.99, 2)):  # few misses, or a graph
        many = held_out_rows(n, recall)
        assert len(many) > times * len(held_out_rows(7_000, 0.99)) - 200
        assert not np.isin(many, np.linspace(0, n - 1, 256).astype(int)).any()


def test_rows_too_wide_for_principal_axes_are_refused():
    with pytest.raises(ValueError, match=r"Principal axes of 8,193 columns take too long .* TruncatedSVD"):
        ModuleNeighbors().fit(sparse.random_array((20, MAX_COLUMNS + 1), density=0.01, format="csr"))


def test_one_row_is_a_base():
    index = ModuleNeighbors(n_neighbors=1).fit(DIGITS[:1])
    assert index.kneighbors(DIGITS[5:7])[1].tolist() == [[0], [0]]
    assert index.measured_.n_queries == 0


def test_a_saved_index_keeps_its_axes_and_its_recall(tmp_path):
    rows = falling_rows(2000, fall=2.0) * 1e-30
    index = ModuleNeighbors().fit(rows)
    index.save(tmp_path)
    again = ModuleNeighbors.load(tmp_path)
    assert again.measured_ == index.measured_
    assert again.composite_.missed == index.composite_.missed > 0
    for one, other in zip(again.kneighbors(rows[:50]), index.kneighbors(rows[:50]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 2.0**-40])
@pytest.mark.parametrize("many_columns", [False, True])
def test_one_row_enters_like_many(dtype, scale, many_columns):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 20)) @ rng.normal(size=(20, 600 if many_columns else 30)) + 7
    index = ModuleNeighbors(recall=0.9).fit((scale * rows).astype(dtype))
    axes = index.index_.axes.completing(12) if many_columns else index.index_.axes
    queries = (scale * rows[:5] + scale * rng.normal(size=rows[:5].shape)).astype(dtype)
    expected = axes.coordinates(queries)
    rounding = 200 * np.finfo(dtype).eps * np.abs(expected).max()
    for query, coordinates in zip(queries, expected, strict=True):
        entered = axes.row_coordinates(query[np.newaxis])
        assert entered.dtype == dtype
        np.testing.assert_allclose(entered[0], coordinates, rtol=0, atol=rounding)


def test_one_row_in_any_layout_finds_the_neighbors_of_a_batch():
    index = ModuleNeighbors().fit(DIGITS)
    _, rows = index.kneighbors(DIGITS[:3])
    wide = np.repeat(DIGITS[:1], 2, axis=1)[:, ::2]
    frozen = DIGITS[1:2].copy()
    frozen.flags.writeable = False
    for query, expected in ((wide, rows[0]), (frozen, rows[1]), (DIGITS[2:3], rows[2])):
        np.testing.assert_array_equal(index.kneighbors(query)[1][0], expected)
    for bad, message in (
        (np.nan, r"^Input X contains NaN: leave these rows out, or [^.]*\.$"),
        (np.inf, "contains infinity"),
        (1e200, "so far from"),
    ):
        query = DIGITS[:1].astype(float)
        query[0, 5] = bad
        with pytest.raises(ValueError, match=message):
            index.kneighbors(query)


@pytest.mark.parametrize("backend", ["numpy", "graph"])
def test_rows_of_equal_variances_are_found_by_more_than_half_of_their_coordinates(backend):
    rows = np.random.default_rng(0).normal(size=(5000, 48)).astype(np.float32)
    index = ModuleNeighbors(backend=backend).fit(rows)
    assert index.n_leading_ > 24
    assert index.n_leading_ * index.candidates_per_neighbor_ < 48 * 64  # 24 coordinates need far more
    assert index.recall_ >= 0.99


def test_a_graph_may_rank_as_few_candidates_as_neighbors():
    rows = np.random.default_rng(0).normal(size=(5000, 40)).astype(np.float32) * 0.6 ** np.arange(40)
    index = ModuleNeighbors(backend="graph", recall=0.8).fit(rows.astype(np.float32))
    assert 1 <= index.candidates_per_neighbor_ < 2
    assert index.recall_ >= 0.8


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [1e5, 2.0**31, 1e12, 1e18])
def test_a_huge_entry_costs_the_other_rows_no_digits(dtype, value):
    rows = np.random.default_rng(0).standard_normal((2500, 16)).astype(dtype)
    base, queries = rows[:2400].copy(), rows[2400:]
    base[0, 3] = value
    exact = NearestNeighbors().fit(base[1:]).kneighbors(queries, 10)
    index = ModuleNeighbors(recall=0.99).fit(base)
    distances, found = index.kneighbors(queries)
    assert np.mean(found - 1 == exact[1]) > 0.98
    np.testing.assert_allclose(distances[:, 0], exact[0][:, 0], rtol=1e-5)
    assert index.measured_.n_queries > 200


@pytest.mark.parametrize("value", [1e9, 1e12])
def test_a_huge_entry_costs_the_other_rows_no_digits_if_most_rows_are_equal(value):
    rows = np.random.default_rng(0).standard_normal((900, 16)).astype(np.float32)
    base = np.concatenate([np.zeros((1600, 16), dtype=np.float32), rows[:800]])
    base[0, 3] = value
    exact = NearestNeighbors().fit(base[1:].astype(float)).kneighbors(rows[800:], 1)[0]
    distances, _ = ModuleNeighbors().fit(base).kneighbors(rows[800:], 1)
    np.testing.assert_allclose(distances, exact, rtol=1e-5)


def test_rows_far_away_change_neither_center_nor_axes():
    rows = np.random.default_rng(0).standard_normal((500, 6)) * np.arange(6, 0, -1)
    far = np.concatenate([rows, 1e7 * np.eye(6)[:3]])
    one, other = (composite_axes(each, (6,)) for each in (rows, far))
    np.testing.assert_allclose(other.frame.center, one.frame.center)
    np.testing.assert_allclose(np.abs(np.sum(one.axes * other.axes, axis=0)), 1)
    np.testing.assert_allclose(frame_of(far).center, rows.mean(axis=0))
    assert typical_rows(rows, 0) is None
    thin = sparse.csr_matrix(far)
    np.testing.assert_array_equal(typical_rows(thin, 0), np.arange(500))


@pytest.mark.parametrize("n", [1000, 3000])
def test_rows_that_check_the_recall_do_not_determine_axes_if_there_are_enough_others(n):
    rows = np.random.default_rng(0).standard_normal((n, 30)).astype(np.float32)
    index, checking = ModuleNeighbors().fit(rows), calibrating_rows(n, 0.99)
    used = rows if n == 1000 else np.delete(rows, checking, axis=0)
    np.testing.assert_array_equal(index.composite_.axes, composite_axes(used, (30,)).axes)


def test_recall_holds_for_new_rows_if_there_are_few_rows_per_column():
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((3000, 600)) * np.arange(1, 601) ** -0.4).astype(np.float32)
    index = ModuleNeighbors(recall=0.95).fit(rows[:2200])
    exact = NearestNeighbors().fit(rows[:2200]).kneighbors(rows[2200:], 10)[0]
    found = np.mean(index.kneighbors(rows[2200:])[0] <= exact[:, -1:] * (1 + 1e-5))
    assert found > 0.94
    assert abs(found - index.recall_) < 0.02


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
@pytest.mark.parametrize("backend", ["numpy", "graph"])
def test_rows_at_the_radius_are_within_it(dtype, backend):
    rng = np.random.default_rng(0)
    base, queries = (rng.integers(0, 4, (n, 12)).astype(dtype) for n in (3000, 30))
    wanted = NearestNeighbors().fit(base).radius_neighbors(queries, 3.0, return_distance=False)
    index = ModuleNeighbors(backend=backend).fit(base)
    distances, found = index.radius_neighbors(queries, 3.0)
    for i in range(30):
        assert set(found[i]) == set(wanted[i])
        assert distances[i].max(initial=0) <= 3.0
        assert set(index.radius_neighbors(queries[i : i + 1], 3.0)[1][0]) == set(wanted[i])
    copies = ModuleNeighbors(backend=backend).fit(np.concatenate([base[:1500], base[:1500]]))
    assert all({i, i + 1500} <= set(copies.radius_neighbors(base[i : i + 1], 0)[1][0]) for i in range(20))


def test_searches_for_many_neighbors_scan_all_rows_instead_of_walking_through_the_graph():
    rows = (np.random.default_rng(0).standard_normal((9000, 24)) * 0.9 ** np.arange(24)).astype(np.float32)
    index = ModuleNeighbors(backend="graph").fit(rows)
    few, many = (index.index_.search(index.coordinates_[:3], k, None, 1) for k in (10, 200))
    assert not few.proven.any()
    assert many.proven.all()
    exact = NearestNeighbors().fit(rows)
    np.testing.assert_allclose(
        index.kneighbors(rows[:20], 200)[0], exact.kneighbors(rows[:20], 200)[0], atol=1e-5
    )
    own = index.kneighbors(n_neighbors=200)[1]
    assert not np.any(own == np.arange(9000)[:, np.newaxis])


def test_tuning_says_if_coordinates_that_are_not_kept_matter_for_the_queries():
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((3200, 24)) @ rng.standard_normal((24, 128))
    rows = mixed + 0.1 * rng.standard_normal(mixed.shape)
    index = ModuleNeighbors(recall=0.9).fit(rows[:3000])
    assert index.coordinates_.shape[1] < 64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.tune(rows[3000:])
    with pytest.warns(UserWarning, match="method='exact' keeps all coordinates"):
        index.tune(rows[3000:] + 3 * rng.standard_normal((200, 128)))


@pytest.mark.parametrize("backend", ["numpy", "graph"])
def test_rows_beyond_the_rounding_of_the_radius_are_not_within_it(backend):
    rng = np.random.default_rng(0)
    base = (800 * np.eye(8)[rng.integers(0, 8, 2000)] + 1e-3 * rng.standard_normal((2000, 8))).astype(
        np.float32
    )
    index = ModuleNeighbors(backend=backend).fit(base)
    radius = 5e-4
    slack = 16 * np.finfo(np.float32).eps * 1000
    for query, rows in zip(base[:50], index.radius_neighbors(base[:50], radius)[1], strict=True):
        distances = np.linalg.norm(base.astype(float) - query, axis=1)
        assert np.all(distances[rows] <= radius + slack)
        assert set(np.flatnonzero(distances <= radius)) <= set(rows)


@pytest.mark.parametrize("n", [1000, 9000])
def test_rows_that_are_added_after_others_were_removed_are_noticed_or_calibrated_anew(n):
    rng, scales = np.random.default_rng(0), np.linspace(3, 0.02, 40) ** 2
    old, new, queries = (rng.standard_normal((m, 40)) for m in (n, n // 4, 200))
    old, new, queries = old * scales, new * scales[::-1], queries * scales[::-1]
    index = ModuleNeighbors(n_jobs=1).fit(old, ids=np.arange(n)).remove(np.arange(n // 4))
    with pytest.warns(UserWarning, match="say less about these rows"):
        index.partial_fit(new, ids=np.arange(n, n + len(new)))
    base = np.concatenate([old[n // 4 :], new])
    for turn in range(1, 4):  # until no row of `fit` is left
        more = rng.standard_normal((n // 4, 40)) * scales[::-1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            index.remove(np.arange(turn * (n // 4), (turn + 1) * (n // 4)))
            index.partial_fit(more, ids=np.arange(len(more)) + n + turn * (n // 4))
        base = np.concatenate([base[n // 4 :], more])
    exact = NearestNeighbors().fit(base).kneighbors(queries, 10)[0]
    assert np.mean(index.kneighbors(queries)[0] <= exact[:, -1:] * (1 + 1e-9)) > 0.98


@pytest.mark.parametrize(("n", "width"), [(300, 200), (1000, 1000), (50, 30)])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])
def test_few_rows_with_many_columns_are_proven_exact_because_their_axes_fit_no_other_rows(n, width, metric):
    rows = np.random.default_rng(0).standard_normal((n + 200, width))
    index = ModuleNeighbors(metric=metric).fit(rows[:n])
    assert index.index_.plan.prove
    assert index.recall_ == 1.0
    found, exact = index.kneighbors(rows[n:]), ModuleNeighbors(metric=metric, method="exact").fit(rows[:n])
    np.testing.assert_array_equal(found[1], exact.kneighbors(rows[n:])[1])
    assert not ModuleNeighbors(n_candidates=20).fit(rows[:n]).index_.plan.prove  # as asked for


def test_axes_are_kept_along_which_a_few_near_copies_differ():
    rng = np.random.default_rng(0)
    scales = np.concatenate([np.ones(8), np.full(92, 1e-4)])
    copies = np.repeat(rng.standard_normal((84, 100)) * scales, 5, axis=0)
    copies += 0.006 * rng.standard_normal((420, 100))
    rows = rng.permutation(np.concatenate([rng.standard_normal((3780, 100)) * scales, copies]))
    base, queries = rows[:3700], rows[3700:]
    index, exact = ModuleNeighbors().fit(base), NearestNeighbors().fit(base)
    assert index.index_.points.shape[1] == 100
    for k in (1, 2, 10):
        last = exact.kneighbors(queries, k)[0][:, -1:]
        assert np.mean(index.kneighbors(queries, k)[0] <= last * (1 + 1e-9)) > 0.985


def test_a_huge_radius_overflows_nowhere():
    rows = np.random.default_rng(0).standard_normal((300, 5)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ModuleNeighbors().fit(rows).radius_neighbors(rows[:3], 1e300)[1]
    assert [len(each) for each in found] == [300] * 3


@pytest.mark.parametrize("width", [64, 200, 256, 784])
@pytest.mark.parametrize("backend", ["numpy", "graph"])
def test_rows_at_the_radius_are_within_it_if_all_columns_are_equal(width, backend):
    base = np.repeat([0, 1, 2], 300)[:, np.newaxis] * np.ones(width, dtype=np.float32)
    index = ModuleNeighbors(backend=backend).fit(base.astype(np.float32))
    query = np.ones((1, width), dtype=np.float32)
    assert len(index.radius_neighbors(query, np.sqrt(width))[1][0]) == 900


def test_rows_that_replace_nearly_all_others_but_are_like_them_cause_no_warning():
    rng, scales = np.random.default_rng(0), np.linspace(3, 0.1, 20)
    for n_left in (0, 1, 3, 20):
        index = ModuleNeighbors(n_jobs=1).fit(rng.standard_normal((1000, 20)) * scales, ids=np.arange(1000))
        index.partial_fit(rng.standard_normal((600, 20)) * scales, ids=np.arange(1000, 1600))
        index.remove(np.arange(1000 - n_left))
        index.index_.n_planned = 1000  # as in files that earlier versions wrote
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index.replace(np.arange(1000, 1200), rng.standard_normal((200, 20)) * scales)
            index.replace(np.arange(1200, 1400), rng.standard_normal((200, 20)) * scales)
