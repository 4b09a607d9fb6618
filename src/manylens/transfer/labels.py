"""Labels as they are given, and as scores give them back."""

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

UNLABELLED = -1


class ScoredClassifier(ClassifierMixin):
    """Labels and probabilities from `_class_scores(X)` of shape (n, C), `classes_` and `temperature_`."""

    def decision_function(self, X):
        """Scores of the classes.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n, C), or (n,) for two classes
            The greatest belongs to the predicted class; for two, a positive number to the second.
        """
        scores = self._class_scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X):
        """Calibrated probabilities of the classes.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n, C)
            Rows sum to one.
        """
        scores = self._class_scores(X)
        return softmax(scores / scores.dtype.type(self.temperature_), axis=1)

    def predict(self, X):
        """The class with the greatest score.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n,)
            Labels.
        """
        scores = self._class_scores(X)
        return self.classes_[np.argmax(scores, axis=1)]


def check_labels(y, X):
    """Labels as a 1-d array of the length of X, or a sentence."""
    refuse_no_target(y)
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    check_consistent_length(X, y)
    return y


def refuse_no_target(y):
    """The words that scikit-learn uses where y is missing."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")


def refuse_one_class(classes):
    """Refuse labels that leave nothing to tell apart."""
    if len(classes) < 2:
        raise ValueError(
            "y holds one class: there is nothing to tell apart. Give rows of at least two classes."
        )


def refuse_unlabeled(y):
    """Refuse -1 beside two or more other whole numbers, where it marks rows without a label."""
    if y.dtype.kind in "iuf" and np.any(y == UNLABELLED) and len(np.unique(y)) > 2:
        count = int(np.sum(y == UNLABELLED))
        raise ValueError(
            f"y is -1 for {count} rows, which marks rows without a label: leave them out, or give them to "
            "TransductiveRidgeClassifier."
        )
