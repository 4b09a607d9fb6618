"""Find candidates with faiss's inverted lists."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np

from manylens.ensembles.search_plans import MAX_PER_NEIGHBOR, MIN_PER_NEIGHBOR, CalibrationQueries, SearchPlan
from manylens.native.search_graph import Progress
from manylens.optional import import_optional
from manylens.typing import FloatArray, IntArray
from manylens.validation import CheckedState


class FaissFinder(CheckedState):
    """Searches faiss's inverted lists with 4-bit product quantization, or all rows if there are few."""

    gives_bounds = False
    smallest = 10_000  # rows needed to train the lists
    n_probe = 20  # lists visited per query

    def __init__(self, rows: FloatArray, n_jobs: int | None = None, report: Progress | None = None) -> None:
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

    def added(self, rows: FloatArray, n_jobs: int | None = None) -> FaissFinder:
        """A finder of these and more rows, whose numbers continue those of the rows present."""
        finder = copy(self)  # lists that grow while another thread searches them give wrong answers
        finder.lists.add(pad_columns(rows))
        return finder

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and number of their columns, padding included."""
        return self.lists.ntotal, self.lists.d

    def search(
        self, queries: FloatArray, n_candidates: int, n_jobs: int | None = None
    ) -> tuple[FloatArray, IntArray]:
        """Approximate distances and rows (n_queries, n_candidates), ascending, padded with row -1."""
        keys, rows = self.lists.search(pad_columns(queries), n_candidates)
        return keys, rows

    @property
    def nbytes(self) -> int:
        """Bytes that the codes and row numbers take, without the tables of the quantizer."""
        per_row = getattr(self.lists, "code_size", 4 * self.lists.d) + 8
        return int(self.lists.ntotal * per_row)

    def rebuilt(self, rows: FloatArray, n_jobs: int | None = None) -> FaissFinder:
        """A finder of other rows, with the same lists."""
        finder = copy(self)
        finder.lists.reset()
        finder.lists.add(pad_columns(rows))
        return finder

    def bounds(self, queries: FloatArray, keys: FloatArray, width: int) -> None:
        """None: the lists give no bounds."""

    def __copy__(self) -> Self:
        finder = type(self).__new__(type(self))
        finder.lists = import_faiss().clone_index(self.lists)
        return finder

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


def import_faiss() -> Any:
    """Import faiss, or say how to install it."""
    return import_optional("faiss", "backend='faiss'", "'manylens[faiss]', or use backend='numpy'")


def pad_columns(rows: FloatArray) -> FloatArray:
    """Rows in float32 with zero columns up to a multiple of 8, the widths at which faiss is fast."""
    return np.pad(rows.astype(np.float32), ((0, 0), (0, -rows.shape[1] % 8)))


def choose_faiss_plan(
    finder: FaissFinder, n_leading: int, queries: CalibrationQueries, neighbors: IntArray, recall: float
) -> SearchPlan:
    """The plan with the fewest candidates that reach the recall, among neighbors (s, k) in the lists."""
    k = neighbors.shape[1]
    if k < 1:
        return SearchPlan(n_leading, MIN_PER_NEIGHBOR)
    _, found = finder.search(
        queries.coordinates[:, :n_leading], min(finder.shape[0], MAX_PER_NEIGHBOR * k + 1)
    )
    query, place, _ = np.nonzero(found[:, :, None] == neighbors[:, None, :])
    if not len(place):
        return SearchPlan(n_leading, float(MAX_PER_NEIGHBOR))
    ranks = place + 1
    if queries.own is not None:  # do not count the query itself
        ranks -= np.cumsum(found == queries.own[:, None], axis=1)[query, place]
    per_neighbor = np.quantile(ranks, recall, method="higher") / k
    return SearchPlan(n_leading, float(np.clip(per_neighbor, MIN_PER_NEIGHBOR, MAX_PER_NEIGHBOR)))
