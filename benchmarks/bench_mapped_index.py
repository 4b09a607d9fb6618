"""A base of a million rows, searched from memory-mapped files."""

import tempfile

import numpy as np

from benchmarks.harness import Claim, Comparison, result
from manylens import ModularAutoencoder, ModuleNeighbors, retrieval_precision
from manylens.datasets import load_dataset

BLOCK = 50_000


class MappedMillion(Comparison):
    """1,000,000 x 784 rows (MNIST, moved by up to two pixels either way, with a little noise), saved, loaded
    as maps, 1,000 queries, 15 modules of 20."""

    alone = False
    needs = ("mnist",)
    contenders = ("ours", "exact")
    repeats = 2
    memory = ("ours",)  # the index takes a minute to make
    claims = (
        Claim("peak memory beyond the mapped files, MB", result("ours", "peak_mb"), at_most=200),
        Claim("share of the exact neighbours found by the default", result("ours", "same"), at_least=0.98),
    )

    def make_data(self):
        images = load_dataset("mnist").X
        n, rng = 5000 if self.quick else 1_000_000, np.random.default_rng(0)
        size = (5, 4) if self.quick else (15, 20)
        lenses = ModularAutoencoder(*size, diversity=1.0, random_state=0)
        lenses.fit(images[:60_000:6].astype(np.float32))
        indices = {"ours": ModuleNeighbors(lenses), "exact": ModuleNeighbors(lenses, method="exact")}
        for start in range(0, n, BLOCK):
            chosen = rng.permutation(60_000)[: min(BLOCK, n - start)]
            # One move for all rows of a block, in which an image comes once at most.
            moved = np.roll(images[chosen].reshape(-1, 28, 28), rng.integers(-2, 3, size=2), axis=(1, 2))
            noise = rng.standard_normal((len(chosen), images.shape[1]), dtype=np.float32)
            rows = moved.reshape(noise.shape) + 5 * noise
            for index in indices.values():
                index.partial_fit(rows)
        # Kept alive with the data, and removed with them.
        self.folder = tempfile.TemporaryDirectory()
        for name, index in indices.items():
            index.save(f"{self.folder.name}/{name}")
        queries = images[60_000:61_000].astype(np.float32)
        data = {name: ModuleNeighbors.load(f"{self.folder.name}/{name}") for name in indices}
        data["queries"], data["nearest"] = queries, data["exact"].kneighbors(queries)[1]
        return data

    def ours(self, data):
        return data["ours"].kneighbors(data["queries"])[1]

    def exact(self, data):
        return data["exact"].kneighbors(data["queries"])[1]

    def score(self, data, rows):
        return {"same": retrieval_precision(rows, data["nearest"])}
