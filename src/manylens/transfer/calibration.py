"""Calibration: the expected calibration error of probabilities, and temperature scaling of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from manylens.reprs import FactsMixin
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray
from manylens.validation import (
    check_choice,
    check_count,
    distinct_labels,
    label_column,
    plain_conversion_errors,
    plain_label_errors,
    require_two_classes,
    restore_on_error,
    safe_scale,
    times_power,
)

Kind: TypeAlias = Literal["top", "classwise"]
Binning: TypeAlias = Literal["width", "mass"]

MAX_SCALING = 1e4  # bound on the temperature: larger scores would only give probabilities of 0 and 1


@dataclass(frozen=True)
class ReliabilityBins:
    """Rows grouped by the confidence of their prediction, without empty groups."""

    confidence: FloatArray  # mean predicted probability, (B,)
    frequency: FloatArray  # share of rows for which the prediction is correct, (B,)
    weight: FloatArray  # share of all rows, (B,)

    @property
    def error(self) -> float:
        """Σ_b weight_b |frequency_b - confidence_b|."""
        return float(np.sum(self.weight * np.abs(self.frequency - self.confidence)))


def expected_calibration_error(
    y: ArrayLike,
    proba: ArrayLike,
    n_bins: int = 15,
    kind: Kind = "top",
    binning: Binning = "width",
    classes: ArrayLike | None = None,
) -> float:
    """Expected calibration error: Σ_b (n_b/n) |accuracy in bin b - mean confidence in bin b|.

    Parameters
    ----------
    y : array-like, shape (n,)
        True labels.
    proba : array-like, shape (n, C) or (n,)
        Probabilities of the classes, in sorted order; a single column holds the probability of the second of
        two classes.
    n_bins : int, default=15
        Number of bins.
    kind : {"top", "classwise"}, default="top"
        Error for the predicted class, or for each class, averaged over classes.
    binning : {"width", "mass"}, default="width"
        Bins of equal width in [0, 1], or with equal numbers of rows.
    classes : array-like, shape (C,), default=None
        Labels of the columns; required if some do not occur in y.

    Returns
    -------
    float
        Between 0 and 1, biased upward: a calibrated model with n rows in B bins has about sqrt(B/n).

    Examples
    --------
    >>> from manylens import expected_calibration_error
    >>> round(expected_calibration_error([0, 1, 1, 1], [[0.5, 0.5]] * 4), 2)  # predicts 0, right once in four
    0.25
    """
    labels, P, columns = check_probabilities(y, proba, classes)
    check_choice(kind, "kind", ("top", "classwise"))
    correct = labels[:, np.newaxis] == columns
    if kind == "top":
        return top_bins(correct, P, n_bins, binning).error
    errors = [reliability(P[:, c], correct[:, c], n_bins, binning).error for c in range(P.shape[1])]
    return float(np.mean(errors))


def top_bins(correct: BoolArray, proba: FloatArray, n_bins: int, binning: Binning) -> ReliabilityBins:
    """Reliability of the predicted class, from indicators (n, C) of the true class."""
    top = np.argmax(proba, axis=1)
    rows = np.arange(len(top))
    return reliability(proba[rows, top], correct[rows, top], n_bins, binning)


def reliability(confidence: FloatArray, correct: BoolArray, n_bins: int, binning: Binning) -> ReliabilityBins:
    """Group rows by confidence; a value on the edge between two bins belongs to the lower one."""
    check_choice(binning, "binning", ("width", "mass"))
    check_count(n_bins, "n_bins")
    edges: FloatArray = np.linspace(0, 1, n_bins + 1)[1:-1]
    if binning == "mass":
        last = np.arange(1, n_bins) * len(confidence) // n_bins - 1  # last sorted row of each bin
        edges = np.sort(confidence)[np.maximum(last, 0)]
    bins = np.searchsorted(edges, confidence, side="left")
    counts = np.bincount(bins, minlength=n_bins)
    filled = counts > 0
    confidences = np.bincount(bins, weights=confidence, minlength=n_bins)[filled] / counts[filled]
    frequencies = np.bincount(bins, weights=correct, minlength=n_bins)[filled] / counts[filled]
    return ReliabilityBins(confidences, frequencies, counts[filled] / len(confidence))


def check_probabilities(
    y: ArrayLike, proba: ArrayLike, classes: ArrayLike | None = None
) -> tuple[AnyArray, FloatArray, AnyArray]:
    """Validated labels (n,), probabilities (n, C) and labels of the columns (C,)."""
    labels = label_column(y)
    with plain_conversion_errors("proba"):
        P = check_array(proba, dtype=np.float64, ensure_2d=False, input_name="proba")
    if P.ndim == 1:
        P = np.column_stack([1 - P, P])
    check_consistent_length(labels, P)
    if P.min() < 0 or np.any(np.abs(P.sum(axis=1) - 1) > 1e-4):
        fault = "proba contains rows that are not probabilities (negative, or not summing to one)"
        raise ValueError(f"{fault}: turn scores into probabilities with TemperatureScaler first.")
    with plain_label_errors():
        columns = np.unique(labels) if classes is None else label_column(classes)
        unknown = np.setdiff1d(labels, columns)
    if len(columns) != P.shape[1]:
        sizes = f"proba has {P.shape[1]} columns, but there are {len(columns)} classes"
        raise ValueError(f"{sizes}: give the labels of the columns, such as classes=model.classes_.")
    if len(unknown):
        raise ValueError(f"y contains {unknown[0]!r}, which is not in classes.")
    return labels, P, columns


class TemperatureScaler(FactsMixin, BaseEstimator):
    """Probabilities softmax(scores / T) with the maximum-likelihood temperature T > 0.

    Dividing by T does not change the predicted labels. Fit it to scores of rows that the classifier was not
    trained on, or to leave-one-out scores: with scores of the training rows, T would be too small.

    Attributes
    ----------
    temperature_ : float
        Temperature T.
    classes_ : ndarray, shape (C,)
        Labels of the columns of the scores.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural networks".

    Examples
    --------
    >>> from manylens import TemperatureScaler
    >>> scaler = TemperatureScaler().fit([[9, 0], [9, 0], [0, 9], [9, 0]], [0, 0, 1, 1])
    >>> scaler.predict_proba([[9, 0]]).round(2)
    array([[0.75, 0.25]])
    """

    _facts_shown = {"temperature_": "temperature", "classes_": "classes"}

    @restore_on_error
    def fit(self, scores: ArrayLike, y: ArrayLike) -> Self:
        """Find the temperature.

        Parameters
        ----------
        scores : array-like, shape (n, C)
            Scores of each class, such as logits or the predictions of a ridge regression.
        y : array-like, shape (n,)
            True labels; every class must occur.

        Returns
        -------
        TemperatureScaler
        """
        with plain_conversion_errors("scores"):
            checked = check_array(scores, dtype=np.float64, input_name="scores")
        labels = label_column(y)
        with plain_label_errors():
            check_classification_targets(labels)
        check_consistent_length(checked, labels)
        classes, codes = distinct_labels(labels)
        if len(classes) != checked.shape[1]:
            sizes = f"scores has {checked.shape[1]} columns, but y has {len(classes)} classes"
            raise ValueError(f"{sizes}: give one column per class, in sorted order.")
        require_two_classes(classes, type(self).__name__)
        self.temperature_ = best_temperature(checked, codes)
        self.classes_, self.n_features_in_ = classes, checked.shape[1]
        return self

    def predict_proba(self, scores: ArrayLike) -> FloatArray:
        """Calibrated probabilities.

        Parameters
        ----------
        scores : array-like, shape (n, C)
            Scores of each class.

        Returns
        -------
        ndarray, shape (n, C)
            Probabilities; float32 if the scores are.
        """
        checked = self._checked(scores)
        return tempered(checked, self.temperature_)

    def predict(self, scores: ArrayLike) -> AnyArray:
        """Labels with the highest score.

        Parameters
        ----------
        scores : array-like, shape (n, C)
            Scores of each class.

        Returns
        -------
        ndarray, shape (n,)
        """
        checked = self._checked(scores)
        return self.classes_[np.argmax(checked, axis=1)]

    def _checked(self, scores: ArrayLike) -> FloatArray:
        """Scores (n, C) as float32 or float64, with the columns seen in `fit`."""
        check_is_fitted(self)
        with plain_conversion_errors("scores"):
            checked = check_array(scores, dtype=[np.float64, np.float32], input_name="scores")
        if checked.shape[1] != self.n_features_in_:
            raise ValueError(f"scores has {checked.shape[1]} columns; in fit it had {self.n_features_in_}.")
        return checked


def tempered(scores: FloatArray, temperature: float) -> FloatArray:
    """Probabilities softmax(scores / T) (n, C) in the dtype of the scores, for scores of any size."""
    with np.errstate(over="ignore", under="ignore"):  # a score far below the largest has probability zero
        below = (scores - scores.max(axis=1, keepdims=True)).astype(np.float64) / temperature
        return softmax(below, axis=1).astype(scores.dtype)


def best_temperature(scores: FloatArray, codes: IntArray) -> float:
    """Maximum-likelihood temperature T > 0 for scores (n, C) and the column of each true class.

    With b = 1/T, the log-likelihood Σ_i b s_i,y - log Σ_c exp(b s_ic) is concave: its slope, the sum of
    s_i,y - E_b[s_i], decreases with b. T is 1 if each row has equal scores: then it does not matter.
    """
    exponent = safe_scale(scores)
    scores = times_power(scores, -exponent)
    scores = scores - scores.max(axis=1, keepdims=True)  # exactly zero if all scores of a row are equal
    scale = -float(scores.min(axis=1).mean())
    if scale == 0:
        return 1.0
    scores = scores / scale
    true_scores = scores[np.arange(len(scores)), codes]

    def slope(log_b: float) -> float:
        p = softmax(np.exp(log_b) * scores, axis=1)
        return float(np.mean(true_scores - np.sum(p * scores, axis=1)))

    bound, log_b = np.log(MAX_SCALING), 0.0
    if slope(bound) >= 0:
        log_b = bound
    elif slope(-bound) <= 0:
        log_b = -bound
    else:
        log_b = float(brentq(slope, -bound, bound, xtol=1e-12))
    with np.errstate(over="ignore", under="ignore"):
        temperature = float(np.ldexp(scale / np.exp(log_b), exponent))
    return float(np.clip(temperature, np.finfo(np.float64).tiny, np.finfo(np.float64).max))
