"""An array of rows that grows: appending costs each row a constant number of copies."""

import numpy as np


class GrowingRows:
    """Rows of one width, in memory or mapped from a file, with room for more.

    Parameters
    ----------
    rows : ndarray, shape (n, d)
        What it begins with; not copied before the first `append`.
    """

    def __init__(self, rows):
        self._store = rows
        self._used = len(rows)

    def __len__(self):
        return self._used

    def __getstate__(self):
        return {"_store": np.array(self.array), "_used": self._used}

    @property
    def array(self):
        """The rows, a view."""
        return self._store[: self._used]

    def append(self, rows):
        """Add rows at the end.

        Parameters
        ----------
        rows : ndarray, shape (m, d)
            In any precision; stored in that of the first.
        """
        needed = self._used + len(rows)
        if needed > len(self._store):
            store = np.empty((max(needed, 2 * self._used), rows.shape[1]), dtype=self._store.dtype)
            store[: self._used] = self.array
            self._store = store
        self._store[self._used : needed] = rows
        self._used = needed
