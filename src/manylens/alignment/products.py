"""Inner products of linear kernels from their features: |X_kᵀ X_l|² for all pairs, by large matrix products.

The kernels X Xᵀ (n, n) are never formed: <X Xᵀ, Y Yᵀ> = |Xᵀ Y|², which costs n d_x d_y.
"""

import numpy as np
from scipy import sparse

BLOCK_BYTES = 2**25  # of a product of sparse features held at a time
PANEL = 512  # columns multiplied at a time: wide enough for the full speed of BLAS, and few wasted halves


def kernel_products(arrays):
    """M_kl = |X_kᵀ X_l|² for feature sets of the same rows, each pair computed once.

    Narrow sets are put side by side in panels of some 512 columns, so that the matrix products are large
    whatever the widths; the sums of squares over the tiles of a product are the entries of M.

    Parameters
    ----------
    arrays : list of ndarray, each of shape (n, d_k)
        Feature sets.

    Returns
    -------
    ndarray of float64, shape (p, p)
        The products.
    """
    made = panels(arrays)
    M = np.empty((len(arrays), len(arrays)))
    for i, (rows, A, starts) in enumerate(made):
        for columns, B, other_starts in made[i:]:
            # A.T @ A is recognized as symmetric by NumPy, which then does half the work
            M[rows, columns] = tile_sums(A.T @ B, starts, other_starts)
            M[columns, rows] = M[rows, columns].T
    return M


def panels(arrays):
    """Feature sets side by side, some PANEL columns at a time.

    Parameters
    ----------
    arrays : list of ndarray, each of shape (n, d_k)
        Feature sets.

    Returns
    -------
    list of (slice, ndarray, ndarray)
        Which sets, their columns side by side, and where each set begins.
    """
    groups, first, width = [], 0, 0
    for k, array in enumerate(arrays):
        if k > first and width + array.shape[1] > PANEL:
            groups.append(slice(first, k))
            first, width = k, 0
        width += array.shape[1]
    groups.append(slice(first, len(arrays)))
    made = []
    for group in groups:
        chosen = arrays[group]
        starts = np.cumsum([0] + [array.shape[1] for array in chosen[:-1]])
        made.append((group, chosen[0] if len(chosen) == 1 else np.hstack(chosen), starts))
    return made


def tile_sums(G, row_starts, column_starts):
    """Sums of squares over the tiles of G that begin at the given rows and columns, in double."""
    if len(row_starts) == len(column_starts) == 1:
        return np.array([[squared_norm(G)]])
    return np.add.reduceat(
        np.add.reduceat(np.square(G), column_starts, axis=1), row_starts, axis=0, dtype=np.float64
    )


def squared_norm(G):
    """|G|², added up in double."""
    return float(np.einsum("ij,ij->", G, G, dtype=np.float64)) if G.dtype != np.float64 else np.vdot(G, G)


def squared_cross_product(X, Y, mean_x, mean_y):
    """|Xᵀ Y - n μ_x μ_yᵀ|² of matrices of which one may be sparse, in double, some columns of X at a time.

    Parameters
    ----------
    X, Y : ndarray or CSR matrix, shapes (n, d_x) and (n, d_y)
        Rows.
    mean_x, mean_y : ndarray, shapes (d_x,) and (d_y,)
        What is subtracted from the columns.

    Returns
    -------
    float
        The squared norm; of the product (d_x, d_y), which need not be sparse, 32 MB are held at a time.
    """
    X = X.tocsc() if sparse.issparse(X) else X  # columns of a CSR matrix are slow to find
    Y = Y.astype(np.float64)
    step = max(1, BLOCK_BYTES // (8 * Y.shape[1]))
    total = 0.0
    for first in range(0, X.shape[1], step):
        columns = slice(first, first + step)
        product = X[:, columns].astype(np.float64).T @ Y
        if sparse.issparse(product):
            product = product.toarray()
        product -= X.shape[0] * np.outer(mean_x[columns], mean_y)
        total += squared_norm(product)
    return total


def row_norms_about(X, mean=None):
    """|x_i - μ|² for every row of a dense or CSR matrix, in double; |x_i|² where no mean is given."""
    if sparse.issparse(X):
        mean = np.zeros(X.shape[1]) if mean is None else mean
        squares = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
        return squares - 2 * (X @ mean) + mean @ mean
    residual = X if mean is None else X - mean.astype(X.dtype)
    return np.einsum("ij,ij->i", residual, residual, dtype=np.float64)
