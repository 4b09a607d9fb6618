"""Choose the diversity by cross-validation, with one decomposition per fold for all diversities."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, MetaEstimatorMixin, TransformerMixin, clone, is_classifier
from sklearn.metrics import check_scoring, get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, check_array, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from manylens.callbacks import (
    CallbackSupportMixin,
    Context,
    propagated,
    reported,
    root_context,
    subtask,
    with_callbacks,
)
from manylens.ensembles.precision import RetrievalPrecision
from manylens.ensembles.search_coordinates import resolve_modules
from manylens.reprs import FactsMixin
from manylens.scoring import scored
from manylens.typing import AnyArray, DiverseModules, FloatArray, IntArray, MatrixLike
from manylens.validation import (
    check_count,
    check_diversity,
    check_flag,
    check_jobs,
    plain_conversion_errors,
    plain_label_errors,
    require_two_classes,
    restore_on_error,
    shown,
    take_rows,
)

DIVERSITIES = (0.0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)
CACHED = 2  # sets of rows whose coordinates are kept: one for training and one for scoring

Fold: TypeAlias = tuple[IntArray, IntArray]  # rows to train on and rows to score


def _delegated(name: str) -> Callable[[Any], Any]:
    """Make a method of the search available only if its estimator has it."""

    def offers(search: DiversitySearchCV) -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    return available_if(offers)


class DiversitySearchCV(CallbackSupportMixin, FactsMixin, MetaEstimatorMixin, BaseEstimator):
    """Choose the diversity of an estimator's modules by cross-validation.

    The decomposition behind the modules does not depend on the diversity, so each fold computes it only once.

    Parameters
    ----------
    estimator : estimator
        A modular transformer, or an estimator that contains one, such as a voting estimator, a search index
        or a pipeline.
    diversities : array-like of float, default=(0, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1)
        Values in [0, 1] to choose from.
    scoring : str, callable or RetrievalPrecision, default=None
        As in scikit-learn, or "retrieval_precision". None means the estimator's `score` method; for a search
        index, the retrieval precision for its `n_neighbors`.
    cv : int, splitter or iterable, default=None
        As in scikit-learn.
    refit : bool, default=True
        Whether to fit the best estimator to all rows.
    n_jobs : int, default=None
        Number of parallel jobs over folds. None means joblib's default, -1 all processors.
    verbose : int, default=0
        If positive, print a line per fold; with 2, per fold and diversity. For a progress bar, see
        `set_callbacks` (scikit-learn 1.9).

    Attributes
    ----------
    best_diversity_, best_score_, best_index_ : float, float, int
        The best diversity, its mean score and its index in `diversities`.
    best_estimator_ : estimator
        Fitted to all rows with the best diversity, if `refit`.
    cv_results_ : dict of arrays
        As in scikit-learn's GridSearchCV.
    representation_time_ : float
        Seconds spent on decompositions and representations in all folds.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import DiversitySearchCV, ModularKernelPCA, ModuleVotingClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = ModuleVotingClassifier(ModularKernelPCA(n_modules=8, n_components=4, random_state=0))
    >>> search = DiversitySearchCV(clf, diversities=[0.0, 0.9], cv=3).fit(X[:600], y[:600])
    >>> search.best_diversity_
    0.9
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        diversities: ArrayLike = DIVERSITIES,
        *,
        scoring: Any = None,
        cv: Any = None,
        refit: bool = True,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.diversities = diversities
        self.scoring = scoring
        self.cv = cv
        self.refit = refit
        self.n_jobs = n_jobs
        self.verbose = verbose

    @restore_on_error
    @with_callbacks
    def fit(self, X: MatrixLike, y: ArrayLike | None = None) -> Self:
        """Score every diversity on every fold, and refit with the best one.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
            Rows.
        y : array-like of shape (n,), default=None
            Targets.

        Returns
        -------
        self
        """
        X, y = indexable(X, y)
        with plain_conversion_errors("X"):
            X = X if hasattr(X, "shape") else np.asarray(X)
        with plain_conversion_errors("diversities"):
            asked = np.asarray(self.diversities).ravel().tolist()
        diversities = [check_diversity(value) for value in asked]
        check_count(self.verbose, "verbose", 0)
        check_jobs(self.n_jobs)
        check_flag(self.refit, "refit")
        if not diversities:
            raise ValueError("diversities is empty: give at least one value in [0, 1].")
        estimator, place = find_modules(self.estimator)
        name = f"{place}__keep_probability" if place else "keep_probability"
        if estimator.get_params().get(name) is not None:
            raise ValueError(f"{name} already determines the diversity: set it to None to search for one.")
        scorer = make_scorer(estimator, self.scoring)
        classifies = is_classifier(estimator)
        targets: Any = check_classes(y) if classifies else y
        no_folds = f"cv={shown(self.cv)} gives no folds: give a number of folds, or pairs of rows."
        try:
            folds = list(check_cv(self.cv, targets, classifier=classifies).split(X, targets))
        except TypeError as error:
            raise TypeError(no_folds) from error
        if not folds:
            raise ValueError(no_folds)
        if classifies:
            check_folds(targets, folds)
        root = root_context(self, X, y, len(folds) + bool(self.refit))
        reports = [
            FoldReport(self, f"fold {k} of {len(folds)}", subtask(root, "fold", len(diversities)))
            for k in range(1, len(folds) + 1)
        ]
        outcomes = Parallel(n_jobs=self.n_jobs)(
            delayed(score_fold)(estimator, place, diversities, scorer, X, targets, fold, report)
            for fold, report in zip(folds, reports, strict=True)
        )
        check_scores(np.array([results[0] for results, _ in outcomes]), diversities)
        self.n_splits_ = len(folds)
        self.cv_results_ = collect_results(diversities, [results for results, _ in outcomes])
        self.representation_time_ = float(sum(seconds for _, seconds in outcomes))
        self.best_index_ = int(np.argmax(self.cv_results_["mean_test_score"]))
        self.best_diversity_ = diversities[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        if self.refit:
            best = clone(estimator).set_params(**{f"{place}__diversity".lstrip("_"): self.best_diversity_})
            context = subtask(root, "refit")
            with propagated(context, best), reported(context, self):
                self.best_estimator_ = best.fit(X) if targets is None else best.fit(X, targets)
            if hasattr(self.best_estimator_, "feature_names_in_"):
                self.feature_names_in_ = self.best_estimator_.feature_names_in_
        if root is not None:
            root.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes=dict)
        return self

    def _facts(self) -> dict[str, Any]:
        if not hasattr(self, "cv_results_"):
            return {}
        scores = self.cv_results_["mean_test_score"]
        return {
            "best diversity": self.best_diversity_,
            "best score": self.best_score_,
            "scores": dict(zip(self.cv_results_["param_diversity"].tolist(), scores.tolist(), strict=True)),
        }

    def _best(self) -> Any:
        check_is_fitted(self)
        if not self.refit:
            raise AttributeError("This search was fitted with refit=False: it has no best_estimator_.")
        return self.best_estimator_

    @_delegated("predict")
    def predict(self, X: MatrixLike) -> AnyArray:
        """Call `predict` of the best estimator."""
        return self._best().predict(X)

    @_delegated("predict_proba")
    def predict_proba(self, X: MatrixLike) -> FloatArray:
        """Call `predict_proba` of the best estimator."""
        return self._best().predict_proba(X)

    @_delegated("transform")
    def transform(self, X: MatrixLike) -> FloatArray:
        """Call `transform` of the best estimator."""
        return self._best().transform(X)

    @_delegated("kneighbors")
    def kneighbors(
        self, X: MatrixLike | None = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Call `kneighbors` of the best estimator."""
        return self._best().kneighbors(X, n_neighbors, return_distance)

    @_delegated("score")
    def score(self, X: MatrixLike, y: ArrayLike | None = None) -> float:
        """Call `score` of the best estimator."""
        return self._best().score(X, y)

    @property
    def classes_(self) -> AnyArray:
        """Classes of the best estimator."""
        return self._best().classes_

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in `fit`."""
        return self._best().n_features_in_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if not hasattr(self.estimator, "__sklearn_tags__"):  # fit raises
            return tags
        inner = get_tags(self.estimator)
        tags.estimator_type, tags.target_tags = inner.estimator_type, inner.target_tags
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags.pairwise, tags.input_tags.sparse = inner.input_tags.pairwise, inner.input_tags.sparse
        return tags


class Decomposition:
    """A modular transformer that is fitted once for all diversities, with cached coordinates of rows."""

    def __init__(self, modules: DiverseModules) -> None:
        self.modules = modules
        self.seconds = 0.0  # spent on representations
        self._fitted: tuple[Any, Any] | None = None  # rows, and the model fitted to them
        self._cache: list[tuple[Any, FloatArray]] = []  # rows and their coordinates

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # clones of `SharedModules` share it

    def at(self, diversity: float, X: Any, y: Any = None) -> Any:
        """The modules at this diversity, fitted to X; the same X is decomposed only once."""
        start = time.perf_counter()
        if self._fitted is None or not same_rows(self._fitted[0], X):
            self._fitted = (X, clone(self.modules).set_params(diversity=diversity).fit(X, y))
            self._cache = []
        model = self._fitted[1].with_diversity(diversity)
        self.seconds += time.perf_counter() - start
        return model

    def transform(self, model: DiverseModules, X: Any) -> FloatArray:
        """Return `model.transform(X)`, computed from cached coordinates if X was seen before."""
        start = time.perf_counter()
        cached = [coordinates for rows, coordinates in self._cache if same_rows(rows, X)]
        if not cached:
            cached = [model.principal_coordinates(X)]
            self._cache = [*self._cache[-(CACHED - 1) :], (X, cached[0])]
        Z = model.transform_coordinates(cached[0])
        self.seconds += time.perf_counter() - start
        return Z


class SharedModules(TransformerMixin, BaseEstimator):
    """Replaces an estimator's modular transformer by a shared decomposition at one diversity."""

    def __init__(self, decomposition: Decomposition, diversity: float) -> None:
        self.decomposition = decomposition
        self.diversity = diversity

    @restore_on_error
    def fit(self, X: Any, y: Any = None) -> Self:
        """Set the modules to this diversity."""
        self.modules_ = self.decomposition.at(self.diversity, X, y)
        return self

    def transform(self, X: Any) -> FloatArray:
        """All modules side by side."""
        return self.decomposition.transform(self.modules_, X)

    def split(self, Z: Any) -> Any:
        """The columns of `transform` by module."""
        return self.modules_.split(Z)

    def __sklearn_tags__(self) -> Tags:
        return get_tags(self.decomposition.modules)


def same_rows(left: Any, right: Any) -> bool:
    """Whether two arrays or CSR matrices have the same type and entries."""
    if left is right:  # quick
        return True
    if left.shape != right.shape or left.dtype != right.dtype or type(left) is not type(right):
        return False
    if sparse.issparse(left):
        return left.nnz == right.nnz and (left != right).nnz == 0
    return np.array_equal(left, right)


def find_modules(estimator: BaseEstimator) -> tuple[Any, str]:
    """A copy of the estimator, default modules in place of None, and the parameter that holds them.

    The parameter is "" if the estimator is a modular transformer itself.
    """
    if not hasattr(estimator, "get_params"):
        raise TypeError(f"estimator={shown(estimator)} is not an estimator: give one with modules.")
    estimator = clone(estimator)
    if is_modular(estimator):
        return estimator, ""
    for name, value in estimator.get_params(deep=True).items():
        if value is None and name.split("__")[-1] == "modules":
            estimator.set_params(**{name: resolve_modules(None)})
    places = [name for name, value in estimator.get_params(deep=True).items() if is_modular(value)]
    places = [name for name in places if not any(name.startswith(f"{other}__") for other in places)]
    if len(places) != 1:
        found = ", ".join(places) if places else "none"
        raise TypeError(
            "DiversitySearchCV needs an estimator that contains one transformer with `with_diversity`, "
            f"such as ModularKernelPCA or ModularAutoencoder; found in {type(estimator).__name__}: {found}."
        )
    return estimator, places[0]


def is_modular(value: Any) -> bool:
    """Whether this is a transformer whose diversity can be changed after fitting."""
    return not isinstance(value, type) and isinstance(value, DiverseModules)


def make_scorer(estimator: Any, scoring: Any) -> Any:
    """A scorer, or a `RetrievalPrecision` that prepares one per fold."""
    own = callable(scoring) and not hasattr(scoring, "prepared")
    if isinstance(estimator, Pipeline) and not hasattr(estimator, "score") and not own:
        last = type(estimator[-1]).__name__
        raise TypeError(
            f"A pipeline that ends with {last} cannot be asked for neighbors, so no diversity can be scored: "
            f"put the search into the pipeline, as make_pipeline(..., DiversitySearchCV({last}(...)))."
        )
    if scoring is None and not hasattr(estimator, "score") and hasattr(estimator, "kneighbors"):
        return RetrievalPrecision(estimator.n_neighbors)
    if isinstance(scoring, str) and scoring == "retrieval_precision":
        return RetrievalPrecision()
    known = isinstance(scoring, str) and scoring in get_scorer_names()
    if not (known or scoring is None or callable(scoring) or hasattr(scoring, "prepared")):
        raise ValueError(
            f"scoring={shown(scoring)} is unknown: give 'retrieval_precision', a name that "
            "sklearn.metrics.get_scorer_names() lists, or a function of estimator, X and y."
        )
    return scoring if hasattr(scoring, "prepared") else check_scoring(estimator, scoring)


def check_classes(y: Any) -> AnyArray:
    """Labels as an array, if they are classes."""
    if y is None:
        raise ValueError("This search requires y to be passed, but the target y is None.")
    with plain_conversion_errors("y"), plain_label_errors():
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
        check_classification_targets(y)
    return y


def check_folds(y: AnyArray, folds: list[Fold]) -> None:
    """Raise if there is only one class, or if a class is missing from the training rows of a fold."""
    classes = np.unique(y)
    require_two_classes(classes, "DiversitySearchCV")
    for number, (train, _) in enumerate(folds):
        missing = np.setdiff1d(classes, y[train])
        if len(missing):
            raise ValueError(
                f"Fold {number} has no training row of class {missing[0]}: use fewer or stratified "
                "folds, or leave that class out."
            )


def take(X: Any, rows: IntArray, columns: IntArray | None = None) -> Any:
    """Some rows of an array, a sparse matrix or a data frame; for a precomputed kernel also some columns."""
    if X is None:
        return None
    return take_rows(X, rows) if columns is None else take_rows(X, rows)[:, columns]


@dataclass(frozen=True)
class FoldReport:
    """Progress report of one fold."""

    search: DiversitySearchCV
    name: str
    context: Context


def score_fold(
    estimator: Any,
    place: str,
    diversities: list[float],
    scorer: Any,
    X: Any,
    y: Any,
    fold: Fold,
    report: FoldReport,
) -> tuple[FloatArray, float]:
    """Scores, fit times and score times (3, n_diversities) of one fold, and seconds for representations."""
    train, test = fold
    columns = train if get_tags(estimator).input_tags.pairwise else None
    X_train, X_test = take(X, train, columns), take(X, test, columns)
    y_train, y_test = take(y, train), take(y, test)
    if hasattr(scorer, "prepared"):
        scorer = scorer.prepared(X_train, X_test)
    decomposition = Decomposition(estimator if place == "" else estimator.get_params()[place])
    results = np.empty((3, len(diversities)))
    with reported(report.context, report.search):
        for i, diversity in enumerate(diversities):
            with reported(subtask(report.context, "diversity"), report.search):
                start = time.perf_counter()
                if place == "":
                    candidate = decomposition.at(diversity, X_train, y_train)
                else:
                    shared = SharedModules(decomposition, diversity)
                    candidate = clone(estimator).set_params(**{place: shared}).fit(X_train, y_train)
                fitted = time.perf_counter()
                score = scored(scorer, candidate, X_test, y_test)
                results[:, i] = score, fitted - start, time.perf_counter() - fitted
            if report.search.verbose > 1:
                print(f"[DiversitySearchCV] {report.name}: score {score:.4f} at diversity {diversity:g}")
    if report.search.verbose > 0:
        best = int(np.argmax(results[0]))
        print(
            f"[DiversitySearchCV] {report.name}: best score {results[0, best]:.4f} at diversity "
            f"{diversities[best]:g} after {results[1:].sum():.1f} s"
        )
    return results, decomposition.seconds


def check_scores(scores: FloatArray, diversities: list[float]) -> None:
    """Raise if a score (n_folds, n_diversities) is not a number: then none is the best."""
    if not np.isfinite(scores).all():
        fold, place = np.argwhere(~np.isfinite(scores))[0]
        raise ValueError(
            f"The score of fold {fold} at diversity {diversities[place]:g} is {scores[fold, place]}, as R² "
            "is for a single row: use fewer folds, or another scoring."
        )


def collect_results(diversities: list[float], outcomes: list[FloatArray]) -> dict[str, Any]:
    """Results of all folds in the format of `cv_results_` in scikit-learn."""
    scores, fit_times, score_times = np.stack(outcomes, axis=1)  # (n_folds, n_diversities) each
    results: dict[str, Any] = {
        "params": [{"diversity": diversity} for diversity in diversities],
        "param_diversity": np.array(diversities),
        "mean_test_score": scores.mean(axis=0),
        "std_test_score": scores.std(axis=0),
        "rank_test_score": rankdata(-scores.mean(axis=0), method="min").astype(np.int32),
    }
    results.update({f"split{fold}_test_score": row for fold, row in enumerate(scores)})
    for what, seconds in (("fit", fit_times), ("score", score_times)):
        results[f"mean_{what}_time"], results[f"std_{what}_time"] = seconds.mean(axis=0), seconds.std(axis=0)
    return results
