"""Linear CKA and inner products of kernels, from sketches of the features.

With Z_r = (S_r X)ᵀ (S_r Y) for independent sketches r = 1 ... R, E Z_r = XᵀY but E|Z_r|² = |XᵀY|² + variance:
one sketch overestimates every norm. Products of *different* sketches do not, because E<Z_r, Z_s> = |XᵀY|²,
so the estimate is their mean, with a jackknife standard error over the sketches. No error bound is given: the
published relative bound relies on an inequality that is false.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from manylens.alignment.feature_sets import Names, Returned, as_returned
from manylens.alignment.kernel_inner_products import (
    Estimator,
    alignments,
    check_convention,
    without_diagonals,
)
from manylens.alignment.sketches import (
    Estimate,
    Sketched,
    as_replicates,
    check_sketch,
    of_count_sketches,
    refuse_different,
    scaled_replicates,
)
from manylens.kernels.kernels import Linear
from manylens.summaries import CountSketch
from manylens.typing import FloatArray
from manylens.validation import check_choice


def sketched_cka(
    sketches_x: Sketched,
    sketches_y: Sketched,
    return_: Returned = "score",
    *,
    estimator: Estimator = "biased",
) -> Estimate:
    """Estimate linear CKA of two representations from sketches of their rows.

    Parameters
    ----------
    sketches_x, sketches_y : FeatureSketch or list of CountSketch
        Sketches of both, with the same settings, that have seen the same row numbers, in any order. A list
        needs at least 3 sketches with different seeds.
    return_ : {"score", "angle"}, default="score"
        The alignment or its arccos.
    estimator : {"biased", "unbiased"}, default="biased"
        Which CKA to estimate, as for `cka`; "unbiased" needs a `FeatureSketch` of both.

    Returns
    -------
    Estimate
        Value, standard error due to sketching, number of replicates.
    """
    check_choice(return_, "return_", ("score", "angle"))
    products = pair_products([sketches_x, sketches_y], ["X", "Y"], estimator)
    left_out = left_out_alignments(products, return_)
    value = alignment_of(mean_products(products), return_)
    return Estimate(value, float(jackknife_error(left_out)), len(left_out))


def scka(sketch_x: CountSketch, sketch_y: CountSketch) -> float:
    """CKA of two sketches as if they were the data: |XᵀSᵀS Y|² / (|S X XᵀSᵀ| |S Y YᵀSᵀ|).

    Fast, but biased upward unless `n_buckets` is large compared with the stable ranks; `sketched_cka` has no
    such bias and gives a standard error, from several sketches.

    Parameters
    ----------
    sketch_x, sketch_y : CountSketch
        One sketch of each, with the same settings, that have seen the same row numbers, in any order.

    Returns
    -------
    float
        The alignment, in [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import CountSketch
    >>> from manylens.alignment import scka
    >>> X = np.random.default_rng(0).standard_normal((1000, 5))
    >>> round(scka(CountSketch(64).update(X), CountSketch(64).update(3 * X[:, ::-1] + 1)), 6)
    1.0
    """
    check_sketch(sketch_x)
    check_sketch(sketch_y)
    both = [of_count_sketches([sketch], name) for sketch, name in ((sketch_x, "X"), (sketch_y, "Y"))]
    refuse_different([[sketch_x], [sketch_y]])
    rows = [scaled_replicates(each, name).rows[0] for each, name in zip(both, ("X", "Y"), strict=True)]
    return float(alignments(rows, ["X", "Y"], Linear(), center=False)[0, 1])


def left_out_alignments(products: FloatArray, return_: Returned = "score") -> list[float]:
    """The alignment of two sets from their `pair_products` (2, 2, R, R), without each replicate."""
    return [alignment_of(mean_products(products, r), return_) for r in range(products.shape[2])]


def alignment_of(products: FloatArray, return_: Returned = "score") -> float:
    """u_xy / sqrt(u_xx u_yy) from estimated inner products (2, 2)."""
    if products[0, 0] <= 0 or products[1, 1] <= 0:
        raise ValueError(
            "The sketches are too small to estimate the norms of these features: use more buckets."
        )
    score = products[0, 1] / (np.sqrt(products[0, 0]) * np.sqrt(products[1, 1]))
    return float(as_returned(score, return_))


def mean_products(products: FloatArray, without: int | None = None) -> FloatArray:
    """Means over different replicates r ≠ s of products (p, p, R, R), optionally without one replicate."""
    if without is not None:
        products = np.delete(np.delete(products, without, axis=2), without, axis=3)
    R = products.shape[2]
    return (products.sum(axis=(2, 3)) - np.trace(products, axis1=2, axis2=3)) / (R * (R - 1))


def jackknife_error(left_out: Sequence[Any]) -> Any:
    """Standard error from the values without each replicate."""
    values = np.asarray(left_out, dtype=np.float64)
    return np.sqrt((len(values) - 1) / len(values) * np.sum((values - values.mean(axis=0)) ** 2, axis=0))


def pair_products(sketches: Sequence[Sketched], names: Names, estimator: Estimator) -> FloatArray:
    """Products (p, p, R, R) whose mean over r ≠ s estimates <K_k, K_l>, up to a scale for each set.

    <Z_r, Z_s> with Z_r = (S_r X)ᵀ (S_r Y); for the unbiased inner product minus its correction, which is
    linear in each sketch and therefore the same mean over r.
    """
    check_choice(estimator, "estimator", ("biased", "unbiased"))
    sets = [
        scaled_replicates(as_replicates(each, name), name) for each, name in zip(sketches, names, strict=True)
    ]
    refuse_different(sketches)
    n = sets[0].n_rows
    check_convention(estimator, True, n)
    products = replicate_products([each.rows for each in sets])
    if estimator == "biased":
        return products
    for name, each in zip(names, sets, strict=True):
        if each.norms is None:
            raise ValueError(
                f"The unbiased estimate needs the norms of the rows, which a list of CountSketch does not "
                f"hold ({name}): use FeatureSketch, or the biased estimate."
            )
    norms = np.stack([np.asarray(each.norms) for each in sets])  # (p, R, B)
    traces = np.array([each.trace for each in sets])
    by_replicate = np.einsum("krb,lrb->klr", norms, norms) + (np.outer(traces, traces) / n)[:, :, np.newaxis]
    pairs = (by_replicate[..., np.newaxis] + by_replicate[:, :, np.newaxis]) / 2  # (p, p, R, R)
    corrected = [
        without_diagonals(products[:, :, r, s], pairs[:, :, r, s], traces, n, True)
        for r in range(len(norms[0]))
        for s in range(len(norms[0]))
    ]
    return np.moveaxis(np.array(corrected), 0, -1).reshape(products.shape)


def replicate_products(sets: Sequence[FloatArray]) -> FloatArray:
    """<Z_r, Z_s> (p, p, R, R) for r ≠ s, with Z_r = A_rᵀ B_r, for sketches A, B of shapes (R, n_buckets, d).

    Also equal to <A_r A_sᵀ, B_r B_sᵀ>, which is cheaper for wide features.
    """
    p, (R, B, _) = len(sets), sets[0].shape
    width = sum(rows.shape[2] for rows in sets)
    products = np.zeros((p, p, R, R))
    if width**2 * (B + R) <= (R - 1) * B**2 * (width + p**2):
        for k, A in enumerate(sets):
            for m in range(k, p):
                flat = np.stack([(a.T @ b).ravel() for a, b in zip(A, sets[m], strict=True)])
                products[k, m] = products[m, k] = flat @ flat.T
        return products
    for r, s in combinations(range(R), 2):
        flat = np.stack([(rows[r] @ rows[s].T).ravel() for rows in sets])
        products[:, :, r, s] = products[:, :, s, r] = flat @ flat.T
    return products
