import numpy as np
import pytest
from sklearn.datasets import load_digits, make_moons

from manylens import (
    DistanceCorrelationDisplay,
    ModularKernelPCA,
    ModuleVotingClassifier,
    VotingBoundaryDisplay,
    distance_correlation,
)

matplotlib = pytest.importorskip("matplotlib", reason="displays need matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def test_the_correlation_picture_shows_the_data_and_every_module():
    X = load_digits().data[:300]
    lenses = ModularKernelPCA(4, 3, diversity=0.9, random_state=0).fit(X)
    display = DistanceCorrelationDisplay.from_estimator(lenses, X)
    assert display.names == ["data", "0", "1", "2", "3"]
    view = lenses.split(lenses.transform(X))[:, 2]
    assert display.matrix[0, 3] == pytest.approx(distance_correlation(X, view), abs=1e-10)
    np.testing.assert_array_equal(display.image_.get_array(), display.matrix)


def test_it_draws_on_axes_that_are_given():
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    display = DistanceCorrelationDisplay(np.eye(3), ["a", "b", "c"]).plot(ax, cmap="magma")
    assert display.ax_ is ax
    assert display.image_.get_cmap().name == "magma"


def test_the_boundary_of_the_vote_is_what_the_classifier_predicts():
    X, y = make_moons(200, noise=0.2, random_state=0)
    lenses = ModularKernelPCA(2, 2, diversity=0.9, random_state=0)
    clf = ModuleVotingClassifier(lenses, voting="soft").fit(X, y)
    display = VotingBoundaryDisplay.from_estimator(clf, X, y, resolution=20)
    points = np.column_stack([side.ravel() for side in display.grid])
    np.testing.assert_array_equal(display.regions[-1].ravel(), clf.predict(points))
    assert [ax.get_title() for ax in display.axes_] == ["module 0", "module 1", "vote"]
    assert not np.array_equal(display.regions[0], display.regions[1])


def test_a_boundary_in_more_than_two_columns_is_refused():
    X, y = load_digits(return_X_y=True)
    clf = ModuleVotingClassifier(ModularKernelPCA(2, 2, random_state=0)).fit(X[:200], y[:200])
    with pytest.raises(ValueError, match=r"A boundary is drawn in the plane: X has shape \(1797, 64\)"):
        VotingBoundaryDisplay.from_estimator(clf, X, y)
