"""Ridge regression with leave-one-out: compared with RidgeCV, with more rows, and with more threads."""

import numpy as np
from sklearn.linear_model import RidgeCV
from threadpoolctl import threadpool_limits

from benchmarks.harness import Claim, Comparison, ratio
from manylens import LayerRidgeClassifier
from manylens.kernels import RBF
from manylens.transfer.ridge import choose_alpha, dual_ridge, exact_ridge, primal_ridge


class LayerRidgeMoreRows(Comparison):
    """LayerRidgeClassifier on 512 landmarks, three layers of 100 random features, 10 classes: 32,000 rows
    against 16,000."""

    contenders = ("double", "single")
    memory = False
    claims = (Claim("time for 32,000 rows, relative to 16,000", ratio("double", "single"), at_most=2.5),)

    def make_data(self):
        n = 400 if self.quick else 32_000
        rng = np.random.default_rng(0)
        y = rng.integers(10, size=n)
        means = rng.standard_normal((10, 300)).astype(np.float32) / 4
        return means[y] + rng.standard_normal((n, 300), dtype=np.float32), y

    def fitted(self, X, y):
        return LayerRidgeClassifier([100] * 3, max_exact_rows=0, rank=512, random_state=0).fit(X, y)

    def double(self, data):
        return self.fitted(*data)

    def single(self, data):
        X, y = data
        return self.fitted(X[: len(X) // 2], y[: len(y) // 2])


class RidgeThreads(Comparison):
    """Ridge with leave-one-out over 17 alphas, 1,000 rows of 200 features, with BLAS limited to two
    threads and to one: small decompositions use one thread in any case."""

    contenders = ("two_threads", "one_thread")
    memory = False
    claims = (
        Claim("time with two threads, relative to one", ratio("two_threads", "one_thread"), at_most=1.5),
    )

    def make_data(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((1_000, 200))
        return X, X[:, :10] + rng.standard_normal((1_000, 10))

    def chosen(self, data, threads):
        with threadpool_limits(threads, user_api="blas"):
            return choose_alpha(primal_ridge(*data), np.logspace(-6, 2, 17))[0]

    def two_threads(self, data):
        return self.chosen(data, 2)

    def one_thread(self, data):
        return self.chosen(data, 1)

    def score(self, data, alpha):
        return {"alpha": alpha}


class PeerRidgeCV(Comparison):
    """Ridge with leave-one-out over 17 penalties, 5,000 rows, 300 features, ten targets: ours and scikit-
    learn's RidgeCV (one penalty for all targets)."""

    contenders = ("ours", "sklearn_ridge_cv")
    memory = False
    claims = (
        Claim("times as fast as RidgeCV", ratio("sklearn_ridge_cv", "ours"), at_least=1),
        Claim(
            "penalty relative to RidgeCV's", ratio("ours", "sklearn_ridge_cv", "alpha"), 1 - 1e-9, 1 + 1e-9
        ),
    )

    def make_data(self):
        n, d = (300, 20) if self.quick else (5_000, 300)
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d))
        Y = X[:, :10] + 2 * rng.standard_normal((n, 10))
        return X, Y

    def ours(self, data):
        return choose_alpha(primal_ridge(*data), np.logspace(-2, 6, 17))[0]

    def sklearn_ridge_cv(self, data):
        return RidgeCV(np.logspace(-2, 6, 17)).fit(*data).alpha_

    def score(self, data, alpha):
        return {"alpha": alpha}


class ExactKernelRidge(Comparison):
    """Exact leave-one-out over 17 penalties of a Gaussian kernel ridge, 6,000 rows of 50 features, ten
    targets: from a banded form of the kernel matrix, and from its eigendecomposition. `products_alone` is the
    time of as many operations in plain matrix products as the banded form and its rotation take, 8/3 n³,
    before any penalty is tried; one Cholesky decomposition and inverse per penalty would take 17 n³."""

    contenders = ("ours", "eigendecomposition", "products_alone")
    repeats = 1
    warm_up = False
    memory = False
    alphas = np.logspace(-6, 2, 17)
    claims = (
        Claim("times as fast as the eigendecomposition", ratio("eigendecomposition", "ours"), at_least=2),
        Claim(
            "largest relative difference between the leave-one-out errors of the penalties",
            lambda results: max(
                abs(error / results["eigendecomposition"][name] - 1)
                for name, error in results["ours"].items()
                if name.startswith("error_")
            ),
            at_most=1e-8,
        ),
    )

    def make_data(self):
        n = 400 if self.quick else 6_000
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, 50))
        return RBF("mean").fit(X).gram(X), np.sin(X[:, :10]) + rng.standard_normal((n, 10))

    def ours(self, data):
        return exact_ridge(*data, self.alphas).left_out_errors(self.alphas)

    def eigendecomposition(self, data):
        return dual_ridge(*data).left_out_errors(self.alphas)

    def products_alone(self, data):
        kernel, _ = data
        kernel @ kernel  # 2 n³
        kernel[: len(kernel) // 3] @ kernel

    def score(self, data, errors):
        if errors is None:
            return {}
        some = zip(self.alphas[::4], errors[::4], strict=True)
        return {f"error_{alpha:.0e}": float(error) for alpha, error in some}
