"""The estimator form of kernel learning: weigh groups of columns, keep those that matter."""

import numbers
from collections.abc import Mapping

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.alignment.features import check_feature_sets, is_constant, side_by_side, target_features
from manylens.alignment.kernel_weights import METHODS, alignment_system, solve_weights


class KernelAlignment(TransformerMixin, BaseEstimator):
    """Weigh groups of columns so that their joint linear kernel is best aligned with the target.

    `transform` answers with the centered columns of every group that has a weight above zero, times the root
    of the weight, side by side: their linear kernel is Σ_k μ_k K_k.

    Parameters
    ----------
    groups : None, list of int, list of columns or dict, default=None
        How columns form feature sets: each column its own set (None); the widths of consecutive sets; or the
        columns of each set (slices, or arrays of positions or of column names), by name in a dict. Not used
        where X is itself a dict or list of feature sets.
    method : {"alignf", "align", "r2", "uniform"}, default="alignf"
        As for `align_kernels`.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y.
    sketch : CountSketch, optional
        As for `align_kernels`.

    Attributes
    ----------
    weights_ : ndarray, shape (p,)
        Weights of the sets, non-negative, of unit norm; zero for a set that is constant.
    group_names_ : list
        Names of the sets, or their positions.
    columns_ : list of ndarray of int
        Columns of each set.
    mean_ : ndarray, shape (d,)
        Column means, which are subtracted.
    alignment_ : float
        Alignment of the weighted kernel with the target kernel on the training rows (an estimate where a
        sketch was used).
    n_features_in_ : int
        Number of columns seen in fit.
    feature_names_in_ : ndarray of str
        Names of the columns seen in fit, where X had any.

    See Also
    --------
    align_kernels : The weights alone, also for other kernels and sparse features.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import KernelAlignment
    >>> X, y = load_digits(return_X_y=True)
    >>> pixels = KernelAlignment().fit(X, y)
    >>> pixels.transform(X).shape[1] < X.shape[1]
    True
    """

    _given: dict | None

    def __init__(self, groups=None, method="alignf", target="auto", sketch=None):
        self.groups = groups
        self.method = method
        self.target = target
        self.sketch = sketch

    def fit(self, X, y):
        """Learn the weights.

        Parameters
        ----------
        X : array-like, shape (n, d), or dict or list of arrays, each of shape (n, d_k)
            Columns of all feature sets, or the sets by name or one after another.
        y : array-like, shape (n,) or (n, C)
            Classes or real targets.

        Returns
        -------
        KernelAlignment
            The fitted estimator.
        """
        if self.method not in METHODS:
            raise ValueError(f"method={self.method!r} is unknown: choose one of {', '.join(METHODS)}.")
        sets = sets_by_name(X)
        X, self._given = (X, None) if sets is None else side_by_side(sets)
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        Y = target_features(y, len(X), self.target)
        self.group_names_, self.columns_ = resolve_groups(
            self.groups if self._given is None else self._given,
            X.shape[1],
            getattr(self, "feature_names_in_", None),
        )
        arrays = [X[:, columns] for columns in self.columns_]
        varying = [k for k, array in enumerate(arrays) if not is_constant(array)]
        if not varying:
            raise ValueError("Every column of X is constant: nothing can be aligned with y.")
        names = [self.group_names_[k] for k in varying]
        M, a = alignment_system([arrays[k] for k in varying], names, Y, sketch=self.sketch)
        weights = solve_weights(M, a, self.method)
        self.weights_ = np.zeros(len(arrays))
        self.weights_[varying] = weights
        centered_target = Y - Y.mean(axis=0)
        size = np.linalg.norm(centered_target.T @ centered_target)
        self.alignment_ = float(weights @ a / np.sqrt(weights @ M @ weights) / size)
        self.mean_ = X.mean(axis=0, dtype=np.float64)
        return self

    def transform(self, X):
        """Weigh, and leave out what has no weight.

        Parameters
        ----------
        X : array-like, shape (n, d), or dict or list of arrays, each of shape (n, d_k)
            As in fit; sets by name in any order.

        Returns
        -------
        ndarray, shape (n, d_kept)
            Columns of the sets that are kept, in the dtype of X.
        """
        check_is_fitted(self)
        sets = sets_by_name(X)
        if (sets is None) != (self._given is None):
            raise ValueError("Give X in the form that it had in fit: one array, or several feature sets.")
        X = X if sets is None else side_by_side(sets, self._given)[0]
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        columns, roots = self._kept()
        return (X[:, columns] - self.mean_[columns].astype(X.dtype)) * roots.astype(X.dtype)

    def _kept(self):
        """Columns of the sets with a weight, and the root of the weight of each column."""
        kept = [
            (columns, weight) for columns, weight in zip(self.columns_, self.weights_, strict=True) if weight
        ]
        columns = np.concatenate([columns for columns, _ in kept])
        return columns, np.concatenate([np.full(len(each), np.sqrt(weight)) for each, weight in kept])

    def get_feature_names_out(self, input_features=None):
        """Names of the columns that are kept.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns of X; those seen in fit, or x0, x1, ... by default.

        Returns
        -------
        ndarray of str
            Names of the output columns.
        """
        check_is_fitted(self)
        seen = getattr(self, "feature_names_in_", None)
        if input_features is None:
            input_features = seen if seen is not None else [f"x{k}" for k in range(self.n_features_in_)]
        input_features = np.asarray(input_features, dtype=object)
        if seen is not None and not np.array_equal(seen, input_features):
            raise ValueError("input_features is not equal to feature_names_in_")
        if len(input_features) != self.n_features_in_:
            raise ValueError(
                f"input_features should have length equal to number of features ({self.n_features_in_}), "
                f"got {len(input_features)}"
            )
        return input_features[self._kept()[0]]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def sets_by_name(X):
    """Feature sets that were given by name or one after another, as arrays; None where X is one array."""
    if sparse.issparse(X):  # one of SciPy's formats is a mapping too
        return None
    listed = isinstance(X, list | tuple) and len(X) > 0 and all(getattr(part, "ndim", 0) == 2 for part in X)
    if not (listed or isinstance(X, Mapping)):
        return None
    names, arrays = check_feature_sets(X, accept_sparse=False)
    return dict(zip(names, arrays, strict=True))


def resolve_groups(groups, n_columns, names=None):
    """Names and columns of the feature sets that `groups` describes.

    Parameters
    ----------
    groups : None, list of int, list of columns or dict
        See `KernelAlignment`.
    n_columns : int
        Number of columns of X.
    names : ndarray of str, optional
        Names of the columns.

    Returns
    -------
    group_names : list
    columns : list of ndarray of int
    """
    if groups is None:
        return list(range(n_columns)), [np.array([k]) for k in range(n_columns)]
    if isinstance(groups, Mapping):
        group_names, groups = list(groups), list(groups.values())
    else:
        groups = list(groups)
        group_names = list(range(len(groups)))
    if groups and all(isinstance(group, numbers.Integral) for group in groups):
        ends = np.cumsum(groups)
        if min(groups) < 1 or ends[-1] != n_columns:
            raise ValueError(f"The widths {groups} do not add up to the {n_columns} columns of X.")
        columns = [np.arange(end - width, end) for width, end in zip(groups, ends, strict=True)]
    else:
        columns = [resolve_columns(group, n_columns, names) for group in groups]
    if not columns or any(len(each) == 0 for each in columns):
        raise ValueError("groups holds no columns, or a set without any.")
    return group_names, columns


def resolve_columns(group, n_columns, names):
    """Positions of the columns of one set."""
    if isinstance(group, slice):
        return np.arange(n_columns)[group]
    group = np.asarray(group)
    if group.dtype.kind in "iu":
        if np.any((group < 0) | (group >= n_columns)):
            raise ValueError(f"groups names column {group.max()}; X has {n_columns}.")
        return group
    place = {} if names is None else {name: k for k, name in enumerate(names)}
    unknown = [name for name in group.tolist() if name not in place]
    if unknown:
        raise ValueError(f"groups names columns that X has not: {', '.join(map(str, unknown))}.")
    return np.array([place[name] for name in group.tolist()])
