"""Search of a million rows in memory-mapped files."""

import tempfile

import numpy as np

from benchmarks.harness import Claim, Comparison, result
from manylens import ModularAutoencoder, ModuleNeighbors, retrieval_precision
from manylens.datasets import load_dataset

BLOCK = 50_000
QUERIES = 500


def moved_with_noise(images, chosen, rng):
    """Images shifted by up to two pixels in each direction, with noise on every pixel."""
    moved = np.roll(images[chosen].reshape(-1, 28, 28), rng.integers(-2, 3, size=2), axis=(1, 2))
    noise = rng.standard_normal((len(chosen), images.shape[1]), dtype=np.float32)
    return moved.reshape(noise.shape) + 5 * noise


class MemoryMappedSearch(Comparison):
    """1,000,000 x 784 rows (MNIST, shifted by up to two pixels, with a little noise), saved and loaded as
    memory maps, 15 modules of 20. `ours` is the default with 500 more such rows as queries; `clean`
    queries with 500 unchanged test images, a distribution that the base does not have; `tuned` does the
    same after `tune` with 256 others."""

    alone = False
    needs = ("mnist",)
    contenders = ("ours", "clean", "tuned", "exact")
    repeats = 2
    memory = ("ours",)  # building the index takes a minute
    claims = (
        Claim("peak memory in MB beyond the mapped files", result("ours", "peak_mb"), at_most=200),
        Claim(
            "fraction of the exact neighbors found by default",
            result("ours", "exact_neighbors_found"),
            at_least=0.98,
        ),
        Claim(
            "fraction found for queries from another distribution, after `tune`",
            result("tuned", "exact_neighbors_found"),
            at_least=0.98,
        ),
    )

    def make_data(self):
        images = load_dataset("mnist").X
        n, rng = 5000 if self.quick else 1_000_000, np.random.default_rng(0)
        size = (5, 4) if self.quick else (15, 20)
        lenses = ModularAutoencoder(*size, diversity=1.0, random_state=0)
        lenses.fit(images[:60_000:6].astype(np.float32))
        indices = {"ours": ModuleNeighbors(lenses), "exact": ModuleNeighbors(lenses, method="exact")}
        for start in range(0, n, BLOCK):
            # Each image occurs at most once per block.
            rows = moved_with_noise(images, rng.permutation(60_000)[: min(BLOCK, n - start)], rng)
            for index in indices.values():
                index.partial_fit(rows)
        # Deleted together with the data.
        self.folder = tempfile.TemporaryDirectory()
        for name, index in indices.items():
            index.save(f"{self.folder.name}/{name}")
        del indices
        data = {name: ModuleNeighbors.load(f"{self.folder.name}/{name}") for name in ("ours", "exact")}
        clean = images[60_000:].astype(np.float32)
        data["tuned"] = ModuleNeighbors.load(f"{self.folder.name}/ours").tune(clean[QUERIES : QUERIES + 256])
        data["alike"] = moved_with_noise(images, rng.permutation(60_000)[:QUERIES], rng)
        data["clean"] = clean[:QUERIES]
        data["nearest"] = {kind: data["exact"].kneighbors(data[kind])[1] for kind in ("alike", "clean")}
        return data

    def ours(self, data):
        return data["ours"].kneighbors(data["alike"])[1], "alike"

    def exact(self, data):
        return data["exact"].kneighbors(data["alike"])[1], "alike"

    def clean(self, data):
        return data["ours"].kneighbors(data["clean"])[1], "clean"

    def tuned(self, data):
        return data["tuned"].kneighbors(data["clean"])[1], "clean"

    def score(self, data, answer):
        rows, kind = answer
        return {"exact_neighbors_found": retrieval_precision(rows, data["nearest"][kind])}
