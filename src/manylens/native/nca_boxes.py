"""Which tiles of points can matter to which, from the boxes around them."""

import numpy as np
from numba import njit, prange


@njit(cache=True, forceinline=True)
def box_gap(low, high, one, two):
    """Squared distance between two boxes; a lower bound on that between their points."""
    gap = 0.0
    for k in range(low.shape[1]):
        apart = max(low[one, k] - high[two, k], low[two, k] - high[one, k])
        if apart > 0.0:
            gap += apart * apart
    return gap


@njit(cache=True, parallel=True, nogil=True)
def near_pairs(low, high, reach):
    """Pairs of tiles I < J whose boxes are nearer than the reach of either.

    Parameters
    ----------
    low, high : ndarray of float64, shape (n_tiles, d)
        Corners of the box around each tile.
    reach : ndarray of float64, shape (n_tiles,)
        Squared distance beyond which nothing matters to any point of the tile.

    Returns
    -------
    starts, partners : ndarray of int64, shapes (n_tiles + 1,) and (n_pairs,)
        The J of tile I, ascending, are partners[starts[I]:starts[I + 1]].
    """
    n_tiles = low.shape[0]
    counts = np.zeros(n_tiles + 1, np.int64)
    # A tile near the start has many tiles above it, one near the end few: taken together they are even work.
    for index in prange((n_tiles + 1) // 2):
        for late in range(2):
            one = np.int64(n_tiles - 1 - index) if late else np.int64(index)
            count = 0
            for two in range(one + 1, n_tiles):
                if box_gap(low, high, one, two) < max(reach[one], reach[two]):
                    count += 1
            counts[one + 1] = count
    starts = np.cumsum(counts)
    partners = np.empty(starts[-1], np.int64)
    for index in prange((n_tiles + 1) // 2):
        for late in range(2):
            one = np.int64(n_tiles - 1 - index) if late else np.int64(index)
            at = starts[one]
            for two in range(one + 1, n_tiles):
                if box_gap(low, high, one, two) < max(reach[one], reach[two]):
                    partners[at] = two
                    at += 1
    return starts, partners


@njit(cache=True, nogil=True)
def heavy_pairs(starts, partners, masses, tolerance):
    """The pairs of a list that are left when each tile drops its lightest ones.

    A tile may drop pairs, lightest first, as long as their masses add up to no more than its budget, which is
    `tolerance` times its own mass or, where that is more, the mean of all tiles' masses. A pair goes only if
    both its tiles drop it: at most 2 · tolerance of all mass is lost.

    Parameters
    ----------
    starts, partners : ndarray of int64
        A list as `near_pairs` gives it.
    masses : ndarray, shape (n_pairs,)
        Mass of each pair of tiles.
    tolerance : float
        Share of the mass that may be lost.

    Returns
    -------
    starts, partners : ndarray of int64
    """
    n_tiles = starts.shape[0] - 1
    # How much of a tile's mass lies in pairs of each power of two, both ends counted.
    n_bins = 160
    by_size = np.zeros((n_tiles, n_bins))
    size = np.empty(partners.shape[0], np.int16)
    for one in range(n_tiles):
        for at in range(starts[one], starts[one + 1]):
            exponent = np.int64(np.log2(masses[at])) if masses[at] > 0 else -n_bins
            size[at] = min(max(exponent + n_bins - 24, 0), n_bins - 1)
            by_size[one, size[at]] += masses[at]
            by_size[partners[at], size[at]] += masses[at]
    mean = by_size.sum() / n_tiles
    keep_from = np.zeros(n_tiles, np.int16)
    for one in range(n_tiles):
        budget = tolerance * max(by_size[one].sum(), mean)
        lost = by_size[one, 0]
        while lost <= budget and keep_from[one] < n_bins - 1:
            keep_from[one] += 1
            lost += by_size[one, keep_from[one]]
    kept_starts = np.zeros(n_tiles + 1, np.int64)
    kept = np.empty(partners.shape[0], np.int64)
    count = 0
    for one in range(n_tiles):
        for at in range(starts[one], starts[one + 1]):
            if size[at] >= min(keep_from[one], keep_from[partners[at]]):
                kept[count] = partners[at]
                count += 1
        kept_starts[one + 1] = count
    return kept_starts, kept[:count].copy()
