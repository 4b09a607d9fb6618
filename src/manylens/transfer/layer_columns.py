"""Layers as they are given, and as ridge takes them: low rank, centered, of equal trace, weighted."""

import numbers
from collections.abc import Mapping

import numpy as np
from scipy import sparse

from manylens.alignment.features import centered, check_feature_sets, resolve_groups
from manylens.alignment.kernel_weights import alignment_system, solve_weights
from manylens.kernels import CountSketchMap, Linear
from manylens.summaries import CountSketch

LAYER_MAPS = ("nystroem", "projection")
WEIGHTS = ("alignment", "uniform", "stacked")


def as_layers(X):
    """Layers by name where several were given, else None.

    Parameters
    ----------
    X : dict, list or tuple of 2-d arrays, or array-like
        Layers of the same rows; a single array is left to the caller.

    Returns
    -------
    dict or None
        Arrays by name, or by position.
    """
    named = isinstance(X, Mapping) and not sparse.issparse(X)  # one of SciPy's formats is a mapping too
    listed = isinstance(X, list | tuple) and X and all(getattr(each, "ndim", 0) >= 2 for each in X)
    if not named and not listed:
        return None
    names, arrays = check_feature_sets(X, accept_sparse=False)
    return dict(zip(names, arrays, strict=True))


def resolve_slices(layer_slices, n_columns, names=None):
    """Names and columns of the layers of one array; all columns are one layer where nothing is said."""
    if layer_slices is None:
        return [0], [np.arange(n_columns)]
    return resolve_groups(layer_slices, n_columns, names)


class LayerMaps:
    """Every layer made low-rank, centered, and scaled so that its rows have a mean squared norm of one.

    Parameters
    ----------
    rank : int or None
        Width above which a layer is made low-rank; None keeps all layers as they are.
    kind : {"nystroem", "projection"}
        X (S X)ᵀ (S X Xᵀ Sᵀ)^(-1/2) with rows hashed by S, or X Sᵀ with columns hashed.
    n_hashes : int
        Buckets a row or column is added to.
    """

    def __init__(self, rank, kind="nystroem", n_hashes=4):
        self.rank = rank
        self.kind = kind
        self.n_hashes = n_hashes

    def fit(self, X, names, columns, random_state):
        """Learn the maps, means and scales.

        Parameters
        ----------
        X : ndarray, shape (n, d)
            Layers side by side.
        names : list
            Their names, for messages.
        columns : list of ndarray of int
            Their columns.
        random_state : RandomState
            Seed of the hashes.

        Returns
        -------
        LayerMaps
            Itself.
        """
        self.columns, self.maps, self.means, self.scales = columns, [], [], []
        for name, own in zip(names, columns, strict=True):
            rows = X[:, own]
            residual = centered(rows)
            if not residual.any():
                raise ValueError(
                    f"Layer {name!r} is constant: all its rows are equal (zeros, perhaps), so it says "
                    "nothing about them. Leave it out."
                )
            mean = rows.mean(axis=0, dtype=np.float64)
            mapped = self._fit_map(residual, random_state)
            low_rank = residual if mapped is None else mapped.transform(residual)
            size = np.sqrt(np.mean(np.square(low_rank, dtype=np.float64).sum(axis=1)))
            self.maps.append(mapped)
            self.means.append(mean)
            self.scales.append(float(size))
        return self

    def _fit_map(self, rows, random_state):
        n, d = rows.shape
        if self.rank is None or d <= self.rank or n <= self.rank:
            return None
        seed = random_state.randint(2**31 - 1)
        if self.kind == "nystroem":
            return CountSketchMap(Linear(), self.rank, self.n_hashes, seed).fit(rows)
        n_hashes = min(self.n_hashes, self.rank)
        return HashedColumns(CountSketch(self.rank // n_hashes * n_hashes, n_hashes, seed).matrix(d))

    def transform(self, X):
        """Low-rank layers of rows.

        Parameters
        ----------
        X : ndarray, shape (n, d)
            Layers side by side.

        Returns
        -------
        list of ndarray, each of shape (n, rank_l)
            In the dtype of X.
        """
        layers = []
        for own, mapped, mean, scale in zip(self.columns, self.maps, self.means, self.scales, strict=True):
            rows = X[:, own] - mean.astype(X.dtype)
            layers.append((rows if mapped is None else mapped.transform(rows)) / X.dtype.type(scale))
        return layers


class HashedColumns:
    """Random projection X Sᵀ by a sparse S (n_buckets, d)."""

    def __init__(self, matrix):
        self.matrix = matrix.T.tocsr()

    def transform(self, rows):
        return np.asarray(rows @ self.matrix.astype(rows.dtype))


def layer_weights(layers, names, targets, weights):
    """Weights of the layers' kernels, by a rule or as given, summing to one.

    Parameters
    ----------
    layers : list of ndarray, each of shape (n, d_l)
        Low-rank layers of equal trace.
    names : list
        Their names.
    targets : ndarray, shape (n, C)
        One-hot classes or values.
    weights : {"alignment", "uniform"}, dict, or array-like of shape (L,)
        alignf, equal weights, or one's own: a layer that a dict does not name has none.

    Returns
    -------
    ndarray, shape (L,)
        A convex combination.
    """
    if isinstance(weights, str) and weights == "alignment":
        if np.all(targets == targets[0]):
            raise ValueError(
                "weights='alignment' needs rows that differ in their target; all of these have the same. "
                "Give more rows at first, or choose weights='uniform'."
            )
        found = solve_weights(*alignment_system(layers, names, targets))
    elif isinstance(weights, str):
        found = np.ones(len(layers))
    else:
        found = own_weights(weights, names)
    return found / found.sum()


def own_weights(weights, names):
    """A user's weights as an array, or a sentence."""
    if isinstance(weights, Mapping):
        unknown = [name for name in weights if name not in names]
        if unknown:
            raise ValueError(f"weights names the layer {unknown[0]!r}, which X has not.")
        weights = [weights.get(name, 0.0) for name in names]
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (len(names),):
        raise ValueError(
            f"weights has shape {values.shape}: give one number for each of the {len(names)} layers."
        )
    if not np.isfinite(values).all() or values.min() < 0 or values.sum() == 0:
        raise ValueError("weights must be finite, not below zero, and not all zero.")
    return values


def combine(layers, weights):
    """The layers with a weight, times its root, side by side: their linear kernel is Σ_l μ_l K_l.

    Parameters
    ----------
    layers : list of ndarray, each of shape (n, d_l)
        Layers.
    weights : ndarray, shape (L,)
        μ.

    Returns
    -------
    ndarray, shape (n, D)
        Of the layers kept.
    """
    kept = [rows * rows.dtype.type(np.sqrt(w)) for rows, w in zip(layers, weights, strict=True) if w > 0]
    return np.hstack(kept)


def check_choice(value, name, choices):
    """Refuse a word that is not one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r} is unknown: choose one of {', '.join(map(repr, choices))}.")


def check_positive(given, name):
    """Candidates as an array of positive numbers."""
    values = np.atleast_1d(np.asarray(given, dtype=np.float64))
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or values.min() <= 0:
        raise ValueError(f"{name}={given!r}: give positive numbers, at least one.")
    return values


def check_whole(value, name):
    """A positive whole number, or one sentence."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r} is not a positive whole number.")
    return int(value)
