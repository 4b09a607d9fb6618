"""Distance correlation of lenses with the data and with each other, for any number of rows."""

from itertools import pairwise

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import check_array, check_consistent_length

from manylens.native.distance_correlation import TILE, pair_distances, pair_products
from manylens.native.threads import one_blas_thread

PARTS = 8  # of the work, whatever the number of threads, so that sums come out the same


def distance_correlation(X, Y, *, n_jobs=-1):
    """Distance correlation of two representations of the same rows (Székely, Rizzo and Bakirov, 2007).

    With a_ij = |x_i - x_j|, b_ij = |y_i - y_j| and means over rows a_i., b_i. and over all a.., b..,

        dCov²(X, Y) = mean_ij a_ij b_ij - 2 mean_i a_i. b_i. + a.. b..,
        dCor(X, Y) = ( dCov²(X, Y) / (dCov²(X, X) dCov²(Y, Y))^(1/2) )^(1/2).

    0 where one of the two is constant.

    Parameters
    ----------
    X, Y : array-like, shape (n, d) and (n, e)
        Rows of either; a vector is one column.
    n_jobs : int
        Threads.

    Returns
    -------
    float
        In [0, 1].

    Notes
    -----
    Time O(n² (d + e)), memory O(n): distances are formed in tiles and never kept.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import distance_correlation
    >>> x = np.arange(20.0)
    >>> float(np.round(distance_correlation(x, 3 - 2 * x), 6))
    1.0
    """
    return float(distance_correlation_matrix([X, Y], n_jobs=n_jobs)[0, 1])


def distance_correlation_matrix(lenses, *, n_jobs=-1):
    """Distance correlation of each of L lenses with each other, in one pass over pairs of rows.

    Parameters
    ----------
    lenses : sequence of array-like, each of shape (n, d_l)
        Representations of the same rows; or one array (n, M, H), as `split` gives.
    n_jobs : int
        Threads.

    Returns
    -------
    ndarray, shape (L, L)
        Symmetric; ones on the diagonal but where a lens is constant.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import ModularKernelPCA, distance_correlation_matrix
    >>> X = load_iris().data
    >>> lenses = ModularKernelPCA(n_modules=3, n_components=2, diversity=0.9, random_state=0).fit(X)
    >>> distance_correlation_matrix([X, *lenses.split(lenses.transform(X)).swapaxes(0, 1)]).shape
    (4, 4)
    """
    covariances = distance_covariances(checked_lenses(lenses), n_jobs)
    own = np.sqrt(np.maximum(np.diag(covariances), 0.0))
    scale = np.outer(own, own)
    shares = np.divide(covariances, scale, out=np.zeros_like(covariances), where=scale > 0)
    return np.sqrt(np.clip(shares, 0.0, 1.0))


def checked_lenses(lenses):
    """Lenses as centered C-ordered float64 arrays of equal length.

    Parameters
    ----------
    lenses : sequence of array-like, or ndarray of shape (n, M, H)
        As in `distance_correlation_matrix`.

    Returns
    -------
    list of ndarray, each of shape (n, d_l)
        Centered, so that products cancel as little as may be.
    """
    if isinstance(lenses, np.ndarray) and lenses.ndim == 3:
        lenses = lenses.swapaxes(0, 1)
    arrays = []
    for lens in lenses:
        lens = np.asarray(lens)[:, None] if np.ndim(lens) == 1 else lens
        arrays.append(check_array(lens, dtype=np.float64, order="C", ensure_min_samples=2))
    check_consistent_length(*arrays)
    return [np.ascontiguousarray(array - array.mean(axis=0)) for array in arrays]


def distance_covariances(lenses, n_jobs=-1):
    """dCov² of every two lenses.

    Parameters
    ----------
    lenses : list of ndarray, each of shape (n, d_l)
        Centered.
    n_jobs : int
        Threads.

    Returns
    -------
    ndarray, shape (L, L)
        mean_ij a_ij b_ij - 2 mean_i a_i. b_i. + a.. b..
    """
    n = len(lenses[0])
    with one_blas_thread():
        parts = Parallel(n_jobs=n_jobs, backend="threading")(
            delayed(sums_of_tiles)(lenses, part) for part in range(PARTS)
        )
    products = sum(product for product, _ in parts) / n**2
    means = sum(row_sums for _, row_sums in parts) / n  # (L, n)
    grand = means.mean(axis=1)
    return products - 2 * (means @ means.T) / n + np.outer(grand, grand)


def sums_of_tiles(lenses, part):
    """One part's sums of products of distances, and sums of each row's distances.

    Parameters
    ----------
    lenses : list of ndarray, each of shape (n, d_l)
        Centered.
    part : int
        Which of the parts: every PARTS-th tile of rows, against itself and all later ones.

    Returns
    -------
    products : ndarray, shape (L, L)
        Sums over ordered pairs.
    row_sums : ndarray, shape (L, n)
        What this part adds to each.
    """
    n, L = len(lenses[0]), len(lenses)
    edges = list(pairwise([*range(0, n, TILE), n]))
    products, row_sums = np.zeros((L, L)), np.zeros((L, n))
    for number in range(part, len(edges), PARTS):
        start, stop = edges[number]
        for first, last in edges[number:]:
            distances = np.empty((L, stop - start, last - first))
            for lens, out in zip(lenses, distances, strict=True):
                pair_distances(lens[start:stop], lens[first:last], out)
            left, right = row_sums[:, start:stop], row_sums[:, first:last]
            pair_products(distances, products, left, right, first > start)
    return products, row_sums
