"""Rows and their neighbors: the graph that joins them, the weights that rebuild them, its Laplacian."""

import warnings

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.utils import gen_batches

from manylens.summaries import block_rows

# A sparse matrix may lose an edge of no length, so equal rows are this far apart.
SHORTEST = np.finfo(np.float64).tiny


def row_distances(X, rows, neighbors):
    """Distances |x_i - rows_j| of rows from their neighbors, from the differences themselves.

    A row that equals its neighbor is at distance 0, not at the 1e-8 that |x|² + |y|² - 2 x.y would leave.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (m, d)
        Rows.
    rows : ndarray or CSR matrix, shape (n, d)
        Those that have been searched.
    neighbors : ndarray of int, shape (m, k)
        Which of them.

    Returns
    -------
    ndarray, shape (m, k)
        Distances in float64.
    """
    distances = np.empty(neighbors.shape)
    wide = X.astype(np.float64)
    for column, neighbor in zip(distances.T, neighbors.T, strict=True):
        difference = wide - rows[neighbor]
        if sparse.issparse(difference):
            column[:] = np.asarray(difference.multiply(difference).sum(axis=1)).ravel()
        else:
            column[:] = np.einsum("ij,ij->i", difference, difference)
    return np.sqrt(distances)


def joined_graph(X, neighbors, distances):
    """Neighborhood graph of rows, with the shortest edge between every two of its parts added.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Rows.
    neighbors : ndarray of int, shape (n, k)
        Neighbors of each.
    distances : ndarray, shape (n, k)
        Distances from them.

    Returns
    -------
    scipy.sparse.csr_array, shape (n, n)
        Entry (i, j) is the distance where j is a neighbor of i.
    """
    n, k = neighbors.shape
    lengths = np.maximum(distances.ravel(), SHORTEST)
    columns, ends = neighbors.ravel().astype(np.int32), np.arange(0, n * k + 1, k, dtype=np.int32)
    graph = sparse.csr_array((lengths, columns, ends), shape=(n, n))  # SciPy's graphs count in int32
    n_parts, part = connected_components(graph, directed=False)
    if n_parts == 1:
        return graph
    warnings.warn(
        f"The graph of {k} neighbors falls into {n_parts} parts, which were joined by their shortest edges: "
        "more neighbors would make the distances between them mean more.",
        stacklevel=2,
    )
    members = [np.flatnonzero(part == number) for number in range(n_parts)]
    bridges = [nearest_pair(X, a, b) for number, a in enumerate(members) for b in members[:number]]
    first, second, length = (np.array(column) for column in zip(*bridges, strict=True))
    both_ways = np.r_[first, second].astype(np.int32), np.r_[second, first].astype(np.int32)
    joints = sparse.coo_array((np.r_[length, length], both_ways), shape=(n, n))
    return sparse.csr_array(graph + joints.tocsr())


def nearest_pair(X, first, second):
    """The closest two rows of two sets.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Rows.
    first, second : ndarray of int
        The sets.

    Returns
    -------
    first, second : int
        The row of each set.
    length : float
        Their distance.
    """
    nearest, distances = pairwise_distances_argmin_min(X[first], X[second])
    closest = int(np.argmin(distances))
    length = max(float(distances[closest]), SHORTEST)
    return first[closest], second[nearest[closest]], length


def rebuilding_weights(X, rows, neighbors, reg):
    """Weights that rebuild rows best from their neighbors, min_w |x - Σ_j w_j r_j|² with Σ_j w_j = 1.

    The solution is w ∝ C⁻¹ 1 with C_jk = (x - r_j).(x - r_k), to which a ridge is added because k neighbors
    in fewer dimensions rebuild a row in many ways.

    Parameters
    ----------
    X : ndarray, shape (m, d)
        Rows to rebuild.
    rows : ndarray, shape (n, d)
        Rows to rebuild from.
    neighbors : ndarray of int, shape (m, k)
        Which of them, for each.
    reg : float
        Ridge as a share of the trace of C.

    Returns
    -------
    ndarray, shape (m, k)
        Weights; every row sums to one.
    """
    m, k = neighbors.shape
    weights = np.empty((m, k))
    diagonal = np.arange(k)
    for batch in gen_batches(m, block_rows(k * X.shape[1])):
        differences = X[batch, None, :].astype(np.float64) - rows[neighbors[batch]]
        local = differences @ differences.swapaxes(1, 2)
        trace = np.trace(local, axis1=1, axis2=2)
        local[:, diagonal, diagonal] += reg * np.where(trace > 0, trace, 1.0)[:, None]
        weights[batch] = np.linalg.solve(local, np.ones((len(local), k, 1)))[:, :, 0]
    return weights / weights.sum(axis=1, keepdims=True)


def laplacian_pseudo_inverse(adjacency):
    """Pseudo-inverse of the Laplacian L of a connected graph, (L + c J)⁻¹ - J/c with J = 1 1ᵀ/n.

    The constant vector is the only one that L maps to zero; c J maps it to c times itself and leaves all
    others alone, so that what is left is an ordinary, positive definite inverse. c is the mean degree.

    Parameters
    ----------
    adjacency : ndarray, shape (n, n)
        Symmetric weights, at least 0.

    Returns
    -------
    ndarray, shape (n, n)
        Symmetric; its rows sum to zero.
    """
    n = len(adjacency)
    without_loops = adjacency - np.diag(np.diag(adjacency))
    degrees = without_loops.sum(axis=1)
    scale = degrees.mean()
    laplacian = np.diag(degrees) - without_loops
    inverse = linalg.cho_solve(linalg.cho_factor(laplacian + scale / n), np.eye(n)) - 1.0 / (scale * n)
    return (inverse + inverse.T) / 2
