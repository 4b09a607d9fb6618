"""Measures that compare one matrix (n, n) per representation: kernels, distances, ranks, neighborhoods."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, ClassVar, Literal

import numpy as np
from joblib import effective_n_jobs
from numpy.random import RandomState
from scipy import sparse
from scipy.spatial.distance import squareform

from manylens.alignment.device_alignments import device_alignments
from manylens.alignment.dissimilarities import Correlation, Distance, dissimilarities, standardized
from manylens.alignment.distance_correlations import centered_lenses, distance_sums
from manylens.alignment.feature_sets import Names, centered, refuse_constant
from manylens.alignment.kernel_inner_products import (
    ROUNDING,
    KernelGram,
    check_convention,
    corrected_products,
    doubly_centered,
    refuse_zero,
    scaled_products,
    u_centered,
)
from manylens.alignment.measure_base import Measure, Null, random_orders, sides
from manylens.alignment.neighborhoods import (
    NeighborMetric,
    jaccard_neighbors,
    mutual_neighbors,
    neighbor_matrix,
)
from manylens.alignment.permutation_null import shifted_products
from manylens.arrays import to_host
from manylens.kernels.bandwidths import Gamma
from manylens.kernels.kernels import make_kernel
from manylens.native.distance_correlation import distances_from_products
from manylens.native.permutations import fill_jaccard
from manylens.native.threads import in_threads, over_blocks
from manylens.typing import FloatArray, IntArray, Rows
from manylens.validation import check_choice, check_count, is_sparse, safe_scale, times_power


class ProductMeasure(Measure):
    """Base of measures that are inner products of one matrix (n, n) per representation."""

    symmetric: ClassVar[bool] = True

    def _matrix(self, X: Rows, name: Hashable) -> FloatArray:
        """The matrix (n, n) of one representation, scaled so that inner products are similarities."""
        raise NotImplementedError

    def _from_products(self, products: FloatArray) -> FloatArray:
        """Similarities of inner products: an increasing function."""
        return products

    def _null(
        self, arrays: Sequence[Rows], names: Names, split: int | None, n_permutations: int, rng: RandomState
    ) -> Null:
        matrices = [self._matrix(X, name) for X, name in zip(arrays, names, strict=True)]
        products = shifted_products(*sides(matrices, split), n_permutations, rng, self.symmetric)
        return self._from_products(products)


def across(products: FloatArray, split: int | None) -> FloatArray:
    """The products (p, q) of the first `split` of all sets with the others; all of them without `split`."""
    return products if split is None else products[:split, split:]


@dataclass(frozen=True)
class CKA(ProductMeasure):
    """Centered kernel alignment.

    Parameters
    ----------
    kernel : {"linear", "rbf"}, default="linear"
        Similarity of two rows.
    estimator : {"unbiased", "biased", "features"}, default="unbiased"
        "unbiased" does not grow with the width if there are few rows. "features" treats the columns, too, as
        a random sample of a larger population, such as recorded neurons, and estimates the alignment of the
        populations; the two samples must be independent, and the kernel linear.
    gamma : {"mean", "median", "max-norm"} or float, default="median"
        Scale of the Gaussian kernel, as for `cka`.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens.alignment import CKA, compare
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> round(compare(X, X[:, ::-1], CKA("rbf"), n_groups=0).value, 12)
    1.0
    """

    kernel: Literal["linear", "rbf"] = "linear"
    estimator: Literal["unbiased", "biased", "features"] = "unbiased"
    gamma: Gamma = "median"
    accepts_sparse: ClassVar[bool] = True

    def _check(self, n_rows: int) -> None:
        check_choice(self.kernel, "kernel", ("linear", "rbf"))
        check_choice(self.estimator, "estimator", ("unbiased", "biased", "features"))
        if self.estimator == "features" and self.kernel != "linear":
            raise ValueError("estimator='features' needs the linear kernel, which is a sum over columns.")
        check_convention(self._products_estimator, True, n_rows)

    @property
    def _products_estimator(self) -> Literal["unbiased", "biased"]:
        return "biased" if self.estimator == "biased" else "unbiased"

    def _scores(self, arrays: Sequence[Rows], names: Names, split: int | None) -> FloatArray:
        kernel = make_kernel(self.kernel, self.gamma)
        arrays = [times_power(X, -safe_scale(X)) for X in arrays] if self.kernel == "linear" else arrays
        products = scaled_products(arrays, names, kernel, self._products_estimator, split=split).values
        squares = np.diag(products)
        if self.estimator == "features":
            squares = np.array(
                [
                    population_square(X, square, name)
                    for X, square, name in zip(arrays, squares, names, strict=True)
                ]
            )
        norms = np.sqrt(squares)
        scores = across(products / np.outer(norms, norms), split)
        if split is None:
            np.fill_diagonal(scores, 1.0)
        return scores if self.estimator == "features" else np.clip(scores, -1.0, 1.0)

    def _runs_on_device(self) -> bool:
        return self.kernel == "linear" and self.estimator != "features"

    def _device_scores(
        self, xp: ModuleType, arrays: Sequence[Any], names: Names, split: int | None
    ) -> FloatArray:
        scores = device_alignments(xp, arrays, names, "linear", self._products_estimator, True, split)
        return to_host(xp, scores)

    def _matrix(self, X: Rows, name: Hashable) -> FloatArray:
        X = times_power(X, -safe_scale(X)) if self.kernel == "linear" else X
        everything = slice(0, X.shape[0])
        K = KernelGram(X, make_kernel(self.kernel, self.gamma), True).block(everything, everything)[0]
        K = doubly_centered(K) if self.estimator == "biased" else u_centered(K)
        square = float(np.vdot(K, K))
        refuse_zero(np.array([square == 0]), [name], self._products_estimator)
        if self.estimator == "features":
            square = population_square(X, square, name)
        K /= np.sqrt(square)
        return K


def population_square(X: Rows, square: float, name: Hashable) -> float:
    """Unbiased squared norm of the linear kernel of all features, if X (n, d) holds a sample of them.

    With K = Σ_a x_a x_aᵀ over columns, the mean over pairs a ≠ b of <x_a x_aᵀ, x_b x_bᵀ>, times d² so that
    it is on the scale of `square`, the unbiased |K|² (Chun et al. 2025): (|K|² - Σ_a |x_a x_aᵀ|²) d/(d - 1).
    Products of a column with itself are left out, because they estimate a fourth moment. The inner product of
    two independent samples needs no correction.
    """
    n, d = X.shape
    if d < 2:
        raise ValueError(f"{name} has one column: estimator='features' needs at least 2 sampled features.")
    X = centered((X.toarray() if is_sparse(X) else X).astype(np.float64))
    squares = np.square(X)
    traces = squares.sum(axis=0)
    # `without_diagonals` for the kernel x xᵀ of one column: |x xᵀ|² = (Σ x²)², with the diagonal x².
    own = traces**2 * (1 + 1 / ((n - 1) * (n - 2))) - n / (n - 2) * np.square(squares).sum(axis=0)
    corrected = (square - float(own.sum())) * d / (d - 1)
    if corrected <= ROUNDING["unbiased"] * square:
        raise ValueError(
            f"The columns of {name} have so little in common that the norm of the population's kernel "
            "cannot be estimated: give more rows or columns, or use estimator='unbiased'."
        )
    return corrected


@dataclass(frozen=True)
class NeighborOverlap(ProductMeasure):
    """Share of the k nearest rows that two representations have in common.

    Rows that tie for the last places share them, so that the order of the rows does not matter.

    Parameters
    ----------
    n_neighbors : int, default=10
        Number of neighbors k, less than the number of rows.
    index : {"mutual", "jaccard"}, default="mutual"
        |N ∩ M| / k for the neighborhoods N and M of a row (Huh et al. 2024), or |N ∩ M| / |N ∪ M|; the mean
        over rows.
    metric : {"cosine", "euclidean"}, default="cosine"
        Which rows are near. The cosine depends on the origin of the features.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens.alignment import NeighborOverlap, compare
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> round(compare(X, X + 1, NeighborOverlap(5, metric="euclidean"), n_groups=0).value, 12)
    1.0
    """

    n_neighbors: int = 10
    index: Literal["mutual", "jaccard"] = "mutual"
    metric: NeighborMetric = "cosine"
    symmetric: ClassVar[bool] = False

    def _check(self, n_rows: int) -> None:
        check_choice(self.index, "index", ("mutual", "jaccard"))
        check_choice(self.metric, "metric", ("cosine", "euclidean"))
        if check_count(self.n_neighbors, "n_neighbors") >= n_rows:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} needs at least {self.n_neighbors + 1} rows; got {n_rows}."
            )

    def _neighbors(self, X: Rows) -> sparse.csr_array:
        X = times_power(X, -safe_scale(X))
        return neighbor_matrix(
            centered(X) if self.metric == "euclidean" else X, self.n_neighbors, self.metric
        )

    def _all_neighbors(self, arrays: Sequence[Rows], names: Names) -> list[sparse.csr_array]:
        refuse_constant(arrays, names)
        if len(arrays) < effective_n_jobs(-1):  # too few to occupy all cores: leave the threads to BLAS
            return [self._neighbors(X) for X in arrays]
        found: list[Any] = [None] * len(arrays)

        def fill(chosen: slice) -> None:
            found[chosen] = [self._neighbors(X) for X in arrays[chosen]]

        over_blocks(fill, len(arrays), 1, -1)
        return found

    def _scores(self, arrays: Sequence[Rows], names: Names, split: int | None) -> FloatArray:
        each = self._all_neighbors(arrays, names)
        overlaps = mutual_neighbors if self.index == "mutual" else jaccard_neighbors
        return np.minimum(overlaps(each, split), 1.0)

    def _matrix(self, X: Rows, name: Hashable) -> FloatArray:
        refuse_constant([X], [name])
        neighbors = self._neighbors(X)
        return (neighbors / sparse.linalg.norm(neighbors)).toarray()

    def _null(
        self, arrays: Sequence[Rows], names: Names, split: int | None, n_permutations: int, rng: RandomState
    ) -> Null:
        if self.index == "mutual":
            return super()._null(arrays, names, split, n_permutations, rng)
        each = self._all_neighbors(arrays, names)
        return permuted_jaccard(*sides(each, split), random_orders(arrays[0].shape[0], n_permutations, rng))


@dataclass(frozen=True)
class DistanceCorrelation(ProductMeasure):
    """Distance correlation, as `distance_correlation`.

    Parameters
    ----------
    estimator : {"biased", "unbiased"}, default="biased"
        "biased" is dCor of Székely, Rizzo and Bakirov (2007), which tends to 1 if there are many features.
        The "unbiased" one is the bias-corrected *squared* dCor² of Székely and Rizzo (2013), around 0 for
        independent representations.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens.alignment import DistanceCorrelation, compare
    >>> X = np.arange(20.0)[:, np.newaxis]
    >>> round(compare(X, 3 - 2 * X, DistanceCorrelation("unbiased"), n_groups=0).value, 12)
    1.0
    """

    estimator: Literal["biased", "unbiased"] = "biased"

    def _check(self, n_rows: int) -> None:
        check_convention(self.estimator, True, n_rows)

    def _scores(self, arrays: Sequence[Rows], names: Names, split: int | None) -> FloatArray:
        refuse_constant(arrays, names)
        products, row_sums = distance_sums(centered_lenses(list(arrays)), -1)
        zeros = np.zeros(row_sums.shape), np.zeros(len(arrays))
        products, least = corrected_products(products, row_sums, *zeros, self.estimator, True)
        refuse_zero(np.diag(products) <= least, names, self.estimator)
        norms = np.sqrt(np.diag(products))
        return self._from_products(across(products / np.outer(norms, norms), split))

    def _from_products(self, products: FloatArray) -> FloatArray:
        products = np.clip(products, -1.0, 1.0)
        return np.sqrt(np.maximum(products, 0.0)) if self.estimator == "biased" else products

    def _matrix(self, X: Rows, name: Hashable) -> FloatArray:
        (rows,) = centered_lenses([X])
        D: FloatArray = rows @ rows.T
        distances_from_products(rows, rows, D)
        D = doubly_centered(D) if self.estimator == "biased" else u_centered(D)
        norm = float(np.linalg.norm(D))
        refuse_zero(np.array([norm == 0]), [name], self.estimator)
        return D / norm


@dataclass(frozen=True)
class RSA(ProductMeasure):
    """Representational similarity analysis: correlation of the dissimilarities of all pairs of rows.

    Parameters
    ----------
    distance : {"correlation", "euclidean", "cosine"}, default="correlation"
        Dissimilarity of two rows: 1 minus their Pearson correlation, their distance, or 1 minus their cosine.
    correlation : {"spearman", "pearson"}, default="spearman"
        How dissimilarities are correlated (Kriegeskorte, Mur and Bandettini 2008).

    Examples
    --------
    >>> import numpy as np
    >>> from manylens.alignment import RSA, compare
    >>> X = np.random.default_rng(0).standard_normal((50, 5))
    >>> round(compare(X, 2 * X, RSA(), n_groups=0).value, 12)
    1.0
    """

    distance: Distance = "correlation"
    correlation: Correlation = "spearman"
    least_rows: ClassVar[int] = 3

    def _check(self, n_rows: int) -> None:
        check_choice(self.distance, "distance", ("correlation", "euclidean", "cosine"))
        check_choice(self.correlation, "correlation", ("spearman", "pearson"))
        super()._check(n_rows)

    def _pairs(self, X: Rows, name: Hashable) -> FloatArray:
        refuse_constant([X], [name])
        if self.distance == "correlation" and X.shape[1] < 3:
            raise ValueError(
                f"{name} has {X.shape[1]} column(s): the correlation of two rows needs at least 3. Use "
                "RSA(distance='euclidean')."
            )
        pairs = standardized(dissimilarities(X, self.distance), self.correlation)
        if not pairs.any():
            raise ValueError(
                f"All pairs of rows of {name} are equally dissimilar, so there is nothing to correlate: "
                "choose another distance, or leave it out."
            )
        return pairs

    def _scores(self, arrays: Sequence[Rows], names: Names, split: int | None) -> FloatArray:
        pairs = [self._pairs(X, name) for X, name in zip(arrays, names, strict=True)]
        ones, others = sides(pairs, split)
        scores = [[float(one @ other) for other in others] for one in ones]
        return np.clip(scores, -1.0, 1.0)

    def _matrix(self, X: Rows, name: Hashable) -> FloatArray:
        return squareform(self._pairs(X, name)) / np.sqrt(2)


def permuted_jaccard(
    ones: Sequence[sparse.csr_array], others: Sequence[sparse.csr_array], orders: IntArray
) -> Null:
    """Mean Jaccard index (len(orders), p, q) of neighborhoods with the rows of the others permuted."""
    found = np.empty((len(ones), len(others), len(orders)))
    squares = [[np.asarray(A.multiply(A).sum(axis=1)).ravel() for A in side] for side in (ones, others)]
    for m, B in enumerate(others):
        dense = B.toarray()
        for k, A in enumerate(ones):
            rows = A.indptr.astype(np.int64), A.indices.astype(np.int64), A.data, squares[0][k]
            share = partial(fill_shares, *rows, dense, squares[1][m], orders, found[k, m])
            in_threads(share, len(orders))
    return np.moveaxis(found, 2, 0)


def fill_shares(*args: Any) -> None:
    """`fill_jaccard` for permutations first ... last - 1, the last two arguments."""
    *fixed, orders, means, first, last = args
    fill_jaccard(*fixed, orders[first:last], means[first:last])
