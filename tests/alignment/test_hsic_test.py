import numpy as np
import pytest

from manylens import hsic, hsic_test


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_statistic_is_hsic(kernel):
    X, Y = np.random.default_rng(0).standard_normal((2, 40, 3)) + 2
    assert hsic_test(X, Y, kernel, n_permutations=9).statistic == pytest.approx(hsic(X, Y, kernel), rel=1e-9)


def test_under_independence_the_p_value_is_uniform():
    rng = np.random.default_rng(0)
    p_values = np.array(
        [
            hsic_test(*rng.standard_normal((2, 15, 2)), n_permutations=19, random_state=t).p_value
            for t in range(250)
        ]
    )
    for level in (0.05, 0.2, 0.5):
        rate = np.mean(p_values <= level + 1e-12)
        assert abs(rate - level) < 4 * np.sqrt(level * (1 - level) / 250)


def test_dependence_without_correlation_is_found_by_rbf_and_not_by_linear():
    x = np.random.default_rng(0).uniform(-1, 1, (150, 1))
    assert hsic_test(x, x**2, "rbf", n_permutations=199, random_state=0).p_value == pytest.approx(1 / 200)
    assert hsic_test(x, x**2, "linear", n_permutations=199, random_state=0).p_value > 0.02


def test_the_seed_fixes_the_answer_and_ties_count():
    X, Y = np.random.default_rng(0).standard_normal((2, 20, 2))
    assert hsic_test(X, Y, random_state=1) == hsic_test(X, Y, random_state=1)
    pairs = np.array([[0.0], [1.0]])
    assert hsic_test(pairs, pairs, "linear", n_permutations=49).p_value == 1.0  # both orders give the same


def test_what_cannot_be_meant_is_refused_in_a_sentence():
    X = np.random.default_rng(0).standard_normal((20, 2))
    with pytest.raises(ValueError, match="n_permutations=0 is not a positive whole number"):
        hsic_test(X, X, n_permutations=0)
    with pytest.raises(ValueError, match="X has 20 rows and Y has 19"):
        hsic_test(X, X[1:])
