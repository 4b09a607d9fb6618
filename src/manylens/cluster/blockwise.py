"""Fit an estimator on rows that live in blocks, and apply it to them block by block."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manylens.cluster.blocks import Blocks, is_collection, read_blocks
from manylens.cluster.reduction import get_summary, literal, named, naming, reduce_blocks, reduction_graph
from manylens.cluster.running import Runner
from manylens.cluster.sample import RowSample
from manylens.native.threads import one_blas_thread
from manylens.summaries import Summary
from manylens.typing import FloatArray
from manylens.validation import check_count, check_real, check_seed, import_optional, restore_on_error

STEPS = ("fit_feature_map", "summarize", "learn_from")


def estimator_has(method: str) -> Any:
    """Whether the wrapped estimator has a method, for `available_if`."""
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), method))


class Blockwise(MetaEstimatorMixin, BaseEstimator):
    """Fit an estimator on a dask collection or an iterable of batches, without moving the rows.

    A fit reads the blocks twice: once for a uniform random sample, which fixes landmarks and scales, and once
    for the summaries, which are merged in a fixed tree. The estimator then learns from the merged summary on
    one worker. Given the feature map, the result is that of all rows; if the sample holds all rows, it is
    that of `fit` up to rounding. It has the same bits for any number of workers, whichever of them ran what,
    and if some are killed on the way. A worker needs memory for one block and two summaries, one of them also
    for the sample; only the fitted estimator comes to the client.

    Parameters
    ----------
    estimator : estimator
        `ModularKernelPCA`, `ModularAutoencoder`, `LayerRidgeClassifier`, `LayerRidgeRegressor`, or a kernel
        baseline other than the bootstrap: estimators with `fit_feature_map`, `summarize` and `learn_from`.
    sample_rows : int, default=10000
        Number of rows in the sample; it should exceed the `rank` of the estimator.
    patience : float, default=60.0
        Seconds to wait without any worker before giving up.

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator, for rows in memory.

    See Also
    --------
    summarize_blocks : The summary of rows in blocks, for CKA and sketches.

    Notes
    -----
    Uses the current dask client; without one, dask's own scheduler; for batches in memory no dask at all.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ModularKernelPCA
    >>> from manylens.cluster import Blockwise
    >>> batches = np.array_split(load_digits().data, 5)
    >>> fitted = Blockwise(ModularKernelPCA(5, 4, rank=200, random_state=0)).fit(batches)
    >>> fitted.estimator_.optimality_gap_ < 1e-9
    True
    """

    def __init__(
        self, estimator: BaseEstimator, *, sample_rows: int = 10_000, patience: float = 60.0
    ) -> None:
        self.estimator = estimator
        self.sample_rows = sample_rows
        self.patience = patience

    @restore_on_error
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the estimator.

        Parameters
        ----------
        X : dask array or data frame, dict of them, or iterable of batches or `delayed` blocks
            Rows, in blocks; a dict holds layers of the same rows. A batch may be a pair of rows and target.
        y : dask array, series or iterable of blocks, default=None
            Target, cut at the same rows; with a dask array X also an array in memory.

        Returns
        -------
        self
        """
        check_fits_in_parts(self.estimator)
        size = check_count(self.sample_rows, "sample_rows", minimum=2)
        runner = Runner(check_real(self.patience, "patience", 0, None, include="neither"))
        blocks = read_blocks(X, y)
        blocks.read_twice()
        model, seed = seeded(self.estimator)
        sample = RowSample(size, seed, is_classifier(model))
        fitted = (
            fit_lazy(model, blocks, sample, runner) if blocks.is_lazy else fit_here(model, blocks, sample)
        )
        if "random_state" in fitted.get_params(deep=False):
            fitted.set_params(random_state=self.estimator.get_params(deep=False)["random_state"])
        self.estimator_ = fitted
        return self

    @estimator_has("transform")
    def transform(self, X: Any) -> Any:
        """Transform every block where it lives.

        Parameters
        ----------
        X : dask array or data frame, dict of them, or iterable of batches or `delayed` blocks

        Returns
        -------
        dask array, list of `delayed` blocks, or generator of arrays
            A dask array for a collection; otherwise one block or batch for each of those given. For a single
            array in memory, the output of `estimator_`.
        """
        return self._apply("transform", X)

    @estimator_has("predict")
    def predict(self, X: Any) -> Any:
        """Predict every block where it lives.

        Parameters
        ----------
        X : dask array or data frame, dict of them, or iterable of batches or `delayed` blocks

        Returns
        -------
        dask array, list of `delayed` blocks, or generator of arrays
            As for `transform`.
        """
        return self._apply("predict", X)

    @estimator_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Class probabilities of every block where it lives.

        Parameters
        ----------
        X : dask array or data frame, dict of them, or iterable of batches or `delayed` blocks

        Returns
        -------
        dask array, list of `delayed` blocks, or generator of arrays
            As for `transform`.
        """
        return self._apply("predict_proba", X)

    def _apply(self, method: str, X: Any) -> Any:
        check_is_fitted(self, "estimator_")
        model = self.estimator_
        if is_in_memory(X):
            return getattr(model, method)(X)
        blocks = read_blocks(X)
        if not blocks.is_lazy:
            return (apply(model, method, k, *arguments) for k, arguments in enumerate(blocks))
        shared = literal(model, "manylens-model")
        parts = [
            named(apply, f"manylens-{method}", k)(shared, method, k, *arguments)
            for k, arguments in enumerate(blocks)
        ]
        if not (is_collection(X) or isinstance(X, Mapping)):
            return parts
        da = import_optional("dask.array", "Applying an estimator to dask collections", "'manylens[dask]'")
        like = np.asarray(getattr(model, method)(one_row(X)))
        lengths: list[Any] = blocks.lengths or [np.nan] * len(parts)
        pieces = [
            da.from_delayed(part, shape=(length, *like.shape[1:]), meta=like[:0])
            for part, length in zip(parts, lengths, strict=True)
        ]
        return da.concatenate(pieces, allow_unknown_chunksizes=True)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.estimator_type = self.estimator.__sklearn_tags__().estimator_type
        return tags


def check_fits_in_parts(estimator: Any) -> None:
    """Raise unless the estimator can be fitted from a summary."""
    if not all(hasattr(estimator, step) for step in STEPS):
        raise TypeError(
            f"{type(estimator).__name__} does not learn from a summary of the rows, so it cannot be fitted "
            f"block by block: that needs the methods {', '.join(STEPS)}. Fit it on a sample of the rows."
        )
    if estimator.__sklearn_tags__().input_tags.pairwise:
        raise ValueError("kernel='precomputed' has no rows to divide into blocks: use fit of the estimator.")


def seeded(estimator: Any) -> tuple[Any, int]:
    """A copy whose seed is an integer, so that a task gives the same bits if run again, and that seed."""
    model = clone(estimator)
    if "random_state" not in model.get_params(deep=False):
        return model, 0
    given = model.get_params(deep=False)["random_state"]
    is_seed = isinstance(given, int | np.integer)
    seed = int(given) if is_seed else int(check_seed(given).randint(2**31 - 1))
    return model.set_params(random_state=seed), seed


def fit_here(model: Any, blocks: Blocks, sample: RowSample) -> Any:
    """Fit on batches in memory."""
    runner = Runner(0.0)
    prepared = prepare(model, reduce_blocks(blocks, sample_block, "sample", runner, sample))
    return learn(prepared, reduce_blocks(blocks, summarize_block, "summarize", runner, prepared))


def fit_lazy(model: Any, blocks: Blocks, sample: RowSample, runner: Runner) -> Any:
    """Fit on blocks on a cluster, in two graphs: in one, dask would keep all blocks from pass to pass."""
    tree = reduction_graph(blocks, sample_block, "sample", sample)
    drawn = named(get_summary, "manylens-sample-result")(tree)
    start = literal(model, "manylens-estimator")
    prepared = runner.persist(named(prepare, "manylens-prepare")(start, drawn), blocks)
    tree = reduction_graph(blocks, summarize_block, "summarize", prepared)
    merged = named(get_summary, "manylens-summarize-result")(tree)
    return runner.compute(named(learn, "manylens-learn")(prepared, merged), blocks)


def sample_block(empty: RowSample, number: int, *arguments: Any) -> RowSample:
    """A sample of one block."""
    return empty.fresh().update(number, *arguments)


def prepare(model: Any, sample: RowSample) -> Any:
    """A copy of the estimator with the feature map fitted to the sample."""
    prepared = copy.deepcopy(model)
    classes = {} if sample.labels is None else {"classes": sample.labels}
    with one_blas_thread():
        return prepared.fit_feature_map(*sample.arguments(), **classes)


def summarize_block(prepared: Any, _number: int, *arguments: Any) -> Summary:
    """The summary of one block."""
    return prepared.summarize(*arguments)


def learn(prepared: Any, summary: Summary) -> Any:
    """The fitted estimator."""
    with one_blas_thread():
        return copy.deepcopy(prepared).learn_from(summary)


def apply(model: Any, method: str, number: int, X: Any, *_rest: Any) -> FloatArray:
    """The output of a method for one block."""
    with naming(f"Block {number} (the first is 0)"):
        return np.asarray(getattr(model, method)(X))


def is_in_memory(X: Any) -> bool:
    """Whether X is one array, sparse matrix or data frame, or a dict of them, not blocks."""
    if isinstance(X, Mapping) and not hasattr(X, "shape"):
        return all(map(is_in_memory, X.values()))
    return hasattr(X, "shape") and not hasattr(X, "__dask_graph__")


def one_row(X: Any) -> Any:
    """A row of ones in the form of a collection, to learn the shape and dtype of an estimator's output."""
    if isinstance(X, Mapping):
        return {name: one_row(value) for name, value in X.items()}
    if not hasattr(X, "chunks"):
        import pandas as pd

        return pd.DataFrame(np.ones((1, len(X.columns))), columns=X.columns).astype(dict(X.dtypes))
    return np.ones((1, *X.shape[1:]), dtype=X.dtype)
