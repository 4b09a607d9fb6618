"""One exact value and gradient of NCA against scikit-learn's, measured by a single L-BFGS iteration.

scikit-learn gets float64 rows and one BLAS thread per core. Ours gets the same rows and computes pairs in
float32, its default at this size. The third contender is simple NumPy code in float32 on blocks that stay in
cache; it shows what the compiled loops of `manylens.native` gain.
"""

import warnings

import numpy as np
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import NCA
from manylens.metric.objectives import GaussianObjective, ObjectiveValue, force_coefficients
from manylens.metric.optimizers import FullObjective, Progress, maximize_full
from manylens.metric.pair_evaluation import Evaluation

warnings.filterwarnings("ignore", message="NCA stopped after")


class BlockedProducts(Evaluation):
    """All pairs, by matrix products of blocks of 256 x 256 pairs."""

    size = 256

    def evaluate(self, objective, Z, extra=None):
        Z = np.asarray(Z - Z.mean(axis=0), self.dtype)
        n, d = Z.shape
        norms = np.einsum("ij,ij->i", Z, Z)
        blocks = [slice(begin, min(n, begin + self.size)) for begin in range(0, n, self.size)]
        pairs = [(one, two) for at, one in enumerate(blocks) for two in blocks[at:]]
        members = np.eye(self.labels.max() + 1, dtype=self.dtype)[self.labels]
        by_class = np.zeros(members.shape)
        for one, two in pairs:
            kernel = self.kernel(Z, norms, one, two)
            by_class[one] += kernel @ members[two]
            if one is not two:
                by_class[two] += kernel.T @ members[one]
        same, total = by_class[np.arange(n), self.labels], by_class.sum(axis=1)
        own, cross = (u.astype(self.dtype) for u in force_coefficients(same, total, objective.form))
        extended = np.c_[Z, np.ones(n, self.dtype)]
        moments = np.zeros((n, d + 1))
        for one, two in pairs:
            alike = self.labels[one, None] == self.labels[two]
            weights = np.where(alike, own[one, None] + own[two], cross[one, None] + cross[two])
            weights *= self.kernel(Z, norms, one, two)
            moments[one] += weights @ extended[two]
            if one is not two:
                moments[two] += weights.T @ extended[one]
        forces = 2.0 * (moments[:, -1:] * Z - moments[:, :-1])
        return ObjectiveValue(same / total, forces, np.empty(0))

    def kernel(self, Z, norms, one, two):
        """exp(-D) between two blocks, excluding pairs of a row with itself."""
        values = (2 * Z[one]) @ Z[two].T
        values -= norms[one, None]
        values -= norms[two]
        np.exp(values, out=values)
        if one is two:
            np.fill_diagonal(values, 0)
        return values


class Iteration:
    """Base class: one L-BFGS iteration from the same A, with the same number of evaluations for all."""

    contenders = ("ours", "scikit_learn", "blocked_products")
    repeats = 3
    warm_up = ("ours", "blocked_products")
    memory: tuple[str, ...] = ("ours",)
    n_components = 0

    def make_data(self):
        rng = np.random.default_rng(0)
        # Load the compiled code, which is not part of a fit's memory.
        NCA(2, precision="single", max_iter=1).fit(rng.normal(size=(100, 3)), rng.integers(2, size=100))
        n = 1000 if self.quick else 10_000
        y = rng.integers(10, size=n)
        X = rng.normal(size=(n, 50)) + 1.5 * rng.normal(size=(10, 50))[y]
        return X, y, rng.normal(size=(self.n_components, 50)) / np.sqrt(50)

    def ours(self, data):
        X, y, A = data
        return NCA(len(A), method="exact", precision="single", init=A, max_iter=1).fit(X, y).components_

    def scikit_learn(self, data):
        X, y, A = data
        return NeighborhoodComponentsAnalysis(len(A), init=A, max_iter=1).fit(X, y).components_

    def blocked_products(self, data):
        X, y, A = data
        full = FullObjective(X, BlockedProducts(y, np.float32), GaussianObjective(), 0.0, A.shape, 1.0)
        return maximize_full(full, A, np.empty(0), 1, 1e-5, Progress("", 0, None))[0]

    def score(self, data, outcome):
        if not hasattr(self, "truth"):
            self.truth = self.scikit_learn(data)
        step = np.linalg.norm(self.truth - data[2])
        return {"step_error": np.linalg.norm(outcome - self.truth) / step}


def claims(d, times):
    """Claims in d dimensions."""
    return (
        Claim(
            f"exact values and gradients in {d} dimensions: times as fast as scikit-learn",
            ratio("scikit_learn", "ours"),
            at_least=times,
        ),
        Claim(
            "times as fast as simple blocks of matrix products",
            ratio("blocked_products", "ours"),
            at_least=1.5,
        ),
        Claim(
            "relative difference of the step from scikit-learn's", result("ours", "step_error"), at_most=1e-5
        ),
        Claim("peak MB above the data", result("ours", "peak_mb"), at_most=20),
    )


class NCAGradient2D(Iteration, Comparison):
    """Exact values and gradients of NCA for 10,000 rows in 2 dimensions."""

    n_components = 2
    claims = claims(2, 100)


class NCAGradient10D(Iteration, Comparison):
    """Exact values and gradients of NCA for 10,000 rows in 10 dimensions."""

    n_components = 10
    memory = ("ours", "scikit_learn")  # hardly depends on the number of dimensions
    claims = claims(10, 100)


class NCAGradient32D(Iteration, Comparison):
    """Exact values and gradients of NCA for 10,000 rows in 32 dimensions."""

    n_components = 32
    claims = claims(32, 30)
