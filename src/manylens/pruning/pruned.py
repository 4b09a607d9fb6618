"""The pruned model: the members that are kept, their weights, an intercept, and nothing of the rest."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.validation import validate_data

from manylens.native.trees import check_flat_trees, flatten_trees, sum_of_trees, sum_of_trees_with_missing

BLOCK_BYTES = 2**26  # most that the predictions of one block of rows take


class Scored:
    """Something that predicts classes or values, scored as scikit-learn scores either."""

    predict: Any

    def score(self, X, y, sample_weight=None):
        """Accuracy of classes, R² of values.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Rows.
        y : array-like, shape (n,)
            Truth.
        sample_weight : array-like, shape (n,), optional
            Weights of the rows.

        Returns
        -------
        float
            The score.
        """
        measure = accuracy_score if is_classifier(self) else r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))


class PrunedEnsemble(Scored, BaseEstimator):
    """A weighted sum of fitted predictors.

    The score of a row is intercept + Σ_k w_k f_k(x). It is made by `AlignmentPruner`; only the members that
    are kept are in it, so it is as small as they are. Trees are held as arrays that are walked together, so
    that a file of them needs no class of scikit-learn.

    Parameters
    ----------
    members : Members
        The members that are kept, or what is left to say of them once they are `trees`.
    weights : ndarray, shape (n_kept,)
        Their weights.
    intercept : ndarray, shape (C,)
        Constant, one a column.
    trees : FlatTrees, optional
        All members, weights in the leaves, where they are trees.
    n_features_in : int, optional
        Number of features.
    feature_names_in : ndarray of str, optional
        Names of the features.
    n_jobs : int, optional
        Threads, where members are asked one by one.
    """

    def __init__(
        self,
        members,
        weights,
        intercept,
        trees=None,
        n_features_in=None,
        feature_names_in=None,
        n_jobs=None,
    ):
        self.members = members
        self.weights = weights
        self.intercept = intercept
        self.trees = trees
        self.n_features_in = n_features_in
        self.feature_names_in = feature_names_in
        self.n_jobs = n_jobs

    @classmethod
    def of(cls, members, weights, intercept, **rows):
        """The pruned model of these members, flattened where they are trees."""
        trees = members.trees(weights)
        if trees is None:
            return cls(members, weights, intercept, **rows)
        return cls(members.bare(), weights, intercept, flatten_trees(trees), **rows)

    def __sklearn_clone__(self):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def __setstate__(self, state):
        super().__setstate__(state)
        if self.trees is not None:  # walked without looking at bounds, and the file may be a stranger's
            check_flat_trees(self.trees, self.n_features_in, len(self.intercept))

    def __getattr__(self, name):
        fitted = {"n_features_in_": "n_features_in", "feature_names_in_": "feature_names_in"}
        value = self.__dict__.get(fitted.get(name, ""))
        if value is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return value

    @property
    def classes_(self):
        """Classes; regression has none."""
        if self.members.classes is None:
            raise AttributeError("A regression has no classes_.")
        return self.members.classes

    def fit(self, X, y=None):
        """Change nothing: the members are fitted.

        Parameters
        ----------
        X, y : object
            Ignored.

        Returns
        -------
        PrunedEnsemble
            Itself.
        """
        return self

    def score_rows(self, X):
        """Intercept + Σ_k w_k f_k(x).

        Parameters
        ----------
        X : array-like, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, C)
            The scores: predictions, least-squares estimates of class probabilities, or log-odds (boosting).
        """
        X = check_rows(self, X, self.members, reset=False)
        if self.trees is not None:
            return tree_sums(X, self.trees) + self.intercept
        return np.concatenate(
            [
                np.einsum("ikc,k->ic", P, self.weights) + self.intercept
                for _, P in blocks_of_predictions(self.members, X, self.n_jobs)
            ]
        )

    def predict(self, X):
        """Predict.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n,)
            Classes or values.
        """
        scores = self.score_rows(X)
        if self.members.classes is None:
            return scores[:, 0]
        if scores.shape[1] == 1:
            return self.classes_[(scores[:, 0] > 0).astype(int)]
        return self.classes_[np.argmax(scores, axis=1)]

    def predict_proba(self, X):
        """Class probabilities.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, C)
            For boosting, the inverse link of the scores; otherwise the scores, clipped to [0, 1] and made to
            sum to one.
        """
        if self.members.classes is None:
            raise AttributeError("A regression has no class probabilities.")
        return probabilities(self.score_rows(X), self.members.link)

    def __sklearn_tags__(self):
        return typed_tags(super().__sklearn_tags__(), self.members.classes)


def typed_tags(tags, classes):
    """Tags of a classifier (`classes` given) or of a regressor."""
    if classes is None:
        tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
    else:
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
    tags.target_tags.required = True
    return tags


def check_rows(estimator, X, members, reset):
    """Rows as the members take them: arrays, or as they are given."""
    if members.as_given:
        X = X if hasattr(X, "shape") else np.asarray(X)
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        return X
    return validate_data(
        estimator,
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite="allow-nan" if members.allow_nan else True,
        reset=reset,
    )


def tree_sums(X, trees):
    """Sums of flat trees for rows of any kind.

    Parameters
    ----------
    X : ndarray or sparse array, shape (n, d)
        Rows.
    trees : FlatTrees
        The trees.

    Returns
    -------
    ndarray of float64, shape (n, C)
        The sums.
    """
    if sparse.issparse(X):
        size = max(1, BLOCK_BYTES // (4 * X.shape[1]))
        blocks = [X[start : start + size].toarray() for start in range(0, X.shape[0], size)]
        return np.concatenate([tree_sums(block, trees) for block in blocks])
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(X, dtype=np.float32)  # trees compare in single precision
    if np.isfinite(narrow).all():
        return sum_of_trees(narrow, *trees)
    if np.isinf(narrow).any():
        raise ValueError("Input X contains infinity or a value too large for dtype('float32').")
    return sum_of_trees_with_missing(narrow, *trees)


def blocks_of_predictions(members, X, n_jobs=None):
    """Rows and the predictions of all members for them, a block at a time.

    Parameters
    ----------
    members : Members
        The predictors.
    X : array-like, shape (n, d)
        Rows.
    n_jobs : int, optional
        Threads.

    Yields
    ------
    rows : slice
        Which rows.
    P : ndarray, shape (m, p, C)
        Predictions.
    """
    n = X.shape[0]
    size = max(1, BLOCK_BYTES // (8 * len(members.members) * members.n_outputs))
    take = X.iloc.__getitem__ if hasattr(X, "iloc") else X.__getitem__
    for start in range(0, n, size):
        rows = slice(start, min(n, start + size))
        P = members.predict(take(rows), n_jobs)
        if not np.isfinite(P).all():
            wrong = np.flatnonzero(~np.isfinite(P).all(axis=(0, 2)))
            raise ValueError(
                f"Predictions contain NaN or infinity, those of member {wrong[0]} first: leave such members "
                "out."
            )
        yield rows, P


def probabilities(scores, link):
    """Class probabilities (n, C) from scores.

    Parameters
    ----------
    scores : ndarray, shape (n, C), or (n, 1) for the log-odds of two classes
        Scores.
    link : {"identity", "logistic"}
        Whether they estimate probabilities, or log-odds.

    Returns
    -------
    ndarray, shape (n, C)
        Non-negative rows that sum to one.
    """
    if link == "identity":
        clipped = np.clip(scores, 0.0, 1.0)
        total = clipped.sum(axis=1, keepdims=True)
        return np.where(total > 0, clipped / np.where(total > 0, total, 1.0), 1 / scores.shape[1])
    if scores.shape[1] == 1:
        scores = np.column_stack([np.zeros(len(scores)), scores])
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)
