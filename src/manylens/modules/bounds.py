"""A sharper lower bound on the modular loss, for spectra on which the closed form of `solver` leaves a gap.

Let t be the eigenvalues of Ḡ and g the mean eigenvalues of M matrices G_m ⪰ 0 of rank at most H in N
dimensions, all in descending order. The loss is at least |q|² + (1-λ)|g|² + λ|t|² - 2<t, q>, and (t, g) lie
in the cone

    Σ_{i≤a} t_i + Σ_{i>a+M(H-a)} t_i ≤ Σ_{i≤a} g_i                (a = 0 ... H; equality for a = H)
    Σ_{i≤j} t_{sH+i} ≤ (M-s)/M Σ_{i≤j} g_i                        (s = 0 ... M-1, j = 1 ... H)
    Σ_{i≤k} t_i ≥ Σ_{i-k<l≤i} g_l,  k = M i - (M-1) N             (i = 1 ... H, if k > 0)
    Σ_{i≤b} t_i + Σ_{n-r+b<i≤n} t_i ≤ Σ_{i≤a} g_i                 (b ≤ a < r ≤ n, r - a in kernels)
    Σ_{N-n<i≤N-n+r} t_i ≥ Σ_{H-s<l≤H} g_l                         (s ≤ r ≤ n).

The first line is the one that the closed form uses (docs/theory.md). Second: s modules vanish on a space of
N - sH dimensions, which meets the span of the leading sH + j eigenvectors of Ḡ in j; there M Ḡ is the sum of
the other M - s modules. Third: the leading i eigenvectors of the modules span spaces that share k dimensions.
Fourth: among the leading n eigenvectors of Ḡ there is a space of r dimensions, with the leading b in it, that
meets the kernel of every module in r - a dimensions. Fifth: among the trailing n there is one of r
dimensions that meets the range of every module in s. Both exist if n is large enough (`steepest`).

All are cases of Horn's inequalities, over all of which the bound is the minimum of the loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from manylens.modules.solver import ModularSolution
from manylens.typing import FloatArray

LARGEST = 600  # number of coordinates and directions above which the program takes more than a second
LARGEST_MEETING = 64  # number of coordinates above which spaces that meet every module are not counted
ITERATIONS = 200  # of the projection on the cone; it takes as many as inequalities are active, mostly two
ROUNDING = 1e-12  # share of the energy by which the bound is lowered


def sharpen_bound(solution: ModularSolution, spectrum: FloatArray, diversity: float) -> ModularSolution:
    """The solution with the larger of its own and the sharper bound; `spectrum` (k,) is largest first."""
    M, H, _ = solution.modules.shape
    if M < 3 or not (solution.has_gap and 1e-6 <= diversity <= 1 - 1e-6):
        return solution
    bound = cone_bound(np.asarray(spectrum, dtype=np.float64), M, H, diversity, solution.energy)
    return replace(solution, lower_bound=max(solution.lower_bound, min(bound, solution.loss)))


def cone_bound(spectrum: FloatArray, M: int, H: int, diversity: float, energy: float) -> float:
    """Minimum of the bound over the cone, from its dual; 0 if the program is too large.

    With x = (√λ t, √(1-λ) g) and d = (q/√λ, 0) the bound is |q|² - |d|² + |x - d|². Any y ≥ 0 gives the lower
    bound |q|² - |d - Aᵀy|² of its minimum over A x ≤ 0, so that an inexact y costs tightness, not validity.
    Modules may be projected on the coordinates with q > 0. Tiny values are left out: the root of the loss is
    a norm, so it changes by at most the norm of what is left out.
    """
    q = spectrum[: M * H]
    N = int(np.sum(q > 1e-9 * q[0]))
    H = min(H, N)
    if N + H > LARGEST:
        return 0.0
    root = np.sqrt(np.r_[np.full(N, diversity), np.full(H, 1 - diversity)])
    d = np.r_[q[:N] / np.sqrt(diversity), np.zeros(H)] / q[0]
    residual = beyond_cone(cone(N, M, H) / root, d)
    kept = float(q[:N] @ q[:N])
    least = max(0.0, kept - q[0] ** 2 * float(residual @ residual))
    least = max(0.0, np.sqrt(least) - float(np.linalg.norm(q[N:]))) ** 2
    return max(0.0, energy - float(q @ q) + least - ROUNDING * energy)


def beyond_cone(A: FloatArray, d: FloatArray) -> FloatArray:
    """d - Aᵀy for the y ≥ 0 that makes it shortest, the projection of d on the cone A x ≤ 0.

    The active-set method of Lawson and Hanson, with least squares that tolerate dependent inequalities, of
    which there are many (scipy's nnls may return a y far from the best on them).
    """
    A = A / np.linalg.norm(A, axis=1)[:, None]
    small = 1e-12 * float(np.linalg.norm(d))
    active, y, x = np.empty(0, dtype=np.intp), np.empty(0), d
    skipped: list[int] = []  # violated by rounding only: their y would be negative
    for _ in range(ITERATIONS):
        violation = A @ x
        violation[active] = violation[skipped] = -1.0
        worst = int(np.argmax(violation))
        if violation[worst] <= small:
            break
        chosen, at = np.append(active, worst), np.append(y, 0.0)
        best = np.linalg.lstsq(A[chosen].T, d, rcond=1e-12)[0]
        if best[-1] <= small:
            skipped.append(worst)
            continue
        while (best <= small).any():  # go as far as y stays positive, and drop what becomes zero
            falling = best <= small
            step = float(np.min(at[falling] / np.maximum(at[falling] - best[falling], 1e-300)))
            at = at + step * (best - at)
            kept = at > small
            kept[np.argmin(at)] = False
            chosen, at = chosen[kept], at[kept]
            best = np.linalg.lstsq(A[chosen].T, d, rcond=1e-12)[0]
        active, y, skipped = chosen, best, []
        x = d - A[active].T @ y
    return x


def cone(N: int, M: int, H: int) -> FloatArray:
    """Rows a (N + H,) with a.(t, g) ≤ 0 for all modules in N dimensions."""
    rows: list[FloatArray] = []

    def add(t: Iterable[int] = (), g: Iterable[int] = (), share: float = 1.0, sign: float = 1.0) -> None:
        row = np.zeros(N + H)
        row[[i for i in t if i < N]] = sign
        row[[N + i for i in g]] = -sign * share
        if row.any():
            rows.append(row)

    for first, size in ((0, N), (N, H)):  # both fall, and are not negative
        falling = np.eye(N + H)[first + 1 : first + size] - np.eye(N + H)[first : first + size - 1]
        rows += [*falling, -np.eye(N + H)[first + size - 1]]
    for a in range(H + 1):
        add([*range(a), *range(a + M * (H - a), N)], range(a))
    add(range(N), range(H), sign=-1.0)
    for s in range(M):
        for j in range(1, H + 1):
            add(range(s * H, s * H + j), range(j), share=(M - s) / M)
    for i in range(1, H + 1):
        k = M * i - (M - 1) * N
        if k > 0:
            add(range(k), range(i - k, i), sign=-1.0)
    if N > LARGEST_MEETING:
        return np.array(rows)
    for a in range(H):  # spaces of r dimensions that meet the kernels in r - a
        for b in range(a + 1):
            for r in range(a + 1, N + 1):
                n = max(H - a, whole(M * (H - a) * steepest(N, M)[r - b, r - a])) + r
                if n <= N:
                    add([*range(b), *range(n - r + b, n)], range(a))
    for s in range(1, H + 1):  # spaces of r dimensions that meet the ranges in s
        for r in range(s, N + 1):
            n = max(N - H + s, r + whole(M * max(0, N - H + s - r) * steepest(N, M)[r, s]))
            if n <= N:
                add(range(N - n, N - n + r), range(H - s, H), sign=-1.0)
    return np.array(rows)


def whole(number: float) -> int:
    """The smallest whole number that is not below `number`, up to rounding."""
    return int(np.ceil(number - 1e-9))


@lru_cache(maxsize=8)
def steepest(size: int, M: int) -> FloatArray:
    """Largest s'/r' of r' dimensions of a space of r that meet M random subspaces of s each in s'.

    Shape (size + 1, size + 1), for r and s up to `size`. A space of n dimensions with M subspaces in general
    position, of d dimensions each, has subspaces of r dimensions that meet each of them in s if and only if

        r' (n - r) ≥ M s' ((n - r) - (d - s))      for every such (r', s') of (r, s)

    (Schofield, General representations of quivers, 1992, for a star with M arms; by symmetry it is enough to
    look at equal s' in all arms). With the inequality for the largest s'/r', this is a recursion. A generic
    intersection that is not empty is not empty for any subspaces.
    """
    found = np.zeros((size + 1, size + 1))
    dimension, meeting = np.indices(found.shape)
    share = np.where((dimension > 0) & (meeting <= dimension), meeting / np.maximum(dimension, 1), 0.0)
    for r in range(1, size + 1):
        left = r - dimension[: r + 1]
        for s in range(1, r + 1):
            beyond = left[:, : s + 1] - (s - meeting[: r + 1, : s + 1])
            exists = M * found[: r + 1, : s + 1] * np.maximum(beyond, 0) <= left[:, : s + 1] + 1e-9
            found[r, s] = max(s / r, np.max(share[: r + 1, : s + 1], where=exists, initial=0.0))
    return found
