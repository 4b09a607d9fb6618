"""The sharper bound: its inequalities hold for any modules, and it is never looser than the closed form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from manylens import ModularKernelPCA
from manylens.kernels import Precomputed
from manylens.modules.bounds import beyond_cone, cone, cone_bound, sharpen_bound, steepest
from manylens.modules.solver import lower_bound, modular_loss, polar, polish, solve_modules
from tests.modules.strategies import KINDS, make_spectrum


@settings(max_examples=200, deadline=None)
@given(
    M=st.integers(2, 6),
    H=st.integers(1, 4),
    extra=st.integers(0, 20),
    seed=st.integers(0, 10**6),
    kind=st.integers(0, 3),
)
def test_every_inequality_holds_for_any_modules(M, H, extra, seed, kind):
    rng = np.random.default_rng(seed)
    N = min(H + extra, M * H)
    F = rng.standard_normal((M, H, N))
    if kind & 1:
        F = F * np.exp(2 * rng.standard_normal((M, H, 1))) * np.exp(2 * rng.standard_normal(N))
    if kind & 2:
        F = polar(F)
    t = np.linalg.eigvalsh((F.swapaxes(1, 2) @ F).mean(axis=0))[::-1]
    g = np.linalg.eigvalsh(F @ F.swapaxes(1, 2))[:, ::-1].mean(axis=0)
    assert np.max(cone(N, M, H) @ np.r_[t, g]) <= 1e-9 * t[0]


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    length=st.integers(1, 20),
    M=st.integers(3, 5),
    H=st.integers(1, 4),
    diversity=st.floats(0.05, 0.999),
    seed=st.integers(0, 1000),
)
def test_the_bound_is_below_every_loss_and_never_below_the_closed_form(kind, length, M, H, diversity, seed):
    q = make_spectrum(kind, length, seed)
    solution = solve_modules(q, M, H, diversity, np.random.default_rng(seed))
    sharp = sharpen_bound(solution, q, diversity)
    assert solution.lower_bound <= sharp.lower_bound <= max(solution.loss, solution.lower_bound)
    if q[0] > 0:
        energy = float(q @ q)
        bound = cone_bound(q, M, H, diversity, energy)
        padded = np.r_[q, np.zeros(max(0, M * H - len(q)))][: M * H]
        rival = np.random.default_rng(seed).standard_normal((M, H, M * H)) * np.sqrt(padded / H)
        rival = polish(rival / np.sqrt(q[0]), padded / q[0], diversity, 300) * np.sqrt(q[0])
        assert bound <= modular_loss(rival, padded, diversity, energy) + 1e-9 * energy


@pytest.mark.parametrize(
    ("M", "H", "n", "diversity", "before", "after"),
    [
        (3, 3, 4, 0.99, 0.05, 1e-6),  # the modules' spaces intersect, because there are few dimensions
        (4, 4, 5, 0.9, 0.05, 1e-6),
        (4, 5, 17, 0.999, 0.02, 1e-6),  # they nearly fill all M H dimensions
        (4, 2, 7, 0.999, 0.02, 1e-6),
        (3, 3, 5, 0.999, 0.04, 1e-6),  # other spaces meet all kernels, or all ranges
        (3, 5, 8, 0.999, 0.04, 1e-6),
        (3, 4, 10, 0.9, 0.04, 1e-6),
        (5, 4, 19, 0.99, 0.009, 1e-6),
    ],
)
def test_gaps_on_flat_spectra_close(M, H, n, diversity, before, after):
    solution = solve_modules(np.ones(n), M, H, diversity, np.random.default_rng(0))
    assert solution.optimality_gap > before
    assert sharpen_bound(solution, np.ones(n), diversity).optimality_gap < after


def test_gaps_on_nearly_flat_spectra_close():
    rng = np.random.default_rng(0)
    before, after = [], []
    for _ in range(12):
        M, H, diversity = 3 + int(rng.integers(2)), 3, float(rng.choice([0.5, 0.9]))
        q = np.sort(1 + 0.2 * rng.random(int(rng.integers(H + 1, M * H + 1))))[::-1]
        solution = solve_modules(q, M, H, diversity, rng)
        before.append(solution.optimality_gap)
        after.append(sharpen_bound(solution, q, diversity).optimality_gap)
    assert sum(gap > 1e-3 for gap in before) >= 3  # the closed form alone leaves gaps
    assert max(after) < 1e-4


@pytest.mark.parametrize(("M", "exists"), [(1, True), (3, True), (4, True), (5, False), (6, False)])
def test_four_lines_of_space_are_met_by_a_line_and_five_are_not(M, exists):
    """Schubert's count, with planes of four dimensions: r' (n - r) >= M s' (n - r - d + s)."""
    assert (M * steepest(4, M)[2, 1] * (4 - 2 - 2 + 1) <= 4 - 2) == exists


def test_a_random_plane_of_three_dimensions_is_met_by_a_vector_in_two_planes_only():
    """Two planes of a space of three dimensions share a line, so s'/r' = 1; three share none."""
    assert steepest(3, 2)[3, 2] == 1.0
    assert steepest(3, 3)[3, 2] < 1.0


@pytest.mark.parametrize("seed", range(5))
def test_the_projection_on_a_cone_is_optimal_although_its_inequalities_are_dependent(seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((20, 6))
    A = np.vstack([A, A[:5] + A[5:10], 2 * A[:3]])
    d = rng.standard_normal(6)
    x = beyond_cone(A, d)
    np.testing.assert_array_less(A @ x, 1e-9)
    assert x @ (d - x) == pytest.approx(0.0, abs=1e-9)
    y, _ = nnls(A.T, d - x)
    np.testing.assert_allclose(A.T @ y, d - x, atol=1e-9)


def test_the_bound_does_not_depend_on_the_scale_of_the_spectrum():
    for length, M, H in ((9, 3, 4), (11, 4, 3), (8, 3, 3)):
        bounds = [cone_bound(np.full(length, c), M, H, 0.95, length * c**2) / c**2 for c in (1e-4, 1, 3e3)]
        np.testing.assert_allclose(bounds, bounds[0], rtol=1e-9)


def test_tiny_eigenvalues_do_not_loosen_the_bound_by_more_than_their_size():
    exact = cone_bound(np.ones(4), 3, 3, 0.9, 4.0)
    q = np.r_[np.ones(4), np.full(5, 1e-10)]
    assert cone_bound(q, 3, 3, 0.9, float(q @ q)) == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize(
    ("kind", "length", "seed", "M", "H", "diversity", "stored"),
    [
        ("flat", 4, 0, 3, 3, 0.99, 0.003322259136212597),
        ("flat", 17, 0, 4, 5, 0.999, 0.002394253790901926),
        ("tied", 12, 3, 3, 4, 0.9, 0.02437069103735769),
        ("step", 14, 0, 3, 4, 0.5, 0.2799279927992799),
        ("uniform", 15, 1, 5, 3, 0.8, 0.31752169293856103),
        ("power", 20, 2, 4, 5, 0.95, 0.053657239473603964),
        ("short", 18, 4, 3, 5, 0.7, 0.002493098993036465),
        ("exponential", 10, 5, 4, 3, 0.3, 0.007986280156937411),
    ],
)
def test_the_certificate_is_not_looser_than_that_of_the_closed_form_alone(
    kind, length, seed, M, H, diversity, stored
):
    """Stored: the closed form relative to the energy, as computed before the sharper bound existed."""
    q = make_spectrum(kind, length, seed)
    solution = sharpen_bound(solve_modules(q, M, H, diversity, np.random.default_rng(0)), q, diversity)
    assert solution.lower_bound >= stored * solution.energy * (1 - 1e-12)
    assert solution.lower_bound <= solution.loss * (1 + 1e-12)


def test_the_estimator_reports_the_sharper_bound():
    rows = np.vstack([np.eye(5), -np.eye(5)])  # five equal eigenvalues
    model = ModularKernelPCA(4, 4, 0.9, kernel=Precomputed(), random_state=0).fit(rows @ rows.T)
    np.testing.assert_allclose(model.spectrum_, model.spectrum_[0])
    assert model.lower_bound_ > 1.02 * lower_bound(model.spectrum_, 4, 4, 0.9)
    assert model.optimality_gap_ < 1e-6
