"""The modular loss, its gradient, its parts and its lower bound, in the coordinates of a spectrum.

Letters: q the spectrum, M modules of H directions each, K = M H, λ the diversity. Module m is a matrix F_m of
shape (H, K) in the coordinates of the principal components, and G_m = F_mᵀ F_m is the Gram matrix that it
keeps. With Ḡ the mean of the G_m and Q = diag(q) the loss of both papers is

    L = (1-λ)/M Σ_m |G_m - Q|² + λ |Ḡ - Q|²,

where q are the eigenvalues of the kernel's covariance (modular kernel PCA) or the singular values of the
centered data over sqrt(n) (linear modular autoencoder).

The lower bound (docs/theory.md) depends only on t, the eigenvalues of Ḡ, and on g, the mean eigenvalues of
the modules. It has a closed form, pooled water-filling: the K coordinates are split into H slots of M
coordinates, one head and M - 1 tail coordinates each; every slot has its own water level; neighboring slots
whose levels are out of order are pooled.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from manylens.typing import FloatArray, IntArray

NEGLIGIBLE = 1e-13  # share of the level below which a coverage is rounding
VANISHING = 1e-10  # diversity below which (q - (1-λ) g)/λ is rounding; λ moves the loss by less than λ |q|²


def check_diversity(diversity: Any) -> float:
    """`diversity` as a float; raise unless it is a number in [0, 1]."""
    is_number = isinstance(diversity, numbers.Real) and not isinstance(diversity, bool)
    if not is_number or not 0 <= float(diversity) <= 1:
        fault = "is outside [0, 1]" if is_number else "is not a number in [0, 1]"
        raise ValueError(
            f"diversity={diversity!r} {fault}: above 1 the loss has no minimum (the modules diverge: Theorem "
            "1 of the modular autoencoder paper), below 0 it rewards modules for being equal. Use a value "
            "just below 1 for retrieval, 0.2-0.9 for voting."
        )
    return float(diversity)


@dataclass(frozen=True)
class Ambiguity:
    """The parts of the modular loss: ensemble = individual - diversity.

    Parameters
    ----------
    individual : float
        Mean loss of the modules, each by itself.
    diversity : float
        Mean squared deviation of the modules from their mean.
    ensemble : float
        Loss of the mean of all modules.
    """

    individual: float
    diversity: float
    ensemble: float


def modular_loss(
    modules: FloatArray, spectrum: FloatArray, diversity: float, energy: float | None = None
) -> float:
    """Loss L of modules (M, H, K); `energy` is |q|² if the spectrum is longer than the K values given."""
    return loss_and_gradient(modules, spectrum, diversity, energy)[0]


def loss_and_gradient(
    modules: FloatArray, spectrum: FloatArray, diversity: float, energy: float | None = None
) -> tuple[float, FloatArray]:
    """Loss L of modules (M, H, K) and its derivative with respect to them, of the same shape.

    No K x K matrix is formed: with B = F Fᵀ for the stacked F (MH, K), |Ḡ|² = |B|²/M², and the |G_m|² are
    those of its diagonal blocks.
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
    rank: int  # h, the number of directions that each module spends on them
    level: float  # g, the common eigenvalue of those directions
    coverage: FloatArray  # (k,) t: how much of each coordinate the modules keep together; Σ t = h g


def water_level(spectrum: FloatArray, rank: int, diversity: float) -> float:
    """Common eigenvalue of `rank` module directions that share these coordinates.

    Maximizes (q_1 + ... + q_n) / (diversity * rank + (1 - diversity) * n) over n, the stationarity
    condition of the modular loss within one block.
    """
    n = np.arange(1, len(spectrum) + 1)
    return float(np.max(np.cumsum(spectrum) / (diversity * rank + (1 - diversity) * n)))


def fill(spectrum: FloatArray, rank: int, level: float, diversity: float) -> FloatArray:
    """Coverage at a water level: t = max(0, (q - (1-λ) g)/λ), scaled to Σ t = h g; at λ = 0 the h largest."""
    if diversity < VANISHING:
        return np.where(np.arange(len(spectrum)) < rank, spectrum, 0.0)
    coverage = np.maximum(0.0, (spectrum - (1 - diversity) * level) / diversity)
    total = coverage.sum()
    return coverage * (rank * level / total) if total > 0 else coverage


def slot_coordinates(first: int, last: int, n_modules: int, n_components: int) -> IntArray:
    """Coordinates of the slots first ... last-1: their heads, then their tails, M per slot."""
    tail_start = last + n_modules * (n_components - last)
    tail_end = first + n_modules * (n_components - first)
    return np.r_[first:last, tail_start:tail_end]


def pooled_blocks(
    spectrum: FloatArray, n_modules: int, n_components: int, diversity: float, pool: bool = True
) -> list[Block]:
    """Blocks of positive level that minimize the bound; without `pool` each slot is a block of its own."""

    def span(first: int, last: int) -> tuple[int, int, float]:
        where = slot_coordinates(first, last, n_modules, n_components)
        return first, last, water_level(spectrum[where], last - first, diversity)

    spans: list[tuple[int, int, float]] = []
    for slot in range(n_components):
        spans.append(span(slot, slot + 1))
        while pool and len(spans) > 1 and spans[-2][2] < spans[-1][2]:
            (first, _, _), (_, last, _) = spans[-2:]
            spans[-2:] = [span(first, last)]
    blocks = []
    for first, last, level in spans:
        if level > 0:
            where = slot_coordinates(first, last, n_modules, n_components)
            coverage = fill(spectrum[where], last - first, level, diversity)
            blocks.append(Block(where, last - first, level, coverage))
    return blocks


def attainable_blocks(
    blocks: list[Block], spectrum: FloatArray, n_modules: int, diversity: float
) -> list[Block]:
    """Replace blocks whose coverage M >= 3 subspaces cannot have by the nearest that they can.

    With n coordinates in use and h < n < h M/(M-1) the kernels of the modules' projections within the block
    are too small to miss each other: its leading k = h M - n (M-1) coordinates are then shared by all modules
    (t = g = q), and the rest gets a level of its own.
    """
    waiting, done = list(blocks), []
    while waiting:
        block = waiting.pop(0)
        used = int(np.sum(block.coverage > NEGLIGIBLE * block.level))
        n_shared = block.rank * n_modules - used * (n_modules - 1)
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


def lower_bound(
    spectrum: FloatArray, n_modules: int, n_components: int, diversity: float, energy: float | None = None
) -> float:
    """Lower bound on the loss of any modules of this shape; `energy` is |q|² if the spectrum is cut off.

    For M = 2 the slots are not pooled: G_1 + G_2 = S with ranks at most H forces |G_1 - G_2|² >= 2 Σ_i
    s_i s_(2H+1-i) (S^(-1/2) (G_1 - G_2) S^(-1/2) is a reflection J, and tr(S J S J) is least when the
    eigenvalues are paired in opposite order), so the pairs decouple and each attains its own minimum.
    """
    energy = float(np.sum(np.square(spectrum))) if energy is None else energy
    padded = pad_spectrum(spectrum, n_modules * n_components)
    blocks = pooled_blocks(padded, n_modules, n_components, diversity, pool=n_modules != 2)
    return max(0.0, block_loss(blocks, padded, diversity, energy))


def pad_spectrum(spectrum: FloatArray, length: int) -> FloatArray:
    """The first `length` values in float64, followed by zeros if there are fewer."""
    padded = np.zeros(length)
    padded[: min(len(spectrum), length)] = spectrum[:length]
    return padded
