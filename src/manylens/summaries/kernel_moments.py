"""Inner products of the kernels P_k P_kᵀ of predictions with several columns, from sums over rows."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from manylens.summaries.base import Summary
from manylens.summaries.prediction_origin import check_batch, check_same_predictors, first_origin
from manylens.typing import FloatArray


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
            self.products_[0] += Q.transpose(1, 2, 0) @ Q.transpose(1, 0, 2)
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
