"""Number, mean and scatter of rows, in one pass and mergeable."""

import numpy as np
from scipy import sparse

BLOCK_BYTES = 2**25  # large enough for BLAS to run at full speed, small against any machine's memory


def block_rows(n_columns, itemsize=8):
    """How many rows of `n_columns` numbers make a block of some 32 MB.

    Parameters
    ----------
    n_columns : int
        Width of the widest array that is formed for the block.
    itemsize : int
        Bytes a number.

    Returns
    -------
    int
        At least 64.
    """
    return max(64, BLOCK_BYTES // (itemsize * max(1, n_columns)))


def column_means(X):
    """Means of the columns, summed in float64 whatever the precision of the rows.

    Parameters
    ----------
    X : ndarray or CSR matrix, shape (n, d)
        Rows.

    Returns
    -------
    ndarray of float64, shape (d,)
        The means.
    """
    return np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()


class Moments:
    """Weighted number, mean and centered scatter Σ_i w_i (x_i - mean)(x_i - mean)ᵀ of rows.

    Blocks are joined by the pairwise formula of Chan, Golub and LeVeque. Dense blocks are centered before
    they are multiplied, so that a large common offset costs no digits; sparse ones are not, to stay sparse.
    Products are taken in the rows' own precision and summed in float64. Memory: O(d²) beyond one block.

    Parameters
    ----------
    n_features : int
        Width d of the rows.
    """

    def __init__(self, n_features):
        self.n_features = n_features
        self.weight = 0.0
        self.mean = np.zeros(n_features)
        self.scatter = np.zeros((n_features, n_features))
        self.precision = float(np.finfo(np.float64).eps)  # of the least precise rows seen

    def update(self, rows, weights=None):
        """Add a block of rows.

        Parameters
        ----------
        rows : ndarray or CSR matrix, shape (n, d)
            The rows; not changed.
        weights : ndarray, shape (n,), optional
            How often each row counts.

        Returns
        -------
        Moments
            Itself.
        """
        if rows.shape[0] == 0:
            return self
        weight = float(rows.shape[0]) if weights is None else float(np.sum(weights))
        if weight == 0:
            return self
        if rows.dtype == np.float32:
            self.precision = float(np.finfo(np.float32).eps)
        if sparse.issparse(rows):
            return self._join(weight, *_sparse_moments(rows, weights, weight))
        return self._join(weight, *_dense_moments(rows, weights, weight))

    def merge(self, other):
        """Add what another summary has seen.

        Parameters
        ----------
        other : Moments
            Of rows of the same width.

        Returns
        -------
        Moments
            Itself.
        """
        if other.n_features != self.n_features:
            raise ValueError(
                f"Moments of {other.n_features} features cannot be merged into those of {self.n_features}."
            )
        self.precision = max(self.precision, other.precision)
        return self._join(other.weight, other.mean, other.scatter)

    def _join(self, weight, mean, scatter):
        total = self.weight + weight
        if total == 0:
            return self
        shift = mean - self.mean
        self.scatter += scatter
        self.scatter += np.outer(shift, shift * (self.weight * weight / total))
        self.mean += shift * (weight / total)
        self.weight = total
        return self

    def covariance(self):
        """Scatter over the number of rows.

        Returns
        -------
        ndarray, shape (d, d)
            Divided by n, not n - 1.
        """
        return self.scatter / max(self.weight, 1.0)


def bootstrap_moments(blocks, n_rows, n_samples, rng):
    """Moments of bootstrap samples of rows, all in one pass: a sample is how often each row counts.

    Parameters
    ----------
    blocks : iterable of ndarray
        Consecutive blocks of the rows.
    n_rows : int
        Number of rows, and of draws in a sample.
    n_samples : int
        Number of samples.
    rng : numpy.random.Generator
        Source of the draws.

    Returns
    -------
    list of Moments
        One for each sample.
    """
    counts = rng.multinomial(n_rows, np.full(n_rows, 1 / n_rows), size=n_samples).astype(float)
    samples: list[Moments] = []
    start = 0
    for block in blocks:
        samples = samples or [Moments(block.shape[1]) for _ in range(n_samples)]
        for sample, count in zip(samples, counts[:, start : start + len(block)], strict=True):
            sample.update(block, count)
        start += len(block)
    return samples


def _dense_moments(rows, weights, weight):
    mean = rows.mean(axis=0, dtype=np.float64) if weights is None else weights @ rows / weight
    centered = rows - mean.astype(rows.dtype)
    # The mean was rounded to the rows' precision; what that left over is a second, tiny shift.
    rest = mean - mean.astype(rows.dtype)
    if weights is not None:
        centered *= np.sqrt(weights).astype(rows.dtype)[:, None]
    scatter = (centered.T @ centered).astype(np.float64, copy=False)
    return mean, scatter - weight * np.outer(rest, rest)


def _sparse_moments(rows, weights, weight):
    rows = rows.astype(np.float64, copy=False)
    weighted = rows if weights is None else sparse.diags_array(np.asarray(weights, dtype=np.float64)) @ rows
    mean = np.asarray(weighted.sum(axis=0)).ravel() / weight
    scatter = (rows.T @ weighted).toarray()
    return mean, scatter - weight * np.outer(mean, mean)
