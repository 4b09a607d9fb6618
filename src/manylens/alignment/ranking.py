"""Rank pretrained models for a task by how well a model on top of their features would do."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from numbers import Real
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from manylens.alignment.device_probes import DEVICE_METRICS, device_probe_scores
from manylens.alignment.feature_sets import (
    FeatureSets,
    centered,
    check_feature_sets,
    list_sets,
    refuse_constant,
)
from manylens.alignment.kernel_inner_products import Estimator
from manylens.alignment.probes import standardized_columns
from manylens.alignment.ranking_metrics import METRICS, Metric
from manylens.alignment.sketched_alignments import (
    alignment_of,
    left_out_alignments,
    mean_products,
    pair_products,
)
from manylens.alignment.sketches import Sketched, sketches_by_name, target_sketch
from manylens.alignment.targets import Target, decided_target, target_columns
from manylens.arrays import check_matrices, labels_on_host, namespace_of
from manylens.optional import import_optional
from manylens.typing import FloatArray, IntArray, Seed
from manylens.validation import (
    check_count,
    check_flag,
    check_real,
    check_seed,
    safe_scale,
    shown,
    times_power,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROUNDING = 1e-6  # relative difference of scores that rounding and tolerances of iterations make
Z_CRITICAL = 1.96  # standard errors that a difference must exceed


class ModelScore(NamedTuple):
    """The score of one model.

    Parameters
    ----------
    name : Hashable
        Name or position of the model.
    score : float
        Larger is better.
    standard_error : float or None
        How much the score would vary with other rows; for sketches, with other sketches.
    seconds : float
        Time to compute the score.
    too_close : bool, default=False
        Whether the difference from the best model is at most 1.96 times its standard error, which accounts
        for the rows, or sketches, that both scores share; always False without standard errors.
    rows_to_tell : int or None, default=None
        About how many rows would distinguish the model from the best one, if the difference stays the same;
        None for sketches, whose errors do not depend on the number of rows.
    ridge, knn : float or None, default=None
        The two parts of the default score.
    """

    name: Any
    score: float
    standard_error: float | None
    seconds: float
    too_close: bool = False
    rows_to_tell: int | None = None
    ridge: float | None = None
    knn: float | None = None


class ModelRanking(list[ModelScore]):
    """Scores of several models, best first; prints as a table, and `pandas.DataFrame(ranking)` works.

    Parameters
    ----------
    rows : iterable of ModelScore
        Scores in any order.
    metric : str
        Name of the score.
    target : str, default=""
        How the target was read, in words.
    """

    def __init__(self, rows: Iterable[ModelScore], metric: str, target: str = "") -> None:
        super().__init__(sorted(rows, key=lambda row: -row.score))
        self.metric = metric
        self.target = target

    def _cells(self) -> list[list[str]]:
        """The table as text, a line of names first."""
        parts = [part for part in ("ridge", "knn") if any(getattr(row, part) is not None for row in self)]
        lines = [["model", self.metric, *parts, "standard error", "seconds", ""]]
        for row in self:
            error = "" if row.standard_error is None else f"{row.standard_error:.2g}"
            halves = ["" if getattr(row, part) is None else f"{getattr(row, part):.4g}" for part in parts]
            more = "" if row.rows_to_tell is None else f": about {row.rows_to_tell:,} rows would tell"
            remark = f"too close to call{more}" if row.too_close else ""
            lines.append([str(row.name), f"{row.score:.6g}", *halves, error, f"{row.seconds:.3f}", remark])
        return lines

    def __repr__(self) -> str:
        lines = self._cells()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = []
        for line in lines:
            cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
            text.append("  ".join([line[0].ljust(widths[0]), *cells[1:-1], line[-1]]).rstrip())
        return "\n".join([*text, *([f"Target: {self.target}."] if self.target else [])])

    def _repr_html_(self) -> str:
        head, *body = [[html.escape(cell) for cell in line] for line in self._cells()]
        rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in body)
        header = "".join(f"<th>{cell}</th>" for cell in head)
        caption = f"<caption>Target: {html.escape(self.target)}</caption>" if self.target else ""
        return f"<table>{caption}<thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the scores with intervals of 1.96 standard errors, best on top (needs matplotlib).

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; a new figure if None.

        Returns
        -------
        matplotlib Axes
            The axes. Open markers are models that are too close to the best to call.
        """
        if ax is None:
            pyplot = import_optional("matplotlib.pyplot", "plot", '"manylens[plot]"')
            size = (6.0, 1.0 + 0.3 * len(self))
            ax = pyplot.subplots(figsize=size, layout="constrained")[1]
        for place, row in enumerate(self):
            reach = Z_CRITICAL * (row.standard_error or 0.0)
            fill = "white" if row.too_close else "#3f90da"
            ax.errorbar(
                row.score, place, xerr=reach, fmt="o", color="#3f90da", markerfacecolor=fill, capsize=2
            )
        ax.set_yticks(range(len(self)), [str(row.name) for row in self])
        ax.invert_yaxis()
        ax.set_xlabel(self.metric)
        ax.spines[["top", "right"]].set_visible(False)
        return ax


def rank_models(
    models: FeatureSets,
    y: ArrayLike,
    metric: str | Callable[..., float] = "auto",
    *,
    target: Target = "auto",
    standardize: bool = True,
    n_groups: int = 10,
    verbose: bool | int = False,
    random_state: Seed = 0,
) -> ModelRanking:
    """Rank pretrained models by how well a simple model on their features would do on a task.

    Use rows that the models were not trained on. Scores of different metrics cannot be compared.

    Parameters
    ----------
    models : dict or sequence of array-like, each of shape (n, d_k), or of FeatureSketch
        Output of each model for the task's n rows: features (or sketches of them, for "cka" and
        "biased-cka"), or class probabilities for "leep" and "nce". Arrays of torch, CuPy or JAX stay on their
        device for "auto", "accuracy", "ridge" and "knn", if array-api-compat is installed.
    y : array-like, shape (n,) or (n, C), or FeatureSketch
        Classes, or real targets for "auto", "accuracy", "ridge", "knn", "cka", "biased-cka" and "logme". For
        sketches y holds rows 0 ... n - 1, or is a sketch of the target's columns.
    metric : str or callable, default="auto"
        "auto" is "accuracy" for features and "cka" for sketches. "accuracy" is the mean of "ridge" and "knn",
        the leave-one-out accuracy (R² for real targets) of a ridge and of k-nearest neighbors, both
        exact. Others: "cka" (alignment with the target kernel, unbiased), "biased-cka" (the same as
        defined in the papers, which favors wide features), "logme", "h-score", "shrunk-h-score",
        "sfda", "nleep", "transrate", "leep", "nce"; or a function of features and class numbers (n,), for
        which larger is better.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y. "auto" reads 1-d integers, strings and booleans as classes, and also C different whole
        numbers stored as floats if 2 C ≤ n and either C ≤ 20, or they are 0 ... C - 1 or 1 ... C with C² ≤ n;
        the table says how y was read.
    standardize : bool, default=True
        Whether to scale all columns to mean 0 and the same variance first, so that units and single large
        columns do not matter: variance 1, and for "sfda" and "transrate", which depend on the scale, 1/d.
        Sketches, class probabilities, and features passed to a function are not scaled.
    n_groups : int, default=10
        0 for no standard errors. Otherwise, the number of random groups of rows for the jackknife error of a
        function; the errors of the other scores are from one pass (infinitesimal jackknife). For sketches,
        errors and what is too close to call are due to sketching alone, by a jackknife over the replicates.
    verbose : bool or int, default=False
        Whether to print each score as soon as it is known.
    random_state : int, RandomState or None, default=0
        Seed of the groups.

    Returns
    -------
    ModelRanking
        A table, best first: name, score, standard error, seconds, whether it is too close to the best to
        call, and how many rows would settle it.

    Examples
    --------
    >>> import numpy as np
    >>> from manylens import rank_models
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 300)
    >>> blurred = np.eye(3)[y] + rng.standard_normal((300, 3))
    >>> ranking = rank_models({"blurred": blurred, "sharp": np.eye(3)[y] + 0.1 * blurred}, y)
    >>> ranking[0].name
    'sharp'
    """
    if not callable(metric) and not (isinstance(metric, str) and metric in ("auto", *METRICS)):
        raise ValueError(
            f"metric={shown(metric)} is unknown: give one of auto, {', '.join(METRICS)} or a function."
        )
    n_groups = check_count(n_groups, "n_groups", minimum=0)
    check_flag(standardize, "standardize")
    check_real(verbose, "verbose", 0)
    sketches = sketches_by_name(models)
    if sketches is not None:
        return rank_sketches(sketches, y, "cka" if metric == "auto" else metric, target, n_groups > 0)
    metric = "accuracy" if metric == "auto" else metric
    chosen = Metric(metric, scale_free=False) if callable(metric) else METRICS[metric]
    names, arrays = list_sets(models)
    xp = namespace_of(*arrays)
    on_device = xp is not None and metric in DEVICE_METRICS
    if xp is not None and on_device:
        arrays = check_matrices(xp, names, [X.detach() if hasattr(X, "detach") else X for X in arrays])
    else:
        if xp is not None:
            refuse_other_devices(arrays, metric)
        names, arrays = check_feature_sets(models, accept_sparse=False)
    n = arrays[0].shape[0]
    if n < 2:
        raise ValueError("Ranking needs at least 2 rows; 1 was given.")
    columns, is_class, read = target_columns(labels_on_host(y), n, target)
    if chosen.target == "classes" and not is_class:
        raise ValueError(
            f"metric={shown(metric)} needs classes; for real targets use metric='accuracy', 'cka' or 'logme'."
        )
    if not on_device:
        refuse_constant(arrays, names)
    if chosen.takes == "probabilities":
        refuse_other_than_probabilities(arrays, names, str(metric))
    if not on_device and (chosen.scale_free or (standardize and not callable(metric))):
        arrays = [times_power(X, -safe_scale(X)) for X in arrays]
    if chosen.target == "either":
        columns = times_power(columns, -safe_scale(columns))
    if callable(metric):
        groups = jackknife_groups(columns, n_groups, random_state)
        score = partial(score_function, metric, columns.argmax(axis=1), groups)
    elif xp is not None and on_device:
        score = partial(score_on_device, xp, metric, columns, is_class, standardize)
    else:
        standardize = standardize and chosen.takes == "features"
        score = partial(score_features, metric, columns, is_class, standardize)
    rows, influences = [], []
    for name, X in zip(names, arrays, strict=True):
        row, influence = score(name, X)
        rows.append(row)
        influences.append(influence)
        if verbose:
            print(f"{name}: {row.score:.6g} ({row.seconds:.2f} s), {len(rows)} of {len(names)}")
    if not n_groups:
        rows = [row._replace(standard_error=None) for row in rows]
    else:
        rows = mark_close_to_best(rows, influences, n)
    return ModelRanking(
        rows, metric if isinstance(metric, str) else getattr(metric, "__name__", "score"), read
    )


def refuse_other_than_probabilities(arrays: Iterable[FloatArray], names: Iterable[Any], metric: str) -> None:
    """Raise unless the rows of all arrays are probabilities."""
    for name, P in zip(names, arrays, strict=True):
        if P.min() < 0 or abs(P.sum(axis=1) - 1).max() > 1e-3:
            raise ValueError(
                f"metric={metric!r} needs class probabilities, with rows that add up to 1, but those of "
                f"{name} do not. For features use metric='accuracy' or 'nleep'."
            )


def score_features(
    metric: str, columns: FloatArray, is_class: bool, standardize: bool, name: Any, X: FloatArray
) -> tuple[ModelScore, FloatArray]:
    """Score of features (n, d) for target columns (n, C), and the influence of each row (n,)."""
    start = time.perf_counter()
    chosen = METRICS[metric]
    parts: dict[str, Any] = {}
    if standardize:
        X = standardized_columns(X)
        if not chosen.scale_free:  # rows of length 1 on average, whatever their number of columns
            X = X / np.sqrt(X.shape[1]).astype(X.dtype)
        columns = columns - columns.mean(axis=0) if chosen.target == "columns" else columns
    elif chosen.takes == "features":
        shifted = centered(X)
        if not shifted.any():
            raise ValueError(
                f"{name} is constant up to rounding beside its largest column, so its score is undefined: "
                "use standardize=True, or leave out columns that are constant."
            )
        X = shifted if chosen.target == "either" else X
    if metric == "accuracy":
        scores = chosen.score(X, columns, is_class)
        scored = scores["accuracy"]
        parts = {part: scores[part].value for part in ("ridge", "knn")}
    elif chosen.target == "either":
        scored = chosen.score(X, columns, is_class)
    elif chosen.target == "columns":
        scored = chosen.score(X, columns)
    else:
        scored = chosen.score(X, columns.argmax(axis=1))
    seconds = time.perf_counter() - start
    if not np.isfinite(scored.value):
        raise ValueError(
            f"The score of {name} is {scored.value}: {metric} is not defined for these features."
        )
    error = float(np.linalg.norm(scored.influence) / len(X))
    return ModelScore(name, float(scored.value), error, seconds, **parts), scored.influence


def score_on_device(
    xp: ModuleType, metric: str, columns: FloatArray, is_class: bool, standardize: bool, name: Any, X: Any
) -> tuple[ModelScore, FloatArray]:
    """Score of features (n, d) of another library, on their device, and the influence of each row (n,)."""
    start = time.perf_counter()
    scores = device_probe_scores(xp, X, columns, is_class, standardize, metric, name)
    scored = scores[metric]
    parts: dict[str, Any] = {}
    if metric == "accuracy":
        parts = {part: scores[part].value for part in ("ridge", "knn")}
    error = float(np.linalg.norm(scored.influence) / len(columns))
    row = ModelScore(name, scored.value, error, time.perf_counter() - start, **parts)
    return row, scored.influence


def refuse_other_devices(arrays: Iterable[Any], metric: Any) -> None:
    """Raise if a metric that runs on the host is given arrays on another device."""
    for X in arrays:
        device = str(getattr(X, "device", "cpu")).lower()
        if "cpu" not in device:
            raise ValueError(
                f"metric={shown(metric)} runs on the host, but the features are on the device {device}: move "
                f"them to the host, or use metric={', '.join(map(repr, DEVICE_METRICS))}."
            )


def mark_close_to_best(
    rows: list[ModelScore], influences: list[FloatArray], n: int | None
) -> list[ModelScore]:
    """Mark models too close to the best to call, by influences of n rows, groups of them, or sketches."""
    first = int(np.argmax([row.score for row in rows]))
    best, marked = rows[first], []
    for k, (row, influence) in enumerate(zip(rows, influences, strict=True)):
        difference = best.score - row.score
        if difference <= ROUNDING * abs(best.score):  # of equal models with columns in another order
            difference = 0.0
        error = float(np.linalg.norm(influences[first] - influence) / len(influence))
        close = bool(k != first and difference <= Z_CRITICAL * error)  # equal scores may have no error
        needed = None
        if n is not None and close and difference > 0:
            needed = int(float(f"{n * (Z_CRITICAL * error / difference) ** 2:.1e}"))
        marked.append(row._replace(too_close=close, rows_to_tell=needed))
    return marked


def group_influences(left_out: Sequence[float] | FloatArray) -> tuple[FloatArray, float]:
    """Influences (g,) of groups of rows on a score and its jackknife error, from its values without each."""
    gaps, g = np.mean(left_out) - np.asarray(left_out, dtype=np.float64), len(left_out)
    return np.sqrt(g * (g - 1)) * gaps, float(np.sqrt((g - 1) / g) * np.linalg.norm(gaps))


def jackknife_groups(columns: FloatArray, n_groups: int, random_state: Seed) -> IntArray | None:
    """Random group number of each row (n,); None if n_groups is 0."""
    n = len(columns)
    if not n_groups:
        return None
    if not 2 <= n_groups <= n // 2:
        raise ValueError(
            f"n_groups={n_groups} is not between 2 and half the {n} rows; use 0 for no standard error."
        )
    groups = check_seed(random_state).permutation(n) % n_groups
    for g in range(n_groups):
        if np.all(np.ptp(columns[groups != g], axis=0) == 0):
            raise ValueError(
                "y is constant except for a few rows in one group, so the score has no standard error: use "
                "n_groups=0."
            )
    return groups


def score_function(
    metric: Callable[..., float], codes: IntArray, groups: IntArray | None, name: Any, X: FloatArray
) -> tuple[ModelScore, FloatArray]:
    """Score of features (n, d) by a function, with its jackknife error over groups of rows."""

    def evaluate(rows: Any) -> float:
        # Classes are renumbered, because leaving out a group may leave a class without rows.
        try:
            value = metric(X[rows], np.unique(codes[rows], return_inverse=True)[1])
        except TypeError as error:
            raise TypeError(
                f"metric={shown(metric)} could not be called with features and class numbers: {error}."
            ) from error
        if not isinstance(value, Real):
            raise TypeError(f"The metric returned {shown(value)} for {name}: it must return one number.")
        return float(value)

    start = time.perf_counter()
    score = evaluate(slice(None))
    seconds = time.perf_counter() - start
    if not np.isfinite(score):
        raise ValueError(f"The score of {name} is {score}: the metric is not defined for these features.")
    if groups is None:
        return ModelScore(name, score, None, seconds), np.zeros(0)
    parts = [evaluate(groups != g) for g in range(groups.max() + 1)]
    if not np.all(np.isfinite(parts)):
        raise ValueError(
            f"The score of {name} is undefined if some rows are left out, so it has no standard error: "
            "use n_groups=0."
        )
    influences, error = group_influences(parts)
    return ModelScore(name, score, error, seconds), influences


def rank_sketches(
    sketches: dict[Any, Sketched], y: Any, metric: Any, target: Target, with_errors: bool
) -> ModelRanking:
    """Ranking by CKA from sketches of features."""
    if metric not in ("cka", "biased-cka"):
        raise ValueError(f"Sketches can be ranked by 'cka' or 'biased-cka', not by {shown(metric)}.")
    estimator: Estimator = "unbiased" if metric == "cka" else "biased"
    if target == "auto" and not isinstance(y, list | tuple):
        target = decided_target(y)
    made = target_sketch(y, sketches, target)
    found = [score_sketch(name, each, made, estimator) for name, each in sketches.items()]
    rows = [row._replace(standard_error=row.standard_error if with_errors else None) for row, _ in found]
    if with_errors:  # no number of rows would tell apart what the sketches cannot
        rows = mark_close_to_best(rows, [influences for _, influences in found], None)
    return ModelRanking(rows, str(metric))


def score_sketch(
    name: Any, sketched: Sketched, target: Sketched, estimator: Estimator
) -> tuple[ModelScore, FloatArray]:
    """CKA of sketched features with the sketched target, and the influence (R,) of each replicate."""
    start = time.perf_counter()
    products = pair_products([sketched, target], [name, "y"], estimator)
    influences, error = group_influences(left_out_alignments(products))
    score = alignment_of(mean_products(products))
    return ModelScore(name, score, error, time.perf_counter() - start), influences
