"""Displays draw the numbers that they are given, where they are told to."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from manylens import (
    CoverageDisplay,
    DiversityPathDisplay,
    ModularAutoencoder,
    ModularKernelPCA,
    RetrievalGalleryDisplay,
)
from manylens.baselines import PartitionKernelPCA

X, y = load_digits(return_X_y=True)
X, y = X[:300], y[:300]


@pytest.fixture(scope="module")
def lenses():
    return ModularKernelPCA(5, 4, 0.9, random_state=0).fit(X)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_coverage_is_drawn_beside_the_spectrum_on_axes_of_its_own(lenses):
    display = CoverageDisplay.from_estimator(lenses)
    kept = lenses.coverage_ > 1e-9 * lenses.spectrum_[0]
    np.testing.assert_allclose(display.line_.get_ydata()[kept], lenses.coverage_[kept])
    assert np.isnan(display.line_.get_ydata()[~kept]).all()
    assert display.figure_ is display.ax_.figure
    spectrum = next(line for line in display.ax_.lines if line.get_label() == "spectrum")
    np.testing.assert_allclose(spectrum.get_ydata(), lenses.spectrum_)
    assert display.ax_.get_yscale() == "log"


def test_relative_coverage_is_a_share_and_whole_where_modules_share_a_component(lenses):
    model = lenses.with_diversity(0.5)
    share = CoverageDisplay.from_estimator(model, relative=True).line_.get_ydata()
    assert model.n_shared_ > 0
    np.testing.assert_allclose(share[: model.n_shared_], 100, rtol=1e-6)
    assert np.all((share >= 0) & (share <= 100 + 1e-6))


def test_several_diversities_are_drawn_on_the_same_axes(lenses):
    ax = plt.figure().subplots()
    for model in lenses.diversity_path([0.0, 1.0]):
        assert CoverageDisplay.from_estimator(model, ax=ax, relative=True).ax_ is ax
    assert [line.get_label() for line in ax.lines] == ["diversity 0", "diversity 1"]


def test_coverage_of_an_autoencoder_is_drawn_against_its_singular_values():
    model = ModularAutoencoder(4, 3, 0.5, random_state=0).fit(X)
    display = CoverageDisplay.from_estimator(model)
    assert len(display.line_.get_ydata()) == 12


def test_models_without_coverage_are_refused_and_those_that_have_it_are_named(lenses):
    with pytest.raises(TypeError, match="PartitionKernelPCA has no coverage_: give a ModularKernelPCA"):
        CoverageDisplay.from_estimator(PartitionKernelPCA(3, 2).fit(X))
    with pytest.raises(NotFittedError):
        CoverageDisplay.from_estimator(ModularKernelPCA())


def test_a_diversity_path_draws_what_the_scoring_function_returns(lenses):
    diversities = [0.0, 0.5, 1.0]
    parts = [model.ambiguity() for model in lenses.diversity_path(diversities)]
    display = DiversityPathDisplay.from_estimator(
        lenses,
        diversities,
        lambda model: (model.ambiguity().ensemble, model.ambiguity().individual),
        references={"nothing": 0.5},
        score_name="loss",
    )
    together, single = display.lines_
    np.testing.assert_allclose(together.get_ydata(), [part.ensemble for part in parts])
    np.testing.assert_allclose(single.get_ydata(), [part.individual for part in parts])
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["0", "0.5", "1"]
    assert display.ax_.get_ylabel() == "loss"
    assert "nothing" in display.ax_.get_legend_handles_labels()[1]


def test_a_scoring_function_may_return_a_single_number(lenses):
    display = DiversityPathDisplay.from_estimator(lenses, [0.0, 1.0], lambda model: model.loss_)
    assert len(display.lines_) == 1
    assert display.lines_[0].get_ydata()[1] < display.lines_[0].get_ydata()[0]


def test_the_gallery_frames_exactly_the_wrong_labels_and_shows_a_known_query_first(lenses):
    display = RetrievalGalleryDisplay.from_estimator(
        lenses, X, X[:4], image_shape=(8, 8), y=y, query_labels=y[:4], n_neighbors=6
    )
    frames = [patch for patch in display.ax_.patches if isinstance(patch, Rectangle)]
    assert len(frames) == display.wrong.sum() > 0
    for line in range(4):  # a query that is itself in the base is its own nearest neighbor
        np.testing.assert_array_equal(display.found_images[line, -1, 0], display.query_images[line])
    assert display.names == ["module 1", "module 2", "module 3", "all 5 together"]
    canvas = display.ax_.images[0].get_array()
    np.testing.assert_array_equal(canvas[10:18, :8], X[1].reshape(8, 8))


def test_a_gallery_without_labels_frames_nothing(lenses):
    display = RetrievalGalleryDisplay.from_estimator(lenses, X, X[:2], image_shape=(8, 8))
    assert not display.ax_.patches
    assert display.wrong is None


@pytest.mark.parametrize("display", [CoverageDisplay, DiversityPathDisplay, RetrievalGalleryDisplay])
def test_a_missing_matplotlib_is_named_with_the_command_that_brings_it(display, lenses, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    arguments = {
        CoverageDisplay: (lenses,),
        DiversityPathDisplay: (lenses, [0.5], lambda model: model.loss_),
        RetrievalGalleryDisplay: (lenses, X, X[:1]),
    }[display]
    extra = {"image_shape": (8, 8)} if display is RetrievalGalleryDisplay else {}
    with pytest.raises(ImportError, match=r'needs matplotlib: pip install "manylens\[plot\]"'):
        display.from_estimator(*arguments, **extra)


def test_importing_the_library_does_not_import_matplotlib():
    program = "import manylens, sys; print('matplotlib' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "False"
