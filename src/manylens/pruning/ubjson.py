"""Reading arrays from UBJSON, a binary form of JSON in which XGBoost writes models: they need no parsing."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import numpy as np

from manylens.typing import AnyArray, IntArray

KINDS = {
    ord(mark): np.dtype(kind)
    for mark, kind in zip("iUIlLdD", ("i1", "u1", ">i2", ">i4", ">i8", ">f4", ">f8"), strict=True)
}
LIST, LIST_END, COUNT, TYPE = b"[]#$"
ONE_INT64 = Struct(">q")


def read_list(content: bytes, at: int) -> list[float]:
    """The list of numbers that starts at a place; its type and its length may come first."""
    if content[at] != LIST:
        raise ValueError(f"Byte {at} of the UBJSON begins no list: {content[at : at + 1]!r}.")
    at += 1
    if content[at] == TYPE:
        kind = KINDS[content[at + 1]]
        n, at = read_number(content, at + 3)
        return np.frombuffer(content, kind, int(n), at).tolist()
    n, items = np.inf, list[float]()
    if content[at] == COUNT:
        n, at = read_number(content, at + 1)
    while len(items) < n and content[at] != LIST_END:
        item, at = read_number(content, at)
        items.append(item)
    return items


def read_number(content: bytes, at: int) -> tuple[float, int]:
    """The number that starts at a place, and where it ends."""
    if content[at] not in KINDS:
        raise ValueError(f"Byte {at} of the UBJSON begins no number: {content[at : at + 1]!r}.")
    kind = KINDS[content[at]]
    return np.frombuffer(content, kind, 1, at + 1)[0].item(), at + 1 + kind.itemsize


def read_arrays(content: bytes, names: Sequence[str], n_dicts: int) -> dict[str, tuple[IntArray, AnyArray]]:
    """Arrays of the same names in dicts that follow each other: their lengths, and all of them joined.

    Beginnings of arrays are searched for in the order of names, which is faster than reading what is between.
    """
    find, unpack, at, fields = content.find, ONE_INT64.unpack_from, 0, []
    for name in names:
        begin = b"L" + ONE_INT64.pack(len(name)) + name.encode() + b"[$"
        mark = find(begin) + len(begin)
        begin += content[mark : mark + 3]  # all dicts must have the same types
        fields.append((begin, len(begin) + 8, KINDS.get(content[mark], np.dtype("u1")), list[bytes]()))
    for number in range(n_dicts):
        for k, (begin, ahead, kind, found) in enumerate(fields):
            at = find(begin, at) + ahead
            if at < ahead:
                raise ValueError(f"Dict {number} of the UBJSON has no array {names[k]} of the expected type.")
            first, at = at, at + unpack(content, at - 8)[0] * kind.itemsize
            found.append(content[first:at])
    return {
        name: (np.array([*map(len, found)]) // kind.itemsize, np.frombuffer(b"".join(found), kind))
        for name, (_, _, kind, found) in zip(names, fields, strict=True)
    }
