import numpy as np
import pytest

from manylens import (
    AlignmentDisplay,
    CountSketch,
    LayerWeightsDisplay,
    SketchedAlignmentDisplay,
    StableRankDisplay,
    TransferabilityDisplay,
    align_kernels,
    cka,
    cka_matrix,
    rank_models,
    stable_rank,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def layers():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 80)
    yield (
        {
            f"layer {k}": np.eye(3)[y] @ rng.standard_normal((3, 4)) + k * rng.standard_normal((80, 4))
            for k in (1, 2)
        },
        y,
    )
    plt.close("all")


def test_the_heat_map_shows_the_alignments_from_zero_to_one(layers):
    display = AlignmentDisplay.from_representations(layers[0], estimator="unbiased")
    wanted = cka_matrix(list(layers[0].values()), estimator="unbiased")
    np.testing.assert_allclose(display.image_.get_array(), wanted)
    assert display.image_.get_clim() == (0, 1)
    assert f"{wanted[0, 1]:.2f}" in [text.get_text() for text in display.ax_.texts]
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == list(layers[0])


def test_many_cells_are_not_annotated():
    assert not AlignmentDisplay(np.eye(21), list(range(21))).plot().ax_.texts
    plt.close("all")


def test_weights_are_learned_from_nested_parts_of_the_rows(layers):
    features, y = layers
    display = LayerWeightsDisplay.from_features(features, y, shares=(0.25, 1.0))
    assert display.weights.shape == (2, 2)
    np.testing.assert_allclose(display.weights[:, 1], align_kernels(list(features.values()), y))
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == ["25 %", "100 %"]


def test_sketched_values_stand_over_exact_ones(layers):
    X, Y = layers[0].values()
    display = SketchedAlignmentDisplay.from_pairs([(X, Y)], CountSketch(32))
    points = display.errorbar_.lines[0]
    assert points.get_xdata()[0] == pytest.approx(cka(X, Y))
    assert points.get_ydata()[0] == pytest.approx(cka(X, Y, sketch=CountSketch(32)).value)


def test_stable_ranks_are_drawn_in_order(layers):
    display = StableRankDisplay.from_representations(layers[0])
    np.testing.assert_allclose(display.line_.get_ydata(), [stable_rank(X) for X in layers[0].values()])


def test_scores_stand_against_accuracy(layers):
    features, y = layers
    ax = plt.subplots()[1]
    display = TransferabilityDisplay(rank_models(features, y), {"layer 1": 0.9, "layer 2": 0.5}).plot(ax=ax)
    assert display.ax_ is ax
    assert display.correlation_ == pytest.approx(1.0)
    assert {text.get_text() for text in ax.texts} == set(features)


def test_without_matplotlib_the_command_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "manylens\[plot\]"'):
        AlignmentDisplay(np.eye(2), "ab").plot()
