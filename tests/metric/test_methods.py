"""Method objects refuse impossible settings when they are made; "auto" decides by size."""

import re

import pytest

from manylens.metric import CompactBackground, MiniBatch, Stochastic, Subsample, Tree
from manylens.metric.methods import (
    EXACT_ROWS,
    METHODS,
    TREE_COMPONENTS,
    TREE_ROWS,
    auto_method,
    default_batch_size,
)

REFUSALS = {
    "tolerance": (lambda: Tree(tolerance=2.0), "tolerance=2.0 is outside \\(0, 1\\)"),
    "batch of one": (lambda: MiniBatch(size=1), "size == 1, must be >= 2"),
    "sample of one": (lambda: Subsample(size=1), "size == 1, must be >= 2"),
    "no anchor": (lambda: Stochastic(anchors=0), "anchors == 0, must be >= 1"),
    "unknown batching": (lambda: MiniBatch(batching="kmeans"), "give one of random, fpc, rpc, fpc-original"),
    "unknown optimizer": (lambda: MiniBatch(optimizer="lbfgs"), "give one of adam, adagrad"),
    "unknown mixing": (lambda: CompactBackground(mixing="free"), "give one of fixed, learned"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_impossible_settings_are_refused(name):
    make, message = REFUSALS[name]
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("tolerance", ["1e-3", None, [0.1], 1j])
def test_a_tolerance_must_be_a_number(tolerance):
    with pytest.raises(TypeError, match="tolerance must be an instance of"):
        Tree(tolerance)


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_equal_if_their_settings_are_and_cannot_be_changed(name):
    one, two = METHODS[name](), METHODS[name]()
    assert one == two
    assert hash(one) == hash(two)
    with pytest.raises(AttributeError):
        one.size = 3


@pytest.mark.parametrize(
    ("n_rows", "n_components", "n_classes", "method"),
    [
        (4000, 50, 2, "exact"),
        (12_000, 50, 500, "exact"),
        (20_000, 3, 2, "tree"),
        (20_001, 3, 2, "minibatch"),
        (4001, 4, 2, "minibatch"),
    ],
)
def test_auto_decides_by_rows_components_and_classes(n_rows, n_components, n_classes, method):
    assert auto_method(n_rows, n_components, n_classes) == method


def test_the_docstring_of_auto_has_the_limits_of_the_code():
    numbers = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", auto_method.__doc__)]
    assert numbers == [EXACT_ROWS, TREE_ROWS, TREE_COMPONENTS]


def test_batches_grow_with_the_number_of_classes():
    assert default_batch_size(10) == 2000
    assert default_batch_size(200) == 4000
    assert default_batch_size(10_000) == 20_000
