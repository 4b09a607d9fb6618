"""Feature maps: finite coordinates psi(x) whose inner products are the kernel, psi(x).psi(y) = k(x, y).

Every map is psi(x) = features(x) @ root_, with root_ = None for the identity. One pass over the rows takes
only the moments of the features; the root is applied afterwards, to their covariance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import MiniBatchKMeans
from sklearn.utils import gen_batches
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.kernels import (
    RBF,
    FromCallable,
    Kernel,
    KernelLike,
    Laplacian,
    Linear,
    Precomputed,
    as_block,
    checked_block,
    kernel_or_rbf,
    make_kernel,
)
from manylens.kernels.spectrum import inverse_root, rank_tolerance, warn_if_indefinite
from manylens.summaries import CountSketch
from manylens.summaries.moments import block_rows
from manylens.typing import FloatArray, MatrixLike, Rows, Seed
from manylens.validation import (
    check_choice,
    check_count,
    check_rows,
    check_seed,
    is_sparse,
    refuse_extreme,
    refuse_overflow,
    require_memory,
    restore_on_error,
    safe_scale,
    shown,
    times_power,
    validate_rows,
)

LARGEST_AMPLIFICATION = 1e7  # of float64 rounding errors; the largest eigenvalue then keeps nine digits

MAPS = ("auto", "exact", "nystroem", "fourier", "linear")
Landmarks: TypeAlias = Literal["uniform", "k-means", "count-sketch"] | ArrayLike


class FeatureMap(TransformerMixin, BaseEstimator):
    """Base class of feature maps; subclasses define `fit`, `features` and `width`."""

    root_: FloatArray | None
    late_root_ = True  # whether the root may be applied to the covariance of the features instead of each row

    def fit(self, X: MatrixLike, y: None = None) -> Self:
        """Learn the map from rows (n, d); y is ignored."""
        raise TypeError(f"{type(self).__name__} does not define fit(X), which feature maps need.")

    def features(self, X: Rows) -> Rows:
        """Columns (n, width) of a block of rows (n, d), which the root turns into psi."""
        raise TypeError(f"{type(self).__name__} does not define features(X), which feature maps need.")

    @property
    def width(self) -> int:
        """Number of columns of `features`."""
        raise TypeError(f"{type(self).__name__} does not define width, which feature maps need.")

    @property
    def block_width(self) -> int:
        """Number of columns held in memory per row while mapping."""
        return self.width

    def transform(self, X: MatrixLike) -> FloatArray:
        """Dense coordinates psi (n, rank) of rows (n, d), computed block by block."""
        check_is_fitted(self, "root_")
        return np.vstack(
            [dense(self.apply_root(block)) for block in self.feature_blocks(validate_rows(self, X))]
        )

    def feature_blocks(self, X: Rows) -> Iterator[Rows]:
        """Features of consecutive blocks of rows, about 32 MB at a time."""
        check_is_fitted(self, "root_")
        X = as_block(self, X)
        for batch in gen_batches(X.shape[0], block_rows(self.block_width, X.dtype.itemsize)):
            yield self.features(X[batch])

    def apply_root(self, features: Rows) -> Rows:
        """Coordinates psi from features."""
        check_is_fitted(self, "root_")
        if self.root_ is None:
            return features
        if getattr(features, "shape", ())[1:] != (self.width,):
            raise ValueError(f"features must be an array of {self.width} columns, from `features`.")
        return safe_sparse_dot(features, self.root_.astype(features.dtype), dense_output=True)

    def _set_root(self, gram: FloatArray, kernel: Kernel, dtype: Any) -> Self:
        """Set the root from the Gram matrix of the landmarks of rows with this dtype."""
        gram = np.asarray(gram, dtype=np.float64)
        if not np.isfinite(gram).all():
            raise ValueError("The kernel gave NaN or infinity: check the function, or the scale of the rows.")
        refuse_extreme(gram, "The kernel matrix", limit=400)
        self.root_, amplification = inverse_root(gram, rank_tolerance(len(gram), dtype))
        self.late_root_ = amplification < LARGEST_AMPLIFICATION
        if isinstance(kernel, Precomputed | FromCallable):
            warn_if_indefinite(gram, self.root_)
        return self


class LinearMap(FeatureMap):
    """The identity, the exact map of the linear kernel; features of CSR rows stay sparse."""

    @restore_on_error
    def fit(self, X: MatrixLike, y: None = None) -> Self:
        X = validate_rows(self, X, reset=True)
        refuse_extreme(X)
        self.root_ = None
        return self

    def features(self, X: Rows) -> Rows:
        check_is_fitted(self, "root_")
        return as_block(self, X)

    @property
    def width(self) -> int:
        return self.n_features_in_


class LandmarkMap(FeatureMap):
    """Base class of maps psi(x) = k(x, landmarks) K^(-1/2); drops eigenvalues that are rounding errors."""

    kernel_: Kernel
    landmarks_: Rows

    def features(self, X: Rows) -> Rows:
        check_is_fitted(self, "root_")
        X = as_block(self, X)
        return checked_block(self.kernel_(X, self.landmarks_), X, self.landmarks_)

    @property
    def width(self) -> int:
        return int(self.landmarks_.shape[0])

    def _set_landmarks(self, landmarks: Rows, dtype: Any) -> Self:
        self.landmarks_ = landmarks
        gram = self.kernel_.gram(landmarks.astype(np.float64))
        return self._set_root(dense(gram), self.kernel_, dtype)


class ExactMap(LandmarkMap):
    """Every training row is a landmark, psi(x) = K^(-1/2) k(x), which is exact and takes O(n²) memory.

    Parameters
    ----------
    kernel : Kernel, default=None
        The kernel; RBF by default.
    random_state : int, RandomState or None, default=None
        Seed of the sample of rows for the kernel's scale.
    """

    def __init__(self, kernel: Kernel | None = None, random_state: Seed = None) -> None:
        self.kernel = kernel
        self.random_state = random_state

    @restore_on_error
    def fit(self, X: MatrixLike, y: None = None) -> Self:
        X = validate_rows(self, X, reset=True)
        self.kernel_ = kernel_or_rbf(self.kernel).fit(X, check_seed(self.random_state))
        if isinstance(self.kernel_, Precomputed):
            gram = self.kernel_.gram(X)
            self.landmarks_ = np.empty((len(gram), 0), dtype=X.dtype)
            return self._set_root(gram, self.kernel_, X.dtype)
        return self._set_landmarks(X, X.dtype)


class NystroemMap(LandmarkMap):
    """Similarities to `rank` landmarks: exact between landmarks, approximate elsewhere.

    Parameters
    ----------
    kernel : Kernel, default=None
        The kernel; RBF by default.
    rank : int, default=1000
        Number of landmarks (at most the number of rows).
    landmarks : {"uniform", "k-means"} or array-like of shape (rank, d), default="uniform"
        Random rows, cluster centers, or the given rows.
    random_state : int, RandomState or None, default=None
        Seed of the landmarks.
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        rank: int = 1000,
        landmarks: Landmarks = "uniform",
        random_state: Seed = None,
    ) -> None:
        self.kernel = kernel
        self.rank = rank
        self.landmarks = landmarks
        self.random_state = random_state

    @restore_on_error
    def fit(self, X: MatrixLike, y: None = None) -> Self:
        X = validate_rows(self, X, reset=True)
        check_count(self.rank, "rank")
        random_state = check_seed(self.random_state)
        self.kernel_ = kernel_with_landmarks(self.kernel, "nystroem").fit(X, random_state)
        return self._set_landmarks(choose_landmarks(X, self.rank, self.landmarks, random_state), X.dtype)


class CountSketchMap(LandmarkMap):
    """The Nystroem map whose landmarks are signed random sums of rows: one pass, and no row is kept.

    For the linear kernel the landmarks are the sketch S X itself, and psi(x) = x (S X)ᵀ (S X Xᵀ Sᵀ)^(-1/2).
    For other kernels they are μ + ½ S (X - 1 μᵀ) / sqrt(n/rank), with the mean μ and, on average, half the
    standard deviation of the rows: as n grows, plain sums S X would move away from all rows, and landmarks
    closer to the mean approximate the kernel better. Time is O((n_hashes + rank) n d). The sketch is a sum,
    so it can be computed in parts; if rows may be kept, `NystroemMap` is often more accurate.

    Parameters
    ----------
    kernel : Kernel, default=None
        The kernel; RBF by default.
    rank : int, default=1000
        Number of landmarks (at most the number of rows), rounded down to a multiple of `n_hashes`.
    n_hashes : int, default=4
        Number of landmarks that each row is added to.
    random_state : int, RandomState or None, default=None
        Seed of the hash.
    """

    def __init__(
        self, kernel: Kernel | None = None, rank: int = 1000, n_hashes: int = 4, random_state: Seed = None
    ) -> None:
        self.kernel = kernel
        self.rank = rank
        self.n_hashes = n_hashes
        self.random_state = random_state

    @restore_on_error
    def fit(self, X: MatrixLike, y: None = None) -> Self:
        X = validate_rows(self, X, reset=True)
        check_count(self.rank, "rank")
        check_count(self.n_hashes, "n_hashes")
        random_state = check_seed(self.random_state)
        self.kernel_ = kernel_with_landmarks(self.kernel, "nystroem").fit(X, random_state)
        n_hashes = min(self.n_hashes, self.rank, X.shape[0])
        n_buckets = min(self.rank, X.shape[0]) // n_hashes * n_hashes
        exponent = safe_scale(X)
        self.hash_ = CountSketch(n_buckets, n_hashes, random_state.randint(2**31 - 1))
        sketch = self.hash_.fresh().update(times_power(X, -exponent))
        landmarks = sketch.summary_
        if not isinstance(self.kernel_, Linear):
            landmarks = sketch.mean_ + sketch.centered() / (2 * np.sqrt(X.shape[0] / n_buckets))
        landmarks = times_power(landmarks, exponent).astype(X.dtype)
        if not np.isfinite(landmarks).all():
            raise ValueError(f"Sums of rows of X are beyond the range of {X.dtype}: scale X.")
        return self._set_landmarks(landmarks, X.dtype)


class FourierMap(FeatureMap):
    """Random Fourier features, psi(x) = sqrt(2/R) [cos(w_j.x), sin(w_j.x)], j = 1 ... R/2.

    E psi(x).psi(y) = k(x, y) for the rbf kernel (Gaussian w) and the laplacian kernel (Cauchy w). Orthogonal
    frequencies (Yu et al. 2016), for the rbf kernel only, at least halve the variance.

    Parameters
    ----------
    kernel : Kernel, default=None
        RBF (by default) or Laplacian.
    rank : int, default=1000
        Number of features R, even.
    orthogonal : bool or "auto", default="auto"
        Whether to make blocks of frequencies orthogonal; "auto" for the rbf kernel only.
    random_state : int, RandomState or None, default=None
        Seed of the frequencies.
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        rank: int = 1000,
        orthogonal: bool | Literal["auto"] = "auto",
        random_state: Seed = None,
    ) -> None:
        self.kernel = kernel
        self.rank = rank
        self.orthogonal = orthogonal
        self.random_state = random_state

    @restore_on_error
    def fit(self, X: MatrixLike, y: None = None) -> Self:
        X = validate_rows(self, X, reset=True)
        check_count(self.rank, "rank")
        check_choice(self.orthogonal, "orthogonal", (True, False, "auto"))
        # The frequencies with two copies, and the features of a few rows
        require_memory(8.0 * self.rank * (3 * X.shape[1] / 2 + 4), f"A map of {self.rank} Fourier features")
        random_state = check_seed(self.random_state)
        self.kernel_ = kernel_with_landmarks(self.kernel, "fourier").fit(X, random_state)
        if not isinstance(self.kernel_, RBF | Laplacian):
            raise ValueError(
                f"feature_map='fourier' supports the rbf and laplacian kernels only, not "
                f"{type(self.kernel_).__name__}. Use feature_map='nystroem'."
            )
        half = max(1, self.rank // 2)
        if isinstance(self.kernel_, Laplacian):
            if self.orthogonal is True:
                raise ValueError("orthogonal=True needs the rbf kernel: use orthogonal='auto' for laplacian.")
            frequencies: FloatArray = self.kernel_.scaled_gamma_ * random_state.standard_cauchy(
                (X.shape[1], half)
            )
        else:
            if self.orthogonal is False:
                frequencies = random_state.standard_normal((X.shape[1], half))
            else:
                frequencies = orthogonal_frequencies(X.shape[1], half, random_state)
            frequencies *= np.sqrt(2.0 * self.kernel_.scaled_gamma_)
        self.frequencies_ = frequencies.astype(X.dtype)
        self.root_ = None
        return self

    def features(self, X: Rows) -> FloatArray:
        check_is_fitted(self, "root_")
        X = as_block(self, X)
        with np.errstate(over="ignore", invalid="ignore"):
            angles: FloatArray = safe_sparse_dot(
                self.kernel_._scaled(X), self.frequencies_, dense_output=True
            )
        refuse_overflow(angles)
        scale = np.sqrt(1.0 / angles.shape[1]).astype(angles.dtype)
        return scale * np.hstack([np.cos(angles), np.sin(angles)])

    @property
    def width(self) -> int:
        return 2 * self.frequencies_.shape[1]


def make_feature_map(
    feature_map: str | FeatureMap,
    kernel: Kernel,
    X: Rows,
    rank: int = 1000,
    landmarks: Landmarks = "uniform",
    random_state: Seed = None,
) -> FeatureMap:
    """An unfitted feature map for rows X (n, d): "auto", "exact", "nystroem", "fourier" or "linear".

    "auto" chooses an exact map if it is cheap: "linear" for the linear kernel (if d <= n or d <= rank),
    "exact" if n <= rank. Otherwise, or if `landmarks` is not "uniform", it chooses "nystroem". A map object
    is copied; if it has no kernel or seed, it gets the ones given here.
    """
    if isinstance(feature_map, FeatureMap):
        own = feature_map.get_params(deep=False)
        defaults = {"kernel": kernel, "random_state": random_state}
        own.update({name: value for name, value in defaults.items() if name in own and own[name] is None})
        return type(feature_map)(**own)
    if not (isinstance(feature_map, str) and feature_map in MAPS):
        raise ValueError(
            f"feature_map={shown(feature_map)} is unknown: give {', '.join(map(repr, MAPS))} or a map of "
            "manylens.kernels."
        )
    if not isinstance(kernel, Kernel):
        kernel = make_kernel(kernel)
    if feature_map == "auto":
        check_count(rank, "rank")
        n, d = X.shape if getattr(X, "ndim", 0) == 2 else check_rows(X).shape
        if not (isinstance(landmarks, str) and landmarks == "uniform"):
            feature_map = "nystroem"
        elif isinstance(kernel, Linear) and d <= max(n, rank):
            feature_map = "linear"
        else:
            exact = isinstance(kernel, Precomputed) or not kernel.has_landmarks or n <= rank
            feature_map = "exact" if exact else "nystroem"
    if feature_map == "linear":
        if not isinstance(kernel, Linear):
            others = "'exact', 'nystroem' or 'fourier'" if kernel.has_landmarks else "'exact'"
            raise ValueError(
                f"feature_map='linear' is for the linear kernel only; {type(kernel).__name__} needs {others}."
            )
        return LinearMap()
    if feature_map == "exact":
        return ExactMap(Linear(centered=True) if isinstance(kernel, Linear) else kernel, random_state)
    if feature_map == "nystroem" and isinstance(landmarks, str) and landmarks == "count-sketch":
        return CountSketchMap(kernel, rank, random_state=random_state)
    if feature_map == "nystroem":
        return NystroemMap(kernel, rank, landmarks, random_state)
    return FourierMap(kernel, rank, random_state=random_state)


def kernel_with_landmarks(given: KernelLike | None, feature_map: str) -> Kernel:
    """An unfitted copy of a kernel (RBF if None); raise if only the exact map can represent it."""
    kernel = kernel_or_rbf(given)
    if isinstance(kernel, Precomputed):
        raise ValueError(
            f"feature_map={feature_map!r} needs rows, but kernel='precomputed' has none: use 'exact'."
        )
    if not kernel.has_landmarks:
        raise ValueError(
            f"feature_map={feature_map!r} needs a kernel that can compare any two rows, but "
            f"{type(kernel).__name__} is learned from the graph of all training rows: use 'exact' or 'auto'."
        )
    return kernel


def choose_landmarks(X: Rows, rank: int, how: Landmarks, random_state: np.random.RandomState) -> Rows:
    """Landmarks (at most rank, d) for a Nystroem map, in the precision of X."""
    n, d = X.shape
    if not isinstance(how, str):
        given = check_rows(how, "landmarks").astype(X.dtype, copy=False)
        if given.shape[1] != d:
            raise ValueError(f"The landmarks have {given.shape[1]} features, but the rows have {d}.")
        return given
    rank = min(rank, n)
    if how == "uniform":
        return X[np.sort(random_state.choice(n, rank, replace=False))]
    if how == "k-means":
        # 20 rows per cluster determine the centers well enough.
        sample = X if n <= 20 * rank else X[np.sort(random_state.choice(n, 20 * rank, replace=False))]
        clusters = MiniBatchKMeans(
            rank, init="random", n_init=1, max_iter=20, batch_size=4 * rank, random_state=random_state
        )
        exponent = safe_scale(sample)
        clusters.fit(times_power(sample, -exponent))
        return times_power(clusters.cluster_centers_.astype(X.dtype), exponent)
    raise ValueError(
        f"landmarks={shown(how)} is unknown: give 'uniform', 'k-means', 'count-sketch' or an array of rows."
    )


def orthogonal_frequencies(
    n_features: int, n_frequencies: int, random_state: np.random.RandomState
) -> FloatArray:
    """Standard normal columns (n_features, n_frequencies), orthogonal within blocks of `n_features`."""
    blocks = []
    for start in range(0, n_frequencies, n_features):
        width = min(n_features, n_frequencies - start)
        directions = linalg.qr(random_state.standard_normal((n_features, width)), mode="economic")[0]
        blocks.append(directions * np.sqrt(random_state.chisquare(n_features, size=width)))
    return np.hstack(blocks)


def dense(block: Rows) -> FloatArray:
    """A block of features as a plain array."""
    return block.toarray() if is_sparse(block) else np.asarray(block)
