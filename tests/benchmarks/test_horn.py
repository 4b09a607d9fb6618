"""The list of all of Horn's inequalities, with which `benchmarks.tuning.bounds` finds the least loss."""

import numpy as np
import pytest

from benchmarks.tuning.bounds import horn_cone, horn_sets, least_loss
from manylens.modules.solver import polar, solve_modules


def test_two_matrices_of_three_dimensions_have_horns_twelve_inequalities():
    ordered = sum(len(set(sets)) for sets, _ in horn_sets(3, 2))  # (I, J) and (J, I)
    assert ordered == 12


@pytest.mark.parametrize(("M", "N", "H"), [(3, 5, 2), (3, 5, 4), (4, 4, 3)])
def test_every_inequality_holds_for_modules_with_equal_eigenvalues(M, N, H):
    rng = np.random.default_rng(0)
    for _ in range(50):
        g = np.sort(rng.exponential(size=H))[::-1]
        F = polar(rng.standard_normal((M, H, N))) * np.sqrt(g)[:, None]
        t = np.linalg.eigvalsh((F.swapaxes(1, 2) @ F).mean(axis=0))[::-1]
        assert np.max(horn_cone(N, M, H) @ np.r_[t, g]) <= 1e-9


@pytest.mark.parametrize(("M", "H", "n"), [(3, 3, 4), (3, 4, 5), (4, 4, 5)])
def test_modules_attain_the_least_loss_where_the_closed_form_leaves_a_gap(M, H, n):
    solution = solve_modules(np.ones(n), M, H, 0.9, np.random.default_rng(0))
    assert solution.optimality_gap > 0.02
    assert solution.loss == pytest.approx(least_loss(np.ones(n), M, H, 0.9), rel=1e-8)
