"""Second moments of predictions and target, from which predictors can be selected without the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np

from manylens.summaries.base import Summary
from manylens.typing import FloatArray, IntArray


class InnerProducts(NamedTuple):
    """Inner products of centered predictions f_k and target y: |y - Σ_k w_k f_k|² = total - 2 wᵀb + wᵀGw."""

    G: FloatArray  # (p, p): <f_k, f_l>
    b: FloatArray  # (p,): <f_k, y>
    total: float  # <y, y>


class KernelProducts(NamedTuple):
    """Inner products |P_kᵀ P_l|²_F of the kernels P_k P_kᵀ, P_l P_lᵀ of centered predictions and target."""

    M: FloatArray  # (p, p) for all pairs, or (p,): of each predictor with itself
    a: FloatArray  # (p,): of each predictor with the target
    total: float  # of the target with itself


class KernelMoments(Summary):
    """Sums over rows that determine |P_kᵀ P_l|²_F of centered predictions (n x C).

    Without `pairs`, only of each predictor with itself and with the target: 3 (p + 1) C² numbers. With
    `pairs`, of all predictors: ((p + 1) C)² numbers. The target is the last of p + 1 predictors. With entry
    weights ω, P_kᵀ P_l has the entries Σ_i (ω_ic ω_id)^½ (P_ikc - P̄_kc)(P_ild - P̄_ld), where P̄_kc is the
    weighted mean of column c.
    """

    origin_: FloatArray  # (p + 1, C): subtracted before summing; the mean of the first batch
    weights_: FloatArray  # (C, C): sums of (ω_ic ω_id)^½
    sums_: FloatArray  # (p + 1, C, C): sums of (ω_ic ω_id)^½ P_ikc
    products_: (
        FloatArray  # (p + 1, C, p + 1, C) with pairs, else (2, p + 1, C, C): with itself, with the target
    )

    def __init__(self, pairs: bool = False) -> None:
        self.pairs = pairs
        self.n_rows_ = 0

    def fresh(self) -> Self:
        """An empty summary of the same kind."""
        return type(self)(self.pairs)

    @property
    def started(self) -> bool:
        """Whether the origin is set."""
        return hasattr(self, "origin_")

    def start(self, origin: FloatArray) -> None:
        """Set the origin (p + 1, C) and all sums to zero."""
        q, C = origin.shape
        self.origin_ = origin
        self.weights_, self.sums_ = np.zeros((C, C)), np.zeros((q, C, C))
        self.products_ = np.zeros((q, C, q, C) if self.pairs else (2, q, C, C))

    def update(self, P: FloatArray, Y: FloatArray, weight: FloatArray | None = None) -> Self:
        """Add predictions (n, p, C), targets (n, C) and entry weights (n, C), ones if None."""
        check_batch(P, Y, weight, self.origin_.shape if self.started else None)
        if len(Y) == 0:
            return self
        Q = np.concatenate([P, Y[:, np.newaxis, :]], axis=1, dtype=np.float64)
        if not self.started:
            self.start(first_origin(Q))
        n, q, C = Q.shape
        root = np.ones(Y.shape) if weight is None else np.sqrt(weight)
        Q = (Q - self.origin_) * root[:, np.newaxis, :]
        flat = Q.reshape(n, -1)
        self.weights_ += root.T @ root
        self.sums_ += (flat.T @ root).reshape(q, C, C)
        if self.pairs:
            self.products_ += (flat.T @ flat).reshape(q, C, q, C)
        else:
            for k in range(q):  # a batched product of strided arrays would not use BLAS
                self.products_[0, k] += Q[:, k].T @ Q[:, k]
            self.products_[1] += (flat.T @ Q[:, -1]).reshape(q, C, C)
        self.n_rows_ += n
        return self

    def merge(self, other: Self) -> Self:
        """Add the rows of another summary of the same predictors."""
        if not other.n_rows_:
            return self
        if not self.started:
            self.start(other.origin_)
        check_same_predictors(other.origin_.shape, self.origin_.shape)
        step = other.origin_ - self.origin_
        if self.pairs:
            for k in range(len(step)):
                self.products_[k] += other.moved_pairs(k, step)
        else:
            self.products_ += other.moved_own(step)
        self.sums_ += other.sums_ + step[:, :, np.newaxis] * other.weights_
        self.weights_ = self.weights_ + other.weights_
        self.n_rows_ += other.n_rows_
        return self

    def without(self, part: KernelMoments) -> KernelMoments:
        """Moments of the rows seen here but not in `part`, which has the same origin."""
        others = self.fresh()
        others.origin_ = self.origin_
        for name in ("n_rows_", "weights_", "sums_", "products_"):
            setattr(others, name, getattr(self, name) - getattr(part, name))
        return others

    def kernel_products(self) -> KernelProducts:
        """Inner products of the kernels of centered predictions; M is (p, p) with pairs, else (p,)."""
        own = np.diagonal(self.sums_, axis1=1, axis2=2)  # (p + 1, C)
        step = -own / np.diag(self.weights_)
        if self.pairs:
            norms = [np.sum(self.moved_pairs(k, step) ** 2, axis=(0, 2)) for k in range(len(step))]
            M = np.stack(norms)
            return KernelProducts(M[:-1, :-1], M[:-1, -1], float(M[-1, -1]))
        itself, target = np.sum(self.moved_own(step) ** 2, axis=(2, 3))
        return KernelProducts(itself[:-1], target[:-1], float(itself[-1]))

    def moved_pairs(self, k: int, step: FloatArray) -> FloatArray:
        """Products (C, p + 1, C) of predictor k with all others, after adding `step` (p + 1, C) to them."""
        others = self.sums_.transpose(2, 0, 1) + self.weights_[:, np.newaxis, :] * step
        return (
            self.products_[k] + step[k, :, np.newaxis, np.newaxis] * others
            + self.sums_[k][:, np.newaxis, :] * step
        )  # fmt: skip

    def moved_own(self, step: FloatArray) -> FloatArray:
        """Products (2, p + 1, C, C) of predictors with themselves and the target, after adding `step`."""
        sums = np.stack([self.sums_, np.broadcast_to(self.sums_[-1], self.sums_.shape)])
        steps = np.stack([step, np.broadcast_to(step[-1], step.shape)])
        others = sums.transpose(0, 1, 3, 2) + self.weights_ * steps[:, :, np.newaxis, :]
        return self.products_ + step[:, :, np.newaxis] * others + self.sums_ * steps[:, :, np.newaxis, :]


class PredictionMoments(Summary):
    """Sums over rows that determine the inner products of centered predictions: (p + 1)² numbers.

    A predictor is an n x C matrix: one column for regression, one per class otherwise. The target Y is the
    last of p + 1 such matrices. With entry weights ω (n x C), <A, B> = Σ_ic ω_ic (A_ic - Ā_c)(B_ic - B̄_c),
    where Ā_c is the weighted mean of column c. With `pairs`, the inner products of the kernels of all
    predictors are summed too (see `KernelMoments`).
    """

    origin_: FloatArray  # (p + 1, C): subtracted before summing; the mean of the first batch
    sizes_: FloatArray  # (C,): sums of the entry weights
    sums_: FloatArray  # (p + 1, C): weighted sums about the origin
    products_: FloatArray  # (p + 1, p + 1): weighted products about the origin

    def __init__(self, pairs: bool = False) -> None:
        self.n_rows_ = 0
        self.kernels = KernelMoments(pairs=True) if pairs else None

    def fresh(self) -> Self:
        """An empty summary of the same kind."""
        return type(self)(self.kernels is not None)

    def update(self, P: FloatArray, Y: FloatArray, weight: FloatArray | None = None) -> Self:
        """Add predictions (n, p, C), targets (n, C) and entry weights (n, C), ones if None."""
        check_batch(P, Y, weight, self.origin_.shape if self.started else None)
        if len(Y) == 0:
            return self
        Q = np.concatenate([P, Y[:, np.newaxis, :]], axis=1, dtype=np.float64)
        if not self.started:
            self.start(first_origin(Q))
        if self.kernels is not None:
            self.kernels.update(P, Y, weight)
        Q -= self.origin_
        weight = np.ones(Y.shape) if weight is None else weight
        self.sizes_ += weight.sum(axis=0)
        self.sums_ += np.einsum("ikc,ic->kc", Q, weight)
        Q *= np.sqrt(weight)[:, np.newaxis, :]
        flat = Q.transpose(0, 2, 1).reshape(-1, Q.shape[1])  # (n C, p + 1)
        self.products_ += flat.T @ flat
        self.n_rows_ += len(Y)
        return self

    def merge(self, other: Self) -> Self:
        """Add the rows of another summary of the same predictors."""
        if not other.n_rows_:
            return self
        if not self.started:
            self.start(other.origin_)
        check_same_predictors(other.origin_.shape, self.origin_.shape)
        if self.kernels is not None and other.kernels is not None:
            self.kernels.merge(other.kernels)
        step = other.origin_ - self.origin_
        crossed = step @ other.sums_.T
        self.products_ += other.products_ + crossed + crossed.T + (step * other.sizes_) @ step.T
        self.sums_ += other.sums_ + step * other.sizes_
        self.sizes_ = self.sizes_ + other.sizes_
        self.n_rows_ += other.n_rows_
        return self

    def without(self, part: PredictionMoments) -> PredictionMoments:
        """Moments of the rows seen here but not in `part`, which has the same origin."""
        others = PredictionMoments()
        others.origin_ = self.origin_
        if self.kernels is not None and part.kernels is not None:
            others.kernels = self.kernels.without(part.kernels)
        for name in ("n_rows_", "sizes_", "sums_", "products_"):
            setattr(others, name, getattr(self, name) - getattr(part, name))
        return others

    def centered(self, among: IntArray | None = None) -> InnerProducts:
        """Inner products of the centered predictions (only of those in `among`, if given) and the target."""
        products, sums = self.products_, self.sums_
        if among is not None:
            rows = np.append(among, len(sums) - 1)
            products, sums = products[np.ix_(rows, rows)], sums[rows]
        M = products - (sums / self.sizes_) @ sums.T
        return InnerProducts(M[:-1, :-1], M[:-1, -1], float(M[-1, -1]))

    def kernel_products(self) -> KernelProducts | None:
        """Inner products of the kernels of all predictors; None unless `pairs` was given."""
        return None if self.kernels is None else self.kernels.kernel_products()

    def means(self) -> tuple[FloatArray, FloatArray]:
        """Weighted means of the predictions, (p, C), and of the target, (C,)."""
        means = self.origin_ + self.sums_ / self.sizes_
        return means[:-1], means[-1]

    @property
    def started(self) -> bool:
        """Whether the origin is set."""
        return hasattr(self, "origin_")

    def start(self, origin: FloatArray) -> None:
        """Set the origin (p + 1, C) and all sums to zero."""
        self.origin_ = origin
        self.sizes_ = np.zeros(origin.shape[1])
        self.sums_ = np.zeros(origin.shape)
        self.products_ = np.zeros((len(origin), len(origin)))
        if self.kernels is not None:
            self.kernels.start(origin)


class FoldedMoments(Summary):
    """Moments of K folds of the rows, for cross-validation without the rows.

    The i-th row seen goes to fold i mod K. All folds are summed about one origin, so that a fold can be
    subtracted from the whole. `single` holds the alignment of each predictor with the target; with `pairs`,
    every fold also has the kernels of all pairs of predictors (see `KernelMoments`).
    """

    def __init__(self, n_folds: int = 5, pairs: bool = False) -> None:
        self.pairs = pairs
        self.parts = [PredictionMoments(pairs) for _ in range(n_folds)]
        self.single = KernelMoments()

    def fresh(self) -> Self:
        """An empty summary of the same kind."""
        return type(self)(len(self.parts), self.pairs)

    @property
    def n_rows_(self) -> int:
        """Number of rows seen."""
        return sum(part.n_rows_ for part in self.parts)

    def update(self, P: FloatArray, Y: FloatArray, weight: FloatArray | None = None) -> Self:
        """Add a batch of rows, as for `PredictionMoments`."""
        self.single.update(P, Y, weight)  # which checks the batch
        K, seen = len(self.parts), self.n_rows_
        for k, part in enumerate(self.parts):
            rows = slice((k - seen) % K, None, K)
            part.update(P[rows], Y[rows], None if weight is None else weight[rows])
            self._share_origin()
        return self

    def merge(self, other: Self) -> Self:
        """Add another summary with the same number of folds, fold by fold."""
        if len(other.parts) != len(self.parts):
            raise ValueError(
                f"Moments in {len(other.parts)} folds cannot be merged into moments in {len(self.parts)}."
            )
        self.single.merge(other.single)
        for part, theirs in zip(self.parts, other.parts, strict=True):
            part.merge(theirs)
            self._share_origin()
        return self

    def whole(self) -> PredictionMoments:
        """Moments of all rows."""
        total = PredictionMoments(self.pairs)
        for part in self.parts:
            total.merge(part)
        return total

    def splits(self, whole: PredictionMoments) -> Iterator[tuple[PredictionMoments, PredictionMoments]]:
        """For every fold with rows: the moments of all other folds, and those of the fold."""
        for part in self.parts:
            if 0 < part.n_rows_ < whole.n_rows_:
                yield whole.without(part), part

    def _share_origin(self) -> None:
        """Give folds without an origin the origin of the first fold."""
        for part in self.parts:
            if self.parts[0].started and not part.started:
                part.start(self.parts[0].origin_)


def squared_error(weights: FloatArray, G: FloatArray, b: FloatArray, total: float) -> float:
    """|y - Σ_k w_k f_k|² of centered predictions and target."""
    return float(total - 2 * (weights @ b) + weights @ G @ weights)


def rescaled_error(weights: FloatArray, G: FloatArray, b: FloatArray, total: float) -> float:
    """Squared error after the best non-negative rescaling of all weights, total - (uᵀb)² / uᵀGu.

    Without rescaling, larger weights could hide the loss of members: they lower the squared error of
    probabilities without changing a decision.
    """
    power = weights @ G @ weights
    return float(total - max(float(weights @ b), 0.0) ** 2 / power) if power > 0 else total


def held_out_error(weights: FloatArray, others: PredictionMoments, part: PredictionMoments) -> float:
    """Squared error summed over the rows of `part`, with the intercept learned on the others."""
    kept = np.flatnonzero(weights)
    w = weights[kept]
    learned, best = (target - w @ means[kept] for means, target in (others.means(), part.means()))
    return squared_error(w, *part.centered(kept)) + float(part.sizes_ @ (best - learned) ** 2)


def first_origin(Q: FloatArray) -> FloatArray:
    """Mean (p + 1, C) of a first batch, relative to its first row: a constant predictor has no variance."""
    return np.asarray(Q[0] + (Q - Q[0]).mean(axis=0))


def check_batch(
    P: FloatArray, Y: FloatArray, weight: FloatArray | None, seen: tuple[int, ...] | None
) -> None:
    """Raise unless the shapes match one another and those of earlier batches, `seen` (p + 1, C)."""
    weight_fits = weight is None or weight.shape == Y.shape
    if P.ndim != 3 or Y.shape != (P.shape[0], P.shape[2]) or not weight_fits:
        shapes = f"{P.shape} and {Y.shape}" + ("" if weight is None else f", with weights {weight.shape}")
        raise ValueError(
            f"Predictions and target have shapes {shapes}: give (n, p, C) and (n, C), and weights (n, C)."
        )
    given = (P.shape[1] + 1, P.shape[2])
    if seen is not None and given != seen:
        raise ValueError(f"A batch of {_described(given)} follows batches of {_described(seen)}.")


def check_same_predictors(theirs: tuple[int, ...], ours: tuple[int, ...]) -> None:
    """Raise unless two summaries have origins of the same shape (p + 1, C)."""
    if theirs != ours:
        raise ValueError(
            f"Moments of {_described(theirs)} cannot be merged into moments of {_described(ours)}."
        )


def _described(shape: tuple[int, ...]) -> str:
    return f"{shape[0] - 1} predictors with {shape[1]} columns each"
