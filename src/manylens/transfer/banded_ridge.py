"""A symmetric matrix as Q B Qᵀ with a narrow band B, and diagonals of the inverses of B + alpha.

A leave-one-out ridge needs no eigenvectors: with a banded B, each row of Q takes one forward substitution per
penalty. The reduction consists of matrix products; in that of an eigendecomposition, half of the operations
are matrix-vector products, which are bound by memory bandwidth (Bischof, Lang and Sun 2000).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import gen_batches

from manylens.native.threads import in_threads, one_blas_thread, over_blocks
from manylens.native.tile_products import UNIT, add_squares, reflect, update_and_multiply
from manylens.typing import FloatArray

LEAST_ROWS = 3000  # with fewer, little is gained: speedup 1.07 at 2,000 rows, 1.4 at 3,000, 1.8 at 4,000
MOST_TARGETS = 100  # with more, solving costs what the form saves: speedup 0.96 at 4,000 rows and 500
WIDTH = 64  # of the band: enough for fast products, yet few operations per substitution
CHUNK = 128  # rows of Q per forward substitution
COLUMNS = 128  # columns of Q that are transformed at a time
JOINED = 4  # block reflections that are applied to Q at once
WORKERS = 8  # whose products are added in order: the result is the same for any number of threads
TOLERANCE = 1000.0  # negative eigenvalues must be smaller than the least penalty by this factor
MAX_COLUMNS = 512  # right-hand sides that are solved for at a time


@dataclass(frozen=True)
class BandedForm:
    """A = Q B Qᵀ (n, n), with B block tridiagonal."""

    rotation: FloatArray  # Q, (n, n)
    diagonal: list[FloatArray]  # B_kk
    below: list[FloatArray]  # B_(k+1),k, upper triangular

    def factors(self, alphas: FloatArray) -> list[BlockFactor]:
        """Cholesky factors of B + alpha, block by block; raises LinAlgError if one is not positive."""
        found: list[BlockFactor] = []
        lower = np.zeros((len(alphas), 0, 0))
        for k, block in enumerate(self.diagonal):
            shifted = block + alphas[:, np.newaxis, np.newaxis] * np.eye(len(block))
            if k:
                lower = self.below[k - 1] @ found[-1].inverse
                shifted = shifted - lower @ lower.swapaxes(1, 2)
            inverse = np.linalg.inv(np.linalg.cholesky(shifted)).swapaxes(1, 2)
            found.append(BlockFactor(inverse, lower))
        return found

    def inverse_diagonals(self, factors: list[BlockFactor]) -> FloatArray:
        """Diagonal of (A + alpha)^(-1) for each alpha, (n, A): |L^(-1) q_i|² for the rows q_i of Q."""
        n, n_alphas, count = len(self.rotation), len(factors[0].inverse), len(factors)
        width = -(-len(self.diagonal[0]) // UNIT) * UNIT
        diagonals = np.empty((n, n_alphas))
        links = np.zeros((n_alphas, count, 2, width, width))
        for k, (inverse, lower) in enumerate((each.inverse, each.lower) for each in factors):
            size = inverse.shape[1]
            links[:, k, 1, :size, :size] = inverse
            if k:
                links[:, k, 0, :, :size] = -lower.swapaxes(1, 2) @ inverse

        def add(rows: slice) -> None:
            Q, solved = np.zeros((count * width, CHUNK)), np.empty(4 * width * CHUNK)
            Q[:n, : rows.stop - rows.start] = self.rotation[rows].T
            sums = np.zeros((n_alphas, CHUNK))
            for each, own in zip(links, sums, strict=True):
                add_squares(each.ravel(), Q.ravel(), solved, own, (count, width, CHUNK))
            diagonals[rows] = sums.T[: rows.stop - rows.start]

        over_blocks(add, n, CHUNK, -1)
        return diagonals

    def solve(self, factors: list[BlockFactor], targets: FloatArray) -> FloatArray:
        """(A + alpha)^(-1) targets for each alpha, (n, A, C)."""
        rotated = self.rotation.T @ targets
        n_alphas, n_targets = len(factors[0].inverse), targets.shape[1]
        parts: list[FloatArray] = []
        first = 0
        for k, (inverse, lower) in enumerate((each.inverse, each.lower) for each in factors):
            part = rotated[first : first + inverse.shape[1]]
            part = part - lower @ parts[-1] if k else np.broadcast_to(part, (n_alphas, *part.shape))
            parts.append(inverse.swapaxes(1, 2) @ part)
            first += inverse.shape[1]
        for k in range(len(factors) - 1, -1, -1):
            if k + 1 < len(factors):
                parts[k] = parts[k] - factors[k + 1].lower.swapaxes(1, 2) @ parts[k + 1]
            parts[k] = factors[k].inverse @ parts[k]
        solved = np.concatenate(parts, axis=1).swapaxes(0, 1).reshape(len(rotated), -1)
        return (self.rotation @ solved).reshape(-1, n_alphas, n_targets)


@dataclass(frozen=True)
class BlockFactor:
    """One block row of the Cholesky factors of B + alpha."""

    inverse: FloatArray  # L_kk^(-T), (A, b, b)
    lower: FloatArray  # L_k,(k-1), (A, b, b')


@dataclass(frozen=True)
class BandedRidge:
    """A ridge on a kernel matrix (n, n), for leave-one-out predictions, without an eigendecomposition.

    With the centered kernel K, a = (K + alpha)^(-1) (Y - mean) are the coefficients, and the leave-one-out
    residual of row i is a_i over the diagonal entry of (K + alpha)^(-1), less the part 1/(alpha n) of the
    vector 1 that the intercept takes.
    """

    form: BandedForm  # of K + raised 1 1ᵀ/n
    raised: float
    kernel_mean: FloatArray  # (n,)
    target_mean: FloatArray  # (C,)
    targets: FloatArray  # (n, C)

    def solve(self, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Coefficients (n, C) of the kernel columns and intercept (C,)."""
        factors = self.form.factors(np.array([alpha]))
        coef = self.form.solve(factors, self.targets - self.target_mean)[:, 0]
        return coef, self.target_mean - self.kernel_mean @ coef

    def left_out(self, alpha: float) -> FloatArray:
        """Prediction (n, C) of each row by a model fitted to the other rows."""
        (residuals,) = (part[:, 0] for part in self._residuals(np.array([alpha])))
        return np.asarray(self.targets - residuals)

    def left_out_errors(self, alphas: ArrayLike) -> FloatArray:
        """Mean squared leave-one-out error (A,) for each alpha."""
        return self.target_errors(alphas).mean(axis=1)

    def target_errors(self, alphas: ArrayLike) -> FloatArray:
        """Mean squared leave-one-out error (A, C) for each alpha and target."""
        errors = [np.square(part).mean(axis=0) for part in self._residuals(np.asarray(alphas))]
        return np.concatenate(errors)

    def _residuals(self, alphas: FloatArray) -> Iterator[FloatArray]:
        """Leave-one-out residuals (n, A', C) of groups of alphas."""
        for group in gen_batches(len(alphas), max(1, MAX_COLUMNS // self.targets.shape[1])):
            some = alphas[group]
            factors = self.form.factors(some)
            weights = self.form.inverse_diagonals(factors) - 1.0 / len(self.targets) / (self.raised + some)
            solved = self.form.solve(factors, self.targets - self.target_mean)
            yield solved / weights[:, :, np.newaxis]


def banded_ridge(kernel: FloatArray, targets: FloatArray, least_alpha: float) -> BandedRidge | None:
    """Ridge on a kernel matrix (n, n) for penalties of at least `least_alpha`: time n³, memory 2 n².

    None if the kernel has negative eigenvalues that are too large for this penalty.
    """
    n = len(kernel)
    kernel_mean = kernel.mean(axis=0, dtype=np.float64)
    grand_mean = kernel_mean.mean()
    trace = float(np.sum(np.diagonal(kernel) - 2 * kernel_mean + grand_mean))
    if least_alpha / TOLERANCE <= 100 * np.finfo(np.float64).eps * trace:
        return None
    centered = np.empty((n, n))

    def center(rows: slice) -> None:
        np.subtract(kernel[rows], kernel_mean, out=centered[rows])
        # the last term gives the vector 1 the mean eigenvalue
        centered[rows] -= (kernel_mean[rows] - grand_mean - trace / n / n)[:, np.newaxis]

    over_blocks(center, n, WIDTH, -1)
    with one_blas_thread():
        form = banded_form(centered)
    try:
        form.factors(np.array([least_alpha / TOLERANCE]))
    except np.linalg.LinAlgError:
        return None
    return BandedRidge(form, trace / n, kernel_mean, targets.mean(axis=0), targets)


def banded_form(A: FloatArray, width: int = WIDTH) -> BandedForm:
    """Reduce a symmetric matrix (n, n) to a band by orthogonal transformations; A is overwritten.

    A panel P below the diagonal block is P = (I - V T Vᵀ) R; the rest becomes A - V Wᵀ - W Vᵀ with
    W = A V T - V (Tᵀ Vᵀ A V T)/2. Only tiles on and below the diagonal are kept up to date. V takes the
    place of the panel, and Q that of A. The width is a multiple of `UNIT`.
    """
    n = len(A)
    tiles = tiled(A, width)
    count = len(tiles)
    diagonal: list[FloatArray] = []
    below: list[FloatArray] = []
    scales: list[FloatArray] = []
    left: FloatArray = np.empty((0, width, 2 * width))  # of the previous step, whose update is still pending
    right: FloatArray = np.empty((0, 2 * width, width))
    for k in range(count):
        m = count - 1 - k
        panel = tiles[k:, k]
        if k:
            panel = panel + left[-m - 1 :] @ right[-m - 1]
        diagonal.append(panel[0])
        if not m:
            break
        V, T, R, scale = reflections(panel[1:].reshape(-1, width))
        below.append(R)
        scales.append(scale)
        tiles[k + 1 :, k] = V.reshape(m, width, width)
        products = multiplied(tiles, left[-m:], right[-m:], V) @ T
        W = products - V @ (T.T @ (V.T @ products)) / 2
        left = -np.hstack([V, W]).reshape(m, width, -1)
        right = np.hstack([W, V]).reshape(m, width, -1).swapaxes(1, 2).copy()
    last = n - (count - 1) * width
    diagonal[-1] = diagonal[-1][:last, :last]
    below[-1:] = [each[:last] for each in below[-1:]]
    rotate(tiles, scales, A)
    return BandedForm(A, diagonal, below)


def tiled(A: FloatArray, width: int) -> FloatArray:
    """Tiles (count, count, width, width) on and below the diagonal of a matrix (n, n), padded with zeros."""
    n, count = len(A), -(-len(A) // width)
    tiles = np.empty((count, count, width, width))

    def copy(rows: slice) -> None:
        strip = np.zeros((width, count * width))
        strip[: rows.stop - rows.start, :n] = A[rows]
        own = rows.start // width
        tiles[own, : own + 1] = strip.reshape(width, count, width).swapaxes(0, 1)[: own + 1]

    over_blocks(copy, n, width, -1)
    return tiles


def reflections(P: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """V (m, b), T (b, b) and R (b, b) with P = (I - V T Vᵀ) [R; 0] (m, b), and the diagonal (b,) of T⁻¹."""
    packed, scales = np.linalg.qr(P, mode="raw")
    packed = packed.T
    V = np.tril(packed, -1)
    V[np.arange(len(scales)), np.arange(len(scales))] = 1.0
    V[:, scales == 0] = 0.0  # nothing to reflect
    inverse = 1.0 / np.where(scales == 0, 1.0, scales)
    return V, joint_factor(V, inverse), np.triu(packed[: len(scales)]), inverse


def joint_factor(V: FloatArray, inverse: FloatArray) -> FloatArray:
    """T of a product of reflections: T⁻¹ + T⁻ᵀ = Vᵀ V, with this diagonal of T⁻¹ (Puglisi 1992)."""
    return np.linalg.inv(np.triu(V.T @ V, 1) + np.diag(inverse))


def multiplied(tiles: FloatArray, left: FloatArray, right: FloatArray, V: FloatArray) -> FloatArray:
    """Add left right to the last tiles, and return their product with V (m, b)."""
    width = V.shape[1]
    shape = len(tiles), len(V) // width, width
    products = np.zeros((WORKERS, *V.shape))

    def share(first: int, last: int) -> None:
        for k in range(first, last):
            update_and_multiply(
                tiles.ravel(), left.ravel(), right.ravel(), V.ravel(), products[k].ravel(), shape, k, WORKERS
            )

    in_threads(share, WORKERS)
    return products.sum(axis=0)


def rotate(tiles: FloatArray, scales: list[FloatArray], Q: FloatArray) -> None:
    """Write the product of the reflections, of which V is below the diagonal of the tiles, into Q (n, n)."""
    count, width, n = len(tiles), tiles.shape[-1], len(Q)
    joined: list[tuple[int, FloatArray]] = []
    for first in range(0, count - 1, JOINED):
        V = tiles[first + 1 :, first : min(first + JOINED, count - 1)].copy()
        for k in range(V.shape[1]):
            V[:k, k] = 0.0
        V = V.swapaxes(1, 2).reshape(-1, V.shape[1] * width)
        joined.append((first, -joint_factor(V, np.concatenate(scales[first : first + JOINED]))))

    def turn(columns: slice) -> None:
        X = np.zeros((count * width, COLUMNS))
        np.fill_diagonal(X[columns], 1.0)
        stop = -(-columns.stop // width)
        for first, T in joined[::-1]:
            if first + 1 < stop:
                inner = np.empty(2 * len(T) * COLUMNS)
                reflect(tiles.ravel(), T.ravel(), X.ravel(), inner, (count, width, COLUMNS), first, stop)
                stop = count
        Q[:, columns] = X[:n, : columns.stop - columns.start]

    over_blocks(turn, n, COLUMNS, -1)
