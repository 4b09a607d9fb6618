"""The sharper bound: its inequalities hold for any modules, and it is never looser than the closed form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manylens import ModularKernelPCA
from manylens.kernels import Precomputed
from manylens.modules.bounds import cone, cone_bound, sharpened
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
    sharp = sharpened(solution, q, diversity)
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
        (4, 5, 17, 0.999, 0.02, 1e-3),  # they nearly fill all M H dimensions
        (4, 2, 7, 0.999, 0.02, 1e-3),
    ],
)
def test_gaps_on_flat_spectra_close(M, H, n, diversity, before, after):
    solution = solve_modules(np.ones(n), M, H, diversity, np.random.default_rng(0))
    assert solution.optimality_gap > before
    assert sharpened(solution, np.ones(n), diversity).optimality_gap < after


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
    solution = sharpened(solve_modules(q, M, H, diversity, np.random.default_rng(0)), q, diversity)
    assert solution.lower_bound >= stored * solution.energy * (1 - 1e-12)
    assert solution.lower_bound <= solution.loss * (1 + 1e-12)


def test_the_estimator_reports_the_sharper_bound():
    rows = np.vstack([np.eye(5), -np.eye(5)])  # five equal eigenvalues
    model = ModularKernelPCA(4, 4, 0.9, kernel=Precomputed(), random_state=0).fit(rows @ rows.T)
    np.testing.assert_allclose(model.spectrum_, model.spectrum_[0])
    assert model.lower_bound_ > 1.02 * lower_bound(model.spectrum_, 4, 4, 0.9)
    assert model.optimality_gap_ < 1e-6
