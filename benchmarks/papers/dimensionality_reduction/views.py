"""Fitting the paper's five methods and querying them for neighbors."""

import time
from typing import NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors

from manylens import ModularKernelPCA, retrieval_precision
from manylens.baselines import (
    BootstrapKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)
from manylens.ensembles.finders import ScanFinder
from manylens.ensembles.voting import modal_class
from manylens.native.nearest import rerank_union
from manylens.papers.modular_dimensionality_reduction import module_by_module, pooled_vote

PAPER = "Modular dimensionality reduction"
DIVERSITIES = (0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999)  # all that Table 3 of the paper names
MBM, DIRECT = "MBM", "Direct"  # modules by the paper's algorithm, and by this library's solver
SWEEPS = 100  # of MBM at most; it stops once a sweep lowers the loss by less than a fraction of 1e-4
MBM_REDUCED = """MBM runs for at most 100 sweeps, on the 300 leading coordinates of the map, in which all
minimizers lie: a sweep then takes a fifteenth of the time."""
TOTAL = 300  # dimensions of all modules together, as in the paper
RETRIEVED, VOTERS = 10, 5
BASELINES = {
    "Partition": PartitionKernelPCA,
    "Bootstrap": BootstrapKernelPCA,
    "Random": RandomKernelProjection,
}


class Answers(NamedTuple):
    """Quality of one representation, and its time if every module has a worker.

    Parameters
    ----------
    precision, accuracy, hard_accuracy : float
        Percentage of the true ten neighbors found, and of correct votes: the most frequent class among the
        five neighbors of all modules together, as in the paper's tables, and one vote per module.
    retrieval_seconds, vote_seconds : float
        Time of one module's search (median over modules), plus the ranking of candidates for retrieval.
    """

    precision: float
    accuracy: float
    hard_accuracy: float
    retrieval_seconds: float
    vote_seconds: float


class Questions(NamedTuple):
    """Queries with the correct results.

    Parameters
    ----------
    X : ndarray, shape (n_queries, d)
        Rows.
    y : ndarray of int
        Their classes.
    neighbors : ndarray of int, shape (n_queries, 10)
        Nearest rows of the base in the input space.
    """

    X: np.ndarray
    y: np.ndarray
    neighbors: np.ndarray


def questions(base, X, y):
    """Queries with their true neighbors."""
    index = NearestNeighbors(n_neighbors=RETRIEVED, algorithm="brute").fit(base)
    return Questions(X, y, index.kneighbors(X, return_distance=False))


def nearest(view, asked, k):
    """Rows of a view nearest to each query, nearest first, and the seconds of the search on one thread."""
    scan = ScanFinder(np.ascontiguousarray(view, dtype=np.float32))
    asked = np.ascontiguousarray(asked, dtype=np.float32)
    start = time.perf_counter()
    _, rows = scan.search(asked, k, n_jobs=1)
    return rows, time.perf_counter() - start


def answers(base, asked, y, queries):
    """Retrieval and votes of modules.

    Parameters
    ----------
    base, asked : ndarray, shape (n, M, H) and (n_queries, M, H)
        Modules of the base and of the queries.
    y : ndarray of int, shape (n,)
        Classes of the base.
    queries : Questions
        Queries with the correct results.
    """
    n_classes = int(y.max()) + 1
    found, seconds, labels, vote_seconds = [], [], [], []
    for m in range(base.shape[1]):
        rows, took = nearest(base[:, m], asked[:, m], RETRIEVED)
        voters, vote_took = nearest(base[:, m], asked[:, m], VOTERS)
        found.append(rows)
        labels.append(y[voters])
        seconds.append(took)
        vote_seconds.append(vote_took)
    start = time.perf_counter()
    retrieved = found[0] if len(found) == 1 else ranked(base, asked, np.hstack(found))
    ranking = time.perf_counter() - start
    one_each = np.array([modal_class(voters.T, n_classes) for voters in labels])
    return Answers(
        100 * retrieval_precision(retrieved, queries.neighbors),
        100 * float(np.mean(pooled_vote(np.array(labels)) == queries.y)),
        100 * float(np.mean(modal_class(one_each, n_classes) == queries.y)),
        float(np.median(seconds)) + ranking,
        float(np.median(vote_seconds)),
    )


def ranked(base, asked, candidates):
    """The ten nearest of each query's candidates by all modules together."""
    flat = [np.ascontiguousarray(part.reshape(len(part), -1), dtype=np.float32) for part in (asked, base)]
    return rerank_union(*flat, candidates.astype(np.int64), RETRIEVED)[1]


def fitted(kind, n_modules, X, rank, seed):
    """One of the modular methods with `n_modules` modules, 300 dimensions in total."""
    return kind(n_modules=n_modules, n_components=TOTAL // n_modules, rank=rank, random_state=seed).fit(X)


def ask(model, parts, queries):
    """`answers` of a fitted model."""
    base, asked = (model.split(model.transform(X)) for X in (parts.X, queries.X))
    return answers(base, asked, parts.y, queries)


def monolithic(parts, queries, rank, seed):
    """`answers` of the top 300 components."""
    model = MonolithicKernelPCA(TOTAL, rank=rank, random_state=seed).fit(parts.X)
    return answers(
        model.transform(parts.X)[:, np.newaxis],
        model.transform(queries.X)[:, np.newaxis],
        parts.y,
        queries,
    )


def by_mbm(model, seed, sweeps=SWEEPS):
    """A copy of a fitted model with modules of the paper's Algorithm 1 from a random start."""
    shape = model.n_modules, model.n_components
    rng = np.random.default_rng(seed)
    found = module_by_module(model.spectrum_, *shape, model.diversity_, rng=rng, max_iter=sweeps, tol=1e-4)
    return model.with_modules(found.modules)


def over_diversities(solvers, n_modules, diversities, parts, queries, rank, seed, sweeps=SWEEPS):
    """`answers` of the modules of each solver at each diversity, for each set of queries; one fit serves all.

    Returns
    -------
    dict of list of list of Answers
        Solver -> one list for each of `queries`, with an entry per diversity.
    """
    model = fitted(ModularKernelPCA, n_modules, parts.X, rank, seed)
    base, asked = model.principal_coordinates(parts.X), [model.principal_coordinates(q.X) for q in queries]
    outcome = {solver: [[] for _ in queries] for solver in solvers}
    for diversity in diversities:
        for solver, found in outcome.items():
            lens = model.with_diversity(diversity)
            if solver == MBM:
                lens = by_mbm(lens, seed, sweeps)
            views = lens.split(lens.transform_coordinates(base))
            for answered, coordinates, wanted in zip(found, asked, queries, strict=True):
                others = lens.split(lens.transform_coordinates(coordinates))
                answered.append(answers(views, others, parts.y, wanted))
    return outcome


def chosen(tried, what):
    """Index of the first best by one of the fields of `Answers`."""
    return int(np.argmax([getattr(answer, what) for answer in tried]))
