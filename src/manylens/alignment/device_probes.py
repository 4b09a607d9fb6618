"""Leave-one-out predictions of a ridge and of nearest neighbors, on the device of arrays of any library."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from manylens.alignment.feature_sets import constant_message
from manylens.alignment.probes import BLOCK_BYTES, EPS, NEIGHBORS, RATIOS, query_rows
from manylens.alignment.transferability import Scored, best_of_queries, mean_of_probes, prediction_score
from manylens.arrays import labels_on_host, to_device
from manylens.typing import FloatArray

DEVICE_METRICS = ("accuracy", "ridge", "knn")


def device_probe_scores(
    xp: ModuleType, X: Any, columns: FloatArray, is_class: bool, standardize: bool, metric: str, name: Any
) -> dict[str, Scored]:
    """Scores of features (n, d) on a device for target columns (n, C), as `probe_scores` gives them.

    Only predictions reach the host: (n, C) numbers.
    """
    X = prepared_columns(xp, X, standardize, name)
    Y = to_device(xp, columns, xp.astype(X[:1, :1], xp.float64))
    found = {}
    if metric != "knn":
        predictions = labels_on_host(device_ridge_left_out(xp, xp.astype(X, xp.float64), Y))
        found["ridge"] = prediction_score(predictions, columns, is_class)
    if metric != "ridge":
        queries = query_rows(len(columns))
        means = device_neighbor_left_out(xp, X, Y, queries)
        found["knn"] = best_of_queries([labels_on_host(each) for each in means], columns, queries, is_class)
    return mean_of_probes(found) if metric == "accuracy" else found


def prepared_columns(xp: ModuleType, X: Any, standardize: bool, name: Any) -> Any:
    """Centered columns (n, d); with `standardize`, of variance 1 and without those that are constant."""
    largest = float(xp.max(xp.abs(X)))
    X = X / (largest if largest > 0 else 1.0)  # so that differences neither overflow nor underflow
    X = X - X[:1, :]
    X = X - xp.mean(X, axis=0, keepdims=True)
    spans = xp.max(xp.abs(X), axis=0)
    kept = xp.nonzero(spans > 8 * float(xp.finfo(X.dtype).eps))[0]
    if kept.shape[0] == 0:
        raise ValueError(constant_message(name))
    if not standardize:
        return X
    X = xp.take(X, kept, axis=1) / xp.take(spans, kept, axis=0)
    return X / xp.sqrt(xp.mean(X * X, axis=0, keepdims=True))


def device_ridge_left_out(xp: ModuleType, X: Any, Y: Any) -> Any:
    """Leave-one-out predictions (n, C) of a ridge with intercept on centered rows, as `ridge_left_out`."""
    n, d = X.shape
    squares, vectors = xp.linalg.eigh(xp.matmul(X.T, X) if d < n else xp.matmul(X, X.T))
    rank = int(xp.sum(xp.astype(squares > max(n, d) * EPS * squares[-1], xp.int64)))
    squares, vectors = squares[-rank:], vectors[:, -rank:]
    U = xp.matmul(X, vectors / xp.sqrt(squares)) if d < n else vectors
    centered = Y - xp.mean(Y, axis=0, keepdims=True)
    products, powers = xp.matmul(U.T, centered), U * U
    best, least = centered, np.inf
    for alpha in (RATIOS * float(xp.mean(squares))).tolist():
        shrunk = squares / (squares + alpha)
        free = xp.clip(1.0 - 1.0 / n - xp.matmul(powers, shrunk), 1e-10, 1.0)
        residuals = (centered - xp.matmul(U, shrunk[:, None] * products)) / free[:, None]
        error = float(xp.sum(residuals * residuals))
        if error < least:
            best, least = residuals, error
    return Y - best


def device_neighbor_left_out(xp: ModuleType, X: Any, Y: Any, queries: Any) -> list[Any]:
    """Mean target (m, C) of the nearest other rows of each query row, for each of `NEIGHBORS`."""
    n = X.shape[0]
    numbers = [min(k, n - 1) for k in NEIGHBORS]
    half_squares = xp.sum(X * X, axis=1) / 2
    own = xp.asarray(queries, device=device_of(X))
    places = xp.arange(n, device=device_of(X))
    step = max(1, BLOCK_BYTES // (8 * n))
    means: list[list[Any]] = [[] for _ in numbers]
    for first in range(0, len(queries), step):
        some = own[first : min(first + step, len(queries))]
        near = xp.matmul(xp.take(X, some, axis=0), X.T) - half_squares  # larger is nearer
        near = xp.where(places[None, :] == some[:, None], -xp.inf, near)
        # The array API standard has no partial sort.
        nearest = xp.topk(near, max(numbers))[1] if hasattr(xp, "topk") else xp.argsort(-near, axis=1)
        total = xp.zeros((some.shape[0], Y.shape[1]), dtype=Y.dtype, device=device_of(X))
        for k in range(max(numbers)):
            total = total + xp.take(Y, nearest[:, k], axis=0)
            for found, number in zip(means, numbers, strict=True):
                if number == k + 1:
                    found.append(total / number)
    return [xp.concat(found, axis=0) for found in means]


def device_of(X: Any) -> Any:
    """The device of an array."""
    import array_api_compat

    return array_api_compat.device(X)
