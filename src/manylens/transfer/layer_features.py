"""Layers as features: read, made low-rank, centered, scaled to the same trace, weighted and joined."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator

from manylens.alignment.features import centered, check_feature_sets, side_by_side
from manylens.alignment.kernel_alignment import resolve_groups
from manylens.alignment.kernel_weights import align_kernels
from manylens.kernels import CountSketchMap, Linear
from manylens.typing import AnyArray, FloatArray, IntArray
from manylens.validation import check_choice, validate_rows

Layers: TypeAlias = Mapping[Any, ArrayLike] | Sequence[ArrayLike] | ArrayLike
LayerSlices: TypeAlias = Sequence[Any] | Mapping[Any, Any] | None
LayerWeights: TypeAlias = (
    Literal["uniform", "alignment", "stacked"] | Mapping[Any, float] | Sequence[float] | FloatArray
)
Slices: TypeAlias = dict[Any, slice] | None  # columns of each layer, if X was given as several layers

WEIGHTS = ("uniform", "alignment", "stacked")
N_HASHES = 4  # buckets that each row is added to when a layer is sketched


def fit_rows(estimator: BaseEstimator, X: Layers) -> tuple[FloatArray, Slices]:
    """Validated training rows with all layers side by side, and the columns of layers given separately."""
    layers = layers_by_name(X)
    joined, slices = (X, None) if layers is None else side_by_side(layers)
    rows = validate_rows(estimator, joined, reset=True, accept_sparse=False, min_rows=2)
    return cast(FloatArray, rows), slices


def new_rows(estimator: BaseEstimator, X: Layers, slices: Slices) -> FloatArray:
    """Validated rows in the layout of `fit`; layers given by name may come in any order."""
    layers = layers_by_name(X)
    if layers is not None and slices is None:
        raise ValueError("X was one array in fit: pass one array again, with the layers side by side.")
    joined = X if layers is None else side_by_side(layers, slices)[0]
    return cast(FloatArray, validate_rows(estimator, joined, accept_sparse=False))


def layers_by_name(X: Layers) -> dict[Any, FloatArray] | None:
    """Layers by name or position, or None if X is a single array."""
    named = isinstance(X, Mapping) and not sparse.issparse(X)  # SciPy's dok format is a mapping, too
    listed = isinstance(X, list | tuple) and X and all(getattr(each, "ndim", 0) >= 2 for each in X)
    if not named and not listed:
        return None
    names, arrays = check_feature_sets(X, accept_sparse=False)
    return dict(zip(names, arrays, strict=True))


def layer_columns(
    slices: Slices, layer_slices: LayerSlices, n_columns: int, column_names: AnyArray | None
) -> tuple[list[Any], list[IntArray]]:
    """Names and columns of the layers; a single array without `layer_slices` is one layer."""
    if slices is not None:
        return list(slices), [np.arange(part.start, part.stop) for part in slices.values()]
    if layer_slices is None:
        return [0], [np.arange(n_columns)]
    return resolve_groups(layer_slices, n_columns, column_names)


@dataclass
class LayerMaps:
    """Maps of the layers to centered, low-rank features whose rows have a mean squared norm of one."""

    names: list[Any]
    columns: list[IntArray]
    maps: list[CountSketchMap | None]  # None: the layer is narrow enough
    means: list[FloatArray]
    scales: list[float]

    def transform(self, X: FloatArray) -> list[FloatArray]:
        """Features (n, rank_l) of each layer of rows (n, d), in the dtype of X."""
        layers = []
        for own, low_rank, mean, scale in zip(self.columns, self.maps, self.means, self.scales, strict=True):
            rows = X[:, own] - mean.astype(X.dtype)
            layers.append((rows if low_rank is None else low_rank.transform(rows)) / X.dtype.type(scale))
        return layers


def fit_layer_maps(
    X: FloatArray,
    names: list[Any],
    columns: list[IntArray],
    rank: int | None,
    random_state: np.random.RandomState,
) -> LayerMaps:
    """Learn the map, mean and scale of each layer.

    Layers of more than `rank` columns, if there are more rows than that, get the Nystroem features
    X (S X)ᵀ (S X Xᵀ Sᵀ)^(-1/2) of their rows hashed by S.
    """
    fitted = LayerMaps(names, columns, [], [], [])
    for name, own in zip(names, columns, strict=True):
        rows = X[:, own]
        residual = centered(rows)
        if not residual.any():
            raise ValueError(
                f"Layer {name!r} is constant: all its rows are equal, so it cannot help to predict. Leave it "
                "out."
            )
        low_rank = None
        if rank is not None and min(residual.shape) > rank:
            seed = random_state.randint(2**31 - 1)
            low_rank = CountSketchMap(Linear(), rank, N_HASHES, seed).fit(residual)
            residual = low_rank.transform(residual)
        fitted.maps.append(low_rank)
        fitted.means.append(rows.mean(axis=0, dtype=np.float64))
        fitted.scales.append(float(np.sqrt(np.mean(np.square(residual, dtype=np.float64).sum(axis=1)))))
    return fitted


def is_stacked(weights: LayerWeights) -> bool:
    """Whether each layer gets a ridge of its own."""
    return isinstance(weights, str) and weights == "stacked"


def layer_weights(
    layers: list[FloatArray], names: list[Any], targets: FloatArray, weights: LayerWeights
) -> FloatArray:
    """Weights (L,) of the layers' kernels, by rule or as given, summing to one."""
    if isinstance(weights, str):
        check_choice(weights, "weights", WEIGHTS)
    if isinstance(weights, str) and weights == "alignment":
        if np.all(targets == targets[0]):
            raise ValueError(
                "weights='alignment' needs rows that differ in their target, and all rows given have the "
                "same. Pass more rows at first, or use weights='uniform'."
            )
        found = cast(FloatArray, align_kernels(layers, targets, target="values"))
    elif isinstance(weights, str):
        found = np.ones(len(layers))
    else:
        found = given_weights(weights, names)
    return found / found.sum()


def given_weights(
    weights: Mapping[Any, float] | Sequence[float] | FloatArray, names: list[Hashable]
) -> FloatArray:
    """Weights (L,) that the user gave; a layer that a dict does not name has weight zero."""
    if isinstance(weights, Mapping):
        unknown = [name for name in weights if name not in names]
        if unknown:
            raise ValueError(f"weights has the key {unknown[0]!r}, but X has no layer of that name.")
        weights = [weights.get(name, 0.0) for name in names]
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (len(names),):
        raise ValueError(
            f"weights has shape {values.shape}: give one number for each of the {len(names)} layers."
        )
    if not np.isfinite(values).all() or values.min() < 0 or values.sum() == 0:
        raise ValueError("weights must be finite and non-negative, and at least one must be positive.")
    return values


def combine(layers: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Layers with positive weight times its root, side by side: their linear kernel is Σ_l μ_l K_l."""
    return np.hstack(
        [rows * rows.dtype.type(np.sqrt(w)) for rows, w in zip(layers, weights, strict=True) if w > 0]
    )
