import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import trapezoid
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError

from manylens import (
    AlignmentPruner,
    LayerRidgeClassifier,
    ModularAutoencoder,
    ModularKernelPCA,
    expected_calibration_error,
)
from manylens.baselines import PartitionKernelPCA
from manylens.datasets import make_friedman, make_shells
from manylens.plotting import CoverageDisplay, CurveDisplay, ReliabilityDisplay
from manylens.plotting.curves import accumulated_error, kernel_density
from manylens.pruning import TreePruner
from manylens.transfer.calibration import ReliabilityBins

from .contract import DisplayContract

X, y = make_friedman(200, random_state=0)
S, c = make_shells(200, random_state=0)


class TestCurve(DisplayContract):
    def make(self):
        return CurveDisplay(
            [1, 2, 4],
            {"one": [1, 2, 3], "two": [3, 2, 1]},
            bands={"one": ([0, 1, 2], [2, 3, 4])},
            points={"point": (2, 2)},
            references={"line": 1.5, "curve": [1, 1, 2]},
            x_scale="log2",
        )


class TestFilledCurve(DisplayContract):
    def make(self):
        return CurveDisplay(["a", "b"], {"one": [1, 2]}, fill=True)


class TestCoverage(DisplayContract):
    def make(self):
        return CoverageDisplay(np.array([4.0, 2.0, 1.0]), np.array([4.0, 1.0, 0.0]), 0.5)


class TestReliability(DisplayContract):
    def make(self):
        return ReliabilityDisplay(
            ReliabilityBins(np.array([0.6, 0.9]), np.array([0.5, 0.8]), np.array([0.5, 0.5]))
        )


@pytest.fixture(scope="module")
def lenses(varying_digits):
    return ModularKernelPCA(5, 4, 0.9, random_state=0).fit(varying_digits[0][:300])


def tick_labels(axis):
    return [tick.get_text() for tick in axis.get_ticklabels()]


def test_strings_on_the_x_axis_are_spaced_evenly():
    display = CurveDisplay(["0", "0.5", "1"], {"score": [1, 2, 3]}).plot()
    np.testing.assert_array_equal(display.lines_["score"].get_xdata(), [0, 1, 2])
    assert tick_labels(display.ax_.xaxis) == ["0", "0.5", "1"]


def test_a_log_axis_has_a_tick_at_every_point():
    display = CurveDisplay([8, 16, 64], {"kept": [4, 5, 6]}, x_scale="log2", y_scale="log2").plot()
    assert tick_labels(display.ax_.xaxis) == ["8", "16", "64"]


def test_bands_and_references_are_drawn_at_their_values():
    display = CurveDisplay(
        [1, 2], {"score": [1, 2]}, {"score": ([0, 1], [2, 3])}, references={"chance": 0.5, "bound": [2, 3]}
    ).plot()
    (band,) = display.ax_.collections
    corners = band.get_paths()[0].vertices
    assert {(1, 0), (2, 1), (1, 2), (2, 3)} <= {tuple(corner) for corner in corners}
    drawn = {line.get_label(): list(line.get_ydata()) for line in display.ax_.lines}
    assert drawn == {"score": [1, 2], "chance": [0.5, 0.5], "bound": [2, 3]}


def test_curves_differ_by_marker_and_by_color():
    one, two = CurveDisplay([1, 2], {"one": [1, 2], "two": [2, 3]}).plot().lines_.values()
    assert one.get_marker() != two.get_marker()
    assert one.get_color() != two.get_color()


@pytest.mark.parametrize("values", [np.random.default_rng(0).normal(3, 2, 500), np.array([1.0, 1.0])])
def test_a_density_is_positive_and_integrates_to_1(values):
    places = np.linspace(-10, 16, 4001)
    density = kernel_density(values, places)
    assert np.all(density >= 0)
    assert trapezoid(density, places) == pytest.approx(1, abs=1e-3)


def labeled_rows():
    rng = np.random.default_rng(0)
    y = np.repeat(["left", "right"], [30, 90])
    return rng.normal(size=(120, 3)) + 6 * (y == "right")[:, None], y


@pytest.mark.parametrize("module", [0, 1])
def test_the_area_under_a_density_is_the_share_of_the_class(module):
    X, y = labeled_rows()
    modules = ModularAutoencoder(2, 1, random_state=0).fit(X)
    display = CurveDisplay.from_densities(modules, X, y, module=module)
    areas = {name: trapezoid(density, display.x) for name, density in display.curves.items()}
    assert areas == {"left": pytest.approx(0.25, rel=0.1), "right": pytest.approx(0.75, rel=0.1)}
    assert display.ax_.get_xlabel() == f"module {module}"


def test_densities_along_modules_with_two_dimensions_are_rejected():
    X, y = labeled_rows()
    with pytest.raises(ValueError, match="has 2 dimensions: densities are drawn along one"):
        CurveDisplay.from_densities(ModularKernelPCA(2, 2, random_state=0).fit(X), X, y)


@pytest.fixture(scope="module")
def forest():
    return RandomForestClassifier(12, random_state=0).fit(S, c)


def test_the_accumulated_error_ends_at_that_of_the_whole_ensemble(forest):
    curve = accumulated_error(AlignmentPruner(forest, cv=None).fit(S, c), S, c)
    assert len(curve) == 12
    assert curve[-1] == pytest.approx(1 - forest.score(S, c))


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_the_accumulated_error_of_boosting_is_its_staged_error(classes):
    if classes:
        target = c if classes == 3 else c == 2
        boosting = GradientBoostingClassifier(n_estimators=8, max_depth=2, random_state=0).fit(S, target)
        staged = [np.mean(guess != target) for guess in boosting.staged_predict(S)]
        curve = accumulated_error(AlignmentPruner(boosting).fit(S, target), S, target)
    else:
        boosting = GradientBoostingRegressor(n_estimators=8, max_depth=2, random_state=0).fit(X, y)
        staged = [np.mean((guess - y) ** 2) for guess in boosting.staged_predict(X)]
        curve = accumulated_error(AlignmentPruner(boosting).fit(X, y), X, y)
    np.testing.assert_allclose(curve, staged)


def test_points_are_the_size_and_the_error_of_pruned_ensembles(forest):
    pruners = {name: AlignmentPruner(forest, name).fit(S, c) for name in ("alignment", "rank")}
    display = CurveDisplay.from_pruners(pruners, S, c)
    for name, pruner in pruners.items():
        error = pytest.approx(1 - pruner.score(S, c))
        assert display.points[f"{name}: {pruner.n_kept_} kept"] == (pruner.n_kept_, error)
    assert display.ax_.get_ylabel() == "classification error"
    assert len(CurveDisplay.from_pruners(pruners["rank"], S, c).points) == 1


def test_a_curve_of_pruners_does_not_warn_of_the_names_of_columns():
    frame = pd.DataFrame(S, columns=[f"column {k}" for k in range(S.shape[1])])
    pruner = AlignmentPruner(RandomForestClassifier(12, random_state=0).fit(frame, c)).fit(frame, c)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CurveDisplay.from_pruners(pruner, frame, c)
    with pytest.raises(ValueError, match="feature names"):
        CurveDisplay.from_pruners(pruner, frame.rename(columns={"column 0": "other"}), c)


def test_pruners_of_different_ensembles_are_not_drawn_together(forest):
    other = RandomForestClassifier(12, random_state=1).fit(S, c)
    both = {"one": AlignmentPruner(forest).fit(S, c), "two": AlignmentPruner(other).fit(S, c)}
    with pytest.raises(ValueError, match="The pruners were fitted to different ensembles"):
        CurveDisplay.from_pruners(both, S, c)


def test_coverage_is_drawn_over_the_spectrum(lenses):
    display = CoverageDisplay.from_estimator(lenses)
    kept = lenses.coverage_ > 1e-9 * lenses.spectrum_[0]
    np.testing.assert_allclose(display.line_.get_ydata()[kept], lenses.coverage_[kept])
    assert np.isnan(display.line_.get_ydata()[~kept]).all()
    spectrum = next(line for line in display.ax_.lines if line.get_label() == "spectrum")
    np.testing.assert_allclose(spectrum.get_ydata(), lenses.spectrum_)
    assert display.ax_.get_yscale() == "log"


def test_relative_coverage_is_100_percent_for_components_that_all_modules_share(lenses):
    model = lenses.with_diversity(0.5)
    share = CoverageDisplay.from_estimator(model, relative=True).line_.get_ydata()
    assert model.n_shared_ > 0
    np.testing.assert_allclose(share[: model.n_shared_], 100, rtol=1e-6)
    assert np.all((share >= 0) & (share <= 100 + 1e-6))


def test_several_coverages_are_drawn_on_the_same_axes(lenses):
    ax = plt.figure().subplots()
    for model in lenses.diversity_path([0.0, 1.0]):
        assert CoverageDisplay.from_estimator(model, ax=ax, relative=True).ax_ is ax
    assert [line.get_label() for line in ax.lines] == ["diversity 0", "diversity 1"]


def test_coverage_of_an_autoencoder_is_drawn_over_its_singular_values(varying_digits):
    model = ModularAutoencoder(4, 3, 0.5, random_state=0).fit(varying_digits[0][:300])
    assert len(CoverageDisplay.from_estimator(model).line_.get_ydata()) == 12


def test_models_without_coverage_are_rejected(varying_digits):
    with pytest.raises(TypeError, match="PartitionKernelPCA has no coverage_: give a ModularKernelPCA"):
        CoverageDisplay.from_estimator(PartitionKernelPCA(3, 2).fit(varying_digits[0][:300]))
    with pytest.raises(NotFittedError):
        CoverageDisplay.from_estimator(ModularKernelPCA())


def test_the_reliability_curve_shows_the_bins_and_names_their_error(varying_digits):
    X, y = varying_digits
    model = LayerRidgeClassifier([31, 32], weights="alignment", random_state=0).fit(X[:200], y[:200])
    display = ReliabilityDisplay.from_estimator(model, X[200:600], y[200:600], n_bins=10)
    ece = expected_calibration_error(y[200:600], model.predict_proba(X[200:600]), 10)
    assert f"LayerRidgeClassifier (ECE {ece:.3f})" in display.line_.get_label()
    drawn = np.column_stack(display.line_.get_data())
    assert np.sum(display.bins.weight * np.abs(drawn[:, 1] - drawn[:, 0])) == pytest.approx(ece)
    assert display.bins.weight.sum() == pytest.approx(1)


def test_reliability_curves_share_axes_and_one_diagonal():
    y, p = np.tile([0, 1], 20), np.linspace(0.05, 0.95, 40)
    display = ReliabilityDisplay.from_predictions(y, p, name="one")
    other = ReliabilityDisplay.from_predictions(y, p, binning="mass", name="other", ax=display.ax_)
    assert len(display.ax_.lines) == 3
    assert other.line_.get_color() != display.line_.get_color()


def test_tree_path_has_the_pruned_the_fresh_and_the_whole_ensemble():
    X, y = make_friedman(300, random_state=0)
    small = TreePruner(RandomForestRegressor(20, random_state=0).fit(X, y), max_nodes=400, random_state=0)
    display = CurveDisplay.from_tree_path(small.fit(X, y))
    np.testing.assert_array_equal(display.curves["pruned nodes"], small.path_["loss"])
    assert display.references == {"whole ensemble": small.whole_loss_}
    assert set(display.lines_) == {"pruned nodes", "fresh ensemble of the same bytes"}
    assert display.ax_.get_xlabel() == "kilobytes"
