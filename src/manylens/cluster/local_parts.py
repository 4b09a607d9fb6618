"""The interface of the parts of an index, and an implementation that keeps all parts in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Protocol, TypeAlias

from manylens.cluster.index_layout import Block, Layout, SavedBlock, Segment, group_columns, read_saved
from manylens.cluster.parts import Part, build_part

Slot: TypeAlias = tuple[str, int]  # a segment and a group
Request: TypeAlias = tuple[str, tuple[Any, ...]]  # a method of `Part` and its arguments
Enough: TypeAlias = Callable[[set[Slot], set[Slot]], bool]  # (answered, outstanding) -> bool


class Parts(Protocol):
    """The interface to the parts of an index."""

    writing: Lock  # held while the layout changes

    def ask(
        self, requests: Mapping[Slot, Request], enough: Enough, soft: float, hard: float
    ) -> dict[Slot, Any]:
        """Answers until there are enough, or until the time `soft` (`hard` if there is none yet)."""

    def build(self, layout: Layout) -> None:
        """Build the parts of a layout that do not exist, and wait for them."""

    def keep(self, layout: Layout) -> None:
        """Drop the parts that are not in a layout."""

    def available(self) -> set[Slot]:
        """Parts that can answer."""

    def close(self) -> None:
        """Free the parts."""


class LocalParts:
    """All parts in this process, asked one after another; used without a dask client."""

    def __init__(self, layout: Layout, modules: Any) -> None:
        self.writing = Lock()
        self.modules = modules
        self.parts: dict[Slot, Part] = {}
        self.build(layout)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "writing"}

    def ask(
        self, requests: Mapping[Slot, Request], enough: Enough, soft: float, hard: float
    ) -> dict[Slot, Any]:
        """See `Parts`."""
        answers: dict[Slot, Any] = {}
        waiting = set(requests)
        parts = self.parts
        for slot, (method, arguments) in requests.items():
            if enough(set(answers), waiting) or time.monotonic() >= (soft if answers else hard):
                break
            if slot in parts:  # unless another thread has dropped it
                answers[slot] = getattr(parts[slot], method)(*arguments)
            waiting.discard(slot)
        return answers

    def build(self, layout: Layout) -> None:
        """See `Parts`."""
        parts = dict(self.parts)
        for segment in layout.segments:
            if (segment.uid, 0) in parts:
                continue
            pieces = [self._pieces(block, layout) for block in segment.blocks]
            for group, numbers in enumerate(layout.groups):
                widths = tuple(layout.widths[m] for m in numbers)
                own = [piece[group] for piece in pieces]
                parts[segment.uid, group] = build_part(part_name(segment, group), segment.n_rows, widths, own)
        self.parts = parts  # in one step, because another thread may search

    def keep(self, layout: Layout) -> None:
        """See `Parts`."""
        slots = set(layout.slots)
        self.parts = {slot: part for slot, part in self.parts.items() if slot in slots}

    def _pieces(self, block: Block, layout: Layout) -> list[Any]:
        if isinstance(block, SavedBlock):
            return [read_saved(block.path(group)) for group in range(len(layout.groups))]
        return group_columns(self.modules, layout.groups, block.name, block.read())

    def available(self) -> set[Slot]:
        """See `Parts`."""
        return set(self.parts)

    def close(self) -> None:
        """See `Parts`."""


def part_name(segment: Segment, group: int) -> str:
    """Name of a part, for errors."""
    last = segment.first + segment.n_rows - 1
    return f"Group {group} of the modules, rows {segment.first}-{last}"
