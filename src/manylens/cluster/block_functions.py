"""Functions of all rows for rows that live in blocks, computed exactly from merged cross-moments."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import check_array

from manylens.alignment.alignf_systems import METHODS, solve_weights, split_target
from manylens.alignment.cka_and_hsic import cka_matrix, stable_rank
from manylens.alignment.feature_sets import check_feature_sets, constant_message, labeled
from manylens.alignment.kernel_inner_products import Estimator
from manylens.alignment.kernel_weights import align_kernels
from manylens.alignment.ranking import (
    ModelRanking,
    ModelScore,
    group_influences,
    mark_close_to_best,
    rank_models,
)
from manylens.alignment.streaming import StreamingCKA, streamed_alignment, streamed_products
from manylens.cluster.blocks import read_blocks
from manylens.cluster.dask_runner import Runner, check_patience
from manylens.cluster.reduction import reduce_blocks
from manylens.cluster.targets import TARGET, by_name, classes_of, has_names, target_columns
from manylens.summaries import Moments, Summary, merge_tree
from manylens.typing import AnyArray, FloatArray
from manylens.validation import check_choice, check_count, check_seed, plain_conversion_errors, shown


def over_blocks(
    function: Callable[..., Any],
    X: Any,
    y: Any = None,
    *,
    patience: float = 60.0,
    verbose: int = 0,
    **settings: Any,
) -> Any:
    """Compute a function of all rows for rows that live in blocks.

    Each block is summarized where it lives, and the summaries are merged, as for `summarize_blocks`. The
    result is that of the function for all rows at once, up to rounding: linear kernels only need
    cross-moments. Memory on a worker is one block and two summaries, on the client one summary: d_k d_l
    doubles for each pair of feature sets that is compared.

    Parameters
    ----------
    function : {cka_matrix, align_kernels, rank_models, stable_rank}
        The function itself.
    X : dict or list of dask arrays or data frames, dict of folders, or iterable of dicts of batches
        Feature sets of the same rows, in blocks; for `stable_rank` one collection, folder or iterable.
    y : dask array, series, array, folder or iterable of blocks, default=None
        Target of `align_kernels` and `rank_models`. It is read once more to find its classes, unless
        `target="values"`.
    patience : float, default=60.0
        Seconds to wait without any worker before giving up.
    verbose : int, default=0
        If positive, print how many blocks are done.
    **settings : dict
        Other parameters of the function. Kernels are linear, and models are ranked by "cka" (the meaning of
        "auto", as for sketches) or "biased-cka": other choices need all rows at once. The scales for
        `standardize` are computed in a separate pass.

    Returns
    -------
    object
        What the function returns. The standard errors of `rank_models` are from a jackknife over n_groups
        groups of rows; n_groups=0 skips them, which divides the memory by the number of groups.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import cka_matrix
    >>> from manylens.cluster import over_blocks
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"a": rows, "b": rows[:, :2]} for rows in rng.standard_normal((4, 50, 5))]
    >>> over_blocks(cka_matrix, batches).shape
    (2, 2)
    """
    runner = Runner(check_patience(patience), check_count(verbose, "verbose", minimum=0))
    if function is cka_matrix or function is stable_rank:
        if y is not None:
            raise TypeError(f"{function.__name__} takes no target: leave y out.")
        compute = cka_of_blocks if function is cka_matrix else stable_rank_of_blocks
        return compute(runner, X, **settings)
    if function is align_kernels:
        return weights_of_blocks(runner, X, y, **settings)
    if function is rank_models:
        return ranking_of_blocks(runner, X, y, **settings)
    raise TypeError(
        f"{shown(function)} cannot be computed from blocks: give cka_matrix, align_kernels, rank_models or "
        "stable_rank, or use summarize_blocks."
    )


def cka_of_blocks(
    runner: Runner,
    X: Any,
    others: Any = None,
    *,
    kernel: Any = "linear",
    estimator: Estimator = "biased",
    center: bool = True,
    return_: Any = "score",
) -> Any:
    """`cka_matrix` of feature sets in blocks."""
    refuse_kernel(kernel)
    check_choice(return_, "return_", ("score", "angle"))
    sets, p = by_name(X), None
    if others is not None:
        if not (isinstance(sets, Mapping) and isinstance(by_name(others), Mapping)):
            raise TypeError("others needs dicts or lists of dask collections or folders on both sides.")
        p = len(sets)
        sides = (sets, by_name(others))
        sets = {Side(k, name): each for k, side in enumerate(sides) for name, each in side.items()}
    pairs = None if p is None else [(one, other) for one in list(sets)[:p] for other in list(sets)[p:]]
    empty = StreamingCKA(pairs, estimator, center)
    stream = reduce_blocks(read_blocks(sets), update_rows, "cka", runner, empty)
    if p is None:
        stream._by_name = has_names(X)
        return stream.result(return_)
    scores = np.array(list(stream.result(return_).values())).reshape(p, -1)
    by_names = has_names(X) or has_names(others)
    return labeled(
        scores, [each.name for each in list(sets)[:p]], by_names, [each.name for each in list(sets)[p:]]
    )


@dataclass(frozen=True)
class Side:
    """Name of a feature set on one of two sides, which may use the same names."""

    side: int
    name: Any

    def __str__(self) -> str:
        return str(self.name)


def update_rows(empty: Summary, _number: int, *arguments: Any) -> Summary:
    """A summary of one block without a target."""
    if len(arguments) != 1:
        raise TypeError(f"the block has {len(arguments)} parts, but no target is used: give its rows alone.")
    return empty.fresh().update(*arguments)


class RowMoments(Summary):
    """`Moments` of rows whose width is that of the first batch."""

    moments: Moments | None = None

    def update(self, rows: Any) -> Self:
        with plain_conversion_errors("X"):
            rows = check_array(rows, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="X")
        self.moments = (self.moments or Moments(rows.shape[1])).update(rows)
        return self

    def merge(self, other: Self) -> Self:
        if other.moments is not None:
            self.moments = (self.moments or other.moments.fresh()).merge(other.moments)
        return self

    def fresh(self) -> Self:
        return type(self)()


def stable_rank_of_blocks(runner: Runner, X: Any, center: bool = True) -> float:
    """`stable_rank` of rows in blocks."""
    summary = reduce_blocks(read_blocks(X), update_rows, "moments", runner, RowMoments())
    return stable_rank(summary.moments, center)


def weights_of_blocks(
    runner: Runner,
    X: Any,
    y: Any,
    kernel: Any = "linear",
    *,
    method: Any = "alignf",
    estimator: Estimator = "unbiased",
    target: Any = "auto",
) -> Any:
    """`align_kernels` of feature sets in blocks."""
    refuse_kernel(kernel)
    check_choice(method, "method", METHODS)
    classes = classes_of(runner, X, y, target)
    (stream,) = target_streams(runner, X, y, Shared(estimator, classes, all_pairs=True))
    weights = solve_weights(split_target(streamed_products(stream)), method)
    if not has_names(X):
        return weights
    return dict(zip(stream.names_[:-1], weights.tolist(), strict=True))


def ranking_of_blocks(
    runner: Runner,
    X: Any,
    y: Any,
    metric: Any = "auto",
    *,
    target: Any = "auto",
    standardize: bool = True,
    n_groups: int = 10,
    random_state: Any = 0,
) -> ModelRanking:
    """`rank_models` of models' outputs in blocks."""
    metric = "cka" if isinstance(metric, str) and metric == "auto" else metric
    if metric not in ("cka", "biased-cka"):
        raise ValueError(
            f"metric={shown(metric)} needs all rows at once: rank by 'cka' or 'biased-cka', or use a "
            "sample of the rows."
        )
    n_groups = check_count(n_groups, "n_groups", minimum=0)
    if n_groups == 1:
        raise ValueError("n_groups=1 leaves no rows for the standard error; use 0 for none.")
    check_choice(standardize, "standardize", (True, False))
    scales = None
    if standardize:
        blocks = read_blocks(by_name(X), y)
        blocks.read_twice()
        scales = reduce_blocks(blocks, scales_block, "scales", runner, None).scales()
    classes = classes_of(runner, X, y, target, decide=True)
    shared = Shared(
        estimator="unbiased" if metric == "cka" else "biased",
        classes=classes,
        all_pairs=False,
        n_groups=max(1, n_groups),
        seed=int(check_seed(random_state).randint(2**31 - 1)),
        scales=scales,
    )
    parts = target_streams(runner, X, y, shared)
    whole = merge_tree(copy.deepcopy(parts))
    left_out = [
        merge_tree(copy.deepcopy([part for part in parts if part is not out])) for out in parts if n_groups
    ]
    rows, influences = [], []
    for name in whole.names_[:-1]:
        row, influence = model_score(name, whole, left_out)
        rows.append(row)
        influences.append(influence)
    read = "real numbers" if classes is None else f"{len(classes)} classes"
    rows = mark_close_to_best(rows, influences, whole.n_rows_) if left_out else rows
    return ModelRanking(rows, metric, read)


def model_score(
    name: Any, whole: StreamingCKA, left_out: Sequence[StreamingCKA]
) -> tuple[ModelScore, FloatArray]:
    """Alignment of one model with the target and its jackknife error, and the influence of each group."""
    start = time.perf_counter()
    score = streamed_alignment(whole, name, TARGET)
    seconds = time.perf_counter() - start
    try:
        values = np.array([streamed_alignment(stream, name, TARGET) for stream in left_out])
    except ValueError as undefined:
        raise ValueError(
            f"The score of {name} is undefined if some rows are left out, so it has no standard error "
            f"({undefined}): use n_groups=0."
        ) from None
    if not left_out:
        return ModelScore(name, score, None, seconds), values
    influences, error = group_influences(values)
    return ModelScore(name, score, error, seconds), influences


class ColumnScales(Summary):
    """Number of rows, and mean and squared deviations of every column of several feature sets."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.means: dict[Any, FloatArray] = {}
        self.squares: dict[Any, FloatArray] = {}

    def update(self, sets: Any) -> Self:
        names, arrays = check_feature_sets(sets, accept_sparse=False)
        part = type(self)()
        part.n_rows = len(arrays[0])
        for name, rows in zip(names, arrays, strict=True):
            part.means[name] = rows[0] + (rows - rows[0]).mean(axis=0, dtype=np.float64)
            part.squares[name] = np.sum((rows - part.means[name]) ** 2, axis=0, dtype=np.float64)
        return self.merge(part)

    def merge(self, other: Self) -> Self:
        if not other.n_rows:
            return self
        if not self.n_rows:
            self.n_rows, self.means, self.squares = other.n_rows, dict(other.means), dict(other.squares)
            return self
        widths, theirs = ({name: len(mean) for name, mean in each.means.items()} for each in (self, other))
        if widths != theirs:
            raise ValueError(f"The feature sets have widths {widths}, then {theirs}.")
        n = self.n_rows + other.n_rows
        for name, mean in other.means.items():
            step = mean - self.means[name]
            self.squares[name] = (
                self.squares[name] + other.squares[name] + step**2 * (self.n_rows * other.n_rows / n)
            )
            self.means[name] = self.means[name] + step * (other.n_rows / n)
        self.n_rows = n
        return self

    def fresh(self) -> Self:
        return type(self)()

    def scales(self) -> dict[Any, tuple[FloatArray, FloatArray]]:
        """Mean and standard deviation of every column; 0 if it is constant up to rounding."""
        found = {}
        for name, mean in self.means.items():
            deviation = np.sqrt(self.squares[name] / self.n_rows)
            varying = deviation > 8 * np.finfo(np.float64).eps * np.abs(mean)
            if not varying.any():
                raise ValueError(constant_message(name))
            found[name] = mean, np.where(varying, deviation, 0.0)
        return found


def scales_block(_shared: None, _number: int, sets: Any, *_target: Any) -> ColumnScales:
    """Scales of one block."""
    return ColumnScales().update(sets)


class Grouped(Summary):
    """Cross-moments of feature sets and target columns, of random groups of the rows."""

    def __init__(self, parts: list[StreamingCKA]) -> None:
        self.parts = parts

    def update(self, sets: Mapping[Any, Any], groups: AnyArray) -> Self:
        """Add rows of several sets, with the group of each row (n,)."""
        for g, part in enumerate(self.parts):
            rows = np.flatnonzero(groups == g)
            if len(rows):
                part.update({name: np.asarray(values)[rows] for name, values in sets.items()})
        return self

    def merge(self, other: Self) -> Self:
        for part, theirs in zip(self.parts, other.parts, strict=True):
            part.merge(theirs)
        return self

    def fresh(self) -> Self:
        return type(self)([part.fresh() for part in self.parts])


@dataclass
class Shared:
    """Settings of `target_block`."""

    estimator: Estimator
    classes: AnyArray | None
    all_pairs: bool  # whether the feature sets are also compared with one another
    n_groups: int = 1
    seed: int = 0
    scales: dict[Any, tuple[FloatArray, FloatArray]] | None = None  # to standardize columns with


def target_streams(runner: Runner, X: Any, y: Any, shared: Shared) -> list[StreamingCKA]:
    """Cross-moments of the feature sets and the target's columns, one for each group of rows."""
    streams = reduce_blocks(read_blocks(by_name(X), y), target_block, "align", runner, shared).parts
    return [stream for stream in streams if stream.n_rows_]


def target_block(shared: Shared, number: int, *arguments: Any) -> Grouped:
    """Cross-moments of one block and its target."""
    if len(arguments) != 2:
        raise ValueError("Alignment requires y to be passed, but the target y is None.")
    given, y = arguments
    names, arrays = check_feature_sets(given, accept_sparse=False)
    sets = dict(zip(names, arrays, strict=True))
    columns = target_columns(y, shared.classes)
    for name, values in sets.items():
        if len(values) != len(columns):
            raise ValueError(f"{name} has {len(values)} rows and y has {len(columns)}.")
        if shared.scales is not None:
            mean, deviation = shared.scales[name]
            kept = deviation > 0
            sets[name] = (values[:, kept] - mean[kept]) / deviation[kept]
    pairs = None if shared.all_pairs else [(name, TARGET) for name in sets]
    groups = np.random.default_rng([shared.seed, 2, number]).integers(shared.n_groups, size=len(columns))
    made = Grouped([StreamingCKA(pairs, shared.estimator) for _ in range(shared.n_groups)])
    return made.update({**sets, TARGET: columns}, groups)


def refuse_kernel(kernel: Any) -> None:
    """Raise for kernels that need all pairs of rows."""
    if not (isinstance(kernel, str) and kernel == "linear"):
        raise ValueError(
            f"kernel={shown(kernel)} needs all pairs of rows at once: use the linear kernel, features of a "
            "map such as manylens.kernels.NystroemMap, or a sample of the rows."
        )
