"""The protocol of one pass over rows: update with a batch, merge with another summary.

Everything that learns from rows in one pass does it in the same three steps: summarize batches, merge the
summaries, learn from the merged summary. `fit`, `partial_fit` and a cluster are three callers of these steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar


class Summary(ABC):
    """What one pass over rows leaves behind: fixed memory, mergeable, independent of the order of batches."""

    @abstractmethod
    def update(self, *args: Any, **kwargs: Any) -> Self:
        """Add one batch of rows and return self; a batch that is refused leaves the summary unchanged."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add the rows of another summary with the same settings and return self."""

    @abstractmethod
    def fresh(self) -> Self:
        """An empty summary with the same settings."""


S = TypeVar("S", bound=Summary)


def summarize(make: Callable[[], S], batches: Iterable[tuple[Any, ...]]) -> S:
    """Update one new summary with every batch, a tuple of the arguments of `update`, in order."""
    summary = make()
    for batch in batches:
        summary.update(*batch)
    return summary


def merge_tree(summaries: Sequence[S]) -> S:
    """Merge neighbors pairwise until one summary is left.

    The tree depends only on the number of summaries, so the result is the same to the last bit no matter
    which finished first. The first summary of each pair is changed in place.
    """
    level = list(summaries)
    if not level:
        raise ValueError("There is nothing to merge: the list of summaries is empty.")
    while len(level) > 1:
        pairs = [level[k : k + 2] for k in range(0, len(level), 2)]
        level = [pair[0].merge(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]
