"""The explorer in headless Chromium: from a movement of the slider to the neighbors on the screen."""

import importlib.util
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import ModularKernelPCA, explore

MOVES = 40
QUESTIONS = 20
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# From the event to the end of the frame in which map, neighbors by all modules and charts are new, and to the
# neighbors by each module.
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
SHOWN = "nodes => nodes.map(node => Number(node.dataset.row))"


class ExplorerSpeed(Comparison):
    """Ten classes in 60 dimensions, 10 modules of 10 dimensions: milliseconds from a movement of the slider
    to the end of the frame that shows the new map and neighbors, median of 40 movements, in headless Chromium
    of 1280 x 1000 pixels; `each_module` is the time to the lists of all modules, `exact` the share of the
    rows shown at the last diversity that an exact search by the lenses finds. `digits` is the page of the
    1,797 digits with images."""

    contenders = ("rows_10000", "rows_100000", "digits")
    repeats = 1
    warm_up = False
    memory = False
    claims = (
        Claim("ms from slider to neighbors, 10,000 rows", result("rows_10000", "slider_ms"), at_most=50),
        Claim("ms from slider to neighbors, 100,000 rows", result("rows_100000", "slider_ms"), at_most=150),
        Claim("share of exact neighbors, 100,000 rows", result("rows_100000", "exact"), at_least=1),
        Claim("megabytes of the page of the digits", result("digits", "megabytes"), at_most=2),
    )

    def __init__(self, quick=False):
        super().__init__(quick)
        if quick:
            self.contenders = ("rows_10000", "digits")
            self.claims = tuple(c for c in self.claims if c.measure.contender in self.contenders)

    @classmethod
    def left_out(cls):
        """Why the benchmark cannot run here."""
        if CHROMIUM is None:
            return "chromium is not installed"
        return "" if importlib.util.find_spec("playwright") else "playwright is not installed"

    def make_data(self):
        return None

    def rows_10000(self, data):
        return self.classes(10_000)

    def rows_100000(self, data):
        return self.classes(100_000)

    def digits(self, data):
        digits = load_digits()
        lenses = ModularKernelPCA(random_state=self.seed).fit(digits.data)
        return moved(lenses, digits.data, digits.target, digits.images, self.moves())

    def moves(self):
        return np.random.default_rng(self.seed).uniform(0.5, 1, 5 if self.quick else MOVES).round(3)

    def classes(self, n):
        rng = np.random.default_rng(self.seed)
        labels = rng.integers(10, size=n)
        X = rng.standard_normal((10, 60))[labels] + rng.standard_normal((n, 60))
        lenses = ModularKernelPCA(rank=500, random_state=self.seed).fit(X[:3000])
        return moved(lenses, X, labels, None, self.moves())

    def score(self, data, outcome):
        return outcome


class ExplorerServer(Comparison):
    """A million rows of 100 classes on 100 coordinates of 10 modules, as `manylens explore --serve` answers:
    milliseconds from a question (another row at another diversity, from 0.5 to 1) to its exact neighbors,
    median of 20. `server` abandons rows by their leading coordinates; `all_distances` is the plain scan
    with numpy in float32. `each_module_ms` is the time to the neighbors by each of the 10 modules, once the
    modules of that diversity are mapped, and `exact` the share of neighbors that a scan in float64 finds."""

    contenders = ("server", "all_distances")
    repeats = 1
    warm_up = False
    memory = False
    claims = (
        Claim("ms to the neighbors of a row", result("server", "median_ms"), at_most=100),
        Claim(
            "time of a plain scan relative to it", ratio("all_distances", "server", "median_ms"), at_least=2
        ),
        Claim("share of exact neighbors", result("server", "exact"), at_least=1),
    )

    def make_data(self):
        from manylens.explorer.served_neighbors import ExplorerBackend

        n = 20_000 if self.quick else 1_000_000
        rng = np.random.default_rng(self.seed)
        labels = rng.integers(100, size=n)
        X = rng.standard_normal((n, 60), dtype=np.float32)
        X += rng.standard_normal((100, 60), dtype=np.float32)[labels]
        lenses = ModularKernelPCA(rank=120, random_state=self.seed).fit(X[:3000])
        backend = ExplorerBackend(lenses, X, labels, diversities=[0.5, 1])
        asked = [
            (int(row), weights_at(lenses, diversity, backend.k))
            for row, diversity in zip(
                rng.integers(n, size=QUESTIONS), rng.uniform(0.5, 1, QUESTIONS), strict=True
            )
        ]
        return backend, backend.coordinates, asked

    def server(self, data):
        backend, C, asked = data
        backend.neighbors({"row": 0, "weights": asked[0][1].tolist(), "each": True})  # compiles, maps a stop
        times, each, exact = [], [], []
        for row, w in asked:
            request = {"row": row, "weights": w.tolist()}
            start = time.perf_counter()
            found = backend.neighbors(request)["together"]
            times.append(time.perf_counter() - start)
            start = time.perf_counter()
            backend.neighbors({**request, "each": True})
            each.append(time.perf_counter() - start)
            exact.append(len({*found} & {*exact_neighbors(C, w, row)}) / len(found))
        return {**in_ms("median_ms", times), **in_ms("each_module_ms", each), "exact": float(np.mean(exact))}

    def all_distances(self, data):
        _, C, asked = data
        times = []
        for row, w in asked:
            start = time.perf_counter()
            difference = C - C[row]
            difference *= difference
            np.argpartition(difference @ w.astype(np.float32), 10)
            times.append(time.perf_counter() - start)
        return in_ms("median_ms", times)

    def score(self, data, outcome):
        return outcome


def weights_at(lenses, diversity, k):
    """Weights (k,) of the composite distance at a diversity."""
    at = lenses.with_diversity(float(diversity))
    W = at.weights_.reshape(*at.module_shape_, -1)[:, :, :k]
    return np.einsum("mhi,mhi->i", W, W) / len(W)


def exact_neighbors(C, w, row):
    """The ten nearest other rows, from all distances in float64, block by block."""
    center = C[row].astype(float)
    blocks = [((C[i : i + 8192].astype(float) - center) ** 2) @ w for i in range(0, len(C), 8192)]
    squared = np.concatenate(blocks)
    squared[row] = np.inf
    return np.argsort(squared)[:10].tolist()


def in_ms(name, seconds):
    """A median in milliseconds."""
    return {name: 1000 * statistics.median(seconds)}


def moved(lenses, X, labels, images, diversities):
    """Write a page, open it, move its slider; return times, the share of exact neighbors and the size."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = explore(
            lenses, X, labels, images, diversities=[0.5, 0.9, 1], output=Path(folder) / "page.html"
        )
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            page.set_default_timeout(120_000)
            page.goto(path.as_uri())
            page.wait_for_selector(".mlx-modules[aria-busy=false]")
            times = [page.evaluate(MOVE, float(diversity)) for diversity in diversities]
            shown = page.eval_on_selector_all(".mlx-card", SHOWN)
        finally:
            browser.close()
        Z = lenses.with_diversity(float(diversities[-1])).transform(X)
        near = NearestNeighbors(algorithm="brute").fit(Z).kneighbors(Z[:1], 11, return_distance=False)[0, 1:]
        frames, modules = zip(*times, strict=True)
        return {
            "slider_ms": statistics.median(frames),
            "each_module_ms": statistics.median(modules),
            "exact": len({*shown} & {*near.tolist()}) / len(shown),
            "megabytes": path.stat().st_size / 1e6,
        }
