"""Centered kernel alignment: how alike two sets of features of the same rows are."""

import numpy as np

from manylens.alignment.features import (
    check_feature_sets,
    check_features,
    check_same_rows,
    refuse_constant,
)
from manylens.alignment.inner_products import alignments
from manylens.alignment.sketched import sketch_replicates, sketched_cka

RETURNS = ("score", "angle")


def cka(
    X,
    Y,
    kernel="linear",
    estimator="biased",
    center=True,
    return_="score",
    *,
    gamma="median",
    sketch=None,
    n_replicates=8,
):
    """Centered kernel alignment of two representations of the same rows.

    ρ(K, L) = <K, L> / (|K| |L|) for the centered kernel matrices K of X and L of Y; for linear kernels and
    centered features |XᵀY|² / (|XᵀX| |YᵀY|) (Cortes, Mohri and Rostamizadeh 2012; Kornblith et al. 2019). It
    does not change when X is rotated, shifted or scaled.

    Parameters
    ----------
    X, Y : array-like or sparse matrix, shapes (n, d_x) and (n, d_y)
        Features; row i of both describes the same sample. Kernel matrices (n, n) for "precomputed".
    kernel : {"linear", "rbf", "precomputed"} or callable, default="linear"
        The kernel of both; a callable takes two arrays of rows and returns their kernel values.
    estimator : {"biased", "unbiased"}, default="biased"
        "biased" is the formula above. "unbiased" replaces the three inner products by their unbiased
        estimates (Song et al. 2012; Nguyen et al. 2021), which no longer grow toward 1 with the width of the
        features when rows are few; it needs 4 rows and may be slightly negative.
    center : bool, default=True
        False gives the uncentered alignment of Cristianini et al. (2001).
    return_ : {"score", "angle"}, default="score"
        The alignment itself, 1 for equal kernels, or arccos of it, a distance: 0 for equal kernels.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        Scale of "rbf", exp(-gamma |x - y|²): a rule of `manylens.kernels.bandwidth`, applied to X and to Y,
        or the value.
    sketch : CountSketch, optional
        Estimate from sketches of this kind instead (linear, biased, centered only).
    n_replicates : int, default=8
        Independent sketches, with seeds that follow the given one; their spread gives the standard error.

    Returns
    -------
    float or Estimate
        The alignment; with `sketch` an `Estimate` with `value`, `standard_error` and `interval()`.

    Notes
    -----
    Exact otherwise, by whichever of two ways costs less: products of features, n d_x d_y operations, or
    blocks of kernel matrices, n² (d_x + d_y), of which 32 MB are held at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import cka
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> round(cka(X, 3 * X[:, ::-1] + 1), 12)
    1.0
    """
    check_return(return_)
    X, Y = check_features(X, "X"), check_features(Y, "Y")
    check_same_rows(X, Y)
    if sketch is not None:
        if kernel != "linear" or estimator != "biased" or not center:
            raise ValueError(
                "A sketch estimates the linear, centered, biased alignment; leave kernel, estimator and "
                "center at their defaults."
            )
        refuse_constant([X, Y], ["X", "Y"])
        sketches_x, sketches_y = (sketch_replicates(Z, sketch, n_replicates) for Z in (X, Y))
        return sketched_cka(sketches_x, sketches_y, return_)
    scores = alignments([X, Y], ["X", "Y"], kernel, estimator, center, gamma)
    return float(as_returned(scores[0, 1], return_))


def cka_matrix(
    representations, kernel="linear", estimator="biased", center=True, return_="score", *, gamma="median"
):
    """Alignment of every representation with every other.

    Parameters
    ----------
    representations : dict or sequence of array-like, each of shape (n, d_k)
        Feature sets of the same rows.
    kernel, estimator, center, return_, gamma
        As for `cka`.

    Returns
    -------
    ndarray, shape (p, p), or pandas.DataFrame
        A data frame with names on both sides for a dict (which needs pandas), an array for a sequence.

    Notes
    -----
    Each pair is computed once and each representation's own norm once. Memory: a centered copy of the
    features, or, where n is the smaller, 32 MB of kernel blocks.
    """
    check_return(return_)
    names, arrays = check_feature_sets(representations)
    scores = alignments(arrays, names, kernel, estimator, center, gamma)
    return labeled(as_returned(scores, return_), names, representations)


def check_return(return_):
    """Refuse an unknown form of the result."""
    if return_ not in RETURNS:
        raise ValueError(f"return_={return_!r} is unknown: choose score or angle.")


def as_returned(scores, return_):
    """Scores as they are, or as angles."""
    return np.arccos(np.clip(scores, -1.0, 1.0)) if return_ == "angle" else scores


def labeled(scores, names, given):
    """A data frame where the representations were given by name, else the array."""
    if not hasattr(given, "keys"):
        return scores
    try:
        import pandas
    except ImportError:
        raise ImportError(
            "Representations given by name come back as a data frame, which needs pandas: "
            "pip install pandas, or give a list."
        ) from None
    return pandas.DataFrame(scores, index=names, columns=names)
