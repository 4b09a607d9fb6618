"""Figure 1 and Theorem 2: the diversity that corresponds to dropping modules."""

import numpy as np

from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.dimensionality_reduction.views import PAPER
from manylens.papers.modular_dimensionality_reduction import (
    drop_gradient,
    dropping_diversity,
    dropping_probability,
    pair_gradient,
)

TITLE = "Relative difference of the two gradients"


class DropModuleEquivalence(Reproduction):
    """The diversity λ = M p / (1 + p (M - 1)) that corresponds to keeping modules with probability p:
    both gradients at the same weights and 200 pairs of rows, with the exact expectation over all 2^M
    choices."""

    paper = PAPER
    where = "Figure 1 and Theorem 2"
    differs = "Nothing is estimated: the theorem is checked at random weights and rows."
    statements = (
        Statement(
            "the drop-module gradient at p is p times the modular one at λ with weights scaled by sqrt(p/λ)",
            lambda found: {
                f"{row}, {column}": value < 1e-10
                for row, cells in found[TITLE].items()
                for column, value in cells.items()
            },
        ),
        Statement(
            "with many modules p = 0.5 corresponds to a diversity just below 1",
            lambda found: {"M = 20": 0.9 < found["Diversity at p = 0.5"]["20 modules"]["diversity"] < 1},
        ),
    )

    def compute(self):
        sizes = (2, 3) if self.quick else (2, 5, 8)
        probabilities = (0.2, 0.5, 0.8)
        differences = {
            f"{M} modules": {f"p = {p}": self.difference(M, p) for p in probabilities} for M in sizes
        }
        p = np.linspace(0.01, 1, 50)
        curves = {f"M = {M}": curve(M * p / (1 + p * (M - 1)), p) for M in (2, 5, 10, 20)}
        half = {f"{M} modules": {"diversity": M * 0.5 / (1 + 0.5 * (M - 1))} for M in (2, 5, 10, 20)}
        return Findings(
            {TITLE: differences, "Diversity at p = 0.5": half},
            {"Figure 1": panel("diversity λ", "keep probability p", curves)},
        )

    def difference(self, M, p, H=3, r=12, n=200):
        rng = np.random.default_rng(self.seed)
        weights = rng.standard_normal((M, H, r))
        left, right = rng.standard_normal((2, n, r))
        expected = np.zeros_like(weights)
        for code in range(2**M):
            kept = np.array([code >> m & 1 for m in range(M)], dtype=float)
            chance = np.prod(np.where(kept == 1, p, 1 - p))
            expected += chance * drop_gradient(weights, left, right, np.tile(kept, (n, 1)))
        diversity = dropping_diversity(p, M)
        assert np.isclose(dropping_probability(diversity, M), p)
        # The chain rule through the scaling s of the weights gives s times the gradient at the scaled ones.
        scale = np.sqrt(p / diversity)
        other = p * pair_gradient(scale * weights, left, right, diversity) / scale
        return float(np.linalg.norm(expected - other) / np.linalg.norm(expected))
