"""One number that turns scores into probabilities without changing a single label."""

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

SHARPEST = 1e4  # times the reach of the scores: beyond, probabilities are 0 and 1 to all digits


class TemperatureScaler(BaseEstimator):
    """Probabilities softmax(scores / T), with T > 0 of the greatest likelihood.

    Dividing by T keeps the order of a row's scores, so no predicted label changes. The likelihood is concave
    in 1/T; its maximum is the root of a decreasing function and is found to rounding.

    Give it scores of rows that the classifier has not seen, or that were left out: scores of its training
    rows are too good, and T too small.

    Attributes
    ----------
    temperature_ : float
        T.
    classes_ : ndarray, shape (C,)
        Labels, in the order of the columns of the scores.
    n_features_in_ : int
        C.

    See Also
    --------
    expected_calibration_error : What scaling is to lower.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural networks".

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import TemperatureScaler
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(3, size=500)
    >>> scores = 10 * (np.eye(3)[y] + rng.standard_normal((500, 3)))
    >>> scaler = TemperatureScaler().fit(scores, y)
    >>> bool(scaler.temperature_ > 5)
    True
    """

    def fit(self, scores, y):
        """Find the temperature.

        Parameters
        ----------
        scores : array-like, shape (n, C)
            Scores of each class, such as logits or the predictions of a ridge.
        y : array-like, shape (n,)
            True labels; all C classes occur.

        Returns
        -------
        TemperatureScaler
            The fitted scaler.
        """
        scores = check_array(scores, dtype=np.float64, input_name="scores")
        check_classification_targets(y)
        y = column_or_1d(y)
        check_consistent_length(scores, y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) != scores.shape[1]:
            raise ValueError(
                f"scores has {scores.shape[1]} columns and y holds {len(self.classes_)} classes: give one "
                "column for each class, in sorted order."
            )
        if len(self.classes_) < 2:
            raise ValueError("y holds one class: its probability is 1 at any temperature.")
        self.temperature_ = best_temperature(scores, codes)
        self.n_features_in_ = scores.shape[1]
        return self

    def predict_proba(self, scores):
        """Probabilities of the classes.

        Parameters
        ----------
        scores : array-like, shape (n, C)
            Scores.

        Returns
        -------
        ndarray, shape (n, C)
            Rows sum to one; float32 scores give float32.
        """
        check_is_fitted(self)
        scores = check_array(scores, dtype=[np.float64, np.float32], input_name="scores")
        if scores.shape[1] != self.n_features_in_:
            raise ValueError(f"scores has {scores.shape[1]} columns; in fit it had {self.n_features_in_}.")
        return softmax(scores / scores.dtype.type(self.temperature_), axis=1)

    def predict(self, scores):
        """The label with the greatest score, whatever the temperature.

        Parameters
        ----------
        scores : array-like, shape (n, C)
            Scores.

        Returns
        -------
        ndarray, shape (n,)
            Labels.
        """
        return self.classes_[np.argmax(self.predict_proba(scores), axis=1)]


def best_temperature(scores, codes):
    """T of the greatest likelihood.

    With b = 1/T the log-likelihood Σ_i b s_i,y - log Σ_c exp(b s_ic) is concave; its slope is the sum of
    s_i,y - E_b[s_i], which falls with b.

    Parameters
    ----------
    scores : ndarray, shape (n, C)
        Scores s.
    codes : ndarray of int, shape (n,)
        Column of the true class.

    Returns
    -------
    float
        T, within [reach / 1e4, 1e4 reach], where reach is the mean distance of a row's greatest score from
        its mean: at the lower end where every label has the greatest score, at the upper where scores tell
        nothing. One where all scores of each row are equal.
    """
    scores = scores - scores.mean(axis=1, keepdims=True)
    reach = float(scores.max(axis=1).mean())
    if reach == 0:
        return 1.0
    scores = scores / reach
    truth = scores[np.arange(len(scores)), codes]

    def slope(log_b):
        p = softmax(np.exp(log_b) * scores, axis=1)
        return np.mean(truth - np.sum(p * scores, axis=1))

    coldest, hottest = np.log(SHARPEST), -np.log(SHARPEST)
    if slope(coldest) >= 0:
        return reach / SHARPEST
    if slope(hottest) <= 0:
        return reach * SHARPEST
    return reach / float(np.exp(brentq(slope, hottest, coldest, xtol=1e-12)))
