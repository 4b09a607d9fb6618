"""Kernels learned from a neighborhood graph: Isomap, locally linear embedding, Laplacian eigenmaps.

Ham, Lee, Mika and Schölkopf (2004) showed that each of the three is kernel PCA with a Gram matrix made from
the training rows. Here that matrix is learned by `fit`, and new rows are compared with the training rows
through their nearest neighbors among them. A row that coincides with a training row is that row.

All of them answer in float64, whatever the precision of the rows: what tells the leading coordinates of LLE
apart is often below the rounding of float32. Time is that of a neighbor search and O(n³) at most, memory
O(n²), for n training rows.
"""

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components, shortest_path
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_scalar

from manylens.kernels.kernels import Kernel
from manylens.kernels.neighborhood import (
    joined_graph,
    laplacian_pseudo_inverse,
    rebuilding_weights,
    row_distances,
)

WEAKEST = 1e-10  # share of the strongest weight below which an edge is lost in the inverse of the Laplacian


class GraphKernel(Kernel):
    """Base of the kernels of a neighborhood graph.

    A subclass gives `_learn(X, graph)`, which sets the Gram matrix `gram_` of the training rows, and
    `_shares(X, neighbors, distances)`: a new row is compared as that combination of its neighbors.
    """

    has_landmarks = False  # part of the rows has another graph, so another kernel

    def fit(self, X, random_state=None):
        """Learn the Gram matrix of the rows.

        Parameters
        ----------
        X : ndarray or CSR matrix, shape (n, d)
            Training rows.
        random_state : int, RandomState or None
            Not used.

        Returns
        -------
        GraphKernel
            Itself.
        """
        check_scalar(self.n_neighbors, "n_neighbors", (int, np.integer), min_val=1)
        if X.shape[0] <= self.n_neighbors:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} needs more than {self.n_neighbors} rows, and {X.shape[0]} "
                "were given: choose fewer neighbors."
            )
        self.rows_ = X
        # A row of the kernel is as long as the training rows are many, so a tree would save nothing; and
        # brute force leaves only arrays in the model, which can be saved.
        self.index_ = NearestNeighbors(n_neighbors=self.n_neighbors, algorithm="brute").fit(X)
        neighbors = self.index_.kneighbors(return_distance=False)
        self._learn(X, joined_graph(X, neighbors, row_distances(X, X, neighbors)))
        return self

    def gram(self, rows):
        return self.gram_

    def __call__(self, X, Y):
        if Y.shape[0] != self.rows_.shape[0]:
            raise ValueError(
                f"{type(self).__name__} compares rows with the {self.rows_.shape[0]} that it was fitted on; "
                f"{Y.shape[0]} others were given."
            )
        neighbors, distances = self._nearest(X)
        return self._compare(X, neighbors, distances)

    def _nearest(self, X):
        """Neighbors among the training rows; where some coincide with the row, others are at infinity."""
        neighbors = self.index_.kneighbors(X, return_distance=False)
        distances = row_distances(X, self.rows_, neighbors)
        met = (distances == 0).any(axis=1, keepdims=True) & (distances > 0)
        return neighbors, np.where(met, np.inf, distances)

    def _compare(self, X, neighbors, distances):
        shares = self._shares(X, neighbors, distances)
        ends = np.arange(0, shares.size + 1, shares.shape[1])
        shape = (len(neighbors), len(self.gram_))
        return sparse.csr_array((shares.ravel(), neighbors.ravel(), ends), shape=shape) @ self.gram_

    def _learn(self, X, graph):
        raise TypeError(f"{type(self).__name__} does not say what its Gram matrix is.")

    def _shares(self, X, neighbors, distances):
        raise TypeError(f"{type(self).__name__} does not say how new rows are combined of their neighbors.")


class IsomapKernel(GraphKernel):
    """Isomap as a kernel, -½ H D² H with D the lengths of shortest paths through the neighborhood graph.

    A new row's paths go through its nearest neighbors j, d(x, i) = min_j |x - x_j| + D_ji. The matrix may
    have negative eigenvalues; feature maps drop them, as Isomap does.

    Parameters
    ----------
    n_neighbors : int
        Neighbors of each row.

    Attributes
    ----------
    geodesics_ : ndarray, shape (n, n)
        D.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from manylens import ModularKernelPCA
    >>> X, _ = make_swiss_roll(200, random_state=0)
    >>> ModularKernelPCA(2, 2, kernel=IsomapKernel(8), random_state=0).fit_transform(X).shape
    (200, 4)
    """

    def __init__(self, n_neighbors=10):
        self.n_neighbors = n_neighbors

    def _learn(self, X, graph):
        self.geodesics_ = shortest_path(graph, method="D", directed=False)
        self.mean_squares_ = np.mean(self.geodesics_**2, axis=0)

    def gram(self, rows):
        return self._centered(self.geodesics_)

    def _compare(self, X, neighbors, distances):
        lengths = np.full((len(neighbors), len(self.geodesics_)), np.inf)
        for neighbor, distance in zip(neighbors.T, distances.T, strict=True):
            np.minimum(lengths, distance[:, None] + self.geodesics_[neighbor], out=lengths)
        return self._centered(lengths)

    def _centered(self, lengths):
        """Rows of -½ H D² H from rows of D: both means are those over the training rows."""
        squares = lengths**2
        own = squares.mean(axis=1, keepdims=True)
        return -0.5 * (squares - own - self.mean_squares_ + self.mean_squares_.mean())


class LocallyLinearKernel(GraphKernel):
    """Locally linear embedding as a kernel, μ I - M with M = (I - W)ᵀ (I - W) and μ its largest eigenvalue.

    Row i of W holds the weights, summing to one, that best rebuild row i from its neighbors. The smallest
    eigenvectors of M are the largest of the kernel; the constant one, which LLE discards, is removed by
    centering. The shift keeps Ham's form rather than the pseudo-inverse of M, which orders the coordinates
    in the same way: a graph that is connected can still leave M several zero eigenvalues (neighborhood is
    not mutual), and the pseudo-inverse would drop the very coordinates that LLE takes first. The price is a
    flat spectrum: as in LLE, all leading coordinates have about the same variance.

    A new row is the combination of its neighbors that rebuilds it best.

    Parameters
    ----------
    n_neighbors : int
        Neighbors of each row.
    reg : float
        Ridge of the weights, as a share of the trace of the local covariance.

    Attributes
    ----------
    gram_ : ndarray, shape (n, n)
        The kernel between training rows.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from manylens import ModularKernelPCA
    >>> X, _ = make_swiss_roll(200, random_state=0)
    >>> ModularKernelPCA(2, 2, kernel=LocallyLinearKernel(8), random_state=0).fit_transform(X).shape
    (200, 4)
    """

    def __init__(self, n_neighbors=10, reg=1e-3):
        self.n_neighbors = n_neighbors
        self.reg = reg

    def fit(self, X, random_state=None):
        check_scalar(self.reg, "reg", (float, int), min_val=0.0, include_boundaries="neither")
        if sparse.issparse(X):
            raise ValueError(
                "LocallyLinearKernel rebuilds rows from differences, which fill sparse rows in: give a dense "
                "array, or use IsomapKernel or LaplacianEigenmapKernel."
            )
        return super().fit(X, random_state)

    def _learn(self, X, graph):
        n = X.shape[0]
        weights = graph.copy()
        counts = np.diff(graph.indptr)
        for count in np.unique(counts):  # a row at which parts were joined has more neighbors than the rest
            rows = np.flatnonzero(counts == count)
            entries = graph.indptr[rows][:, None] + np.arange(count)
            weights.data[entries] = rebuilding_weights(X[rows], X, graph.indices[entries], self.reg)
        rest = np.eye(n) - weights.toarray()
        M = rest.T @ rest
        largest = linalg.eigvalsh(M, subset_by_index=[n - 1, n - 1])[0]
        self.gram_ = largest * np.eye(n) - M

    def _shares(self, X, neighbors, distances):
        shares = rebuilding_weights(X, self.rows_, neighbors, self.reg)
        met = np.isinf(distances).any(axis=1)
        shares[met] = np.isfinite(distances[met])
        return shares / shares.sum(axis=1, keepdims=True)


class LaplacianEigenmapKernel(GraphKernel):
    """Laplacian eigenmaps as a kernel: the pseudo-inverse of the graph Laplacian L = diag(A 1) - A.

    The smallest eigenvectors of L but the constant one are the largest of the kernel, and distances in its
    feature space are commute times of a random walk on the graph. L is not normalized by the degrees, as
    in Ham et al.; where the degrees are equal this is the same.

    A new row is the mean of its neighbors, weighted by its edges to them: the harmonic extension, where a
    row in which no walk starts or ends has the mean value of its neighbors.

    Parameters
    ----------
    n_neighbors : int
        Neighbors of each row; two rows are joined where either is a neighbor of the other.
    gamma : float or None
        Edges weigh exp(-gamma |x - y|²), or 1 where None.

    Attributes
    ----------
    gram_ : ndarray, shape (n, n)
        The kernel between training rows.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from manylens import ModularKernelPCA
    >>> X, _ = make_swiss_roll(200, random_state=0)
    >>> ModularKernelPCA(2, 2, kernel=LaplacianEigenmapKernel(8), random_state=0).fit_transform(X).shape
    (200, 4)
    """

    def __init__(self, n_neighbors=10, gamma=None):
        self.n_neighbors = n_neighbors
        self.gamma = gamma

    def _learn(self, X, graph):
        if self.gamma is not None:
            check_scalar(self.gamma, "gamma", (float, int), min_val=0.0)
        adjacency = graph.copy()
        adjacency.data = np.exp(-(self.gamma or 0.0) * graph.data**2)
        adjacency = adjacency.maximum(adjacency.T)
        self._refuse_vanishing_edges(adjacency)
        self.gram_ = laplacian_pseudo_inverse(adjacency.toarray())

    def _refuse_vanishing_edges(self, adjacency):
        lasting = adjacency > WEAKEST * adjacency.max()
        n_parts = connected_components(lasting, directed=False)[0]
        if n_parts > 1:
            raise ValueError(
                f"gamma={self.gamma} leaves the neighborhood graph in {n_parts} parts, because its longest "
                "edges weigh nothing: choose a smaller gamma, or gamma=None for edges of equal weight."
            )

    def _shares(self, X, neighbors, distances):
        if self.gamma is None:
            weights = np.isfinite(distances).astype(float)
        else:  # relative to the strongest edge, so that a row far from all others does not divide 0 by 0
            squares = distances**2
            weights = np.exp(-self.gamma * (squares - squares.min(axis=1, keepdims=True)))
        return weights / weights.sum(axis=1, keepdims=True)
