"""Draw the explorer: `python tools/picture_explorer.py` writes docs/figures/explorer*.png.

It needs playwright, pillow and chromium.
"""

import shutil
import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from sklearn.datasets import load_digits

from manylens import NCA, ModularKernelPCA, explore

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
LARGEST = 300_000  # bytes


def main() -> None:
    """Write both pages, open them in the states of the pictures, and save what a browser shows."""
    digits = load_digits()
    X, y, images = digits.data, digits.target, digits.images
    lenses = ModularKernelPCA(n_modules=8, n_components=10, diversity=0.95, random_state=0).fit(X)
    before = {"pixels": X, "kernel PCA": lenses.transform(X)}
    nca = NCA(n_components=10, max_iter=30, random_state=0).fit(X, y)
    FIGURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        one = explore(
            lenses, X, y, images, n_neighbors=9, title="Digits by eight modules",
            output=Path(folder) / "one.html"
        )  # fmt: skip
        page.goto(f"{one.as_uri()}#row={hard_row(lenses.transform(X), y)}&diversity=0.95&off=2")
        page.wait_for_selector(".mlx-modules[aria-busy=false]")
        save(page, "explorer.png", 1240)
        two = explore(
            ("before", before), labels=y, images=images, compare=("after NCA", nca.transform(X)),
            title="Digits before and after metric learning", output=Path(folder) / "two.html",
        )  # fmt: skip
        page.goto(f"{two.as_uri()}#a=1")
        page.wait_for_selector(".mlx-movers li")
        page.locator(".mlx-movers button").nth(3).click()
        save(page, "explorer-comparison.png", 1200)
        browser.close()


def hard_row(Z: np.ndarray, y: np.ndarray) -> int:
    """The first row whose ten neighbors are of its own label, but for three."""
    squared = (Z**2).sum(axis=1)
    distances = squared[:, None] + squared - 2 * Z @ Z.T
    np.fill_diagonal(distances, np.inf)
    same = (y[np.argsort(distances, axis=1)[:, :10]] == y[:, None]).sum(axis=1)
    return int(np.flatnonzero(same == 7)[0])


def save(page: Page, name: str, height: int) -> None:
    """Save the top of a page with 256 colors or fewer, so that the file stays small."""
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 0)")  # the controls are sticky
    page.wait_for_timeout(500)
    width = 1280
    shot = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
    picture = Image.open(BytesIO(shot)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(FIGURES / name, optimize=True)
    size = (FIGURES / name).stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{name} takes {size:,} bytes, more than {LARGEST:,}: make the picture smaller.")
    print(f"{FIGURES / name}: {size:,} bytes")


if __name__ == "__main__":
    main()
