"""One pass over rows: summarize batches, merge the summaries, learn from the merged summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from manylens.validation import check_iterable, shown


class Summary(ABC):
    """Statistics of rows in fixed memory that can be merged and do not depend on the order of batches."""

    @abstractmethod
    def update(self, *args: Any, **kwargs: Any) -> Self:
        """Add one batch of rows and return self; if it raises, the summary is unchanged."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add the rows of another summary with the same settings, which is not changed, and return self."""

    @abstractmethod
    def fresh(self) -> Self:
        """An empty summary with the same settings."""


S = TypeVar("S", bound=Summary)
T = TypeVar("T")


def check_same_kind(summary: Summary, other: Any) -> None:
    """Raise unless the other object is a summary of the same class, so that the two can be merged."""
    if not isinstance(other, type(summary)):
        kind = type(summary).__name__
        raise TypeError(f"{shown(other)} cannot be merged into a {kind}: give another {kind}.")


def summarize(make: Callable[[], S], batches: Iterable[tuple[Any, ...]]) -> S:
    """A new summary of all batches, each a tuple of the arguments of `update`."""
    if not callable(make):
        raise TypeError(f"make={shown(make)} is not a function that returns a new summary.")
    try:
        summary = make()
    except TypeError as error:
        raise TypeError(f"make={shown(make)} cannot be called without arguments: {error}.") from error
    if not isinstance(summary, Summary):
        raise TypeError(f"make returns {shown(summary)}, which is not a summary, such as Moments(3).")
    for batch in check_iterable(batches, "batches", "an iterable of tuples"):
        if not isinstance(batch, tuple):
            raise TypeError(f"batches holds {shown(batch)}: give tuples of the arguments of update.")
        summary.update(*batch)
    return summary


def merge_tree(summaries: Iterable[T], merge: Callable[[T, T], T] | None = None) -> T:
    """Merge neighbors pairwise, then pairs of pairs, until one is left; the fixed order is reproducible.

    At most log2(n) + 1 summaries are held at a time. By default `merge` is their own method, in place.
    """
    if merge is not None and not callable(merge):
        raise TypeError(f"merge={shown(merge)} is not a function of two summaries.")
    join = merge or (lambda first, second: first.merge(second))  # type: ignore[attr-defined]
    waiting: list[tuple[int, T]] = []  # height in the tree, from high to low, and merged summary
    for merged in check_iterable(summaries, "summaries", "an iterable of summaries"):
        if merge is None and not isinstance(merged, Summary):
            raise TypeError(
                f"{shown(merged)} is not a summary, so it cannot be merged: give objects with `merge`."
            )
        height = 0
        while waiting and waiting[-1][0] == height:
            merged = join(waiting.pop()[1], merged)
            height += 1
        waiting.append((height, merged))
    if not waiting:
        raise ValueError("The list of summaries is empty: give at least one.")
    _, merged = waiting.pop()
    while waiting:
        merged = join(waiting.pop()[1], merged)
    return merged
