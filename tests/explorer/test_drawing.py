"""Colors have contrast in both themes, by WCAG 2: 3 for marks, 4.5 for text."""

import numpy as np
import pytest

from manylens import ModularAutoencoder, explore

LABELS = {
    "few": np.arange(90) % 10,
    "many": np.arange(90) % 40,
    "values": np.linspace(-1, 1, 90),
    "none": None,
}

# The rgb of a CSS color, whatever its notation.
RGB = """(node, property) => {
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  pen.fillStyle = getComputedStyle(node)[property];
  pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
}"""

PIXELS = """canvas => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
  copy.drawImage(canvas, 0, 0);
  return [...new Set(new Uint32Array(copy.getImageData(0, 0, canvas.width, canvas.height).data.buffer))];
}"""


def luminance(color):
    parts = np.asarray(color) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(first, second):
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def opened(page, path):
    page.goto(path.as_uri())
    page.wait_for_selector(".mlx-modules[aria-busy=false]")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("labels", LABELS)
def test_points_and_their_legend_have_contrast(new_page, tmp_path, labels, scheme):
    X = np.random.default_rng(0).standard_normal((90, 5))
    lenses = ModularAutoencoder(3, 2, random_state=0).fit(X)
    path = explore(lenses, X, LABELS[labels], output=tmp_path / "x.html")
    page = opened(new_page(color_scheme=scheme), path)
    card = page.locator(".mlx-panel").first.evaluate(RGB, "backgroundColor")
    swatches = [
        node.evaluate(RGB, "backgroundColor") for node in page.locator(".mlx-legend .mlx-swatch").all()
    ]
    assert len(swatches) == {"few": 10, "many": 40, "values": 3, "none": 0}[labels]
    for color in swatches:
        assert contrast(color, card) >= 3
    drawn = np.array(page.locator(".mlx-map canvas").first.evaluate(PIXELS), dtype=np.uint32)
    drawn = drawn.view(np.uint8).reshape(-1, 4)[:, :3]
    for (
        color
    ) in swatches:  # a point is blended with the paper: the legend shows its color, and both have contrast
        blended = 0.9 * np.array(color) + 0.1 * np.array(card)
        nearest = drawn[np.abs(drawn - blended).max(axis=1).argmin()]
        assert np.abs(nearest - blended).max() <= 3
        assert contrast(nearest, card) >= 3


def test_points_follow_a_change_of_the_theme(new_page, digits_page):
    page = opened(new_page(color_scheme="light"), digits_page)
    points = page.locator(".mlx-map canvas").first
    light = set(points.evaluate(PIXELS))
    page.emulate_media(color_scheme="dark")
    page.locator(".mlx.mlx-dark").wait_for()
    dark = set(points.evaluate(PIXELS))
    page.reload()
    page.wait_for_selector(".mlx-modules[aria-busy=false]")
    assert dark == set(points.evaluate(PIXELS))
    assert not light & dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_in_a_heat_map_have_contrast_at_every_value(new_page, tmp_path, scheme):
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((400, 3))
    layers = {
        f"{noise:.2f}": shared + noise * rng.standard_normal((400, 3)) for noise in np.linspace(0, 2, 12)
    }
    path = explore(layers, compare=dict(layers), output=tmp_path / "x.html")
    page = new_page(color_scheme=scheme, viewport={"width": 1600, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_selector(".mlx-value")
    cells = page.locator(".mlx-cell").all()
    texts = page.locator(".mlx-value").all()
    values = sorted(float(text.text_content()) for text in texts)
    assert len(cells) == len(texts) == 144
    assert max(np.diff(values)) < 0.1  # all parts of the scale are seen
    for cell, text in zip(cells, texts, strict=True):
        assert contrast(cell.evaluate(RGB, "fill"), text.evaluate(RGB, "fill")) >= 4.5


def test_names_of_files_break_between_their_parts(new_page, tmp_path):
    X = np.random.default_rng(0).standard_normal((40, 4))
    names = [f"photographs/{row:04d}_of_the_archive.png" for row in range(40)]
    lenses = ModularAutoencoder(2, 2, random_state=0).fit(X)
    path = explore(lenses, X, ids=names, output=tmp_path / "x.html")
    page = opened(new_page(viewport={"width": 375, "height": 800}), path)
    shown = page.locator(".mlx-card .mlx-name").all()
    assert all(name.text_content() in names for name in shown)
    lines = [line for name in shown for line in name.evaluate(LINES).split("\n")]
    assert len(lines) > len(shown)
    assert all(line[-1] in "/._" or line.endswith("png") for line in lines)


# The text of a node, with a line break wherever the browser breaks the line.
LINES = """node => {
  const range = document.createRange(), parts = [];
  let last = null;
  const walk = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    for (let i = 0; i < walk.currentNode.length; i++) {
      range.setStart(walk.currentNode, i); range.setEnd(walk.currentNode, i + 1);
      const { top } = range.getBoundingClientRect();
      if (last !== null && Math.abs(top - last) > 3) parts.push("\\n");
      last = top;
      parts.push(walk.currentNode.data[i]);
    }
  }
  return parts.join("");
}"""
