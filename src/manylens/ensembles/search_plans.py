"""What a search is asked for, how it is carried out, and what was measured of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from manylens.reprs import result_table
from manylens.typing import FloatArray, IntArray

# Rows per candidate of a graph below which a scan is faster: 500 for many queries at once, 50 for one.
ROWS_PER_CANDIDATE = 150
MIN_PER_NEIGHBOR = 2.0  # fewest candidates per neighbor of a scan; even fewer would save no time
MAX_PER_NEIGHBOR = 64  # candidates per neighbor requested from approximate lists


@dataclass(frozen=True)
class SearchPlan:
    """Numbers of leading coordinates and of candidates that a search uses."""

    n_leading: int
    candidates_per_neighbor: float
    prove: bool = False  # whether to prove each result exact, or to continue the search
    bits: int = 16  # per leading coordinate of a graph
    n_neighbors: int = 5  # searches for fewer neighbors use as many candidates as for this number


@dataclass(frozen=True)
class SearchRequest:
    """Settings that the user asks for; None lets the calibration choose."""

    n_neighbors: int
    recall: float
    n_leading: int | None
    n_candidates: int | None
    n_jobs: int | None
    verbose: bool = False
    any_backend: bool = False  # whether the calibration may scan where a graph would be slower


@dataclass(frozen=True)
class MeasuredRecall:
    """Recall of an index for some rows of the base, or for queries of `tune`.

    These rows did not choose the leading coordinates, but checked the number of candidates. Neighbors in the
    same place as a row, and those behind which the distances grow by a factor of 1.8, are not counted.
    """

    recall: float  # fraction of the nearest rows in the space that the search finds
    standard_error: float
    reachable: float  # the same for an exact search by the coordinates that the index keeps
    space: str  # "input"; "modules" or "coordinate" by the distances of the modules or of kept coordinates
    n_queries: int
    n_neighbors: int
    n_rows: int  # in the base, when it was measured

    _repr_html_ = result_table


class Ranks(NamedTuple):
    """Ranks of the exact neighbors on leading coordinates, as from `ranks_on_leading`."""

    widths: IntArray  # (w,)
    ranks: IntArray  # (w, s, k)


class CalibrationQueries(NamedTuple):
    """Queries for calibration."""

    coordinates: FloatArray  # (s, D)
    own: IntArray | None  # (s,), the queries' row numbers if they are rows of the base
