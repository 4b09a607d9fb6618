"""Nearest-neighbor index whose modules live on the workers of a dask cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, gen_batches, get_tags
from sklearn.utils.validation import check_is_fitted

from manylens.cluster.blocks import is_collection
from manylens.cluster.dask_parts import DaskParts
from manylens.cluster.dask_runner import Runner, check_patience, current_client
from manylens.cluster.index_folder import IndexFolder
from manylens.cluster.index_layout import Layout, first_row, row_blocks, segments_of
from manylens.cluster.index_setup import fitted_modules, make_parts, read_first_row
from manylens.cluster.local_parts import Parts
from manylens.cluster.recall_curve import calibrate
from manylens.cluster.row_filter import row_filters
from manylens.cluster.two_round_search import SearchResult, TwoRoundSearch
from manylens.ensembles.row_ids import Where, check_ids, chosen_rows, joined_ids, positions_of, row_ids
from manylens.ensembles.search_coordinates import (
    dense,
    finite_columns,
    given_ids,
    module_views,
    transform_rows,
)
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray, MatrixLike, ModuleSet
from manylens.validation import check_count, times_power, validate_rows

AT_ONCE = 512  # queries per round


@dataclass(frozen=True)
class ClusterNeighbors:
    """Neighbors, the modules whose distances rank them, and the recall to expect; unpacks to a pair.

    Parameters
    ----------
    distances : ndarray of shape (n_queries, k)
        Root mean squared distances over modules, ascending; estimated if some did not answer.
    rows : ndarray of shape (n_queries, k)
        Row numbers of the base, or ids if `fit` was given any; -1, or None, with an infinite distance if
        fewer rows could be reached.
    answered : ndarray of bool of shape (n_modules,)
        Modules that answered for all queries and all rows of the base.
    expected_recall : ndarray of shape (n_queries,)
        Share of the neighbors by all modules to expect with those that answered, as calibrated by `fit`.
    proven : ndarray of bool of shape (n_queries,)
        Whether the result is proven to be exact for the modules and rows that answered.
    """

    distances: FloatArray
    rows: AnyArray
    answered: BoolArray
    expected_recall: FloatArray
    proven: BoolArray

    def __iter__(self) -> Iterator[Any]:
        return iter((self.distances, self.rows))


class DistributedNeighbors(IndexFolder, BaseEstimator):
    """Search index whose modules live on dask workers, and which answers with those that reply.

    Each worker keeps the coordinates of a group of modules, for all rows or for a shard of them. A search
    asks all of them for their nearest rows, then for the distances to the union of these, and ranks it by the
    mean squared distance over the modules that answer. With all modules the result is that of
    `ModuleNeighbors(modules, method="exact")`. Lost parts are built again from where the rows live.

    Parameters
    ----------
    modules : transformer with `transform` and `split`, default=None
        Fitted modules are used unchanged; otherwise a copy is fitted, on the workers if the rows are there.
        None means 15 linear modules of 20 columns with diversity 1, which together approximate the distances
        of the rows on 300 principal axes. Use `diversity=1` unless few modules answer.
    n_neighbors : int, default=10
        Number of neighbors that `kneighbors` returns by default.
    n_groups : int, default=None
        Number of groups of modules; the modules of a group are placed, and lost, together. None means one per
        worker, or one per module if there are more workers.
    n_shards : int, default=1
        Number of row shards, for bases whose groups do not fit on a worker.
    replicas : int, default=1
        Copies of each part, on different workers.
    patience : float, default=60.0
        Seconds to wait if there is no worker, or for an answer if there is no deadline. A worker that is
        silent for that long is treated as dead.

    Attributes
    ----------
    modules_ : transformer
        The fitted modules.
    recall_curve_ : ndarray of shape (n_modules + 1,)
        Share of the neighbors by all modules that 0, 1, ... answering modules find, measured by `fit`.
    groups_ : tuple of tuple of int
        Numbers of the modules in each group.
    n_samples_fit_ : int
        Number of rows in the base.

    See Also
    --------
    manylens.ModuleNeighbors : The same search in one process.

    Notes
    -----
    Uses the dask client that is current when it is fitted, loaded or first used after unpickling. Without
    one, all parts live in this process. Several threads may search at once, even while rows are added;
    another process can search the same parts with an unpickled copy.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ModularKernelPCA
    >>> from manylens.cluster import DistributedNeighbors
    >>> X = load_digits().data
    >>> lenses = ModularKernelPCA(5, 8, diversity=1, rank=200, random_state=0).fit(X)
    >>> index = DistributedNeighbors(lenses).fit(X)
    >>> found = index.kneighbors(X[:3], n_neighbors=5, deadline=10, at_least=4)
    >>> found.rows[:, 0]
    array([0, 1, 2])
    """

    layout_: Layout  # replaced as a whole, so that other threads see the old or the new one

    def __init__(
        self,
        modules: ModuleSet | None = None,
        n_neighbors: int = 10,
        *,
        n_groups: int | None = None,
        n_shards: int = 1,
        replicas: int = 1,
        patience: float = 60.0,
    ) -> None:
        self.modules = modules
        self.n_neighbors = n_neighbors
        self.n_groups = n_groups
        self.n_shards = n_shards
        self.replicas = replicas
        self.patience = patience

    def fit(self, X: Any, y: Any = None, *, ids: ArrayLike | None = None) -> Self:
        """Fit the modules, unless they are fitted, place the rows on workers and calibrate the recall.

        Parameters
        ----------
        X : array-like, CSR matrix, folder, list of files, dask array or data frame, or `delayed` blocks
            The base. Files are .npy, .npz or Parquet files of rows, which every worker can read. Lost parts
            are built again from X, so it must stay where it is; an array stays in this process.
        y : array-like of shape (n,), default=None
            Targets, for modules that need them.
        ids : array-like of shape (n,), default=None
            Ids of the rows, numbers or strings, which searches return instead of row numbers. None means as
            for `ModuleNeighbors`; the index of a dask data frame is not used.

        Returns
        -------
        self
        """
        patience, n_shards = self._check_parameters()
        fitted = copy(self)  # if anything fails, `self` stays as it was
        blocks = row_blocks(X, n_shards, Runner(patience))
        segments = segments_of(blocks, n_shards)
        ids = given_ids(ids, X)
        names = None if ids is None else check_ids(ids, sum(segment.n_rows for segment in segments))
        client = current_client()
        is_frame = hasattr(X, "iloc") and not is_collection(X)  # whose blocks have no feature names
        row = first_row(X) if is_frame else read_first_row(blocks[0], patience)
        fitted.modules_ = fitted_modules(self.modules, X, y, blocks, np.shape(row)[-1], patience)
        probe = validate_rows(fitted, row, reset=True)
        views = module_views(fitted.modules_, dense(transform_rows(fitted.modules_, probe)))
        widths = tuple(view.shape[1] for view in views)
        layout = Layout(segments, self._groups(client, len(widths)), widths, self.replicas, names)
        parts = make_parts(client, layout, fitted.modules_, patience)
        calibration = calibrate(parts, layout, check_count(self.n_neighbors, "n_neighbors"), patience)
        fitted.layout_, fitted._parts = layout, parts
        fitted.recall_curve_, fitted.module_weights_ = calibration.recall, calibration.weights
        fitted.candidates_per_neighbor_ = calibration.per_neighbor
        before = vars(self).get("_parts")
        self.__dict__ = fitted.__dict__
        if before is not None:
            before.close()
        return self

    def partial_fit(self, X: Any, y: Any = None, *, ids: ArrayLike | None = None) -> Self:
        """Add rows to the base, numbered after those present; the first call acts as `fit`.

        Parameters
        ----------
        X : array-like, CSR matrix, folder, list of files, dask array or data frame, or `delayed` blocks
            Rows. The modules do not change.
        y : array-like of shape (n,), default=None
            Used only by the first call.
        ids : array-like of shape (m,), default=None
            Ids of the rows, required if the rows of the base have ids. None means as in `fit`.

        Returns
        -------
        self
        """
        if not hasattr(self, "layout_"):
            return self.fit(X, y, ids=ids)
        patience, _ = self._check_parameters()
        blocks = row_blocks(X, 1, Runner(patience))
        validate_rows(self, first_row(X) if hasattr(X, "iloc") else read_first_row(blocks[0], patience))
        parts = self._connected()
        with parts.writing:
            try:
                ids = ids if self.layout_.ids is None else given_ids(ids, X)
                names = joined_ids(self.layout_, ids, sum(block.n_rows for block in blocks))
                layout = self.layout_.with_rows(blocks, names)
                parts.build(layout)
                self.layout_ = layout
            finally:
                parts.keep(self.layout_)
        return self

    def remove(self, ids: ArrayLike) -> Self:
        """Remove rows; the others keep their ids or, if they have none, their old row numbers become ids.

        No search finds the removed rows anymore. Workers hold them until the index is fitted again, or saved
        and loaded.

        Parameters
        ----------
        ids : id or array-like of ids
            Ids of the rows, or row numbers if they have none.

        Returns
        -------
        self
        """
        check_is_fitted(self, "layout_")
        with self._connected(wait=False).writing:
            layout = self.layout_
            removed = positions_of(layout, ids)
            if len(removed) == layout.n_rows:
                raise ValueError("This would remove all rows: an index needs at least one.")
            self.layout_ = layout.without(removed, np.delete(row_ids(layout), removed))
        return self

    def kneighbors(
        self,
        X: MatrixLike,
        n_neighbors: int | None = None,
        *,
        deadline: float | None = None,
        at_least: int | None = None,
        where: Where = None,
    ) -> ClusterNeighbors:
        """Nearest rows of the base by the modules that answer.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_queries, d)
            Queries.
        n_neighbors : int, default=None
            Number of neighbors. None means the parameter of the index.
        deadline : float, default=None
            Seconds after which the search returns, using only the modules that have answered by then. None
            means `patience`.
        at_least : int, default=None
            Stop waiting once this many modules have answered. None means all modules on live workers. If the
            deadline comes first, there may be fewer: see `answered`.
        where : array-like of bool or of ids, or callable, default=None
            Rows to choose from: a mask (n,), their ids, or a function from all ids to a mask.

        Returns
        -------
        ClusterNeighbors
            Unpacks to `distances, rows`; also has `answered`, `expected_recall` and `proven`.

        Raises
        ------
        TimeoutError
            If no module answered by the deadline.
        """
        check_is_fitted(self, "layout_")
        start, layout = time.monotonic(), self.layout_  # once, because another thread may replace it
        n_modules = len(layout.widths)
        seconds = self.patience if deadline is None else deadline
        end = start + check_patience(seconds, "deadline")
        if at_least is not None and check_count(at_least, "at_least") > n_modules:
            raise ValueError(f"at_least={at_least} is more than the {n_modules} modules: ask for fewer.")
        chosen = chosen_rows(layout, where)
        k = self._check_neighbors(layout, n_neighbors, chosen)
        stored = chosen if layout.kept is None or chosen is None else layout.kept[chosen]
        queries = self._queries(X)
        parts = self._connected(wait=False)
        while True:
            filters = row_filters(layout, stored)
            search = TwoRoundSearch(parts, layout, self.module_weights_, at_least, filters)
            try:
                result = self._search(search, queries, k, end)
            except TimeoutError:
                if self.layout_ is layout:
                    raise
            else:
                if self.layout_ is layout or result.answered.all():
                    return result
            layout = self.layout_

    def _search(
        self, search: TwoRoundSearch, queries: list[FloatArray], k: int, end: float
    ) -> ClusterNeighbors:
        """Search in batches, each with its share of the time that is left."""
        n_nearest = max(k, int(np.ceil(self.candidates_per_neighbor_ * k)))
        batches = list(gen_batches(len(queries[0]), AT_ONCE))
        found = []
        for number, batch in enumerate(batches):
            now = time.monotonic()
            until = now + max(0.0, end - now) / (len(batches) - number)
            found.append(search.find([columns[batch] for columns in queries], k, n_nearest, until))
        return self._result(search, found)

    def available(self) -> BoolArray:
        """Modules that can answer now for all rows of the base; starts to rebuild the others.

        Returns
        -------
        ndarray of bool of shape (n_modules,)
        """
        check_is_fitted(self, "layout_")
        slots, layout = self._connected(wait=False).available(), self.layout_
        out = np.zeros(len(layout.widths), dtype=bool)
        for group, modules in enumerate(layout.groups):
            out[list(modules)] = all((segment.uid, group) in slots for segment in layout.segments)
        return out

    def close(self) -> None:
        """Free the memory of the workers; the next search builds the index again."""
        parts = self.__dict__.pop("_parts", None)
        if parts is not None:
            parts.close()

    @property
    def groups_(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the modules in each group."""
        return self._layout().groups

    @property
    def n_samples_fit_(self) -> int:
        """Number of rows in the base."""
        return self._layout().n_rows

    def _layout(self) -> Layout:
        if not hasattr(self, "layout_"):
            raise AttributeError("This index is not fitted: call fit first.")
        return self.layout_

    def _queries(self, X: MatrixLike) -> list[FloatArray]:
        """Columns of each group for the queries."""
        rows = validate_rows(self, X)
        views = module_views(self.modules_, dense(finite_columns(transform_rows(self.modules_, rows))))
        return [np.hstack([views[m] for m in group]) for group in self.layout_.groups]

    def _connected(self, wait: bool = True) -> Parts:
        """The parts; connect to them, or build them, if this index was unpickled or its client closed."""
        parts = vars(self).get("_parts")
        if isinstance(parts, DaskParts) and parts.client.status != "running":
            client = current_client()
            if client is not None and client.status == "running":
                parts = None
        if parts is None:
            parts = make_parts(current_client(), self.layout_, self.modules_, float(self.patience), wait=wait)
            self._parts: Parts = parts
        return parts

    def _result(self, search: TwoRoundSearch, found: list[SearchResult]) -> ClusterNeighbors:
        layout = search.layout
        distances = [np.asarray(times_power(np.sqrt(part.squares), part.exponent)) for part in found]
        answered = np.concatenate([part.answered for part in found])
        sizes = np.array([len(group) for group in layout.groups])
        n_rows = np.array([search.n_rows(segment) for segment in layout.segments])
        by_module = np.zeros(len(layout.widths), dtype=bool)
        for group, modules in enumerate(layout.groups):
            by_module[list(modules)] = answered[:, :, group].all()
        return ClusterNeighbors(
            np.concatenate(distances),
            layout.names(np.concatenate([part.rows for part in found])),
            by_module,
            self._expected_recall(answered @ sizes, n_rows),
            np.concatenate([part.proven for part in found]),
        )

    def _expected_recall(self, counts: IntArray, n_rows: IntArray) -> FloatArray:
        """Recall (n_queries,) from the numbers of modules that answered for each segment and of its rows.

        The segment with the fewest modules counts for all, so this is a cautious estimate.
        """
        fewest = np.where(counts > 0, counts, counts.max(axis=1, keepdims=True)).min(axis=1)
        expected: FloatArray = self.recall_curve_[fewest] * ((counts > 0) @ n_rows / n_rows.sum())
        return expected

    def _groups(self, client: Any, n_modules: int) -> tuple[tuple[int, ...], ...]:
        n_workers = n_modules if client is None else len(client.scheduler_info()["workers"])
        if self.replicas > max(1, n_workers) and client is not None:
            raise ValueError(
                f"replicas={self.replicas} is more than the {n_workers} workers: copies of a part live on "
                "different ones, so start more workers."
            )
        n_groups = self.n_groups or min(n_modules, max(1, n_workers))
        if n_groups > n_modules:
            raise ValueError(
                f"n_groups={n_groups} is more than the {n_modules} modules: use at most that many."
            )
        return tuple(tuple(part.tolist()) for part in np.array_split(np.arange(n_modules), n_groups))

    def _check_parameters(self) -> tuple[float, int]:
        check_count(self.n_neighbors, "n_neighbors")
        check_count(self.replicas, "replicas")
        if self.n_groups is not None:
            check_count(self.n_groups, "n_groups")
        patience = check_patience(self.patience)
        return patience, check_count(self.n_shards, "n_shards")

    def _check_neighbors(self, layout: Layout, n_neighbors: int | None, chosen: IntArray | None) -> int:
        k = check_count(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors")
        most = layout.n_rows if chosen is None else len(chosen)
        if k > most:
            more = "add rows with partial_fit" if chosen is None else "let more through"
            raise ValueError(
                f"n_neighbors={k} is more than the {most} rows to choose from: ask for fewer, or {more}."
            )
        return k

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_parts"}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "layout_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        known = hasattr(self.modules, "__sklearn_tags__")  # fit raises for anything other than None
        tags.input_tags.sparse = not known or get_tags(self.modules).input_tags.sparse
        return tags
