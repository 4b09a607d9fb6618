import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.patches import Rectangle
from sklearn.neighbors import NearestNeighbors

from manylens import ModularKernelPCA, ModuleNeighbors
from manylens.plotting import GalleryDisplay

from .contract import DisplayContract


class TestGallery(DisplayContract):
    def make(self):
        rng = np.random.default_rng(0)
        wrong = np.array([[[True, False]], [[False, False]]])
        return GalleryDisplay(rng.uniform(size=(2, 3, 3)), rng.uniform(size=(2, 1, 2, 3, 3)), ["all"], wrong)


class TestColorGallery(DisplayContract):
    def make(self):
        rng = np.random.default_rng(0)
        return GalleryDisplay(rng.uniform(size=(2, 3, 4, 3)), rng.uniform(size=(2, 1, 2, 3, 4, 3)), ["all"])


@pytest.fixture(scope="module")
def lenses(varying_digits):
    return ModularKernelPCA(5, 4, 0.9, random_state=0).fit(varying_digits[0][:300])


def test_the_gallery_frames_wrong_labels_and_shows_a_known_query_first(lenses, varying_digits):
    X, y = varying_digits[0][:300], varying_digits[1][:300]
    display = GalleryDisplay.from_modules(
        lenses, X, X[:4], image_shape=(9, 7), y=y, query_labels=y[:4], n_neighbors=6
    )
    frames = [patch for patch in display.ax_.patches if isinstance(patch, Rectangle)]
    assert len(frames) == display.wrong.sum() > 0
    for line in range(4):  # a query that is itself among the rows is its own nearest neighbor
        np.testing.assert_array_equal(display.found_images[line, -1, 0], display.query_images[line])
    assert display.names == ["module 1", "module 2", "module 3", "all 5 together"]
    canvas = display.ax_.images[0].get_array()
    np.testing.assert_array_equal(canvas[10:19, :7], X[1].reshape(9, 7))


def test_a_gallery_without_labels_frames_nothing(lenses, varying_digits):
    ax = plt.figure().subplots()
    display = GalleryDisplay.from_modules(
        lenses, varying_digits[0][:300], varying_digits[0][:2], image_shape=(9, 7), ax=ax
    )
    assert display.ax_ is ax
    assert not ax.patches
    assert display.wrong is None


class Counting(ModuleNeighbors):
    """An index that counts its searches and refuses to transform its base again."""

    searches = 0

    def kneighbors(self, X=None, *args, **kwargs):
        type(self).searches += 1
        assert len(X) == 4
        return super().kneighbors(X, *args, **kwargs)


def test_a_gallery_from_an_index_shows_what_the_index_finds(lenses, varying_digits):
    X, y = varying_digits[0][:300], varying_digits[1][:300]
    index = Counting(lenses).fit(X)
    images = list(X.reshape(-1, 9, 7))
    display = GalleryDisplay.from_estimator(index, X[:4], images, labels=y, query_labels=y[:4], n_neighbors=6)
    assert Counting.searches == 1
    rows = ModuleNeighbors.kneighbors(index, X[:4], 6)[1]
    np.testing.assert_array_equal(display.found_images[:, 0], X[rows].reshape(4, 6, 9, 7))
    np.testing.assert_array_equal(display.wrong[:, 0], y[rows] != y[:4, None])
    np.testing.assert_array_equal(display.query_images, X[:4].reshape(4, 9, 7))


def test_a_gallery_compares_several_searches(lenses, varying_digits):
    X = varying_digits[0][:300]
    both = {"modules": ModuleNeighbors(lenses).fit(X), "pixels": NearestNeighbors().fit(X)}
    display = GalleryDisplay.from_estimator(both, X[:2], X.reshape(-1, 9, 7))
    assert [text.get_text() for text in display.ax_.texts] == ["query", "modules", "pixels"]
    rows = both["pixels"].kneighbors(X[:2], 5)[1]
    np.testing.assert_array_equal(display.found_images[:, 1], X[rows].reshape(2, 5, 9, 7))


def test_images_are_found_by_id_and_may_be_in_color(varying_digits):
    X = varying_digits[0][:50]
    ids = [f"file {k}" for k in range(50)]
    pictures = {
        one: np.repeat(row.reshape(9, 7, 1), 3, axis=2).astype(np.uint8)
        for one, row in zip(ids, X, strict=True)
    }
    index = ModuleNeighbors().fit(X, ids=ids)
    given = [pictures[one] for one in ids[:2]]
    display = GalleryDisplay.from_estimator(index, X[:2], pictures, given, n_neighbors=3)
    assert display.found_images.shape == (2, 1, 3, 9, 7, 3)
    np.testing.assert_array_equal(display.found_images[:, 0, 0], display.query_images)
    drawn = display.ax_.images[0].get_array()
    assert drawn.shape[2] == 4
    assert set(np.unique(drawn[..., 3])) == {0, 1}  # transparent between the images


def test_most_of_the_figure_is_images(lenses, varying_digits):
    X = varying_digits[0][:300]
    index = ModuleNeighbors(lenses).fit(X)
    for n_queries, k in ((1, 1), (2, 3), (6, 10), (3, 40)):
        display = GalleryDisplay.from_estimator(index, X[:n_queries], X.reshape(-1, 9, 7), n_neighbors=k)
        display.figure_.canvas.draw()
        box, figure = display.ax_.get_window_extent(), display.figure_.bbox
        assert box.width * box.height > 0.5 * figure.width * figure.height
        assert display.figure_.get_size_inches().max() <= 13.5


def test_what_is_no_gallery_is_refused(varying_digits):
    X = varying_digits[0][:50]
    index = ModuleNeighbors().fit(X)
    with pytest.raises(TypeError, match="has no kneighbors"):
        GalleryDisplay.from_estimator(3, X[:2], X.reshape(-1, 9, 7))
    with pytest.raises(ValueError, match="for which there is no image or label"):
        GalleryDisplay.from_estimator(index, X[:2], X[:1].reshape(-1, 9, 7))
    with pytest.raises(ValueError, match=r"The image of row \d+ has shape \(63,\)"):
        GalleryDisplay.from_estimator(index, X[:2], X)
    with pytest.raises(ValueError, match=r"are not images of shape \(4, 4\): give query_images"):
        GalleryDisplay.from_estimator(index, X[:2], np.zeros((50, 4, 4)))
    with pytest.raises(TypeError, match="query_images=3 is not a sequence of images"):
        GalleryDisplay.from_estimator(index, X[:2], X.reshape(-1, 9, 7), query_images=3)
    with pytest.raises(ValueError, match="found_images cannot be read as an array of numbers"):
        GalleryDisplay(X[:2], [[1.0, 2.0], [3.0]], ["a"]).plot()
    assert not plt.get_fignums()
