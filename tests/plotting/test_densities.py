import numpy as np
import pytest
from scipy.integrate import trapezoid

from manylens import ModularAutoencoder, ModularKernelPCA, ModuleDensityDisplay
from manylens.plotting.densities import kernel_density

pytest.importorskip("matplotlib").use("Agg")


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


def test_the_classes_share_of_the_rows_is_that_of_the_area():
    X, y = labeled_rows()
    display = ModuleDensityDisplay.from_estimator(ModularAutoencoder(2, 1, random_state=0).fit(X), X, y)
    areas = trapezoid(display.densities, display.places[:, None], axis=2)
    np.testing.assert_allclose(areas, [[0.25, 0.75]] * 2, rtol=0.1)
    assert [ax.get_title() for ax in display.axes_] == ["module 0", "module 1"]
    assert list(display.classes) == ["left", "right"]


def test_modules_of_more_than_one_dimension_are_refused():
    X, y = labeled_rows()
    with pytest.raises(ValueError, match="these have 2: fit them with n_components=1"):
        ModuleDensityDisplay.from_estimator(ModularKernelPCA(2, 2, random_state=0).fit(X), X, y)
