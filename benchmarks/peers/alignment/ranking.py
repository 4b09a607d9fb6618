"""Whether model-ranking scores order feature sets as tuned linear models do on new rows."""

import warnings

import numpy as np
from scipy.stats import spearmanr, weightedtau
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegressionCV, RidgeClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data import zoos
from benchmarks.data.network_features import reason_to_leave_out
from benchmarks.harness import Claim, Comparison, ratio
from manylens import rank_models


def probe_hits(train, y_train, test, y_test, quick):
    """Held-out rows that a ridge and a logistic regression on standardized columns predict, (2, m).

    Penalties are chosen by cross-validation on the training rows.
    """
    ridge = RidgeClassifierCV(np.logspace(-1, 5, 13))
    logistic = LogisticRegressionCV(
        l1_ratios=(0.0,), Cs=[1e-3, 1e-2, 1e-1, 1.0][:: 2 if quick else 1], cv=2 if quick else 3, max_iter=100
    )
    hits = []
    for model in (ridge, logistic):
        with warnings.catch_warnings():
            # 100 steps are enough to tell models apart
            warnings.simplefilter("ignore", (ConvergenceWarning, FutureWarning))
            found = make_pipeline(StandardScaler(), model).fit(train, y_train)
        hits.append(found.predict(test) == y_test)
    return np.array(hits)


def accuracies(hits, rows=slice(None)):
    """Accuracy of the better linear model for every feature set, from hits (p, 2, m)."""
    return hits[:, :, rows].mean(axis=2).max(axis=1)


def tau_over_samples(scores, hits, n_samples=200):
    """Weighted tau with the accuracy on bootstrap samples of the held-out rows, (n_samples,).

    The samples are the same for all scores, so that their differences can be compared.
    """
    rng = np.random.default_rng(0)
    m = hits.shape[2]
    samples = (accuracies(hits, rng.integers(m, size=m)) for _ in range(n_samples))
    return np.array([weightedtau(scores, truth).statistic for truth in samples])


def other_scores(results):
    """Names of the scores that the default is compared with: not its parts, nor scikit-learn's ridge."""
    return [name for name in results if name not in ("accuracy", "ridge", "knn", "ridge_classifier_cv")]


def shortfall(results):
    """Weighted tau of the default, less that of the best other score."""
    best = max(results[name]["weighted_tau"] for name in other_scores(results))
    return results["accuracy"]["weighted_tau"] - best


def gain_by_chance(results):
    """What the best other score would gain over the default on average if it were only as good.

    The mean over bootstrap samples of the held-out rows of the largest difference, each less its own mean;
    that the models of a zoo are also a sample is not counted. Scores that are worse than the default by more
    than two standard errors do not take part.
    """
    samples = np.array([results[name]["samples"] for name in other_scores(results)])
    gains = samples - results["accuracy"]["samples"]
    means, errors = gains.mean(axis=1), gains.std(axis=1, ddof=1)
    gains = (gains - means[:, np.newaxis])[means + 2 * errors >= 0]
    return float(gains.max(axis=0).mean()) if len(gains) else 0.0


class RankingQuality:
    """Base: weighted Kendall tau of every score with the held-out accuracy of a tuned linear model.

    Models are ranked by the training rows. The standard error of tau is over bootstrap samples of the
    held-out rows; `ceiling` is the mean tau of the held-out accuracies with those of such a sample, which
    no score can be expected to exceed by much. The best of seven scores on one zoo is also the luckiest: what
    it gains by chance is computed from the same samples. The time of a score is that of ranking the whole
    zoo, beside that of `RidgeClassifierCV` on the same standardized columns.
    """

    contenders = (
        *("accuracy", "ridge", "knn", "cka", "logme", "h_score", "shrunk_h_score", "sfda", "nleep"),
        *("transrate", "ridge_classifier_cv"),
    )
    alone = False
    warm_up = False
    memory = False
    repeats = 1
    claims = (
        Claim(
            "weighted tau of the default, less that of the best other score",
            shortfall,
            at_least=-0.02,
        ),
        Claim(
            "the same, plus what the best of these scores would gain by chance if they were only as good",
            lambda results: shortfall(results) + gain_by_chance(results),
            at_least=-0.02,
        ),
        Claim(
            "time of the default relative to RidgeClassifierCV",
            ratio("accuracy", "ridge_classifier_cv"),
            at_most=1.5,
        ),
    )

    def make_data(self):
        zoo = self.make_zoo()
        hits = {
            name: probe_hits(X, zoo.y_train, zoo.test[name], zoo.y_test, self.quick)
            for name, X in zoo.train.items()
        }
        return zoo, hits

    def rank(self, data, metric):
        return {row.name: row.score for row in rank_models(data[0].train, data[0].y_train, metric)}

    def score(self, data, found):
        names = list(data[1])
        scores, hits = [found[name] for name in names], np.array([data[1][name] for name in names])
        truth, samples = accuracies(hits), tau_over_samples(scores, hits)
        return {
            "weighted_tau": weightedtau(scores, truth).statistic,
            "standard_error_of_tau": float(np.std(samples, ddof=1)),
            "ceiling": float(np.mean(tau_over_samples(truth, hits))),
            "spearman": spearmanr(scores, truth).statistic,
            "accuracy_of_first": truth[int(np.argmax(scores))],
            "best_accuracy": max(truth),
            "samples": samples.round(4).tolist(),
        }

    def accuracy(self, data):
        return self.rank(data, "accuracy")

    def ridge(self, data):
        return self.rank(data, "ridge")

    def knn(self, data):
        return self.rank(data, "knn")

    def cka(self, data):
        return self.rank(data, "cka")

    def logme(self, data):
        return self.rank(data, "logme")

    def h_score(self, data):
        return self.rank(data, "h-score")

    def shrunk_h_score(self, data):
        return self.rank(data, "shrunk-h-score")

    def sfda(self, data):
        return self.rank(data, "sfda")

    def nleep(self, data):
        return self.rank(data, "nleep")

    def transrate(self, data):
        return self.rank(data, "transrate")

    def ridge_classifier_cv(self, data):
        """The accuracy by generalized cross-validation of scikit-learn's ridge, as a score."""
        found = {}
        for name, X in data[0].train.items():
            Z = StandardScaler().fit_transform(X)
            model = RidgeClassifierCV(np.logspace(-1, 5, 13)).fit(Z, data[0].y_train)
            found[name] = model.best_score_
        return found


class RankDigitViews(RankingQuality, Comparison):
    """Six feature sets of 2,000 handwritten digits (mfeat) in six units, ranked by half of the rows."""

    needs = ("mfeat_multiview",)

    def make_zoo(self):
        return zoos.digit_views(self.quick)


class RankNoisyEmbeddings(RankingQuality, Comparison):
    """A Caltech-101 embedding of EfficientNet-Lite0 (40 classes), its projections, noisy and noise-padded
    copies, one with a large column of noise and one with columns in other units, ranked by half of the
    rows."""

    needs = ("caltech101_effnetlite0_emb",)

    def make_zoo(self):
        return zoos.damaged_embeddings(self.quick)


class RankNetworkLayers(RankingQuality, Comparison):
    """The 17 layers of EfficientNet-Lite0 (ImageNet weights), averaged over positions, ranked by 6,000 rows
    of CIFAR-10 (re-encoded as JPEG, 128 pixels)."""

    needs: tuple[str, ...] = ("cifar10_jpg_12k",)

    @classmethod
    def left_out(cls):
        return reason_to_leave_out()

    def make_zoo(self):
        return zoos.object_layers(self.quick)


class RankNetworkLayersForDigits(RankNetworkLayers):
    """The same 17 layers, ranked by 3,000 rows of MNIST as RGB at 64 pixels, a task for which the last layers
    are not the best."""

    needs = ("mnist",)

    def make_zoo(self):
        return zoos.digit_layers(self.quick)


class RankNetworkSizes(RankingQuality, Comparison):
    """The last five layers of EfficientNet-Lite0, 1 and 2, ranked by 3,000 rows of MNIST."""

    needs = ("mnist",)

    @classmethod
    def left_out(cls):
        return zoos.no_networks()

    def make_zoo(self):
        return zoos.network_sizes(self.quick)


class RankPretrainedNetworks(RankingQuality, Comparison):
    """Twelve networks with one hidden layer, trained on two to five of the digits 0 to 4 for one to thirty
    epochs, ranked by 2,000 rows of the digits 5 to 9."""

    needs = ("mnist",)

    def make_zoo(self):
        return zoos.small_networks(self.quick)


class RankTextEncoders(RankingQuality, Comparison):
    """Layers of the MiniLM sentence encoder and word counts in four dimensions, ranked by 1,050 first
    paragraphs of docstrings from seven packages."""

    @classmethod
    def left_out(cls):
        return zoos.no_text_encoder()

    def make_zoo(self):
        return zoos.text_encoders(self.quick)


class RankingTime(Comparison):
    """Every score of one embedding of 3,000 x 3,136 with its standard error, beside the ridge."""

    contenders = (
        "default",
        "ridge",
        "knn",
        "cka",
        "logme",
        "h_score",
        "shrunk_h_score",
        "sfda",
        "nleep",
        "transrate",
    )
    memory = False
    repeats = 1
    warm_up = False
    claims = tuple(
        Claim(
            f"time of {name} relative to the ridge",
            ratio(name, "ridge"),
            at_most=1.5 if name == "default" else 1.2,
        )
        for name in contenders
        if name != "ridge"
    )

    def make_data(self):
        n, d = (300, 320) if self.quick else (3000, 3136)
        rng = np.random.default_rng(0)
        y = np.arange(n) % 10
        return rng.standard_normal((10, d))[y] + 4 * rng.standard_normal((n, d)), y

    def rank(self, data, metric):
        return rank_models({"embedding": data[0]}, data[1], metric)[0]

    def score(self, data, row):
        return {"score": row.score, "standard_error": row.standard_error}


def _contender(metric):
    return lambda self, data: self.rank(data, metric)


for _name in RankingTime.contenders:
    setattr(RankingTime, _name, _contender("accuracy" if _name == "default" else _name.replace("_", "-")))


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
        return rank_models({"digits": data[0]}, data[1], "logme", standardize=False)[0].score

    def published(self, data):
        return logme_as_published(*data)

    def score(self, data, found):
        return {"logme": found}
