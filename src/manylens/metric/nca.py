"""`NCA`: a linear map under which the nearest rows tend to be of the same class."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.callbacks import CallbackSupportMixin, FitTasks, with_callbacks
from manylens.metric.batching import Batcher
from manylens.metric.initialization import Init, count_components, initial_map, scale_for, subsample
from manylens.metric.methods import AllRowsMethod, BatchMethod, Method, Stochastic, Subsample, resolve_method
from manylens.metric.objectives import FORMS, Form, GaussianObjective, Objective
from manylens.metric.online import Online, Reservoir, learn_online
from manylens.metric.optimizers import (
    STEP_OPTIMIZERS,
    BatchObjective,
    FullObjective,
    LearnedMap,
    OptimizerResult,
    Progress,
    Report,
    ScaledRows,
    count_steps,
    maximize_batches,
    maximize_full,
    metric_matrix,
    project,
    stop_message,
    to_given_units,
    to_scaled_units,
)
from manylens.metric.tiles import pair_dtype
from manylens.native.threads import one_blas_thread
from manylens.reprs import FactsMixin
from manylens.typing import AnyArray, FloatArray, IntArray, Seed
from manylens.validation import (
    check_choice,
    check_count,
    check_flag,
    check_real,
    check_seed,
    distinct_labels,
    is_sparse,
    plain_conversion_errors,
    plain_label_errors,
    refuse_collection,
    refuse_overflow,
    require_two_classes,
    restore_on_error,
    safe_scale,
    shown,
    times_power,
    warn_once,
)

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

VANISHED = 1e-2  # range of the projected rows below which all p_ij are practically equal
FIRST_STEP = 0.1  # length of the first step of L-BFGS relative to a row of A: longer ones leave a good start
KEPT_SCORES = 10_000  # of partial_fit


class NCA(CallbackSupportMixin, FactsMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Neighborhood components analysis at any size.

    Each row picks a neighbor at random, near rows with a higher probability. NCA learns the linear map A
    under which rows most often pick one of their own class. From the same initial array it reaches the same
    `components_` as `sklearn.neighbors.NeighborhoodComponentsAnalysis`, but its memory grows with the number
    of rows instead of its square.

    Parameters
    ----------
    n_components : int, default=None
        Number of rows of A; by default that of `init` if it is an array, or else the number of features.
    method : {"auto", "exact", "subsample", "minibatch", "stochastic", "tree", "compact", \
            "compact-background"} or method object, default="auto"
        How the sums over pairs are computed: a name, or an object with settings, such as
        `manylens.metric.Tree(tolerance=1e-2)`. "auto" chooses by the number of rows and components.
    init : {"auto", "pca", "lda", "identity", "random"} or ndarray of shape (n_components, n_features), \
            default="auto"
        Initial A. "auto" is "lda" if n_components is below the number of classes and the method uses L-BFGS;
        otherwise "pca" or "identity", unless "lda" is much better on held-out rows. Principal components
        complete LDA if it has too few directions, and replace it if it has none (equal class means). A named
        map is multiplied by the scale that suits the kernel best; an array is not changed.
    objective : {"accuracy", "likelihood"}, default="accuracy"
        Maximize the sum of p_i, the probability that row i picks a row of its class, or the sum of log p_i.
    alpha : float, default=0.0
        Weight of the penalty ½ alpha |A|² on the mean score.
    precision : {"auto", "single", "double"}, default="auto"
        Precision of pair sums. "auto" is single for float32 rows or more than 5,000 rows; single becomes
        double if projected rows are too far apart for it.
    warm_start : bool, default=False
        Whether to start from the `components_` of the previous fit.
    max_iter : int, default=50
        Maximum number of iterations, or of epochs over the batches.
    tol : float, default=1e-5
        Tolerance of L-BFGS.
    callback : callable, default=None
        Called as callback(iteration, A, mean score) after each iteration or epoch, or, if it takes two
        arguments, in scikit-learn's form: callback(A.ravel(), iteration). Progress bars and other callbacks
        of scikit-learn 1.9 are set by `set_callbacks`.
    verbose : int, default=0
        If positive, print a line per iteration.
    random_state : int, RandomState instance or None, default=None
        Seed of the initial map, samples and batches.

    Attributes
    ----------
    components_ : ndarray, shape (n_components, n_features)
        A.
    method_ : str
        Name of the method used.
    scale_ : float
        Factor by which the initial map was multiplied.
    score_path_ : ndarray, shape (n_iter,)
        Mean score after each iteration, over each epoch, or of the new rows in each call of `partial_fit` (at
        least the last 10,000 calls).
    n_iter_ : int
        Number of iterations or epochs.
    mixing_ : float or None
        Learned mixing coefficient of `CompactBackground(mixing="learned")`.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray, shape (n_features,)
        Names of the features, if X had any.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import NCA
    >>> X, y = load_iris(return_X_y=True)
    >>> nca = NCA(n_components=2, random_state=0).fit(X, y)
    >>> nca.transform(X).shape
    (150, 2)
    """

    components_: FloatArray
    scale_: float
    _facts_shown = {"method_": "method", "n_iter_": "iterations"}

    def __init__(
        self,
        n_components: int | None = None,
        *,
        method: str | Method = "auto",
        init: Init | ArrayLike = "auto",
        objective: Form = "accuracy",
        alpha: float = 0.0,
        precision: Literal["auto", "single", "double"] = "auto",
        warm_start: bool = False,
        max_iter: int = 50,
        tol: float = 1e-5,
        callback: Report | None = None,
        verbose: int = 0,
        random_state: Seed = None,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.init = init
        self.objective = objective
        self.alpha = alpha
        self.precision = precision
        self.warm_start = warm_start
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    @restore_on_error
    @with_callbacks
    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Rows.
        y : array-like, shape (n,)
            Classes; required.

        Returns
        -------
        self
        """
        result = self._fit(X, y)
        if not result.converged and result.reason != "callback":
            message = stop_message(result, self._scores, self.max_iter, self.tol)
            warn_once(self, message, ConvergenceWarning, stacklevel=4)
        return self

    @restore_on_error
    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from one or more new rows, on-line.

        New rows are compared with each other and with a base, a random sample of all rows so far. There is
        one step per `anchors` new rows; if fewer are left, rows of the base join them. The settings are those
        of `method` if it is a `Stochastic`, otherwise of `Stochastic()`; its `base` bounds the memory. The
        first rows are only collected, until the base has 256 rows (or is full) and two classes: until then,
        `components_` is the initial map of the rows so far, or that of an earlier `fit`. After
        `fit(method="stochastic")`, the base is a sample of those rows. The learning rate decreases with the
        square root of the number of steps.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Rows; one is enough.
        y : array-like, shape (n,)
            Classes; new ones may appear at any time.

        Returns
        -------
        self
        """
        self._partial_fit(X, y)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Project rows.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray, shape (n, n_components)
            X Aᵀ.
        """
        check_is_fitted(self)
        with plain_conversion_errors("X"):
            rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return refuse_overflow(project(rows, self.components_))

    def mahalanobis(self) -> FloatArray:
        """Return the learned metric M.

        Returns
        -------
        ndarray, shape (n_features, n_features)
            M = Aᵀ A; squared distances are (x - x')ᵀ M (x - x').
        """
        check_is_fitted(self)
        return metric_matrix(self.components_)

    def neighbor_classifier(self, X: ArrayLike, y: ArrayLike, n_neighbors: int = 5) -> Pipeline:
        """Return a nearest-neighbor classifier in the projected space.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Rows among which to find neighbors.
        y : array-like, shape (n,)
            Classes.
        n_neighbors : int, default=5
            Number of neighbors that vote.

        Returns
        -------
        sklearn.pipeline.Pipeline
            This map and a fitted `KNeighborsClassifier`.
        """
        from sklearn.neighbors import KNeighborsClassifier  # takes 0.5 s to import
        from sklearn.pipeline import Pipeline

        Z = self.transform(X)
        with plain_conversion_errors("y"), plain_label_errors():
            vote = KNeighborsClassifier(n_neighbors, algorithm="kd_tree").fit(Z, y)
        return Pipeline([("nca", self), ("vote", vote)])

    def _facts(self) -> dict[str, Any]:
        if not hasattr(self, "components_"):
            return {}
        size = "{1} features to {0} components".format(*self.components_.shape)
        return {"map": size, **super()._facts(), "mean score": self._scores[-1]}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required, tags.transformer_tags.preserves_dtype = True, ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def _fit(self, X: ArrayLike, y: ArrayLike | None) -> OptimizerResult:
        """Learn the map and set the fitted attributes."""
        rows, names = self._validate(X, y, reset=True)
        classes, labels = distinct_labels(names)
        require_two_classes(classes, "NCA")
        n_components = count_components(self.n_components, self.init, rows.shape[1])
        exponent = safe_scale(rows)
        rows = times_power(rows, -exponent)
        if (rows == rows[0]).all():
            raise ValueError(
                "All rows of X are equal, so no map separates the classes: check that the columns were read "
                "correctly."
            )
        rng = check_seed(self.random_state)
        method = resolve_method(self.method, len(rows), n_components, len(classes), self.objective)
        if isinstance(method, Subsample):
            chosen = subsample(labels, method.size, rng)
            rows, labels = rows[chosen], np.unique(labels[chosen], return_inverse=True)[1]
        data = ScaledRows(rows, labels, n_components, exponent)
        progress = Progress(f"NCA {method.name}", self.verbose, self.callback, exponent)
        if isinstance(method, BatchMethod):
            batcher = method.make_batcher(len(classes))
            n_epochs = count_steps(len(rows), batcher, self.max_iter)[1]
            progress.tasks = tasks = self._callback_tasks(X, y, "epoch", n_epochs)
            learned = self._learn_in_batches(data, method, batcher, progress, rng)
        else:
            assert isinstance(method, AllRowsMethod)
            progress.tasks = tasks = self._callback_tasks(X, y, "iteration", self.max_iter)
            learned = self._learn_from_all(data, method, progress, rng)
        result = learned.result
        if result.reason == "overflow" and not result.n_iter:
            raise ValueError(
                "The objective is not finite at the initial map: scale the columns of X to similar units, "
                "and check init and alpha."
            )
        self.components_ = to_given_units(learned.A, exponent, rows.dtype)
        self.method_, self.scale_ = method.name, float(np.ldexp(learned.scale, -exponent))
        self.mixing_ = float(expit(learned.extra[0])) if len(learned.extra) else None
        self.n_iter_, self._scores = result.n_iter, learned.progress.path
        self.__dict__.pop("_online", None)  # partial_fit must start over from this map
        if isinstance(method, Stochastic):
            self._online = Online(Reservoir.of_rows(method.base, rows, names, rng), exponent, rng)
        if tasks is not None:
            tasks.close()
        return result

    def _callback_tasks(self, X: ArrayLike, y: ArrayLike | None, name: str, n_tasks: int) -> FitTasks | None:
        """Tasks to report to scikit-learn's callbacks; None if there are none."""
        return FitTasks(self, X, y, name, n_tasks) if hasattr(self, "_skl_callbacks") else None

    def _learn_in_batches(
        self,
        data: ScaledRows,
        method: BatchMethod,
        batcher: Batcher,
        progress: Progress,
        rng: np.random.RandomState,
    ) -> LearnedMap:
        """Maximize the objective with one step per batch of rows."""
        part = self._batch_objective(data.X, data.labels, batcher.against_all, data.exponent)
        A, scale = self._initial_map(data, part.objective, rng, batcher=batcher)
        optimizer = STEP_OPTIMIZERS[method.optimizer]
        result = maximize_batches(part, A, batcher, optimizer, self.max_iter, rng, progress)
        return LearnedMap(result.parameters, np.empty(0), scale, result, progress)

    def _learn_from_all(
        self, data: ScaledRows, method: AllRowsMethod, progress: Progress, rng: np.random.RandomState
    ) -> LearnedMap:
        """Maximize the objective over all rows with L-BFGS; start again at random if the map vanishes."""
        objective = method.make_objective(self.objective)
        evaluation = method.make_evaluation(data.labels, pair_dtype(self.precision, data.X))

        def maximize(init: Init | ArrayLike, progress: Progress) -> LearnedMap:
            A, scale = self._initial_map(data, objective, rng, init=init)
            unit = scale * FIRST_STEP if isinstance(init, str) else scale
            penalty = self._penalty(data.exponent)
            full = FullObjective(data.X, evaluation, objective, penalty, A.shape, unit)
            extra = objective.initial_extra(np.bincount(data.labels))
            A, extra, result = maximize_full(full, A, extra, self.max_iter, self.tol, progress)
            return LearnedMap(A, extra, scale, result, progress)

        learned = maximize(self.init, progress)
        # A map that vanishes is a saddle, to which symmetric rows may lead: try a random start.
        vanished = np.ptp(project(data.X, learned.A), axis=0).max() < VANISHED
        if vanished and progress.path and isinstance(self.init, str) and not self.alpha:
            again = Progress(progress.name, self.verbose, self.callback, data.exponent)
            other = maximize("random", again)
            if again.path and again.path[-1] > progress.path[-1] + VANISHED:
                return other
        return learned

    def _partial_fit(self, X: ArrayLike, y: ArrayLike) -> None:
        """Take the steps on copies, then set the attributes."""
        first = not hasattr(self, "components_")
        rows, names = self._validate(X, y, reset=first, min_rows=1)
        wanted = self.n_components if first else len(self.components_)
        n_components = count_components(wanted, self.init, rows.shape[1])
        method = self.method if isinstance(self.method, Stochastic) else Stochastic()
        online = self.__dict__.get("_online")
        if online is None:
            base = Reservoir(method.base, rows.shape[1], rows.dtype)
            online = Online(base, safe_scale(rows), deepcopy(check_seed(self.random_state)))
        online = online.private_copy(len(rows), method.anchors)
        base, exponent, rng = online.base, online.exponent, online.rng
        codes, base.classes = base.encode(names)
        with np.errstate(over="ignore"):
            rows = times_power(rows, -exponent)
        if safe_scale(rows) > 0 or not np.isfinite(rows).all():
            raise ValueError("X has far larger entries than the rows seen before: check its units.")
        learned = not first and self.method_ != "online"  # by `fit`
        scale = self.__dict__.get("scale_", 1.0)
        A = np.eye(n_components, rows.shape[1]) if first else to_scaled_units(self.components_, exponent)
        make_part = partial(self._batch_objective, against_all=True, exponent=exponent)

        def start(part: BatchObjective) -> tuple[FloatArray, float]:
            data = ScaledRows(part.X, part.labels, n_components, exponent)
            return self._initial_map(data, part.objective, rng)

        first_map = None if learned else start
        A, found, score, last = learn_online(online, rows, codes, A, method, make_part, first_map)
        scale = scale if found is None else found
        components = to_given_units(A, exponent, rows.dtype)
        n_iter = 1 if first else self.n_iter_ + 1
        Progress("NCA online", self.verbose, self.callback, exponent)(n_iter, A, score)
        base.add(rows[last], codes[last], rng)  # after all else, because it changes the base that is stored
        self._online, self.components_, self.scale_, self.n_iter_ = online, components, scale, n_iter
        if first:
            self.method_, self.mixing_, self._scores = "online", None, []
        self._scores.append(score)
        del self._scores[: len(self._scores) - KEPT_SCORES if len(self._scores) > 2 * KEPT_SCORES else 0]

    @property
    def score_path_(self) -> FloatArray:
        """Mean scores; see the attributes of the class."""
        return np.array(self._scores)

    def _validate(
        self, X: ArrayLike, y: ArrayLike | None, reset: bool, min_rows: int = 2
    ) -> tuple[FloatArray, AnyArray]:
        """Check the parameters; return the rows and their classes."""
        if is_sparse(X):
            raise TypeError(
                "NCA needs dense rows, and X is sparse. Reduce the columns first, such as with "
                "make_pipeline(TruncatedSVD(100), NCA(...)), or use X.toarray() if it fits in memory."
            )
        refuse_collection(X, "X", "manylens.cluster.Blockwise(NCA(...))")
        with plain_conversion_errors("X"), plain_label_errors():
            rows, names = validate_data(
                self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=min_rows, reset=reset
            )
        with plain_label_errors():
            check_classification_targets(names)
        check_count(self.max_iter, "max_iter")
        for name in ("tol", "alpha"):
            check_real(getattr(self, name), name, 0.0)
        check_choice(self.objective, "objective", FORMS)
        check_flag(self.warm_start, "warm_start")
        check_choice(self.precision, "precision", ("auto", "single", "double"))
        check_count(int(self.verbose) if isinstance(self.verbose, bool) else self.verbose, "verbose", 0)
        if not (self.callback is None or callable(self.callback)):
            raise TypeError(f"callback={shown(self.callback)} is not a function: give one, or None.")
        return rows, names

    def _penalty(self, exponent: int) -> float:
        """`alpha` for a map in units of 2^-exponent."""
        return float(times_power(np.array(self.alpha, dtype=np.float64), -2 * exponent))

    def _batch_objective(
        self, X: FloatArray, labels: IntArray, against_all: bool, exponent: int
    ) -> BatchObjective:
        """The objective on a batch."""
        objective, dtype = GaussianObjective(self.objective), pair_dtype(self.precision, X)
        return BatchObjective(X, labels, objective, against_all, self._penalty(exponent), dtype)

    def _initial_map(
        self,
        data: ScaledRows,
        objective: Objective,
        rng: np.random.RandomState,
        *,
        batcher: Batcher | None = None,
        init: Init | ArrayLike | None = None,
    ) -> tuple[FloatArray, float]:
        """The initial A, multiplied by its scale, and the scale, both in units of 2^-exponent."""
        X, exponent, shape = data.X, data.exponent, (data.n_components, data.X.shape[1])
        if self.warm_start and hasattr(self, "components_"):
            if self.components_.shape != shape:
                raise ValueError(
                    f"warm_start=True would continue from a map of shape {self.components_.shape}, but this "
                    f"fit needs {shape}. Use warm_start=False, or keep n_components and the features."
                )
            return to_scaled_units(self.components_, exponent), float(np.ldexp(self.scale_, exponent))
        init = self.init if init is None else init
        with one_blas_thread():
            initial = initial_map(init, X, data.labels, data.n_components, batcher is not None, rng)
            if not isinstance(init, str):
                return to_scaled_units(initial.A, exponent), float(np.ldexp(1.0, exponent))
            scale = initial.scale
            if scale is None or not isinstance(objective, GaussianObjective):
                batch_size = None if batcher is None or batcher.against_all else batcher.size
                Z, dtype = project(X, initial.A), pair_dtype(self.precision, X)
                scale = scale_for(Z, data.labels, objective, batch_size, dtype, rng)
        return initial.A * scale, scale
