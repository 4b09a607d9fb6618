"""Precision@10 by the number of workers that answer: modules against shards, with equal memory."""

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.harness import Claim, Comparison, curve, panel
from benchmarks.peers.cluster.answers import (
    means,
    precision_of_modules,
    precision_of_shards,
    random_subsets,
    standard_errors,
    true_neighbors,
)
from manylens import ModularKernelPCA
from manylens.baselines import PartitionKernelPCA, RandomKernelProjection
from manylens.datasets import load_dataset

N_WORKERS, WIDTH, NEIGHBORS = 15, 20, 10
ANSWERING = (15, 14, 13, 11, 8, 5, 3, 1)
LABELS = {
    "ours": "modules, diversity 1",
    "linear": "linear modules, diversity 1",
    "partition": "principal components, dealt at random",
    "random_projections": "random projections",
    "row_shards": "row shards",
    "linear_shards": "row shards, linear",
}


def lost(contender, answering):
    """Points of precision lost when only some of 15 workers answer."""

    def points(results):
        return 100 * (results[contender]["of 15"] - results[contender][f"of {answering}"])

    return points


def ahead(other, answering, contender="ours"):
    """Points of precision of our modules above another contender."""

    def points(results):
        return 100 * (results[contender][f"of {answering}"] - results[other][f"of {answering}"])

    return points


# The kernel of the modules that `DistributedNeighbors` fits if it is given none.
LINEAR_CLAIMS = (
    *(
        Claim(
            f"points by which linear modules exceed Gaussian ones with {answering} of 15 workers",
            ahead("ours", answering, "linear"),
            at_least=0.0,
            compared=("linear", "ours"),
        )
        for answering in (15, 8, 5)
    ),
    Claim(
        "points by which linear modules exceed row shards with 8 of 15 workers",
        ahead("linear_shards", 8, "linear"),
        at_least=15.0,
        compared=("linear", "linear_shards"),
    ),
)


class AnsweringCurve(Comparison):
    """Base of the curves: 15 workers, each with 20 coordinates of all rows, or all 300 coordinates of a
    fifteenth of the rows; neighbors of held-out queries, against those by the rows themselves. Computed in
    this process; `AnsweringOnProcesses` has the same on a cluster."""

    abstract = True
    alone = False
    memory = warm_up = False
    repeats = 1
    contenders = ("ours", "linear", "partition", "random_projections", "row_shards", "linear_shards")
    scores = ("of 8",)
    name = ""

    def parts(self):
        """Rows to fit on, rows of the base, and queries."""
        raise NotImplementedError

    def make_data(self):
        rows, base, queries = self.parts()
        n_draws = 2 if self.quick else 20
        return {
            "rows": rows,
            "base": base,
            "queries": queries,
            "truth": true_neighbors(queries, base, NEIGHBORS),
            "subsets": random_subsets(N_WORKERS, ANSWERING, n_draws, self.seed),
            "rank": 310 if self.quick else 1000,
        }

    def coordinates(self, data, kind, **settings):
        """Queries and base by module."""
        model = kind(N_WORKERS, WIDTH, rank=data["rank"], random_state=self.seed, **settings)
        model.fit(data["rows"])
        return [model.split(model.transform(data[part])) for part in ("queries", "base")]

    def of_modules(self, data, kind, **settings):
        """Precision by workers, each with one module; the embedded computation.

        `manylens.cluster` ranks by the same sums of squared distances, so its answers from the same modules
        are the same rows.
        """
        return precision_of_modules(*self.coordinates(data, kind, **settings), data["truth"], data["subsets"])

    def ours(self, data):
        return self.of_modules(data, ModularKernelPCA, diversity=1.0)

    def linear(self, data):
        return self.of_modules(data, ModularKernelPCA, diversity=1.0, kernel="linear")

    def partition(self, data):
        return self.of_modules(data, PartitionKernelPCA)

    def random_projections(self, data):
        return self.of_modules(data, RandomKernelProjection)

    def row_shards(self, data):
        return self.of_shards(data)

    def linear_shards(self, data):
        return self.of_shards(data, kernel="linear")

    def of_shards(self, data, **settings):
        """Precision by workers, each with all coordinates of a part of the rows."""
        found = self.coordinates(data, ModularKernelPCA, diversity=1.0, **settings)
        queries, base = (part.reshape(len(part), -1) for part in found)
        return precision_of_shards(queries, base, data["truth"], data["subsets"], self.seed, N_WORKERS)

    def score(self, data, outcome):
        return answering_scores(outcome)

    def measure(self):
        """Add the figure."""
        found = super().measure()
        figure = answering_panel(found["results"], ANSWERING, N_WORKERS)
        return found | {"figures": {f"{self.name}: precision@10": figure}}


def answering_scores(by_draw):
    """Means over draws of which workers answer, and their standard errors."""
    errors = standard_errors(by_draw)
    return {f"of {size}": value for size, value in means(by_draw).items()} | {
        f"of {size}, standard error": errors[size] for size in by_draw
    }


def answering_panel(results, sizes, n_workers):
    """One curve per contender over the number of workers that answer, two standard errors wide."""
    curves = {}
    for name, values in results.items():
        y = 100 * np.array([values[f"of {size}"] for size in sizes])
        error = 200 * np.array([values[f"of {size}, standard error"] for size in sizes])
        curves[LABELS[name]] = curve(sizes, y, y - error, y + error, style="o-")
    return panel(f"workers that answer, of {n_workers}", "precision (%)", curves)


class AnsweringCurveMNIST(AnsweringCurve):
    """MNIST: precision@10 against pixels by the number of 15 workers that answer, for 1,000 held-out queries
    and a base of 20,000 held-out rows; modules were fitted to 30,000 others. A worker holds one module of
    20 dimensions (or as many principal components or random projections), or a fifteenth of the rows. Means
    over 20 draws of which workers answer."""

    needs = ("mnist",)
    name = "MNIST"
    claims = (
        Claim(
            "points lost by modules with 8 of 15 workers", lost("ours", 8), at_most=5.0, compared=("ours",)
        ),
        Claim(
            "points lost by row shards with 8 of 15 workers",
            lost("row_shards", 8),
            at_least=20.0,
            compared=("row_shards",),
        ),
        Claim(
            "points by which modules exceed row shards with 8 of 15 workers",
            ahead("row_shards", 8),
            at_least=15.0,
            compared=("ours", "row_shards"),
        ),
        Claim(
            "points by which modules exceed dealt components with 5 of 15 workers",
            ahead("partition", 5),
            at_least=3.0,
            compared=("ours", "partition"),
        ),
        Claim(
            "points by which modules exceed random projections with 5 of 15 workers",
            ahead("random_projections", 5),
            at_least=1.0,
            compared=("ours", "random_projections"),
        ),
        *LINEAR_CLAIMS,
    )

    def parts(self):
        if self.quick:
            X = load_digits().data.astype(np.float32) / 16
            return X[:700], X[700:1700], X[1700:]
        X = load_dataset("mnist").X.astype(np.float32) / 255
        return X[:30_000], X[30_000:50_000], X[60_000:61_000]


class AnsweringCurveEmbeddings(AnsweringCurve):
    """Caltech-101, embeddings of 1,280 dimensions by EfficientNet-Lite0: the same curve for 677 held-out
    queries and a base of 4,000 held-out rows; modules were fitted to 4,000 others."""

    needs = ("caltech101_effnetlite0_emb",)
    name = "Caltech-101 embeddings"
    claims = (
        Claim(
            "points lost by modules with 8 of 15 workers", lost("ours", 8), at_most=5.0, compared=("ours",)
        ),
        Claim(
            "points by which modules exceed row shards with 8 of 15 workers",
            ahead("row_shards", 8),
            at_least=10.0,
            compared=("ours", "row_shards"),
        ),
        Claim(
            "points by which modules exceed dealt components with 5 of 15 workers",
            ahead("partition", 5),
            at_least=1.0,
            compared=("ours", "partition"),
        ),
        *LINEAR_CLAIMS,
    )

    def parts(self):
        X = load_dataset("caltech101_effnetlite0_emb").X.astype(np.float32)
        X = X[np.random.default_rng(self.seed).permutation(len(X))]
        if self.quick:
            X = X[:1600, :200]
            return X[:700], X[700:1500], X[1500:]
        return X[:4000], X[4000:8000], X[8000:]
