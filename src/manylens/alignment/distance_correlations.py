"""Distance correlation of representations, for any number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array, check_consistent_length

from manylens.native.distance_correlation import distances_from_products
from manylens.native.threads import over_blocks
from manylens.typing import AnyArray, FloatArray
from manylens.validation import check_iterable, check_jobs, plain_conversion_errors, safe_scale, times_power

TILE = 128  # rows per tile: the distances between two tiles (128 KB in float64) fit in the L2 cache
PARTS = 8  # the work always has this many parts, so that sums do not depend on the number of threads


def distance_correlation(X: ArrayLike, Y: ArrayLike, *, n_jobs: int | None = -1) -> float:
    """Distance correlation of two representations of the same rows (Székely, Rizzo and Bakirov, 2007).

    With a_ij = |x_i - x_j|, b_ij = |y_i - y_j|, row means a_i., b_i. and grand means a.., b..,

        dCov²(X, Y) = mean_ij a_ij b_ij - 2 mean_i a_i. b_i. + a.. b..,
        dCor(X, Y) = ( dCov²(X, Y) / (dCov²(X, X) dCov²(Y, Y))^(1/2) )^(1/2).

    Takes O(n² (d + e)) time and O(n) memory, because distances are computed in tiles and not kept.

    Parameters
    ----------
    X, Y : array-like, shapes (n, d) and (n, e)
        Two representations of the same rows; a vector counts as one column.
    n_jobs : int or None, default=-1
        Number of threads.

    Returns
    -------
    float
        In [0, 1]; zero if X or Y is constant.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import distance_correlation
    >>> x = np.arange(20.0)
    >>> float(np.round(distance_correlation(x, 3 - 2 * x), 6))
    1.0
    """
    return float(distance_correlation_matrix([X, Y], n_jobs=n_jobs)[0, 1])


def distance_correlation_matrix(lenses: Sequence[Any] | AnyArray, *, n_jobs: int | None = -1) -> FloatArray:
    """Distance correlation of every pair of L lenses, in one pass over pairs of rows.

    Parameters
    ----------
    lenses : sequence of array-like, each of shape (n, d_l)
        Representations of the same rows; or one array (n, M, H), such as the result of `split`.
    n_jobs : int or None, default=-1
        Number of threads.

    Returns
    -------
    ndarray, shape (L, L)
        Symmetric; ones on the diagonal unless a lens is constant.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import ModularKernelPCA
    >>> from manylens.alignment import distance_correlation_matrix
    >>> X = load_iris().data
    >>> lenses = ModularKernelPCA(n_modules=3, n_components=2, diversity=0.9, random_state=0).fit(X)
    >>> distance_correlation_matrix([X, *lenses.split(lenses.transform(X)).swapaxes(0, 1)]).shape
    (4, 4)
    """
    check_jobs(n_jobs)
    covariances = distance_covariances(centered_lenses(lenses), n_jobs)
    norms = np.sqrt(np.maximum(np.diag(covariances), 0.0))
    scale = np.outer(norms, norms)
    squares = np.divide(covariances, scale, out=np.zeros_like(covariances), where=scale > 0)
    return np.sqrt(np.clip(squares, 0.0, 1.0))


def centered_lenses(lenses: Sequence[Any] | AnyArray) -> list[FloatArray]:
    """Lenses as C-ordered float64 arrays (n, d_l) at a safe scale, centered to reduce cancellation."""
    if isinstance(lenses, np.ndarray) and lenses.ndim == 3:
        lenses = lenses.swapaxes(0, 1)
    lenses = list(check_iterable(lenses, "lenses", "a list of arrays of shapes (n, d_l)"))
    if not lenses:
        raise ValueError("The list of lenses is empty: give at least one.")
    arrays = []
    for number, lens in enumerate(lenses):
        with plain_conversion_errors(f"Lens {number}"):
            lens = np.asarray(lens)[:, None] if np.ndim(lens) == 1 else lens
            arrays.append(check_array(lens, dtype=np.float64, order="C", ensure_min_samples=2))
    check_consistent_length(*arrays)
    scaled = [times_power(array, -safe_scale(array)) for array in arrays]
    return [np.ascontiguousarray(array - array.mean(axis=0)) for array in scaled]


def distance_covariances(lenses: Sequence[FloatArray], n_jobs: int | None) -> FloatArray:
    """dCov² of every pair of centered lenses, mean_ij a_ij b_ij - 2 mean_i a_i. b_i. + a.. b.., (L, L)."""
    n = len(lenses[0])
    products, row_sums = distance_sums(lenses, n_jobs)
    means = row_sums / n  # (L, n)
    grand = means.mean(axis=1)
    return products / n**2 - 2 * (means @ means.T) / n + np.outer(grand, grand)


def distance_sums(lenses: Sequence[FloatArray], n_jobs: int | None) -> tuple[FloatArray, FloatArray]:
    """Σ_ij a_ij b_ij for every pair of lenses (L, L), and Σ_j a_ij (L, n)."""
    n, L = len(lenses[0]), len(lenses)
    products, row_sums = np.zeros((PARTS, L, L)), np.zeros((PARTS, L, n))

    def work(parts: slice) -> None:
        for part in range(parts.start, parts.stop):
            add_tiles(lenses, part, products[part], row_sums[part])

    over_blocks(work, PARTS, 1, n_jobs)
    return products.sum(axis=0), row_sums.sum(axis=0)


def add_tiles(lenses: Sequence[FloatArray], part: int, products: FloatArray, row_sums: FloatArray) -> None:
    """Add products of distances (L, L) and row sums of distances (L, n) for every PARTS-th tile of rows."""
    n = len(lenses[0])
    edges = list(pairwise([*range(0, n, TILE), n]))
    for number in range(part, len(edges), PARTS):
        start, stop = edges[number]
        for first, last in edges[number:]:  # distances are symmetric: later tiles are enough
            distances = np.empty((len(lenses), stop - start, last - first))
            for lens, out in zip(lenses, distances, strict=True):
                np.matmul(lens[start:stop], lens[first:last].T, out=out)
                distances_from_products(lens[start:stop], lens[first:last], out)
            flat = distances.reshape(len(lenses), -1)
            products += flat @ flat.T * (2.0 if first > start else 1.0)
            row_sums[:, start:stop] += distances.sum(axis=2)
            if first > start:
                row_sums[:, first:last] += distances.sum(axis=1)
