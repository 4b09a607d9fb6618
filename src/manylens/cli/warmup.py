"""`manylens warmup`: compile all loops ahead of time, by running each estimator on little data."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from manylens.alignment.cka_and_hsic import hsic_test
from manylens.alignment.distance_correlations import distance_correlation
from manylens.ensembles.module_neighbors import ModuleNeighbors
from manylens.ensembles.scan_classifier import ScanNeighborsClassifier
from manylens.ensembles.search_index import Method
from manylens.explorer.served_neighbors import ExplorerBackend
from manylens.metric.nca import NCA
from manylens.modules.kernel_pca import ModularKernelPCA
from manylens.pruning.alignment_pruner import AlignmentPruner
from manylens.pruning.tree_pruner import TreePruner
from manylens.summaries.count_sketch import CountSketch
from manylens.transfer.banded_ridge import banded_form
from manylens.typing import FloatArray, IntArray

NCA_METHODS = ("exact", "tree", "subsample", "minibatch", "stochastic", "compact", "compact-background")
SEARCH_METHODS: tuple[Method, ...] = ("nested", "exact", "paper")
N_ROWS, N_FEATURES, N_CLASSES = 600, 8, 3


def warmup(report: Callable[[str], object] = print) -> None:
    """Run all tasks in both precisions, and report what was run and how many seconds it took."""
    start = time.perf_counter()
    report("Compiling the loops of manylens, once per machine:")
    with quiet():
        for dtype in (np.float64, np.float32):
            X, y = make_rows(dtype)
            for name, run in tasks(X, y):
                begin = time.perf_counter()
                run()
                report(f"  {name}, {X.dtype}: {time.perf_counter() - begin:.1f} s")
    report(f"Done in {time.perf_counter() - start:.1f} s.")


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings about fits that are stopped early, and do not announce the compilation."""
    logger = logging.getLogger("manylens")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def make_rows(dtype: Any) -> tuple[FloatArray, IntArray]:
    """Rows of three overlapping classes."""
    rng = np.random.default_rng(0)
    y = np.arange(N_ROWS) % N_CLASSES
    X = rng.normal(size=(N_ROWS, N_FEATURES)) + rng.normal(size=(N_CLASSES, N_FEATURES))[y]
    return X.astype(dtype), y


def tasks(X: FloatArray, y: IntArray) -> Iterator[tuple[str, Callable[[], object]]]:
    """Names and calls that together compile all loops."""
    lenses = ModularKernelPCA(3, 2, rank=20, random_state=0).fit(X)
    for method in NCA_METHODS:
        nca = NCA(2, method=method, max_iter=3, random_state=0)
        yield f"NCA, {method}", partial(nca.fit, X, y)
    for method in SEARCH_METHODS:
        index = ModuleNeighbors(lenses, method=method)
        yield f"ModuleNeighbors, {method}", partial(search, index, X)
    yield "ModuleNeighbors, graph", partial(search, ModuleNeighbors(lenses, backend="graph"), X)
    yield "ScanNeighborsClassifier", lambda: ScanNeighborsClassifier(5).fit(X, y).predict(X)
    yield "CountSketch, few rows", lambda: CountSketch(N_ROWS).update(X)
    yield "CountSketch, many rows", lambda: CountSketch(4).update(X)
    yield "CountSketch, sparse", lambda: CountSketch(16).update(sparse.csr_matrix(X))
    yield "hsic_test", lambda: hsic_test(X[:, :2], X[:, 2:], n_permutations=10)
    yield "distance_correlation", lambda: distance_correlation(X[:, :2], X[:, 2:])
    asked = {"row": 0, "weights": [1.0] * 6, "each": True}
    yield "explorer", lambda: ExplorerBackend(lenses, X, diversities=[1]).neighbors(asked)
    yield "AlignmentPruner", lambda: prune(X, y)
    form = banded_form(np.eye(N_ROWS))
    yield "exact kernel ridge", lambda: form.inverse_diagonals(form.factors(np.ones(1)))


def search(index: Any, X: FloatArray) -> None:
    """Search for few rows and for one row."""
    index.fit(X)
    index.kneighbors(X[:50])
    index.kneighbors(X[:1])


def prune(X: FloatArray, y: IntArray) -> None:
    """Predict with pruned forests and pruned boosting, without and with missing values."""
    missing = X.copy()
    missing[::7, 0] = np.nan
    for rows in (X, missing):
        forest = RandomForestClassifier(6, max_depth=3, random_state=0).fit(rows, y)
        AlignmentPruner(forest).fit(rows, y).predict(rows)
        trees = RandomForestRegressor(6, max_depth=3, random_state=0).fit(rows, X[:, 0])
        AlignmentPruner(trees).fit(rows, X[:, 0]).predict(rows)
        TreePruner(trees, max_nodes=20, random_state=0).fit(rows, X[:, 0]).predict(rows)
    boosting = GradientBoostingRegressor(n_estimators=6, random_state=0).fit(X, X[:, 0])
    AlignmentPruner(boosting).fit(X, X[:, 0]).predict(X)
    histogram = HistGradientBoostingRegressor(max_iter=6, random_state=0).fit(X[::2], X[::2, 0])
    TreePruner(histogram, max_nodes=20, random_state=0).fit(X[1::2], X[1::2, 0]).predict(X)
