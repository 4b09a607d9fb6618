"""Exact neighbors among all rows for a page that holds only a sample of them."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from manylens.explorer.data import ExplorerData, Prepared, explorer_data, prepare, row_data
from manylens.native.threads import over_blocks
from manylens.typing import FloatArray, IntArray, MatrixLike

SAMPLE = 20_000  # rows on the map
LARGEST_WEIGHT = 1e30  # of a coordinate
BLOCK = 8192  # rows whose differences stay in the cache


class BadRequestError(ValueError):
    """A request that the page would not send."""


class Answers:
    """Coordinates of all rows, and what a page asks about them."""

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
    ) -> None:
        self.lenses = lenses
        self.prepared: Prepared = prepare(lenses, X, diversities)
        self.coordinates = np.ascontiguousarray(self.prepared.coordinates, dtype=np.float32)
        n = len(self.coordinates)
        self.beside = row_data(X, n, labels, images, text, table, ids)
        chosen = np.sort(np.random.default_rng(0).permutation(n)[:SAMPLE])
        self.page: ExplorerData = explorer_data(
            lenses,
            X[chosen] if not hasattr(X, "iloc") else X.iloc[chosen],  # type: ignore[index]
            None if labels is None else np.asarray(labels)[chosen],
            None if self.beside.pixels is None else self.beside.pixels[chosen],
            diversities=diversities,
            n_neighbors=min(n_neighbors, n - 1),
            title=title,
        )
        self.n_neighbors = self.page.meta["n_neighbors"]
        self._views: tuple[int, FloatArray] | None = None  # all modules at one stop
        self._lock = threading.Lock()
        self._describe(chosen)

    def _describe(self, chosen: IntArray) -> None:
        """Turn the description of the sample into one of all rows, most of which are on the server."""
        meta, described = self.page.meta, self.beside.described
        codes, values = described["codes"], described["values"]
        meta |= {
            "n": len(self.coordinates),
            "sample": chosen.tolist(),
            "classes": described["classes"],
            "sample_codes": None if codes is None else [codes[row] for row in chosen],
            "sample_values": None if values is None else [values[row] for row in chosen],
            "scaled": values is not None,
            "table": described["table"] and {"names": described["table"]["names"]},
            **{"codes": None, "values": None, "ids": None, "text": None},
        }
        meta["curves"]["n_rows"] = len(chosen)

    def data(self, remote: dict[str, Any]) -> ExplorerData:
        """What the page is given: the sample, and how to ask."""
        return ExplorerData(
            {**self.page.meta, "remote": remote}, self.page.coordinates, self.page.modules, b"", b""
        )

    def neighbors(self, request: Any) -> dict[str, Any]:
        """Answer a request: the nearest rows by all modules and, if `each`, by each of them."""
        asked = checked(request, self.page.meta)
        row, center = -1, None
        if asked["image"] is not None:
            center = self._image_coordinates(asked["image"])
        else:
            row = asked["row"]
            center = self.coordinates[row]
        answer: dict[str, Any] = {}
        if not asked["off"]:
            distances = squared_distances(self.coordinates, asked["weights"], center)
            answer = self._nearest(distances, row)
        if asked["each"] or asked["off"]:
            answer |= self._modules(asked, row, center)
        found = {row} if row >= 0 else set()
        found |= {*answer["together"], *(j for found in answer.get("modules", []) for j in found)}
        answer["rows"] = [self._row(j) for j in sorted(found)]
        answer["center"] = np.asarray(center, dtype=float).tolist()
        return answer

    def _nearest(self, squared: FloatArray, row: int) -> dict[str, Any]:
        near = nearest(squared, self.n_neighbors, row)
        return {"together": near.tolist(), "distances": np.sqrt(squared[near]).tolist()}

    def _modules(self, asked: dict[str, Any], row: int, center: FloatArray) -> dict[str, Any]:
        """Neighbors by each module at a stop and, if some are switched off, by the others together."""
        views = self._stop(asked["stop"])
        here = self._project(asked["stop"], center[None])[0]
        squared = module_distances(views, here, self.page.meta["widths"])
        answer: dict[str, Any] = {"modules": [nearest(d, self.n_neighbors, row).tolist() for d in squared]}
        if asked["off"]:
            active = [m for m in range(len(squared)) if m not in asked["off"]]
            answer |= self._nearest(squared[active].mean(axis=0), row)
        return answer

    def _stop(self, stop: int) -> FloatArray:
        """All modules (n, columns) at a stop, kept until another stop is asked for."""
        with self._lock:
            if self._views is None or self._views[0] != stop:
                self._views = None  # before the next is made: both could be too much
                self._views = (stop, self._project(stop, self.coordinates))
            return self._views[1]

    def _project(self, stop: int, rows: FloatArray) -> FloatArray:
        weights = self.prepared.weights[stop]
        if isinstance(weights[0], slice):
            return rows
        return rows @ np.concatenate(list(weights)).T.astype(np.float32)

    def _image_coordinates(self, pixels: FloatArray) -> FloatArray:
        query = self.page.meta["query"]
        x = query["scale"] * pixels + query["offset"]
        found = np.asarray(self.lenses.principal_coordinates(x[None]), dtype=np.float32)[0]
        return found[: self.coordinates.shape[1]]

    def _row(self, row: int) -> dict[str, Any]:
        """What is known of a row."""
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
        "weights": weights.astype(np.float32),
        "each": request.get("each") is True,
    }


def is_index(value: Any, length: int) -> bool:
    """Whether a value is an integer in [0, length)."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < length


def squared_distances(rows: FloatArray, weights: FloatArray, center: FloatArray) -> FloatArray:
    """Σ_i w_i (row_i - center_i)² of all rows (n,), block by block on threads."""
    used = np.flatnonzero(weights)
    width = int(used[-1]) + 1 if len(used) else 0
    w, c = weights[:width], center[:width].astype(rows.dtype)
    out = np.empty(len(rows), dtype=np.float32)

    def work(block: slice) -> None:
        with np.errstate(over="ignore"):  # an infinite distance is that of no neighbor
            difference = rows[block, :width] - c
            difference *= difference
            out[block] = difference @ w

    over_blocks(work, len(rows), BLOCK, -1)
    return out


def module_distances(views: FloatArray, center: FloatArray, widths: list[int]) -> FloatArray:
    """Squared distances (M, n) of all rows to a center in each module, block by block on threads."""
    of_module = np.repeat(np.eye(len(widths), dtype=np.float32), widths, axis=0)  # (columns, M)
    out = np.empty((len(widths), len(views)), dtype=np.float32)

    def work(block: slice) -> None:
        difference = views[block] - center
        difference *= difference
        out[:, block] = (difference @ of_module).T

    over_blocks(work, len(views), BLOCK, -1)
    return out


def nearest(squared: FloatArray, count: int, row: int) -> IntArray:
    """The rows with the smallest distances, nearest first, without `row`; the first row wins among equals."""
    limit = np.partition(squared, count)[count]
    near = np.flatnonzero(squared <= limit)
    near = near[near != row]
    return near[np.argsort(squared[near], kind="stable")][:count]
