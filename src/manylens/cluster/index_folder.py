"""Save an index on workers to a folder, and load it from there."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sklearn.utils.validation import check_is_fitted

from manylens.cluster.index_layout import Layout, SavedBlock, Segment, new_uid, part_file
from manylens.cluster.local_parts import Parts
from manylens.cluster.parts import PartError
from manylens.cluster.recall_curve import all_answers
from manylens.cluster.row_filter import row_filters
from manylens.persistence import load, save
from manylens.validation import check_path

MANIFEST = "index.manylens"


class IndexFolder:
    """Methods of an index that write it to a folder and read it."""

    if TYPE_CHECKING:
        layout_: Layout
        patience: float

        def _connected(self, wait: bool = True) -> Parts: ...

    def save(self, path: str | PathLike[str]) -> None:
        """Write the index to a folder that every worker can write to; each worker writes one file per part.

        Rows that were removed are left out.

        Parameters
        ----------
        path : str or path-like
            The folder; it is created if it does not exist. After a crash it holds the old or the new index.
        """
        check_is_fitted(self, "layout_")
        check_path(path)
        folder, layout = Path(path).resolve(), self.layout_
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{path} is a file: give a folder.")
        folder.mkdir(parents=True, exist_ok=True)
        filters, requests = row_filters(layout, None), dict[Any, Any]()
        segments: list[Segment] = []
        for segment in layout.segments:
            row_filter, uid = filters.get(segment.uid), new_uid()
            n_rows = segment.n_rows if row_filter is None else row_filter.n_chosen
            if n_rows == 0:  # all were removed
                continue
            segments.append(Segment(uid, sum(s.n_rows for s in segments), (SavedBlock(".", uid, n_rows),)))
            for group in range(len(layout.groups)):
                file = str(folder / part_file(uid, group))
                requests[segment.uid, group] = ("save", (file, row_filter))
        saved = copy(self)
        saved.layout_ = replace(layout, segments=tuple(segments), kept=None)
        kept = {part_file(uid, group) for uid, group in saved.layout_.slots}
        try:
            all_answers(self._connected(), requests, self.patience)
            save(saved, folder / MANIFEST)
        except BaseException as error:  # the old index stays; new parts would only fill the disk
            for name in kept:
                (folder / name).unlink(missing_ok=True)
            if isinstance(error, PartError):
                raise OSError(str(error)) from error
            raise
        for old in folder.glob("part-*.manylens"):
            if old.name not in kept:
                old.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | PathLike[str], *, trusted: Iterable[type | str] = ()) -> Self:
        """Read an index that `save` wrote; each worker reads only its parts and checks them.

        Parameters
        ----------
        path : str or path-like
            The folder, which every worker can read. Lost parts are read from it again.
        trusted : iterable of classes or str, default=()
            Classes of modules that manylens does not know, as for `manylens.load`.

        Returns
        -------
        DistributedNeighbors
            The fitted index, on the current dask client.
        """
        check_path(path)
        folder = Path(path).resolve()
        index = load(folder / MANIFEST, trusted=trusted)
        if not isinstance(index, cls) or not hasattr(index, "layout_"):
            raise ValueError(f"{path} contains {type(index).__name__}, not a fitted {cls.__name__}.")
        if not all(isinstance(block, SavedBlock) for s in index.layout_.segments for block in s.blocks):
            raise ValueError(f"{path} was not written by {cls.__name__}.save: use that to write it again.")
        segments = tuple(
            replace(s, blocks=(SavedBlock(str(folder), s.uid, s.n_rows),)) for s in index.layout_.segments
        )
        index.layout_ = replace(index.layout_, segments=segments)
        for uid, group in index.layout_.slots:
            if not (folder / part_file(uid, group)).exists():
                raise FileNotFoundError(f"{path} lacks {part_file(uid, group)}: copy the whole folder.")
        index._connected()
        return index
