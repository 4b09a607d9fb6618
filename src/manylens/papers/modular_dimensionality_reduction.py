"""Modular dimensionality reduction: the paper's algorithms, with misprints corrected.

Notation: q (k,) is the spectrum, the eigenvalues of the centered kernel over n, largest first; in its
coordinates the compressed data of Proposition 5 are diagonal, Q = diag(q). M modules of H dimensions are F
(M, H, k), λ is the diversity. `ModularKernelPCA.with_modules` certifies and uses them:

>>> import numpy as np
>>> from sklearn.datasets import load_iris
>>> from manylens import ModularKernelPCA
>>> from manylens.papers.modular_dimensionality_reduction import module_by_module
>>> lenses = ModularKernelPCA(3, 2, diversity=0.9, random_state=0).fit(load_iris().data)
>>> found = module_by_module(lenses.spectrum_, 3, 2, 0.9, rng=np.random.default_rng(0), tol=1e-9)
>>> lenses.with_modules(found.modules).optimality_gap_ < 1e-3
True

Corrections: the diversity term of Definitions 2 and 3 is subtracted, RT keeps the largest signed eigenvalues,
the drop-module update descends, and the factor in Theorem 2 is sqrt(p λ) at sqrt(p/λ) Φ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from manylens.kernels.spectrum import largest_eigenpairs
from manylens.metric.optimizers import Adam, Schedule
from manylens.modules.solver import dropping_diversity, loss_and_gradient, modular_loss
from manylens.papers.modular_autoencoders import Descent, descend
from manylens.typing import AnyArray, FloatArray

PairGradient = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]

# Losses by definition, on n x n matrices


def inner_product_loss(rows: FloatArray, gram: FloatArray) -> float:
    """Definition 1: mean over pairs of (<φ(x_i), φ(x_j)> - k(x_i, x_j))²; rows (n, H), gram (n, n)."""
    return float(np.mean((rows @ rows.T - gram) ** 2))


def modular_inner_product_loss(modules: Sequence[FloatArray], gram: FloatArray, diversity: float) -> float:
    """Definition 3: mean loss of the modules, each (n, H), minus λ times the variance of inner products."""
    products = np.stack([rows @ rows.T for rows in modules])
    individual = np.mean([inner_product_loss(rows, gram) for rows in modules])
    return float(individual - diversity * np.mean(np.var(products, axis=0)))


def drop_module_loss(modules: Sequence[FloatArray], gram: FloatArray, keep_probability: float) -> float:
    """Section 5: expected loss of a random subset of modules, by enumeration of all 2^M subsets."""
    M = len(modules)
    products = np.stack([rows @ rows.T for rows in modules])
    total = 0.0
    for code in range(2**M):
        kept = (code >> np.arange(M)) & 1
        probability = np.prod(np.where(kept, keep_probability, 1 - keep_probability))
        total += float(probability * np.mean((np.tensordot(kept, products, 1) / M - gram) ** 2))
    return total


# Section 4: the module-by-module algorithm


def approximate_root(matrix: FloatArray, rank: int) -> FloatArray:
    """RT_r (Definition 5): F (r, d) that minimizes |Fᵀ F - matrix|, from the largest eigenvalues above 0."""
    values, vectors = largest_eigenpairs(matrix, rank)
    root = np.zeros((rank, len(matrix)))
    root[: len(values)] = (vectors * np.sqrt(np.maximum(values, 0.0))).T[::-1]
    return root


def random_modules(q: FloatArray, M: int, H: int, rng: Generator) -> FloatArray:
    """Random modules (M, H, k) of about the same size as the best ones."""
    return rng.standard_normal((M, H, len(q))) * np.sqrt(q / (2 * H))


def module_by_module(
    q: FloatArray, M: int, H: int, diversity: float, *, rng: Generator, epsilon: float = 1e-3, **options: Any
) -> Descent[FloatArray]:
    """Algorithm 1: in every epoch, set each module in turn to its best while the others stay fixed.

    Module m becomes RT_H(T), T = c (Q - (λ/M) S_m + ε F_mᵀ F_m), S_m = Σ_{q≠m} F_qᵀ F_q and
    c = 1/((1-λ) + λ/M + ε) (Propositions 4 and 10). ε > 0 keeps a module near its previous value: every
    update minimizes the loss plus (ε/M) |G_m - G_m(before)|², so an epoch lowers the loss by at least
    (ε/M) Σ_m |change of G_m|², G_m = F_mᵀ F_m, and stops only at a critical point (Theorem 1).
    The options are `max_iter` and `tol` of `descend`.
    """
    if not epsilon > 0:
        raise ValueError(
            f"epsilon={epsilon} is not positive, as Algorithm 1 and the proof of Theorem 1 need."
        )
    Q = np.diag(q)
    c = 1 / ((1 - diversity) + diversity / M + epsilon)

    def epoch(F: FloatArray) -> FloatArray:
        F = F.copy()
        S = np.einsum("mhi,mhj->ij", F, F, optimize=True)
        for m in range(M):
            own = F[m].T @ F[m]
            S_m = S - own
            T = c * (Q - (diversity / M) * S_m + epsilon * own)
            F[m] = approximate_root(T, H)
            S = S_m + F[m].T @ F[m]
        return F

    start, small = random_modules(q, M, H, rng), len(q) < 500
    return descend(start, epoch, lambda F: modular_loss(F, q, diversity), small=small, **options)


# Section 6.1: gradient methods


class ConstantRate(Schedule):
    """The same learning rate at every step."""

    def share(self, step: int) -> float:
        return 1.0


def compressed_adam(
    q: FloatArray,
    M: int,
    H: int,
    diversity: float,
    rng: Generator,
    learning_rate: float = 0.01,
    **options: Any,
) -> Descent[FloatArray]:
    """Adam on the loss of the compressed data (Proposition 5); the learning rate is in units of sqrt(q_1)."""
    start, small = random_modules(q, M, H, rng), len(q) < 500
    optimizer = Adam(start.ravel(), ConstantRate())
    optimizer.length = learning_rate * np.sqrt(q[0])

    def step(F: FloatArray) -> FloatArray:
        gradient = loss_and_gradient(F, q, diversity)[1]
        return F - optimizer.step(gradient.ravel()).reshape(F.shape)

    return descend(start, step, lambda F: modular_loss(F, q, diversity), window=10, small=small, **options)


def sgd_on_pairs(
    rows: FloatArray, M: int, H: int, diversity: float, *, rng: Generator, **options: Any
) -> Descent[FloatArray]:
    """Stochastic gradient descent on pairs of rows; the options are those of `descend_on_pairs`."""

    def gradient(W: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
        return pair_gradient(W, left, right, diversity)

    return descend_on_pairs(rows, (M, H), gradient, diversity, rng, **options)


def drop_module(
    rows: FloatArray, M: int, H: int, keep_probability: float, *, rng: Generator, **options: Any
) -> Descent[FloatArray]:
    """The drop-module algorithm (Section 5): `sgd_on_pairs` with modules dropped at random.

    Its minimizers are those of the modular loss at λ = M p/(1 + p (M-1)), times sqrt(λ/p) (Theorem 2). The
    modules returned are scaled back, and the path is the modular loss at that λ.
    """
    diversity = dropping_diversity(keep_probability, M)

    def gradient(W: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
        kept = (rng.random((len(left), M)) < keep_probability).astype(float)
        return drop_gradient(W, left, right, kept)

    shrink = float(np.sqrt(keep_probability / diversity))
    return descend_on_pairs(rows, (M, H), gradient, diversity, rng, shrink, **options)


def dropping_probability(diversity: float, n_modules: int) -> float:
    """Theorem 2: the keep probability p = λ / (M - λ (M-1)) that corresponds to a diversity."""
    if diversity == 0:
        raise ValueError(
            "At diversity=0 every module is dropped and nothing is learned: raise the diversity."
        )
    return diversity / (n_modules - diversity * (n_modules - 1))


def pair_gradient(W: FloatArray, left: FloatArray, right: FloatArray, diversity: float) -> FloatArray:
    """Gradient of the modular loss with respect to weights W (M, H, r), over pairs of rows (B, r).

    With s_m = (W_m x).(W_m y) and k = x.y the loss of a pair is (1-λ) mean_m (s_m - k)² + λ (s̄ - k)².
    """
    M = len(W)
    x_modules, y_modules, products, target = _pair_products(W, left, right)
    together = products.mean(axis=1) - target
    slope = 2 / M * ((1 - diversity) * (products - target[:, None]) + diversity * together[:, None])
    return _pull_back(slope, left, right, x_modules, y_modules)


def drop_gradient(W: FloatArray, left: FloatArray, right: FloatArray, kept: FloatArray) -> FloatArray:
    """Gradient of the drop-module loss (1/M Σ_m η_m s_m - k)² over pairs; `kept` (B, M) are the η."""
    M = len(W)
    x_modules, y_modules, products, target = _pair_products(W, left, right)
    together = np.mean(kept * products, axis=1) - target
    return _pull_back(2 / M * kept * together[:, None], left, right, x_modules, y_modules)


def _pair_products(
    W: FloatArray, left: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Modules of both rows of each pair (B, M, H), their inner products (B, M) and those of the rows (B,)."""
    M, H, r = W.shape
    flat = W.reshape(M * H, r).T
    x_modules, y_modules = (left @ flat).reshape(-1, M, H), (right @ flat).reshape(-1, M, H)
    products = np.einsum("bmh,bmh->bm", x_modules, y_modules)
    return x_modules, y_modules, products, np.einsum("br,br->b", left, right)


def _pull_back(
    slope: FloatArray, left: FloatArray, right: FloatArray, x_modules: FloatArray, y_modules: FloatArray
) -> FloatArray:
    """Gradient with respect to W from that with respect to the inner products, averaged over pairs."""
    B, M, H = x_modules.shape
    by_left = (slope[:, :, None] * y_modules).reshape(B, M * H)
    by_right = (slope[:, :, None] * x_modules).reshape(B, M * H)
    return ((by_left.T @ left + by_right.T @ right) / B).reshape(M, H, -1)


def descend_on_pairs(
    rows: FloatArray,
    shape: tuple[int, int],
    gradient: PairGradient,
    diversity: float,
    rng: Generator,
    shrink: float = 1.0,
    max_iter: int = 500,
    tol: float = 1e-6,
    learning_rate: float = 0.5,
    batch_size: int = 64,
) -> Descent[FloatArray]:
    """Descend on weights W (M, H, k), in epochs of n random pairs of rows, in principal coordinates (n, k).

    The path is the modular loss of `shrink` times W. The learning rate is relative to the curvature of an
    average pair, falls as 1/(1 + epoch/30), and is halved whenever an epoch more than doubles the loss.
    """
    q = np.mean(rows**2, axis=0)
    n, M = len(rows), shape[0]
    start = rng.standard_normal((*shape, len(q))) / np.sqrt(2 * shape[1] * np.sum(q > 0.01 * q[0]))
    # The curvature of a pair is at most the product of its squared norms, q.sum() on average.
    rate, epochs = learning_rate * M / (q[0] * q.sum()), 0

    def loss_of(W: FloatArray) -> float:
        return modular_loss(shrink * W * np.sqrt(q), q, diversity)

    def epoch(W: FloatArray) -> FloatArray:
        nonlocal rate, epochs
        before = W
        for _ in range(max(1, n // batch_size)):
            left, right = rows[rng.integers(n, size=batch_size)], rows[rng.integers(n, size=batch_size)]
            W = W - rate / (1 + epochs / 30) * gradient(W, left, right)
        if not loss_of(W) < 2 * loss_of(before):  # the step is too long: undo the epoch and halve it
            rate /= 2
            return before
        epochs += 1
        return W

    found = descend(start, epoch, loss_of, max_iter, tol, window=5)
    return replace(found, modules=shrink * found.modules * np.sqrt(q))


# Section 6.2: classification


def pooled_vote(neighbor_labels: AnyArray) -> AnyArray:
    """Most frequent of the M k neighbor labels (M, n, k) of each row (Tables 2 and 3); the first if tied."""
    classes, codes = np.unique(neighbor_labels, return_inverse=True)
    codes = codes.reshape(np.shape(neighbor_labels))
    counts = np.stack([np.sum(codes == c, axis=(0, 2)) for c in range(len(classes))], axis=1)
    return classes[np.argmax(counts, axis=1)]
