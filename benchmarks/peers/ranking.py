"""Do the scores rank feature sets as cross-validated linear models do?"""

import warnings

import numpy as np
from scipy.stats import kendalltau, spearmanr
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
from benchmarks.harness import Comparison
from manylens import rank_models
from manylens.datasets import load_dataset


class RankingQuality:
    """What they share: rank correlation of every score with five-fold accuracy of a ridge classifier."""

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


class RankingOfNetworkLayers(RankingQuality, Comparison):
    """The 17 layers of EfficientNet-Lite0 (ImageNet weights), averaged over places, for 6,000 rows of
    CIFAR-10 re-encoded as JPEG at 128 pixels, ranked; against accuracy of a ridge classifier on each."""

    needs: tuple[str, ...] = ("cifar10_jpg_12k",)
    task, quick_task = OBJECTS, FEW_OBJECTS

    @classmethod
    def left_out(cls):
        return reason_to_leave_out()

    def make_models(self):
        features = network_features(self.quick_task if self.quick else self.task)
        return features.pooled[0], features.y[0]  # the training rows; those for tests are not looked at


class RankingOfNetworkLayersForDigits(RankingOfNetworkLayers):
    """The same 17 layers for 3,000 rows of MNIST as RGB at 64 pixels, where the last layers are not the best;
    against accuracy of a ridge classifier on each layer."""

    needs = ("mnist",)
    task, quick_task = DIGITS, FEW_DIGITS


class RankingOfPretrainedNetworks(RankingQuality, Comparison):
    """Networks pretrained on some digits, ranked for telling the others apart; LEEP and NCE take part.

    Twelve networks of one hidden layer, trained on two to five of the digits 0 to 4 for one to thirty passes;
    features are the hidden units, and source probabilities the outputs, for rows with the digits 5 to 9.
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
                    warnings.simplefilter("ignore", ConvergenceWarning)  # few passes are the point
                    network.fit(X[source], y[source])
                name = f"{classes} digits, {passes} passes"
                models[name] = np.maximum(X[target] @ network.coefs_[0] + network.intercepts_[0], 0)
                self.probabilities[name] = network.predict_proba(X[target])
        return models, y[target]

    def leep(self, data):
        return rank_models(self.probabilities, data[1], "leep", n_groups=0)

    def nce(self, data):
        return rank_models(self.probabilities, data[1], "nce", n_groups=0)
