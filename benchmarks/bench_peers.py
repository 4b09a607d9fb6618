"""Peers on the same work, one class a peer: scikit-learn, metric-learn, pynndescent, MKLpy, LogME, PyPruning.

PyPruning is not on PyPI, so its ranking is written out here. Other peers stand in the files on their subject:
Nystroem + PCA (bench_modular_kernel_pca), dcor (bench_distance_correlation), faiss (bench_retrieval),
torch_cka's formula and cvxpy (bench_alignment), logistic and ridge heads (bench_transfer).
"""

import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor, StackingRegressor
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors, NeighborhoodComponentsAnalysis
from sklearn.utils import check_array, check_X_y

from benchmarks.harness import Claim, Comparison, present, ratio, result
from manylens import (
    NCA,
    AlignmentPruner,
    ModularKernelPCA,
    ModuleNeighbors,
    cka,
    rank_models,
    retrieval_precision,
)
from manylens.baselines import MonolithicKernelPCA
from manylens.datasets import load_dataset, make_friedman
from manylens.transfer.ridge import PrimalRidge, choose_alpha

warnings.filterwarnings("ignore", message="NCA stopped after")


def mnist_rows(n, quick, quick_n=400):
    """The first rows of MNIST in [0, 1]; if quick, of the digits."""
    if quick:
        X, y = load_digits(return_X_y=True)
        return X[:quick_n].astype(np.float32) / 16, y[:quick_n]
    data = load_dataset("mnist")
    return data.X[:n].reshape(n, -1) / np.float32(255), data.y[:n].astype(int)


class PeerKernelPCA(Comparison):
    """The top 100 kernel principal components of 4,000 rows of MNIST, Gaussian kernel: ours by 1,000
    landmarks, scikit-learn's KernelPCA exactly (its randomized solver). The error is that of the inner
    products of 500 rows, over the centered kernel's own size."""

    contenders = ("ours", "sklearn_kernel_pca")
    needs = ("mnist",)
    claims = (
        Claim("times as fast as KernelPCA", ratio("sklearn_kernel_pca", "ours"), at_least=1),
        Claim(
            "error over KernelPCA's",
            ratio("ours", "sklearn_kernel_pca", "error"),
            at_most=1.1,
        ),
    )

    def make_data(self):
        X = mnist_rows(4_000, self.quick)[0]
        self.size, self.rank = (10, 50) if self.quick else (100, 1_000)
        self.gamma = MonolithicKernelPCA(2, rank=20, random_state=0).fit(X).feature_map_.kernel_.gamma_
        squared = np.sum(X**2, axis=1)
        kernel = np.exp(-self.gamma * np.maximum(squared[:, None] + squared - 2 * X @ X.T, 0))
        centered = kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()
        self.kernel = centered[:500, :500]
        return X

    def ours(self, X):
        return MonolithicKernelPCA(self.size, rank=self.rank, random_state=0).fit(X).transform(X)

    def sklearn_kernel_pca(self, X):
        model = KernelPCA(
            self.size, kernel="rbf", gamma=self.gamma, eigen_solver="randomized", random_state=0
        )
        return model.fit_transform(X)

    def score(self, data, Z):
        few = Z[: len(self.kernel)]
        return {"error": np.linalg.norm(few @ few.T - self.kernel) / np.linalg.norm(self.kernel)}


def renamed(check):
    """A check that takes the keyword metric-learn still gives; scikit-learn 1.8 knows only its new name."""

    def with_old_keyword(*arrays, force_all_finite=True, **options):
        return check(*arrays, ensure_all_finite=force_all_finite, **options)

    return with_old_keyword


class PeerNCA(Comparison):
    """NCA to two dimensions of 1,000 of scikit-learn's digits, 30 iterations at most of every contender;
    accuracy of five neighbors on the other 797."""

    contenders = ("ours", "sklearn", "metric_learn")
    needs_packages = {"metric_learn": "metric_learn"}
    repeats = 3
    memory = False
    claims = (
        Claim("times as fast as scikit-learn", ratio("sklearn", "ours"), at_least=1),
        Claim("times as fast as metric-learn", ratio("metric_learn", "ours"), at_least=1),
    )

    def make_data(self):
        X, y = load_digits(return_X_y=True)
        X = X / 16
        self.iterations = 3 if self.quick else 30
        n = 300 if self.quick else 1_000
        return X[:n], y[:n], X[1_000:], y[1_000:]

    def ours(self, data):
        return NCA(2, method="exact", max_iter=self.iterations, random_state=0).fit(*data[:2])

    def sklearn(self, data):
        model = NeighborhoodComponentsAnalysis(2, max_iter=self.iterations, random_state=0)
        return model.fit(*data[:2])

    def metric_learn(self, data):
        from metric_learn import NCA as TheirNCA
        from metric_learn import _util

        _util.check_X_y, _util.check_array = renamed(check_X_y), renamed(check_array)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it stops at the last iteration and says so
            return TheirNCA(n_components=2, max_iter=self.iterations, random_state=0).fit(*data[:2])

    def score(self, data, model):
        X, y, X_test, y_test = data
        near = KNeighborsClassifier(5).fit(model.transform(X), y)
        return {"accuracy": near.score(model.transform(X_test), y_test)}


class PeerSearch(Comparison):
    """1,000 queries for ten neighbors among 20,000 rows of MNIST by 15 modules of 20 (300 dimensions): ours,
    scikit-learn by looking at all, and pynndescent's graph; precision against all 300 dimensions. Indices are
    built beforehand."""

    alone = False  # pynndescent compiles for minutes; the contenders run on one thread each
    contenders = ("ours", "sklearn_brute", "pynndescent")
    needs = ("mnist",)
    needs_packages = {"pynndescent": "pynndescent"}
    memory = False
    claims = (
        Claim("times as fast as looking at all", ratio("sklearn_brute", "ours"), at_least=1),
        Claim("precision", result("ours", "precision"), at_least=0.95),
    )

    def __init__(self, quick=False):
        super().__init__(quick)
        if quick:
            self.contenders = self.contenders[:2]  # pynndescent compiles for a minute

    def make_data(self):
        X = mnist_rows(21_000, self.quick)[0]
        n_queries = 100 if self.quick else 1_000
        shape = (3, 4) if self.quick else (15, 20)
        lenses = ModularKernelPCA(*shape, 0.99, rank=60 if self.quick else 1_000, random_state=0).fit(
            X[:5_000]
        )
        index = ModuleNeighbors(lenses).fit(X[:-n_queries])
        rows = np.ascontiguousarray(index.coordinates(X[:-n_queries]))
        self.queries = np.ascontiguousarray(index.coordinates(X[-n_queries:]))
        self.brute = NearestNeighbors(n_neighbors=10, algorithm="brute").fit(rows)
        self.truth = self.brute.kneighbors(self.queries, return_distance=False)
        self.graph = self.make_graph(rows)
        return index

    def make_graph(self, rows):
        if "pynndescent" not in present(self):
            return None
        from pynndescent import NNDescent

        graph = NNDescent(rows, n_neighbors=15, random_state=0)
        graph.prepare()
        return graph

    def ours(self, index):
        return index.search(self.queries, 10)[1]

    def sklearn_brute(self, index):
        return self.brute.kneighbors(self.queries, return_distance=False)

    def pynndescent(self, index):
        return self.graph.query(self.queries, k=10)[0]

    def score(self, data, rows):
        return {"precision": retrieval_precision(rows, self.truth)}


class PeerAlignment(Comparison):
    """Alignment of two linear kernels of 4,000 rows and 100 features: ours from the features, MKLpy's from
    the kernels (which are made for it beforehand)."""

    contenders = ("ours", "mklpy")
    needs_packages = {"mklpy": "MKLpy"}
    claims = (
        Claim("times as fast as MKLpy", ratio("mklpy", "ours"), at_least=1),
        Claim(
            "difference of the scores",
            lambda results: abs(results["ours"]["alignment"] - results["mklpy"]["alignment"]),
            at_most=1e-4,
        ),
    )

    def make_data(self):
        n = 300 if self.quick else 4_000
        rng = np.random.default_rng(0)
        shared = rng.standard_normal((n, 20))
        X, Y = (shared @ rng.standard_normal((20, 100)) + rng.standard_normal((n, 100)) for _ in range(2))
        return X, Y, X @ X.T, Y @ Y.T

    def ours(self, data):
        return cka(*data[:2], center=False)

    def mklpy(self, data):
        import torch
        from MKLpy.metrics import alignment

        return float(alignment(*(torch.as_tensor(kernel) for kernel in data[2:])))

    def score(self, data, alignment):
        return {"alignment": float(alignment)}


def logme_as_published(F, y, steps=11):
    """LogME as published: evidence of a Bayesian linear model for each class, by fixed-point steps."""
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
        Claim("times as fast as published", ratio("published", "ours"), at_least=1),
        Claim(
            "difference of the scores",
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


class PeerRanking(Comparison):
    """A forest of 128 trees on letter (5,000 rows to learn from, 5,000 to test), pruned: ours; PyPruning's
    ranking, which keeps the trees of least error of their own, and its greedy choice of the tree that most
    lowers the ensemble's error, both written out here and given as many trees as ours keeps, and the same
    rows' out-of-bag predictions."""

    contenders = ("ours", "ranking", "greedy", "whole")
    needs = ("letter",)
    warm_up = False
    repeats = 1
    memory = False
    claims = (
        Claim("error over that of as many trees by rank", ratio("ours", "ranking", "error"), at_most=1),
        Claim("error over that of as many by greedy choice", ratio("ours", "greedy", "error"), at_most=1),
    )

    def make_data(self):
        data = load_dataset("letter")
        X, y = data.X.astype(np.float32), np.unique(data.y, return_inverse=True)[1]
        n, members = (400, 16) if self.quick else (5_000, 128)
        forest = RandomForestClassifier(members, random_state=0, n_jobs=-1).fit(X[:n], y[:n])
        self.kept = AlignmentPruner(forest).fit(X[:n], y[:n]).n_kept_
        shares = np.stack([tree.predict_proba(X[:n]) for tree in forest.estimators_], axis=1)
        in_bag = np.zeros(shares.shape[:2], dtype=bool)
        for m, rows in enumerate(forest.estimators_samples_):
            in_bag[rows, m] = True
        shares[in_bag] = np.nan  # a tree says nothing of rows that it has seen
        return X[:n], y[:n], X[n : 2 * n], y[n : 2 * n], forest, shares

    def ours(self, data):
        X, y, X_test, _, forest, _ = data
        return AlignmentPruner(forest).fit(X, y).predict(X_test)

    def vote(self, data, chosen):
        _, _, X_test, _, forest, _ = data
        return np.mean([forest.estimators_[m].predict_proba(X_test) for m in chosen], axis=0).argmax(axis=1)

    def ranking(self, data):
        y, shares = data[1], data[5]
        seen = ~np.isnan(shares[..., 0])
        wrong = np.nan_to_num(shares).argmax(axis=2) != y[:, np.newaxis]
        errors = np.sum(wrong & seen, axis=0) / seen.sum(axis=0)
        return self.vote(data, np.argsort(errors)[: self.kept])

    def greedy(self, data):
        y, shares = data[1], np.nan_to_num(data[5])
        total, chosen = np.zeros_like(shares[:, 0]), []
        while len(chosen) < self.kept:
            left = [m for m in range(shares.shape[1]) if m not in chosen]
            errors = [np.mean((total + shares[:, m]).argmax(axis=1) != y) for m in left]
            chosen.append(left[int(np.argmin(errors))])
            total += shares[:, chosen[-1]]
        return self.vote(data, chosen)

    def whole(self, data):
        return data[4].predict(data[2])

    def score(self, data, predicted):
        return {"error": np.mean(predicted != data[3]), "kept_by_ours": self.kept}


class PeerStacking(Comparison):
    """Weights for a fitted forest of 128 trees on Friedman's function, 2,000 rows: ours, and scikit-learn's
    StackingRegressor on the fitted trees with non-negative least squares."""

    contenders = ("ours", "sklearn_stacking")
    warm_up = False
    memory = False
    claims = (
        Claim("test error over stacking's", ratio("ours", "sklearn_stacking", "error"), at_most=1),
        Claim("times as fast as stacking", ratio("sklearn_stacking", "ours"), at_least=0.5),
    )

    def make_data(self):
        n, members = (200, 16) if self.quick else (2_000, 128)
        X, y = make_friedman(n, random_state=0)
        self.test = make_friedman(1_000, random_state=1)
        return X, y, RandomForestRegressor(members, random_state=0, n_jobs=-1).fit(X, y)

    def ours(self, data):
        X, y, forest = data
        model = AlignmentPruner(forest).fit(X, y)
        return model.predict(self.test[0]), model.n_kept_

    def sklearn_stacking(self, data):
        X, y, forest = data
        members = [(str(number), tree) for number, tree in enumerate(forest.estimators_)]
        model = StackingRegressor(members, LinearRegression(positive=True), cv="prefit").fit(X, y)
        return model.predict(self.test[0]), int(np.sum(model.final_estimator_.coef_ > 0))

    def score(self, data, outcome):
        predicted, kept = outcome
        return {"error": np.mean((predicted - self.test[1]) ** 2), "kept": kept}


class PeerRidgeCV(Comparison):
    """Ridge with leave-one-out over 17 penalties, 5,000 rows, 300 features, ten targets: ours and
    scikit-learn's RidgeCV (one penalty for all targets)."""

    contenders = ("ours", "sklearn_ridge_cv")
    memory = False
    claims = (
        Claim("times as fast as RidgeCV", ratio("sklearn_ridge_cv", "ours"), at_least=1),
        Claim("penalty over RidgeCV's", ratio("ours", "sklearn_ridge_cv", "alpha"), 1 - 1e-9, 1 + 1e-9),
    )

    def make_data(self):
        n, d = (300, 20) if self.quick else (5_000, 300)
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d))
        Y = X[:, :10] + 2 * rng.standard_normal((n, 10))
        return X, Y

    def ours(self, data):
        return choose_alpha(PrimalRidge(*data), np.logspace(-2, 6, 17))[0]

    def sklearn_ridge_cv(self, data):
        return RidgeCV(np.logspace(-2, 6, 17)).fit(*data).alpha_

    def score(self, data, alpha):
        return {"alpha": alpha}
