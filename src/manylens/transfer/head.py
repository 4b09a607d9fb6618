"""The last step of layered ridge: from the weighted layers of a row to its scores."""

from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state, gen_batches

from manylens.kernels import RBF, CountSketchMap, FeatureMap, Linear, LinearMap, NystroemMap
from manylens.kernels.kernels import fitted_kernel
from manylens.summaries import block_rows
from manylens.transfer.ridge import DualRidge, PrimalRidge, choose_alpha, linear_ridge

HEADS = ("rbf", "linear")


class HeadSettings(NamedTuple):
    """What a head is to be.

    Parameters
    ----------
    kind : {"rbf", "linear"}
        Kernel of the ridge.
    gamma : {"max-norm", "mean", "median"} or float
        Scale of the Gaussian kernel.
    max_exact_rows : int
        Rows up to which the kernel ridge is exact.
    rank : int
        Number of landmarks beyond.
    landmarks : {"uniform", "k-means", "count-sketch"}
        How they are chosen.
    alphas : ndarray, shape (A,)
        Penalties to choose from.
    """

    kind: str
    gamma: float
    max_exact_rows: int
    rank: int
    landmarks: str
    alphas: np.ndarray

    def is_exact(self, n_rows):
        """Whether the Gaussian kernel is taken between all rows."""
        return self.kind == "rbf" and n_rows <= self.max_exact_rows

    def feature_map(self, features, random_state):
        """The landmark map of the kernel, fitted on features (n, D)."""
        kernel = RBF(self.gamma) if self.kind == "rbf" else Linear()
        if self.landmarks == "count-sketch":
            return CountSketchMap(kernel, rank=self.rank, random_state=random_state).fit(features)
        return NystroemMap(kernel, self.rank, self.landmarks, random_state).fit(features)


class RidgeHead:
    """Fitted head: `scores` of new rows, and those of the training rows when left out.

    Parameters
    ----------
    columns : object with `transform`
        From features (m, D) to the columns (m, p) that the coefficients multiply.
    width : int
        p.
    coef : ndarray, shape (p, C)
        Coefficients.
    intercept : ndarray, shape (C,)
        Intercept.
    """

    def __init__(self, columns, width, coef, intercept):
        self.columns = columns
        self.width = width
        self.coef = coef
        self.intercept = intercept

    def scores(self, features):
        """Predictions of rows, a block at a time.

        Parameters
        ----------
        features : ndarray, shape (n, D)
            Weighted layers side by side.

        Returns
        -------
        ndarray, shape (n, C)
            In the dtype of the features.
        """
        coef, intercept = self.coef.astype(features.dtype), self.intercept.astype(features.dtype)
        scores = np.empty((len(features), len(intercept)), dtype=features.dtype)
        for batch in gen_batches(len(features), block_rows(self.width, features.dtype.itemsize)):
            scores[batch] = self.columns.transform(features[batch]) @ coef + intercept
        return scores


class FittedHead(NamedTuple):
    """What `fit_head` found.

    Parameters
    ----------
    head : RidgeHead
        For new rows.
    left_out : ndarray, shape (n, C)
        Prediction of every training row from all the others.
    alpha : float
        Chosen penalty.
    errors : ndarray, shape (A,)
        Squared error of the rows left out, for every penalty.
    """

    head: RidgeHead
    left_out: np.ndarray
    alpha: float
    errors: np.ndarray


class KernelColumns:
    """Similarities to all training rows: the columns of the exact kernel ridge."""

    def __init__(self, kernel, rows):
        self.kernel = kernel
        self.rows = rows

    def transform(self, features):
        return self.kernel(features, self.rows)


def fit_head(features, targets, settings, random_state=None):
    """Ridge on the weighted layers, alpha by exact leave-one-out.

    Parameters
    ----------
    features : ndarray, shape (n, D)
        Weighted layers side by side.
    targets : ndarray, shape (n, C)
        One-hot classes or values.
    settings : HeadSettings
        What to fit.
    random_state : int, RandomState or None
        Which landmarks.

    Returns
    -------
    FittedHead
        Head, scores of the rows left out, alpha and errors.
    """
    random_state = check_random_state(random_state)
    ridge: PrimalRidge | DualRidge
    columns: FeatureMap | KernelColumns
    if settings.kind == "linear":
        ridge = linear_ridge(features, targets)
        columns, width = LinearMap().fit(features), features.shape[1]
    elif settings.is_exact(len(features)):
        kernel = fitted_kernel(RBF(settings.gamma), features, random_state)
        ridge = DualRidge(kernel(features, features), targets)
        columns, width = KernelColumns(kernel, features), len(features)
    else:
        mapped = settings.feature_map(features, random_state)
        ridge = PrimalRidge(mapped.transform(features), targets)
        columns, width = mapped, mapped.block_width
    alpha, errors = choose_alpha(ridge, settings.alphas)
    return FittedHead(RidgeHead(columns, width, *ridge.solve(alpha)), ridge.left_out(alpha), alpha, errors)
