"""Functions of all rows, of rows that live in blocks: exact, from merged cross-moments."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets

from manylens.alignment.features import labeled, target_is_ambiguous
from manylens.alignment.inner_products import Estimator
from manylens.alignment.kernel_weights import METHODS, align_kernels, solve_weights, split_target
from manylens.alignment.ranking import ModelRanking, ModelScore, rank_models
from manylens.alignment.similarity import cka_matrix, stable_rank
from manylens.alignment.streaming import StreamingCKA
from manylens.cluster.blocks import Blocks, is_collection, read_blocks
from manylens.cluster.reduction import reduce_blocks
from manylens.cluster.running import Runner
from manylens.summaries import Moments, Summary, merge_tree
from manylens.typing import AnyArray, FloatArray
from manylens.validation import (
    check_choice,
    check_count,
    check_real,
    check_seed,
    distinct_labels,
    plain_conversion_errors,
    require_two_classes,
    shown,
)

MOST_CLASSES = 100_000  # numbers with more different values are not classes


@dataclass(frozen=True)
class TargetName:
    """Name of the target's columns among the feature sets; differs from any name that a user gives."""

    def __str__(self) -> str:
        return "y"


TARGET = TargetName()


def over_blocks(
    function: Callable[..., Any],
    X: Any,
    y: Any = None,
    *,
    patience: float = 60.0,
    verbose: int = 0,
    **settings: Any,
) -> Any:
    """Compute a function of all rows, of rows that live in blocks.

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
        Other parameters of the function. Kernels are linear, and models are ranked by "cka" or
        "biased-cka": other choices need all rows at once.

    Returns
    -------
    object
        What the function returns. The standard errors of `rank_models` use other random groups of rows;
        n_groups=0 saves n_groups times the memory.

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
    known = {cka_matrix: cka_of_blocks, stable_rank: stable_rank_of_blocks}
    with_target = {align_kernels: weights_of_blocks, rank_models: ranking_of_blocks}
    runner = Runner(
        check_real(patience, "patience", 0, None, include="neither"),
        check_count(verbose, "verbose", minimum=0),
    )
    if function in known:
        if y is not None:
            raise TypeError(f"{function.__name__} takes no target: leave y out.")
        return known[function](runner, X, **settings)
    if function in with_target:
        return with_target[function](runner, X, y, **settings)
    names = ", ".join(each.__name__ for each in (*known, *with_target))
    raise TypeError(
        f"{shown(function)} cannot be computed from blocks: give one of {names}, or use summarize_blocks."
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
    stream = reduce_blocks(read_blocks(sets), stream_block, "cka", runner, empty)
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


def has_names(X: Any) -> bool:
    """Whether feature sets have names: a list of collections has none."""
    return not (isinstance(X, Sequence) and len(X) > 0 and all(map(is_collection, X)))


def by_name(X: Any) -> Any:
    """A list of dask collections as a dict by position: feature sets, not rows."""
    return X if has_names(X) else dict(enumerate(X))


def stream_block(empty: StreamingCKA, _number: int, sets: Any) -> StreamingCKA:
    """Cross-moments of one block."""
    return empty.fresh().update(sets)


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
    summary = reduce_blocks(read_blocks(X), moments_block, "moments", runner, RowMoments())
    return stable_rank(summary.moments, center)


def moments_block(empty: RowMoments, _number: int, rows: Any) -> RowMoments:
    """Moments of one block."""
    return empty.fresh().update(rows)


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
    (stream,) = target_streams(runner, X, y, target, estimator, all_pairs=True)
    weights = solve_weights(split_target(stream.scaled_products()), method)
    if not has_names(X):
        return weights
    return dict(zip(stream.names_[:-1], weights.tolist(), strict=True))


def ranking_of_blocks(
    runner: Runner,
    X: Any,
    y: Any,
    metric: Any = "cka",
    *,
    target: Any = "auto",
    n_groups: int = 10,
    random_state: Any = 0,
) -> ModelRanking:
    """`rank_models` of models' outputs in blocks."""
    if metric not in ("cka", "biased-cka"):
        raise ValueError(
            f"metric={shown(metric)} needs all rows at once: rank by 'cka' or 'biased-cka', or use a "
            "sample of the rows."
        )
    n_groups = check_count(n_groups, "n_groups", minimum=0)
    if n_groups == 1:
        raise ValueError("n_groups=1 leaves no rows for the standard error; use 0 for none.")
    estimator: Estimator = "unbiased" if metric == "cka" else "biased"
    seed = int(check_seed(random_state).randint(2**31 - 1))
    parts = target_streams(
        runner, X, y, target, estimator, all_pairs=False, n_groups=max(1, n_groups), seed=seed
    )
    whole = merge_tree(copy.deepcopy(parts))
    left_out = [
        merge_tree(copy.deepcopy([part for part in parts if part is not out])) for out in parts if n_groups
    ]
    return ModelRanking([model_score(name, whole, left_out) for name in whole.names_[:-1]], metric)


def model_score(name: Any, whole: StreamingCKA, left_out: Sequence[StreamingCKA]) -> ModelScore:
    """Alignment of one model with the target, with its jackknife error over groups of rows."""
    start = time.perf_counter()
    score = whole.alignment_of(name, TARGET)
    seconds = time.perf_counter() - start
    error = None
    if left_out:
        try:
            parts = [stream.alignment_of(name, TARGET) for stream in left_out]
        except ValueError as undefined:
            raise ValueError(
                f"The score of {name} is undefined if some rows are left out, so it has no standard error "
                f"({undefined}): use n_groups=0."
            ) from None
        error = float(np.sqrt((len(parts) - 1) * np.var(parts)))
    return ModelScore(name, score, error, seconds)


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
    all_pairs: bool  # whether the feature sets are compared with one another, too
    n_groups: int
    seed: int


def target_streams(
    runner: Runner,
    X: Any,
    y: Any,
    target: Any,
    estimator: Estimator,
    *,
    all_pairs: bool,
    n_groups: int = 1,
    seed: int = 0,
) -> list[StreamingCKA]:
    """Cross-moments of the feature sets and the target's columns, one for each group of rows."""
    check_choice(target, "target", ("auto", "classes", "values"))
    blocks = read_blocks(by_name(X), y)
    classes = None if target == "values" else classes_of(runner, y, blocks, target)
    shared = Shared(estimator, classes, all_pairs, n_groups, seed)
    streams = reduce_blocks(blocks, target_block, "align", runner, shared).parts
    return [stream for stream in streams if stream.n_rows_]


def target_block(shared: Shared, number: int, *arguments: Any) -> Grouped:
    """Cross-moments of one block and its target."""
    if len(arguments) != 2:
        raise ValueError("Alignment requires y to be passed, but the target y is None.")
    sets, y = arguments
    sets = dict(sets) if isinstance(sets, Mapping) else dict(enumerate(sets))
    columns = target_columns(y, shared.classes)
    for name, values in sets.items():
        if np.shape(values)[:1] != (len(columns),):
            raise ValueError(f"{name} has {len(values)} rows and y has {len(columns)}.")
    pairs = None if shared.all_pairs else [(name, TARGET) for name in sets]
    groups = np.random.default_rng([shared.seed, 2, number]).integers(shared.n_groups, size=len(columns))
    made = Grouped([StreamingCKA(pairs, shared.estimator) for _ in range(shared.n_groups)])
    return made.update({**sets, TARGET: columns}, groups)


def target_columns(y: Any, classes: AnyArray | None) -> FloatArray:
    """Columns (n, C) of one block of the target: one per class, or the values."""
    with plain_conversion_errors("y"):
        y = np.asarray(y)
        if classes is None:
            columns: FloatArray = check_array(y.reshape(len(y), -1), dtype=np.float64, input_name="y")
            return columns
    return (y.ravel()[:, np.newaxis] == classes).astype(np.float64)


class TargetKind(Summary):
    """Different values of a target, unless they show that it holds no classes."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.distinct: AnyArray | None = np.empty(0)  # None: real numbers, or several columns

    def update(self, *arguments: Any) -> Self:
        """Add a block: its target is the last argument."""
        with plain_conversion_errors("y"):
            y = np.asarray(arguments[-1])
        self.n_rows += len(y)
        real = y.dtype.kind == "f" and np.any(y != np.round(np.where(np.isfinite(y), y, 0.5)))
        several = y.ndim > 1 and y.shape[1] > 1
        return self._add(None if real or several else distinct_labels(y.ravel())[0])

    def merge(self, other: Self) -> Self:
        self.n_rows += other.n_rows
        return self._add(other.distinct)

    def fresh(self) -> Self:
        return type(self)()

    def _add(self, distinct: AnyArray | None) -> Self:
        if self.distinct is None or distinct is None:
            self.distinct = None
        else:
            both = np.union1d(self.distinct, distinct) if len(self.distinct) else distinct
            self.distinct = both if len(both) <= MOST_CLASSES else None
        return self


def kind_block(_empty: None, _number: int, *arguments: Any) -> TargetKind:
    """Different values of one block of the target."""
    return TargetKind().update(*arguments)


def classes_of(runner: Runner, y: Any, blocks: Blocks, target: Any) -> AnyArray | None:
    """Classes of the target, in a pass over y alone if it was given apart; None if it holds values."""
    if y is None:
        blocks.read_twice()
        kind = reduce_blocks(blocks, kind_block, "target", runner, None)
    elif hasattr(y, "shape") and not is_collection(y):
        kind = TargetKind().update(y)
    else:
        target_blocks = read_blocks(y)
        target_blocks.read_twice()
        kind = reduce_blocks(target_blocks, kind_block, "target", runner, None)
    distinct = kind.distinct
    if target == "classes" and distinct is None:
        raise ValueError(
            "target='classes', but y holds real numbers or several columns: use target='values'."
        )
    if distinct is None:
        return None
    if target == "auto" and distinct.dtype.kind == "f" and len(distinct) > 2:
        if 2 * len(distinct) > kind.n_rows:
            return None
        raise ValueError(target_is_ambiguous())
    check_classification_targets(distinct)
    require_two_classes(distinct, "alignment with a target")
    return distinct


def refuse_kernel(kernel: Any) -> None:
    """Raise for kernels that need all pairs of rows."""
    if not (isinstance(kernel, str) and kernel == "linear"):
        raise ValueError(
            f"kernel={shown(kernel)} needs all pairs of rows at once: use the linear kernel, features of a "
            "map such as manylens.kernels.NystroemMap, or a sample of the rows."
        )
