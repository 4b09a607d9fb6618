"""Ranking pretrained models for a task before any training."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from manylens.alignment import transfer_scores
from manylens.alignment.features import check_feature_sets, refuse_constant, target_features


@dataclass(frozen=True)
class Metric:
    """A transferability score and what it needs.

    Parameters
    ----------
    score : callable
        From the features (n, d) and the target to a number.
    target : {"columns", "classes"}
        Whether it takes target columns (n, C), so also regression, or class numbers (n,).
    takes : {"features", "probabilities"}
        What a model gives it: features of any kind, or probabilities of the model's own classes.
    """

    score: Callable
    target: str = "classes"
    takes: str = "features"


METRICS = {
    "cka": Metric(transfer_scores.alignment_score, target="columns"),
    "logme": Metric(transfer_scores.log_evidence, target="columns"),
    "h-score": Metric(transfer_scores.h_score),
    "shrunk-h-score": Metric(transfer_scores.shrunk_h_score),
    "transrate": Metric(transfer_scores.trans_rate),
    "leep": Metric(transfer_scores.log_expected_prediction, takes="probabilities"),
    "nce": Metric(transfer_scores.negative_conditional_entropy, takes="probabilities"),
}


class ModelScore(NamedTuple):
    """One line of a ranking.

    Parameters
    ----------
    name : str
        The model.
    score : float
        Larger is better.
    standard_error : float or None
        Of the score, over the choice of rows; None where it was not asked for.
    seconds : float
        Time that the score took, without its standard error.
    """

    name: str
    score: float
    standard_error: float | None
    seconds: float


class ModelRanking(Sequence):
    """Scores of several models, best first: a sequence of `ModelScore` that prints as a table.

    Parameters
    ----------
    rows : iterable of ModelScore
        Scores in any order.
    metric : str
        What the scores are.
    """

    def __init__(self, rows, metric):
        self.rows = sorted(rows, key=lambda row: -row.score)
        self.metric = metric

    def __getitem__(self, place):
        return self.rows[place]

    def __len__(self):
        return len(self.rows)

    def __repr__(self):
        width = max(len("model"), *(len(str(row.name)) for row in self.rows))
        lines = [f"{'model':<{width}}  {self.metric:>14}  {'standard error':>14}  {'seconds':>8}"]
        for name, score, error, seconds in self.rows:
            shown = "" if error is None else f"{error:.2g}"
            lines.append(f"{name!s:<{width}}  {score:>14.6g}  {shown:>14}  {seconds:>8.3f}")
        return "\n".join(lines)

    def to_frame(self):
        """The ranking as a data frame.

        Returns
        -------
        pandas.DataFrame
            Indexed by model, columns score, standard_error and seconds.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("A data frame needs pandas: pip install pandas.") from None
        return pandas.DataFrame(self.rows, columns=ModelScore._fields).set_index("name")


def rank_models(models, y, metric="cka", *, target="auto", n_groups=10, random_state=0):
    """Rank pretrained models by how well a linear model on their features would do on a task.

    Parameters
    ----------
    models : dict or sequence of array-like, each of shape (n, d_k)
        What each model makes of the n rows of the task: features, or for "leep" and "nce" the probabilities
        of the model's own classes.
    y : array-like, shape (n,) or (n, C)
        The task: classes, or real targets for "cka" and "logme".
    metric : str or callable, default="cka"
        "cka" (alignment with the target kernel), "logme", "h-score", "shrunk-h-score", "transrate", "leep",
        "nce"; or a function of features and class numbers (n,), larger being better.
    target : {"auto", "classes", "values"}, default="auto"
        How to read y. "auto" takes 1-d integers, strings and booleans for classes.
    n_groups : int, default=10
        The standard error is the jackknife's, leaving out one of this many random groups of rows at a time; 0
        leaves it out, and saves as many evaluations.
    random_state : int, RandomState or None, default=0
        Which rows form the groups.

    Returns
    -------
    ModelRanking
        A table, best first: name, score, standard error, seconds.

    Notes
    -----
    Take the features of rows that the model was not trained on. Scores of different metrics do not compare.

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
    chosen = resolve_metric(metric)
    names, arrays = check_feature_sets(models, accept_sparse=False)
    n = len(arrays[0])
    columns = target_features(y, n, target)
    if chosen.target == "classes":
        refuse_values(columns, metric)
    for name, array in zip(names, arrays, strict=True):
        check_model(name, array, chosen, metric)
    if n_groups and not 2 <= n_groups <= n // 2:
        raise ValueError(
            f"n_groups={n_groups} is not between 2 and half the {n} rows; 0 leaves the error out."
        )
    groups = check_random_state(random_state).permutation(n) % n_groups if n_groups else None
    if groups is not None:
        refuse_lone_rows(columns, groups)
    rows = [score_model(name, X, columns, chosen, groups) for name, X in zip(names, arrays, strict=True)]
    return ModelRanking(rows, metric if isinstance(metric, str) else getattr(metric, "__name__", "score"))


def score_model(name, X, columns, metric, groups=None):
    """Score of one model, with the standard error of the jackknife over groups of rows.

    Parameters
    ----------
    name : str
        The model.
    X : ndarray, shape (n, d)
        Its features.
    columns : ndarray, shape (n, C)
        Target columns.
    metric : Metric
        The score.
    groups : ndarray of int, shape (n,), optional
        Group of each row.

    Returns
    -------
    ModelScore
        The line of the table.
    """
    start = time.perf_counter()
    score = evaluate(metric, X, columns)
    seconds = time.perf_counter() - start
    if not np.isfinite(score):
        raise ValueError(f"The score of {name} is {score}: the metric is not defined for these features.")
    error = None
    if groups is not None:
        n_groups = groups.max() + 1
        parts = [evaluate(metric, X[groups != g], columns[groups != g]) for g in range(n_groups)]
        if not np.all(np.isfinite(parts)):
            raise ValueError(
                f"The score of {name} is not defined once some rows are left out: use n_groups=0, which "
                "gives no standard error."
            )
        error = float(np.sqrt((n_groups - 1) * np.var(parts)))
    return ModelScore(name, score, error, seconds)


def evaluate(metric, X, columns):
    """The score of features (n, d) for target columns (n, C) in the form that the metric takes."""
    if metric.target == "columns":
        return float(metric.score(X, columns))
    # Numbered afresh: a class may have no row where a group is left out.
    return float(metric.score(X, np.unique(columns.argmax(axis=1), return_inverse=True)[1]))


def resolve_metric(metric):
    """The metric of this name, or of this function."""
    if callable(metric):
        return Metric(metric)
    if metric not in METRICS:
        raise ValueError(f"metric={metric!r} is unknown: give one of {', '.join(METRICS)} or a function.")
    return METRICS[metric]


def refuse_values(columns, metric):
    """Refuse real targets where classes are needed."""
    if not (np.all((columns == 0) | (columns == 1)) and np.all(columns.sum(axis=1) == 1)):
        raise ValueError(f"metric={metric!r} needs classes; for real targets use metric='cka' or 'logme'.")


def refuse_lone_rows(columns, groups):
    """Refuse groups without one of which the target (n, C) would be constant."""
    for g in range(groups.max() + 1):
        kept = columns[groups != g]
        if np.all(kept == kept[0]):
            raise ValueError(
                "y is constant but for a few rows, which one group holds: without it no score is defined. "
                "Use n_groups=0, which gives no standard error."
            )


def check_model(name, X, chosen, metric):
    """Refuse what a model gave where the metric cannot take it."""
    refuse_constant([X], [name])
    if chosen.takes == "probabilities" and (X.min() < 0 or abs(X.sum(axis=1) - 1).max() > 1e-3):
        raise ValueError(
            f"metric={metric!r} takes probabilities of the model's own classes, rows that add up to 1; those "
            f"of {name} do not. For features use metric='cka', 'logme' or 'shrunk-h-score'."
        )
