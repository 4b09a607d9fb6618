"""Calibrate an index for inner products, whose queries lie elsewhere than the rows of the base."""

from __future__ import annotations

import numpy as np

from manylens.ensembles.recall_calibration import (
    calibrate_index,
    calibrating_rows,
    held_out_rows,
    recall_for_queries,
)
from manylens.ensembles.search_coordinates import CompositeAxes
from manylens.ensembles.search_index import SearchIndex
from manylens.ensembles.search_plans import CalibrationQueries, MeasuredRecall, SearchRequest
from manylens.typing import FloatArray


def calibrate_for_products(
    index: SearchIndex, request: SearchRequest, longest: float
) -> tuple[SearchIndex, MeasuredRecall]:
    """The index calibrated for inner products by rows of the base in the form of queries, and its recall."""
    checking = held_out_rows(len(index.rows), request.recall)
    own = calibrating_rows(len(index.rows), request.recall)
    queries = rows_as_queries(index.axes, index.points[own], longest)
    index = calibrate_index(index, request, queries, own)
    checks = CalibrationQueries(queries[np.isin(own, checking)], checking)
    return index, recall_for_queries(index, checks, request)


def rows_as_queries(axes: CompositeAxes, coordinates: FloatArray, longest: float) -> FloatArray:
    """Coordinates (s, D) of queries (R b/|b|, 0) from those of rows (b, ...) of the base; see `InputRows`."""
    ends = np.zeros((2, len(axes.axes)), dtype=coordinates.dtype)
    ends[1, -1] = longest or 1.0
    origin, end = axes.coordinates(ends)
    R = np.linalg.norm(end - origin)
    last, queries = (end - origin) / R, coordinates - origin
    queries -= (queries @ last)[:, None] * last
    lengths = np.linalg.norm(queries, axis=1, keepdims=True)
    return np.asarray(origin + queries * (R / np.where(lengths > 0, lengths, R)))
