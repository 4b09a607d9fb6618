"""Layout of an index: its rows, from arrays, files, dask blocks or saved parts, cut into row shards."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_array

from manylens.cluster import files
from manylens.cluster.blocks import Blocks, naming_text, read_blocks
from manylens.cluster.dask_runner import Runner
from manylens.cluster.reduction import count_rows, errors_name_block, named, with_first_rows
from manylens.ensembles.search_coordinates import dense, finite_columns, module_views, transform_rows
from manylens.native.threads import one_blas_thread
from manylens.persistence import load
from manylens.typing import AnyArray, FloatArray, IntArray
from manylens.validation import is_sparse, plain_conversion_errors

ARRAY_ROWS = 16_384  # rows of an array or of a file per block
PIECES = 8  # of files per shard, if there are several shards


@dataclass(frozen=True)
class RowFile:
    """Some rows of a file that every worker can read."""

    path: str
    start: int = 0
    stop: int | None = None

    def read(self) -> Any:
        """The rows, as an array, CSR matrix or data frame."""
        return files.read_file(self.path, self.start, self.stop)

    def first(self) -> Any:
        """The first of the rows."""
        return files.first_row(self.path, self.start)


@dataclass(frozen=True)
class RowBlock:
    """A block of rows, or where to read them."""

    name: str  # for errors
    rows: Any  # array, CSR matrix, RowFile, or dask's Delayed
    n_rows: int

    def read(self) -> Any:
        """The rows in this process."""
        if isinstance(self.rows, RowFile):
            return read_file(self.name, self.rows)
        return self.rows.compute() if hasattr(self.rows, "__dask_graph__") else self.rows

    def delayed(self) -> Any:
        """The rows for a fit in blocks: a `Delayed` if they are elsewhere."""
        return (
            named(read_file, "manylens-read")(self.name, self.rows)
            if isinstance(self.rows, RowFile)
            else self.rows
        )


@dataclass(frozen=True)
class SavedBlock:
    """Columns of all modules that `save` wrote, one file per group of modules."""

    folder: str
    uid: str  # of the segment that was saved
    n_rows: int

    def path(self, group: int) -> str:
        """The file of one group of modules."""
        return str(Path(self.folder) / part_file(self.uid, group))


Block = RowBlock | SavedBlock


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of the base: a row shard, or rows that were added."""

    uid: str
    first: int
    blocks: tuple[Block, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(block.n_rows for block in self.blocks)


@dataclass(frozen=True)
class Layout:
    """The division of a base into segments of rows, and groups of modules that live together."""

    segments: tuple[Segment, ...]
    groups: tuple[tuple[int, ...], ...]  # numbers of the modules of each group
    widths: tuple[int, ...]  # columns of each module
    replicas: int = 1
    ids: AnyArray | None = None  # one per row of the base; None means row numbers
    kept: IntArray | None = None  # stored rows that were not removed, ascending; None means all
    name: str = field(default_factory=lambda: new_uid())  # of the index, whatever rows are added

    @property
    def n_stored(self) -> int:
        """Rows of all segments, with those that were removed."""
        return sum(segment.n_rows for segment in self.segments)

    @property
    def rows(self) -> range:
        """Row numbers of the base."""
        return range(self.n_stored if self.kept is None else len(self.kept))

    @property
    def n_rows(self) -> int:
        """Rows of the base."""
        return len(self.rows)

    @property
    def slots(self) -> list[tuple[str, int]]:
        """All parts: a segment and a group each."""
        return [(segment.uid, group) for segment in self.segments for group in range(len(self.groups))]

    def with_rows(self, blocks: Sequence[Block], ids: AnyArray | None = None) -> Layout:
        """A copy with more rows at the end; `ids` are those of all rows.

        Neighboring segments of similar sizes are merged, up to the largest of `fit`, so that many small
        additions leave only a logarithmic number of segments.
        """
        most = max(segment.n_rows for segment in self.segments)
        segments = [*self.segments, Segment(new_uid(), self.n_stored, tuple(blocks))]
        kept = self.kept
        if kept is not None:
            new = sum(block.n_rows for block in blocks)
            kept = np.concatenate([kept, np.arange(self.n_stored, self.n_stored + new)])
        while len(segments) > 1 and mergeable(segments[-2].n_rows, segments[-1].n_rows, most):
            last, before = segments.pop(), segments.pop()
            segments.append(Segment(new_uid(), before.first, before.blocks + last.blocks))
        return replace(self, segments=tuple(segments), ids=ids, kept=kept)

    def without(self, removed: IntArray, ids: AnyArray) -> Layout:
        """A copy without some rows of the base, which stay in their segments; `ids` are of the others."""
        stored = np.arange(self.n_stored) if self.kept is None else self.kept
        return replace(self, ids=ids, kept=np.delete(stored, removed))

    def names(self, stored: IntArray) -> AnyArray:
        """Ids, or row numbers if there are none, of stored rows; for -1 it is None, or -1."""
        if self.ids is None:
            return stored
        places = stored if self.kept is None else np.searchsorted(self.kept, stored)
        names: AnyArray = self.ids[np.maximum(places, 0)]
        missing = stored < 0
        if missing.any():
            names = names.astype(object)
            names[missing] = None
        return names


def mergeable(before: int, last: int, most: int) -> bool:
    """Whether two neighboring segments are of similar sizes and small enough to be one."""
    return before <= 2 * last and before + last <= most


def new_uid() -> str:
    """A name that no other segment has."""
    return uuid.uuid4().hex[:12]


def part_file(uid: str, group: int) -> str:
    """Name of the file of one part."""
    return f"part-{uid}-{group}.manylens"


def row_blocks(X: Any, n_shards: int, runner: Runner) -> list[RowBlock]:
    """Blocks of rows of an array, files or a folder of them, a dask collection or `delayed` blocks."""
    X = files.file_list(X)
    if files.is_path_or_paths(X):
        return file_blocks(X, n_shards)
    if is_in_memory(X):
        with plain_conversion_errors("X"):
            rows = check_array(X, accept_sparse="csr", dtype="numeric", input_name="X")
        n = rows.shape[0]
        n_blocks = min(n, n_shards * -(-n // (n_shards * ARRAY_ROWS)))  # as many in every shard
        ends = np.linspace(0, n, n_blocks + 1).round().astype(int).tolist()
        return [
            RowBlock(f"Rows {start}-{stop - 1}", rows[start:stop], stop - start)
            for start, stop in pairwise(ends)
        ]
    blocks = read_blocks(X)
    if not blocks.is_lazy:
        blocks = Blocks(list(blocks), False)
    counted = with_first_rows(blocks, runner)
    arguments = [each[0] for each in counted]
    lengths = counted.lengths or [count_rows(None, 0, part) for part in arguments]
    named = [f"Block {number} (the first is 0)" for number in range(len(arguments))]
    return [RowBlock(*each) for each in zip(named, arguments, lengths, strict=True)]


def is_in_memory(X: Any) -> bool:
    """Whether these are rows of one array, sparse matrix, data frame, or list of lists."""
    if hasattr(X, "__dask_graph__"):
        return False
    if is_sparse(X) or hasattr(X, "shape"):
        return True
    is_list = isinstance(X, list | tuple) and len(X) > 0 and not files.is_path_or_paths(X)
    return is_list and not any(hasattr(x, "shape") or hasattr(x, "__dask_graph__") for x in X)


def file_blocks(paths: Sequence[Path], n_shards: int) -> list[RowBlock]:
    """Blocks of rows of files, in the order of the files, for at least `n_shards` shards."""
    shapes = []
    for path in paths:
        with errors_name_block(f"File {path.name}"):
            shapes.append(files.row_shape(path))
    least = 1 if n_shards == 1 else PIECES * n_shards  # files of any length make shards of about one size
    most = max(1, min(ARRAY_ROWS, sum(n_rows for n_rows, _ in shapes) // least))
    return [
        RowBlock(f"File {path.name}", RowFile(str(path.resolve()), start, stop), stop - start)
        for path in paths
        for start, stop in files.row_pieces(path, most)
    ]


def read_file(name: str, file: RowFile) -> Any:
    """The rows of a file; errors name it."""
    with errors_name_block(name):
        return file.read()


def segments_of(blocks: Sequence[RowBlock], n_shards: int) -> tuple[Segment, ...]:
    """Consecutive blocks in `n_shards` segments of about equally many rows."""
    if len(blocks) < n_shards:
        raise ValueError(
            f"n_shards={n_shards} is more than the {len(blocks)} blocks of X: use fewer shards, or rechunk X "
            "into more blocks."
        )
    ends = np.cumsum([block.n_rows for block in blocks])
    targets = ends[-1] * np.arange(1, n_shards) / n_shards
    cuts = np.abs(ends - targets[:, np.newaxis]).argmin(axis=1) + 1 if n_shards > 1 else np.empty(0, int)
    for i in range(len(cuts)):  # every segment gets at least one block
        cuts[i] = max(cuts[i], 1 + (cuts[i - 1] if i else 0))
    for i in reversed(range(len(cuts))):
        cuts[i] = min(cuts[i], (cuts[i + 1] if i + 1 < len(cuts) else len(blocks)) - 1)
    starts, stops = [0, *cuts.tolist()], [*cuts.tolist(), len(blocks)]
    return tuple(
        Segment(new_uid(), int(ends[start - 1]) if start else 0, tuple(blocks[start:stop]))
        for start, stop in zip(starts, stops, strict=True)
    )


def group_columns(modules: Any, groups: Sequence[Sequence[int]], name: str, rows: Any) -> list[FloatArray]:
    """Columns (n, width) of each group of modules for a block of rows."""
    with errors_name_block(name), one_blas_thread():
        rows = rows.read() if isinstance(rows, RowFile) else rows
        check_names(modules, rows)
        with naming_text(rows):
            checked = check_array(rows, accept_sparse="csr", dtype="numeric", input_name="X")
        Z = dense(finite_columns(transform_rows(modules, checked)))
        views = module_views(modules, Z)
        return [np.ascontiguousarray(np.hstack([views[m] for m in group])) for group in groups]


def check_names(modules: Any, rows: Any) -> None:
    """Raise if a data frame has other columns, or in another order, than the modules were fitted to."""
    known = getattr(modules, "feature_names_in_", None)
    if known is None or not hasattr(rows, "columns"):
        return
    given, wanted = list(rows.columns), list(known)
    if given == wanted:
        return
    extra, missing = [c for c in given if c not in wanted], [c for c in wanted if c not in given]
    if extra or missing:
        which, how = (extra, "unknown") if extra else (missing, "missing")
        raise ValueError(f"columns {which[:5]} are {how}: the modules were fitted with {len(wanted)} others.")
    at = next(k for k, pair in enumerate(zip(given, wanted, strict=False)) if pair[0] != pair[1])
    raise ValueError(
        f"column {at} is {given[at]!r}, but the modules were fitted with {wanted[at]!r} there: give the "
        "same columns in the same order."
    )


def read_saved(path: str) -> Any:
    """The `Columns` of a saved part, compared with their checksum."""
    return load(path)


def take(pieces: Sequence[Any], group: int) -> Any:
    """The piece of one group."""
    return pieces[group]


def first_row(rows: Any) -> Any:
    """The first row of a block."""
    if isinstance(rows, RowFile):
        return rows.first()
    return rows.iloc[:1] if hasattr(rows, "iloc") else rows[:1]
