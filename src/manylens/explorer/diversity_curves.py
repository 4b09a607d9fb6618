"""Retrieval precision and accuracy of the vote at every diversity, on a sample of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from manylens.ensembles.precision import retrieval_precision
from manylens.typing import FloatArray, IntArray
from manylens.validation import safe_scale, times_power

MOST_QUERIES = 200


def diversity_curves(
    coordinates: FloatArray, stops: list[Any], X: Any, codes: list[int] | None, n_neighbors: int
) -> dict[str, Any]:
    """Precision and vote of all modules and of one (mean), per stop; a row is not its own neighbor.

    A stop holds the modules (M, H, k) on the coordinates (n, k), or their slices. Precision is the share of
    the nearest rows in the input space (X, or the coordinates if X is None) that are found. In the vote, the
    neighbors of each module elect a label, and the modules elect one of those.
    """
    n = len(coordinates)
    queries = np.random.default_rng(0).permutation(n)[: min(MOST_QUERIES, n)]
    y = None if codes is None else np.asarray(codes)
    rows: Any = coordinates if X is None else X if sparse.issparse(X) else np.asarray(X)
    rows = times_power(rows, -safe_scale(rows))
    relevant = others(NearestNeighbors(algorithm="brute").fit(rows), rows[queries], queries, n_neighbors)
    lines: dict[str, list[float]] = {"precision": [], "module_precision": []}
    if y is not None:
        lines |= {"vote": [], "module_vote": []}
    for stop in stops:
        views = [coordinates[:, W] if isinstance(W, slice) else coordinates @ W.T for W in stop]
        found = [nearest(view, queries, n_neighbors) for view in views]
        together = nearest(np.hstack(views), queries, n_neighbors)
        lines["precision"].append(retrieval_precision(together, relevant))
        lines["module_precision"].append(float(np.mean([retrieval_precision(f, relevant) for f in found])))
        if y is not None:
            votes = np.stack([majority(y[f]) for f in found], axis=1)
            lines["vote"].append(float(np.mean(majority(votes) == y[queries])))
            lines["module_vote"].append(float(np.mean(votes == y[queries, None])))
    return {"n_queries": len(queries), **lines}


def nearest(view: FloatArray, queries: IntArray, n_neighbors: int) -> IntArray:
    """Nearest other rows (m, κ) of the rows numbered `queries`."""
    return others(NearestNeighbors(algorithm="brute").fit(view), view[queries], queries, n_neighbors)


def others(index: NearestNeighbors, rows: Any, queries: IntArray, n_neighbors: int) -> IntArray:
    """The nearest rows (m, κ) without the query itself, which need not come first among equal rows."""
    found = index.kneighbors(rows, n_neighbors + 1, return_distance=False)
    own = found == queries[:, None]
    own[~own.any(axis=1), -1] = True  # more equal rows than neighbors: drop the last
    return found[~own].reshape(len(found), n_neighbors)


def majority(codes: IntArray) -> IntArray:
    """The most frequent code of each line (m, κ), the smallest among equals."""
    counts = np.zeros((len(codes), int(codes.max()) + 1), dtype=np.int64)
    np.add.at(counts, (np.arange(len(codes))[:, None], codes), 1)
    return np.argmax(counts, axis=1)
