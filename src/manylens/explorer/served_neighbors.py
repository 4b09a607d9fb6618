"""Exact neighbors among all rows for a page that holds only a sample of them."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from manylens.explorer.page_data import (
    ExplorerData,
    coordinate_blocks,
    count_rows,
    explorer_data,
    prepare,
    row_data,
)
from manylens.native.weighted_nearest import (
    empty_groups,
    fill_groups,
    grouped,
    module_tiles,
    modules_nearest,
    ungrouped,
    weighted_nearest,
)
from manylens.typing import FloatArray, IntArray, MatrixLike
from manylens.validation import take_rows

SAMPLE = 20_000  # rows on the map
LARGEST_WEIGHT = 1e30  # of a coordinate
LARGEST_VIEWS = 2**30  # bytes of cached modules at the stops requested last


class BadRequestError(ValueError):
    """A request that the page would not send."""


class NotReadyError(Exception):
    """Not all rows are mapped yet; its argument is the share of those that are."""


class ExplorerBackend:
    """Coordinates of all rows, and answers to the requests of a page.

    If `deferred`, only the rows on the page are mapped at once; `map_rows` has to be called for the others.
    """

    def __init__(
        self,
        lenses: Any,
        X: MatrixLike,
        labels: Any = None,
        images: Any = None,
        text: Sequence[Any] | None = None,
        *,
        table: Any = None,
        ids: Sequence[Any] | None = None,
        diversities: Iterable[float] | None = None,
        n_neighbors: int = 10,
        title: str = "manylens explorer",
        deferred: bool = False,
    ) -> None:
        self.lenses, self._unmapped = lenses, X
        self.n = n = 0 if X is None else count_rows(X)
        chosen = np.sort(np.random.default_rng(0).permutation(n)[:SAMPLE])
        prepared = prepare(lenses, None if X is None else take_rows(X, chosen), diversities, np.float32)
        self.weights, self.k = prepared.weights, prepared.coordinates.shape[1]
        self.beside = row_data(X, n, labels, images, text, table, ids)
        self.page: ExplorerData = explorer_data(
            lenses,
            take_rows(X, chosen),
            None if labels is None else np.asarray(labels)[chosen],
            None if self.beside.pixels is None else self.beside.pixels[chosen],
            diversities=diversities,
            n_neighbors=min(n_neighbors, n - 1),
            title=title,
        )
        self.n_neighbors = self.page.meta["n_neighbors"]
        self._sampled = chosen, grouped(prepared.coordinates)
        self.groups = empty_groups(n, self.k)
        self._n_mapped, self._failure = 0, ""
        self._views: dict[int, FloatArray] = {}  # all modules at the stops requested last
        self._places: dict[str, int] | None = None  # rows by name; built by the first search for a name
        self._lock = threading.Lock()
        self._describe(chosen)
        if not deferred:
            self.map_rows()

    def map_rows(self) -> None:
        """Map all rows; until this is done, `neighbors` raises NotReadyError."""
        try:
            for first, rows in coordinate_blocks(self.lenses, self._unmapped, self.k):
                fill_groups(self.groups, first, rows)
                self._n_mapped = first + len(rows)
        except Exception as error:
            self._failure = f"the rows could not be mapped: {error}"
            raise
        finally:
            self._unmapped = None

    @property
    def is_ready(self) -> bool:
        """Whether all rows are mapped."""
        return self._n_mapped == self.n

    def _describe(self, chosen: IntArray) -> None:
        """Turn the description of the sample into one of all rows, most of which are on the server."""
        meta, described = self.page.meta, self.beside.described
        codes, values = described["codes"], described["values"]
        meta |= {
            "n": self.n,
            "sample": chosen.tolist(),
            "classes": described["classes"],
            "sample_codes": None if codes is None else [codes[row] for row in chosen],
            "sample_values": None if values is None else [values[row] for row in chosen],
            "scaled": values is not None,
            "named": described["ids"] is not None,
            "table": described["table"] and {"names": described["table"]["names"]},
            **{"codes": None, "values": None, "ids": None, "text": None},
        }
        meta["curves"]["n_rows"] = len(chosen)

    def data(self, remote: dict[str, Any]) -> ExplorerData:
        """Data for the page: the sample, and how to request the rest."""
        return ExplorerData(
            {**self.page.meta, "remote": remote}, self.page.coordinates, self.page.modules, b"", b""
        )

    @property
    def coordinates(self) -> FloatArray:
        """All rows on the coordinates that the diversities share, (n, k)."""
        return ungrouped(self.groups, slice(None), self.k)

    def neighbors(self, request: Any) -> dict[str, Any]:
        """Answer a request: the nearest rows by all modules and, if `each`, by each of them."""
        asked = checked(request, self.page.meta)
        if self._failure:
            raise BadRequestError(self._failure)
        if not self.is_ready:
            raise NotReadyError(self._n_mapped / self.n)
        row, center = -1, None
        if asked["image"] is not None:
            query = self.page.meta["query"]
            x = query["scale"] * asked["image"] + query["offset"]
            center = np.asarray(self.lenses.principal_coordinates(x[None]), dtype=np.float32)[0, : self.k]
        else:
            row = asked["row"]
            center = ungrouped(self.groups, slice(row, row + 1), self.k)[0]
        answer: dict[str, Any] = {}
        if not asked["off"]:
            answer = listed(*self._nearest(asked["weights"], center, row))
        if asked["each"] or asked["off"]:
            answer = self._modules(asked, row, center) | answer
        found = {row} if row >= 0 else set()
        found |= {*answer["together"], *(j for found in answer.get("modules", []) for j in found)}
        answer["rows"] = [self._row(j) for j in sorted(found)]
        answer["center"] = np.asarray(center, dtype=float).tolist()
        return answer

    def find(self, request: Any) -> dict[str, Any]:
        """Answer a request for the number of the row with a name: the first one, or -1."""
        name = request.get("name") if isinstance(request, dict) else None
        if not isinstance(name, str):
            raise BadRequestError("`name` must be text")
        with self._lock:
            if self._places is None:
                names = self.beside.described["ids"] or []
                self._places = {name: row for row, name in reversed(list(enumerate(names)))}
        return {"row": self._places.get(name, -1)}

    def _nearest(self, weights: FloatArray, center: FloatArray, row: int) -> tuple[FloatArray, IntArray]:
        """Squared distances and rows of the neighbors with these weights, proven by a scan of all rows.

        The neighbors within the sample of the map give a limit, which lets the scan abandon most rows early.
        """
        chosen, sample = self._sampled
        place = int(np.searchsorted(chosen, row))
        own = place if place < len(chosen) and chosen[place] == row else -1
        limit = weighted_nearest(sample, weights, center, self.n_neighbors, own)[0][-1]
        return weighted_nearest(self.groups, weights, center, self.n_neighbors, row, float(limit))

    def _modules(self, asked: dict[str, Any], row: int, center: FloatArray) -> dict[str, Any]:
        """Neighbors by each module at a stop, and by those together that are not switched off."""
        widths = self.page.meta["widths"]
        active = [m for m in range(len(widths)) if m not in asked["off"]]
        views, here = self._stop(asked["stop"]), self._matrix(asked["stop"]) @ center
        squared, rows = modules_nearest(views, here, widths, active, self.n, self.n_neighbors, row)
        return {"modules": rows[:-1].tolist(), **listed(squared[-1], rows[-1])}

    def _stop(self, stop: int) -> FloatArray:
        """All modules at a stop as tiles, cached as long as there is room for them."""
        with self._lock:
            views = self._views.pop(stop, None)
            if views is None:
                size = 4 * self.n * sum(self.page.meta["widths"])
                while self._views and size * (len(self._views) + 1) > LARGEST_VIEWS:
                    del self._views[next(iter(self._views))]  # frees memory before the next is computed
                views = module_tiles(self.groups, self._matrix(stop))
            self._views[stop] = views  # most recently used, so dropped last
            return views

    def _matrix(self, stop: int) -> FloatArray:
        """All modules at a stop as a matrix on the coordinates, (columns, k)."""
        weights = self.weights[stop]
        if isinstance(weights[0], slice):
            return np.eye(self.k, dtype=np.float32)
        return np.concatenate(list(weights)).astype(np.float32)

    def _row(self, row: int) -> dict[str, Any]:
        """Name, label, image, text and columns of a row."""
        described, pixels = self.beside.described, self.beside.pixels
        known = {name: described[name][row] for name in ("ids", "codes", "values", "text") if described[name]}
        if described["table"]:
            known["table"] = [column[row] for column in described["table"]["values"]]
        if pixels is not None:
            known["image"] = base64.b64encode(pixels[row].tobytes()).decode("ascii")
        return {"row": row, **known}


def checked(request: Any, meta: dict[str, Any]) -> dict[str, Any]:
    """The parts of a request, each checked."""
    if not isinstance(request, dict):
        raise BadRequestError("a request is an object")
    n, k, M = meta["n"], meta["k"], len(meta["widths"])
    off, stop = request.get("off", []), request.get("stop", 0)
    if not (isinstance(off, list) and all(is_index(m, M) for m in off) and len(set(off)) < M):
        raise BadRequestError("`off` must list modules, not all of them")
    if not is_index(stop, max(1, len(meta["stops"]))):
        raise BadRequestError("`stop` is out of range")
    image, pixels = request.get("image"), None
    if image is not None:
        size = int(np.prod(meta["image_shape"] or [0]))
        try:
            raw = base64.b64decode(image, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise BadRequestError("`image` must be base64") from None
        if meta["query"] is None or len(raw) != size:
            raise BadRequestError("images of this size cannot be searched for")
        pixels = np.frombuffer(raw, np.uint8).astype(float)
    elif not is_index(request.get("row"), n):
        raise BadRequestError(f"`row` must be a number from 0 to {n - 1}")
    try:
        weights = np.asarray(request.get("weights"), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        weights = np.zeros(0)
    if weights.shape != (k,) or not ((weights >= 0) & (weights < LARGEST_WEIGHT)).all():
        raise BadRequestError(f"`weights` must be {k} numbers that are not negative")
    return {
        "row": request.get("row"),
        "image": pixels,
        "off": set(off),
        "stop": stop,
        "weights": weights,
        "each": request.get("each") is True,
    }


def is_index(value: Any, length: int) -> bool:
    """Whether a value is an integer in [0, length)."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < length


def listed(squared: FloatArray, rows: IntArray) -> dict[str, Any]:
    """Neighbors by all modules, as the page gets them."""
    found = rows >= 0  # a row at an infinite distance is not a neighbor
    return {"together": rows[found].tolist(), "distances": np.sqrt(squared[found]).tolist()}
