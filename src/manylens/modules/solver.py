"""The modular loss, its lower bound and the direct solver that attains it.

Notation: q the spectrum (eigenvalues of the kernel's covariance, or singular values of the centered data over
sqrt(n)), M modules of H directions each, K = M H, λ the diversity. Module m is F_m (H, K) in the coordinates
of the principal components, G_m = F_mᵀ F_m its Gram matrix, Ḡ their mean, Q = diag(q), and the loss is

    L = (1-λ)/M Σ_m |G_m - Q|² + λ |Ḡ - Q|².

The lower bound (docs/theory.md) is a function of t, the eigenvalues of Ḡ, and g, the mean eigenvalues of the
modules. Its closed form is pooled water-filling: the K coordinates are split into H slots of one head and
M - 1 tail coordinates, each with a water level; neighboring slots whose levels are out of order are pooled.

Within a block of slots the modules are sqrt(g) W_m, where the W_m form a fusion frame: W_m W_mᵀ = I and
Σ_m W_mᵀ W_m = M diag(τ), τ = t/g. Random frames, found by alternating projections and Newton's method, make
the modules exchangeable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from manylens.native.threads import one_blas_thread
from manylens.reprs import result_table
from manylens.typing import FloatArray, IntArray
from manylens.validation import require_memory

ROUNDING = 16 * np.finfo(np.float64).eps  # relative rounding error of the terms of the loss
NEGLIGIBLE = 1e-13  # share of the level below which a coverage is rounding error
VANISHING = 1e-10  # diversity below which (q - (1-λ) g)/λ is rounding error; λ changes the loss by < λ |q|²
POLISH_ABOVE = 1e-9  # relative residual of a frame above which the modules are polished as a whole
# Alternating projections converge slowly: Newton's method takes over when the error is below CLOSE.
WARM_UP, CLOSE = 30, 0.1


# Solution and certificate


@dataclass(frozen=True)
class ModularSolution:
    """Modules in the coordinates of a spectrum, with their certificate."""

    modules: FloatArray  # (M, H, K) F_m; the rows of each module are orthogonal, longest first
    coverage: FloatArray  # (K,) diagonal of Ḡ: how much of each coordinate all modules together keep
    n_shared: int  # number of coordinates that every module keeps in full
    loss: float
    lower_bound: float  # on the loss of any modules of this shape
    energy: float  # |q|², the loss of keeping nothing

    @property
    def optimality_gap(self) -> float:
        """(loss - bound)/bound, or relative to the energy if the bound is zero up to rounding."""
        scale = self.lower_bound if self.lower_bound > 1e-9 * self.energy else self.energy
        excess = self.loss - self.lower_bound
        # The loss is a difference of terms of the size of the energy, so it is known up to their rounding.
        return excess / scale if scale > 0 and excess > ROUNDING * self.energy else 0.0

    @property
    def has_gap(self) -> bool:
        """Whether the loss is above the bound by more than rounding."""
        return self.loss - self.lower_bound > 1e-9 * self.energy


def solve_modules(
    spectrum: FloatArray, M: int, H: int, diversity: float, rng: Generator, energy: float | None = None
) -> ModularSolution:
    """Modules (M, H, M min(H, k)) of minimal loss for eigenvalues or singular values (k,), largest first.

    Diversity 1 is the limit λ -> 1, which selects the balanced one among the many minimizers. `energy` is
    |q|² of the whole spectrum if the given one is truncated.
    """
    M, H = int(M), int(H)  # products of NumPy's types may be floats
    spectrum = np.asarray(spectrum, dtype=np.float64)
    energy = float(spectrum @ spectrum) if energy is None else energy
    if 0 < len(spectrum) < H:  # modules have no more dimensions than the rows; the other ones are zero
        require_memory(16.0 * M * H * len(spectrum), f"A set of {M} modules of {H} dimensions")
        solution = solve_modules(spectrum, M, len(spectrum), diversity, rng, energy)
        zeros = np.zeros((M, H - len(spectrum), solution.modules.shape[2]))
        padded = np.concatenate([solution.modules, zeros], axis=1)
        return replace(solution, modules=padded, coverage=pad_spectrum(solution.coverage, M * H))
    K = M * H
    require_memory(3 * 8.0 * K * K, f"Solving for {M} modules of {H} dimensions")
    padded = pad_spectrum(spectrum, K)
    scale = padded[0] if K and padded[0] > 0 else 1.0
    q = padded / scale
    blocks = pooled_blocks(q, M, H, diversity, pool=M != 2)
    if M >= 3:
        blocks = attainable_blocks(blocks, q, M, diversity)
    modules: FloatArray = np.zeros((M, H, K))
    worst, row = 0.0, 0
    with one_blas_thread():
        for block in blocks:
            used = block.coverage > NEGLIGIBLE * block.level
            tau = block.coverage[used] / block.level
            frames, error = fusion_frame(tau, M, min(block.rank, len(tau)), rng)
            where = np.arange(row, row + frames.shape[1])
            modules[:, where[:, None], block.coordinates[used]] = np.sqrt(block.level) * frames
            row, worst = row + block.rank, max(worst, error)
        if worst > POLISH_ABOVE:
            modules = polish(modules, q, diversity)
        return certify(modules * np.sqrt(scale), padded, diversity, energy)


def certify(
    modules: FloatArray, spectrum: FloatArray, diversity: float, energy: float | None = None
) -> ModularSolution:
    """Loss, lower bound and coverage of any modules (M, H, K) on a spectrum (K,)."""
    M, H, _ = modules.shape
    energy = float(spectrum @ spectrum) if energy is None else energy
    modules = orthogonal_rows(modules)
    coverage = np.einsum("mhk,mhk->k", modules, modules) / M
    loss = modular_loss(modules, spectrum, diversity, energy)
    bound = lower_bound(spectrum, M, H, diversity, energy)
    return ModularSolution(modules, coverage, count_shared(modules), max(loss, 0.0), bound, energy)


def dropping_diversity(keep_probability: float, n_modules: int) -> float:
    """The diversity λ = M p / (1 + p (M-1)) that corresponds to keeping modules with probability p."""
    if not 0 < keep_probability <= 1:
        raise ValueError(
            f"keep_probability={keep_probability} is outside (0, 1]: it is the probability with which a "
            "module answers."
        )
    return n_modules * keep_probability / (1 + keep_probability * (n_modules - 1))


def for_dropped_modules(solution: ModularSolution, keep_probability: float) -> ModularSolution:
    """The minimizer of the expected loss when every module answers with probability p, from that at λ(p).

    The expected loss E |1/M Σ_m η_m G_m - Q|², with η_m independent and 1 with probability p, is (1-λ) |q|² +
    λ L of the modules at sqrt(p/λ) F, so its minimizers are sqrt(λ/p) times those of L.
    """
    diversity = dropping_diversity(keep_probability, len(solution.modules))
    stretch, rest = diversity / keep_probability, (1 - diversity) * solution.energy
    return replace(
        solution,
        modules=np.sqrt(stretch) * solution.modules,
        coverage=stretch * solution.coverage,
        loss=rest + diversity * solution.loss,
        lower_bound=rest + diversity * solution.lower_bound,
    )


def polish(modules: FloatArray, spectrum: FloatArray, diversity: float, max_iter: int = 5000) -> FloatArray:
    """Lower the loss of all modules (M, H, K) together by L-BFGS; the result is never worse."""
    shape = modules.shape

    def value(flat: FloatArray) -> tuple[float, FloatArray]:
        loss, gradient = loss_and_gradient(flat.reshape(shape), spectrum, diversity)
        return loss, gradient.ravel()

    options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "ftol": 1e-15, "gtol": 1e-12, "maxcor": 20}
    found = minimize(value, modules.ravel(), jac=True, method="L-BFGS-B", options=options)
    better = found.fun <= modular_loss(modules, spectrum, diversity)
    return found.x.reshape(shape) if better else modules


def orthogonal_rows(modules: FloatArray) -> FloatArray:
    """Rotate the rows of each module to be orthogonal, longest first; the Gram matrices stay the same."""
    values, vectors = np.linalg.eigh(modules @ modules.swapaxes(1, 2))
    off_diagonal = np.abs(modules @ modules.swapaxes(1, 2) - values[:, ::-1, None] * np.eye(modules.shape[1]))
    if off_diagonal.max(initial=0.0) <= 1e-12 * values.max(initial=0.0):
        return modules  # already orthogonal: keep the random rotation of rows of equal length
    return vectors.swapaxes(1, 2)[:, ::-1] @ modules


def count_shared(modules: FloatArray) -> int:
    """Number of coordinates for which all G_m have the same diagonal entry and zeros in the column."""
    own = np.einsum("mhk,mhk->mk", modules, modules)
    rows = modules @ modules.swapaxes(1, 2)  # column norms of F'F are the diagonal of F'(FF')F, without K x K
    columns = np.einsum("mhk,mhk->mk", modules, rows @ modules)
    return count_equal(own, np.sqrt(np.maximum(columns - own**2, 0.0)))


def count_equal(own: FloatArray, off_diagonal: FloatArray) -> int:
    """Number of coordinates with equal diagonals `own` (M, K) and `off_diagonal` norms (M, K) of zero."""
    largest, tolerance = own.max(initial=0.0), 1e-6
    same = np.ptp(own, axis=0) <= tolerance * largest
    alone = off_diagonal.max(axis=0) <= np.sqrt(tolerance) * largest
    return int(np.sum(same & alone & (own.min(axis=0) > tolerance * largest)))


# The loss


@dataclass(frozen=True)
class Ambiguity:
    """The parts of the modular loss: ensemble = individual - diversity.

    Parameters
    ----------
    individual : float
        Mean loss of single modules.
    diversity : float
        Mean squared deviation of the modules from their mean.
    ensemble : float
        Loss of the mean of all modules.
    """

    individual: float
    diversity: float
    ensemble: float

    _repr_html_ = result_table


def modular_loss(
    modules: FloatArray, spectrum: FloatArray, diversity: float, energy: float | None = None
) -> float:
    """Loss L of modules (M, H, K); `energy` is |q|² if the spectrum is longer than the K values given."""
    return loss_and_gradient(modules, spectrum, diversity, energy)[0]


def loss_and_gradient(
    modules: FloatArray, spectrum: FloatArray, diversity: float, energy: float | None = None
) -> tuple[float, FloatArray]:
    """Loss L of modules (M, H, K) and its derivative, of the same shape.

    With B = F Fᵀ for the stacked F (MH, K), |Ḡ|² = |B|²/M² and |G_m|² are the norms of its diagonal blocks.
    """
    M, H, K = modules.shape
    energy = float(spectrum @ spectrum) if energy is None else energy
    stacked = modules.reshape(M * H, K)
    gram = stacked @ stacked.T
    own = gram.reshape(M, H, M, H)[np.arange(M), :, np.arange(M), :]
    weighted = stacked * spectrum
    individual, together = np.sum(own**2) / M, np.sum(gram**2) / M**2
    loss = (1 - diversity) * individual + diversity * together - 2 / M * np.sum(stacked * weighted) + energy
    gradient = (1 - diversity) / M * np.matmul(own, modules)
    gradient += ((diversity / M**2) * (gram @ stacked) - weighted / M).reshape(M, H, K)
    return float(loss), 4 * gradient


def ambiguity(modules: FloatArray, spectrum: FloatArray, energy: float | None = None) -> Ambiguity:
    """Ambiguity decomposition: mean_m |G_m - Q|² = |Ḡ - Q|² + mean_m |G_m - Ḡ|²."""
    individual = modular_loss(modules, spectrum, 0.0, energy)
    ensemble = modular_loss(modules, spectrum, 1.0, energy)
    return Ambiguity(individual, individual - ensemble, ensemble)


# The lower bound


@dataclass(frozen=True)
class Block:
    """Coordinates that share one water level."""

    coordinates: IntArray  # (k,) indices into the spectrum
    rank: int  # h, the number of directions of each module in them
    level: float  # g, the common eigenvalue of those directions
    coverage: FloatArray  # (k,) t: how much of each coordinate all modules together keep; Σ t = h g


def water_level(spectrum: FloatArray, rank: int, diversity: float) -> float:
    """Common eigenvalue g of h directions in a block: max over n of (q_1 + ... + q_n) / (λ h + (1-λ) n)."""
    n = np.arange(1, len(spectrum) + 1)
    return float(np.max(np.cumsum(spectrum) / (diversity * rank + (1 - diversity) * n)))


def fill(spectrum: FloatArray, rank: int, level: float, diversity: float) -> FloatArray:
    """Coverage at a water level: t = max(0, (q - (1-λ) g)/λ), scaled to Σ t = h g; at λ = 0 the h largest."""
    if diversity < VANISHING:
        return np.where(np.arange(len(spectrum)) < rank, spectrum, 0.0)
    coverage = np.maximum(0.0, (spectrum - (1 - diversity) * level) / diversity)
    total = coverage.sum()
    return coverage * (rank * level / total) if total > 0 else coverage


def slot_coordinates(first: int, last: int, M: int, H: int) -> IntArray:
    """Coordinates of the slots first ... last-1: their heads, then their tails, M per slot."""
    tail_start = last + M * (H - last)
    tail_end = first + M * (H - first)
    return np.r_[first:last, tail_start:tail_end]


def pooled_blocks(spectrum: FloatArray, M: int, H: int, diversity: float, pool: bool = True) -> list[Block]:
    """Blocks of positive level that minimize the bound; without `pool` each slot is one block."""

    def span(first: int, last: int) -> tuple[int, int, float]:
        where = slot_coordinates(first, last, M, H)
        return first, last, water_level(spectrum[where], last - first, diversity)

    spans: list[tuple[int, int, float]] = []
    for slot in range(H):
        spans.append(span(slot, slot + 1))
        while pool and len(spans) > 1 and spans[-2][2] < spans[-1][2]:
            (first, _, _), (_, last, _) = spans[-2:]
            spans[-2:] = [span(first, last)]
    found = [(slot_coordinates(a, b, M, H), b - a, g) for a, b, g in spans if g > 0]
    return [Block(where, h, g, fill(spectrum[where], h, g, diversity)) for where, h, g in found]


def attainable_blocks(blocks: list[Block], spectrum: FloatArray, M: int, diversity: float) -> list[Block]:
    """Replace blocks whose coverage is impossible for M >= 3 subspaces by the nearest possible ones.

    With n coordinates in use and h < n < h M/(M-1), the modules' subspaces are so large that they all
    intersect: the leading k = h M - n (M-1) coordinates are then shared by all modules (t = g = q), and the
    other coordinates get another level.
    """
    waiting, done = list(blocks), []
    while waiting:
        block = waiting.pop(0)
        used = int(np.sum(block.coverage > NEGLIGIBLE * block.level))
        n_shared = block.rank * M - used * (M - 1)
        if used <= block.rank or n_shared <= 0:
            done.append(block)
            continue
        shared = block.coordinates[:n_shared]
        done.extend(Block(np.array([i]), 1, float(spectrum[i]), spectrum[[i]]) for i in shared)
        rank, rest = block.rank - n_shared, block.coordinates[n_shared:]
        if rank > 0:
            level = water_level(spectrum[rest], rank, diversity)
            if level > 0:
                waiting.insert(0, Block(rest, rank, level, fill(spectrum[rest], rank, level, diversity)))
    return done


def block_loss(blocks: list[Block], spectrum: FloatArray, diversity: float, energy: float) -> float:
    """Loss of modules that attain the blocks: (1-λ) Σ h g² + λ |t|² - 2 <t, q> + |q|²."""
    loss = energy
    for block in blocks:
        t, q = block.coverage, spectrum[block.coordinates]
        loss += float((1 - diversity) * block.rank * block.level**2 + diversity * (t @ t) - 2 * (t @ q))
    return loss


def lower_bound(spectrum: FloatArray, M: int, H: int, diversity: float, energy: float | None = None) -> float:
    """Lower bound on the loss of any modules of this shape; `energy` is |q|² if the spectrum is truncated.

    For M = 2 the slots are not pooled: G_1 + G_2 = S with ranks at most H implies |G_1 - G_2|² >= 2 Σ_i
    s_i s_(2H+1-i) (S^(-1/2) (G_1 - G_2) S^(-1/2) is a reflection J, and tr(S J S J) is smallest if the
    eigenvalues are paired in opposite order), so each pair is minimized independently.
    """
    energy = float(np.sum(np.square(spectrum))) if energy is None else energy
    padded = pad_spectrum(spectrum, M * H)
    blocks = pooled_blocks(padded, M, H, diversity, pool=M != 2)
    return max(0.0, block_loss(blocks, padded, diversity, energy))


def pad_spectrum(spectrum: FloatArray, length: int) -> FloatArray:
    """The first `length` values in float64, followed by zeros if there are fewer."""
    padded = np.zeros(length)
    padded[: min(len(spectrum), length)] = spectrum[:length]
    return padded


# Fusion frames


def fusion_frame(tau: FloatArray, M: int, rank: int, rng: Generator) -> tuple[FloatArray, float]:
    """Random W (M, h, n) with W_m W_mᵀ = I and Σ_m W_mᵀ W_m = M diag(τ), and its relative residual.

    τ is in (0, 1], Σ τ = h and n <= M h. If n = M h and all τ are nearly equal, Newton's operator is nearly
    singular: a residual of 1e-3 can remain, which `polish` removes.
    """
    n = len(tau)
    if n == rank:  # every module keeps the whole space, in random coordinates
        return np.linalg.qr(rng.standard_normal((M, n, n)))[0], 0.0
    weights = M * tau
    size = np.linalg.norm(weights)

    def error_of(frames: FloatArray) -> float:
        return float(np.linalg.norm(residual(frames, weights)) / size)

    frames = polar(rng.standard_normal((M, rank, n)) * np.sqrt(tau))
    for _ in range(WARM_UP // 2):
        frames = alternate(frames, weights, 2)
        error = error_of(frames)
        if error < CLOSE:
            break
    for _ in range(60):
        if error <= 1e-10:
            break
        # A rough direction is enough at first; near the solution, quadratic convergence needs accuracy.
        forcing = min(0.1, max(error, 1e-3)) if error > 1e-6 else 1e-3
        direction = newton_direction(frames, tau, residual(frames, weights), forcing)
        step = 1.0
        while step >= 1e-3:
            candidate = polar(frames + step * direction)
            reached = error_of(candidate)
            if reached < error * (1 - 0.1 * step):
                break
            step /= 2
        else:
            candidate = alternate(frames, weights, 20)
            reached = error_of(candidate)
            if reached >= 0.999 * error:
                break
        frames, error = candidate, reached
    return frames, error


def polar(matrices: FloatArray) -> FloatArray:
    """Nearest matrices with orthonormal rows, (A Aᵀ)^(-1/2) A for each A (h, n) of a stack.

    If the rows of an A are dependent there is no such matrix; the result is then finite, but not orthonormal.
    """
    values, vectors = np.linalg.eigh(matrices @ matrices.swapaxes(-1, -2))
    least = np.finfo(float).eps ** 2 * values[..., -1:] + np.finfo(float).tiny
    scaled = vectors / np.sqrt(np.maximum(values, least))[..., None, :]
    return scaled @ (vectors.swapaxes(-1, -2) @ matrices)


def alternate(frames: FloatArray, weights: FloatArray, steps: int) -> FloatArray:
    """Alternating projections of frames (M, h, n) between the two conditions; `weights` are M τ (n,)."""
    M, h, n = frames.shape
    root = np.sqrt(weights)
    for _ in range(steps):
        columns = polar((frames.reshape(M * h, n) * root).T).T * root
        frames = polar(columns.reshape(M, h, n))
    return frames


def residual(frames: FloatArray, weights: FloatArray) -> FloatArray:
    """M diag(τ) - Σ_m W_mᵀ W_m, shape (n, n)."""
    stacked = frames.reshape(-1, frames.shape[2])
    return np.diag(weights) - stacked.T @ stacked


def newton_direction(frames: FloatArray, tau: FloatArray, missing: FloatArray, forcing: float) -> FloatArray:
    """Change of the frames (M, h, n) that removes the residual `missing` (n, n) to first order.

    Steps dW_m = W_m Ω (I - P_m), P_m = W_mᵀ W_m, keep the rows orthonormal and change the sum by
    Σ_m (P_m Ω + Ω P_m - 2 P_m Ω P_m). The symmetric Ω is found by conjugate gradients to a relative accuracy
    `forcing`, preconditioned by the average of the operator, M (τ_i + τ_j - 2 τ_i τ_j).
    """
    M, h, n = frames.shape
    stacked, transposed = frames.reshape(M * h, n), frames.swapaxes(1, 2)

    def tangent(omega: FloatArray) -> FloatArray:
        moved = (stacked @ omega).reshape(M, h, n)
        return moved - (moved @ transposed) @ frames

    def change(flat: FloatArray) -> FloatArray:
        product = stacked.T @ tangent(flat.reshape(n, n)).reshape(M * h, n)
        return (product + product.T).ravel()

    average = M * (tau[:, None] + tau - 2 * np.outer(tau, tau))
    # The average vanishes for coordinates that nearly all modules share, so it is bounded below.
    average = np.maximum(average, 1e-3 * M * np.minimum(tau[:, None], tau)).ravel()
    operator = LinearOperator((n * n, n * n), matvec=change, dtype=float)
    scale = LinearOperator((n * n, n * n), matvec=lambda flat: flat / average, dtype=float)
    omega, _ = cg(operator, missing.ravel(), rtol=forcing, maxiter=300, M=scale)
    omega = omega.reshape(n, n)
    return tangent((omega + omega.T) / 2)
