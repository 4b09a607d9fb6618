"""CKA and kernel weights against the matrix products they need and against other libraries."""

import numpy as np

from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import cka, cka_matrix
from manylens.alignment.alignf_systems import alignment_system
from manylens.alignment.nonnegative_least_squares import nonnegative_minimum


def hsic_as_torch_cka(K, L):
    """Unbiased HSIC as in torch_cka, in NumPy: full products of n x n matrices."""
    n = len(K)
    ones = np.ones((n, 1), dtype=K.dtype)
    total = np.trace(K @ L)
    total += ((ones.T @ K @ ones @ ones.T @ L @ ones) / ((n - 1) * (n - 2))).item()
    total -= ((ones.T @ K @ L @ ones) * 2 / (n - 2)).item()
    return total / (n * (n - 3))


def gram_without_diagonal(X):
    K = X @ X.T
    np.fill_diagonal(K, 0)
    return K


def torch_cka_matrix(arrays):
    """torch_cka's loop over pairs, which recomputes the second kernel and its HSIC for each pair."""
    scores = np.empty((len(arrays), len(arrays)))
    for i, X in enumerate(arrays):
        K = gram_without_diagonal(X)
        own = hsic_as_torch_cka(K, K)
        for j, Y in enumerate(arrays):
            L = gram_without_diagonal(Y)
            scores[i, j] = hsic_as_torch_cka(K, L) / np.sqrt(own * hsic_as_torch_cka(L, L))
    return scores


def related_features(n, widths, dtype, seed=0):
    """Feature sets that share a few directions, with offsets."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 16), dtype=np.float32)
    return [
        (shared @ rng.standard_normal((16, d), dtype=np.float32) + rng.standard_normal((n, d)) + 1).astype(
            dtype
        )
        for d in widths
    ]


class CKAMatrix(Comparison):
    """Unbiased linear CKA of all pairs of 20 representations of 10,000 x 512 float32.

    `matrix_products` computes X_kᵀ X_l for each pair of features that are already centered. torch_cka's
    formula on all rows would take hours, so it is timed on one pair and multiplied by the 210 pairs; in
    batches of 256, as it is often used, it gives a different number.
    """

    contenders = ("ours", "matrix_products", "torch_cka_one_pair", "torch_cka_in_batches")
    repeats = 2
    warm_up = False
    memory = False
    claims = (
        Claim(
            "times as fast as torch_cka's formula on all rows (its time for one pair times 210 pairs)",
            lambda results: 210 * results["torch_cka_one_pair"]["seconds"] / results["ours"]["seconds"],
            at_least=20,
            compared=("ours", "torch_cka_one_pair"),
        ),
        Claim(
            "times as fast as torch_cka's formula in batches of 256, which gives a different number",
            ratio("torch_cka_in_batches", "ours"),
            at_least=1,
        ),
        Claim("time relative to the matrix products it needs", ratio("ours", "matrix_products"), at_most=1.2),
        Claim(
            "largest difference from torch_cka's formula on the same rows",
            result("torch_cka_one_pair", "difference_from_ours"),
            at_most=1e-3,
        ),
    )

    def make_data(self):
        n, p, d = (1500, 4, 64) if self.quick else (10_000, 20, 512)
        arrays = related_features(n, [d] * p, np.float32)
        return arrays, [X - X.mean(axis=0) for X in arrays]

    def ours(self, data):
        return cka_matrix(data[0], estimator="unbiased")

    def matrix_products(self, data):
        arrays = data[1]
        return [X.T @ Y for k, X in enumerate(arrays) for Y in arrays[k:]]

    def torch_cka_one_pair(self, data):
        X, Y = data[0][:2]
        K, L = gram_without_diagonal(X), gram_without_diagonal(Y)
        return hsic_as_torch_cka(K, L) / np.sqrt(hsic_as_torch_cka(K, K) * hsic_as_torch_cka(L, L))

    def torch_cka_in_batches(self, data):
        n = len(data[0][0]) // 256 * 256
        batches = [[X[first : first + 256] for X in data[0]] for first in range(0, n, 256)]
        return np.mean([torch_cka_matrix(batch) for batch in batches], axis=0)

    def score(self, data, outcome):
        if isinstance(outcome, list):
            return {}
        if np.ndim(outcome) == 0:
            exact = cka(data[0][0], data[0][1], estimator="unbiased")
            return {"difference_from_ours": abs(float(outcome) - exact)}
        return {"mean_score": float(np.mean(outcome))}


class KernelWeightSolver(Comparison):
    """Minimize vᵀMv - 2 vᵀa over v ≥ 0 for 1,000 kernels of rank one, given M and a."""

    contenders = ("ours", "cvxpy_default")
    needs_packages = {"cvxpy_default": "cvxpy"}
    memory = False
    claims = (
        Claim("times as fast as cvxpy with its default solver", ratio("cvxpy_default", "ours"), at_least=10),
        Claim(
            "relative excess of the objective over cvxpy's",
            lambda results: (
                (results["ours"]["objective"] - results["cvxpy_default"]["objective"])
                / abs(results["cvxpy_default"]["objective"])
            ),
            at_most=1e-8,
        ),
    )

    def make_data(self):
        p, n = (100, 400) if self.quick else (1000, 4000)
        rng = np.random.default_rng(0)
        y = rng.standard_normal(n)
        X = 0.3 * y[:, np.newaxis] + rng.standard_normal((n, 30)) @ rng.standard_normal((30, p))
        X += 3 * rng.standard_normal((n, p))
        X = X - X.mean(axis=0)
        return (X.T @ X) ** 2, (X.T @ (y - y.mean())) ** 2

    def ours(self, data):
        return nonnegative_minimum(*data)

    def cvxpy_default(self, data):
        import cvxpy

        M, a = data
        scale = 1 / np.sqrt(np.diag(M))  # as a careful user would scale
        top = np.max(a * scale)
        C, c = M * np.outer(scale, scale), a * scale / top
        x = cvxpy.Variable(len(a))
        objective = cvxpy.quad_form(x, cvxpy.psd_wrap(C)) - 2 * c @ x
        cvxpy.Problem(cvxpy.Minimize(objective), [x >= 0]).solve()
        return np.maximum(x.value, 0) * scale * top

    def score(self, data, v):
        M, a = data
        return {"objective": v @ M @ v - 2 * v @ a, "positive": int(np.sum(v > 1e-9 * v.max()))}


class KernelWeightSystem(Comparison):
    """M and a of 200 linear kernels of 5,000 x 32 features, compared with one large matrix product.

    The work is that of the symmetric half, n D² operations for D = 6,400 columns; the product of two
    square matrices gives the machine's speed.
    """

    contenders = ("ours", "matrix_product")
    scores = ()
    repeats = 5
    claims = (
        Claim(
            "fraction of the measured speed of matrix products",
            lambda results: (
                results["ours"]["work"]
                / results["ours"]["seconds"]
                / (results["matrix_product"]["work"] / results["matrix_product"]["seconds"])
            ),
            at_least=0.6,
        ),
    )

    def make_data(self):
        n, p, size = (1000, 40, 500) if self.quick else (5000, 200, 3000)
        arrays = related_features(n, [32] * p, np.float64)
        y = np.random.default_rng(1).standard_normal((n, 1))
        square = np.random.default_rng(2).standard_normal((2, size, size))
        return {"arrays": arrays, "y": y, "square": square}

    def ours(self, data):
        return alignment_system(data["arrays"], list(range(len(data["arrays"]))), data["y"])

    def matrix_product(self, data):
        return data["square"][0] @ data["square"][1]

    def score(self, data, outcome):
        if isinstance(outcome, tuple):
            n, width = len(data["y"]), sum(X.shape[1] for X in data["arrays"])
            return {"work": float(n * width**2)}
        return {"work": 2.0 * len(outcome) ** 3}


class GaussianCKAMemory(Comparison):
    """CKA with Gaussian kernels of 50,000 rows (32 and 16 features), whose kernel matrices would take 40
    GB."""

    alone = False
    repeats = 1
    warm_up = False
    claims = (Claim("peak MB above the data", result("ours", "peak_mb"), at_most=500),)

    def make_data(self):
        return related_features(2000 if self.quick else 50_000, [32, 16], np.float32)

    def ours(self, data):
        return cka(*data, kernel="rbf")

    def score(self, data, outcome):
        return {"cka": outcome}


class PeerKernelAlignment(Comparison):
    """Alignment of two linear kernels of 4,000 rows and 100 features: ours from the features, MKLpy's
    from the kernel matrices, which are made beforehand."""

    contenders = ("ours", "mklpy")
    needs_packages = {"mklpy": "MKLpy"}
    claims = (
        Claim("times as fast as MKLpy", ratio("mklpy", "ours"), at_least=1),
        Claim(
            "difference between the alignments",
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
