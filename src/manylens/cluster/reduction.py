"""Summarize blocks where they live and merge the summaries in a fixed tree."""

from __future__ import annotations

import copy
import inspect
import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from manylens.cluster.blocks import Blocks, read_blocks
from manylens.cluster.dask_runner import Runner, check_patience
from manylens.native.threads import one_blas_thread
from manylens.optional import import_optional
from manylens.summaries import Summary, merge_tree
from manylens.validation import shown

S = TypeVar("S", bound=Summary)

SECONDS_BETWEEN_LINES = 1.0  # of progress

Work = Callable[..., Any]  # work(shared, number, *arguments) gives the summary of one block


class BlockSummary(NamedTuple):
    """The summary of the blocks first ... last."""

    first: int
    last: int
    summary: Any


def summarize_blocks(summary: S, X: Any, y: Any = None, *, patience: float = 60.0) -> S:
    """Summarize rows that live in blocks: each block where it is, then merge in a fixed tree.

    The result is bitwise identical for any number of workers, no matter which worker ran which task, even if
    some are killed on the way. Only the merged summary is sent to the client. Without a dask client, the
    blocks are read by dask's own scheduler; batches in memory are summarized one at a time, without dask.

    Parameters
    ----------
    summary : Summary
        An empty summary with the settings to use, such as `StreamingCKA()`, `CountSketch(1024)`,
        `manylens.alignment.FeatureSketch(1024)` or `manylens.summaries.Moments(n_features)`.
    X : dask array or data frame, dict of them, or iterable of batches or `delayed` blocks
        Rows, in blocks. A dict holds several representations of the same rows, for `StreamingCKA`. A batch
        may be a tuple of the arguments of `update`.
    y : dask array, series or iterable of blocks, default=None
        Second argument of `update`, if it has one.
    patience : float, default=60.0
        Seconds to wait without any worker before giving up.

    Returns
    -------
    Summary
        A new summary of all rows; `summary` is not changed.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import StreamingCKA
    >>> from manylens.cluster import summarize_blocks
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"a": rows, "b": rows[:, :2]} for rows in rng.standard_normal((4, 50, 5))]
    >>> summarize_blocks(StreamingCKA(pairs=[("a", "b")]), batches).n_rows_
    200
    """
    if not isinstance(summary, Summary):
        raise TypeError(
            f"summary is {type(summary).__name__}: give an empty Summary, such as StreamingCKA()."
        )
    blocks, runner = read_blocks(X, y), Runner(check_patience(patience))
    empty = summary.fresh()
    if "indices" in inspect.signature(summary.update).parameters:  # hashed by row number
        blocks = with_first_rows(blocks, runner)
    return reduce_blocks(blocks, update_block, "summarize", runner, shared=empty)


def update_block(empty: S, _number: int, *arguments: Any) -> S:
    """A summary of one block."""
    return empty.fresh().update(*arguments)


def reduce_blocks(blocks: Blocks, work: Work, stage: str, runner: Runner, shared: Any) -> Any:
    """The merged summary of all blocks."""
    if not blocks.is_lazy:
        return merge_tree(parts_here(blocks, work, stage, runner, shared), merge_into).summary
    tree = reduction_graph(blocks, work, stage, shared)
    return runner.compute(named(attrgetter("summary"), f"manylens-{stage}-result")(tree), blocks, stage)


def parts_here(blocks: Blocks, work: Work, stage: str, runner: Runner, shared: Any) -> Iterator[BlockSummary]:
    """Parts of batches in memory, one after the other."""
    said = time.monotonic()
    for number, arguments in enumerate(blocks):
        yield work_on(work, shared, number, *arguments)
        if time.monotonic() - said > SECONDS_BETWEEN_LINES:
            runner.say(stage, number + 1)
            said = time.monotonic()
    runner.say(stage, number + 1)


def reduction_graph(blocks: Blocks, work: Work, stage: str, shared: Any) -> Any:
    """The `Delayed` part of all blocks; tasks are named after the stage, for dask's dashboard."""
    shared = literal(shared, f"manylens-{stage}-settings")
    parts = [
        named(work_on, f"manylens-{stage}", number)(work, shared, number, *arguments)
        for number, arguments in enumerate(blocks)
    ]
    numbers = itertools.count()

    def merge(one: Any, other: Any) -> Any:
        return named(merge_copies, f"manylens-{stage}-merge", next(numbers))(one, other)

    return merge_tree(parts, merge)


def work_on(work: Work, shared: Any, number: int, *arguments: Any) -> BlockSummary:
    """The part of one block, with one BLAS thread so that its bits do not depend on the machine's cores."""
    with errors_name_block(f"Block {number} (the first is 0)"), one_blas_thread():
        return BlockSummary(number, number, work(shared, number, *arguments))


def merge_into(one: BlockSummary, other: BlockSummary) -> BlockSummary:
    """Merge two neighboring parts, in place."""
    with errors_name_block(f"Blocks {span(one)} and {span(other)} do not fit together"), one_blas_thread():
        return BlockSummary(one.first, other.last, one.summary.merge(other.summary))


def merge_copies(one: BlockSummary, other: BlockSummary) -> BlockSummary:
    """Merge two neighboring parts without changing them: dask may need them again if a worker dies."""
    return merge_into(copy.deepcopy(one), other)


def span(part: BlockSummary) -> str:
    """The numbers of the blocks of a part."""
    return str(part.first) if part.first == part.last else f"{part.first}-{part.last}"


class errors_name_block:
    """Context that puts the name of the block in front of an error."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, ValueError | TypeError):
            plain = TypeError if isinstance(error, TypeError) else ValueError
            sentence = str(error).partition("\n")[0].removesuffix(":")  # without scikit-learn's advice
            raise plain(f"{self.name}: {sentence}") from error
        if isinstance(error, Exception):
            raise RuntimeError(f"{self.name}: {type(error).__name__}: {error}") from error


def named(function: Callable[..., Any], name: str, number: int | None = None) -> Callable[..., Any]:
    """A dask task with a name of its own: never the result of an earlier call, which may be cached."""
    parts = [name] + ([] if number is None else [str(number)]) + [uuid.uuid4().hex]
    return keyed(function, "-".join(parts))


def keyed(function: Callable[..., Any], key: str) -> Callable[..., Any]:
    """A dask task with a given key."""
    dask = import_optional("dask", "Fitting on a cluster", "'manylens[dask]'")
    return partial(dask.delayed(function, pure=False), dask_key_name=key)


def literal(value: Any, name: str, suffix: str = "") -> Any:
    """A value as one node of the graph, sent once; unlike scattered data it survives its worker.

    Its key ends with `suffix`, by default with one that no other has.
    """
    if hasattr(value, "__dask_graph__"):
        return value
    dask = import_optional("dask", "Fitting on a cluster", "'manylens[dask]'")
    return dask.delayed(value, name=f"{name}-{suffix or uuid.uuid4().hex}", traverse=False)


def with_first_rows(blocks: Blocks, runner: Runner) -> Blocks:
    """Blocks with the number of their first row as last argument; blocks of unknown lengths are counted."""
    if not blocks.is_lazy:
        return Blocks(numbered(blocks), False)
    lengths = blocks.lengths
    if lengths is None:
        counts = [
            named(work_on, "manylens-count", k)(count_rows, None, k, *arguments)
            for k, arguments in enumerate(blocks)
        ]
        lengths = [part.summary for part in runner.compute(named(list, "manylens-counts")(counts), blocks)]
    firsts = [0, *itertools.accumulate(lengths)][: len(lengths)]
    together = [(*arguments, first) for arguments, first in zip(blocks, firsts, strict=True)]
    return Blocks(together, True, lengths)


def count_rows(_shared: None, _number: int, rows: Any, *_rest: Any) -> int:
    """Number of rows of a block."""
    if not hasattr(rows, "__len__") and not hasattr(rows, "shape"):
        raise TypeError(f"A block of X is {shown(rows)}: give blocks of rows, arrays of shape (n, d).")
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def numbered(blocks: Blocks) -> Iterator[tuple[Any, ...]]:
    """Arguments of batches in memory with the number of their first row."""
    first = 0
    for arguments in blocks:
        yield *arguments, first
        first += count_rows(None, 0, *arguments)
