"""`NCA`: a linear map under which rows of one class are each other's neighbors."""

import warnings

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.metric.batching import RandomBatches, subsample
from manylens.metric.checks import check_components, check_parameters
from manylens.metric.initialization import scale_for, unscaled_start
from manylens.metric.methods import (
    BATCH_ROWS,
    METHODS,
    check_choices,
    make_batcher,
    make_evaluation,
    make_objective,
    pair_dtype,
    resolve_method,
)
from manylens.metric.optimizers import Schedule, step_optimizer
from manylens.metric.training import (
    BatchObjective,
    Progress,
    WholeObjective,
    climb_batches,
    climb_whole,
    one_sweep,
    project,
)
from manylens.native.threads import one_blas_thread


class NCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Neighborhood components analysis at any size.

    Learns a linear map A such that a row x, asked for a neighbor at random with probabilities falling with
    the squared distance under A, finds one of its own class. Takes the arguments of
    `sklearn.neighbors.NeighborhoodComponentsAnalysis` and gives the same `components_`; memory grows with
    the rows, never with their square.

    Parameters
    ----------
    n_components : int, default=None
        Rows of A; the number of features by default.
    method : {"auto", "exact", "subsample", "minibatch", "stochastic", "tree", "compact", \
            "compact-background"}, default="auto"
        How the sum over all pairs is dealt with. `method_` says what "auto" picked, by the table in the guide
        ("which method when").
    batching : {"random", "rpc", "fpc"}, default="random"
        How `method="minibatch"` makes its batches: at random, or by clusters of the projected rows, made
        afresh at each sweep (recursive projection, farthest point).
    batch_size : int, default=None
        Rows in a batch, in the sub-sample, or anchors at a step; by default 2,000 (more where there are
        many classes), and 256 anchors.
    init : {"auto", "pca", "lda", "identity", "random"} or ndarray of shape (n_components, n_features), \
            default="auto"
        Where A starts.
    init_scale : {"auto"} or float, default="auto"
        What the start is multiplied by. "auto" looks for the scale that suits the kernel, except for an
        array, which is taken as it is.
    objective : {"accuracy", "likelihood"}, default="accuracy"
        Maximize the sum of p_i, the expected number of rows put right, or of log p_i.
    optimizer : {"auto", "lbfgs", "adam", "adagrad"}, default="auto"
        L-BFGS where the whole objective is seen, Adam for batches.
    alpha : float, default=0.0
        Weight of the penalty ½ alpha |A|² on the mean score.
    mixing : {"fixed", "learned"}, default="fixed"
        Mixing coefficient of `method="compact-background"`.
    tolerance : float, default=1e-3
        Largest part of a row's kernel sum that `method="tree"` may leave out.
    precision : {"auto", "single", "double"}, default="auto"
        Arithmetic of the pairs. "auto" is single for float32 rows or more than 5,000 of them, and goes to
        double by itself where the projected rows lie too far out for single.
    warm_start : bool, default=False
        Start from the last fit's `components_`.
    max_iter : int, default=50
        Iterations, or sweeps over the batches, at most.
    tol : float, default=1e-5
        Where L-BFGS stops.
    callback : callable, default=None
        Called as callback(iteration, A, value) after each iteration or sweep; `value` is the mean score.
    verbose : int, default=0
        Whether to print a line for each iteration.
    random_state : int, RandomState instance or None, default=None
        Randomness of start, samples and batches. The result does not depend on the number of threads.

    Attributes
    ----------
    components_ : ndarray, shape (n_components, n_features)
        A.
    method_ : str
        The method used.
    scale_ : float
        The factor that the start was multiplied by.
    score_path_ : ndarray, shape (n_iter,)
        Mean score after each iteration, or over each sweep.
    n_iter_ : int
        Iterations or sweeps made.
    mixing_ : float or None
        Mixing coefficient of the background, with `mixing="learned"`.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray, shape (n_features,)
        Names of the features, where X had any.

    See Also
    --------
    sklearn.neighbors.NeighborhoodComponentsAnalysis : For a few thousand rows.

    Notes
    -----
    Beside the data, memory is O(n n_components) for the whole objective and O(batch_size n_features) for
    batches.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manylens import NCA
    >>> X, y = load_iris(return_X_y=True)
    >>> nca = NCA(n_components=2, random_state=0).fit(X, y)
    >>> nca.transform(X).shape
    (150, 2)
    """

    def __init__(
        self,
        n_components=None,
        *,
        method="auto",
        batching="random",
        batch_size=None,
        init="auto",
        init_scale="auto",
        objective="accuracy",
        optimizer="auto",
        alpha=0.0,
        mixing="fixed",
        tolerance=1e-3,
        precision="auto",
        warm_start=False,
        max_iter=50,
        tol=1e-5,
        callback=None,
        verbose=0,
        random_state=None,
    ):
        self.n_components = n_components
        self.method = method
        self.batching = batching
        self.batch_size = batch_size
        self.init = init
        self.init_scale = init_scale
        self.objective = objective
        self.optimizer = optimizer
        self.alpha = alpha
        self.mixing = mixing
        self.tolerance = tolerance
        self.precision = precision
        self.warm_start = warm_start
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X, y):
        """Learn the map.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Rows.
        y : array-like, shape (n,)
            Their classes.

        Returns
        -------
        NCA
            The estimator itself.
        """
        X, labels = self._validate(X, y, reset=True)
        n_components = check_components(self.n_components, X.shape[1])
        rng = check_random_state(self.random_state)
        method = resolve_method(self.method, len(X), n_components, labels.max() + 1)
        check_choices(method, self.objective, self.batching, self.optimizer, n_components)
        if METHODS[method].batches == "sample":
            rows = subsample(labels, self.batch_size or BATCH_ROWS, rng)
            X, labels = X[rows], np.unique(labels[rows], return_inverse=True)[1]
        dtype = pair_dtype(X, self.precision)
        objective = make_objective(method, self.objective, self.mixing)
        batcher = make_batcher(method, self.batching, self.batch_size, labels.max() + 1)
        A, scale = self._start(X, labels, n_components, objective, batcher, dtype, rng)
        progress = Progress(f"NCA {method}", self.verbose, self.callback)
        extra = objective.initial_extra(np.bincount(labels))
        if batcher is None:
            evaluation = make_evaluation(method, labels, dtype, self.tolerance)
            whole = WholeObjective(X, evaluation, objective, self.alpha, A.shape, scale)
            A, extra, search = climb_whole(whole, A, extra, self.max_iter, self.tol, progress)
        else:
            part = BatchObjective(X, labels, objective, batcher.against_all, self.alpha, dtype)
            stepper = step_optimizer(self.optimizer)
            A, search = climb_batches(part, A, batcher, stepper, self.max_iter, rng, progress)
        self.components_ = A.astype(X.dtype)
        self.method_, self.scale_ = method, scale
        self.n_iter_ = search.n_iter
        self.score_path_ = np.array(progress.path)
        self.mixing_ = float(expit(extra[0])) if len(extra) else None
        if hasattr(self, "_online"):  # the steps that partial_fit made led elsewhere
            del self._online
        if not search.converged:
            warnings.warn(
                f"NCA stopped after {search.n_iter} iterations before it converged. Raise max_iter "
                f"(now {self.max_iter}) or tol (now {self.tol}), or scale the features.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def partial_fit(self, X, y):
        """Learn from one more block of rows, in batches of `batch_size`; the first sets start and scale.

        Rows are compared within their batch, so a block should hold several rows of several classes. Always
        the Gaussian kernel and Adam (or `optimizer`), with a step that falls as the root of the steps made.
        `callback` and `verbose` are served once for each block.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Rows.
        y : array-like, shape (n,)
            Their classes; new ones may come at any time.

        Returns
        -------
        NCA
            The estimator itself.
        """
        first = not hasattr(self, "components_")
        X, labels = self._validate(X, y, reset=first)
        objective = make_objective("minibatch", self.objective, self.mixing)
        dtype = pair_dtype(X, self.precision)
        batcher = RandomBatches(self.batch_size or BATCH_ROWS)
        if first:
            n_components = check_components(self.n_components, X.shape[1])
            check_choices("minibatch", self.objective, self.batching, self.optimizer, n_components)
            rng = check_random_state(self.random_state)
            A, self.scale_ = self._start(X, labels, n_components, objective, batcher, dtype, rng)
            self.method_, self.n_iter_, self.score_path_ = "minibatch", 0, np.empty(0)
        else:
            rng, A = check_random_state(self.random_state), self.components_.astype(np.float64)
        if not hasattr(self, "_online"):
            self._online = step_optimizer(self.optimizer)(A.ravel(), Schedule()), rng
        stepper, rng = self._online
        part = BatchObjective(X, labels, objective, batcher.against_all, self.alpha, dtype)
        with one_blas_thread():
            A, score = one_sweep(part, A, batcher, stepper, rng)
        self.components_ = A.astype(X.dtype)
        self.n_iter_ += 1
        self.score_path_ = np.append(self.score_path_, score)
        Progress("NCA online", self.verbose, self.callback)(self.n_iter_, A, score)
        return self

    def transform(self, X):
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
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return project(X, self.components_)

    def mahalanobis(self):
        """The learned metric.

        Returns
        -------
        ndarray, shape (n_features, n_features)
            M = Aᵀ A, with squared distances (x - x')ᵀ M (x - x').
        """
        check_is_fitted(self)
        return self.components_.T @ self.components_

    def neighbor_classifier(self, X, y, n_neighbors=5):
        """A classifier by the nearest rows in the projected space, found with a k-d tree.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Rows to find neighbors among.
        y : array-like, shape (n,)
            Their classes.
        n_neighbors : int, default=5
            Neighbors that vote.

        Returns
        -------
        sklearn.pipeline.Pipeline
            This map and a fitted `KNeighborsClassifier`.
        """
        vote = KNeighborsClassifier(n_neighbors, algorithm="kd_tree").fit(self.transform(X), y)
        return Pipeline([("nca", self), ("vote", vote)])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self):
        return self.components_.shape[0]

    def _validate(self, X, y, reset):
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2, reset=reset)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2 and reset:
            raise ValueError(
                f"y has one class only, {classes[0]}: NCA learns what tells classes apart. "
                "Give rows of at least two classes."
            )
        check_parameters(self)
        return X, labels

    def _start(self, X, labels, n_components, objective, batcher, dtype, rng):
        """The first A, at its scale, and that scale."""
        if self.warm_start and hasattr(self, "components_"):
            if self.components_.shape != (n_components, X.shape[1]):
                raise ValueError(
                    f"warm_start=True would go on from a map of shape {self.components_.shape}, but this fit "
                    f"needs {(n_components, X.shape[1])}. Use warm_start=False, or the same n_components and "
                    "features."
                )
            return self.components_.astype(np.float64), self.scale_
        with one_blas_thread():
            A = unscaled_start(self.init, X, labels, n_components, batcher is not None, rng)
            if self.init_scale != "auto":
                scale = float(self.init_scale)
            elif isinstance(self.init, str):
                alone = None if batcher is None or batcher.against_all else batcher.size
                scale = scale_for(project(X, A), labels, objective, alone, dtype, rng)
            else:
                scale = 1.0  # an array is taken as it is
        return A * scale, scale
