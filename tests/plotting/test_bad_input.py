"""Every display refuses what it cannot draw, in one sentence, before it opens a figure."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import pyplot

from manylens.plotting import (
    BarDisplay,
    BoundaryDisplay,
    CoverageDisplay,
    CurveDisplay,
    GalleryDisplay,
    HeatMapDisplay,
    NeighborProbabilitiesDisplay,
    ProjectionDisplay,
    ReliabilityDisplay,
    ScatterDisplay,
)

GRID = tuple(np.meshgrid([0.0, 1.0], [0.0, 1.0]))
BAD = [
    (BarDisplay([1, 2], ["a", "b"]), TypeError, "series must be a dict of names to values, not list"),
    (BarDisplay({"s": [1, 2, 3]}, ["a", "b"]), ValueError, r"series\['s'\] has shape \(3,\)"),
    (BarDisplay({"s": [1, 2]}, 5), TypeError, "names must be a list of names, not int"),
    (BarDisplay({}, ["a"]), ValueError, "series is empty"),
    (ScatterDisplay([1, 2], [1, 2, 3]), ValueError, r"y has shape \(3,\): it needs shape \(2\)"),
    (ScatterDisplay(["a", "b"], [1, 2]), TypeError, "x must hold numbers only"),
    (ScatterDisplay([1, 2], [1, 2], names=["a"]), ValueError, "names has 1 names: it needs 2"),
    (ScatterDisplay([1j, 2], [1, 2]), TypeError, "x must hold numbers only"),
    (
        ProjectionDisplay(np.zeros((4, 3))),
        ValueError,
        r"points has shape \(4, 3\): it needs shape \(any, 2\)",
    ),
    (ProjectionDisplay(np.zeros((4, 2)), [0, 1]), ValueError, "inconsistent numbers of samples"),
    (NeighborProbabilitiesDisplay(np.ones((2, 4)), np.ones(3), [0, 1]), ValueError, "same_class has shape"),
    (CurveDisplay([1, 2], {"c": [1, 2, 3]}), ValueError, r"curves\['c'\] has shape \(3,\)"),
    (CurveDisplay([1, 2], [[1, 2]]), TypeError, "curves must be a dict"),
    (CurveDisplay([1, 2], {"c": [1, 2]}, x_scale="cubic"), ValueError, "'cubic' is unknown"),
    (CurveDisplay([1, 2], {"c": [1, 2]}, points={"p": (1, 2, 3)}), ValueError, r"points\['p'\] has shape"),
    (CoverageDisplay([3.0, 0.0], [1.0, 0.5], 0.5), ValueError, "spectrum must be positive"),
    (CoverageDisplay([3.0, 1.0], [1.0, 0.5], 2), ValueError, r"diversity=2 is outside \[0, 1\]"),
    (ReliabilityDisplay([0.5]), TypeError, "bins must be ReliabilityBins"),
    (HeatMapDisplay(np.eye(2), ["a"]), ValueError, "row_names has 1 names: it needs 2"),
    (HeatMapDisplay(np.ones(3), "abc"), ValueError, r"values has shape \(3,\)"),
    (HeatMapDisplay(np.eye(2), "ab", limits=1), TypeError, "limits=1 must be a pair"),
    (BoundaryDisplay(GRID[0], np.eye(3)), TypeError, "grid must be a pair of arrays"),
    (BoundaryDisplay(GRID, np.eye(3)), ValueError, r"regions has shape \(3, 3\): it needs shape \(2, 2\)"),
    (GalleryDisplay(np.ones((1, 2, 2)), np.ones((1, 2)), ["a"]), ValueError, "found_images has shape"),
]


@pytest.mark.parametrize(("display", "error", "message"), BAD)
def test_bad_input_is_refused_in_one_sentence(display, error, message):
    pyplot.close("all")
    with pytest.raises(error, match=message):
        display.plot()
    assert not pyplot.get_fignums()


def test_something_else_than_axes_is_refused():
    with pytest.raises(TypeError, match="must be matplotlib Axes, or None"):
        BarDisplay({"s": [1.0]}, ["a"]).plot(ax=3)


def test_lists_of_different_lengths_and_tensors_with_gradients_are_refused_in_one_sentence():
    ragged = [[1.0, 2.0], [1.0]]
    with pytest.raises(TypeError, match=r"bands\['a'\] must hold numbers only"):
        CurveDisplay([1.0, 2.0], {"a": [1.0, 2.0]}, bands={"a": ragged}).plot()
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="x must hold numbers only"):
        ScatterDisplay(torch.ones(2, requires_grad=True), [1.0, 2.0]).plot()


def test_a_tensor_without_dimensions_is_no_list_of_names():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="names must be a list of names, not Tensor"):
        BarDisplay({"s": [1.0]}, torch.tensor(1)).plot()
