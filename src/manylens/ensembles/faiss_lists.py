"""Candidates from the inverted lists of the package faiss: fast, approximate, optional."""

import numpy as np


class FaissLists:
    """faiss's inverted lists with 4-bit product quantization of the leading coordinates.

    Fast and approximate. A base too small to learn lists from is scanned whole.

    Parameters
    ----------
    leading : ndarray, shape (n, d)
        Leading coordinates of the base; padded to a multiple of 8, the widths that faiss is fast at.
    n_jobs : int
        Threads.
    n_probe : int
        Lists visited for a query.
    """

    proves = False
    smallest = 10_000  # rows from which lists can be learned

    def __init__(self, leading, n_jobs=-1, n_probe=20):
        faiss = import_faiss()
        rows = padded(leading)
        n, width = rows.shape
        if n < self.smallest:
            self.index = faiss.IndexFlatL2(width)
        else:
            n_lists = int(2 ** np.round(np.log2(4 * np.sqrt(n))))
            self.index = faiss.index_factory(width, f"IVF{n_lists},PQ{width // 2}x4fs")
            sample = rows[:: max(1, n // (64 * n_lists))]
            self.index.train(np.ascontiguousarray(sample))
            self.index.nprobe = min(n_probe, n_lists)
        self.n_jobs = n_jobs
        self.index.add(rows)

    def add(self, leading):
        """Add rows.

        Parameters
        ----------
        leading : ndarray, shape (m, d)
            Their leading coordinates.
        """
        self.index.add(padded(leading))

    def candidates(self, leading, n_candidates):
        """Rows that are probably near.

        Parameters
        ----------
        leading : ndarray, shape (n_queries, d)
            Leading coordinates of the queries.
        n_candidates : int
            How many.

        Returns
        -------
        keys : ndarray, shape (n_queries, n_candidates)
            Their order, the nearest first as far as the lists know; no bounds.
        rows : ndarray of int64, shape (n_queries, n_candidates)
            The rows; -1 where fewer were found.
        """
        _, rows = self.index.search(padded(leading), n_candidates)
        return np.broadcast_to(np.arange(n_candidates, dtype=np.float32), rows.shape).copy(), rows

    def __getstate__(self):
        state = self.__dict__.copy()
        state["index"] = import_faiss().serialize_index(self.index)
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.index = import_faiss().deserialize_index(state["index"])


def import_faiss():
    """The faiss module, or one sentence on how to get it.

    Returns
    -------
    module
        The package `faiss`.
    """
    try:
        import faiss
    except ImportError:
        raise ImportError(
            "backend='faiss' needs the package faiss: pip install 'manylens[faiss]', or use backend='numpy'."
        ) from None
    return faiss


def padded(leading, multiple=8):
    """Columns of zeros added up to a multiple.

    Parameters
    ----------
    leading : ndarray, shape (n, d)
        Coordinates.
    multiple : int
        Of which the width is to be one.

    Returns
    -------
    ndarray, shape (n, d rounded up)
        In float32, C-ordered.
    """
    n, d = leading.shape
    rows = np.zeros((n, -(-d // multiple) * multiple), dtype=np.float32)
    rows[:, :d] = leading
    return rows
