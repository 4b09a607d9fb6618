import numpy as np
import pytest
from scipy.spatial.distance import cdist

from manylens.native.distance_correlation import distances_from_products, squared_gap, squared_norm
from tests.native.plain_python import forms, plain


@forms(distances_from_products)
def test_distances_are_the_literal_ones_also_between_near_rows(loop):
    rng = np.random.default_rng(0)
    left = rng.standard_normal((9, 4))
    right = np.vstack([left[:3], left[3:5] + 1e-9, rng.standard_normal((6, 4))])
    out = left @ right.T
    loop(left, right, out)
    np.testing.assert_allclose(out, cdist(left, right), rtol=1e-9)


@pytest.mark.parametrize("compiled", [True, False])
def test_norms_and_gaps_are_sums_of_squares(compiled):
    norm, gap = (f if compiled else plain(f) for f in (squared_norm, squared_gap))
    x, y = np.random.default_rng(0).standard_normal((2, 7))
    assert norm(x) == pytest.approx(x @ x)
    assert gap(x, y) == pytest.approx((x - y) @ (x - y))
