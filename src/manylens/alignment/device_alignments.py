"""Linear CKA and kernel products of arrays of any library of the array API standard, on their device."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from manylens.alignment.feature_sets import Names, constant_message
from manylens.alignment.kernel_inner_products import Estimator, Scaled, check_convention, without_diagonals
from manylens.arrays import check_matrices, to_device, to_host
from manylens.kernels.kernels import KernelLike
from manylens.typing import FloatArray
from manylens.validation import safe_scale, times_power


def device_alignments(
    xp: ModuleType,
    arrays: Sequence[Any],
    names: Names,
    kernel: KernelLike,
    estimator: Estimator,
    center: bool,
    split: int | None = None,
) -> Any:
    """Linear CKA (p, p), or (p, q) of the first `split` arrays with the others, on the arrays' device."""
    refuse_other_kernels(kernel)
    checked = check_matrices(xp, names, arrays)
    products = device_products(xp, checked, names, estimator, center, split)[0]
    own = np.diag(products)
    scores = np.clip(products / np.sqrt(np.outer(own, own)), -1.0, 1.0)
    if split is None:
        np.fill_diagonal(scores, 1.0)
        return to_device(xp, scores, checked[0])
    return to_device(xp, scores[:split, split:], checked[0])


def device_scaled_products(
    xp: ModuleType,
    arrays: Sequence[Any],
    names: Names,
    Y: FloatArray,
    kernel: KernelLike,
    estimator: Estimator,
) -> Scaled:
    """Inner products (p + 1, p + 1) of the linear kernels of arrays on a device and of targets Y (n, C)."""
    refuse_other_kernels(kernel)
    checked = check_matrices(xp, names, arrays)
    targets = to_device(xp, times_power(Y, -safe_scale(Y)), checked[0])
    values, scales = device_products(xp, [*checked, targets], [*names, "y"], estimator, True)
    mantissas, exponents = np.frexp(scales)  # of the squared scale, without overflow
    mantissas = np.square(mantissas)
    return Scaled(
        values * np.outer(mantissas, mantissas), 2 * exponents.astype(int), np.zeros(len(values), dtype=bool)
    )


def refuse_other_kernels(kernel: KernelLike) -> None:
    """Raise unless the kernel is linear."""
    if not (isinstance(kernel, str) and kernel == "linear"):
        raise ValueError("Arrays on a device support kernel='linear' only: convert them to NumPy for others.")


def device_products(
    xp: ModuleType,
    arrays: Sequence[Any],
    names: Names,
    estimator: Estimator,
    center: bool,
    split: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Inner products (p, p) of linear kernels of rows divided by their scales, and these scales (p,).

    Products of matrices run in the dtype of the arrays; only (p, p) numbers reach the host.
    """
    n = arrays[0].shape[0]
    check_convention(estimator, center, n)
    rows, scales = [], []
    for X, name in zip(arrays, names, strict=True):
        unit, scale = unit_rows(xp, X, center, name)
        rows.append(unit)
        scales.append(scale)
    norms = [xp.sum(X * X, axis=1) for X in rows]
    p = len(rows)
    first = range(p) if split is None else range(split)
    wanted = {(k, m) for k in first for m in range(k if split is None else split, p)} | {
        (k, k) for k in range(p)
    }
    products: FloatArray = np.zeros((p, p))
    diagonals = np.zeros((p, p))
    for k, m in sorted(wanted):
        products[k, m] = products[m, k] = float(squared_norm(xp, rows[k], rows[m]))
        diagonals[k, m] = diagonals[m, k] = float(xp.sum(norms[k] * norms[m]))
    if estimator == "unbiased":
        traces = to_host(xp, xp.stack([xp.sum(each) for each in norms]))
        products = without_diagonals(products, diagonals, traces, n, center)
    for name, value, scale in zip(names, np.diag(products), np.diag(diagonals), strict=True):
        if value <= 1e-6 * scale / n:
            raise ValueError(constant_message(name, estimator))
    return products, np.array(scales)


def unit_rows(xp: ModuleType, X: Any, center: bool, name: Any) -> tuple[Any, float]:
    """Rows about their mean, divided by the root of their mean squared norm, and this root."""
    largest = xp.max(xp.abs(X))
    if float(largest) == 0:
        raise ValueError(constant_message(name))
    X = X / largest  # squares cannot overflow
    if center:
        residual = X - X[:1, :]
        residual = residual - xp.mean(residual, axis=0, keepdims=True)
        if float(xp.max(xp.abs(residual))) <= 8 * xp.finfo(X.dtype).eps:
            raise ValueError(constant_message(name))
        X = residual
    root = xp.sqrt(xp.sum(X * X) / X.shape[0])
    return X / root, float(root) * float(largest)


def squared_norm(xp: ModuleType, X: Any, Y: Any) -> Any:
    """|XᵀY|² = <X Xᵀ, Y Yᵀ> from the smaller of the matrices (d_x, d_y) and (n, n)."""
    n = X.shape[0]
    if X.shape[1] * Y.shape[1] <= n * n:
        product = xp.matmul(X.T, Y)
        return xp.sum(product * product)
    return xp.sum(xp.matmul(X, X.T) * xp.matmul(Y, Y.T))
