"""Measure the explorer in headless Chromium: `python tools/measure_explorer.py [ROWS]`, on an idle machine.

Prints the median time from a movement of the slider to the next frame (map, neighbors by all modules, charts)
and to the neighbors by each module, for 10 modules of 10 dimensions.
"""

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from manylens import ModularKernelPCA, explore

MOVE = """async (diversity) => {
  const slider = document.querySelector(".mlx-slider"), start = performance.now();
  slider.value = diversity;
  slider.dispatchEvent(new Event("input"));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const frame = performance.now() - start;
  const lists = document.querySelector(".mlx-modules");
  while (lists.ariaBusy !== "false") await new Promise((done) => setTimeout(done, 1));
  return [frame, performance.now() - start];
}"""


def main(n_rows: int) -> None:
    """Write a page of ten Gaussian classes, open it and move the slider 40 times."""
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=n_rows)
    X = rng.standard_normal((10, 60))[labels] + rng.standard_normal((n_rows, 60))
    lenses = ModularKernelPCA(rank=500, random_state=0).fit(X[:3000])
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = explore(lenses, X, labels, output=Path(folder) / "page.html")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(path.as_uri())
        page.wait_for_selector(".mlx-modules[aria-busy=false]")
        times = [page.evaluate(MOVE, d) for d in rng.uniform(0.5, 1, 40)]
        print(f"{n_rows:,} rows, page of {path.stat().st_size / 1e6:.1f} MB")
        for name, column in zip(
            ("next frame", "neighbors by each module"), zip(*times, strict=True), strict=True
        ):
            print(
                f"slider to {name}: median {statistics.median(column):.0f} ms, fastest {min(column):.0f} ms"
            )
        browser.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
