"""Kernels learned from a neighborhood graph: Isomap, locally linear embedding, Laplacian eigenmaps.

Ham, Lee, Mika and Schölkopf (2004) showed that each of the three is kernel PCA with a Gram matrix learned
from the training rows. New rows are compared with the training rows through their nearest neighbors among
them. A row that equals a training row is treated as that row. Results are always float64, because the leading
coordinates of LLE often differ by less than the rounding of float32. Time is O(n³), memory O(n²), for n
training rows.
"""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components, shortest_path
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.kernels import Kernel
from manylens.summaries.moments import block_rows
from manylens.typing import FloatArray, IntArray, Rows, Seed
from manylens.validation import (
    check_count,
    check_real,
    is_sparse,
    restore_on_error,
    safe_scale,
    times_power,
    validate_rows,
)

WEAKEST = 1e-10  # edges lighter than this share of the heaviest are lost to rounding in the inverse Laplacian
SHORTEST = float(np.finfo(np.float64).tiny)  # edge between equal rows: sparse matrices may drop zeros


class GraphKernel(Kernel):
    """Base class of kernels from a neighborhood graph.

    Subclasses define `_learn(X, graph)`, which sets the Gram matrix `gram_` of the training rows, and
    `_shares(X, neighbors, distances)`, the weights with which neighbors replace a new row. `IsomapKernel`
    overrides `_gram` and `_compare` instead.
    """

    has_landmarks = False  # a subset of the rows has another graph, and therefore another kernel
    n_neighbors: int
    gram_: FloatArray

    @restore_on_error
    def fit(self, X: Rows, random_state: Seed = None) -> Self:
        """Learn the Gram matrix of the training rows (n, d)."""
        check_count(self.n_neighbors, "n_neighbors")
        X = validate_rows(self, X, reset=True)
        if X.shape[0] <= self.n_neighbors:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} needs more than {self.n_neighbors} rows, but {X.shape[0]} "
                "were given: choose fewer neighbors."
            )
        self.exponent_ = safe_scale(X)
        self.rows_ = X = times_power(X, -self.exponent_)
        # A tree would save no time, because each row of the kernel has one entry per training row. A
        # brute-force index also holds only arrays, so it can be saved.
        self.index_ = NearestNeighbors(n_neighbors=self.n_neighbors, algorithm="brute").fit(X)
        neighbors = self.index_.kneighbors(return_distance=False)
        self._learn(X, joined_graph(X, neighbors, row_distances(X, X, neighbors)))
        return self

    def __call__(self, X: Rows, Y: Rows) -> FloatArray:
        self._refuse_other_rows(Y)
        X = times_power(X, -self.exponent_)
        neighbors = self.index_.kneighbors(X, return_distance=False)
        distances = row_distances(X, self.rows_, neighbors)
        # A row that equals a training row has only that row as a neighbor.
        others = (distances == 0).any(axis=1, keepdims=True) & (distances > 0)
        return self._compare(X, neighbors, np.where(others, np.inf, distances))

    def gram(self, X: Rows) -> FloatArray:
        self._refuse_other_rows(validate_rows(self, X))
        return self._gram()

    def _gram(self) -> FloatArray:
        """Gram matrix of the training rows."""
        return self.gram_

    def _refuse_other_rows(self, X: Rows) -> None:
        """Raise if these are not as many rows as in `fit`."""
        check_is_fitted(self, "rows_")
        if X.shape[0] != self.rows_.shape[0]:
            raise ValueError(
                f"{type(self).__name__} compares rows with the {self.rows_.shape[0]} that it was fitted on; "
                f"{X.shape[0]} rows were given."
            )

    def gram_block(self, X: Rows, rows: slice, columns: slice) -> FloatArray:
        check_is_fitted(self, "rows_")
        return self._gram()[rows, columns]

    def _compare(self, X: Rows, neighbors: IntArray, distances: FloatArray) -> FloatArray:
        shares = self._shares(X, neighbors, distances)
        ends = np.arange(0, shares.size + 1, shares.shape[1])
        shape = (len(neighbors), len(self.gram_))
        return sparse.csr_array((shares.ravel(), neighbors.ravel(), ends), shape=shape) @ self.gram_

    def _learn(self, X: Rows, graph: sparse.csr_array) -> None:
        raise TypeError(f"{type(self).__name__} does not define its Gram matrix: it needs _learn.")

    def _shares(self, X: Rows, neighbors: IntArray, distances: FloatArray) -> FloatArray:
        raise TypeError(f"{type(self).__name__} does not define how neighbors combine: it needs _shares.")


class IsomapKernel(GraphKernel):
    """Isomap as a kernel, -½ H D² H with D the lengths of shortest paths through the neighborhood graph.

    Paths from a new row go through its nearest neighbors j, d(x, i) = min_j |x - x_j| + D_ji. The matrix may
    have negative eigenvalues, which feature maps drop, as Isomap does.

    Parameters
    ----------
    n_neighbors : int, default=10
        Number of neighbors of each row.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from manylens import ModularKernelPCA
    >>> X, _ = make_swiss_roll(200, random_state=0)
    >>> ModularKernelPCA(2, 2, kernel=IsomapKernel(8), random_state=0).fit_transform(X).shape
    (200, 4)
    """

    def __init__(self, n_neighbors: int = 10) -> None:
        self.n_neighbors = n_neighbors

    def _learn(self, X: Rows, graph: sparse.csr_array) -> None:
        self.geodesics_ = shortest_path(graph, method="D", directed=False)
        largest = 2.0 * self.exponent_ + np.log2(max(self.geodesics_.max(), SHORTEST)) * 2
        if abs(largest) > 400:
            raise ValueError(
                f"Squared distances of about 2^{largest:.0f} have products beyond the range of float64: "
                "divide X by its largest entry."
            )
        self.mean_squares_ = np.mean(self.geodesics_**2, axis=0)

    def _gram(self) -> FloatArray:
        return self._centered(self.geodesics_)

    def _compare(self, X: Rows, neighbors: IntArray, distances: FloatArray) -> FloatArray:
        lengths = np.full((len(neighbors), len(self.geodesics_)), np.inf)
        for neighbor, distance in zip(neighbors.T, distances.T, strict=True):
            np.minimum(lengths, distance[:, None] + self.geodesics_[neighbor], out=lengths)
        return self._centered(lengths)

    def _centered(self, lengths: FloatArray) -> FloatArray:
        """Rows of -½ H D² H from rows of D; both means are over the training rows."""
        squares = lengths**2
        own = squares.mean(axis=1, keepdims=True)
        centered = -0.5 * (squares - own - self.mean_squares_ + self.mean_squares_.mean())
        return np.ldexp(centered, 2 * self.exponent_)


class LocallyLinearKernel(GraphKernel):
    """Locally linear embedding as a kernel, μ I - M with M = (I - W)ᵀ (I - W) and μ its largest eigenvalue.

    Row i of W holds the weights, summing to one, that best reconstruct row i from its neighbors. The smallest
    eigenvectors of M are the largest of the kernel; centering removes the constant one, which LLE discards.
    The pseudo-inverse of M would order the coordinates in the same way, but M can have several zero
    eigenvalues, and it would drop exactly the coordinates that LLE takes first. As in LLE, the leading
    coordinates have about the same variance. A new row is replaced by its best reconstruction from its
    neighbors.

    Parameters
    ----------
    n_neighbors : int, default=10
        Number of neighbors of each row.
    reg : float, default=1e-3
        Ridge for the weights, as a share of the trace of the local covariance.
    """

    def __init__(self, n_neighbors: int = 10, reg: float = 1e-3) -> None:
        self.n_neighbors = n_neighbors
        self.reg = reg

    def _learn(self, X: Rows, graph: sparse.csr_array) -> None:
        check_real(self.reg, "reg", minimum=0.0, include="neither")
        if is_sparse(X):
            raise ValueError(
                "LocallyLinearKernel needs differences of rows, which are not sparse: give a dense array, or "
                "use IsomapKernel or LaplacianEigenmapKernel."
            )
        n = X.shape[0]
        weights = graph.copy()
        counts = np.diff(graph.indptr)
        for count in np.unique(counts):  # rows at which parts of the graph were joined have more neighbors
            rows = np.flatnonzero(counts == count)
            entries = graph.indptr[rows][:, None] + np.arange(count)
            weights.data[entries] = reconstruction_weights(X[rows], X, graph.indices[entries], self.reg)
        residual = np.eye(n) - weights.toarray()
        M = residual.T @ residual
        largest = np.linalg.eigvalsh(M)[-1]
        self.gram_ = largest * np.eye(n) - M

    def _shares(self, X: Rows, neighbors: IntArray, distances: FloatArray) -> FloatArray:
        shares = reconstruction_weights(X, self.rows_, neighbors, self.reg)
        known = np.isinf(distances).any(axis=1)  # rows that equal a training row
        shares[known] = np.isfinite(distances[known])
        return shares / shares.sum(axis=1, keepdims=True)


class LaplacianEigenmapKernel(GraphKernel):
    """Laplacian eigenmaps as a kernel: the pseudo-inverse of the graph Laplacian L = diag(A 1) - A.

    The smallest eigenvectors of L except the constant one are the largest of the kernel, and distances in its
    feature space are commute times of a random walk on the graph. As in Ham et al., L is not normalized by
    the degrees. A new row is the mean of its neighbors, weighted by its edges to them (harmonic extension).

    Parameters
    ----------
    n_neighbors : int, default=10
        Number of neighbors of each row; two rows are joined if either is a neighbor of the other.
    gamma : float or None, default=None
        Edges have weight exp(-gamma |x - y|²), or 1 if None.
    """

    def __init__(self, n_neighbors: int = 10, gamma: float | None = None) -> None:
        self.n_neighbors = n_neighbors
        self.gamma = gamma

    def _learn(self, X: Rows, graph: sparse.csr_array) -> None:
        if self.gamma is not None:
            check_real(self.gamma, "gamma", minimum=0.0)
        adjacency = graph.copy()
        with np.errstate(over="ignore"):  # such a scale splits the graph
            gamma = self.gamma and float(np.ldexp(float(self.gamma), 2 * self.exponent_))
            adjacency.data = np.exp(-(gamma or 0.0) * graph.data**2)
        self.scaled_gamma_ = gamma
        adjacency = adjacency.maximum(adjacency.T)
        n_parts = connected_components(adjacency > WEAKEST * adjacency.max(), directed=False)[0]
        if n_parts > 1:
            raise ValueError(
                f"gamma={self.gamma} splits the neighborhood graph into {n_parts} parts, because its longest "
                "edges have almost no weight: choose a smaller gamma, or None for edges of equal weight."
            )
        self.gram_ = laplacian_pseudo_inverse(adjacency.toarray())

    def _shares(self, X: Rows, neighbors: IntArray, distances: FloatArray) -> FloatArray:
        if self.scaled_gamma_ is None:
            weights = np.isfinite(distances).astype(float)
        else:  # relative to the shortest edge, so that rows far from all others do not give 0/0
            squares = distances**2
            weights = np.exp(-self.scaled_gamma_ * (squares - squares.min(axis=1, keepdims=True)))
        return weights / weights.sum(axis=1, keepdims=True)


def row_distances(X: Rows, rows: Rows, neighbors: IntArray) -> FloatArray:
    """Distances |x_i - rows_j| (m, k) from rows to their neighbors, in float64; exactly 0 for equal rows."""
    distances = np.empty(neighbors.shape)
    wide = X.astype(np.float64)
    for column, neighbor in zip(distances.T, neighbors.T, strict=True):
        difference = wide - rows[neighbor]
        if is_sparse(difference):
            column[:] = np.asarray(difference.multiply(difference).sum(axis=1)).ravel()
        else:
            column[:] = np.einsum("ij,ij->i", difference, difference)
    return np.sqrt(distances)


def joined_graph(X: Rows, neighbors: IntArray, distances: FloatArray) -> sparse.csr_array:
    """Graph with entry (i, j) = |x_i - x_j| if j is a neighbor of i; the shortest edges connect its parts."""
    n, k = neighbors.shape
    lengths = np.maximum(distances.ravel(), SHORTEST)
    columns, ends = neighbors.ravel().astype(np.int32), np.arange(0, n * k + 1, k, dtype=np.int32)
    graph = sparse.csr_array((lengths, columns, ends), shape=(n, n))  # SciPy's graphs count in int32
    n_parts, part = connected_components(graph, directed=False)
    if n_parts == 1:
        return graph
    warnings.warn(
        f"The graph of {k} neighbors has {n_parts} parts, which were joined by the shortest edges between "
        "them: with more neighbors, distances between parts would be more meaningful.",
        stacklevel=2,
    )
    members = [np.flatnonzero(part == number) for number in range(n_parts)]
    bridges = [nearest_pair(X, a, b) for number, a in enumerate(members) for b in members[:number]]
    first, second, length = (np.array(column) for column in zip(*bridges, strict=True))
    both_ways = np.r_[first, second].astype(np.int32), np.r_[second, first].astype(np.int32)
    joints = sparse.coo_array((np.r_[length, length], both_ways), shape=(n, n))
    return sparse.csr_array(graph + joints.tocsr())


def nearest_pair(X: Rows, first: IntArray, second: IntArray) -> tuple[int, int, float]:
    """The closest two rows of two sets, and their distance."""
    nearest, distances = pairwise_distances_argmin_min(X[first], X[second])
    closest = int(np.argmin(distances))
    length = max(float(distances[closest]), SHORTEST)
    return int(first[closest]), int(second[nearest[closest]]), length


def reconstruction_weights(X: FloatArray, rows: FloatArray, neighbors: IntArray, reg: float) -> FloatArray:
    """Weights (m, k) that best reconstruct rows from their neighbors, min_w |x - Σ_j w_j r_j|², Σ_j w_j = 1.

    The solution is w ∝ C⁻¹ 1 with C_jk = (x - r_j).(x - r_k), plus a ridge in case C is singular.
    """
    m, k = neighbors.shape
    weights = np.empty((m, k))
    diagonal = np.arange(k)
    for batch in gen_batches(m, block_rows(k * X.shape[1])):
        differences = X[batch, None, :].astype(np.float64) - rows[neighbors[batch]]
        largest = np.abs(differences).max(axis=(1, 2), keepdims=True)
        differences /= np.where(largest > 0, largest, 1.0)  # so that squares do not underflow
        local = differences @ differences.swapaxes(1, 2)
        trace = np.trace(local, axis1=1, axis2=2)
        local[:, diagonal, diagonal] += float(reg) * np.where(trace > 0, trace, 1.0)[:, None]
        weights[batch] = np.linalg.solve(local, np.ones((len(local), k, 1)))[:, :, 0]
    return weights / weights.sum(axis=1, keepdims=True)


def laplacian_pseudo_inverse(adjacency: FloatArray) -> FloatArray:
    """Pseudo-inverse (L + c J)⁻¹ - J/c of the Laplacian of a connected graph; J = 1 1ᵀ/n, c = mean degree."""
    # L + c J is positive definite: L maps only the constant vector to zero, and c J multiplies it by c.
    n = len(adjacency)
    without_loops = adjacency - np.diag(np.diag(adjacency))
    degrees = without_loops.sum(axis=1)
    scale = degrees.mean()
    laplacian = np.diag(degrees) - without_loops
    inverse = linalg.cho_solve(linalg.cho_factor(laplacian + scale / n), np.eye(n)) - 1.0 / (scale * n)
    return (inverse + inverse.T) / 2
