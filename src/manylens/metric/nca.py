"""`NCA`: a linear map under which rows of one class are each other's neighbours."""

import time
import warnings
from numbers import Integral, Real

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.metric.batching import RandomBatches, subsample
from manylens.metric.initialisation import INITS, PCA_SAMPLE, choose_init, initial_map, scale_for
from manylens.metric.methods import (
    BATCH_ROWS,
    METHODS,
    auto_method,
    check_choices,
    make_batcher,
    make_evaluation,
    make_objective,
    pair_dtype,
)
from manylens.metric.optimisers import STEP_OPTIMISERS, Schedule
from manylens.metric.training import (
    WholeObjective,
    batch_step,
    climb_batches,
    climb_whole,
    one_blas_thread,
    project,
)


class NCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Neighbourhood components analysis at any size.

    Learns a linear map A such that a row x, asked for a neighbour at random with probabilities falling with
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
        Maximise the sum of p_i, the expected number of rows put right, or of log p_i.
    optimiser : {"auto", "lbfgs", "adam", "adagrad"}, default="auto"
        L-BFGS where the whole objective is seen, Adam for batches.
    alpha : float, default=0.0
        Weight of the penalty ½ alpha |A|² on the mean score.
    mixing : {"fixed", "learnt"}, default="fixed"
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
    score_path_ : ndarray, shape (n_iter_,)
        Mean score after each iteration, or over each sweep.
    n_iter_ : int
        Iterations or sweeps made.
    mixing_ : float
        Mixing coefficient of the background, with `mixing="learnt"`.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray, shape (n_features_in_,)
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
        optimiser="auto",
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
        self.optimiser = optimiser
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
        n_components = self._n_components(X)
        rng = check_random_state(self.random_state)
        self.method_ = self._resolve_method(len(X), n_components, labels.max() + 1)
        if METHODS[self.method_].batches == "sample":
            rows = subsample(labels, self.batch_size or BATCH_ROWS, rng)
            X, labels = X[rows], np.unique(labels[rows], return_inverse=True)[1]
        dtype = pair_dtype(X, self.precision)
        objective = make_objective(self.method_, self.objective, self.mixing)
        batcher = self._batcher(labels)
        A, self.scale_ = self._start(X, labels, n_components, objective, batcher, dtype, rng)
        self._begin_report()
        if batcher is None:
            evaluation = make_evaluation(self.method_, labels, dtype, self.tolerance)
            whole = WholeObjective(X, evaluation, objective, self.alpha, A.shape, self.scale_)
            extra = objective.initial_extra(np.bincount(labels))
            A, extra, search = climb_whole(whole, A, extra, self.max_iter, self.tol, self._report)
            if len(extra):
                self.mixing_ = float(expit(extra[0]))
        else:
            name = "adam" if self.optimiser == "auto" else self.optimiser
            A, search = climb_batches(
                X, labels, A, objective, batcher, name, self.max_iter, self.alpha, dtype, rng, self._report
            )
        self.components_ = A.astype(X.dtype)
        self.n_iter_ = search.n_iter
        self.score_path_ = np.array(self._path)
        del self._path, self._clock
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
        the Gaussian kernel and Adam (or `optimiser`), with a step that falls as the root of the steps made.

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
            self.method_ = "minibatch"
            self._rng = check_random_state(self.random_state)
            n_components = self._n_components(X)
            check_choices(self.method_, self.objective, self.batching, self.optimiser, n_components)
            self.components_, self.scale_ = self._start(
                X, labels, n_components, objective, batcher, dtype, self._rng
            )
            self.score_path_, self.n_iter_ = np.empty(0), 0
        if not hasattr(self, "_stepper"):
            name = "adam" if self.optimiser == "auto" else self.optimiser
            self._stepper = STEP_OPTIMISERS[name](self.components_.ravel().astype(np.float64), Schedule())
            self._rng = getattr(self, "_rng", None) or check_random_state(self.random_state)
        A = self.components_.astype(np.float64)
        scores = []
        with one_blas_thread():
            for rows in batcher.sweep(len(X), None, self._rng):
                A, score = batch_step(
                    X, labels, A, rows, objective, batcher, self._stepper, self.alpha, dtype
                )
                scores.append(score * len(rows))
        self.components_ = A.astype(X.dtype)
        self.n_iter_ += 1
        self.score_path_ = np.append(self.score_path_, np.sum(scores) / len(X))
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
        """The learnt metric.

        Returns
        -------
        ndarray, shape (n_features, n_features)
            M = Aᵀ A, with squared distances (x - x')ᵀ M (x - x').
        """
        check_is_fitted(self)
        return self.components_.T @ self.components_

    def neighbour_classifier(self, X, y, n_neighbors=5):
        """A classifier by the nearest rows in the projected space, found with a k-d tree.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Rows to find neighbours among.
        y : array-like, shape (n,)
            Their classes.
        n_neighbors : int, default=5
            Neighbours that vote.

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
                f"y has one class only, {classes[0]!r}: NCA learns what tells classes apart. "
                "Give rows of at least two classes."
            )
        check_number("max_iter", self.max_iter, Integral, 1)
        check_number("tol", self.tol, Real, 0)
        check_number("alpha", self.alpha, Real, 0)
        if self.batch_size is not None:
            check_number("batch_size", self.batch_size, Integral, 2)
        if not (isinstance(self.tolerance, Real) and 0 < float(self.tolerance) < 1):
            raise ValueError(
                f"tolerance={self.tolerance!r} is outside (0, 1): it is the part of a row's kernel sum that "
                "may be left out. 1e-3 is a good start."
            )
        return X, labels

    def _n_components(self, X):
        n_features = X.shape[1]
        if self.n_components is None:
            return n_features
        check_number("n_components", self.n_components, Integral, 1)
        if self.n_components > n_features:
            raise ValueError(
                f"n_components={self.n_components} is more than the {n_features} features of X: a linear map "
                f"cannot add dimensions. Choose at most {n_features}."
            )
        return int(self.n_components)

    def _resolve_method(self, n_rows, n_components, n_classes):
        if self.method != "auto" and self.method not in METHODS:
            raise ValueError(f"method={self.method!r} is unknown. Choose one of auto, {', '.join(METHODS)}.")
        method = auto_method(n_rows, n_components, n_classes) if self.method == "auto" else self.method
        check_choices(method, self.objective, self.batching, self.optimiser, n_components)
        return method

    def _batcher(self, labels):
        if METHODS[self.method_].evaluation is not None:
            return None
        return make_batcher(self.method_, self.batching, self.batch_size, labels.max() + 1)

    def _start(self, X, labels, n_components, objective, batcher, dtype, rng):
        """The first A, at its scale, and that scale."""
        if self.warm_start and hasattr(self, "components_"):
            if self.components_.shape != (n_components, X.shape[1]):
                raise ValueError(
                    f"warm_start=True would go on from a map of shape {self.components_.shape}, but this fit "
                    f"needs {(n_components, X.shape[1])}. Use warm_start=False, or the same n_components and "
                    "features."
                )
            return self.components_.astype(np.float64), 1.0
        A, given = self._unscaled_start(X, labels, n_components, batcher is not None, rng)
        scale = 1.0
        if self.init_scale != "auto":
            check_number("init_scale", self.init_scale, Real, 0)
            scale = float(self.init_scale)
        elif not given:
            alone = None if batcher is None or batcher.against_all else batcher.size
            with one_blas_thread():
                scale = scale_for(project(X, A), labels, objective, alone, dtype, rng)
        return A * scale, scale

    def _unscaled_start(self, X, labels, n_components, batches, rng):
        """The first A before scaling, and whether it was given as an array."""
        if isinstance(self.init, str):
            if self.init not in INITS:
                raise ValueError(
                    f"init={self.init!r} is unknown. Choose one of {', '.join(INITS)}, or an array."
                )
            name = self.init
            if name == "auto":
                name = choose_init(len(X), X.shape[1], n_components, labels.max() + 1, batches)
            rows = subsample(labels, PCA_SAMPLE, rng)
            return initial_map(name, X[rows], labels[rows], n_components, rng), False
        A = check_array(self.init, dtype=np.float64)
        if A.shape != (n_components, X.shape[1]):
            raise ValueError(
                f"init has shape {A.shape}, but n_components={n_components} and {X.shape[1]} features need "
                f"{(n_components, X.shape[1])}."
            )
        return A, True

    def _begin_report(self):
        self._path = []
        self._clock = time.perf_counter()

    def _report(self, iteration, A, value):
        self._path.append(value)
        if self.verbose:
            seconds = time.perf_counter() - self._clock
            print(f"[NCA {self.method_}] iteration {iteration}: mean score {value:.6f} after {seconds:.1f} s")
        if self.callback is not None:
            self.callback(iteration, A, value)


def check_number(name, value, kind, least):
    """Refuse `value` unless it is a number of this kind, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, kind) or not value >= least:
        noun = "an integer" if kind is Integral else "a number"
        raise ValueError(f"{name}={value!r} is not {noun} of at least {least}.")
