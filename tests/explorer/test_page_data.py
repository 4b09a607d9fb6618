"""What the page is given, checked without a browser."""

import base64
import builtins
import gzip
import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

from manylens import ModularKernelPCA, cka_matrix, explore
from manylens.alignment import distance_correlation_matrix
from manylens.explorer import page_hosts
from manylens.explorer.diversity_curves import diversity_curves, majority, nearest
from manylens.explorer.images import pixel_scale
from manylens.explorer.page_data import LARGEST, class_names, explorer_data
from manylens.explorer.similarities import linear_cka, similarity_matrix

X = np.random.default_rng(0).standard_normal((40, 5))
LENSES = ModularKernelPCA(3, 2, diversity=0.9, random_state=0).fit(X)


def test_coordinates_and_modules_reproduce_the_lenses():
    data = explorer_data(LENSES, X, diversities=[0.5, 1])
    assert [stop["diversity"] for stop in data.meta["stops"]] == [0.5, 0.9, 1.0]
    k = data.meta["k"]
    C = np.frombuffer(data.coordinates, "<f4").reshape(40, k)
    W = np.frombuffer(data.modules, "<f4").reshape(3, 6, k)
    for stop, diversity in zip(W, (0.5, 0.9, 1.0), strict=True):
        wanted = LENSES.with_diversity(diversity).transform(X)
        np.testing.assert_allclose(C @ stop.T, wanted, atol=1e-5)


def test_lenses_for_modules_that_drop_out_are_shown_at_their_diversity():
    lenses = ModularKernelPCA(3, 2, keep_probability=0.5, random_state=0).fit(X)
    data = explorer_data(lenses, X, diversities=[])
    assert [stop["diversity"] for stop in data.meta["stops"]] == [lenses.diversity_] == [0.75]
    W = np.frombuffer(data.modules, "<f4").reshape(6, -1)
    C = np.frombuffer(data.coordinates, "<f4").reshape(40, -1)
    np.testing.assert_allclose(C @ W.T, lenses.with_diversity(0.75).transform(X), atol=1e-5)


def test_sparse_rows_float32_and_precomputed_kernels():
    assert explorer_data(LENSES, sparse.csr_matrix(X)).meta == explorer_data(LENSES, X).meta
    assert explorer_data(LENSES, X.astype(np.float32)).meta["n"] == 40
    K = rbf_kernel(X)
    lenses = ModularKernelPCA(3, 2, kernel="precomputed", random_state=0).fit(K)
    assert 0 < explorer_data(lenses, K).meta["curves"]["precision"][-1] <= 1


def test_names_of_rows_come_from_the_index():
    names = [f"r{i}" for i in range(40)]
    lenses = ModularKernelPCA(3, 2, random_state=0).fit(pd.DataFrame(X, columns=list("abcde")))
    assert explorer_data(lenses, pd.DataFrame(X, names, list("abcde"))).meta["ids"] == names
    assert explorer_data(lenses, pd.DataFrame(X, columns=list("abcde"))).meta["ids"] is None


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.arange(40) % 3, ["0", "1", "2"]),
        (np.array(["b", "a"] * 20), ["a", "b"]),
        (np.array(["b", 1] * 20, dtype=object), ["b", "1"]),
        (np.array([True, False] * 20), ["False", "True"]),
    ],
)
def test_labels_of_any_type_become_names(labels, classes):
    meta = explorer_data(LENSES, X, labels).meta
    assert meta["classes"] == classes
    assert [classes[code] for code in meta["codes"]] == [str(label) for label in labels.tolist()]


def test_missing_labels_are_one_class():
    meta = explorer_data(LENSES, X, np.where(np.arange(40) % 2, np.nan, 1.0)).meta
    assert meta["classes"] == ["1.0", "missing"]
    assert meta["codes"] == [0, 1] * 20


def test_images_are_scaled_to_bytes():
    data = explorer_data(LENSES, X, images=np.linspace(0, 4, 40 * 6).reshape(40, 2, 3))
    assert data.meta["image_shape"] == [2, 3, 1]
    assert (data.images[0], data.images[-1], len(data.images)) == (0, 255, 240)
    color = np.random.default_rng(0).integers(0, 256, (40, 2, 3, 3), dtype=np.uint8)
    assert explorer_data(LENSES, X, images=color).images == color.tobytes()
    assert set(explorer_data(LENSES, X, images=np.zeros((40, 2, 2))).images) == {0}


def test_curves_are_those_of_a_plain_computation():
    y = np.arange(40) % 3
    views = [slice(0, 2), slice(2, 5)]
    curves = diversity_curves(X, [views], X, y.tolist(), 4)
    assert curves["n_queries"] == 40
    assert curves["precision"] == [1.0]  # all modules together are the input space

    def closest(Z, i):
        return [j for j in np.argsort(((Z - Z[i]) ** 2).sum(1), kind="stable") if j != i][:4]

    shares, votes = [], []
    for i in range(40):
        lists = [closest(X[:, view], i) for view in views]
        shares += [len(set(found) & set(closest(X, i))) / 4 for found in lists]
        elected = [np.bincount(y[found]).argmax() for found in lists]
        votes.append(np.bincount(elected).argmax() == y[i])
    assert curves["module_precision"] == [pytest.approx(np.mean(shares))]
    assert curves["vote"] == [pytest.approx(np.mean(votes))]


def test_a_row_is_not_its_own_neighbor_even_among_equal_rows():
    rows = np.zeros((10, 2))
    found = nearest(rows, np.arange(10), 4)
    assert found.shape == (10, 4)
    assert not (found == np.arange(10)[:, None]).any()
    assert majority(np.array([[2, 1, 2], [0, 1, 1]])).tolist() == [2, 1]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"lenses": ModularKernelPCA}, TypeError, "must be a fitted transformer"),
        ({"lenses": "digits"}, TypeError, "lenses='digits' must be a fitted transformer"),
        ({"lenses": ModularKernelPCA()}, ValueError, "not fitted yet"),
        ({"X": X[:1]}, ValueError, "X has 1 row, which has no neighbors"),
        ({"X": X[:, :3]}, ValueError, "expecting 5 features"),
        ({"labels": [1, 2]}, ValueError, r"labels has shape \(2,\); X has 40 rows"),
        ({"text": "abc"}, ValueError, "text must hold one string per row: 40 rows and 3 items"),
        ({"text": ["a"]}, ValueError, "40 rows and 1 items"),
        ({"images": np.zeros((39, 2, 2))}, ValueError, r"images has shape \(39, 2, 2\)"),
        ({"images": np.zeros((40, 2, 2, 2))}, ValueError, "1, 3 or 4"),
        ({"images": np.zeros((40, 0, 2))}, ValueError, r"images has shape \(40, 0, 2\)"),
        ({"images": np.full((40, 2, 2), np.nan)}, ValueError, "images contains NaN or infinity"),
        ({"diversities": [1.5]}, ValueError, "diversity=1.5 is outside"),
        ({"n_neighbors": 0}, ValueError, "n_neighbors"),
    ],
)
def test_bad_input_is_refused_in_one_sentence_and_no_file_is_left(arguments, error, message, tmp_path):
    with pytest.raises(error, match=message):
        explore(**{"lenses": LENSES, "X": X, "output": tmp_path / "x.html"} | arguments)
    assert list(tmp_path.iterdir()) == []


def test_rows_that_a_browser_cannot_hold_are_refused(monkeypatch):
    assert LARGEST < 2**29 * 3 / 4
    monkeypatch.setattr("manylens.explorer.page_data.LARGEST", 100)
    with pytest.raises(ValueError, match="explore a random sample"):
        explorer_data(LENSES, X)


def test_fewer_neighbors_than_asked_for_if_there_are_few_rows():
    assert explorer_data(LENSES, X[:4]).meta["n_neighbors"] == 3


class TestFile:
    def test_it_holds_the_data_and_names_no_other_address(self, tmp_path):
        path = explore(LENSES, X, text=["</script>"] * 40, output=str(tmp_path / "page.html"))
        text = path.read_text()
        assert text.count("</script>") == 3
        data = json.loads(re.search(r'<script id="data"[^>]*>(.*?)</script>', text, re.DOTALL)[1])
        assert data["meta"]["text"] == ["</script>"] * 40
        packed = gzip.decompress(base64.b64decode(data["coordinates"]))
        assert packed == explorer_data(LENSES, X).coordinates
        assert set(re.findall(r"https?://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}
        assert "{{" not in text.partition('<script id="data"')[0]

    def test_a_failed_write_leaves_what_was_there(self, tmp_path, monkeypatch):
        path = tmp_path / "page.html"
        path.write_text("before")
        monkeypatch.setattr(page_hosts, "page", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            explore(LENSES, X, output=path)
        assert path.read_text() == "before"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_missing_folder_is_named(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            explore(LENSES, X, output=tmp_path / "nowhere" / "page.html")


class TestWidget:
    def test_its_traits_hold_the_data_and_the_view(self):
        pytest.importorskip("anywidget")
        widget = explore(LENSES, X, diversities=[0.5])
        data = explorer_data(LENSES, X, diversities=[0.5])
        assert (widget.meta, widget.coordinates, widget.modules) == (
            data.meta,
            data.coordinates,
            data.modules,
        )
        assert (widget.diversity, widget.selected, widget.switched_off) == (0.9, 0, [])
        widget.selected = 3
        assert {"selected", "diversity", "switched_off", "meta", "_esm"} <= set(widget.get_state())
        widget.close()

    def test_a_missing_package_is_named_before_any_work(self, monkeypatch):
        real = builtins.__import__

        def refuse(name, *args, **kwargs):
            if name.partition(".")[0] == "anywidget":
                raise ImportError(name)
            return real(name, *args, **kwargs)

        monkeypatch.setattr(
            "manylens.optional.importlib.import_module", lambda name: refuse(name, {}, {}, [])
        )
        page_hosts.widget_class.cache_clear()
        with pytest.raises(ImportError, match=r"needs anywidget: pip install 'manylens\[explore\]'"):
            explore(LENSES, "not even rows")


class TestImages:
    def test_files_and_pil_images_fit_into_a_square_and_keep_their_shape(self, tmp_path):
        image = pytest.importorskip("PIL.Image")
        wide = image.new("RGB", (200, 100), (10, 200, 30))
        wide.save(tmp_path / "wide.png")
        for given in ([wide] * 40, [tmp_path / "wide.png"] * 40, [str(tmp_path / "wide.png")] * 40):
            data = explorer_data(LENSES, X, images=given)
            assert data.meta["image_shape"] == [64, 64, 4]
            square = np.frombuffer(data.images, np.uint8).reshape(40, 64, 64, 4)[0]
            assert square[32, 32].tolist() == [10, 200, 30, 255]
            assert square[4, 32].tolist() == [0, 0, 0, 0]  # nothing above a wide image

    def test_broken_missing_and_too_few_files_are_named(self, tmp_path):
        image = pytest.importorskip("PIL.Image")
        (tmp_path / "broken.png").write_bytes(b"no image")
        with pytest.raises(ValueError, match=r"broken.png'?\)? could not be read as an image"):
            explorer_data(LENSES, X, images=[tmp_path / "broken.png"] * 40)
        with pytest.raises(ValueError, match=r"nothing\.png does not exist"):
            explorer_data(LENSES, X, images=[str(tmp_path / "nothing.png")] * 40)
        with pytest.raises(ValueError, match="images holds 3 images; X has 40 rows"):
            explorer_data(LENSES, X, images=[image.new("L", (2, 2))] * 3)

    def test_rows_that_are_pixels_are_recognized(self):
        pixels = np.random.default_rng(0).integers(0, 256, (40, 2, 3, 1), dtype=np.uint8)
        flat = pixels.reshape(40, -1)
        assert pixel_scale(flat / 255, pixels) == pytest.approx((1 / 255, 0), abs=1e-12)
        assert pixel_scale(0.5 - 2.0 * flat, pixels) == pytest.approx((-2, 0.5))
        assert pixel_scale(np.sqrt(flat), pixels) is None
        assert pixel_scale(flat[:, ::-1], pixels) is None
        assert pixel_scale(sparse.csr_matrix(flat), pixels) is None
        assert pixel_scale(flat, None) is None
        assert pixel_scale(np.zeros((40, 6)), np.zeros((40, 2, 3, 1), np.uint8)) is None


def test_similarities_are_those_of_the_modules_at_every_stop():
    data = explorer_data(LENSES, X, diversities=[0.5])
    for s, diversity in enumerate((0.5, 0.9)):
        lenses = LENSES.with_diversity(diversity)
        views = list(lenses.split(lenses.transform(X)).swapaxes(0, 1))
        for name, wanted in (
            ("CKA", cka_matrix(views, estimator="unbiased")),
            ("distance correlation", distance_correlation_matrix(views)),
        ):
            np.testing.assert_allclose(data.meta["similarity"][name][s], wanted, atol=1e-4)


def test_similarity_with_a_constant_module_is_unknown():
    views = [X[:, :2], np.zeros((40, 2)), X[:, 2:]]
    found = similarity_matrix(views, None, linear_cka)
    assert found[1] == [None, None, None]
    assert found[0][0] == pytest.approx(1)


def test_columns_of_a_table_are_shown_as_text():
    table = pd.DataFrame({"price": np.linspace(0, 1, 40), "shop": ["<b>", None] * 20}, index=range(5, 45))
    assert explorer_data(LENSES, X, table=table).meta["table"] == {
        "names": ["price", "shop"],
        "values": [[f"{v:.6g}" for v in np.linspace(0, 1, 40)], ["<b>", ""] * 20],
    }
    polars = pytest.importorskip("polars")
    assert explorer_data(LENSES, X, table=polars.from_pandas(table)).meta["table"]["values"][1][0] == "<b>"
    for bad in (table[:3], [1, 2]):
        with pytest.raises(ValueError, match="table must be a data frame with one row per row of X"):
            explorer_data(LENSES, X, table=bad)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["10", "9", "1"], ["1", "9", "10"]),
        (["class 10", "class 2", "other"], ["class 2", "class 10", "other"]),
        (["b1", "a10", "a9", "nan"], ["a9", "a10", "b1", "missing"]),
        (["01", "1", "9" * 5000], ["01", "1", "9" * 5000]),
        ([3, 10, 2], ["2", "3", "10"]),
    ],
)
def test_classes_with_numbers_in_their_names_are_in_the_order_of_the_numbers(labels, names):
    found, codes = class_names(np.array(labels, dtype=object))
    assert found == names
    assert [found[code] for code in codes] == [
        "missing" if label == "nan" else str(label) for label in labels
    ]
