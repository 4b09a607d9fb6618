"""Sketches of the rows of feature sets, enough to compare them once the rows are gone.

The unbiased inner product of two kernels also needs Σ_i |x_i|² |y_i|² (see `kernel_inner_products`). It is an
inner product of two columns, so a sketch of the column |x_i|² is enough.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from scipy import sparse, stats

from manylens.alignment.feature_sets import check_features, constant_message, largest, row_norms_about
from manylens.alignment.targets import Target, target_features
from manylens.summaries import CountSketch, Summary
from manylens.summaries.base import check_same_kind
from manylens.summaries.count_sketch import row_numbers, times_powers
from manylens.summaries.moments import block_rows
from manylens.typing import FloatArray, IntArray, MatrixLike, Rows
from manylens.validation import check_count, check_real, is_sparse, safe_scale, shown, times_power

LEAST_REPLICATES = 3
MOST_REPLICATES = 4096  # more take longer to compute than they are worth
ROOM = 100  # powers of two between the scale of a stream's sums and its largest entry


class Estimate(NamedTuple):
    """A value with its standard error.

    Parameters
    ----------
    value : float
        The estimate.
    standard_error : float
        Its standard error.
    n_replicates : int
        Number of independent replicates.
    """

    value: float
    standard_error: float
    n_replicates: int

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Confidence interval from Student's t distribution.

        Parameters
        ----------
        confidence : float, default=0.95
            Probability in (0, 1) that the interval contains the exact value.

        Returns
        -------
        tuple of float
            Lower and upper end.
        """
        if not 0 < check_real(confidence, "confidence") < 1:
            raise ValueError(f"confidence={confidence} is not between 0 and 1.")
        reach = stats.t.ppf(0.5 + confidence / 2, self.n_replicates - 1) * self.standard_error
        return float(self.value - reach), float(self.value + reach)


class FeatureSketch(Summary):
    """Independent sketches of one feature set, enough to compare it with others without its rows.

    Sketches of the features of many models, made once and saved, can be ranked for any labels of the same
    rows by `rank_models`, weighted by `align_kernels` and compared by `sketched_cka`. Each of the
    `n_replicates` sketches is a `CountSketch` of the columns and of the squared norms of the rows. Memory is
    n_replicates x n_buckets x (d + 1) doubles, for any number of rows.

    Parameters
    ----------
    n_buckets : int
        Height of each sketch.
    n_replicates : int, default=8
        Number of independent sketches, at least 3; their spread gives the standard errors.
    n_hashes : int, default=1
        Number of buckets that each row is added to; must divide `n_buckets`.
    random_state : int, default=0
        Seed of the first sketch; the others have the next seeds. Only sketches of equal settings can be
        compared.

    Attributes
    ----------
    n_rows_ : int
        Number of rows seen.

    See Also
    --------
    sketched_cka : Compare two feature sketches.
    CountSketch : A single sketch.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import rank_models
    >>> from manylens.alignment import FeatureSketch
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 2000)
    >>> good, noise = np.eye(3)[y] + rng.standard_normal((2000, 3)), rng.standard_normal((2000, 50))
    >>> sketches = {"good": FeatureSketch(256).update(good), "noise": FeatureSketch(256).update(noise)}
    >>> rank_models(sketches, y)[0].name
    'good'
    """

    def __init__(
        self, n_buckets: int, n_replicates: int = 8, n_hashes: int = 1, random_state: int = 0
    ) -> None:
        self.n_replicates = check_count(n_replicates, "n_replicates", minimum=LEAST_REPLICATES)
        if self.n_replicates > MOST_REPLICATES:
            raise ValueError(
                f"n_replicates={n_replicates} is more than {MOST_REPLICATES}: a few dozen are enough for "
                "standard errors."
            )
        first = CountSketch(n_buckets, n_hashes, random_state)
        self.n_buckets, self.n_hashes, self.random_state = first.n_buckets, first.n_hashes, first.random_state
        self.n_rows_ = 0
        self._exponent: int | None = None  # the sketches hold rows times 2^-exponent; None: only zeros so far
        self._sketches = [first.fresh(first.random_state + r) for r in range(self.n_replicates)]

    def __repr__(self) -> str:
        names = ("n_buckets", "n_replicates", "n_hashes", "random_state")
        return f"FeatureSketch({', '.join(f'{name}={getattr(self, name)}' for name in names)})"

    def __sklearn_is_fitted__(self) -> bool:
        return self.n_rows_ > 0

    def update(self, rows: MatrixLike, indices: int | IntArray | None = None) -> Self:
        """Add a batch of rows.

        Parameters
        ----------
        rows : array-like or sparse matrix, shape (n, d)
            Rows of the feature set.
        indices : int or ndarray of int of shape (n,), default=None
            Row numbers, or the first of consecutive numbers, as for `CountSketch.update`.

        Returns
        -------
        FeatureSketch
        """
        X = check_features(rows, "rows")
        numbers = row_numbers(indices, X.shape[0], self.n_rows_)
        width = self._sketches[0].width
        if self.n_rows_ and X.shape[1] + 1 != width:
            raise ValueError(f"A batch of width {X.shape[1]} does not fit a sketch of width {width - 1}.")
        self._rescale(stream_exponent(self._exponent, X))
        step = block_rows(X.shape[1] + 1)
        for start in range(0, X.shape[0], step):
            part = times_power(X[start : start + step], -(self._exponent or 0)).astype(np.float64, copy=False)
            both = part, row_norms_about(part)[:, np.newaxis]  # (x_i, |x_i|²) for every row
            block = sparse.hstack(both, format="csr") if is_sparse(part) else np.hstack(both)
            for each in self._sketches:
                each.update(block, numbers[start : start + step])
        self.n_rows_ += X.shape[0]
        return self

    def merge(self, other: Self) -> Self:
        check_same_kind(self, other)
        if repr(other) != repr(self):
            raise ValueError(f"{other!r} cannot be merged into {self!r}: their settings differ.")
        if not other.n_rows_:
            return self
        known = [exponent for exponent in (self._exponent, other._exponent) if exponent is not None]
        self._rescale(max(known, default=None))
        theirs = other._at_exponent(self._exponent)
        for ours, sketch in zip(self._sketches, theirs, strict=True):
            ours.merge(sketch)
        self.n_rows_ += other.n_rows_
        return self

    def fresh(self) -> Self:
        return type(self)(self.n_buckets, self.n_replicates, self.n_hashes, self.random_state)

    def replicates(self) -> Replicates:
        """Sketches of the centered rows, and of their squared norms about the mean."""
        n = self.n_rows_
        stacked = np.stack([sketch.summary_ for sketch in self._sketches])  # (R, B, d + 1)
        ones = np.stack([sketch.ones_ for sketch in self._sketches])  # (R, B)
        totals = self._sketches[0].mean_
        mean, mean_square = totals[:-1], totals[-1]
        rows = stacked[:, :, :-1] - ones[:, :, np.newaxis] * mean
        variance = max(float(mean_square - mean @ mean), 0.0)
        # |x - μ|² = |x|² - 2 μ.x + |μ|², minus its mean over rows
        norms = stacked[:, :, -1] - 2 * stacked[:, :, :-1] @ mean + (mean @ mean - variance) * ones
        return Replicates(rows, ones, mean, n, norms, n * variance)

    def _rescale(self, exponent: int | None) -> None:
        """Keep sums of rows times 2^-exponent from now on."""
        self._sketches = self._at_exponent(exponent)
        self._exponent = exponent

    def _at_exponent(self, exponent: int | None) -> list[CountSketch]:
        """The sketches as if the rows had been scaled by 2^-exponent."""
        step = (self._exponent or 0) - (exponent or 0)
        if not self.n_rows_ or step == 0:
            return self._sketches
        powers = np.append(np.full(self._sketches[0].width - 1, step), 2 * step)
        return [times_powers(sketch, powers) for sketch in self._sketches]


Sketched: TypeAlias = (
    FeatureSketch | Sequence[CountSketch]
)  # what can be compared: several independent sketches


class Replicates(NamedTuple):
    """R independent sketches of the centered rows of one feature set."""

    rows: FloatArray  # S_r (X - 1 μᵀ), (R, B, d)
    ones: FloatArray  # S_r 1, (R, B)
    mean: FloatArray  # μ, (d,)
    n_rows: int
    norms: FloatArray | None = None  # S_r k with k_i = |x_i - μ|² minus its mean, (R, B)
    trace: float = 0.0  # Σ_i |x_i - μ|²


def replicated(sketch: CountSketch, n_replicates: int = 8) -> FeatureSketch:
    """An empty feature sketch with the settings of one sketch."""
    return FeatureSketch(sketch.n_buckets, n_replicates, sketch.n_hashes, sketch.random_state)


def stream_exponent(seen: int | None, X: Rows) -> int | None:
    """Exponent of the scale in which a stream keeps its sums, given that of its first rows.

    Zero unless rows are huge or tiny; raised if later rows are far larger than all before them.
    """
    size = largest(X)
    if size == 0:
        return seen
    own = int(np.frexp(size)[1])
    if seen is None:
        return own if abs(own) > ROOM else 0
    return own if own > seen + ROOM else seen


def check_sketch(sketch: Any) -> None:
    """Raise unless `sketch` is a CountSketch."""
    if not isinstance(sketch, CountSketch):
        raise TypeError(f"sketch={shown(sketch)} is not a CountSketch: give CountSketch(n_buckets).")


def sketch_replicates(X: Rows, sketch: CountSketch, n_replicates: int) -> list[CountSketch]:
    """Independent sketches of the rows of X, with consecutive seeds."""
    check_sketch(sketch)
    if check_count(n_replicates, "n_replicates") < LEAST_REPLICATES:
        raise ValueError(f"n_replicates={n_replicates} is too small for a standard error: use at least 3.")
    return [sketch.fresh(sketch.random_state + r).update(X, 0) for r in range(n_replicates)]


def scaled_replicates(each: Replicates, name: Hashable) -> Replicates:
    """The sketches at a safe scale, which changes no alignment; raises if rows are equal up to rounding."""
    exponent = safe_scale(each.rows)
    rows, mean = times_power(each.rows, -exponent), times_power(each.mean, -exponent)
    if np.linalg.norm(rows) <= 1e-12 * np.linalg.norm(each.ones) * np.linalg.norm(mean):
        raise ValueError(constant_message(name))
    norms = None if each.norms is None else times_power(each.norms, -2 * exponent)
    trace = float(np.ldexp(each.trace, -2 * exponent))
    return each._replace(rows=rows, mean=mean, norms=norms, trace=trace)


def as_replicates(sketched: Sketched, name: Hashable) -> Replicates:
    """The sketches of one feature set, whichever way they were given."""
    if isinstance(sketched, FeatureSketch):
        return sketched.replicates()
    listed = sketched if isinstance(sketched, list | tuple) else []
    if len(listed) < LEAST_REPLICATES or not all(isinstance(each, CountSketch) for each in listed):
        raise ValueError(
            f"{name} is {shown(sketched)}: a standard error needs a FeatureSketch, or a list of at least 3 "
            "CountSketch with different seeds."
        )
    if len({each.random_state for each in listed}) < len(listed):
        raise ValueError("Two sketches share a random_state: replicates must be independent.")
    if len({each.n_buckets for each in listed}) > 1:
        raise ValueError(f"The sketches of {name} differ in n_buckets: give replicates of one size.")
    return of_count_sketches(listed, name)


def of_count_sketches(sketches: Sequence[CountSketch], name: Hashable) -> Replicates:
    """Sketches of the centered rows of one feature set, from sketches of its rows."""
    rows = [sketch.centered() for sketch in sketches]
    if len({each.shape for each in rows}) > 1:
        raise ValueError(f"The sketches of {name} differ in width: they are not of one feature set.")
    ones = np.stack([sketch.ones_ for sketch in sketches])
    return Replicates(np.stack(rows), ones, sketches[0].mean_, sketches[0].n_rows_)


def refuse_different(sketches: Iterable[Sketched]) -> None:
    """Raise unless all feature sets were sketched with the same settings and row numbers."""
    parts = [each._sketches if isinstance(each, FeatureSketch) else list(each) for each in sketches]
    for part in parts[1:]:
        if len(part) != len(parts[0]):
            raise ValueError(
                f"{len(parts[0])} and {len(part)} sketches were given: give the same number of each."
            )
        for one, other in zip(parts[0], part, strict=True):
            if repr(one) != repr(other) or one.n_rows_ != other.n_rows_ or np.any(one.ones_ != other.ones_):
                raise ValueError(
                    f"{one!r} and {other!r} have different settings or have seen different row numbers."
                )


def is_sketched(value: Any) -> bool:
    """Whether a value is a feature set given by its sketches."""
    if isinstance(value, list | tuple):
        return len(value) > 0 and all(isinstance(each, CountSketch) for each in value)
    return isinstance(value, FeatureSketch | CountSketch)


def sketches_by_name(features: Any) -> dict[Any, Sketched] | None:
    """Sketches of several feature sets by name or position; None if the features themselves were given."""
    if isinstance(features, Mapping):
        sets = dict(features)
    elif isinstance(features, list | tuple):
        sets = dict(enumerate(features))
    else:
        return None
    sketched = [is_sketched(value) for value in sets.values()]
    if not any(sketched):
        return None
    if not all(sketched):
        raise ValueError("Some feature sets are sketches and others are not: sketch all of them, or none.")
    return sets


def target_sketch(y: Any, sketches: Mapping[Any, Sketched], target: Target = "auto") -> Sketched:
    """Sketches of the target's columns like those of the features; y holds rows 0 ... n - 1, or sketches."""
    if is_sketched(y):
        made: Sketched = y
        return made
    name, first = next(iter(sketches.items()))
    as_replicates(first, name)  # raises if the sketches cannot be used
    parts = first._sketches if isinstance(first, FeatureSketch) else first
    columns = target_features(y, parts[0].n_rows_, target)
    if isinstance(first, FeatureSketch):
        made = first.fresh().update(columns, 0)
    else:
        made = [sketch.fresh().update(columns, 0) for sketch in first]
    theirs = made._sketches if isinstance(made, FeatureSketch) else made
    if any(np.any(ours.ones_ != other.ones_) for ours, other in zip(parts, theirs, strict=True)):
        raise ValueError(
            f"The sketches of {name} have seen other row numbers than 0 ... {len(columns) - 1}: give y as a "
            "FeatureSketch of its columns, updated with the same row numbers."
        )
    return made
