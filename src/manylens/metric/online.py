"""On-line NCA: new rows against a stored base, a step for each (Section 4.3 of the chapter)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Self

import numpy as np

from manylens.metric.methods import Stochastic
from manylens.metric.optimizers import (
    STEP_OPTIMIZERS,
    BatchObjective,
    Schedule,
    StepOptimizer,
    require_finite,
    step_units,
)
from manylens.native.threads import one_blas_thread
from manylens.typing import AnyArray, FloatArray, IntArray
from manylens.validation import CheckedState

START_ROWS = 256  # rows from which the first step is taken
FARTHEST = 1e150  # largest projected entry whose squared distances are safe in float64


class Reservoir(CheckedState):
    """The rows that new rows are compared with: all rows so far, or a uniform random sample of them.

    The sample is a reservoir (Vitter's Algorithm R): each of the `seen` rows is in it with equal probability.
    """

    def __init__(self, size: int | None, n_features: int, dtype: np.dtype[np.floating]) -> None:
        self.size, self.seen = size, 0
        self.classes: dict[Hashable, int] = {}
        self._rows = np.empty((0, n_features), dtype)
        self._codes = np.empty(0, np.int64)

    @classmethod
    def of_rows(cls, size: int | None, rows: FloatArray, y: AnyArray, rng: np.random.RandomState) -> Self:
        """A base of these rows (n, n_features) and their classes (n,)."""
        base = cls(size, rows.shape[1], rows.dtype)
        codes, base.classes = base.encode(y)
        base.add(rows, codes, rng)
        return base

    def _check_state(self) -> None:
        self._require(self._rows.ndim == 2 and self._rows.dtype in (np.float32, np.float64))
        self._require(self._codes.shape == self._rows.shape[:1] and self._codes.dtype == np.int64)
        self._require(0 <= len(self) <= len(self._rows))

    def __len__(self) -> int:
        return self.seen if self.size is None else min(self.seen, self.size)

    @property
    def rows(self) -> FloatArray:
        """The stored rows, shape (n, n_features)."""
        return self._rows[: len(self)]

    @property
    def codes(self) -> IntArray:
        """Their classes as numbers, shape (n,)."""
        return self._codes[: len(self)]

    def encode(self, y: AnyArray) -> tuple[IntArray, dict[Hashable, int]]:
        """Numbers for classes, and all classes seen so far with theirs; a new class gets the next number."""
        classes = dict(self.classes)
        return np.array([classes.setdefault(name, len(classes)) for name in y.tolist()], np.int64), classes

    def add(self, rows: FloatArray, codes: IntArray, rng: np.random.RandomState) -> None:
        """Store rows; if the base is full, each replaces a random one with probability size / seen."""
        room = len(rows) if self.size is None else min(len(rows), max(0, self.size - self.seen))
        missing = len(self) + room - len(self._rows)
        if missing > 0:
            missing = max(missing, len(self._rows))  # twice the room, so that rows are copied rarely
            missing = missing if self.size is None else min(missing, self.size - len(self._rows))
            self._rows = np.concatenate([self._rows, np.empty((missing, rows.shape[1]), self._rows.dtype)])
            self._codes = np.concatenate([self._codes, np.empty(missing, np.int64)])
        if room:
            self._rows[self.seen : self.seen + room] = rows[:room]
            self._codes[self.seen : self.seen + room] = codes[:room]
        count = self.seen + 1 + np.arange(room, len(rows))
        places = (rng.random_sample(len(count)) * count).astype(np.int64)
        for row, place in enumerate(places, room):  # a later row may replace an earlier one
            if place < len(self._rows):
                self._rows[place], self._codes[place] = rows[row], codes[row]
        self.seen += len(rows)


@dataclass
class Online:
    """State of `partial_fit` between calls; the rows of the base are in units of 2^exponent."""

    base: Reservoir
    exponent: int
    rng: np.random.RandomState
    stepper: StepOptimizer | None = None  # None until the base has enough rows

    def private_copy(self, n_new: int, n_anchors: int) -> Online:
        """A copy to change; the rows of the base are copied only if they change before the last step."""
        base = deepcopy(self.base) if n_new > n_anchors else copy(self.base)
        return Online(base, self.exponent, deepcopy(self.rng), deepcopy(self.stepper))


def online_step(
    part: BatchObjective,
    A: FloatArray,
    n_new: int,
    n_anchors: int,
    stepper: StepOptimizer | None,
    rng: np.random.RandomState,
) -> tuple[FloatArray, float]:
    """A after one step (none if there is no stepper yet), and the mean score of the new rows before it.

    `part` holds the base and, last, the new rows. The step follows Σ ∂p_i/∂A over the new rows and, if these
    are fewer than `n_anchors`, random rows of the base. With one anchor and one new row it is ∂p_{N+1}/∂A.
    """
    n_base = len(part.X) - n_new
    old = rng.permutation(n_base)[: max(0, n_anchors - n_new)]
    scores, gradient = part.scores_and_gradient(A, np.concatenate([np.arange(n_base, len(part.X)), old]))
    score = float(scores[:n_new].mean())
    if stepper is None:
        return A, score
    require_finite(score, gradient)
    return A + stepper.step(gradient.ravel()).reshape(A.shape), score


def learn_online(
    online: Online,
    rows: FloatArray,
    codes: IntArray,
    A: FloatArray,
    method: Stochastic,
    make_part: Callable[[FloatArray, IntArray], BatchObjective],
    start: Callable[[BatchObjective], tuple[FloatArray, float]] | None,
) -> tuple[FloatArray, float | None, float, IntArray]:
    """A after a step for every `anchors` new rows, its initial scale if chosen here, and the mean score.

    New rows join the base after their step, except the last ones, whose indices are returned. Before the
    first step, `start` (None if A was learned before) gives an initial map whenever the rows so far double.
    """
    base, rng, scale = online.base, online.rng, None
    with np.errstate(over="ignore", invalid="ignore"):
        farthest = np.abs(rows.astype(np.float64) @ A.T).max(initial=0.0)
    if not farthest <= FARTHEST:
        raise ValueError(
            f"X is projected to entries up to {farthest:.0e}, whose squared distances are beyond the range "
            "of float64: check the units of X, or fit again with rows like it."
        )
    parts = np.array_split(np.arange(len(rows)), -(-len(rows) // method.anchors))
    total, before = 0.0, base.seen
    with one_blas_thread():
        for number, some in enumerate(parts):
            near = np.concatenate([base.rows, rows[some]])
            labels = np.unique(np.concatenate([base.codes, codes[some]]), return_inverse=True)[1]
            part = make_part(near, labels)
            enough = len(near) >= min(START_ROWS, method.base or START_ROWS)
            doubled = (before + len(some)).bit_length() > before.bit_length()
            if online.stepper is None and labels.max() > 0 and (near != near[0]).any():
                if start is not None and (enough or doubled):
                    A, scale = start(part)
                if enough:
                    units = step_units(near, len(A))
                    online.stepper = STEP_OPTIMIZERS[method.optimizer](A.ravel(), Schedule(), units)
            A, score = online_step(part, A, len(some), method.anchors, online.stepper, rng)
            total += score * len(some)
            before += len(some)
            if number < len(parts) - 1:
                base.add(rows[some], codes[some], rng)
    return A, scale, total / len(rows), parts[-1]
