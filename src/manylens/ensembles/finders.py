"""Find candidates: scan all rows on their leading coordinates, or use faiss's inverted lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

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
from manylens.persistence import read_array, write_array
from manylens.typing import AnyArray, FloatArray, IntArray
from manylens.validation import import_optional

Backend = Literal["numpy", "faiss"]
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


class GrowingRows:
    """An array that doubles its memory as rows are appended; the first rows may be mapped from a file."""

    def __init__(self, rows: AnyArray) -> None:
        self._store = rows
        self._used = len(rows)

    def __len__(self) -> int:
        return self._used

    def __getstate__(self) -> dict[str, Any]:
        return {"_store": np.array(self.array), "_used": self._used}

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


class ScanFinder:
    """Scans all rows (n, d) by matrix products in tiles, in float32 for rows of any precision."""

    gives_bounds = True  # candidates are the nearest rows, and `bounds` bounds the distances of all others

    def __init__(self, rows: FloatArray) -> None:
        self._rows = GrowingRows(score_rows(rows))

    def add(self, rows: FloatArray) -> None:
        """Add rows; their numbers continue those of the rows present."""
        self._rows.append(score_rows(rows))

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

    def save(self, folder: Path, name: str) -> None:
        """Write the rows to a .npy file."""
        write_array(folder / f"{name}.npy", self._rows.array)

    @classmethod
    def load(cls, folder: Path, name: str, mmap: bool) -> Self:
        """Read what `save` wrote; with `mmap`, leave the rows in the file."""
        finder = cls.__new__(cls)
        finder._rows = GrowingRows(read_array(folder / f"{name}.npy", mmap))
        return finder


class FaissFinder:
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

    def search(self, queries: FloatArray, n_candidates: int, n_jobs: int | None = None) -> Lists:
        """Approximate distances and rows (n_queries, n_candidates), ascending, padded with row -1."""
        keys, rows = self.lists.search(pad_columns(queries), n_candidates)
        return keys, rows

    def bounds(self, queries: FloatArray, keys: FloatArray, width: int) -> None:
        """None: the lists give no bounds."""

    def save(self, folder: Path, name: str) -> None:
        """Write the lists in faiss's format."""
        import_faiss().write_index(self.lists, str(folder / f"{name}.faiss"))

    @classmethod
    def load(cls, folder: Path, name: str, mmap: bool) -> Self:  # noqa: ARG003
        """Read what `save` wrote, into memory."""
        finder = cls.__new__(cls)
        finder.lists = import_faiss().read_index(str(folder / f"{name}.faiss"))
        return finder

    def __getstate__(self) -> dict[str, Any]:
        return {"lists": import_faiss().serialize_index(self.lists)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.lists = import_faiss().deserialize_index(state["lists"])


Finder: TypeAlias = ScanFinder | FaissFinder
FINDERS: dict[str, type[Finder]] = {"numpy": ScanFinder, "faiss": FaissFinder}


def import_faiss() -> Any:
    """Import faiss, or say how to install it."""
    return import_optional("faiss", "backend='faiss'", "'manylens[faiss]', or use backend='numpy'")


def pad_columns(rows: FloatArray) -> FloatArray:
    """Rows in float32 with zero columns up to a multiple of 8, the widths at which faiss is fast."""
    return np.pad(rows.astype(np.float32), ((0, 0), (0, -rows.shape[1] % 8)))
