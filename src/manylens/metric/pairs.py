"""The native sums over pairs, for a layout: which tiles meet, in which float type, on how many threads."""

from dataclasses import dataclass

import numpy as np

from manylens.native.nca_pairs import force_masses, force_moments, kernel_sums

# |z|² above which the cancellation in |z_i|² + |z_j|² - 2 z_i·z_j costs float32 more than 1e-3 of a distance.
LARGEST_SINGLE_NORM = 4096.0
# Slots up to which one thread is as fast as many, and does not wait for them on a busy machine.
ONE_THREAD_SLOTS = 1024


@dataclass(frozen=True)
class TilePairs:
    """Tiles that are to meet; `ALL_PAIRS` means every tile meets every other.

    Parameters
    ----------
    starts, partners : ndarray of int64
        The partners above tile I are partners[starts[I]:starts[I + 1]].
    """

    starts: np.ndarray
    partners: np.ndarray

    def share(self):
        """The part of all pairs of different tiles that is listed."""
        n_tiles = len(self.starts) - 1
        return len(self.partners) / max(1, n_tiles * (n_tiles - 1) / 2)


ALL_PAIRS = TilePairs(np.empty(0, np.int64), np.empty(0, np.int64))


def arithmetic(Z, dtype):
    """The float type in which distances between the rows of centered `Z` keep their digits.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        Projected points with mean zero.
    dtype : dtype
        The type asked for.

    Returns
    -------
    dtype
        float64 where float32 was asked for but the points lie too far out for it.
    """
    if np.dtype(dtype) == np.float64:
        return np.dtype(np.float64)
    largest = np.einsum("ij,ij->i", Z, Z).max(initial=0.0)
    return np.dtype(np.float32 if largest <= LARGEST_SINGLE_NORM else np.float64)


def pair_sums(tiles, layout, pairs, compact, weights=None):
    """`same` and `other` of `native.nca_pairs.kernel_sums` for a layout."""
    return kernel_sums(*pair_arguments(tiles, layout, pairs, compact, weights), alone=is_small(layout))


def pair_moments(tiles, layout, pairs, compact, own, cross, weights=None):
    """`native.nca_pairs.force_moments` for a layout."""
    own, cross = own.astype(tiles.dtype), cross.astype(tiles.dtype)
    arguments = [*pair_arguments(tiles, layout, pairs, compact, weights), own, cross]
    return force_moments(*arguments, alone=is_small(layout))


def pair_masses(tiles, layout, pairs, own, cross):
    """`native.nca_pairs.force_masses` of listed pairs."""
    own, cross = (np.abs(u).astype(tiles.dtype) for u in (own, cross))
    lists = layout.tile_class, pairs.starts, pairs.partners
    return force_masses(tiles.ravel(), tiles.shape[1] - 1, *lists, own, cross, alone=is_small(layout))


def is_small(layout):
    """Whether one thread is as fast as many."""
    return layout.n_slots <= ONE_THREAD_SLOTS


def pair_arguments(tiles, layout, pairs, compact, weights):
    """What both passes of `native.nca_pairs` are called with first."""
    weights = np.ones(len(layout.counts)) if weights is None else weights
    return (
        tiles.ravel(),
        tiles.shape[1] - 1,
        layout.tile_class,
        weights.astype(tiles.dtype),
        compact,
        pairs.starts,
        pairs.partners,
    )
