"""One pass over rows: summarize batches, merge the summaries, learn from the merged summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

from manylens.validation import shown


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


def check_same_kind(summary: Summary, other: Any) -> None:
    """Raise unless the other object is a summary of the same class, so that the two can be merged."""
    if not isinstance(other, type(summary)):
        raise TypeError(f"{shown(other)} cannot be merged into a {type(summary).__name__}: give another one.")


def summarize(make: Callable[[], S], batches: Iterable[tuple[Any, ...]]) -> S:
    """A new summary of all batches, each a tuple of the arguments of `update`."""
    summary = make()
    for batch in batches:
        summary.update(*batch)
    return summary


def merge_tree(summaries: Sequence[S]) -> S:
    """Merge pairs of neighbors, in place, until one is left; the fixed order makes results reproducible."""
    level = list(summaries)
    if not level:
        raise ValueError("The list of summaries is empty: give at least one.")
    while len(level) > 1:
        pairs = [level[k : k + 2] for k in range(0, len(level), 2)]
        level = [pair[0].merge(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]
