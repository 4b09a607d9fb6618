"""Second and mixed fourth moments of several blocks of columns of the same rows, in one pass.

Each row x of a block is written as h = (1, z, |z|²) with z = x - origin. Then Σ h_k h_lᵀ, for two blocks k
and l, holds their number, sums, cross-products and products of row norms at once, and to move the origin is
a linear map of h. So sums about any provisional origin can be merged, and turned into moments about the
mean, exactly and without a second pass.
"""

import numpy as np


def homogeneous(X, origin):
    """h = (1, x - origin, |x - origin|²) for every row.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Rows.
    origin : ndarray, shape (d,)
        What is subtracted.

    Returns
    -------
    ndarray of float64, shape (n, d + 2)
        The rows h.
    """
    h = np.empty((X.shape[0], X.shape[1] + 2))
    h[:, 0] = 1.0
    np.subtract(X, origin, out=h[:, 1:-1])
    h[:, -1] = np.einsum("ij,ij->i", h[:, 1:-1], h[:, 1:-1])
    return h


def move_rows(A, step):
    """Rows of A, moments about an origin, after all points move by `step`.

    The map is 1 -> 1, z -> z + step, |z|² -> |z|² + 2 step.z + |step|².

    Parameters
    ----------
    A : ndarray, shape (d + 2, c)
        Sums of h (times something).
    step : ndarray, shape (d,)
        The move.

    Returns
    -------
    ndarray, shape (d + 2, c)
        The sums about the new origin.
    """
    moved = A.copy()
    moved[1:-1] += np.outer(step, A[0])
    moved[-1] += 2 * (step @ A[1:-1]) + (step @ step) * A[0]
    return moved


class CrossMoments:
    """Sums over rows of h_k h_lᵀ for chosen pairs of blocks.

    Parameters
    ----------
    pairs : iterable of (int, int)
        Which blocks meet, k ≤ l; every block that occurs must also meet itself.

    Attributes
    ----------
    n_rows_ : int
        Number of rows seen.
    origins_ : list of ndarray
        Origin of each block: the mean of the first batch.
    sums_ : dict of (int, int) to ndarray, shape (d_k + 2, d_l + 2)
        The sums, in double.
    """

    def __init__(self, pairs):
        self.pairs = sorted(set(pairs))
        self.n_rows_, self.origins_, self.sums_ = 0, [], {}

    def update(self, blocks):
        """Add a batch of rows.

        Parameters
        ----------
        blocks : list of ndarray, each of shape (n, d_k)
            The same rows in every block.

        Returns
        -------
        CrossMoments
            Itself.
        """
        if not self.n_rows_:
            # about the first row, so that rows which are all equal leave exactly nothing
            self.origins_ = [X[0] + (X - X[0]).mean(axis=0, dtype=np.float64) for X in blocks]
            widths = [X.shape[1] + 2 for X in blocks]
            self.sums_ = {(k, m): np.zeros((widths[k], widths[m])) for k, m in self.pairs}
        rows = [homogeneous(X, origin) for X, origin in zip(blocks, self.origins_, strict=True)]
        for k, m in self.pairs:
            self.sums_[k, m] += rows[k].T @ rows[m]
        self.n_rows_ += len(rows[0])
        return self

    def merge(self, other):
        """Add what another has seen.

        Parameters
        ----------
        other : CrossMoments
            Moments of the same blocks on other rows.

        Returns
        -------
        CrossMoments
            Itself.
        """
        if not other.n_rows_:
            return self
        if not self.n_rows_:
            self.origins_ = [origin.copy() for origin in other.origins_]
            self.sums_ = {pair: np.zeros_like(sums) for pair, sums in other.sums_.items()}
        steps = [theirs - ours for ours, theirs in zip(self.origins_, other.origins_, strict=True)]
        for k, m in self.pairs:
            self.sums_[k, m] += move_rows(move_rows(other.sums_[k, m], steps[k]).T, steps[m]).T
        self.n_rows_ += other.n_rows_
        return self

    def about(self, points):
        """The sums about other points.

        Parameters
        ----------
        points : list of ndarray, each of shape (d_k,)
            New origin of each block.

        Returns
        -------
        dict of (int, int) to ndarray, shape (d_k + 2, d_l + 2)
            Sums of h_k h_lᵀ: row and column 0 hold sums, -1 those with squared norms.
        """
        steps = [origin - point for origin, point in zip(self.origins_, points, strict=True)]
        return {(k, m): move_rows(move_rows(A, steps[k]).T, steps[m]).T for (k, m), A in self.sums_.items()}

    def means(self):
        """Mean of each block.

        Returns
        -------
        list of ndarray, each of shape (d_k,)
            The means.
        """
        return [origin + self.sums_[k, k][0, 1:-1] / self.n_rows_ for k, origin in enumerate(self.origins_)]
