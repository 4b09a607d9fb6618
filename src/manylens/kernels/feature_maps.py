"""Feature maps: finite coordinates psi(x) whose inner products are the kernel, psi(x).psi(y) = k(x, y).

Every map here is psi(x) = features(x) @ root: `features` are cheap columns (similarities to landmarks,
cosines, the input itself) and `root_` a fixed matrix, or None for the identity. Keeping the two apart is what
makes one pass cheap: moments are taken of the features, and the root is applied once, to their covariance.
"""

import warnings

import numpy as np
from scipy import linalg, sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import MiniBatchKMeans
from sklearn.utils import check_array, check_random_state, gen_batches
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.kernels import FromCallable, Precomputed, fitted_kernel
from manylens.streaming import block_rows

LARGEST_AMPLIFICATION = 1e7  # times the rounding of float64: the spectrum keeps nine digits of its largest


class FeatureMap(TransformerMixin, BaseEstimator):
    """Base of all maps: a subclass gives `fit` and `features`."""

    root_: np.ndarray | None
    late_root_ = True  # whether the root may be applied to the covariance of the features, not to each row

    def features(self, X):
        """The columns whose fixed combinations are psi.

        Parameters
        ----------
        X : ndarray or CSR matrix, shape (n, d)
            Rows; a block of them where n is large.

        Returns
        -------
        ndarray or CSR matrix, shape (n, n_features_out)
            The columns.
        """
        raise TypeError(f"{type(self).__name__} does not say how to map rows: it needs features(X).")

    def transform(self, X):
        """The coordinates psi of rows.

        Parameters
        ----------
        X : ndarray or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, rank)
            Dense coordinates, formed block by block.
        """
        check_is_fitted(self, "root_")
        X = as_rows(X)
        root = self.root_
        if root is None:
            return np.vstack([dense(block) for block in self.feature_blocks(X)])
        return np.vstack(
            [safe_sparse_dot(block, root.astype(block.dtype)) for block in self.feature_blocks(X)]
        )

    def _set_root(self, gram, dtype):
        """Set the root from the Gram matrix of the landmarks; `dtype` is the rows' precision."""
        gram = np.asarray(gram, dtype=np.float64)
        if not np.isfinite(gram).all():
            raise ValueError("The kernel gave NaN or infinity: check the function, or the scale of the rows.")
        self.root_, amplification = inverse_root(gram, rank_tolerance(len(gram), dtype))
        self.late_root_ = amplification < LARGEST_AMPLIFICATION
        kernel = getattr(self, "kernel_", None)
        if isinstance(kernel, Precomputed | FromCallable):
            warn_if_indefinite(gram, self.root_)
        return self

    def feature_blocks(self, X):
        """The features of consecutive blocks of rows, some 32 MB at a time.

        Parameters
        ----------
        X : ndarray or CSR matrix, shape (n, d)
            Rows.

        Yields
        ------
        ndarray or CSR matrix
            Features of one block.
        """
        for batch in gen_batches(X.shape[0], block_rows(self.block_width, X.dtype.itemsize)):
            yield self.features(X[batch])

    @property
    def width(self):
        """Number of columns of `features`."""
        raise TypeError(f"{type(self).__name__} does not say how wide its features are.")

    @property
    def block_width(self):
        """Numbers a row that mapping it takes; what blocks of rows are sized by."""
        return self.width


class LinearMap(FeatureMap):
    """The input itself, the exact map of the linear kernel. CSR rows stay sparse.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.eye(3)
    >>> psi = LinearMap().fit(X).transform(X)
    >>> np.allclose(psi @ psi.T, X @ X.T)
    True
    """

    def fit(self, X, y=None):
        X = as_rows(X)
        self.n_features_in_ = X.shape[1]
        self.root_ = None
        return self

    def features(self, X):
        return X

    @property
    def width(self):
        return self.n_features_in_


class LandmarkMap(FeatureMap):
    """Similarities to landmarks, psi(x) = k(x, landmarks) K^(-1/2): the part that all such maps share.

    Directions of K whose eigenvalue is below the rounding error of the rows' precision are dropped, so that
    float32 rows give the rank that float32 can carry.
    """

    def features(self, X):
        return self.kernel_(X, self.landmarks_)

    @property
    def width(self):
        return self.landmarks_.shape[0]

    def _set_landmarks(self, landmarks, dtype):
        self.landmarks_ = landmarks
        wide = landmarks.astype(np.float64)
        return self._set_root(dense(self.kernel_.gram(wide)), dtype)


class ExactMap(LandmarkMap):
    """Every training row is a landmark, psi(x) = K^(-1/2) k(x): the kernel itself. Memory O(n²).

    Parameters
    ----------
    kernel : Kernel, optional
        The kernel (RBF).
    random_state : int, RandomState or None
        For a bandwidth found on a sample.
    """

    def __init__(self, kernel=None, random_state=None):
        self.kernel = kernel
        self.random_state = random_state

    def fit(self, X, y=None):
        X = as_rows(X)
        self.kernel_ = fitted_kernel(self.kernel, X, self.random_state)
        if isinstance(self.kernel_, Precomputed):
            if X.shape[0] != X.shape[1]:
                raise ValueError(f"A precomputed kernel is square; {X.shape[0]} x {X.shape[1]} was given.")
            self.landmarks_ = np.empty((X.shape[0], 0), dtype=X.dtype)
            return self._set_root(dense(X), X.dtype)
        return self._set_landmarks(X, X.dtype)


class NystroemMap(LandmarkMap):
    """Similarities to `rank` landmarks: the kernel exactly between landmarks, closely elsewhere.

    Parameters
    ----------
    kernel : Kernel, optional
        The kernel (RBF).
    rank : int
        Number of landmarks (at most the number of rows).
    landmarks : {"uniform", "k-means"} or array-like of shape (rank, d)
        Rows drawn at random, centres of clusters of a sample, or rows of the user's own.
    random_state : int, RandomState or None
        Which landmarks.
    """

    def __init__(self, kernel=None, rank=1000, landmarks="uniform", random_state=None):
        self.kernel = kernel
        self.rank = rank
        self.landmarks = landmarks
        self.random_state = random_state

    def fit(self, X, y=None):
        X = as_rows(X)
        random_state = check_random_state(self.random_state)
        refuse_without_landmarks(self.kernel, "nystroem")
        self.kernel_ = fitted_kernel(self.kernel, X, random_state)
        if isinstance(self.kernel_, Precomputed):
            raise ValueError(
                "kernel='precomputed' holds no rows to take landmarks from: use feature_map='exact'."
            )
        return self._set_landmarks(choose_landmarks(X, self.rank, self.landmarks, random_state), X.dtype)


def refuse_without_landmarks(kernel, feature_map):
    """Raise where a kernel is learnt from all rows together, so that no map but the exact one has it.

    Parameters
    ----------
    kernel : Kernel or None
        The kernel asked for.
    feature_map : str
        Name of the map asked for.
    """
    if not getattr(kernel, "has_landmarks", True):
        raise ValueError(
            f"feature_map={feature_map!r} stands on kernels that compare any two rows by themselves; "
            f"{type(kernel).__name__} is learnt from the graph of all training rows. Use feature_map='exact' "
            "(or 'auto')."
        )


def rank_tolerance(size, dtype):
    """Share of the largest eigenvalue below which one is rounding noise.

    The Gram matrix of landmarks is formed and decomposed in float64; float32 rows add their own noise to the
    features, which ten of their roundings cover (measured on MNIST: at 1e-6 the spectrum agrees with float64
    to 1e-4, at 1e-4 a third of a percent is lost).

    Parameters
    ----------
    size : int
        Number of landmarks.
    dtype : dtype
        Precision of the rows.

    Returns
    -------
    float
        The share.
    """
    return max(size * np.finfo(np.float64).eps, 10 * float(np.finfo(dtype).eps))


def inverse_root(gram, tolerance):
    """W with W Wᵀ the pseudo-inverse of a Gram matrix.

    Where no eigenvalue needs dropping W = L^(-T), gram = L Lᵀ, at a fifth of the cost of a spectral
    decomposition; whether any does is told by the norm of L^(-1), 1/λ_min. Elsewhere W are the eigenvectors
    over the roots of the eigenvalues.

    Parameters
    ----------
    gram : ndarray, shape (R, R)
        Symmetric.
    tolerance : float
        Eigenvalues below this share of the largest in size are dropped (negative ones too).

    Returns
    -------
    root : ndarray, shape (R, r)
        W; r = R less the eigenvalues dropped.
    amplification : float
        At least λ_max/λ_min over the eigenvalues kept: what a rounding error of the kernel grows to.
    """
    gram = (gram + gram.T) / 2
    factor, failed = linalg.lapack.dpotrf(gram, lower=1)
    if not failed:
        inverse, failed = linalg.lapack.dtrtri(factor, lower=1)
        largest = np.abs(gram).sum(axis=0).max()
        amplification = largest * squared_norm(inverse) if not failed else np.inf
        if not failed and amplification * tolerance < 1:
            return np.ascontiguousarray(inverse.T), amplification
    values, vectors = np.linalg.eigh(gram)
    kept = values > tolerance * np.abs(values).max()
    if not kept.any():  # a kernel that is zero (or negative) everywhere: one coordinate, always zero
        return np.zeros((len(gram), 1)), 1.0
    root = np.ascontiguousarray((vectors[:, kept] / np.sqrt(values[kept]))[:, ::-1])
    return root, float(values[-1] / values[kept][0])


def squared_norm(matrix, n_iterations=12):
    """Square of the spectral norm, by power iteration, with a margin for what that leaves unfound.

    Parameters
    ----------
    matrix : ndarray, shape (n, m)
        The matrix.
    n_iterations : int
        Products with the matrix and its transpose.

    Returns
    -------
    float
        Twice the estimate, which a dozen steps bring within a few per cent; at most the sum of squares.
    """
    vector = np.random.default_rng(0).standard_normal(matrix.shape[1])
    estimate = 0.0
    for _ in range(n_iterations):
        vector /= max(np.linalg.norm(vector), np.finfo(float).tiny)
        vector = matrix.T @ (matrix @ vector)
        estimate = float(np.linalg.norm(vector))
    return min(2 * estimate, float(np.sum(matrix**2)))


def warn_if_indefinite(gram, root):
    """Warn where a kernel of the user's has negative eigenvalues beyond rounding, which no map can have.

    Parameters
    ----------
    gram : ndarray, shape (R, R)
        The kernel between the landmarks.
    root : ndarray, shape (R, r)
        From `inverse_root`.
    """
    kept = gram @ root
    lost = np.linalg.norm(gram - kept @ kept.T) / max(np.linalg.norm(gram), np.finfo(float).tiny)
    if lost > 1e-6:
        warnings.warn(
            f"The kernel is not positive: {100 * lost:.2g} % of it (in norm) lies in negative or asymmetric "
            "parts, which no representation has and which are left out.",
            stacklevel=2,
        )


def as_rows(X):
    """Rows as the maps take them: float32 or float64, dense or CSR; not checked for NaN.

    Parameters
    ----------
    X : array-like or sparse matrix, shape (n, d)
        Rows.

    Returns
    -------
    ndarray or CSR matrix
        The same rows.
    """
    return check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False)


def choose_landmarks(X, rank, how, random_state):
    """Landmarks for a Nystroem map.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Rows.
    rank : int
        How many at most.
    how : {"uniform", "k-means"} or array-like of shape (rank, d)
        As in `NystroemMap`.
    random_state : RandomState
        Source.

    Returns
    -------
    ndarray or CSR matrix, shape (landmarks, d)
        In the precision of X.
    """
    n, d = X.shape
    if not isinstance(how, str):
        given = check_array(how, accept_sparse="csr", dtype=X.dtype)
        if given.shape[1] != d:
            raise ValueError(f"The landmarks have {given.shape[1]} features, the rows {d}.")
        return given
    rank = min(rank, n)
    if how == "uniform":
        return X[np.sort(random_state.choice(n, rank, replace=False))]
    if how == "k-means":
        # Centres settle on a sample of some tens of rows a cluster; more rows only cost time.
        sample = X if n <= 20 * rank else X[np.sort(random_state.choice(n, 20 * rank, replace=False))]
        clusters = MiniBatchKMeans(
            rank, init="random", n_init=1, max_iter=20, batch_size=4 * rank, random_state=random_state
        )
        return clusters.fit(sample).cluster_centers_.astype(X.dtype)
    raise ValueError(
        f"landmarks={how!r} is unknown: give 'uniform', 'k-means', 'count-sketch' or an array of rows."
    )


def dense(block):
    """A block of features as a plain array.

    Parameters
    ----------
    block : ndarray or sparse matrix
        Features.

    Returns
    -------
    ndarray
        The same numbers.
    """
    return block.toarray() if sparse.issparse(block) else np.asarray(block)
