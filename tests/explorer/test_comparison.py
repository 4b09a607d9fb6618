"""Two representations side by side: what the page is given, and what it shows."""

import csv
import io

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from manylens import ModularKernelPCA, cka_matrix, explore
from manylens.explorer.comparison import comparison_data
from manylens.explorer.page_hosts import module_source

RNG = np.random.default_rng(0)
A = RNG.standard_normal((60, 5))
B = np.hstack([A[:, :2], RNG.standard_normal((60, 4))])


def neighbors_by_hand(Z, count=10):
    found = NearestNeighbors(n_neighbors=count + 1).fit(Z).kneighbors(Z, return_distance=False)
    return [[int(j) for j in line if j != i] for i, line in enumerate(found)]


class TestData:
    def test_neighbors_maps_and_cka_are_those_of_the_layers(self):
        first, second = {"one": A, "two": A[:, :3]}, {"b": B}
        data = comparison_data(first, second)
        assert data.meta["sides"] == [
            {"name": "A", "layers": ["one", "two"]},
            {"name": "B", "layers": ["b"]},
        ]
        lists = np.frombuffer(data.modules, "<u4").reshape(3, 60, 10)
        maps = np.frombuffer(data.coordinates, "<f4").reshape(3, 60, 2)
        for layer, list_, map_ in zip((A, A[:, :3], B), lists, maps, strict=True):
            assert list_.tolist() == neighbors_by_hand(layer)
            np.testing.assert_allclose(np.abs(map_), np.abs(PCA(2).fit_transform(layer)), atol=1e-5)
        wanted = cka_matrix([A, A[:, :3]], [B], estimator="unbiased")
        np.testing.assert_allclose(data.meta["cka"], wanted, atol=1e-4)
        assert data.meta["start"] == [1, 0]

    def test_transformers_lists_names_and_narrow_or_constant_layers_are_representations(self):
        lenses = ModularKernelPCA(3, 2, random_state=0).fit(A)
        meta = comparison_data(("kernel", lenses), PCA(2).fit(A), A).meta
        assert meta["sides"][0]["name"] == "kernel"
        assert meta["sides"][0]["layers"] == ["module 1", "module 2", "module 3", "all modules"]
        assert meta["sides"][1]["layers"] == ["output"]
        meta = comparison_data([A, A[:, :1]], np.ones((60, 3))).meta
        assert meta["cka"] == [[None], [None]]
        images = RNG.standard_normal((60, 2, 2, 3)).astype(np.float32)
        assert comparison_data(images, A).meta["cka"][0][0] == pytest.approx(0, abs=0.1)

    @pytest.mark.parametrize(
        ("given", "error", "message"),
        [
            ((A, B[:50]), ValueError, "B: layer 'output' has 50 rows, but the first layer of A has 60"),
            ((A[:4], B[:4]), ValueError, "4 rows are too few"),
            ((A, "b.npy"), TypeError, "compare='b.npy' is not a representation"),
            ((A, A[:, 0]), TypeError, "is not a representation: give an array"),
            ((A, {}), ValueError, "compare has 0 layers: give 1 to 100"),
            ((A, {"x": np.full((60, 2), np.nan)}), ValueError, "NaN"),
            ((PCA(2).fit(A), B), ValueError, "lenses is a PCA, which maps rows: give X"),
            ((PCA, B), TypeError, "is not a representation"),
            (([[1, 2], [3]], B), TypeError, "is not a representation"),
            (([[1.0, 2.0]] * 60, sparse.csr_matrix(A)), ValueError, "compare is sparse: reduce it first"),
            ((np.zeros((60, 0)), B), ValueError, "lenses is empty"),
            ((PCA(2), B), ValueError, "not fitted"),
        ],
    )
    def test_bad_input_is_refused_in_a_sentence(self, given, error, message, tmp_path):
        with pytest.raises(error, match=message):
            explore(given[0], compare=given[1], output=tmp_path / "x.html")
        assert list(tmp_path.iterdir()) == []

    def test_diversities_and_rows_are_not_mixed_up(self, tmp_path):
        with pytest.raises(ValueError, match="leave out diversities"):
            explore(A, compare=B, diversities=[0.5], output=tmp_path / "x.html")
        with pytest.raises(ValueError, match="X is missing"):
            explore(ModularKernelPCA(2, 2, random_state=0).fit(A), output=tmp_path / "x.html")


@pytest.fixture(scope="module")
def layers(digits):
    X, y = digits.data[:300], digits.target[:300]
    first = {"pixels": X, "half": X[:, :32]}
    second = {"half": X[:, :32], "moved": np.where(y[:, None] == 3, RNG.permutation(X), X)}
    return first, second


@pytest.fixture(scope="module")
def comparison(layers, digits, tmp_path_factory):
    part = slice(300)
    return explore(
        ("before", layers[0]),
        labels=digits.target[part],
        images=digits.images[part],
        compare=("after <b>tuning</b>", layers[1]),
        title="</script><b>Two</b>",
        output=tmp_path_factory.mktemp("comparison") / "both.html",
    )


@pytest.fixture
def page(new_page, comparison):
    page = new_page()
    page.goto(comparison.as_uri() + "#a=0&b=1&row=3")
    page.wait_for_selector(".mlx-movers li")
    return page


def rows(page, selector):
    return [int(row) for row in page.eval_on_selector_all(selector, "nodes => nodes.map(n => n.dataset.row)")]


class TestPage:
    def test_both_lists_are_shown_and_what_they_share_is_framed(self, page, layers):
        one, two = (neighbors_by_hand(side)[3] for side in (layers[0]["pixels"], layers[1]["moved"]))
        assert rows(page, ".mlx-side .mlx-chip") == one + two
        assert set(rows(page, ".mlx-side .mlx-both")) == {*one} & {*two}
        kept = len({*one} & {*two})
        assert page.locator("[role=status]").inner_text() == (
            f"row 3, label 3: {kept} of 10 neighbors are the same in both."
        )

    def test_rows_that_moved_come_first(self, page, layers):
        lists = [neighbors_by_hand(side) for side in (layers[0]["pixels"], layers[1]["moved"])]
        kept = [len({*a} & {*b}) for a, b in zip(*lists, strict=True)]
        shown = rows(page, ".mlx-movers .mlx-card")
        assert [kept[row] for row in shown] == sorted(kept)[: len(shown)]
        page.get_by_label("Order").select_option("moved least first")
        shown = rows(page, ".mlx-movers .mlx-card")
        assert [kept[row] for row in shown] == sorted(kept, reverse=True)[: len(shown)]
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Download as CSV").click()
        table = list(csv.DictReader(io.StringIO(waiting.value.path().read_text())))
        assert {int(line["row"]): float(line["neighbors_kept"]) for line in table} == {
            row: pytest.approx(count / 10) for row, count in enumerate(kept)
        }

    def test_a_cell_of_the_heat_map_chooses_the_layers(self, page):
        titles = page.locator("rect.mlx-cell title").evaluate_all("nodes => nodes.map(n => n.textContent)")
        assert len(titles) == 4
        assert titles[2] == "half, half: 1.000"
        page.locator("rect.mlx-cell").nth(2).click()
        assert "10 of 10 neighbors are the same" in page.locator("[role=status]").inner_text()
        assert page.get_by_label("before", exact=True).input_value() == "1"
        page.wait_for_timeout(500)  # the link is kept when nothing has changed for a moment
        assert "a=1&b=0" in page.url

    def test_the_maps_are_linked(self, page):
        box = page.locator(".mlx-marks").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        tips = page.locator(".mlx-tip")
        assert tips.nth(0).inner_text() == tips.nth(1).inner_text() != ""
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        chosen = page.locator(".mlx-query strong").inner_text()
        assert chosen != "row 3"
        page.locator(".mlx-marks").nth(1).focus()
        page.keyboard.press("ArrowRight")
        assert page.locator(".mlx-query strong").inner_text() != chosen

    def test_names_are_text_and_nothing_is_cut_off(self, page):
        assert page.locator("h1").text_content() == "</script><b>Two</b>"
        assert page.locator("h3").nth(1).text_content() == "after <b>tuning</b>, moved"
        for width in (375, 2560):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_equal_maps_are_brought_together_whatever_their_rotation(new_page):
    angle = 0.7
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    flat = A[:, :2] - A[:, :2].mean(axis=0)
    for matrix in (turn, turn * [[1], [-1]], 3 * turn):
        found = new_page().evaluate(
            """async ([source, A, B, n]) => {
              const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
              const {aligned} = await import(url);
              return [...aligned(Float32Array.from(A), Float32Array.from(B), n)];
            }""",
            [module_source(), flat.ravel().tolist(), (flat @ matrix).ravel().tolist(), 60],
        )
        np.testing.assert_allclose(found, flat.ravel(), atol=1e-4)


def test_the_widget_holds_a_comparison():
    pytest.importorskip("anywidget")
    widget = explore(A, compare=B)
    assert widget.meta["view"] == "comparison"
    assert len(widget.modules) == 2 * 60 * 10 * 4
    widget.close()
