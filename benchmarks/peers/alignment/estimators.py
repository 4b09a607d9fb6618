"""Biased and unbiased estimates of alignment: what they rank first, weigh, and cost in accuracy."""

import numpy as np
from sklearn.linear_model import RidgeClassifierCV

from benchmarks.data.zoos import halves
from benchmarks.harness import Claim, Comparison
from benchmarks.peers.alignment.ranking import RankingQuality
from manylens import align_kernels
from manylens.datasets import load_dataset


def standardized(X):
    """Columns of unit variance, divided by the root of their number: kernels of trace n."""
    X = X.astype(np.float64)
    return (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-9) / np.sqrt(X.shape[1])


def digit_views(step=1):
    """Six feature sets of handwritten digits (mfeat), and the digits."""
    data = load_dataset("mfeat_multiview")
    views = np.split(data.X, np.cumsum(data.view_dims)[:-1], axis=1)
    return [standardized(view[::step]) for view in views], data.y[::step]


def object_views(n_classes):
    """The columns of an embedding of Caltech-101 in four sets of different width, and the classes."""
    data = load_dataset("caltech101_effnetlite0_emb")
    kept = np.isin(data.y, np.unique(data.y)[:n_classes])
    sets = np.split(data.X[kept], [20, 100, 400], axis=1)
    return [standardized(part) for part in sets], data.y[kept]


class RankWideNoise(RankingQuality, Comparison):
    """Six feature sets of 300 handwritten digits (mfeat) and three of noise (100, 1,000 and 10,000 columns),
    ranked; compared with the accuracy of a tuned linear model on other rows."""

    contenders = ("accuracy", "cka", "biased_cka", "logme", "shrunk_h_score")
    needs = ("mfeat_multiview",)
    claims = (
        Claim(
            "rank correlation of the unbiased score minus that of the biased one",
            lambda results: results["cka"]["spearman"] - results["biased_cka"]["spearman"],
            at_least=0,
        ),
    )

    def make_zoo(self):
        views, y = digit_views()
        models = {f"view {k}": view for k, view in enumerate(views)}
        rng = np.random.default_rng(1)
        for width in (100, 1000) if self.quick else (100, 1000, 10_000):
            models[f"noise {width}"] = rng.standard_normal((len(y), width), np.float32)
        return halves(models, y, 150 if self.quick else 300)

    def biased_cka(self, data):
        return self.rank(data, "biased-cka")


class WeightEstimators(Comparison):
    """Weights of feature sets of digits (mfeat) and objects (Caltech-101, 20 classes), with three sets of
    noise beside them, from few labeled rows: accuracy of a ridge classifier on the weighted sets, and the
    share of the weights on noise. Means of ten draws of 60 and of 200 rows."""

    contenders = ("unbiased", "biased", "unbiased_align", "biased_align", "uniform")
    needs = ("mfeat_multiview", "caltech101_effnetlite0_emb")
    alone = False
    warm_up = False
    memory = False
    repeats = 1
    claims = (
        Claim(
            "accuracy of unbiased weights minus that of biased ones",
            lambda results: results["unbiased"]["accuracy"] - results["biased"]["accuracy"],
            at_least=-0.005,
        ),
        Claim(
            "share of noise in unbiased alignments over that in biased ones",
            lambda results: results["unbiased_align"]["noise"] / results["biased_align"]["noise"],
            at_most=0.5,
        ),
    )

    def make_data(self):
        tasks = []
        for views, y in (digit_views(), object_views(6 if self.quick else 20)):
            rng = np.random.default_rng(0)
            noise = [standardized(rng.standard_normal((len(y), width))) for width in (20, 1000, 4000)]
            for n_rows in (60,) if self.quick else (60, 200):
                for draw in range(2 if self.quick else 10):
                    order = np.random.default_rng(draw).permutation(len(y))
                    tasks.append(([*views, *noise], y, order[:n_rows], order[n_rows:][:800]))
        return tasks

    def weigh(self, data, method, estimator):
        return [
            align_kernels([view[train] for view in views], y[train], method=method, estimator=estimator)
            for views, y, train, _ in data
        ]

    def unbiased(self, data):
        return self.weigh(data, "alignf", "unbiased")

    def biased(self, data):
        return self.weigh(data, "alignf", "biased")

    def unbiased_align(self, data):
        return self.weigh(data, "align", "unbiased")

    def biased_align(self, data):
        return self.weigh(data, "align", "biased")

    def uniform(self, data):
        return self.weigh(data, "uniform", "biased")

    def score(self, data, found):
        accuracies, noise = [], []
        for (views, y, train, test), weights in zip(data, found, strict=True):
            Z = np.hstack([np.sqrt(weight) * view for weight, view in zip(weights, views, strict=True)])
            model = RidgeClassifierCV(np.logspace(-4, 3, 8)).fit(Z[train], y[train])
            accuracies.append(model.score(Z[test], y[test]))
            noise.append(weights[-3:].sum() / weights.sum())
        return {"accuracy": float(np.mean(accuracies)), "noise": float(np.mean(noise))}
