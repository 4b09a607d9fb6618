"""Every evaluation agrees with the literal objective; trees stay within their tolerance."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manylens.metric.objectives import (
    RIDGE,
    BackgroundObjective,
    CompactObjective,
    GaussianObjective,
    force_coefficients,
)
from manylens.metric.pair_evaluation import (
    ExactEvaluation,
    RangeSearch,
    TreeEvaluation,
    heavy_pairs,
    near_pairs,
    negligible_gaps,
    skipped_forces,
    squared_gaps,
    tile_boxes,
    tree_layout,
)
from manylens.metric.tiles import class_layout
from manylens.native.nca_blocks import LANES
from manylens.native.nca_pairs import MASS_FACTOR, MASS_WIDTH, force_masses, kernel_sums
from manylens.papers import fast_nca

from .conftest import finite_differences, islands, points

seeds = st.integers(0, 100)
# Subclasses share the test function, which is what a contract is for.
inherited = settings(suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])


class EvaluationContract:
    """Scores and forces of an evaluation are those of the literal objective, to a tolerance."""

    tolerance = 1e-9

    def make(self, labels, dtype=np.float64):
        raise NotImplementedError

    def objective(self):
        return GaussianObjective()

    def literal(self, Z, y):
        return fast_nca.probabilities(Z, y)

    @inherited
    @given(n=st.integers(20, 200), d=st.integers(1, 4), n_classes=st.integers(2, 4), seed=seeds)
    def test_scores_are_those_of_the_literal_objective(self, n, d, n_classes, seed):
        Z, y = points(n, d, n_classes, seed)
        y[y == 0] = y[-1]  # no class of one row by construction
        y = np.unique(y, return_inverse=True)[1]
        if np.bincount(y).min() < 2:
            y = np.arange(n) % 2
        scores = self.make(y).evaluate(self.objective(), Z).scores
        np.testing.assert_allclose(scores, self.literal(Z, y), atol=2 * self.tolerance)

    def test_forces_are_the_slope_of_the_literal_objective(self):
        Z, y = points(n=120, d=2)
        rows = [0, 17, 119]
        expected = finite_differences(lambda Z: self.literal(Z, y).sum(), Z, rows)
        forces = self.make(y).evaluate(self.objective(), Z).forces[rows]
        np.testing.assert_allclose(forces, expected, rtol=1e-5, atol=max(1e-7, 10 * self.tolerance))

    def test_single_precision_agrees_to_five_digits(self):
        Z, y = points(n=300)
        double, single = (
            self.make(y, dtype).evaluate(self.objective(), Z) for dtype in (np.float64, np.float32)
        )
        np.testing.assert_allclose(single.scores.sum(), double.scores.sum(), rtol=1e-5 + self.tolerance)
        assert np.linalg.norm(single.forces - double.forces) < 1e-4 * np.linalg.norm(double.forces)

    def test_evaluating_twice_gives_the_same_result(self):
        Z, y = points(n=300)
        evaluation = self.make(y)
        one, two = (evaluation.evaluate(self.objective(), Z) for _ in range(2))
        np.testing.assert_allclose(two.scores, one.scores, atol=2 * self.tolerance)


class TestExactEvaluation(EvaluationContract):
    def make(self, labels, dtype=np.float64):
        return ExactEvaluation(labels, dtype)


class TestTreeEvaluation(EvaluationContract):
    tolerance = 1e-6

    def make(self, labels, dtype=np.float64):
        return TreeEvaluation(labels, dtype, self.tolerance)


class TestRangeSearch(EvaluationContract):
    def make(self, labels, dtype=np.float64):
        return RangeSearch(labels, dtype)

    def objective(self):
        return CompactObjective()

    def literal(self, Z, y):
        return fast_nca.compact_probabilities(Z, y)

    def test_skipped_pairs_do_not_change_the_result(self):
        Z, y = points(n=600, d=2, scale=4.0)
        search = self.make(y)
        found, exact = (how.evaluate(self.objective(), Z) for how in (search, ExactEvaluation(y)))
        assert search.share < 0.8
        np.testing.assert_allclose(found.scores, exact.scores, rtol=1e-10)
        np.testing.assert_allclose(found.forces, exact.forces, rtol=1e-8, atol=1e-10)


class TestRangeSearchWithBackground(TestRangeSearch):
    def objective(self):
        return BackgroundObjective()

    def literal(self, Z, y):
        return fast_nca.background_probabilities(Z, y, ridge=RIDGE)


def assert_within_tolerance(found, exact, tolerance):
    """Every score within tolerance / (1 - tolerance), and the forces within tolerance, in total."""
    assert np.abs(found.scores - exact.scores).max() <= tolerance / (1 - tolerance) + 1e-12
    error, length = (
        np.linalg.norm(rows, axis=1).sum() for rows in (found.forces - exact.forces, found.forces)
    )
    assert error <= tolerance * length + 1e-12


class Moves:
    """The ways in which rows move from one evaluation to the next."""

    def jitter(self, Z, y, rng):
        return Z + rng.normal(size=Z.shape) * 10 ** rng.uniform(-4, 0)

    def outliers(self, Z, y, rng):
        moved = Z.copy()
        rows = rng.choice(np.flatnonzero(y == rng.integers(y.max() + 1)), 3)
        moved[rows, rng.integers(Z.shape[1])] += rng.choice([-1, 1]) * 10 ** rng.uniform(0, 3)
        return moved

    def swap(self, Z, y, rng):
        """A row takes the place of a row of another class."""
        moved = Z.copy()
        one, two = (rng.choice(np.flatnonzero(y == c)) for c in (0, 1))
        moved[one], moved[two] = Z[two], Z[one]
        return moved

    def new_map(self, Z, y, rng):
        d = Z.shape[1]
        return Z @ (np.eye(d) + rng.normal(size=(d, d)) * 10 ** rng.uniform(-4, 0))

    def scale(self, Z, y, rng):
        return Z * 2 ** rng.uniform(-2, 2)


MOVES = [getattr(Moves(), name) for name in vars(Moves) if not name.startswith("_")]


@pytest.mark.parametrize("form", ["accuracy", "likelihood"])
@given(
    d=st.sampled_from([1, 2, 5, 10]),
    spread=st.floats(0.1, 20),
    tolerance=st.sampled_from([1e-1, 1e-3, 1e-5]),
    moves=st.lists(st.sampled_from(MOVES), max_size=4),
    seed=seeds,
)
def test_every_row_is_within_the_tolerance_however_the_rows_move(form, d, spread, tolerance, moves, seed):
    Z, y = islands(400, d, 3, spread, seed)
    rng = np.random.default_rng(seed)
    tree, objective = TreeEvaluation(y, tolerance=tolerance), GaussianObjective(form)
    for move in [lambda Z, *_: Z, *moves]:
        Z = move(Z, y, rng)
        exact = ExactEvaluation(y).evaluate(objective, Z)
        if form == "likelihood":  # the promise is on p; that on log p follows from it, relative to p
            ratio = np.exp(tree.evaluate(objective, Z).scores - exact.scores)
            assert np.abs(ratio - 1).max() <= tolerance / (1 - tolerance) + 1e-9
        assert_within_tolerance(tree.evaluate(objective, Z), exact, tolerance)


def test_five_rows_that_jump_are_within_the_tolerance():
    y = np.arange(3000) % 3
    Z = np.random.default_rng(0).normal(size=(3000, 2)) + np.array([[0, 0], [30, 0], [0, 30]])[y]
    tree = TreeEvaluation(y, tolerance=1e-3)
    tree.evaluate(GaussianObjective(), Z)
    Z[np.flatnonzero(y == 0)[:5], 0] += 30.0  # into the next class
    exact = ExactEvaluation(y).evaluate(GaussianObjective(), Z)
    assert_within_tolerance(tree.evaluate(GaussianObjective(), Z), exact, 1e-3)


@pytest.mark.parametrize("form", ["accuracy", "likelihood"])
def test_forces_are_within_the_tolerance_although_most_pairs_are_skipped(form):
    Z, y = islands(spread=20.0)
    tree = TreeEvaluation(y, tolerance=1e-3)
    exact, found = (how.evaluate(GaussianObjective(form), Z) for how in (ExactEvaluation(y), tree))
    assert tree.share < 0.4
    assert_within_tolerance(found, exact, 1e-3)


def test_all_pairs_are_computed_if_the_forces_cannot_be_bounded():
    y = np.arange(200) % 2
    Z = np.c_[4.0 * (np.arange(200) // 2 % 2), np.zeros(200)]  # both classes at two points: forces cancel
    tree = TreeEvaluation(y, tolerance=1e-3)
    found, exact = (how.evaluate(GaussianObjective(), Z) for how in (tree, ExactEvaluation(y)))
    assert tree.share == 1
    np.testing.assert_allclose(found.forces, exact.forces, atol=1e-14)


def test_a_tiny_tolerance_gives_the_exact_result():
    Z, y = islands(spread=0.5)
    exact, approximate = (
        how.evaluate(GaussianObjective(), Z)
        for how in (ExactEvaluation(y), TreeEvaluation(y, tolerance=1e-14))
    )
    np.testing.assert_allclose(approximate.scores, exact.scores, rtol=1e-10)
    np.testing.assert_allclose(approximate.forces, exact.forces, rtol=1e-7, atol=1e-10)


def test_a_box_holds_its_tile_and_boxes_bound_distances_from_below():
    Z, y = islands(300)
    layout = tree_layout(Z, y)
    low, high = tile_boxes(Z, layout)
    tiles = layout.slots // LANES
    assert np.all((low[tiles] <= Z) & (high[tiles] >= Z))
    assert np.all(layout.tile_class[tiles] == y)
    starts, partners = near_pairs(low, high, np.full(len(low), 4.0))
    listed = {(one, two) for one in range(len(low)) for two in partners[starts[one] : starts[one + 1]]}
    for i in range(0, 300, 7):
        for j in range(300):
            pair = tuple(sorted((tiles[i], tiles[j])))
            if pair[0] != pair[1] and np.square(Z[i] - Z[j]).sum() < 4.0:
                assert pair in listed


@given(
    n=st.integers(1, 400), d=st.integers(1, 4), n_classes=st.integers(1, 4), rounded=st.booleans(), seed=seeds
)
def test_every_tile_of_the_tree_is_a_leaf_cut_off_along_an_axis(n, d, n_classes, rounded, seed):
    Z, y = islands(n, d, n_classes, seed=seed)
    y = np.unique(y, return_inverse=True)[1]
    Z = Z.round() if rounded else Z  # many ties
    layout = tree_layout(Z, y)
    assert len(set(layout.slots)) == n
    for c in range(y.max() + 1):
        rows = np.flatnonzero(y == c)
        rows = rows[np.argsort(layout.slots[rows])]
        half = -(-len(rows) // LANES) // 2 * LANES
        if half:
            # The halves of a class are separated by a plane across its widest side.
            side = np.ptp(Z[rows], axis=0).argmax()
            assert Z[rows[:half], side].max() <= Z[rows[half:], side].min()


def test_tree_tiles_are_tighter_than_tiles_of_rows_as_they_come():
    Z, y = islands()
    volumes = []
    for layout in (tree_layout(Z, y), class_layout(y)):
        low, high = tile_boxes(Z, layout)
        volumes.append(np.prod(high - low, axis=1).mean())
    assert volumes[0] < 0.2 * volumes[1]


@given(
    d=st.integers(1, 4), spread=st.floats(0.1, 20), budget=st.sampled_from([1e-1, 1e-4, 1e-30]), seed=seeds
)
def test_boxes_beyond_the_negligible_gap_stay_within_the_budget(d, spread, budget, seed):
    Z, y = islands(300, d, 3, spread, seed)
    layout = tree_layout(Z, y)
    low, high = tile_boxes(Z, layout)
    reach, far = negligible_gaps(low, high, layout.filled, np.full(len(low), budget))
    gaps = squared_gaps(low, high, slice(None), slice(None))
    tile = layout.slots // LANES
    D = np.square(Z[:, None] - Z[None]).sum(axis=2)
    skipped = (gaps >= reach[:, None])[np.ix_(tile, tile)]
    assert np.all(far[0] <= budget)
    assert np.all((2.0**-D * skipped).sum(axis=1) <= far[0, tile])
    assert np.all((2.0**-D * np.sqrt(D) * skipped).sum(axis=1) <= far[1, tile])


def test_nothing_is_skipped_if_nothing_is_far():
    assert skipped_forces(np.zeros((2, 3)), np.ones(3 * LANES), 90) == 0


def test_dropped_pairs_stay_within_the_budget_of_every_tile():
    rng = np.random.default_rng(0)
    n_tiles, tolerance = 40, 1e-2
    low = rng.normal(size=(n_tiles, 2))
    pairs = near_pairs(low, low + 0.1, np.full(n_tiles, np.inf))
    starts, partners = pairs
    assert len(partners) == n_tiles * (n_tiles - 1) / 2
    masses = 2.0 ** rng.uniform(-30, 3, size=len(partners))
    (kept_starts, kept), light = heavy_pairs(pairs, masses, tolerance)
    lost, whole = np.zeros(n_tiles), np.zeros(n_tiles)
    for one in range(n_tiles):
        survivors = set(kept[kept_starts[one] : kept_starts[one + 1]])
        for at in range(starts[one], starts[one + 1]):
            whole[[one, partners[at]]] += masses[at]
            if partners[at] not in survivors:
                lost[[one, partners[at]]] += masses[at]
    assert len(kept) < len(partners) / 2
    assert np.all(lost <= tolerance * np.maximum(whole, whole.mean()))
    assert light == pytest.approx(lost.sum() / 2)


@pytest.mark.parametrize("form", ["accuracy", "likelihood"])
def test_masses_bound_the_forces_between_tiles(form):
    Z, y = islands(200)
    layout = tree_layout(Z, y)
    tiles = layout.place(Z, np.float64)
    sums = kernel_sums(tiles)
    coefficients = np.zeros((2, layout.n_slots))
    same, other = sums[:, layout.slots]
    coefficients[:, layout.slots] = own, cross = force_coefficients(same, same + other, form)
    n_tiles = len(layout.tile_class)
    pairs = near_pairs(np.zeros((n_tiles, 1)), np.zeros((n_tiles, 1)), np.ones(n_tiles))
    masses = force_masses(tiles, coefficients, pairs)
    slots = layout.slots
    D = np.square(Z[:, None] - Z[None]).sum(axis=2)
    u = np.where(y[:, None] == y[None], np.abs(own)[:, None], np.abs(cross)[:, None])
    w = MASS_FACTOR * 2.0 ** (-MASS_WIDTH * D) * (u + u.T)
    assert np.all(w >= 2.0**-D * np.sqrt(D) * (u + u.T))
    tile = slots // LANES
    for one in range(n_tiles):
        for at in range(pairs.starts[one], pairs.starts[one + 1]):
            literal = w[np.ix_(tile == one, tile == pairs.partners[at])].sum()
            assert masses[at] == pytest.approx(literal, rel=1e-7)
