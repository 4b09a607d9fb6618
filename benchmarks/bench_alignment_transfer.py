"""Do the scores rank feature sets as cross-validated linear models do?"""

import numpy as np
from scipy.stats import kendalltau, spearmanr
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.harness import Comparison
from manylens import rank_models
from manylens.datasets import load_dataset


class RankingQuality:
    """What both share: rank correlation of every score with five-fold accuracy of a ridge classifier."""

    contenders = ("cka", "logme", "h_score", "shrunk_h_score", "transrate")
    warm_up = False
    memory = False
    repeats = 1

    def make_data(self):
        models, y = self.make_models()
        accuracy = {
            name: cross_val_score(make_pipeline(StandardScaler(), RidgeClassifier()), X, y, cv=5).mean()
            for name, X in models.items()
        }
        return models, y, accuracy

    def rank(self, data, metric):
        return rank_models(data[0], data[1], metric, n_groups=0)

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

    def score(self, data, ranking):
        accuracy = [data[2][row.name] for row in ranking]
        scores = [row.score for row in ranking]
        return {
            "spearman": spearmanr(scores, accuracy).statistic,
            "kendall": kendalltau(scores, accuracy).statistic,
            "accuracy_of_first": accuracy[0],
            "best_accuracy": max(accuracy),
        }


class RankingOfDigitViews(RankingQuality, Comparison):
    """mfeat: six feature sets of 2,000 handwritten digits, ranked; against accuracy of a ridge classifier."""

    needs = ("mfeat_multiview",)

    def make_models(self):
        data = load_dataset("mfeat_multiview")
        step = 4 if self.quick else 1
        views = np.split(data.X.astype(np.float64), np.cumsum(data.view_dims)[:-1], axis=1)
        return {str(k): view[::step] for k, view in enumerate(views)}, data.y[::step]


class RankingOfDamagedEmbeddings(RankingQuality, Comparison):
    """Caltech-101 embeddings of EfficientNet-Lite0, their random projections and noised copies, ranked."""

    needs = ("caltech101_effnetlite0_emb",)

    def make_models(self):
        data = load_dataset("caltech101_effnetlite0_emb")
        X, y = data.X.astype(np.float32), data.y
        if self.quick:
            kept = np.isin(y, np.unique(y)[:10])
            X, y = X[kept][:, :200], y[kept]
        rng = np.random.default_rng(0)
        models = {"embedding": X}
        for width in (8, 16, 32, 64, 128, 256):
            projection = rng.standard_normal((X.shape[1], width)).astype(np.float32)
            models[f"projection to {width}"] = X @ projection / np.sqrt(width)
        for noise in (0.5, 1, 2, 4, 8):
            models[f"noise {noise}"] = X + noise * X.std() * rng.standard_normal(X.shape).astype(np.float32)
        return models, y
