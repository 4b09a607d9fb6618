"""The page as a person uses it, in a headless browser without network."""

import csv
import io
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import NearestNeighbors

from manylens import ModularAutoencoder, ModularKernelPCA, cka_matrix, explore
from manylens.alignment import distance_correlation_matrix
from manylens.explorer.page_data import BUFFERS, explorer_data
from manylens.explorer.page_hosts import module_source
from manylens.explorer.page_hosts import page as make_page

HOSTILE = [
    "<img src=x onerror=\"console.log('pwned')\">",
    "</script><script>console.log('pwned')</script>",
    "<!--<script>",
    "\"' onmouseover='console.log(1)",
    "javascript:console.log(1)",
    '=HYPERLINK("http://example.invalid")',
    "\u2028\u2029\u202e{{CSS}}$TITLE",
]


def opened(page, path, link=""):
    page.goto(path.as_uri() + link)
    page.bring_to_front()  # a page behind others may wait for its next frame
    settled(page)
    return page


def settled(page):
    page.wait_for_selector(".mlx-modules[aria-busy=false]")


def link_of(page):
    page.wait_for_timeout(500)  # it is kept when nothing has changed for a moment
    return "#" + page.url.partition("#")[2]


def neighbors(page, selector=".mlx-card"):
    return [int(row) for row in page.eval_on_selector_all(selector, "nodes => nodes.map(n => n.dataset.row)")]


def switch(page, number):
    return page.get_by_role("checkbox", name=f"module {number} ")


def expected(view, row, count=10):
    found = (
        NearestNeighbors(n_neighbors=count + 1).fit(view).kneighbors(view[[row]], return_distance=False)[0]
    )
    return [int(other) for other in found if other != row]


def move(page, diversity):
    page.locator(".mlx-slider").evaluate(
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input')); }", diversity
    )
    settled(page)


@pytest.fixture
def page(new_page, digits_page):
    return opened(new_page(), digits_page)


class TestNeighbors:
    def test_they_are_those_of_the_lenses_in_all_modules_and_in_each(self, page, lenses, digits):
        Z = lenses.transform(digits.data[:500])
        assert neighbors(page) == expected(Z, 0)
        for m, view in enumerate(lenses.split(Z).swapaxes(0, 1)):
            assert neighbors(page, f".mlx-module:nth-child({m + 1}) .mlx-chip") == expected(view, 0)

    @pytest.mark.parametrize("diversity", [0, 0.37, 0.97, 1])
    def test_they_follow_the_slider_to_diversities_that_were_not_learned(
        self, page, lenses, digits, diversity
    ):
        move(page, diversity)
        assert neighbors(page) == expected(lenses.with_diversity(diversity).transform(digits.data[:500]), 0)
        assert page.locator("input[type=number]").input_value() == str(diversity)

    def test_modules_that_are_switched_off_do_not_count(self, page, lenses, digits):
        for m in (1, 4):
            switch(page, m + 1).uncheck()
            settled(page)
        parts = lenses.split(lenses.transform(digits.data[:500]))[:, [0, 2, 3, 5]]
        assert neighbors(page) == expected(parts.reshape(500, -1), 0)
        assert page.locator(".mlx-left").count() == 1
        switch(page, 2).check()
        switch(page, 5).check()
        settled(page)
        assert page.locator(".mlx-left").count() == 0

    def test_the_last_module_cannot_be_switched_off(self, page):
        for m in range(5):
            switch(page, m + 1).uncheck()
            settled(page)
        assert switch(page, 6).is_disabled()
        assert len(neighbors(page)) == 10

    def test_agreement_is_the_number_of_modules_that_find_a_neighbor(self, page):
        lists = [neighbors(page, f".mlx-module:nth-child({m + 1}) .mlx-chip") for m in range(6)]
        for row, label in zip(
            neighbors(page),
            page.eval_on_selector_all(".mlx-card", "n => n.map(b => b.ariaLabel)"),
            strict=True,
        ):
            assert f"found by {sum(row in found for found in lists)} of 6 modules" in label
        framed = page.eval_on_selector_all(".mlx-both", "nodes => nodes.map(n => Number(n.dataset.row))")
        assert sorted(framed) == sorted(row for found in lists for row in found if row in neighbors(page))


class TestSelecting:
    def test_a_click_on_a_neighbor_selects_it_and_keeps_the_focus(self, page):
        chosen = neighbors(page)[2]
        page.locator(".mlx-card").nth(2).click()
        settled(page)
        assert page.locator(".mlx-query strong").inner_text() == f"row {chosen}"
        assert page.evaluate("document.activeElement.className").startswith("mlx-card")

    def test_a_click_on_the_map_selects_the_row_under_the_mouse(self, page):
        box = page.locator(".mlx-marks").bounding_box()
        page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.6)
        settled(page)
        assert page.locator(".mlx-query strong").inner_text() != "row 0"
        assert page.locator(".mlx-tip").is_visible()

    def test_the_keyboard_is_enough(self, page):
        page.locator(".mlx-slider").focus()
        before = page.locator(".mlx-slider").input_value()
        page.keyboard.press("ArrowRight")
        assert float(page.locator(".mlx-slider").input_value()) > float(before)
        page.locator(".mlx-marks").focus()
        page.keyboard.press("ArrowLeft")
        settled(page)
        assert page.locator(".mlx-query strong").inner_text() != "row 0"
        page.get_by_role("searchbox").fill("42")
        page.keyboard.press("Enter")
        settled(page)
        assert page.locator(".mlx-query strong").inner_text() == "row 42"
        assert page.locator("[role=status]").inner_text().startswith("row 42, label 1, ")

    def test_an_unknown_row_is_refused_in_words(self, page):
        page.get_by_role("searchbox").fill("500")
        page.keyboard.press("Enter")
        assert (
            "There is no row “500”: give a number from 0 to 499" in page.locator("[role=status]").inner_text()
        )
        assert page.get_by_role("searchbox").get_attribute("aria-invalid") == "true"

    def test_a_link_restores_the_view_and_nonsense_in_it_is_ignored(self, new_page, digits_page, page):
        switch(page, 3).uncheck()
        move(page, 0.5)
        page.locator(".mlx-card").first.click()
        settled(page)
        again = opened(new_page(), digits_page, link_of(page))
        assert neighbors(again) == neighbors(page)
        assert not switch(again, 3).is_checked()
        broken = opened(new_page(), digits_page, "#row=1e9&diversity=NaN&off=0,1,2,3,4,5,x,-1")
        assert broken.locator(".mlx-query strong").inner_text() == "row 0"
        assert broken.locator(".mlx-slider").input_value() == "0.9"


class TestFigures:
    def test_the_certificate_and_the_curves_are_those_of_the_lenses(self, page, lenses):
        facts = page.locator(".mlx-facts dd").all_inner_texts()
        assert float(facts[0]) == pytest.approx(lenses.loss_, rel=1e-2)
        assert float(facts[1]) == pytest.approx(lenses.lower_bound_, rel=1e-2)
        move(page, 0.93)
        other = lenses.with_diversity(0.93)
        assert float(page.locator(".mlx-facts dd").first.inner_text()) == pytest.approx(other.loss_, rel=1e-2)

    def test_the_map_shows_the_colors_of_the_labels(self, page):
        different = """canvas => {
          const {width, height} = canvas;
          const copy = new OffscreenCanvas(width, height).getContext("2d", {willReadFrequently: true});
          copy.drawImage(canvas, 0, 0);
          return new Set(new Uint32Array(copy.getImageData(0, 0, width, height).data.buffer)).size;
        }"""
        assert page.locator(".mlx-map canvas").first.evaluate(different) > 20
        page.get_by_label("Map of", exact=True).select_option("module 2")
        assert page.locator(".mlx-map canvas").first.evaluate(different) > 20
        assert page.locator(".mlx-legend li").all_inner_texts() == [str(digit) for digit in range(10)]

    @pytest.mark.parametrize("width", [375, 800, 2560])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_nothing_is_cut_off_on_any_screen(self, new_page, digits_page, width, scheme):
        page = new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        opened(page, digits_page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        inside = (
            "nodes => nodes.every(n => n.getBoundingClientRect().right <= innerWidth && n.clientWidth > 0)"
        )
        assert page.eval_on_selector_all(".mlx-panel, .mlx-chart svg, .mlx-card, .mlx-controls input", inside)

    def test_text_has_contrast_in_light_and_dark(self, new_page, digits_page):
        for scheme in ("light", "dark"):
            page = opened(new_page(color_scheme=scheme), digits_page)
            read = "(n, names) => names.map((c) => getComputedStyle(n).getPropertyValue('--mlx-' + c).trim())"
            names = ["ink", "soft", "wrong", "ours", "card", "tint"]
            ink, soft, wrong, ours, card, tint = page.locator(".mlx").evaluate(read, names)
            for color in (ink, soft, wrong, ours):
                assert contrast(color, card) >= 4.5
            assert contrast(wrong, tint) >= 4.5

    def test_every_control_has_a_name(self, page):
        unnamed = """nodes => nodes.filter((n) => !n.getAttribute("aria-label") && !n.labels?.length
          && !n.textContent.trim()).map((n) => n.outerHTML)"""
        assert page.eval_on_selector_all("input, select, button, [tabindex]", unnamed) == []

    def test_the_table_can_be_downloaded(self, page):
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Download as CSV").click()
        table = list(csv.DictReader(io.StringIO(waiting.value.path().read_text())))
        assert [int(line["row"]) for line in table] == neighbors(page)
        assert set(table[0]["found_by"].split()) <= {"1", "2", "3", "4", "5", "6"}

    def test_the_heat_map_follows_the_slider_and_the_measure(self, page, lenses, digits):
        heat = page.get_by_role("region", name="Similarity of the modules")

        def shown():
            titles = heat.locator("rect title").evaluate_all("nodes => nodes.map(n => n.textContent)")
            return np.array([float(text.rpartition(" ")[2]) for text in titles]).reshape(6, 6)

        sample = digits.data[:500]
        np.testing.assert_allclose(
            shown(), cka_matrix(views_of(lenses, sample), estimator="unbiased"), atol=6e-4
        )
        move(page, 0.21)
        heat.get_by_label("Measure").select_option("distance correlation")
        expected = distance_correlation_matrix(views_of(lenses.with_diversity(0.2), sample))
        np.testing.assert_allclose(shown(), expected, atol=6e-4)

    def test_any_two_components_make_a_map_that_a_link_restores(self, new_page, digits_page, page):
        picture = "canvas => canvas.toDataURL()"
        canvas = page.locator(".mlx-map canvas").first
        before = canvas.evaluate(picture)
        page.get_by_label("across").select_option("component 3")
        assert canvas.evaluate(picture) != before
        page.get_by_label("Map of", exact=True).select_option("module 2")
        page.get_by_label("up", exact=True).select_option("dimension 5")
        assert page.get_by_label("across").locator("option").count() == 5
        again = opened(new_page(), digits_page, link_of(page))
        assert again.get_by_label("up", exact=True).input_value() == "4"
        restored = again.locator(".mlx-map canvas").first
        for _ in range(50):  # maps are drawn in the next frame of the browser
            if restored.evaluate(picture) == canvas.evaluate(picture):
                break
            again.wait_for_timeout(100)
        assert restored.evaluate(picture) == canvas.evaluate(picture)

    def test_figures_can_be_downloaded(self, page):
        image = pytest.importorskip("PIL.Image")
        for title in ("the map", "Coverage of the spectrum", "Similarity of the modules"):
            with page.expect_download() as waiting:
                page.get_by_role("button", name=f"Download {title} as PNG").click()
            with image.open(waiting.value.path()) as picture:
                assert picture.format == "PNG"
                assert len(picture.convert("RGB").getcolors(2**24)) > 5
            with page.expect_download() as waiting:
                page.get_by_role("button", name=f"Download {title} as SVG").click()
            svg = ElementTree.fromstring(waiting.value.path().read_text())
            kinds = {node.tag.rpartition("}")[2] for node in svg.iter()}
            assert {"circle"} <= kinds if title == "the map" else {"text", "rect"} <= kinds
            assert "var(" not in ElementTree.tostring(svg, "unicode")  # needs no style sheet


class TestImageAsQuery:
    def test_a_chosen_file_finds_the_rows_nearest_to_it(self, page, lenses, digits, tmp_path):
        image = pytest.importorskip("PIL.Image")
        row = 1234  # not among the 500 rows of the page
        image.fromarray(np.round(digits.images[row] * 255 / 16).astype(np.uint8)).save(tmp_path / "new.png")
        page.locator("input[type=file]").set_input_files(tmp_path / "new.png")
        page.locator(".mlx-query strong", has_text="Your image").wait_for()
        settled(page)
        Z = lenses.transform(digits.data[:500])
        q = lenses.transform(digits.data[[row]])
        found = NearestNeighbors(n_neighbors=10).fit(Z).kneighbors(q, return_distance=False)[0]
        assert len({*neighbors(page)} & {*found.tolist()}) >= 9  # pixels are rounded to 8 bits
        assert neighbors(page)[0] == found[0]
        first = neighbors(page)
        page.get_by_role("button", name="Invert").click()
        page.locator(f".mlx-cards li:first-child button:not([data-row='{first[0]}'])").wait_for()
        page.locator(".mlx-card").first.click()
        settled(page)
        assert page.locator(".mlx-query strong").inner_text().startswith("row ")

    def test_the_page_maps_pixels_to_the_coordinates_of_the_lenses(self, new_page, lenses, digits):
        linear = ModularAutoencoder(3, 2, random_state=0).fit(digits.data[:500])
        for each in (lenses, linear):
            data = explorer_data(each, digits.data[:50], images=digits.images[:50])
            pixels = np.frombuffer(data.images, np.uint8).reshape(50, -1)[:5]
            wanted = np.frombuffer(data.coordinates, "<f4").reshape(50, -1)[:5]
            found = new_page().evaluate(
                """async ([source, map, bytes, rows]) => {
                  const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
                  const {imageCoordinates} = await import(url);
                  const buffer = Uint8Array.from(bytes).buffer;
                  return rows.map((row) => [...imageCoordinates(map, buffer, row)]);
                }""",
                [module_source(), data.meta["query"], list(data.query), pixels.tolist()],
            )
            np.testing.assert_allclose(found, wanted, atol=0.01 * np.abs(wanted).max())

    def test_dropping_works_and_what_is_no_image_is_refused(self, page):
        drop = """async (kind) => {
          const transfer = new DataTransfer();
          const canvas = new OffscreenCanvas(20, 20);
          canvas.getContext("2d").fillRect(0, 0, 9, 20);
          const file = kind === "image/png" ? await canvas.convertToBlob() : new Blob(["x"]);
          transfer.items.add(new File([file], "dropped", {type: kind}));
          document.querySelector(".mlx").dispatchEvent(
            new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
        }"""
        page.evaluate(drop, "text/plain")
        page.locator(".mlx-status", has_text="Only images").wait_for()
        page.evaluate(drop, "image/jpeg")  # which it is not
        page.locator(".mlx-status", has_text="not an image").wait_for()
        page.evaluate(drop, "image/png")
        page.locator(".mlx-query strong", has_text="Your image").wait_for()
        assert len(neighbors(page)) == 10

    def test_other_rows_than_pixels_offer_no_image(self, new_page, tmp_path, digits):
        features = np.log1p(digits.data[:60])
        lenses = ModularKernelPCA(2, 2, random_state=0).fit(features)
        path = explore(lenses, features, images=digits.images[:60], output=tmp_path / "x.html")
        assert opened(new_page(), path).locator("input[type=file]").count() == 0


def test_the_theme_of_the_notebook_wins_over_that_of_the_system(new_page, digits_page):
    page = opened(new_page(color_scheme="dark"), digits_page)
    page.locator(".mlx.mlx-dark").wait_for()
    for attribute, value, dark in [
        ("data-jp-theme-light", "true", False),
        ("data-jp-theme-light", "false", True),
        ("data-vscode-theme-kind", "vscode-light", False),
        ("data-vscode-theme-kind", "vscode-dark", True),
        ("class", "vscode-light", False),
        ("class", "vscode-high-contrast", True),
        ("data-theme", "light", False),
        ("class", "dark dark-theme", True),
    ]:
        page.evaluate("([name, value]) => document.body.setAttribute(name, value)", [attribute, value])
        page.locator(".mlx.mlx-dark" if dark else ".mlx:not(.mlx-dark)").wait_for()
        card = page.locator(".mlx").evaluate("n => getComputedStyle(n).getPropertyValue('--mlx-card')")
        assert card.strip() == ("#1b2027" if dark else "#ffffff")
        page.evaluate("(name) => document.body.removeAttribute(name)", attribute)


def views_of(lenses, X):
    return list(lenses.split(lenses.transform(X)).swapaxes(0, 1))


def contrast(first, second):
    """Contrast ratio of two colors by WCAG 2."""

    def luminance(color):
        parts = np.array([int(part, 16) / 255 for part in re.findall("..", color.lstrip("#"))])
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [
            0.2126, 0.7152, 0.0722,
        ]  # fmt: skip

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def test_hostile_strings_are_shown_as_they_are(new_page, tmp_path):
    rng = np.random.default_rng(0)
    n = 5 * len(HOSTILE)
    strings = HOSTILE * 5
    X = pd.DataFrame(rng.standard_normal((n, 4)), index=[f"{s} {i}" for i, s in enumerate(strings)])
    X.columns = HOSTILE[:4]
    lenses = ModularKernelPCA(2, 2, random_state=0).fit(X)
    table = pd.DataFrame(dict.fromkeys(HOSTILE, strings))
    path = explore(
        lenses, X, strings, text=strings, table=table, title=HOSTILE[1], output=tmp_path / "x.html"
    )
    page = opened(new_page(), path)  # which fails on any message on the console
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    assert page.title() == HOSTILE[1]
    assert page.locator("h1").text_content() == HOSTILE[1]
    marked = page.eval_on_selector_all(".mlx-chip.mlx-differs", "nodes => nodes.map((n) => n.textContent)")
    assert marked
    assert all(name.startswith("≠ ") for name in marked)  # not by color alone
    for row in range(len(HOSTILE)):
        page.get_by_role("searchbox").fill(str(row))
        page.keyboard.press("Enter")
        settled(page)
        assert page.locator(".mlx-query strong").text_content() == f"{strings[row]} {row}"
        assert page.locator(".mlx-query .mlx-text").text_content() == strings[row]
        assert page.locator(".mlx-query dt").all_text_contents() == HOSTILE
        assert page.locator(".mlx-query dd").all_text_contents() == [strings[row]] * len(HOSTILE)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download as CSV").click()
    names = [
        line["name"] for line in csv.DictReader(io.StringIO(waiting.value.path().read_text(), newline=""))
    ]
    assert len(names) == 10
    assert not any(name.startswith("=") for name in names)


@pytest.mark.parametrize("labels", ["none", "scale", "many"])
def test_data_without_images_and_other_labels(new_page, tmp_path, labels):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 5))
    y = {"none": None, "scale": np.r_[np.nan, X[1:, 0]], "many": np.arange(90) % 45}[labels]
    lenses = ModularAutoencoder(3, 2, random_state=0).fit(X)
    page = opened(new_page(), explore(lenses, X, y, output=tmp_path / "x.html"))
    assert neighbors(page) == expected(lenses.transform(X), 0)
    assert page.get_by_role("heading", name="Accuracy of the vote").count() == (labels == "many")


def test_long_and_right_to_left_names_neither_widen_the_page_nor_turn_the_sentence(new_page, tmp_path):
    X = np.random.default_rng(0).standard_normal((40, 6))
    long = "name_without_spaces" * 12
    ids = [f"\u202e{long}{row}" for row in range(40)]
    labels = [f"{long}{row % 2}" for row in range(40)]
    lenses = ModularKernelPCA(1, 2, random_state=0).fit(X)
    made = {
        "one.html": explore(lenses, X, labels, ids=ids, title=long, output=tmp_path / "one.html"),
        "two.html": explore(
            (long, X), labels=labels, ids=ids, compare=(long, X), output=tmp_path / "two.html"
        ),
    }
    for path in made.values():
        page = new_page(viewport={"width": 375, "height": 800})
        page.goto(path.as_uri())
        page.locator("[role=status] bdi").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        heights = page.eval_on_selector_all(".mlx-card", "n => n.map(card => card.offsetHeight)")
        assert max(heights, default=999) < 260
        assert page.locator("[role=status] bdi").first.text_content() == ids[0]
    assert page.locator("[role=status]").inner_text().endswith("10 of 10 neighbors are the same in both.")


def test_modules_of_fixed_diversity_have_no_slider(new_page, tmp_path):
    class Views:
        """Modules of different widths, by columns."""

        def fit(self, X):
            self.fitted_ = True
            return self

        def transform(self, X):
            return np.asarray(X)

        def split(self, Z):
            return [Z[:, :1], Z[:, 1:4]]

        def __sklearn_tags__(self):
            return ModularKernelPCA().__sklearn_tags__()

    X = np.random.default_rng(0).standard_normal((50, 4))
    page = opened(new_page(), explore(Views().fit(X), X, output=tmp_path / "x.html"))
    assert page.locator(".mlx-slider").count() == 0
    assert neighbors(page) == expected(X, 0)
    assert neighbors(page, ".mlx-module:nth-child(2) .mlx-chip") == expected(X[:, 1:], 0)
    with pytest.raises(ValueError, match="diversity of Views cannot be changed"):
        explore(Views().fit(X), X, diversities=[0.5], output=tmp_path / "y.html")


def test_the_same_module_runs_in_a_notebook_with_buffers_at_odd_offsets(new_page, lenses, digits):
    data = explorer_data(lenses, digits.data[:60], digits.target[:60], digits.images[:60])
    page = new_page()
    page.evaluate(
        """async ([source, meta, buffers]) => {
          const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
          const {default: explorer} = await import(url);
          const state = {meta, selected: 3, diversity: 0.9, switched_off: []}, listeners = {};
          for (const [name, bytes] of Object.entries(buffers)) {
            const shifted = new Uint8Array(bytes.length + 3);
            shifted.set(bytes, 1);
            state[name] = new DataView(shifted.buffer, 1, bytes.length);
          }
          window.model = {get: (n) => state[n], save_changes() { window.saved = {...state}; },
            set(n, v) { state[n] = v; listeners["change:" + n]?.forEach((f) => f()); },
            on(e, f) { (listeners[e] ??= []).push(f); },
            off(e, f) {
              listeners[e] = listeners[e].filter((g) => g !== f);
              window.removed = (window.removed ?? 0) + 1;
            }};
          window.stop = explorer.render({model: window.model, el: document.body});
        }""",
        [module_source(), data.meta,
         {name: list(getattr(data, name)) for name in BUFFERS}],
    )  # fmt: skip
    settled(page)
    Z = lenses.transform(digits.data[:60])
    assert neighbors(page) == expected(Z, 3)
    page.evaluate("model.set('selected', 7)")  # as Python would
    settled(page)
    assert neighbors(page) == expected(Z, 7)
    page.locator(".mlx-card").first.click()
    assert page.evaluate("saved.selected") == expected(Z, 7)[0]
    page.evaluate("stop()")
    assert page.evaluate("removed") == 4


def test_pages_are_small(lenses, digits):
    whole = ModularKernelPCA(10, 10, random_state=0).fit(digits.data)
    assert len(make_page(explorer_data(whole, digits.data, digits.target, digits.images))) < 2e6
