"""Modules of the digits, measured against other ways to make small representations.

Every function here computes and returns; nothing is printed or drawn.
"""

import time
from dataclasses import dataclass

import numpy as np
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors

from manylens.baselines.kernel_pca import (
    BootstrapKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)
from manylens.ensembles.retrieval import module_neighbors, rerank, retrieval_precision
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.native.threads import one_blas_thread


@dataclass(frozen=True)
class Settings:
    """What the experiment does.

    Parameters
    ----------
    n_modules, n_components : int
        M and H.
    diversities : tuple of float
        Diversities of the modular representations.
    n_base, n_queries : int
        Digits to learn from and search, and digits to search for.
    n_neighbors : int
        Neighbors that retrieval is asked for.
    n_voters : int
        Neighbors that vote in each module.
    seed : int
        Of the split and of the modules.
    """

    n_modules: int = 10
    n_components: int = 10
    diversities: tuple = (0.0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)
    n_base: int = 1297
    n_queries: int = 500
    n_neighbors: int = 10
    n_voters: int = 5
    seed: int = 0

    @classmethod
    def quick(cls, seed=0):
        """Fewer digits and diversities, to see that everything runs.

        Parameters
        ----------
        seed : int
            Of the split and of the modules.

        Returns
        -------
        Settings
            For a run of about a second.
        """
        return cls(diversities=(0.0, 0.5, 0.9, 0.99, 1.0), n_base=500, n_queries=200, seed=seed)


@dataclass(frozen=True)
class Digits:
    """Digits to search, digits to search for, and the right answers.

    Parameters
    ----------
    base, queries : ndarray, shape (n, 64) and (m, 64)
        Images as rows.
    base_labels, query_labels : ndarray, shape (n,) and (m,)
        Which digit each is.
    neighbors : ndarray of int, shape (m, k)
        Nearest neighbors of every query in the base, by pixels.
    """

    base: np.ndarray
    queries: np.ndarray
    base_labels: np.ndarray
    query_labels: np.ndarray
    neighbors: np.ndarray


@dataclass(frozen=True)
class Scores:
    """How good a representation is, all values shares in [0, 1].

    Parameters
    ----------
    precision : float
        Share of the true neighbors that all modules together return.
    accuracy : float
        Share of queries whose label the modules' vote gets right.
    module_precision, module_accuracy : float
        The same for one module by itself, on average.
    """

    precision: float
    accuracy: float
    module_precision: float
    module_accuracy: float


@dataclass(frozen=True)
class Measured:
    """A fitted representation with its scores.

    Parameters
    ----------
    name : str
        What it is called in the table.
    model : estimator
        Fitted.
    scores : Scores
        On the queries.
    seconds : float
        Time of the fit; for modules, of what comes after the decomposition that they share.
    """

    name: str
    model: object
    scores: Scores
    seconds: float


@dataclass(frozen=True)
class Experiment:
    """All that was measured.

    Parameters
    ----------
    settings : Settings
        What was asked for.
    digits : Digits
        The data.
    path : list of Measured
        Modular representations, one for each diversity.
    baselines : list of Measured
        Monolithic, partition, bootstrap, random.
    decomposition_seconds : float
        Time of the decomposition that the modular representations share.
    seconds : float
        Time of the whole.
    """

    settings: Settings
    digits: Digits
    path: list
    baselines: list
    decomposition_seconds: float
    seconds: float

    @property
    def best(self):
        """The modular representation of the highest retrieval precision."""
        return max(self.path, key=lambda measured: measured.scores.precision)


def split_digits(n_base, n_queries, n_neighbors, seed):
    """scikit-learn's digits as base and queries, every digit equally often in both.

    Parameters
    ----------
    n_base, n_queries : int
        Sizes; together at most 1,797.
    n_neighbors : int
        Number of true neighbors of each query.
    seed : int
        Of the split.

    Returns
    -------
    Digits
        The split, with the true neighbors.
    """
    data = load_digits()
    base, queries, base_labels, query_labels = train_test_split(
        data.data,
        data.target,
        train_size=n_base,
        test_size=n_queries,
        stratify=data.target,
        random_state=seed,
    )
    index = NearestNeighbors(n_neighbors=n_neighbors).fit(base)
    return Digits(base, queries, base_labels, query_labels, index.kneighbors(queries, return_distance=False))


def score_modules(model, digits, n_neighbors, n_voters):
    """Retrieval precision and voting accuracy of a representation.

    Every module offers its own nearest neighbors; of all that are offered, those of the smallest mean
    squared distance over modules are returned. For a label, the nearest rows vote within each module, and
    then the modules among each other.

    Parameters
    ----------
    model : modular estimator
        Fitted on `digits.base`.
    digits : Digits
        Base and queries.
    n_neighbors, n_voters : int
        Neighbors for retrieval and for the vote.

    Returns
    -------
    Scores
        On the queries.
    """
    base, queries = (model.split(model.transform(rows)) for rows in (digits.base, digits.queries))
    found = module_neighbors(base, queries, max(n_neighbors, n_voters))
    offered = found[:, :, :n_neighbors]
    together = rerank(offered, base, queries, n_neighbors)
    voices = stats.mode(digits.base_labels[found[:, :, :n_voters]], axis=2).mode
    verdict = stats.mode(voices, axis=1).mode
    single = [retrieval_precision(offered[:, m], digits.neighbors) for m in range(base.shape[1])]
    return Scores(
        precision=retrieval_precision(together, digits.neighbors),
        accuracy=float(np.mean(verdict == digits.query_labels)),
        module_precision=float(np.mean(single)),
        module_accuracy=float(np.mean(voices == digits.query_labels[:, None])),
    )


def baselines_of(settings):
    """The other ways to make small representations, not fitted.

    Parameters
    ----------
    settings : Settings
        Sizes and seed.

    Returns
    -------
    dict of str to estimator
        By name.
    """
    M, H, seed = settings.n_modules, settings.n_components, settings.seed
    return {
        "monolithic": MonolithicKernelPCA(M * H, random_state=seed),
        "partition": PartitionKernelPCA(M, H, random_state=seed),
        "bootstrap": BootstrapKernelPCA(M, H, random_state=seed),
        "random": RandomKernelProjection(M, H, random_state=seed),
    }


def run_experiment(settings, notify=None):
    """Learn and measure everything.

    Parameters
    ----------
    settings : Settings
        What to do.
    notify : callable, optional
        Called with a few words before every step.

    Returns
    -------
    Experiment
        What came out; the same for the same settings.
    """
    start = time.perf_counter()
    # Matrices of a thousand rows are small: on a busy machine threads would wait for each other.
    with one_blas_thread():
        digits = split_digits(settings.n_base, settings.n_queries, settings.n_neighbors, settings.seed)
        lenses = ModularKernelPCA(settings.n_modules, settings.n_components, random_state=settings.seed)
        notify = notify or (lambda words: words)

        def measure(name, learn):
            notify(name)
            begin = time.perf_counter()
            model = learn()
            seconds = time.perf_counter() - begin
            scores = score_modules(model, digits, settings.n_neighbors, settings.n_voters)
            return Measured(name, model, scores, seconds)

        notify("decomposition")
        begin = time.perf_counter()
        lenses.fit(digits.base)
        decomposition_seconds = time.perf_counter() - begin
        path = [measure("modular", lambda at=at: lenses.with_diversity(at)) for at in settings.diversities]
        baselines = [
            measure(name, lambda model=model: model.fit(digits.base))
            for name, model in baselines_of(settings).items()
        ]
    return Experiment(settings, digits, path, baselines, decomposition_seconds, time.perf_counter() - start)
