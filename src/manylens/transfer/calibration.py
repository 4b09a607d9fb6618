"""How far stated probabilities are from the frequencies that came true."""

from typing import NamedTuple

import numpy as np
from sklearn.utils import check_array, check_consistent_length, column_or_1d

KINDS = ("top", "classwise")
BINNINGS = ("width", "mass")


class ReliabilityBins(NamedTuple):
    """Rows grouped by how confident their prediction is; groups without rows are left out.

    Parameters
    ----------
    confidence : ndarray, shape (B,)
        Mean probability stated.
    frequency : ndarray, shape (B,)
        Share of rows for which it came true.
    weight : ndarray, shape (B,)
        Share of all rows.
    """

    confidence: np.ndarray
    frequency: np.ndarray
    weight: np.ndarray

    @property
    def error(self):
        """Σ_b weight_b |frequency_b - confidence_b|."""
        return float(np.sum(self.weight * np.abs(self.frequency - self.confidence)))


def expected_calibration_error(y, proba, n_bins=15, kind="top", binning="width", classes=None):
    """Expected calibration error: Σ_b (n_b/n) |frequency of being right in bin b - mean confidence in b|.

    Parameters
    ----------
    y : array-like, shape (n,)
        True labels.
    proba : array-like, shape (n, C) or (n,)
        Probabilities of the classes, in sorted order of the labels; one column is that of the second of two
        classes.
    n_bins : int, default=15
        Number of bins.
    kind : {"top", "classwise"}, default="top"
        Whether the confidence in the predicted class is judged, or that in every class, averaged over
        classes.
    binning : {"width", "mass"}, default="width"
        Bins of equal width in [0, 1], or of equal numbers of rows, which waste none and depend less on where
        the confidences lie.
    classes : array-like, shape (C,), optional
        Labels of the columns, where not all of them occur in y.

    Returns
    -------
    float
        Between 0 and 1; 0 where confidence and frequency agree in every bin.

    Notes
    -----
    The estimate is biased upwards: a perfectly calibrated model with n rows in B bins has about sqrt(B/n).

    Examples
    --------
    >>> from manylens import expected_calibration_error
    >>> round(expected_calibration_error([0, 1, 1, 1], [[0.5, 0.5]] * 4), 2)  # predicts 0, right once in four
    0.25
    """
    y, proba, classes = check_probabilities(y, proba, classes)
    check_binning(n_bins, kind, binning)
    right = y[:, np.newaxis] == classes
    if kind == "top":
        return top_bins(right, proba, n_bins, binning).error
    return float(
        np.mean([reliability(proba[:, c], right[:, c], n_bins, binning).error for c in range(proba.shape[1])])
    )


def top_bins(right, proba, n_bins, binning):
    """Reliability of the predicted class, from indicators (n, C) of the true one."""
    top = np.argmax(proba, axis=1)
    rows = np.arange(len(top))
    return reliability(proba[rows, top], right[rows, top], n_bins, binning)


def reliability(confidence, right, n_bins, binning="width"):
    """Rows in bins of confidence.

    Parameters
    ----------
    confidence : ndarray, shape (n,)
        Stated probabilities.
    right : ndarray of bool, shape (n,)
        Whether it came true.
    n_bins : int
        Number of bins.
    binning : {"width", "mass"}
        Equal widths (a value on an edge belongs to the lower bin), or equal numbers; rows of equal confidence
        share a bin.

    Returns
    -------
    ReliabilityBins
        Of the bins that hold rows.
    """
    confidence = np.asarray(confidence, dtype=np.float64)
    if binning == "width":
        edges = np.linspace(0, 1, n_bins + 1)[1:-1]
    else:
        last = np.arange(1, n_bins) * len(confidence) // n_bins - 1  # of each bin, among the ordered rows
        edges = np.sort(confidence)[np.maximum(last, 0)]
    bins = np.searchsorted(edges, confidence, side="left")
    counts = np.bincount(bins, minlength=n_bins)
    held = counts > 0
    confidences = np.bincount(bins, weights=confidence, minlength=n_bins)[held] / counts[held]
    frequencies = np.bincount(bins, weights=right, minlength=n_bins)[held] / counts[held]
    return ReliabilityBins(confidences, frequencies, counts[held] / len(confidence))


def check_probabilities(y, proba, classes=None):
    """Labels (n,), probabilities (n, C) and the labels of the columns, or a sentence."""
    y = column_or_1d(y)
    proba = check_array(proba, dtype=np.float64, ensure_2d=False, input_name="proba")
    if proba.ndim == 1:
        proba = np.column_stack([1 - proba, proba])
    check_consistent_length(y, proba)
    if proba.min() < 0 or np.any(np.abs(proba.sum(axis=1) - 1) > 1e-4):
        raise ValueError(
            "proba holds rows that are not probabilities (below zero, or not summing to one): scale scores "
            "with TemperatureScaler first."
        )
    classes = np.unique(y) if classes is None else np.asarray(classes)
    if len(classes) != proba.shape[1]:
        raise ValueError(
            f"proba has {proba.shape[1]} columns and there are {len(classes)} classes: name the columns with "
            "classes=, such as model.classes_."
        )
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(f"y holds {unknown[0]!r}, which is not among classes.")
    return y, proba, classes


def check_binning(n_bins, kind="top", binning="width"):
    """Refuse bins that mean nothing."""
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is unknown: choose 'top' or 'classwise'.")
    if binning not in BINNINGS:
        raise ValueError(f"binning={binning!r} is unknown: choose 'width' or 'mass'.")
    if not isinstance(n_bins, int | np.integer) or n_bins < 1:
        raise ValueError(f"n_bins={n_bins!r} is not a positive whole number.")
