"""Kernel ridge with exact leave-one-out of arrays of any library of the array API, on their device."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from manylens.arrays import check_matrices, namespace_of, to_host
from manylens.kernels.bandwidths import is_rule
from manylens.typing import FloatArray

DEVICE_KERNELS = ("linear", "rbf", "precomputed")
DEVICE_RULES = ("mean", "max-norm")


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel and the training rows (n, d) about their mean, in float64 on their device."""

    name: str
    gamma: float  # of exp(-gamma |x - y|²)
    rows: Any | None  # None for kernel matrices
    origin: Any | None = None

    def __call__(self, xp: ModuleType, X: Any) -> Any:
        """Kernel (m, n) of rows (m, d) with the training rows."""
        if self.rows is None:
            return X
        X = X - self.origin
        products = xp.matmul(X, self.rows.T)
        if self.name == "linear":
            return products
        squares = xp.sum(X * X, axis=1)[:, None] + xp.sum(self.rows * self.rows, axis=1)[None, :]
        return xp.exp(-self.gamma * xp.clip(squares - 2 * products, 0.0, None))


def device_kernel(xp: ModuleType, rows: Any, kernel: Any, gamma: Any) -> DeviceKernel:
    """The kernel of this name, fitted to rows (n, d) in float64; raises for settings that need NumPy."""
    if not (isinstance(kernel, str) and kernel in DEVICE_KERNELS):
        raise ValueError(
            f"Arrays on a device support kernel='linear', 'rbf' and 'precomputed', not {kernel!r:.100}: "
            "convert them to NumPy."
        )
    if kernel == "precomputed":
        if rows.shape[0] != rows.shape[1]:
            raise ValueError(f"A precomputed kernel must be square; this one has shape {tuple(rows.shape)}.")
        return DeviceKernel(kernel, 1.0, None)
    origin = xp.mean(rows, axis=0, keepdims=True)
    centered = rows - origin
    if kernel == "linear":
        return DeviceKernel(kernel, 1.0, centered, origin)
    if not is_rule(gamma):
        return DeviceKernel(kernel, float(gamma), centered, origin)
    if gamma not in DEVICE_RULES:
        raise ValueError(
            f"Arrays on a device support gamma='mean', 'max-norm' and numbers, not {gamma!r}: convert "
            "them to NumPy."
        )
    n = rows.shape[0]
    if gamma == "mean":  # squared distance of two rows
        scale = 2.0 / (n - 1) * float(xp.sum(centered * centered))
    else:
        scale = float(xp.max(xp.sum(rows * rows, axis=1)))
    return DeviceKernel(kernel, 1.0 / scale if scale > 0 else 1.0, centered, origin)


@dataclass(frozen=True)
class DeviceRidge:
    """A ridge on a kernel matrix (n, n), for leave-one-out predictions, as `dual_ridge`."""

    xp: ModuleType
    basis: Any  # eigenvectors of the centered kernel, without the vector 1, (n, n - 1)
    values: Any  # their eigenvalues
    kernel_mean: Any  # (n,)
    targets: Any  # (n, C)

    def solve(self, alpha: float) -> tuple[Any, Any, Any]:
        """Coefficients (n, C), intercept (C,) and leave-one-out residuals (n, C)."""
        xp = self.xp
        mean = xp.mean(self.targets, axis=0)
        shrunk = 1.0 / (self.values + alpha)
        products = xp.matmul(self.basis.T, self.targets - mean)
        coef = xp.matmul(self.basis, shrunk[:, None] * products)
        weights = xp.matmul(self.basis * self.basis, shrunk)
        return coef, mean - xp.matmul(self.kernel_mean, coef), coef / weights[:, None]

    def target_errors(self, alphas: FloatArray) -> FloatArray:
        """Mean squared leave-one-out error (A, C) for each alpha and target, on the host."""
        residuals = (self.solve(alpha)[2] for alpha in alphas.tolist())
        return np.stack([to_host(self.xp, self.xp.mean(each * each, axis=0)) for each in residuals])


def device_ridge(xp: ModuleType, K: Any, targets: Any) -> DeviceRidge:
    """Ridge on a kernel matrix (n, n), which need not be centered, for targets (n, C)."""
    n = K.shape[0]
    mean = xp.mean(K, axis=0)
    centered = K - mean[None, :] - mean[:, None] + xp.mean(mean)
    # The eigenvalue 0 of the vector 1 may be repeated: raise it to twice the trace, then drop the last one.
    trace = float(xp.linalg.trace(centered))
    values, vectors = xp.linalg.eigh(centered + (2.0 * trace if trace > 0 else 1.0) / n)
    return DeviceRidge(xp, vectors[:, :-1], xp.clip(values[:-1], 0.0, None), mean, targets)


def rows_like(X: Any, fitted: Any, n_features: int) -> tuple[ModuleType, Any]:
    """The namespace of rows and the rows in float64; raises unless they suit an array of the fitted model."""
    xp = namespace_of(X, fitted)  # raises for another library or device
    if xp is None:
        raise TypeError("The model was fitted to arrays of a library that array-api-compat no longer finds.")
    rows = xp.astype(check_matrices(xp, ["X"], [X])[0], xp.float64)
    if rows.shape[1] != n_features:
        raise ValueError(f"X has {rows.shape[1]} columns, but the model was fitted to {n_features}.")
    return xp, rows
