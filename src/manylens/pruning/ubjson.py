"""Reading UBJSON, a binary form of JSON in which XGBoost writes models: arrays need no parsing."""

from __future__ import annotations

from struct import Struct
from typing import Any

import numpy as np

KINDS = {
    ord(mark): np.dtype(kind)
    for mark, kind in zip("iUIlLdD", ("i1", "u1", ">i2", ">i4", ">i8", ">f4", ">f8"), strict=True)
}
CONSTANTS = {ord("T"): True, ord("F"): False, ord("Z"): None}
TEXT, LIST, LIST_END, DICT, DICT_END, COUNT, TYPE, INT64 = b"S[]{}#$L"
ONE_INT64 = Struct(">q")


def read_ubjson(content: bytes) -> Any:
    """The value that `content` holds; lists of numbers of one type are arrays."""
    return read_value(content, 0)[0]


def read_value(content: bytes, at: int) -> tuple[Any, int]:
    """The value that starts at a place, and where it ends."""
    mark, at = content[at], at + 1
    if mark == DICT:
        return read_dict(content, at)
    if mark == TEXT:
        return read_text(content, at)
    if mark in CONSTANTS:
        return CONSTANTS[mark], at
    if mark in KINDS:
        kind = KINDS[mark]
        end = at + kind.itemsize
        if kind.kind == "f":
            return float(np.frombuffer(content, kind, 1, at)[0]), end
        return int.from_bytes(content[at:end], "big", signed=kind.kind == "i"), end
    if mark != LIST:
        raise ValueError(f"byte {at - 1} of the UBJSON begins no value: {bytes([mark])!r}.")
    if content[at] == TYPE:
        kind = KINDS[content[at + 1]]
        n, at = read_count(content, at + 3)
        return np.frombuffer(content, kind, n, at), at + n * kind.itemsize
    items: list[Any] = []
    if content[at] == COUNT:
        n, at = read_count(content, at + 1)
        for _ in range(n):
            item, at = read_value(content, at)
            items.append(item)
        return items, at
    while content[at] != LIST_END:
        item, at = read_value(content, at)
        items.append(item)
    return items, at + 1


def read_dict(content: bytes, at: int) -> tuple[dict[str, Any], int]:
    """The values by name that start at a place, and where they end.

    Almost all values of a model are arrays in the dicts of trees, so names and arrays are read here, without
    a call for each of their parts.
    """
    found: dict[str, Any] = {}
    unpack, array = ONE_INT64.unpack_from, np.frombuffer
    while content[at] != DICT_END:
        if content[at] == INT64:
            end = at + 9 + unpack(content, at + 1)[0]
            name, at = content[at + 9 : end].decode(), end
        else:
            name, at = read_text(content, at)
        if content[at] == LIST and content[at + 1] == TYPE and content[at + 4] == INT64:
            kind, n = KINDS[content[at + 2]], unpack(content, at + 5)[0]
            found[name] = array(content, kind, n, at + 13)
            at += 13 + n * kind.itemsize
        else:
            found[name], at = read_value(content, at)
    return found, at + 1


def read_text(content: bytes, at: int) -> tuple[str, int]:
    """A text with its length before it, and where it ends."""
    n, at = read_count(content, at)
    return content[at : at + n].decode(), at + n


def read_count(content: bytes, at: int) -> tuple[int, int]:
    """A length and where it ends: 64 bits, as XGBoost writes it, or any other integer."""
    if content[at] != INT64:
        return read_value(content, at)
    return ONE_INT64.unpack_from(content, at + 1)[0], at + 9
