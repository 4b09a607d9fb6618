"""Fit an estimator on rows that live in blocks, and apply it to them block by block."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manylens.cluster.blocks import Blocks, is_collection, read_blocks
from manylens.cluster.dask_runner import Runner, check_patience
from manylens.cluster.plans import Plan, Prepared, as_fitted, learn, plan_for, prepare, summarize_block
from manylens.cluster.reduction import (
    errors_name_block,
    literal,
    named,
    reduce_blocks,
    reduction_graph,
    work_on,
)
from manylens.cluster.sample import RowSample
from manylens.native.threads import one_blas_thread
from manylens.optional import import_optional
from manylens.typing import FloatArray
from manylens.validation import check_count, check_seed, restore_on_error


def estimator_has(method: str) -> Any:
    """Whether the wrapped estimator has a method, for `available_if`."""
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), method))


class Blockwise(MetaEstimatorMixin, BaseEstimator):
    """Fit an estimator on a dask collection or an iterable of batches, without moving the rows.

    A fit reads the blocks twice: once for a uniform random sample, which fixes landmarks and scales, and once
    for the summaries, which are merged in a fixed tree. The estimator then learns from the merged summary on
    one worker. Given the feature map, the result is exact for all rows; if the sample holds all rows, it
    equals that of `fit` up to rounding. If nothing is learned from the sample (`ModularAutoencoder`), the
    blocks are read once. The result is bitwise identical for any number of workers, no matter which worker
    ran which task, even if some are killed on the way. A worker needs memory for one block, one or two that
    dask reads ahead, and two summaries; one worker also needs memory for the sample. Only the fitted
    estimator is sent to the client.

    Parameters
    ----------
    estimator : estimator
        `ModularKernelPCA`, `ModularAutoencoder`, their baselines, `LayerRidgeClassifier`,
        `LayerRidgeRegressor`: estimators with `fit_feature_map`, `summarize` and `learn_from`. Also
        `AlignmentPruner`, whose members predict each block where it lives, and `NCA`, which is fitted to the
        sample; NCA(method="stochastic") then takes one on-line pass over all blocks, one after the other.
    sample_rows : int, default=10000
        Number of rows in the sample; it should exceed the `rank` of the estimator.
    patience : float, default=60.0
        Seconds to wait without any worker before giving up.
    verbose : int, default=0
        If positive, print how many blocks of each pass are done.

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
        self, estimator: BaseEstimator, *, sample_rows: int = 10_000, patience: float = 60.0, verbose: int = 0
    ) -> None:
        self.estimator = estimator
        self.sample_rows = sample_rows
        self.patience = patience
        self.verbose = verbose

    @restore_on_error
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the estimator.

        Parameters
        ----------
        X : dask array or data frame, dict of them, folder, or iterable of batches, `delayed` blocks or files
            Rows, in blocks; a dict holds layers of the same rows. A batch may be a pair of rows and target.
            Files are .npy, .npz or Parquet files, or a folder of them, which every worker can read.
        y : dask array, series, folder, or iterable of blocks or files, default=None
            Target, divided into the same blocks; if X is a dask array, y may also be an array in memory.

        Returns
        -------
        self
        """
        plan = plan_for(self.estimator)
        size = check_count(self.sample_rows, "sample_rows", minimum=2)
        patience = check_patience(self.patience)
        runner = Runner(patience, check_count(self.verbose, "verbose", minimum=0))
        model, seed = seeded(self.estimator)
        supervised = plan.takes_target(model)
        blocks = read_blocks(X, y) if supervised else read_blocks(X).rows_only()
        sampled = plan.needs_sample(model)
        if sampled and (plan.summarizes or plan.walks):
            blocks.read_twice()
        allow_nan = model.__sklearn_tags__().input_tags.allow_nan
        sample = RowSample(size if sampled else 2, seed, is_classifier(model), allow_nan)
        fit = fit_lazy if blocks.is_lazy else fit_here
        fitted, notes = fit(plan, model, blocks, sample, runner)
        for message, category in notes:
            warnings.warn(message, category, stacklevel=3)
        fitted.set_params(**self.estimator.get_params(deep=False))
        self.estimator_ = fitted
        return self

    @estimator_has("transform")
    def transform(self, X: Any) -> Any:
        """Transform every block where it lives.

        Parameters
        ----------
        X : dask array or data frame, dict of them, folder, or iterable of batches, `delayed` blocks or files

        Returns
        -------
        dask array, dask data frame, list of `delayed` blocks, or generator of arrays
            A dask array for dask arrays, a data frame or series with the same index for a data frame;
            otherwise one block or batch for each of those given. For rows in memory, the output of
            `estimator_`.
        """
        return self._apply("transform", X)

    @estimator_has("predict")
    def predict(self, X: Any) -> Any:
        """Predict every block where it lives.

        Parameters
        ----------
        X : dask array or data frame, dict of them, folder, or iterable of batches, `delayed` blocks or files

        Returns
        -------
        dask array or series, list of `delayed` blocks, or generator of arrays
            As for `transform`.
        """
        return self._apply("predict", X)

    @estimator_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Class probabilities of every block where it lives.

        Parameters
        ----------
        X : dask array or data frame, dict of them, folder, or iterable of batches, `delayed` blocks or files

        Returns
        -------
        dask array or series, list of `delayed` blocks, or generator of arrays
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
        framed = hasattr(X, "divisions")
        work = apply_to_frame if framed else apply
        parts = [
            named(work, f"manylens-{method}", k)(shared, method, k, *arguments)
            for k, arguments in enumerate(blocks)
        ]
        if framed:
            return frame_of(parts, apply_to_frame(model, method, 0, one_row(X)), X.divisions)
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


def seeded(estimator: Any) -> tuple[Any, int]:
    """A copy whose seed is an integer, so that rerunning a task gives the same bits, and that seed."""
    model = clone(estimator)
    if "random_state" not in model.get_params(deep=False):
        return model, 0
    given = model.get_params(deep=False)["random_state"]
    is_seed = isinstance(given, int | np.integer)
    seed = int(given) if is_seed else int(check_seed(given).randint(2**31 - 1))
    return model.set_params(random_state=seed), seed


def fit_here(plan: Plan, model: Any, blocks: Blocks, sample: RowSample, runner: Runner) -> Any:
    """Fit on batches in memory."""
    if plan.needs_sample(model):
        drawn = reduce_blocks(blocks, sample_block, "sample", runner, sample)
    else:
        first, blocks = blocks.first()
        drawn = work_on(sample_block, sample, 0, *first).summary
    prepared = prepare(plan, model, drawn)
    if plan.walks:
        for number, arguments in enumerate(blocks):
            prepared = step(prepared, number, *arguments)
    if not plan.summarizes:
        return as_fitted(prepared)
    return learn(prepared, reduce_blocks(blocks, summarize_block, "summarize", runner, prepared))


def fit_lazy(plan: Plan, model: Any, blocks: Blocks, sample: RowSample, runner: Runner) -> Any:
    """Fit on blocks on a cluster, in two graphs: in one, dask would keep all blocks between the passes."""
    if plan.needs_sample(model):
        tree = reduction_graph(blocks, sample_block, "sample", sample)
    else:
        first, _ = blocks.first()
        tree = named(work_on, "manylens-sample", 0)(sample_block, literal(sample, "manylens-rows"), 0, *first)
    drawn = named(attrgetter("summary"), "manylens-sample-result")(tree)
    start, how = literal(model, "manylens-estimator"), literal(plan, "manylens-plan")
    prepared = runner.persist(named(prepare, "manylens-prepare")(how, start, drawn), blocks, "sample")
    if plan.walks:  # one graph per block: in a single graph, dask would read blocks ahead
        for number, arguments in enumerate(blocks):
            runner.say("step", number)
            task = named(step, "manylens-step", number)(prepared, number, *arguments)
            prepared = runner.persist(task, blocks)
    if not plan.summarizes:
        return runner.compute(named(as_fitted, "manylens-result")(prepared), blocks)
    # `prepared` is already computed: if tasks still waited for it, dask would read all blocks ahead
    tree = reduction_graph(blocks, summarize_block, "summarize", prepared)
    merged = named(attrgetter("summary"), "manylens-summarize-result")(tree)
    return runner.compute(named(learn, "manylens-learn")(prepared, merged), blocks, "summarize")


def sample_block(empty: RowSample, number: int, *arguments: Any) -> RowSample:
    """A sample of one block."""
    return empty.fresh().update(number, *arguments)


def step(prepared: Prepared, number: int, *arguments: Any) -> Prepared:
    """The model after it has seen one more block."""
    with errors_name_block(f"Block {number} (the first is 0)"), one_blas_thread():
        return prepared.plan.step(prepared, number, *arguments)


def apply(model: Any, method: str, number: int, X: Any, *_rest: Any) -> FloatArray:
    """The output of a method for one block."""
    with errors_name_block(f"Block {number} (the first is 0)"):
        return np.asarray(getattr(model, method)(X))


def apply_to_frame(model: Any, method: str, number: int, X: Any) -> Any:
    """The output of a method for one partition, as a data frame or series with the index of the rows."""
    import pandas as pd

    values = apply(model, method, number, X)
    if values.ndim == 1:
        return pd.Series(values, index=X.index, name=method)
    return pd.DataFrame(values, index=X.index, columns=output_names(model, method, values.shape[1]))


def output_names(model: Any, method: str, width: int) -> list[Any]:
    """Names of the columns of a method's output."""
    if method == "predict_proba":
        return list(model.classes_)
    if method == "transform" and hasattr(model, "get_feature_names_out"):
        return list(model.get_feature_names_out())
    return [f"{method}{k}" for k in range(width)]


def frame_of(parts: list[Any], like: Any, divisions: Any) -> Any:
    """A dask data frame or series of delayed partitions, with the divisions of the rows."""
    dd = import_optional("dask.dataframe", "Applying an estimator to data frames", "'manylens[dask]'")
    known = divisions if all(each is not None for each in divisions) else None
    return dd.from_delayed(parts, meta=like.iloc[:0], divisions=known, verify_meta=False)


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
