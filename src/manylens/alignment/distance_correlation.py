"""Distance correlation of lenses with the data and with each other, for any number of rows."""

from itertools import pairwise

import numpy as np
from sklearn.utils import check_array, check_consistent_length

from manylens.native.distance_correlation import distances_from_products
from manylens.native.threads import over_blocks

TILE = 128  # rows of a tile: distances of two tiles, 128 KB in float64, stay in the second-level cache
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
    n, L = len(lenses[0]), len(lenses)
    parts = [(np.zeros((L, L)), np.zeros((L, n))) for _ in range(PARTS)]
    over_blocks(lambda part: add_tiles(lenses, part.start, *parts[part.start]), PARTS, 1, n_jobs)
    products = sum(product for product, _ in parts) / n**2
    means = sum(row_sums for _, row_sums in parts) / n  # (L, n)
    grand = means.mean(axis=1)
    return products - 2 * (means @ means.T) / n + np.outer(grand, grand)


def add_tiles(lenses, part, products, row_sums):
    """Add one part's products of distances (L, L) and sums of each row's distances (L, n).

    A part is every PARTS-th tile of rows, compared with itself and all later ones.
    """
    n = len(lenses[0])
    edges = list(pairwise([*range(0, n, TILE), n]))
    for start, stop in edges[part::PARTS]:
        for first, last in [edge for edge in edges if edge[0] >= start]:
            distances = np.empty((len(lenses), stop - start, last - first))
            for lens, out in zip(lenses, distances, strict=True):
                np.matmul(lens[start:stop], lens[first:last].T, out=out)
                distances_from_products(lens[start:stop], lens[first:last], out)
            flat = distances.reshape(len(lenses), -1)
            products += flat @ flat.T * (2.0 if first > start else 1.0)
            row_sums[:, start:stop] += distances.sum(axis=2)
            if first > start:
                row_sums[:, first:last] += distances.sum(axis=1)
