"""How much of each principal component the modules should keep together: pooled water-filling.

The lower bound on the modular loss (docs/theory.md) depends only on t, the eigenvalues of the mean Ḡ, and
on g, the mean eigenvalues of the modules. Its minimum is found in closed form: the K = M H coordinates are
dealt into H slots of M, one head and M - 1 tail coordinates each; every slot has its own water level;
neighboring slots whose levels are out of order are pooled.
"""

from dataclasses import dataclass

import numpy as np

NEGLIGIBLE = 1e-13  # share of the level below which a coverage is rounding
VANISHING = 1e-10  # diversity below which (q - (1-λ) g)/λ is rounding; λ moves the loss by less than λ |q|²


@dataclass(frozen=True)
class Block:
    """Coordinates that share one water level.

    Parameters
    ----------
    coordinates : ndarray of int, shape (k,)
        Which coordinates of the spectrum.
    rank : int
        Number h of directions that each module spends on them.
    level : float
        The common eigenvalue g of those directions.
    coverage : ndarray, shape (k,)
        t: how much of each coordinate the modules keep together; Σ t = h g.
    """

    coordinates: np.ndarray
    rank: int
    level: float
    coverage: np.ndarray


def water_level(spectrum, rank, diversity):
    """Common eigenvalue of `rank` module directions that share the coordinates of `spectrum`.

    Solves  max_n  (q_1 + ... + q_n) / (diversity * rank + (1 - diversity) * n),  the stationarity
    condition of the modular loss within one block.

    Parameters
    ----------
    spectrum : ndarray, shape (k,)
        Eigenvalues q, largest first.
    rank : int
        Number h of directions.
    diversity : float
        λ.

    Returns
    -------
    float
        The level g.
    """
    n = np.arange(1, len(spectrum) + 1)
    return float(np.max(np.cumsum(spectrum) / (diversity * rank + (1 - diversity) * n)))


def fill(spectrum, rank, level, diversity):
    """Coverage of each coordinate at a water level: t = max(0, (q - (1-λ) g)/λ), scaled to Σ t = h g.

    Parameters
    ----------
    spectrum : ndarray, shape (k,)
        Eigenvalues q, largest first.
    rank : int
        Number h of directions.
    level : float
        The level g.
    diversity : float
        λ; toward 0 the h largest are kept whole.

    Returns
    -------
    ndarray, shape (k,)
        The coverage t.
    """
    if diversity < VANISHING:
        return np.where(np.arange(len(spectrum)) < rank, spectrum, 0.0)
    coverage = np.maximum(0.0, (spectrum - (1 - diversity) * level) / diversity)
    total = coverage.sum()
    return coverage * (rank * level / total) if total > 0 else coverage


def slot_coordinates(first, last, n_modules, n_components):
    """Coordinates of the slots first ... last-1: their heads, then their tails.

    Parameters
    ----------
    first, last : int
        Range of slots, from 0.
    n_modules, n_components : int
        M and H.

    Returns
    -------
    ndarray of int
        M coordinates a slot, in order of the spectrum.
    """
    tail_start = last + n_modules * (n_components - last)
    tail_end = first + n_modules * (n_components - first)
    return np.r_[first:last, tail_start:tail_end]


def pooled_blocks(spectrum, n_modules, n_components, diversity, pool=True):
    """Minimize the lower bound: deal the coordinates into slots and pool those out of order.

    Parameters
    ----------
    spectrum : ndarray, shape (K,)
        Eigenvalues q, largest first, K = M H.
    n_modules, n_components : int
        M and H.
    diversity : float
        λ.
    pool : bool
        Whether slots may be joined; without it each slot stands alone.

    Returns
    -------
    list of Block
        Those of a positive level.
    """

    def make(first, last):
        where = slot_coordinates(first, last, n_modules, n_components)
        rank = last - first
        level = water_level(spectrum[where], rank, diversity)
        return first, last, level

    spans = []
    for slot in range(n_components):
        spans.append(make(slot, slot + 1))
        while pool and len(spans) > 1 and spans[-2][2] < spans[-1][2]:
            (first, _, _), (_, last, _) = spans[-2:]
            spans[-2:] = [make(first, last)]
    blocks = []
    for first, last, level in spans:
        if level > 0:
            where = slot_coordinates(first, last, n_modules, n_components)
            coverage = fill(spectrum[where], last - first, level, diversity)
            blocks.append(Block(where, last - first, level, coverage))
    return blocks


def attainable_blocks(blocks, spectrum, n_modules, diversity):
    """Replace blocks whose coverage M >= 3 subspaces cannot have by the nearest that they can.

    With n coordinates in use and h < n < h M/(M-1) the kernels of the modules' projections within the block
    are too small to miss each other: its leading k = h M - n (M-1) coordinates are then shared by all modules
    (t = g = q), and the rest gets a level of its own.

    Parameters
    ----------
    blocks : list of Block
        From `pooled_blocks`.
    spectrum : ndarray, shape (K,)
        Eigenvalues q.
    n_modules : int
        M.
    diversity : float
        λ.

    Returns
    -------
    list of Block
        Every coordinate in at most one block.
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


def block_loss(blocks, spectrum, diversity, energy):
    """Loss of modules that attain the given blocks: (1-λ) Σ h g² + λ |t|² - 2 <t, q> + |q|².

    Parameters
    ----------
    blocks : list of Block
        Blocks of disjoint coordinates.
    spectrum : ndarray, shape (K,)
        Eigenvalues q.
    diversity : float
        λ.
    energy : float
        |q|² over the whole spectrum.

    Returns
    -------
    float
        The loss; a lower bound on it where the blocks are those of `pooled_blocks`.
    """
    loss = energy
    for block in blocks:
        t, q = block.coverage, spectrum[block.coordinates]
        loss += (1 - diversity) * block.rank * block.level**2 + diversity * (t @ t) - 2 * (t @ q)
    return float(loss)


def lower_bound(spectrum, n_modules, n_components, diversity, energy=None):
    """A number that no choice of modules brings the loss below.

    For M = 2 the slots are not pooled: G_1 + G_2 = S with ranks at most H forces |G_1 - G_2|² >= 2 Σ_i
    s_i s_(2H+1-i) (S^(-1/2) (G_1 - G_2) S^(-1/2) is a reflection J, and tr(S J S J) is least when the
    eigenvalues are paired in opposite order), so the pairs decouple and each attains its own minimum.

    Parameters
    ----------
    spectrum : ndarray, shape (k,)
        Eigenvalues q, largest first; padded with zeros to K = M H or cut there.
    n_modules, n_components : int
        M and H.
    diversity : float
        λ.
    energy : float, optional
        |q|² where the spectrum given is not all of it.

    Returns
    -------
    float
        The bound.
    """
    energy = float(np.sum(np.square(spectrum))) if energy is None else energy
    padded = pad_spectrum(spectrum, n_modules * n_components)
    blocks = pooled_blocks(padded, n_modules, n_components, diversity, pool=n_modules != 2)
    return max(0.0, block_loss(blocks, padded, diversity, energy))


def pad_spectrum(spectrum, length):
    """The first `length` values, with zeros where there are fewer.

    Parameters
    ----------
    spectrum : ndarray, shape (k,)
        Values, largest first.
    length : int
        How many are wanted.

    Returns
    -------
    ndarray, shape (length,)
        In float64.
    """
    padded = np.zeros(length)
    padded[: min(len(spectrum), length)] = spectrum[:length]
    return padded
