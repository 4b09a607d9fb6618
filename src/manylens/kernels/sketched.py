"""Landmarks that are signed sums of rows: the CountSketch form of the Nystroem map."""

import numpy as np
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.extmath import safe_sparse_dot

from manylens.kernels.feature_maps import FeatureMap, as_rows, dense
from manylens.kernels.kernels import Linear, Precomputed, fitted_kernel
from manylens.summaries import CountSketch, block_rows


class CountSketchMap(FeatureMap):
    """The Nystroem map of sketched rows, psi(x) = k(x, X) Sᵀ (S K Sᵀ)^(-1/2).

    For the linear kernel k(x, X) Sᵀ = x (S X)ᵀ: the sketch S X takes one pass and is all that is kept. Any
    other kernel is sketched in its own feature space, which needs the whole kernel matrix, block by block, at
    `fit` (O(n² d) time, O(block x n) memory) and the training rows at `transform`; landmarks that are rows
    cost far less there and are seldom worse.

    Parameters
    ----------
    kernel : Kernel, optional
        The kernel (RBF).
    rank : int
        Number of buckets (at most the number of rows); rounded down to a multiple of `n_hashes`.
    n_hashes : int
        Buckets that a row is added to.
    random_state : int, RandomState or None
        Seed of the hash.
    """

    def __init__(self, kernel=None, rank=1000, n_hashes=4, random_state=None):
        self.kernel = kernel
        self.rank = rank
        self.n_hashes = n_hashes
        self.random_state = random_state

    def fit(self, X, y=None):
        X = as_rows(X)
        random_state = check_random_state(self.random_state)
        self.kernel_ = fitted_kernel(self.kernel, X, random_state)
        if isinstance(self.kernel_, Precomputed):
            raise ValueError("kernel='precomputed' holds no rows to sketch: use feature_map='exact'.")
        n_hashes = min(self.n_hashes, self.rank, X.shape[0])
        n_buckets = min(self.rank, X.shape[0]) // n_hashes * n_hashes
        self.hash_ = CountSketch(n_buckets, n_hashes, random_state.randint(2**31 - 1))
        if isinstance(self.kernel_, Linear):
            self.rows_, self.sketch_ = self.hash_.fresh().update(X).summary_.astype(X.dtype), None
            gram = self.rows_.astype(np.float64) @ self.rows_.T
        else:
            self.rows_, self.sketch_ = X, self.hash_.matrix(X.shape[0]).T.tocsr()
            gram = np.zeros((n_buckets, n_buckets))
            for batch in gen_batches(X.shape[0], block_rows(X.shape[0])):
                gram += self.sketch_[batch].T @ self.features(X[batch])
        return self._set_root(gram, X.dtype)

    def features(self, X):
        if self.sketch_ is None:
            return safe_sparse_dot(X, self.rows_.T, dense_output=True)
        columns = dense(self.kernel_(X, self.rows_))
        return np.asarray(columns @ self.sketch_).astype(columns.dtype, copy=False)

    @property
    def width(self):
        return self.rows_.shape[0] if self.sketch_ is None else self.sketch_.shape[1]

    @property
    def block_width(self):
        return max(self.width, self.rows_.shape[0])  # a block of features comes from one of the kernel
