"""One exact value and gradient of NCA against scikit-learn's, by way of a single L-BFGS iteration of both."""

import warnings

import numpy as np
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import NCA

warnings.filterwarnings("ignore", message="NCA stopped after")


class Iteration:
    """One iteration of L-BFGS from the same A: as many evaluations for one contender as for the other."""

    contenders = ("ours", "scikit_learn")
    repeats = 3
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
    claims = claims(10, 100)


class NCAGradientIn32(Iteration, Comparison):
    """Exact values and gradients of NCA, n = 10,000, d = 32."""

    n_components = 32
    claims = claims(32, 30)
