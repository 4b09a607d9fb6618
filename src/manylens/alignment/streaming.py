"""Linear CKA from summaries of rows: exact from cross-moments, or estimated from sketches.

With Z_r = (S_r X)ᵀ (S_r Y) for independent sketches r = 1 ... R, E Z_r = XᵀY but E|Z_r|² = |XᵀY|² + variance:
one sketch overestimates every norm. Products of *different* sketches do not, because E<Z_r, Z_s> = |XᵀY|²,
so the estimate is their mean, with a jackknife standard error over the sketches. No error bound is given: the
published relative bound relies on an inequality that is false.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import stats
from sklearn.exceptions import NotFittedError

from manylens.alignment.features import (
    FeatureSets,
    Returned,
    as_returned,
    check_feature_sets,
    constant_message,
    labeled,
    range_message,
    unit_scaled,
)
from manylens.alignment.inner_products import ROUNDING, Estimator, check_convention, without_diagonals
from manylens.summaries import CountSketch, CrossMoments, Summary
from manylens.typing import FloatArray, Rows
from manylens.validation import check_choice


class StreamingCKA(Summary):
    """Linear CKA of representations that arrive one batch of rows at a time.

    Keeps cross-moments instead of averaging scores of batches, so the result is the `cka` of all rows, for
    any batch sizes. Memory is d_x d_y doubles per pair and d² per representation.

    Parameters
    ----------
    pairs : iterable of pairs, default=None
        Names (or positions) of the representations to compare; all pairs by default.
    estimator, center
        As for `cka`.

    Attributes
    ----------
    n_rows_ : int
        Number of rows seen.
    names_ : list
        Names of the representations.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import StreamingCKA, cka
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> stream = StreamingCKA(pairs=[("x", "y")])
    >>> for rows in np.array_split(X, 7):
    ...     _ = stream.update({"x": rows, "y": rows[:, :2]})
    >>> abs(stream.result()["x", "y"] - cka(X, X[:, :2])) < 1e-10
    True
    """

    def __init__(
        self,
        pairs: Iterable[tuple[Hashable, Hashable]] | None = None,
        estimator: Estimator = "biased",
        center: bool = True,
    ) -> None:
        check_convention(estimator, center, np.inf)
        self.pairs = None if pairs is None else [(one, other) for one, other in pairs]
        self.estimator: Estimator = estimator
        self.center = center
        self.n_rows_ = 0
        self.names_: list[Any] = []
        self._by_name = False
        self._moments = CrossMoments([])

    def __sklearn_is_fitted__(self) -> bool:
        return self.n_rows_ > 0

    def update(self, representations: FeatureSets) -> Self:
        """Add a batch of rows.

        Parameters
        ----------
        representations : dict or sequence of array-like, each of shape (n, d_k)
            The rows in all representations; names and widths must be the same in every batch.

        Returns
        -------
        StreamingCKA
        """
        names, arrays = check_feature_sets(representations, accept_sparse=False)
        if not self.n_rows_:
            self._moments = CrossMoments(self._pairs_of(names)).update(arrays)
            self.names_, self._by_name = names, isinstance(representations, Mapping)
        else:
            if set(names) != set(self.names_):
                raise ValueError(f"This batch has the representations {names}; the first had {self.names_}.")
            self._moments.update([arrays[names.index(name)] for name in self.names_])
        self.n_rows_ = self._moments.n_rows_
        return self

    def merge(self, other: Self) -> Self:
        if (self.pairs, self.estimator, self.center) != (other.pairs, other.estimator, other.center):
            raise ValueError("Streams with different pairs, estimator or center cannot be merged.")
        if not other.n_rows_:
            return self
        if not self.n_rows_:
            self.names_, self._by_name = list(other.names_), other._by_name
            self._moments = other._moments.fresh()
        elif (self.names_, self._widths()) != (other.names_, other._widths()):
            raise ValueError(
                f"Streams of {self.names_} with widths {self._widths()} and of {other.names_} with widths "
                f"{other._widths()} cannot be merged."
            )
        self._moments.merge(other._moments)
        self.n_rows_ = self._moments.n_rows_
        return self

    def fresh(self) -> Self:
        return type(self)(self.pairs, self.estimator, self.center)

    def result(self, return_: Returned = "score") -> Any:
        """The alignments of all rows seen so far.

        Parameters
        ----------
        return_ : {"score", "angle"}, default="score"
            As for `cka`.

        Returns
        -------
        ndarray, shape (p, p), pandas.DataFrame or dict
            A matrix (a data frame for named representations), or a dict by pair if `pairs` is given.
        """
        check_choice(return_, "return_", ("score", "angle"))
        if not self.n_rows_:
            raise NotFittedError("This StreamingCKA has seen no rows: call update first.")
        check_convention(self.estimator, self.center, self.n_rows_)
        products = self._products()
        scores = np.eye(len(self.names_))
        for (k, m), product in products.items():
            if k != m:
                own = np.sqrt(products[k, k]) * np.sqrt(products[m, m])
                scores[k, m] = scores[m, k] = product / own
        scores = as_returned(np.clip(scores, -1.0, 1.0), return_)
        if self.pairs is None:
            return labeled(scores, self.names_, self._by_name)
        position = {name: k for k, name in enumerate(self.names_)}
        return {(one, other): float(scores[position[one], position[other]]) for one, other in self.pairs}

    def _widths(self) -> list[int]:
        return [len(origin) for origin in self._moments.origins_]

    def _pairs_of(self, names: list[Any]) -> list[tuple[int, int]]:
        """Positions of the pairs to compare, smaller position first, and of each name with itself."""
        own = [(k, k) for k in range(len(names))]
        if self.pairs is None:
            return own + [(k, m) for k in range(len(names)) for m in range(k, len(names))]
        unknown = {name for pair in self.pairs for name in pair} - set(names)
        if unknown:
            raise ValueError(f"pairs contains {sorted(map(str, unknown))}, which are not among {names}.")
        both = [sorted((names.index(one), names.index(other))) for one, other in self.pairs]
        return own + [(first, second) for first, second in both]

    def _products(self) -> dict[tuple[int, int], float]:
        """Inner products of the kernels of each pair, biased or unbiased."""
        n = self.n_rows_
        means = self._moments.means()
        points = means if self.center else [np.zeros_like(mean) for mean in means]
        products = {}
        for (k, m), A in self._moments.about(points).items():
            product = float(np.vdot(A[1:-1, 1:-1], A[1:-1, 1:-1]))
            if k == m:
                underflow = A[0, -1] > 0 and product < np.finfo(np.float64).tiny
                if underflow or not np.isfinite(A).all() or not np.isfinite(product):
                    raise ValueError(range_message(self.names_[k]))
                rounding = (8 * np.finfo(np.float64).eps) ** 2 * n * float(means[k] @ means[k])
                if A[0, -1] <= rounding or product <= 0:
                    raise ValueError(constant_message(self.names_[k]))
            if self.estimator == "unbiased":
                # A[-1, 0] and A[0, -1] are the traces, A[-1, -1] is the inner product of the diagonals
                traces = np.array([A[-1, 0], A[0, -1]])
                pair = without_diagonals(np.full((2, 2), product), A[-1, -1], traces, n, self.center)
                if k == m and pair[0, 1] <= ROUNDING["unbiased"] * product:
                    raise ValueError(constant_message(self.names_[k], "unbiased"))
                product = float(pair[0, 1])
            products[k, m] = product
        return products


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
        if not 0 < confidence < 1:
            raise ValueError(f"confidence={confidence} is not between 0 and 1.")
        reach = stats.t.ppf(0.5 + confidence / 2, self.n_replicates - 1) * self.standard_error
        return float(self.value - reach), float(self.value + reach)


def sketch_replicates(X: Rows, sketch: CountSketch, n_replicates: int) -> list[CountSketch]:
    """Independent sketches of the rows of X, with consecutive seeds."""
    if not isinstance(sketch, CountSketch):
        raise TypeError(f"sketch={sketch!r} is not a CountSketch: give CountSketch(n_buckets).")
    if n_replicates < 3:
        raise ValueError(f"n_replicates={n_replicates} is too small for a standard error: use at least 3.")
    return [sketch.fresh(sketch.random_state + r).update(X, 0) for r in range(n_replicates)]


def sketched_cka(
    sketches_x: Sequence[CountSketch], sketches_y: Sequence[CountSketch], return_: Returned = "score"
) -> Estimate:
    """Estimate linear CKA of two representations from sketches of their rows.

    Parameters
    ----------
    sketches_x, sketches_y : list of CountSketch
        At least 3 sketches per representation, with different seeds. The r-th sketches of both must have the
        same settings and have seen the same row numbers, in any order.
    return_ : {"score", "angle"}, default="score"
        The alignment or its arccos.

    Returns
    -------
    Estimate
        Value, standard error, number of replicates.
    """
    check_sketches(sketches_x, sketches_y)
    X, Y = centered_sketches(sketches_x, "X"), centered_sketches(sketches_y, "Y")
    grams = np.stack([replicate_gram(X, Y), replicate_gram(X, X), replicate_gram(Y, Y)])
    R = len(X)
    subsets = [np.delete(np.delete(grams, r, axis=1), r, axis=2) for r in range(R)]
    left_out = np.array([ratio_of_means(subset, return_) for subset in subsets])
    variance = (R - 1) / R * np.sum((left_out - left_out.mean()) ** 2)
    return Estimate(ratio_of_means(grams, return_), float(np.sqrt(variance)), R)


def centered_sketches(sketches: Sequence[CountSketch], name: str) -> FloatArray:
    """The sketches of the centered rows (R, n_buckets, d); raises if these are zero up to rounding."""
    arrays = [sketch.centered() for sketch in sketches]
    for sketch, rows in zip(sketches, arrays, strict=True):
        if np.linalg.norm(rows) <= 1e-12 * np.linalg.norm(sketch.ones_) * np.linalg.norm(sketch.mean_):
            raise ValueError(constant_message(name))
    return unit_scaled(np.stack(arrays))[0]  # a common scale does not change the alignment


def replicate_gram(X: FloatArray, Y: FloatArray) -> FloatArray:
    """G_rs = <X_rᵀY_r, X_sᵀY_s> for the sketches of all replicates, (R, R)."""
    flat = np.stack([(A.T @ B).ravel() for A, B in zip(X, Y, strict=True)])
    return flat @ flat.T


def ratio_of_means(grams: FloatArray, return_: Returned = "score") -> float:
    """u_xy / sqrt(u_xx u_yy), each u the mean of G_rs over r ≠ s; grams (3, R, R) of XY, XX and YY."""
    n = grams.shape[1]
    cross, own_x, own_y = (grams.sum(axis=(1, 2)) - np.trace(grams, axis1=1, axis2=2)) / (n * (n - 1))
    if own_x <= 0 or own_y <= 0:
        raise ValueError(
            "The sketches are too small to estimate the norms of these features: use more buckets."
        )
    return float(as_returned(cross / np.sqrt(own_x * own_y), return_))


def check_sketches(sketches_x: Sequence[CountSketch], sketches_y: Sequence[CountSketch]) -> None:
    """Raise if there are too few sketches, or if they are not independent or do not match."""
    if len(sketches_x) != len(sketches_y) or len(sketches_x) < 3:
        raise ValueError(
            f"{len(sketches_x)} and {len(sketches_y)} sketches were given: a standard error needs the same "
            "number of both, and at least 3."
        )
    if len({sketch.random_state for sketch in sketches_x}) < len(sketches_x):
        raise ValueError("Two sketches share a random_state: replicates must be independent.")
    for one, other in zip(sketches_x, sketches_y, strict=True):
        if repr(one) != repr(other) or one.n_rows_ != other.n_rows_ or np.any(one.ones_ != other.ones_):
            raise ValueError(
                f"{one!r} and {other!r} have different settings or have seen different row numbers."
            )
