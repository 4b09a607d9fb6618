"""Semi-supervised classifiers to compare transduction with: self-training and manifold regularization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import laplacian
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import kneighbors_graph
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from manylens.kernels import RBF
from manylens.kernels.bandwidths import Gamma
from manylens.scoring import PlainScoreMixin
from manylens.typing import AnyArray, BoolArray, FloatArray, IntArray, MatrixLike, Rows
from manylens.validation import (
    check_count,
    check_labels,
    check_reals,
    is_unlabeled,
    plain_conversion_errors,
    refuse_overflow,
    require_two_classes,
    restore_on_error,
    safe_scale,
    times_power,
    validate_rows,
)


class SemiSupervisedClassifier(PlainScoreMixin, ClassifierMixin, BaseEstimator):
    """Base class: `y` is -1 for unlabeled rows."""

    classes_: AnyArray

    @restore_on_error
    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Fit to labeled and unlabeled rows.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Rows.
        y : array-like, shape (n,)
            Labels; -1 ('-1' for strings) marks unlabeled rows.

        Returns
        -------
        self
        """
        given = validate_rows(self, X, reset=True, accept_sparse=False, min_rows=2)
        labels = check_labels(y, given)
        labeled = ~is_unlabeled(labels)
        known = labels[labeled]
        classes, codes = np.unique(known, return_inverse=True)
        require_two_classes(classes, type(self).__name__)
        self._exponent = safe_scale(given)
        rows = self._scaled(given)
        self._learn(rows, codes, labeled, len(classes))
        self.classes_ = classes
        self.transduction_ = classes[self._codes(rows)]
        self.transduction_[labeled] = known
        return self

    def predict(self, X: MatrixLike) -> AnyArray:
        """Predicted labels.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n,)
        """
        check_is_fitted(self)
        rows = validate_rows(self, X, accept_sparse=False)
        return self.classes_[self._codes(self._scaled(rows))]

    def _scaled(self, X: Rows) -> FloatArray:
        """Rows as float64, times a power of two if they are huge or tiny."""
        with np.errstate(over="ignore"):
            return refuse_overflow(np.asarray(times_power(X.astype(np.float64), -self._exponent)))

    def _learn(self, X: FloatArray, codes: IntArray, labeled: BoolArray, n_classes: int) -> None:
        """Fit to rows (n, d); those in the mask `labeled` have the class numbers `codes`."""
        raise NotImplementedError

    def _codes(self, X: FloatArray) -> IntArray:
        """Class numbers of rows."""
        raise NotImplementedError


class SelfTrainingLogisticRegression(SemiSupervisedClassifier):
    """Logistic regression, fitted again with its own predictions as labels of the unlabeled rows.

    Both fits standardize the columns and choose C by cross-validation. All predictions are used, whatever
    their probability; `sklearn.semi_supervised.SelfTrainingClassifier` uses the most probable ones first.

    Parameters
    ----------
    Cs : sequence of float, default=(1e-4, 1e-3, 1e-2, 0.1, 1)
        Candidates for C.
    cv : int, default=5
        Largest number of folds; if a class has only one label, the middle candidate is used.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Labels, without -1.
    supervised_ : estimator
        The classifier of the labeled rows alone, which predicts class numbers.
    estimator_ : estimator
        The classifier of all rows, which predicts class numbers.
    transduction_ : ndarray, shape (n,)
        Labels of all rows in `fit`; given labels are kept.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from manylens.baselines import SelfTrainingLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SelfTrainingLogisticRegression().fit(X, np.where(np.arange(150) % 5 == 0, y, -1))
    >>> bool(model.score(X, y) > 0.85)
    True
    """

    def __init__(self, Cs: Sequence[float] = (1e-4, 1e-3, 1e-2, 0.1, 1.0), cv: int = 5) -> None:
        self.Cs, self.cv = Cs, cv

    def _learn(self, X: FloatArray, codes: IntArray, labeled: BoolArray, n_classes: int) -> None:
        self.supervised_ = self._search(X[labeled], codes)
        pseudo_labels = np.empty(len(X), dtype=codes.dtype)
        pseudo_labels[labeled] = codes
        if not labeled.all():
            pseudo_labels[~labeled] = self.supervised_.predict(X[~labeled])
        self.estimator_ = self._search(X, pseudo_labels)

    def _codes(self, X: FloatArray) -> IntArray:
        with plain_conversion_errors("X"):
            return self.estimator_.predict(X)

    def _search(self, X: FloatArray, codes: IntArray) -> BaseEstimator:
        """A fitted pipeline with the cross-validated C."""
        n_folds = min(check_count(self.cv, "cv"), int(np.bincount(codes).min()))
        candidates = sorted(check_reals(self.Cs, "Cs", include="neither"))
        middle = LogisticRegression(C=candidates[len(candidates) // 2], max_iter=300)
        model = make_pipeline(StandardScaler(), middle)
        if n_folds > 1:
            search = GridSearchCV(model, {"logisticregression__C": candidates}, cv=n_folds)
            return search.fit(X, codes).best_estimator_
        return model.fit(X, codes)


class LaplacianRidgeClassifier(SemiSupervisedClassifier):
    """Manifold regularization: kernel ridge whose predictions vary little between neighboring rows.

    Minimizes |Y - f(X)|² over labeled rows + α (|f|² + r f(X)ᵀ L f(X)), with the normalized Laplacian L of a
    graph of nearest neighbors of all rows. The solution is a kernel ridge on the labeled rows with the kernel
    G = K (I + r L K)^(-1) instead of K. α and r are chosen by leave-one-out accuracy, then squared error. It
    takes O(n³) time for each r, and O(n²) memory.

    Parameters
    ----------
    gamma : {"max-norm", "mean", "median"} or float, default="mean"
        Scale of the Gaussian kernel.
    n_neighbors : int, default=10
        Neighbors of each row in the graph.
    strengths : sequence of float, default=(0.1, 1, 10, 100)
        Candidates for r; 0 is a ridge that ignores unlabeled rows.
    alphas : sequence of float, default=(1e-4, 1e-3, 1e-2, 0.1, 1)
        Candidates for α.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Labels, without -1.
    alpha_, strength_ : float
        Chosen α and r.
    dual_coef_ : ndarray, shape (n, C)
        Coefficients of the kernel with each row.
    transduction_ : ndarray, shape (n,)
        Labels of all rows in `fit`; given labels are kept.

    References
    ----------
    Belkin, Niyogi and Sindhwani (2006), "Manifold regularization".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from manylens.baselines import LaplacianRidgeClassifier
    >>> X, y = make_moons(300, noise=0.05, random_state=0)
    >>> model = LaplacianRidgeClassifier().fit(X, np.where(np.arange(300) < 20, y, -1))
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        gamma: Gamma = "mean",
        n_neighbors: int = 10,
        strengths: Sequence[float] = (0.1, 1.0, 10.0, 100.0),
        alphas: Sequence[float] = (1e-4, 1e-3, 1e-2, 0.1, 1.0),
    ) -> None:
        self.gamma, self.n_neighbors, self.strengths, self.alphas = gamma, n_neighbors, strengths, alphas

    def _learn(self, X: FloatArray, codes: IntArray, labeled: BoolArray, n_classes: int) -> None:
        n_neighbors = min(check_count(self.n_neighbors, "n_neighbors"), len(X) - 1)
        alphas = check_reals(self.alphas, "alphas", include="neither")
        kernel = RBF(self.gamma).fit(X)
        K = kernel(X, X)
        graph = kneighbors_graph(X, n_neighbors)
        L = laplacian(graph.maximum(graph.T), normed=True)
        targets, known = np.eye(n_classes)[codes], np.flatnonzero(labeled)
        best: tuple[float, float] | None = None
        for strength in check_reals(self.strengths, "strengths"):
            # (I + r L K)^(-1) on the labeled columns: K times it is G
            columns = np.linalg.solve(np.eye(len(K)) + strength * (L @ K), np.eye(len(K))[:, known])
            G = K[known] @ columns
            values, vectors = np.linalg.eigh((G + G.T) / 2)
            for alpha in alphas:
                inverse = vectors / (np.maximum(values, 0) + alpha) @ vectors.T
                dual = inverse @ targets
                left_out = targets - dual / np.diag(inverse)[:, np.newaxis]
                accuracy = float(np.mean(np.argmax(left_out, axis=1) == codes))
                quality = accuracy, -float(np.mean(np.square(targets - left_out)))
                if best is None or quality > best:
                    best = quality
                    self.alpha_, self.strength_, self.dual_coef_ = alpha, strength, columns @ dual
        if best is None:
            raise ValueError("strengths and alphas must each have at least one candidate.")
        self._kernel, self._rows = kernel, X

    def _codes(self, X: FloatArray) -> IntArray:
        return np.argmax(self._kernel(X, self._rows) @ self.dual_coef_, axis=1)
