"""Linear CKA of representations that arrive in batches, exact, from cross-moments."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError

from manylens.alignment.feature_sets import (
    FeatureSets,
    Returned,
    as_returned,
    check_feature_sets,
    constant_message,
    labeled,
)
from manylens.alignment.kernel_inner_products import (
    ROUNDING,
    Estimator,
    Scaled,
    check_convention,
    without_diagonals,
)
from manylens.alignment.sketches import stream_exponent
from manylens.summaries import CrossMoments, Summary
from manylens.summaries.base import check_same_kind
from manylens.typing import Rows
from manylens.validation import check_choice, check_iterable, shown, times_power


class StreamingCKA(Summary):
    """Linear CKA of representations that arrive one batch of rows at a time.

    Keeps cross-moments instead of averaging scores of batches, so the result is the `cka` of all rows, for
    any batch sizes. Memory is d_x d_y doubles per pair and d² per representation. Rows are scaled by a power
    of two before they are summed, so that units of any size can be used.

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
        self.pairs = None if pairs is None else check_pairs(pairs)
        self.estimator: Estimator = estimator
        self.center = center
        self.n_rows_ = 0
        self.names_: list[Any] = []
        self._by_name = False
        self._moments = CrossMoments([])
        self._exponents: list[int | None] = []  # sums are kept of rows times 2^-exponent

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
            exponents = [stream_exponent(None, X) for X in arrays]
            moments = CrossMoments(self._pairs_of(names)).update(scaled(arrays, exponents))
            self.names_, self._by_name = names, isinstance(representations, Mapping)
        else:
            if set(names) != set(self.names_):
                raise ValueError(f"This batch has the representations {names}; the first had {self.names_}.")
            arrays = [arrays[names.index(name)] for name in self.names_]
            exponents = [stream_exponent(seen, X) for seen, X in zip(self._exponents, arrays, strict=True)]
            moments = self._moments_at(exponents).update(scaled(arrays, exponents))
        self._moments, self._exponents, self.n_rows_ = moments, exponents, moments.n_rows_
        return self

    def merge(self, other: Self) -> Self:
        check_same_kind(self, other)
        if (self.pairs, self.estimator, self.center) != (other.pairs, other.estimator, other.center):
            raise ValueError("Streams with different pairs, estimator or center cannot be merged.")
        if not other.n_rows_:
            return self
        if not self.n_rows_:
            self.names_, self._by_name = list(other.names_), other._by_name
            self._moments, self._exponents = other._moments.fresh(), list(other._exponents)
        elif (self.names_, self._widths()) != (other.names_, other._widths()):
            raise ValueError(
                f"Streams of {self.names_} with widths {self._widths()} and of {other.names_} with widths "
                f"{other._widths()} cannot be merged."
            )
        pairs = zip(self._exponents, other._exponents, strict=True)
        known = [[exponent for exponent in pair if exponent is not None] for pair in pairs]
        exponents = [max(pair, default=None) for pair in known]
        self._moments = self._moments_at(exponents).merge(other._moments_at(exponents))
        self._exponents = exponents
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

    def _moments_at(self, exponents: list[int | None]) -> CrossMoments:
        """The moments as if the rows had been scaled by 2^-exponents."""
        steps = [(ours or 0) - (new or 0) for ours, new in zip(self._exponents, exponents, strict=True)]
        return self._moments.times_powers(steps) if self.n_rows_ and any(steps) else self._moments

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


def check_pairs(pairs: Any) -> list[tuple[Hashable, Hashable]]:
    """The pairs of names as a list; raise if they are anything else."""
    expected = 'a list of pairs of names, such as [("a", "b"), ("a", "c")]'
    listed = list(check_iterable(pairs, "pairs", expected))
    if not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(name, Hashable) for name in pair)
        for pair in listed
    ):
        raise TypeError(f"pairs={shown(pairs)} is not {expected}.")
    return [(one, other) for one, other in listed]


def scaled(arrays: list[Rows], exponents: list[int | None]) -> list[Any]:
    """Every array times 2^-exponent."""
    return [times_power(X, -(exponent or 0)) for X, exponent in zip(arrays, exponents, strict=True)]


def streamed_products(stream: StreamingCKA) -> Scaled:
    """Inner products of the kernels of all pairs of a stream; raises if a representation is constant."""
    check_convention(stream.estimator, stream.center, stream.n_rows_)
    p = len(stream.names_)
    values = np.zeros((p, p))
    for (k, m), product in stream._products().items():
        values[k, m] = values[m, k] = product
    exponents = np.array([2 * (exponent or 0) for exponent in stream._exponents])
    return Scaled(values, exponents, np.zeros(p, dtype=bool))


def streamed_alignment(stream: StreamingCKA, one: Hashable, other: Hashable) -> float:
    """Alignment of one pair of a stream."""
    values = streamed_products(stream).values
    k, m = stream.names_.index(one), stream.names_.index(other)
    return float(np.clip(values[k, m] / (np.sqrt(values[k, k]) * np.sqrt(values[m, m])), -1.0, 1.0))
