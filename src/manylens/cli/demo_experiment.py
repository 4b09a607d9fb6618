"""The experiment of `manylens demo`: modules of the digits against other small representations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors

from manylens.baselines import (
    BootstrapKernelPCA,
    MonolithicKernelPCA,
    PartitionKernelPCA,
    RandomKernelProjection,
)
from manylens.ensembles.precision import module_neighbors, rerank, retrieval_precision
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.native.threads import one_blas_thread
from manylens.typing import FloatArray, IntArray


@dataclass(frozen=True)
class Settings:
    """Sizes of the experiment."""

    n_modules: int = 10
    n_components: int = 10
    diversities: tuple[float, ...] = (0.0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)
    n_base: int = 1297  # digits to learn from and to search
    n_queries: int = 500  # digits to search for
    n_neighbors: int = 10  # neighbors that a search returns
    n_voters: int = 5  # neighbors that vote in each module
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Settings:
        """Settings for a run of about a second."""
        return cls(diversities=(0.0, 0.5, 0.9, 0.99, 1.0), n_base=500, n_queries=200, seed=seed)


@dataclass(frozen=True)
class Digits:
    """Digits to search and to search for, with the true neighbors of each query by pixels."""

    base: FloatArray  # (n, 64)
    queries: FloatArray  # (m, 64)
    base_labels: IntArray
    query_labels: IntArray
    neighbors: IntArray  # (m, k)


@dataclass(frozen=True)
class Scores:
    """Retrieval precision and voting accuracy in [0, 1], of all modules together and of one on average."""

    precision: float
    accuracy: float
    module_precision: float
    module_accuracy: float


@dataclass(frozen=True)
class Measured:
    """A fitted representation and its scores."""

    name: str
    model: Any
    scores: Scores
    seconds: float  # time of the fit, without the shared decomposition


@dataclass(frozen=True)
class Experiment:
    """All results: modules at every diversity (`path`), and the other representations."""

    settings: Settings
    digits: Digits
    path: list[Measured]
    baselines: list[Measured]
    decomposition_seconds: float
    seconds: float

    @property
    def best(self) -> Measured:
        """The modules with the highest retrieval precision."""
        return max(self.path, key=lambda measured: measured.scores.precision)


def split_digits(n_base: int, n_queries: int, n_neighbors: int, seed: int) -> Digits:
    """A stratified split of scikit-learn's digits."""
    X, y = load_digits(return_X_y=True)
    base, queries, base_labels, query_labels = train_test_split(
        X, y, train_size=n_base, test_size=n_queries, stratify=y, random_state=seed
    )
    index = NearestNeighbors(n_neighbors=n_neighbors).fit(base)
    return Digits(base, queries, base_labels, query_labels, index.kneighbors(queries, return_distance=False))


def score_modules(model: Any, digits: Digits, n_neighbors: int, n_voters: int) -> Scores:
    """Score a search with all modules, and a vote of the neighbors in each module and then of the modules."""
    base, queries = (model.split(model.transform(rows)) for rows in (digits.base, digits.queries))
    found = module_neighbors(base, queries, max(n_neighbors, n_voters))  # (m, modules, k)
    proposed = found[:, :, :n_neighbors]
    together = rerank(proposed, base, queries, n_neighbors)  # smallest mean squared distance over modules
    votes = stats.mode(digits.base_labels[found[:, :, :n_voters]], axis=2).mode  # (m, modules)
    predicted = stats.mode(votes, axis=1).mode
    single = [retrieval_precision(proposed[:, m], digits.neighbors) for m in range(base.shape[1])]
    return Scores(
        precision=retrieval_precision(together, digits.neighbors),
        accuracy=float(np.mean(predicted == digits.query_labels)),
        module_precision=float(np.mean(single)),
        module_accuracy=float(np.mean(votes == digits.query_labels[:, None])),
    )


def run_experiment(settings: Settings, notify: Callable[[str], object] = str) -> Experiment:
    """Fit and score everything; `notify` is called with the name of each step."""
    start = time.perf_counter()

    def measure(name: str, learn: Callable[[], Any]) -> Measured:
        notify(name)
        begin = time.perf_counter()
        model = learn()
        seconds = time.perf_counter() - begin
        scores = score_modules(model, digits, settings.n_neighbors, settings.n_voters)
        return Measured(name, model, scores, seconds)

    M, H, seed = settings.n_modules, settings.n_components, settings.seed
    others: dict[str, Any] = {
        "monolithic": MonolithicKernelPCA(M * H, random_state=seed),
        "partition": PartitionKernelPCA(M, H, random_state=seed),
        "bootstrap": BootstrapKernelPCA(M, H, random_state=seed),
        "random": RandomKernelProjection(M, H, random_state=seed),
    }
    with one_blas_thread():  # small matrices: more threads would wait for each other
        digits = split_digits(settings.n_base, settings.n_queries, settings.n_neighbors, seed)
        lenses = ModularKernelPCA(M, H, random_state=seed)
        notify("decomposition")
        begin = time.perf_counter()
        lenses.fit(digits.base)
        decomposition_seconds = time.perf_counter() - begin
        path = [measure("modular", partial(lenses.with_diversity, value)) for value in settings.diversities]
        baselines = [measure(name, partial(model.fit, digits.base)) for name, model in others.items()]
    return Experiment(settings, digits, path, baselines, decomposition_seconds, time.perf_counter() - start)
