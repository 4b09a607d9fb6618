"""Whether model-ranking scores order feature sets as cross-validated linear models do."""

import warnings

import numpy as np
from scipy.stats import kendalltau, spearmanr
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data.network_features import (
    DIGITS,
    FEW_DIGITS,
    FEW_OBJECTS,
    OBJECTS,
    network_features,
    reason_to_leave_out,
)
from benchmarks.harness import Claim, Comparison, ratio
from manylens import rank_models
from manylens.datasets import load_dataset


class RankingQuality:
    """Base: rank correlation of every score with the five-fold accuracy of a ridge classifier."""

    contenders = ("cka", "logme", "h_score", "shrunk_h_score", "transrate")
    alone = False
    warm_up = False
    memory = False
    repeats = 1

    def make_data(self):
        models, y = self.make_models()
        folds = 2 if self.quick else 5
        accuracy = {
            name: cross_val_score(make_pipeline(StandardScaler(), RidgeClassifier()), X, y, cv=folds).mean()
            for name, X in models.items()
        }
        return models, y, accuracy

    def rank(self, data, metric):
        return rank_models(data[0], data[1], metric, n_groups=0)

    def score(self, data, ranking):
        accuracy = [data[2][row.name] for row in ranking]
        scores = [row.score for row in ranking]
        return {
            "spearman": spearmanr(scores, accuracy).statistic,
            "kendall": kendalltau(scores, accuracy).statistic,
            "accuracy_of_first": accuracy[0],
            "best_accuracy": max(accuracy),
        }

    def cka(self, data):
        return self.rank(data, "cka")

    def logme(self, data):
        return self.rank(data, "logme")

    def h_score(self, data):
        return self.rank(data, "h-score")

    def shrunk_h_score(self, data):
        return self.rank(data, "shrunk-h-score")

    def transrate(self, data):
        return self.rank(data, "transrate")


class RankDigitViews(RankingQuality, Comparison):
    """Six feature sets of 2,000 handwritten digits (mfeat), ranked; compared with the accuracy of a ridge
    classifier on each."""

    needs = ("mfeat_multiview",)

    def make_models(self):
        data = load_dataset("mfeat_multiview")
        step = 4 if self.quick else 1
        views = np.split(data.X.astype(np.float64), np.cumsum(data.view_dims)[:-1], axis=1)
        return {str(k): view[::step] for k, view in enumerate(views)}, data.y[::step]


class RankNoisyEmbeddings(RankingQuality, Comparison):
    """Caltech-101 embeddings of EfficientNet-Lite0, their random projections and noisy copies, ranked."""

    needs = ("caltech101_effnetlite0_emb",)

    def make_models(self):
        data = load_dataset("caltech101_effnetlite0_emb")
        X, y = data.X.astype(np.float32), data.y
        if self.quick:
            kept = np.isin(y, np.unique(y)[:6])
            X, y = X[kept][:, :100], y[kept]
        rng = np.random.default_rng(0)
        models = {"embedding": X}
        for width in (8, 16, 32, 64, 128, 256):
            projection = rng.standard_normal((X.shape[1], width)).astype(np.float32)
            models[f"projection to {width}"] = X @ projection / np.sqrt(width)
        for noise in (0.5, 1, 2, 4, 8):
            models[f"noise {noise}"] = X + noise * X.std() * rng.standard_normal(X.shape).astype(np.float32)
        return models, y


class RankNetworkLayers(RankingQuality, Comparison):
    """The 17 layers of EfficientNet-Lite0 (ImageNet weights), averaged over positions, for 6,000 rows of
    CIFAR-10 (re-encoded as JPEG, 128 pixels), ranked; compared with the accuracy of a ridge classifier on
    each layer."""

    needs: tuple[str, ...] = ("cifar10_jpg_12k",)
    task, quick_task = OBJECTS, FEW_OBJECTS

    @classmethod
    def left_out(cls):
        return reason_to_leave_out()

    def make_models(self):
        features = network_features(self.quick_task if self.quick else self.task)
        return features.pooled[0], features.y[0]  # only the training rows


class RankNetworkLayersForDigits(RankNetworkLayers):
    """The same 17 layers for 3,000 rows of MNIST as RGB at 64 pixels, a task for which the last layers
    are not the best; compared with the accuracy of a ridge classifier on each layer."""

    needs = ("mnist",)
    task, quick_task = DIGITS, FEW_DIGITS


class RankPretrainedNetworks(RankingQuality, Comparison):
    """Networks pretrained on some digits, ranked for classifying the others; includes LEEP and NCE.

    Twelve networks with one hidden layer, trained on two to five of the digits 0 to 4 for one to thirty
    epochs. Features are the hidden units, and source probabilities the outputs, for rows with the digits
    5 to 9.
    """

    contenders = (*RankingQuality.contenders, "leep", "nce")
    needs = ("mnist",)

    def make_models(self):
        data = load_dataset("mnist")
        X, y = data.X[: data.n_train] / np.float32(255), data.y[: data.n_train].astype(int)
        n_source, n_target = (400, 300) if self.quick else (5000, 4000)
        target = np.flatnonzero(y >= 5)[:n_target]
        models, self.probabilities = {}, {}
        for classes in (2, 5) if self.quick else (2, 3, 5):
            source = np.flatnonzero(y < classes)[:n_source]
            for passes in (1, 3) if self.quick else (1, 3, 10, 30):
                network = MLPClassifier((100,), max_iter=passes, random_state=0, batch_size=100)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)  # few epochs are intended
                    network.fit(X[source], y[source])
                name = f"{classes} digits, {passes} passes"
                models[name] = np.maximum(X[target] @ network.coefs_[0] + network.intercepts_[0], 0)
                self.probabilities[name] = network.predict_proba(X[target])
        return models, y[target]

    def leep(self, data):
        return rank_models(self.probabilities, data[1], "leep", n_groups=0)

    def nce(self, data):
        return rank_models(self.probabilities, data[1], "nce", n_groups=0)


def logme_as_published(F, y, steps=11):
    """LogME as published: evidence of a Bayesian linear model per class, by fixed-point iteration."""
    n, d = F.shape
    u, s, _ = np.linalg.svd(F, full_matrices=True)
    s = s[:, np.newaxis]
    sigma = s**2
    evidences = []
    for c in np.unique(y):
        target = (y == c).astype(float)
        x = u.T @ target[:, np.newaxis]
        x2 = x**2
        left = x2[len(s) :].sum()
        alpha, beta = 1.0, 1.0
        for _ in range(steps):
            t = alpha / beta
            gamma = (sigma / (sigma + t)).sum()
            m2 = (sigma * x2[: len(s)] / (t + sigma) ** 2).sum()
            residual = (x2[: len(s)] / (1 + sigma / t) ** 2).sum() + left
            alpha = gamma / (m2 + 1e-5)
            beta = (n - gamma) / (residual + 1e-5)
            if abs(alpha / beta - t) / t <= 1e-3:
                break
        evidence = d / 2 * np.log(alpha) + n / 2 * np.log(beta) - 0.5 * np.sum(np.log(alpha + beta * sigma))
        evidence += -beta / 2 * residual - alpha / 2 * m2 - n / 2 * np.log(2 * np.pi)
        evidences.append(evidence / n)
    return float(np.mean(evidences))


class PeerLogME(Comparison):
    """LogME of 64 features of 1,797 digits: `rank_models(metric="logme")` against the published formula."""

    contenders = ("ours", "published")
    memory = False
    claims = (
        Claim("times as fast as the published code", ratio("published", "ours"), at_least=1),
        Claim(
            "difference between the scores",
            lambda results: abs(results["ours"]["logme"] - results["published"]["logme"]),
            at_most=1e-2,
        ),
    )

    def make_data(self):
        X, y = load_digits(return_X_y=True)
        return (X[:300], y[:300]) if self.quick else (X, y)

    def ours(self, data):
        return rank_models({"digits": data[0]}, data[1], "logme", n_groups=0)[0].score

    def published(self, data):
        return logme_as_published(*data)

    def score(self, data, found):
        return {"logme": found}
