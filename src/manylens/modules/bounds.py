"""A sharper lower bound on the modular loss, where the closed form of `solver` leaves a gap.

Let t be the eigenvalues of Ḡ and g the mean eigenvalues of M matrices G_m ⪰ 0 of rank at most H in N
dimensions, all in falling order. The loss is at least |q|² + (1-λ)|g|² + λ|t|² - 2<t, q>, and (t, g) lie in
the cone

    Σ_{i≤a} t_i + Σ_{i>a+M(H-a)} t_i ≤ Σ_{i≤a} g_i                (a = 0 ... H; equality for a = H)
    Σ_{i≤j} t_{sH+i} ≤ (M-s)/M Σ_{i≤j} g_i                        (s = 0 ... M-1, j = 1 ... H)
    Σ_{i≤k} t_i ≥ Σ_{i-k<l≤i} g_l,  k = M i - (M-1) N             (i = 1 ... H, if k > 0).

The first line is the one that the closed form uses (docs/theory.md). Second: s modules vanish on a space of
N - sH dimensions, which meets the span of the leading sH + j eigenvectors of Ḡ in j; there M Ḡ is the sum of
the other M - s modules. Third: the leading i eigenvectors of the modules span spaces that share k dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from manylens.modules.solver import ModularSolution
from manylens.typing import FloatArray

LARGEST = 600  # number of coordinates and directions above which the program takes more than a second
ROUNDING = 1e-12  # share of the energy by which the bound is lowered


def sharpened(solution: ModularSolution, spectrum: FloatArray, diversity: float) -> ModularSolution:
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
    A = cone(N, M, H) / root
    d = np.r_[q[:N] / np.sqrt(diversity), np.zeros(H)] / q[0]
    try:
        y = np.maximum(nnls(A.T, d, maxiter=30 * len(A))[0], 0.0)
    except RuntimeError:  # too many iterations
        return 0.0
    residual = d - A.T @ y
    kept = float(q[:N] @ q[:N])
    least = max(0.0, kept - q[0] ** 2 * float(residual @ residual))
    least = max(0.0, np.sqrt(least) - float(np.linalg.norm(q[N:]))) ** 2
    return max(0.0, energy - float(q @ q) + least - ROUNDING * energy)


def cone(N: int, M: int, H: int) -> FloatArray:
    """Rows a (N + H,) with a.(t, g) ≤ 0 for all modules in N dimensions."""
    rows: list[FloatArray] = []

    def add(t: Iterable[int] = (), g: Iterable[int] = (), share: float = 1.0, sign: float = 1.0) -> None:
        row = np.zeros(N + H)
        row[[i for i in t if i < N]] = sign
        row[[N + i for i in g]] = -sign * share
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
    return np.array(rows)
