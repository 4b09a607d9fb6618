"""Figure 4.2 and Sections 4.2 to 4.4: decay of assignments, and the effect of batches."""

import warnings

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks.data.small_tables import table
from benchmarks.harness import Findings, Reproduction, Statement, curve, panel
from benchmarks.papers.nca import PAPER
from manylens import NCA
from manylens.papers import fast_nca

DECAY, BATCHES = "Assignments below 1 % of the largest (%)", "Batches of 100 rows of the digits"


class AssignmentDecay(Reproduction):
    """The digits, standardized, in ten dimensions: stochastic assignments p_ij at the start and after 5,
    20 and 50 iterations, in decreasing order; the mean fraction below 1 % of the largest."""

    paper = PAPER
    where = "Figure 4.2"
    differs = """The digits, because the data of the figure are not named; the optimizer is this library's."""
    reduced = "Nothing."
    statements = (
        Statement(
            "more than half of the assignments are below 1 % of the largest",
            quote="""We notice that most of the values p_ij are insignificant compared to the largest
            contribution.""",
            source="Section 4.4, Figure 4.2",
            ours=lambda found: {row: cells["share"] > 50 for row, cells in found[DECAY].items()},
        ),
    )

    def compute(self):
        X, y = table("digits")
        if self.quick:
            X, y = X[:300], y[:300]
        wanted = (1, 5, 20, 50)
        maps = {}

        def keep(iteration, A, value):  # noqa: ARG001
            if iteration in wanted:
                maps[iteration] = A.copy()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            last = NCA(10, method="exact", random_state=self.seed, callback=keep, max_iter=50).fit(X, y)
        maps[int(last.n_iter_)] = last.components_
        rows, curves = {}, {}
        for iteration, A in sorted(maps.items()):
            p = fast_nca.assignments(X @ A.T)
            rows[f"iteration {iteration}"] = {"share": 100 * np.mean(p < 0.01 * p.max(axis=1, keepdims=True))}
            ordered = np.sort(p[0])[::-1][:100]
            curves[f"iteration {iteration}"] = curve(range(1, 101), np.maximum(ordered, 1e-12))
        return Findings({DECAY: rows}, {"one row's assignments": panel("rank", "p_ij", curves, log="y")})


class BatchConstruction(Reproduction):
    """Batches of 100 of the 1,797 digits under a map to ten dimensions: how equal their sizes are, how
    dense they are (distance to the nearest row of the batch relative to all rows), and how far the mean
    of their gradients is from the full gradient."""

    paper = PAPER
    where = "Sections 4.2 and 4.3"
    differs = "The digits, standardized, projected by principal components; the thesis gives no numbers."
    reduced = "Nothing."
    statements = (
        Statement(
            "clusters have a smaller distance to the nearest row than random batches",
            quote="""Constructing mini-batches by clustering ensures that the point density in each
            mini-batch is conserved.""",
            source="Section 4.2",
            cases=lambda found: {
                kind: found[BATCHES][kind]["nearest distance"] < found[BATCHES]["random"]["nearest distance"]
                for kind in ("farthest point", "recursive projection")
            },
        ),
        Statement(
            "farthest-point clusters differ in size by more than a factor of 2, those of RPC do not",
            quote="""we might end up with very unbalanced clusters ... RPC which was especially designed
            to mitigate this problem ... will result in similar sized clusters""",
            source="Section 4.2",
            cases=lambda found: {
                "farthest point": found[BATCHES]["farthest point"]["largest over smallest"] > 2,
                "recursive projection": found[BATCHES]["recursive projection"]["largest over smallest"] <= 2,
            },
        ),
        Statement(
            "summed over batches, the stochastic gradient is the full one, that of random batches is not",
            quote="""The main idea is to get an unbiased estimator of the gradient by looking only at a
            few points and how they relate to the entire data set.""",
            source="Section 4.3",
            cases=lambda found: {
                "stochastic": found[BATCHES]["stochastic"]["gradient error"] < 1e-6,
                "random": found[BATCHES]["random"]["gradient error"] > 0.01,
            },
        ),
    )

    def compute(self):
        X, y = table("digits")
        if self.quick:
            X, y = X[:400], y[:400]
        A = np.linalg.svd(X, full_matrices=False)[2][:10] / 3
        Z = X @ A.T
        exact = fast_nca.gradient(A, X, y)
        full_distance = nearest_distance(Z)
        n_batches = max(1, round(len(X) / 100))
        kinds = {
            "random": lambda rng: fast_nca.random_batches(len(X), 100, rng),
            "farthest point": lambda rng: fast_nca.farthest_point_clusters(Z, n_batches, rng),
            "recursive projection": lambda rng: fast_nca.recursive_projection_clusters(Z, 100, rng),
            "stochastic": lambda rng: fast_nca.random_batches(len(X), 100, rng),
        }
        table_rows = {}
        for kind, batches_of in kinds.items():
            batches = batches_of(np.random.default_rng(self.seed))
            batches = [rows for rows in batches if len(rows) > 1]  # a row alone has no neighbor
            if kind == "stochastic":
                gradients = [fast_nca.stochastic_gradient(A, X, y, rows) for rows in batches]
            else:
                gradients = [fast_nca.gradient(A, X[rows], y[rows]) for rows in batches]
            sizes = [len(rows) for rows in batches]
            error = np.linalg.norm(np.sum(gradients, axis=0) - exact) / np.linalg.norm(exact)
            table_rows[kind] = {
                "largest over smallest": max(sizes) / min(sizes),
                "nearest distance": np.mean([nearest_distance(Z[rows]) for rows in batches]) / full_distance,
                "gradient error": error,
            }
        return Findings({BATCHES: table_rows}, {})


def nearest_distance(Z):
    """Mean distance of a row to the nearest other."""
    distances = cdist(Z, Z)
    np.fill_diagonal(distances, np.inf)
    return distances.min(axis=1).mean()
