"""Figure 1 and Theorem 2: the diversity that corresponds to dropping modules."""

import numpy as np

from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.dimensionality_reduction.views import PAPER
from manylens.modules.solver import solve_modules
from manylens.papers.modular_dimensionality_reduction import (
    drop_gradient,
    dropping_diversity,
    pair_gradient,
)

GRADIENT = "Relative difference from the drop-module gradient, by the factor of the modular one"
MINIMUM = "Drop-module gradient at 1/√(p/λ) times a minimizer, relative to that at random weights"
HALF = "Diversity at p = 0.5"
PRINTED, HOLDS = "p (printed)", "√(pλ)"


def below(title, column, limit):
    """Every row of a table is a case: whether a number is below the limit."""
    return lambda found: {row: value < limit for row, value in found.column(title, column).items()}


class DropModuleEquivalence(Reproduction):
    """The diversity λ = M p / (1 + p (M - 1)) that corresponds to keeping modules with probability p:
    both gradients at the same weights and 200 pairs of rows, with the exact expectation over all 2^M
    choices. The printed factor p does not hold: by the chain rule through the scaling of the weights the
    factor is √(pλ). Minimizers agree as printed."""

    paper = PAPER
    where = "Figure 1 and Theorem 2"
    differs = "Random weights and rows, since the theorem speaks of any; expectations are exact."
    reduced = "Nothing."
    statements = (
        Statement(
            "the gradients are equal with the printed factor p",
            below(GRADIENT, PRINTED, 1e-10),
            quote="∂L_drop(Φ)/∂Φ at Φ = Φ0 = p · ∂L_λ(Φ)/∂Φ at Φ = √(p/λ) · Φ0",
            source="Theorem 2, the equation",
        ),
        Statement(
            "the gradients are equal with the factor √(pλ)",
            below(GRADIENT, HOLDS, 1e-10),
            quote="""The drop-module inner product loss at p is equivalent to the modular inner product
            loss at λ = Mp/(1+p(M-1)).""",
            source="Theorem 2, in words",
        ),
        Statement(
            "a minimizer of the modular loss over √(p/λ) has no drop-module gradient",
            below(MINIMUM, "gradient", 1e-6),
            quote="""the minima of L_λ(Φ, D) are equal to the minima of L_drop(Φ, D), up to a constant
            scaling factor of √(p/λ)""",
            source="Section 5",
        ),
        Statement(
            "for 20 modules the diversity is between 0.9 and 1",
            lambda found: {"M = 20": 0.9 < found[HALF]["20 modules"]["diversity"] < 1},
            quote="""p = 0.5 and this corresponds a value of λ just below 1, when M is large (see Figure
            1)""",
            source='Section 6.2, "The diversity parameter"',
        ),
    )

    def compute(self):
        settings = [(M, p) for M in ((2, 3) if self.quick else (2, 5, 8)) for p in (0.2, 0.5, 0.8)]
        tables = {GRADIENT: {}, MINIMUM: {}}
        for M, p in settings:
            row = f"{M} modules, p = {p}"
            tables[GRADIENT][row] = self.differences(M, p)
            tables[MINIMUM][row] = {"gradient": self.at_a_minimizer(M, p)}
        half = {f"{M} modules": {"diversity": dropping_diversity(0.5, M)} for M in (2, 5, 10, 20)}
        p = np.linspace(0.01, 1, 50)
        curves = {f"M = {M}": curve([dropping_diversity(value, M) for value in p], p) for M in (2, 5, 10, 20)}
        figure = panel("diversity λ", "keep probability p", curves)
        return Findings({**tables, HALF: half}, {"Figure 1": figure})

    def differences(self, M, p, H=3, r=12, n=200):
        """Relative difference of the two gradients with either factor."""
        rng = np.random.default_rng(self.seed)
        weights = rng.standard_normal((M, H, r))
        left, right = rng.standard_normal((2, n, r))
        dropped = expected_gradient(weights, left, right, p)
        diversity = dropping_diversity(p, M)
        modular = pair_gradient(np.sqrt(p / diversity) * weights, left, right, diversity)
        factors = {PRINTED: p, HOLDS: np.sqrt(p * diversity)}
        return {
            name: float(np.linalg.norm(dropped - factor * modular) / np.linalg.norm(dropped))
            for name, factor in factors.items()
        }

    def at_a_minimizer(self, M, p, H=2, r=12, n=30):
        """Size of the drop-module gradient at a rescaled minimizer of the modular loss, over all pairs of
        rows."""
        rng = np.random.default_rng(self.seed)
        rows, _ = np.linalg.qr(rng.standard_normal((n, r)))
        rows *= np.sqrt(n) / (1 + np.arange(r))  # rows.T @ rows / n is diagonal: principal coordinates
        q = np.sum(rows**2, axis=0) / n
        diversity = dropping_diversity(p, M)
        found = solve_modules(q, M, H, diversity, np.random.default_rng(self.seed)).modules
        F = np.zeros((M, H, r))
        F[:, :, : min(r, found.shape[2])] = found[:, :, :r]
        weights = F / np.sqrt(q) / np.sqrt(p / diversity)
        left, right = (rows[k.ravel()] for k in np.indices((n, n)))
        elsewhere = np.linalg.norm(weights) / np.sqrt(weights.size) * rng.standard_normal(weights.shape)
        sizes = [np.linalg.norm(expected_gradient(W, left, right, p)) for W in (weights, elsewhere)]
        return float(sizes[0] / sizes[1])


def expected_gradient(weights, left, right, p):
    """The drop-module gradient, summed over all 2^M choices of the kept modules."""
    M, expected = len(weights), np.zeros_like(weights)
    for code in range(2**M):
        kept = np.array([code >> m & 1 for m in range(M)], dtype=float)
        chance = np.prod(np.where(kept == 1, p, 1 - p))
        expected += chance * drop_gradient(weights, left, right, np.tile(kept, (len(left), 1)))
    return expected
