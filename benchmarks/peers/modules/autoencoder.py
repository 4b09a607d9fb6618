"""The linear modular autoencoder against the paper's own algorithms."""

import numpy as np

from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import ModularAutoencoder
from manylens.papers.modular_autoencoders import backfit, gradient_descent


class AutoencoderSolvers(Comparison):
    """The artificial data of the modular autoencoder paper: 1,000 points of a mixture of 10 spherical
    Gaussians (standard deviation 0.25, means standard normal) in 100 dimensions; 10 modules of 10,
    diversity 0.9. The paper's iterative solvers start from given singular values, gradient descent with
    its longest stable step, and stop within 0.1 % of the minimum or after 20,000 steps; ours is a
    complete fit."""

    contenders = ("ours", "backfitting", "gradient_descent")
    memory = False
    warm_up = ("ours",)
    claims = (
        Claim("times as fast as batch gradient descent", ratio("gradient_descent", "ours"), at_least=1000),
        Claim("times as fast as backfitting", ratio("backfitting", "ours"), at_least=20),
        Claim("optimality gap", result("ours", "gap"), at_most=1e-9),
    )
    shape = (10, 10)
    diversity = 0.9
    tolerance = 1e-3

    def make_data(self):
        rng = np.random.default_rng(0)
        n, d = (200, 20) if self.quick else (1_000, 100)
        if self.quick:
            self.shape = (3, 2)
        means = rng.standard_normal((10, d))
        X = means[rng.integers(10, size=n)] + 0.25 * rng.standard_normal((n, d))
        model = ModularAutoencoder(*self.shape, self.diversity, random_state=0).fit(X)
        self.bound, self.s = model.lower_bound_, model.spectrum_
        self.sweeps = self.steps(backfit, 2_000)
        self.descents = self.steps(gradient_descent, 20_000, learning_rate=0.5)
        return X

    def steps(self, solver, limit, **options):
        path = self.run(solver, limit, **options)
        near = np.flatnonzero(path <= (1 + self.tolerance) * self.bound)
        return int(near[0]) if len(near) else limit

    def run(self, solver, max_iter, **options):
        rng = np.random.default_rng(0)
        common = {"rng": rng, "max_iter": max_iter, "tol": 0.0 if self.quick else -1.0}
        return solver(self.s, *self.shape, self.diversity, **common, **options).path

    def ours(self, X):
        return ModularAutoencoder(*self.shape, self.diversity, random_state=0).fit(X).loss_

    def backfitting(self, X):
        return self.run(backfit, self.sweeps)[-1]

    def gradient_descent(self, X):
        return self.run(gradient_descent, self.descents, learning_rate=0.5)[-1]

    def score(self, data, loss):
        return {"gap": max(0.0, loss / self.bound - 1)}
