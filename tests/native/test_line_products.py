import numpy as np
import pytest

from manylens.native.line_products import STEP, add_line_products
from tests.native.plain_python import plain


@pytest.mark.parametrize("compute", [add_line_products, plain(add_line_products)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("m", [1, 40])
def test_products_of_lines_are_added_on_and_below_the_diagonal(compute, dtype, p, m):
    F = np.random.default_rng(p).integers(-9, 9, (p, m)).astype(dtype)
    products = np.full((p, p), 0.5)
    compute(F, products)
    np.testing.assert_array_equal(np.tril(products), np.tril(F @ F.T + 0.5))


def test_the_error_does_not_grow_with_the_length_of_the_lines():
    F = np.random.default_rng(0).random((3, 300 * STEP + 7), dtype=np.float32)
    products, wanted = np.zeros((3, 3)), F.astype(np.float64) @ F.T.astype(np.float64)
    add_line_products(F, products)
    np.testing.assert_allclose(np.tril(products), np.tril(wanted), rtol=1e-6)
