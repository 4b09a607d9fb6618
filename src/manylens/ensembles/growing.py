"""Arrays that grow without a copy, and that a file may hold."""

from __future__ import annotations

from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from manylens.typing import AnyArray, FloatArray, IntArray
from manylens.validation import CheckedState

STORED = tuple(np.dtype(kind) for kind in (np.float32, np.float64, np.int16, np.int32))
Lists: TypeAlias = tuple[FloatArray, IntArray]  # keys or squared distances, and rows
ONE_WRITER = Lock()  # held for an instant, to claim memory or to replace an index


class GrowingRows(CheckedState):
    """An immutable array; `extended` copies share its memory, which doubles when it is full.

    The first rows may be mapped from a file.
    """

    _mappable = True  # `manylens.persistence` may leave the array in its file

    def __init__(self, rows: AnyArray, used: int | None = None, filled: list[int] | None = None) -> None:
        self._store = rows
        self._used = len(rows) if used is None else used
        self._filled = [self._used] if filled is None else filled  # rows written to the shared memory

    def __len__(self) -> int:
        return self._used

    def __getstate__(self) -> dict[str, Any]:
        return {"_store": self.array, "_used": self._used}

    def _check_state(self) -> None:
        store = self._store
        self._require(isinstance(store, np.ndarray) and store.ndim == 2 and store.dtype in STORED)
        self._require(store.flags.c_contiguous and self._used == len(store))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._filled = [self._used]

    @property
    def array(self) -> AnyArray:
        """The rows (a view)."""
        return self._store[: self._used]

    def extended(self, rows: AnyArray) -> GrowingRows:
        """These rows and more at the end, in the precision of the first ones."""
        needed = self._used + len(rows)
        with ONE_WRITER:  # another thread may extend the same rows
            fits = self._filled[0] == self._used and needed <= len(self._store)
            if fits:
                self._filled[0] = needed
        store, filled = self._store, self._filled
        if not fits:
            store = np.empty((max(needed, 2 * self._used), rows.shape[1]), dtype=self._store.dtype)
            store[: self._used], filled = self.array, [needed]
        store[self._used : needed] = rows
        return GrowingRows(store, needed, filled)
