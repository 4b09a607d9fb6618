"""Find candidates: scan all rows on their leading coordinates, or use faiss's inverted lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from manylens.native.nearest import (
    FINISH_BLOCK,
    QUERY_BLOCK,
    finish,
    scan_smallest,
    score_queries,
    score_rows,
)
from manylens.native.threads import over_blocks
from manylens.typing import AnyArray, FloatArray, IntArray
from manylens.validation import CheckedState, import_optional

Backend = Literal["numpy", "faiss"]
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
Lists: TypeAlias = tuple[FloatArray, IntArray]  # keys or squared distances, and rows


def by_blocks(
    make: Callable[[slice], Lists], shape: tuple[int, int], dtype: Any, n_jobs: int | None
) -> Lists:
    """Lists of all queries, from a function that makes the lists of one block of queries."""
    keys, rows = np.empty(shape, dtype=dtype), np.empty(shape, dtype=np.int64)

    def fill(block: slice) -> None:
        keys[block], rows[block] = make(block)

    over_blocks(fill, shape[0], QUERY_BLOCK, n_jobs)
    return keys, rows


class GrowingRows(CheckedState):
    """An array that doubles its memory as rows are appended; the first rows may be mapped from a file."""

    _mappable = True  # `manylens.persistence` may leave the array in its file

    def __init__(self, rows: AnyArray) -> None:
        self._store = rows
        self._used = len(rows)

    def __len__(self) -> int:
        return self._used

    def __getstate__(self) -> dict[str, Any]:
        return {"_store": self.array, "_used": self._used}

    def _check_state(self) -> None:
        store = self._store
        self._require(isinstance(store, np.ndarray) and store.ndim == 2 and store.dtype in FLOATS)
        self._require(store.flags.c_contiguous and self._used == len(store))

    @property
    def array(self) -> AnyArray:
        """The rows (a view)."""
        return self._store[: self._used]

    def append(self, rows: AnyArray) -> None:
        """Add rows at the end, in the precision of the first ones."""
        needed = self._used + len(rows)
        if needed > len(self._store):
            store = np.empty((max(needed, 2 * self._used), rows.shape[1]), dtype=self._store.dtype)
            store[: self._used] = self.array
            self._store = store
        self._store[self._used : needed] = rows
        self._used = needed


class ScanFinder(CheckedState):
    """Scans all rows (n, d) by matrix products in tiles, in float32 for rows of any precision."""

    gives_bounds = True  # candidates are the nearest rows, and `bounds` bounds the distances of all others

    def __init__(self, rows: FloatArray) -> None:
        self._rows = GrowingRows(score_rows(rows))

    def add(self, rows: FloatArray) -> None:
        """Add rows; their numbers continue those of the rows present."""
        self._rows.append(score_rows(rows))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and number of their columns."""
        n, width = self._rows.array.shape
        return n, width - 1

    def search(self, queries: FloatArray, n_candidates: int, n_jobs: int | None = None) -> Lists:
        """Scores |b|² - 2 q.b and rows (n_queries, n_candidates), ascending, padded with row -1."""
        scored, base = score_queries(queries), self._rows.array
        shape = (len(scored), n_candidates)
        return by_blocks(lambda b: scan_smallest(scored[b], base, n_candidates), shape, scored.dtype, n_jobs)

    def bounds(self, queries: FloatArray, keys: FloatArray, width: int) -> FloatArray:
        """Lower bounds on the squared distances over all `width` coordinates."""
        return keys + self._shift(queries, width)[:, None]

    def complete(
        self, leading: FloatArray, queries: FloatArray, points: FloatArray, lists: Lists, n_jobs: int | None
    ) -> Lists:
        """Make lists of neighbors (squared distances and rows) exact by another scan."""
        scored, base = score_queries(leading), self._rows.array
        shift = self._shift(leading, queries.shape[1])
        distances, rows = lists[0].copy(), lists[1].copy()

        def complete(b: slice) -> None:
            finish(scored[b], base, shift[b], queries[b], points, distances[b], rows[b])

        over_blocks(complete, len(queries), FINISH_BLOCK, n_jobs)
        return distances, rows

    def _shift(self, queries: FloatArray, width: int) -> FloatArray:
        """Term that turns scores into lower bounds: |q|² - (width + 8) ε (|q| + max |b|)², ε for rounding."""
        squares = np.einsum("ij,ij->i", queries, queries, dtype=np.float64)
        largest = np.sqrt(max(0.0, float(self._rows.array[:, -1].max())))
        return squares - (width + 8) * np.finfo(np.float32).eps * (np.sqrt(squares) + largest) ** 2

    def _check_state(self) -> None:
        self._require(isinstance(self._rows, GrowingRows) and self._rows.array.dtype == np.float32)


class FaissFinder(CheckedState):
    """Searches faiss's inverted lists with 4-bit product quantization, or all rows if there are few."""

    gives_bounds = False
    smallest = 10_000  # rows needed to train the lists
    n_probe = 20  # lists visited per query

    def __init__(self, rows: FloatArray) -> None:
        faiss = import_faiss()
        rows = pad_columns(rows)
        n, width = rows.shape
        if n < self.smallest:
            self.lists = faiss.IndexFlatL2(width)
        else:
            n_lists = int(2 ** np.round(np.log2(4 * np.sqrt(n))))
            self.lists = faiss.index_factory(width, f"IVF{n_lists},PQ{width // 2}x4fs")
            self.lists.train(np.ascontiguousarray(rows[:: max(1, n // (64 * n_lists))]))
            self.lists.nprobe = min(self.n_probe, n_lists)
        self.lists.add(rows)

    def add(self, rows: FloatArray) -> None:
        """Add rows; their numbers continue those of the rows present."""
        self.lists.add(pad_columns(rows))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and number of their columns, padding included."""
        return self.lists.ntotal, self.lists.d

    def search(self, queries: FloatArray, n_candidates: int, n_jobs: int | None = None) -> Lists:
        """Approximate distances and rows (n_queries, n_candidates), ascending, padded with row -1."""
        keys, rows = self.lists.search(pad_columns(queries), n_candidates)
        return keys, rows

    def bounds(self, queries: FloatArray, keys: FloatArray, width: int) -> None:
        """None: the lists give no bounds."""

    def __getstate__(self) -> dict[str, Any]:
        return {"lists": import_faiss().serialize_index(self.lists)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        data = np.ascontiguousarray(state["lists"], dtype=np.uint8)
        self.lists = import_faiss().deserialize_index(data)
        self._check_state()

    def _check_state(self) -> None:
        lists, n = self.lists, self.lists.ntotal
        if hasattr(lists, "invlists"):  # the numbers of rows in the lists are results of searches
            faiss, inside = import_faiss(), lists.invlists
            for k in range(lists.nlist):
                numbers = faiss.rev_swig_ptr(inside.get_ids(k), inside.list_size(k))
                self._require(np.all((numbers >= 0) & (numbers < n)))


Finder: TypeAlias = ScanFinder | FaissFinder
FINDERS: dict[str, type[Finder]] = {"numpy": ScanFinder, "faiss": FaissFinder}


def import_faiss() -> Any:
    """Import faiss, or say how to install it."""
    return import_optional("faiss", "backend='faiss'", "'manylens[faiss]', or use backend='numpy'")


def pad_columns(rows: FloatArray) -> FloatArray:
    """Rows in float32 with zero columns up to a multiple of 8, the widths at which faiss is fast."""
    return np.pad(rows.astype(np.float32), ((0, 0), (0, -rows.shape[1] % 8)))
