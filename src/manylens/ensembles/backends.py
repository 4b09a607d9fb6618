"""Where candidates come from: a scan of the leading coordinates, or faiss's inverted lists.

A back end is built from the leading coordinates of the base, grows by `add` and answers `candidates`. One
that `proves` gives, with every candidate, a score that bounds the distance of the rows it did not name.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import gen_batches
from threadpoolctl import ThreadpoolController

from manylens.ensembles.growing import GrowingRows
from manylens.native.nearest import scan_on
from manylens.native.scanning import scan

QUERIES = 512  # in a block, for which a tile of rows is turned once; see native.scanning


class LeadingScan:
    """Scan of all rows on their leading coordinates: matrix products in tiles, selection while in cache.

    Every row is stored as [-2 b, |b|²] and every query taken as [q, 1], so that a product gives the scores
    |b|² - 2 q.b = |q - b|² - |q|². In float32 whatever the precision of the rows.

    Parameters
    ----------
    leading : ndarray, shape (n, d)
        Leading coordinates of the base.
    n_jobs : int
        Threads.
    """

    proves = True

    def __init__(self, leading, n_jobs=-1):
        self.n_jobs = n_jobs
        self._rows = GrowingRows(score_rows(leading))

    @classmethod
    def from_rows(cls, rows, n_jobs=-1):
        """A scan of rows that were stored already, such as a memory-mapped file.

        Parameters
        ----------
        rows : ndarray, shape (n, d + 1)
            What `rows` gave.
        n_jobs : int
            Threads.

        Returns
        -------
        LeadingScan
            On the same numbers.
        """
        scan = cls.__new__(cls)
        scan.n_jobs, scan._rows = n_jobs, GrowingRows(rows)
        return scan

    @property
    def rows(self):
        """The stored rows, shape (n, d + 1)."""
        return self._rows.array

    def add(self, leading):
        """Add rows.

        Parameters
        ----------
        leading : ndarray, shape (m, d)
            Their leading coordinates.
        """
        self._rows.append(score_rows(leading))

    def candidates(self, leading, n_candidates):
        """The rows of smallest distance on the leading coordinates.

        Parameters
        ----------
        leading : ndarray, shape (n_queries, d)
            Leading coordinates of the queries.
        n_candidates : int
            How many.

        Returns
        -------
        keys : ndarray, shape (n_queries, n_candidates)
            Scores, in no order; infinity where the base has fewer rows.
        rows : ndarray of int64, shape (n_queries, n_candidates)
            The rows; -1 where there are fewer.
        """
        queries = score_queries(leading)
        keys = np.full((len(queries), n_candidates), np.inf, dtype=np.float32)
        rows = np.full(keys.shape, -1, dtype=np.int64)

        base = self.rows
        over_blocks(lambda b: scan(queries[b], base, keys[b], rows[b]), len(queries), self.n_jobs)
        return keys, rows

    def lower_bound_shift(self, leading, width):
        """What is added to a score to get a number surely below the squared distance.

        |q|², less a bound on the rounding of a product of this length in float32 and of the sum of `width`
        squares that it will be held against: (width + 8) ε (|q| + max |b|)².

        Parameters
        ----------
        leading : ndarray, shape (n_queries, d)
            Leading coordinates of the queries.
        width : int
            Number of all coordinates.

        Returns
        -------
        ndarray, shape (n_queries,)
            In float64.
        """
        squares = np.einsum("ij,ij->i", leading, leading, dtype=np.float64)
        largest = np.sqrt(max(0.0, float(self.rows[:, -1].max())))
        rounding = (width + 8) * np.finfo(np.float32).eps * (np.sqrt(squares) + largest) ** 2
        return squares - rounding

    def search_on(self, leading, shift, queries, points, distances, rows):
        """Finish lists of neighbours that are not proven: scan again, measuring whatever could be nearer.

        Parameters
        ----------
        leading : ndarray, shape (n_queries, d)
            Leading coordinates of the queries.
        shift : ndarray, shape (n_queries,)
            From `lower_bound_shift`.
        queries, points : ndarray, shape (n_queries, D) and (n, D)
            All coordinates.
        distances, rows : ndarray, shape (n_queries, k)
            Lists, changed in place.
        """
        scored, base = score_queries(leading), self.rows

        def finish(b):
            scan_on(scored[b], base, shift[b], queries[b], points, distances[b], rows[b])

        over_blocks(finish, len(queries), self.n_jobs)


def score_rows(leading):
    """Rows as the scan stores them, [-2 b, |b|²].

    Parameters
    ----------
    leading : ndarray, shape (n, d)
        Coordinates b.

    Returns
    -------
    ndarray, shape (n, d + 1)
        In float32.
    """
    rows = np.empty((len(leading), leading.shape[1] + 1), dtype=np.float32)
    np.multiply(leading, -2, out=rows[:, :-1], casting="same_kind")
    # Of the coordinates as they were stored, so that the score of a row with itself is least.
    np.einsum("ij,ij->i", rows[:, :-1] / 2, rows[:, :-1] / 2, out=rows[:, -1])
    return rows


def score_queries(leading):
    """Queries as the scan takes them, [q, 1].

    Parameters
    ----------
    leading : ndarray, shape (n, d)
        Coordinates q.

    Returns
    -------
    ndarray, shape (n, d + 1)
        In float32.
    """
    return np.concatenate([leading, np.ones((len(leading), 1))], axis=1, dtype=np.float32)


@cache
def blas_libraries():
    """What sets the threads of NumPy's and SciPy's BLAS; finding them costs more than a small search.

    Returns
    -------
    ThreadpoolController
        Made once.
    """
    return ThreadpoolController()


def over_blocks(work, n_queries, n_jobs):
    """Call `work(slice)` for blocks of queries on threads, each with one BLAS thread.

    The blocks do not depend on the number of threads, nor then does the result.

    Parameters
    ----------
    work : callable
        Releases the interpreter's lock where it matters.
    n_queries : int
        How many in all.
    n_jobs : int
        Threads, as joblib counts them.
    """
    blocks = list(gen_batches(n_queries, QUERIES))
    n_threads = min(effective_n_jobs(n_jobs), len(blocks))
    with blas_libraries().limit(limits=1, user_api="blas"):
        if n_threads < 2:
            for block in blocks:
                work(block)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            for finished in [pool.submit(work, block) for block in blocks]:
                finished.result()


class FaissLists:
    """faiss's inverted lists with 4-bit product quantisation of the leading coordinates.

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
    smallest = 10_000  # rows from which lists can be learnt

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


BACKENDS: dict[str, Any] = {"numpy": LeadingScan, "faiss": FaissLists}
