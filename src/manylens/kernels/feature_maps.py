"""Feature maps: finite coordinates psi(x) whose inner products are the kernel, psi(x).psi(y) = k(x, y).

Every map here is psi(x) = features(x) @ root: `features` are cheap columns (similarities to landmarks,
cosines, the input itself) and `root_` a fixed matrix, or None for the identity. Keeping the two apart is what
makes one pass cheap: moments are taken of the features, and the root is applied once, to their covariance.
"""

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import MiniBatchKMeans
from sklearn.utils import check_array, check_random_state, gen_batches
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.kernels import FromCallable, Precomputed, fitted_kernel
from manylens.kernels.roots import inverse_root, rank_tolerance, warn_if_indefinite
from manylens.summaries import block_rows

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
        Rows drawn at random, centers of clusters of a sample, or rows of the user's own.
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
    """Raise where a kernel is learned from all rows together, so that no map but the exact one has it.

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
            f"{type(kernel).__name__} is learned from the graph of all training rows. Use 'exact' "
            "(or 'auto')."
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
        # Centers settle on a sample of some tens of rows a cluster; more rows only cost time.
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
