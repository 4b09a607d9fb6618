"""`NCA`: a linear map under which the nearest rows tend to be of the same class."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.metric.batching import Batcher
from manylens.metric.initialization import Init, initial_map, scale_for, subsample
from manylens.metric.methods import (
    BATCH_ROWS,
    BatchMethod,
    Method,
    MiniBatch,
    Subsample,
    WholeMethod,
    resolve_method,
)
from manylens.metric.objectives import FORMS, Form, GaussianObjective, Objective
from manylens.metric.optimizers import (
    STEP_OPTIMIZERS,
    BatchObjective,
    Progress,
    Report,
    Schedule,
    WholeObjective,
    maximize_batches,
    maximize_whole,
    one_epoch,
    project,
)
from manylens.native.threads import one_blas_thread
from manylens.typing import FloatArray, IntArray, Seed
from manylens.validation import check_choice, check_count, check_real, require_two_classes, restore_on_error

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

SINGLE_ROWS = 5000  # with more rows, pairs are computed in float32: its rounding is below the tolerance


class NCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Neighborhood components analysis at any size.

    Each row picks a neighbor at random, near rows with a higher probability. NCA learns the linear map A
    under which rows most often pick one of their own class. From the same initial array it reaches the same
    `components_` as `sklearn.neighbors.NeighborhoodComponentsAnalysis`, but its memory grows with the number
    of rows instead of its square.

    Parameters
    ----------
    n_components : int, default=None
        Number of rows of A; by default the number of features.
    method : {"auto", "exact", "subsample", "minibatch", "stochastic", "tree", "compact", \
            "compact-background"} or method object, default="auto"
        How the sums over pairs are computed: a name, or an object with settings, such as
        `manylens.metric.Tree(tolerance=1e-2)`. "auto" chooses by the number of rows and components.
    init : {"auto", "pca", "lda", "identity", "random"} or ndarray of shape (n_components, n_features), \
            default="auto"
        Initial A. A named map is multiplied by the scale that suits the kernel best; an array is not changed.
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
        Called as callback(iteration, A, mean score) after each iteration or epoch.
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
        Mean score after each iteration, or over each epoch.
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
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Rows.
        y : array-like, shape (n,)
            Classes.

        Returns
        -------
        self
        """
        rows, labels = self._validate(X, y, reset=True)
        n_components = self._count_components(rows.shape[1])
        rng = check_random_state(self.random_state)
        n_classes = int(labels.max()) + 1
        method = resolve_method(self.method, len(rows), n_components, n_classes, self.objective)
        if isinstance(method, Subsample):
            chosen = subsample(labels, method.size, rng)
            rows, labels = rows[chosen], np.unique(labels[chosen], return_inverse=True)[1]
        dtype = self._pair_dtype(rows)
        progress = Progress(f"NCA {method.name}", self.verbose, self.callback)
        mixing = None
        if isinstance(method, BatchMethod):
            batcher, part = self._batches(method, rows, labels, dtype)
            A, scale = self._start(rows, labels, n_components, part.objective, dtype, rng, batcher)
            optimizer = STEP_OPTIMIZERS[method.optimizer]
            search = maximize_batches(part, A, batcher, optimizer, self.max_iter, rng, progress)
            A = search.parameters
        else:
            objective = method.make_objective(self.objective)
            A, scale = self._start(rows, labels, n_components, objective, dtype, rng)
            assert isinstance(method, WholeMethod)
            evaluation = method.make_evaluation(labels, dtype)
            whole = WholeObjective(rows, evaluation, objective, self.alpha, A.shape, scale)
            extra = objective.initial_extra(np.bincount(labels))
            A, extra, search = maximize_whole(whole, A, extra, self.max_iter, self.tol, progress)
            mixing = float(expit(extra[0])) if len(extra) else None
        self.components_ = A.astype(rows.dtype)
        self.method_, self.scale_, self.mixing_ = method.name, scale, mixing
        self.n_iter_, self.score_path_ = search.n_iter, np.array(progress.path)
        self.__dict__.pop("_online", None)  # partial_fit must start over from this map
        if not search.converged:
            warnings.warn(
                f"NCA stopped after {search.n_iter} iterations before it converged. Raise max_iter "
                f"(now {self.max_iter}) or tol (now {self.tol}), or scale the features.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    @restore_on_error
    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from one more block of rows in mini-batches; the first block sets the initial map.

        Batch size and optimizer are taken from `method` if it is a `MiniBatch`. The learning rate decreases
        with the square root of the number of steps.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Rows; a block should have several rows of several classes.
        y : array-like, shape (n,)
            Classes, which may differ from block to block.

        Returns
        -------
        self
        """
        first = not hasattr(self, "components_")
        rows, labels = self._validate(X, y, reset=first)
        given = self.method if isinstance(self.method, MiniBatch) else MiniBatch()
        method = MiniBatch(given.size or BATCH_ROWS, optimizer=given.optimizer)
        dtype = self._pair_dtype(rows)
        batcher, part = self._batches(method, rows, labels, dtype)
        rng = check_random_state(self.random_state)
        if first:
            n_components = self._count_components(rows.shape[1])
            A, self.scale_ = self._start(rows, labels, n_components, part.objective, dtype, rng, batcher)
            self.method_, self.n_iter_, self.score_path_ = "minibatch", 0, np.empty(0)
        else:
            A = self.components_.astype(np.float64)
        if not hasattr(self, "_online"):
            self._online = STEP_OPTIMIZERS[method.optimizer](A.ravel(), Schedule()), rng
        stepper, rng = copy.deepcopy(self._online)  # replaced as a whole, so that an error changes nothing
        with one_blas_thread():
            A, score = one_epoch(part, A, batcher, stepper, rng)
        self._online = stepper, rng
        self.components_ = A.astype(rows.dtype)
        self.n_iter_ += 1
        self.score_path_ = np.append(self.score_path_, score)
        Progress("NCA online", self.verbose, self.callback)(self.n_iter_, A, score)
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
        rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return project(rows, self.components_)

    def mahalanobis(self) -> FloatArray:
        """Return the learned metric M.

        Returns
        -------
        ndarray, shape (n_features, n_features)
            M = Aᵀ A; squared distances are (x - x')ᵀ M (x - x').
        """
        check_is_fitted(self)
        return self.components_.T @ self.components_

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

        vote = KNeighborsClassifier(n_neighbors, algorithm="kd_tree").fit(self.transform(X), y)
        return Pipeline([("nca", self), ("vote", vote)])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def _validate(self, X: ArrayLike, y: ArrayLike, reset: bool) -> tuple[FloatArray, IntArray]:
        """Check the parameters; return the rows, and labels from 0."""
        rows, given = validate_data(
            self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2, reset=reset
        )
        check_classification_targets(given)
        classes, labels = np.unique(given, return_inverse=True)
        if reset:
            require_two_classes(classes, "NCA")
        check_count(self.max_iter, "max_iter")
        for name in ("tol", "alpha"):
            if not np.isfinite(check_real(getattr(self, name), name, 0.0)):
                raise ValueError(f"{name}={getattr(self, name)!r} must be finite.")
        check_choice(self.objective, "objective", FORMS)
        check_choice(self.precision, "precision", ("auto", "single", "double"))
        return rows, labels

    def _count_components(self, n_features: int) -> int:
        """Number of rows of A."""
        if self.n_components is None:
            return n_features
        n_components = check_count(self.n_components, "n_components")
        if n_components > n_features:
            raise ValueError(
                f"n_components={n_components} is more than the {n_features} features of X: a linear map "
                f"cannot add dimensions. Choose at most {n_features}."
            )
        return n_components

    def _pair_dtype(self, X: FloatArray) -> np.dtype[Any]:
        """Float type of the sums over pairs."""
        single = X.dtype == np.float32 or len(X) > SINGLE_ROWS
        if self.precision != "auto":
            single = self.precision == "single"
        return np.dtype(np.float32 if single else np.float64)

    def _batches(
        self, method: BatchMethod, X: FloatArray, labels: IntArray, dtype: np.dtype[Any]
    ) -> tuple[Batcher, BatchObjective]:
        """The batcher, and the objective on a batch."""
        batcher = method.make_batcher(int(labels.max()) + 1)
        objective = GaussianObjective(self.objective)
        return batcher, BatchObjective(X, labels, objective, batcher.against_all, self.alpha, dtype)

    def _start(
        self,
        X: FloatArray,
        labels: IntArray,
        n_components: int,
        objective: Objective,
        dtype: np.dtype[Any],
        rng: np.random.RandomState,
        batcher: Batcher | None = None,
    ) -> tuple[FloatArray, float]:
        """The initial A, multiplied by its scale, and the scale."""
        if self.warm_start and hasattr(self, "components_"):
            if self.components_.shape != (n_components, X.shape[1]):
                raise ValueError(
                    f"warm_start=True would continue from a map of shape {self.components_.shape}, but this "
                    f"fit needs {(n_components, X.shape[1])}. Use warm_start=False, or keep n_components and "
                    "the features."
                )
            return self.components_.astype(np.float64), self.scale_
        with one_blas_thread():
            A = initial_map(self.init, X, labels, n_components, batcher is not None, rng)
            if not isinstance(self.init, str):
                return A, 1.0
            batch_size = None if batcher is None or batcher.against_all else batcher.size
            scale = scale_for(project(X, A), labels, objective, batch_size, dtype, rng)
        return A * scale, scale
