"""Where each row stands in the tiles that the native loops work on."""

from dataclasses import dataclass

import numpy as np

from manylens.native.nca_lanes import LANES
from manylens.native.nca_tiles import FAR


@dataclass(frozen=True)
class Layout:
    """Rows sorted by class into tiles of `LANES` slots; a tile holds one class, its last slots may be empty.

    Parameters
    ----------
    slots : ndarray of int, shape (n,)
        Slot of each row.
    tile_class : ndarray of int, shape (n_tiles,)
        Class of each tile.
    labels : ndarray of int, shape (n,)
        Class of each row, from 0.
    counts : ndarray of int, shape (n_classes,)
        Rows in each class.
    """

    slots: np.ndarray
    tile_class: np.ndarray
    labels: np.ndarray
    counts: np.ndarray

    @property
    def n_slots(self):
        return len(self.tile_class) * LANES

    @property
    def lonely(self):
        """Rows that are alone in their class, shape (n,)."""
        return self.counts[self.labels] == 1

    def place(self, Z, dtype):
        """Points by tile: d vectors of coordinates, and one of minus the squared norms.

        Parameters
        ----------
        Z : ndarray, shape (n, d)
            Points; their mean should be near zero, since |z_i|² + |z_j|² - 2 z_i·z_j cancels.
        dtype : dtype
            Of the result.

        Returns
        -------
        ndarray, shape (n_tiles, d + 1, LANES)
            Empty slots stand at zero with a norm that no kernel reaches.
        """
        by_slot = np.zeros((self.n_slots, Z.shape[1] + 1), dtype)
        by_slot[:, -1] = FAR
        by_slot[self.slots, :-1] = Z
        kept = by_slot[self.slots, :-1]  # as rounded: a point is then at distance 0 of itself
        by_slot[self.slots, -1] = -np.einsum("ik,ik->i", kept, kept)
        tiles = by_slot.reshape(len(self.tile_class), LANES, -1)
        return np.ascontiguousarray(tiles.transpose(0, 2, 1))

    def by_row(self, tiles):
        """What `tiles`, shape (n_tiles, k, LANES), hold of each row, shape (n, k)."""
        return tiles.transpose(0, 2, 1).reshape(self.n_slots, -1)[self.slots]


def class_layout(labels, within=None):
    """The layout of rows with these labels.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Classes, 0 to n_classes - 1, none empty.
    within : ndarray of int, shape (n,), optional
        An order of the rows to keep within each class; as they come by default.

    Returns
    -------
    Layout
    """
    counts = np.bincount(labels)
    tiles = -(-counts // LANES)
    first_slot = (np.cumsum(tiles) - tiles) * LANES
    first_row = np.cumsum(counts) - counts
    order = np.arange(len(labels)) if within is None else within
    order = order[np.argsort(labels[order], kind="stable")]
    sorted_labels = labels[order]
    slots = np.empty(len(labels), np.int64)
    slots[order] = first_slot[sorted_labels] + np.arange(len(labels)) - first_row[sorted_labels]
    tile_class = np.repeat(np.arange(len(counts)), tiles)
    return Layout(slots=slots, tile_class=tile_class, labels=labels, counts=counts)
