"""Candidates from a scan of all rows on their leading coordinates, with bounds on the rows not named."""

import numpy as np

from manylens.ensembles.growing import GrowingRows
from manylens.native.nearest import scan_on
from manylens.native.scanning import scan
from manylens.native.threads import over_blocks

QUERY_BLOCK = 512  # queries for which a tile of rows is transposed once; see native.scanning


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
        over_blocks(
            lambda b: scan(queries[b], base, keys[b], rows[b]), len(queries), QUERY_BLOCK, self.n_jobs
        )
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
        """Finish lists of neighbors that are not proven: scan again, measuring whatever could be nearer.

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

        over_blocks(finish, len(queries), QUERY_BLOCK, self.n_jobs)


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
    # Row by row, whatever the order of the coordinates: BLAS is slow to take anything else in small products.
    queries = np.empty((len(leading), leading.shape[1] + 1), dtype=np.float32)
    queries[:, :-1], queries[:, -1] = leading, 1
    return queries
