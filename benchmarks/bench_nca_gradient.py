"""One exact value and gradient of NCA against scikit-learn's, by way of a single L-BFGS iteration of both.

scikit-learn is given what it is made for: float64 rows, its own arithmetic, and as many BLAS threads as there
are cores. Ours takes the same rows and does its pairs in float32, as it does by itself at this size. The
third contender is the simplest blocked code there is, NumPy's products and exponentials in float32 on blocks
that stay in cache, each pair met once per pass: it shows what the vectors of `native/nca_blocks.py` buy.
"""

import warnings

import numpy as np
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import NCA
from manylens.metric.evaluation import Evaluation
from manylens.metric.objectives import GaussianObjective, Outcome, force_coefficients
from manylens.metric.optimizers import Progress, WholeObjective, maximize_whole

warnings.filterwarnings("ignore", message="NCA stopped after")


class BlockedProducts(Evaluation):
    """Every pair, by matrix products on blocks of 256 x 256."""

    size = 256

    def outcome(self, objective, Z, extra=None):
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
        return Outcome(same / total, forces, np.empty(0))

    def kernel(self, Z, norms, one, two):
        """exp(-D) between two blocks, without the pairs of a row with itself."""
        values = (2 * Z[one]) @ Z[two].T
        values -= norms[one, None]
        values -= norms[two]
        np.exp(values, out=values)
        if one is two:
            np.fill_diagonal(values, 0)
        return values


class Iteration:
    """One iteration of L-BFGS from the same A: as many evaluations for one contender as for the other."""

    contenders = ("ours", "scikit_learn", "blocked_products")
    repeats = 3
    warm_up = ("ours", "blocked_products")
    memory: tuple[str, ...] = ("ours",)
    n_components = 0

    def make_data(self):
        rng = np.random.default_rng(0)
        # Loading the compiled code is no working memory of a fit.
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
        whole = WholeObjective(X, BlockedProducts(y, np.float32), GaussianObjective(), 0.0, A.shape, 1.0)
        return maximize_whole(whole, A, np.empty(0), 1, 1e-5, Progress("", 0, None))[0]

    def score(self, data, outcome):
        if not hasattr(self, "truth"):
            self.truth = self.scikit_learn(data)
        step = np.linalg.norm(self.truth - data[2])
        return {"step_error": np.linalg.norm(outcome - self.truth) / step}


def claims(d, times):
    """What is to be reached in d dimensions."""
    return (
        Claim(
            f"exact values and gradients, n = 10,000, d = {d}: {times} times as fast as scikit-learn",
            ratio("scikit_learn", "ours"),
            at_least=times,
        ),
        Claim(
            "more than 1.5 times as fast as blocks of matrix products, which are simpler",
            ratio("blocked_products", "ours"),
            at_least=1.5,
        ),
        Claim("the step they lead to differs by 1e-5 or less", result("ours", "step_error"), at_most=1e-5),
        Claim("their working memory is at most 20 MB", result("ours", "peak_mb"), at_most=20),
    )


class NCAGradientIn2(Iteration, Comparison):
    """Exact values and gradients of NCA, n = 10,000, d = 2."""

    n_components = 2
    claims = claims(2, 100)


class NCAGradientIn10(Iteration, Comparison):
    """Exact values and gradients of NCA, n = 10,000, d = 10."""

    n_components = 10
    memory = ("ours", "scikit_learn")  # which the number of dimensions hardly changes
    claims = claims(10, 100)


class NCAGradientIn32(Iteration, Comparison):
    """Exact values and gradients of NCA, n = 10,000, d = 32."""

    n_components = 32
    claims = claims(32, 30)
