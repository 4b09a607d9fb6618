"""How many directions a representation uses."""

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, eigsh

from manylens.alignment.features import centered, check_features, column_means, undefined, unit_scaled
from manylens.alignment.products import row_norms_about

SMALL = 300  # widths up to which the whole Gram matrix is cheaper than iterating


def stable_rank(X, center=True):
    """Stable rank |X|² / |X|₂², the squared Frobenius norm over the squared spectral norm.

    Between 1 and the rank; small singular values hardly count, so noise does not raise it (Rudelson and
    Vershynin 2007).

    Parameters
    ----------
    X : array-like or sparse matrix, shape (n, d)
        Rows.
    center : bool, default=True
        Whether the column means are subtracted first (sparse rows are centered without being filled in).

    Returns
    -------
    float
        The stable rank.

    Notes
    -----
    Only the largest singular value is computed: from the smaller Gram matrix where that is small, else by
    Lanczos iterations, each of which reads X twice.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import stable_rank
    >>> round(stable_rank(np.eye(4), center=False), 6)
    4.0
    """
    X, _ = unit_scaled(check_features(X, "X"))  # the ratio does not notice, and squares do not overflow
    if center and X.shape[0] < 2:
        raise ValueError("Centering needs at least 2 rows; 1 was given.")
    mean = column_means(X) if center else np.zeros(X.shape[1])
    if sparse.issparse(X):
        total = float(row_norms_about(X, mean).sum())
        constant = total <= (8 * np.finfo(X.dtype).eps) ** 2 * X.shape[0] * float(mean @ mean)
    else:
        X, mean = centered(X) if center else X, np.zeros(X.shape[1])
        total = float(np.einsum("ij,ij->", X, X, dtype=np.float64))
        constant = total == 0
    if constant:
        raise ValueError(undefined("X"))
    return total / largest_squared_singular_value(X, mean)


def largest_squared_singular_value(X, mean):
    """|X - 1 meanᵀ|₂² of a dense or CSR matrix (n, d), which is not filled in."""
    n, d = X.shape
    if not sparse.issparse(X) and min(n, d) <= SMALL:
        gram = X.T @ X if d <= n else X @ X.T
        last = len(gram) - 1
        return float(eigh(gram.astype(np.float64), eigvals_only=True, subset_by_index=[last, last])[0])

    def apply(v):
        image = X @ v - mean @ v
        return X.T @ image - mean * image.sum()

    if d == 1:
        return float(apply(np.ones(1))[0])
    operator = LinearOperator((d, d), matvec=apply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(d)  # fixed, so that the answer is
    return float(eigsh(operator, k=1, v0=start, tol=1e-10, return_eigenvectors=False)[0])
