import numpy as np
import pytest

from manylens.native.permutations import fill_products, permuted_products
from tests.native.plain_python import plain


def products_in_plain_python(K, L, orders):
    products = np.empty(len(orders))
    plain(fill_products)(K, L, orders, products)
    return products


@pytest.mark.parametrize("compute", [permuted_products, products_in_plain_python])
def test_permuted_products_are_the_literal_sums(compute):
    rng = np.random.default_rng(0)
    K, L = rng.standard_normal((2, 9, 9))
    orders = np.array([rng.permutation(9) for _ in range(5)])
    wanted = [np.sum(K * L[np.ix_(order, order)]) for order in orders]
    np.testing.assert_allclose(compute(K, L, orders), wanted)
