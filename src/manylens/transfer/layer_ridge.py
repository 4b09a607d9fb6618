"""Ridge regression on the layers of a network: the classifier, and what the regressor shares with it."""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.metaestimators import available_if

from manylens.transfer.labels import (
    UNLABELLED,
    ScoredClassifier,
    check_labels,
    refuse_one_class,
    refuse_unlabeled,
)
from manylens.transfer.layered import ALPHAS, LayerEstimator
from manylens.transfer.temperature import best_temperature

STACK_CS = (0.01, 0.1, 1.0, 10.0)  # penalties of the logistic regression on stacked scores; 1 without folds


def takes_batches(estimator):
    """Whether moments are enough; with layers stacked, the scores of the rows left out are needed."""
    if isinstance(estimator.weights, str) and estimator.weights == "stacked" and estimator.preset is None:
        raise AttributeError("weights='stacked' needs the rows that partial_fit lets go: use fit.")
    return True


class LayerRidge(LayerEstimator):
    """Parameters and input of the two estimators below."""

    def __init__(
        self,
        layer_slices=None,
        *,
        weights="uniform",
        head="rbf",
        layer_map="nystroem",
        layer_rank=1024,
        gamma="max-norm",
        max_exact_rows=6000,
        rank=2048,
        landmarks="uniform",
        alphas=ALPHAS,
        preset=None,
        random_state=None,
    ):
        self.layer_slices = layer_slices
        self.weights = weights
        self.head = head
        self.layer_map = layer_map
        self.layer_rank = layer_rank
        self.gamma = gamma
        self.max_exact_rows = max_exact_rows
        self.rank = rank
        self.landmarks = landmarks
        self.alphas = alphas
        self.preset = preset
        self.random_state = random_state


class LayerRidgeClassifier(ScoredClassifier, LayerRidge):
    """Classify rows from several layers of features, in closed form.

    Each layer is made low-rank, centered and scaled to the same trace; the layers' kernels are summed with
    weights; a Gaussian kernel stands on the sum; and a ridge on one-hot classes, its penalty chosen by exact
    leave-one-out, gives the scores. Probabilities are softmax(scores / T), with the temperature T fitted to
    the scores of the rows left out.

    Parameters
    ----------
    layer_slices : None, list of int, list of columns or dict, default=None
        Where X is one array, how its columns form layers: widths of consecutive layers, or the columns of
        each (slices, positions or column names), by name in a dict. None takes X for one layer. Not used
        where X is itself a dict or list of layers.
    weights : {"uniform", "alignment", "stacked"}, dict or array-like of shape (L,), default="uniform"
        How layers are combined: all alike; by the alignment of their joint kernel with the classes (alignf),
        which is sparse; or each with a ridge of its own, whose leave-one-out scores a logistic regression
        stacks. Or one's own weights, such as {"block5": 1} for a single layer.
    head : {"rbf", "linear"}, default="rbf"
        Kernel of the ridge.
    layer_map : {"nystroem", "projection"}, default="nystroem"
        How a wide layer is made low-rank: the Nystroem features of CountSketched rows, or its columns hashed
        into buckets, which is faster and less exact.
    layer_rank : int or None, default=1024
        Width above which a layer is made low-rank (where there are more rows than that, too).
    gamma : {"max-norm", "mean", "median"} or float, default="max-norm"
        Scale of the Gaussian kernel, exp(-gamma |x - y|²); "max-norm" is 1 / max |x|².
    max_exact_rows : int, default=6000
        Up to so many rows the kernel ridge is exact, in O(n³) time and O(n²) memory; beyond it stands on
        `rank` landmarks, in time and memory linear in n.
    rank : int, default=2048
        Number of landmarks.
    landmarks : {"uniform", "k-means", "count-sketch"}, default="uniform"
        Rows drawn at random, centers of clusters, or signed sums of rows in the kernel's own space, which
        take O(n²) time.
    alphas : array-like of float, default=1e-6 ... 1e2
        Penalties to choose from; rows have a mean squared norm of one.
    preset : {"thesis"} or None, default=None
        "thesis" is the recipe of the literature and overrides the parameters above: alignment weights, 1,024
        buckets a layer, 2,048 CountSketched landmarks of the Gaussian kernel, alpha in 1e-4 ... 1e-1.
    random_state : int, RandomState or None, default=None
        Seed of hashes and landmarks.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Labels.
    layer_names_ : list
        Names of the layers, or their positions.
    layer_weights_ : ndarray, shape (L,)
        Weights of the layers' kernels, summing to one; with "stacked", the layers' shares in the norm of the
        logistic regression's coefficients.
    selected_layers_ : list
        Names of the layers with a weight.
    alpha_ : float or ndarray, shape (L,)
        Chosen penalty; one for each layer where they are stacked.
    loo_errors_ : ndarray, shape (A,)
        Squared error of the rows left out, for each of `alphas`; after `partial_fit`, its estimate by
        generalized cross-validation. None where layers are stacked.
    loo_score_ : float
        Accuracy on the rows left out one by one; with "stacked", of the logistic regression on folds of
        their scores. After `partial_fit`, on the last batch before it was added.
    temperature_ : float
        T.
    n_features_in_ : int
        Number of columns of all layers.
    feature_names_in_ : ndarray of str
        Names of the columns seen in fit, where X was one array that had any.

    See Also
    --------
    collect_layers : Layers of a PyTorch network.
    TransductiveRidgeClassifier : Where most rows have no label.

    References
    ----------
    Tang and de Sa (2020), "Deep transfer learning with ridge regression".
    Cortes, Mohri and Rostamizadeh (2012), "Algorithms for learning kernels based on centered alignment".

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import LayerRidgeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> layers = {"pixels": X, "rows": X.reshape(-1, 8, 8).sum(2), "columns": X.reshape(-1, 8, 8).sum(1)}
    >>> train, test = slice(0, 500), slice(500, 1000)
    >>> model = LayerRidgeClassifier().fit({name: part[train] for name, part in layers.items()}, y[train])
    >>> model.score({name: part[test] for name, part in layers.items()}, y[test]) > 0.9
    True
    """

    def fit(self, X, y):
        """Fit the weights, the ridge and the temperature.

        Parameters
        ----------
        X : dict or list of array-like, each of shape (n, d_l), or array-like of shape (n, d)
            Layers of the same rows.
        y : array-like, shape (n,)
            Labels.

        Returns
        -------
        LayerRidgeClassifier
            The fitted classifier.
        """
        X = self._read(X, reset=True)
        y = check_labels(y, X)
        refuse_unlabeled(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        refuse_one_class(self.classes_)
        targets = np.eye(len(self.classes_))[codes]
        left_out = self._fit_ridge(X, targets)
        self.stack_ = None
        self.temperature_ = 1.0
        if self._stacked:
            self.stack_, self.loo_score_ = fit_stack(left_out, codes)
            self._set_weights(shares(self.stack_.coef_, len(self.heads_)))
        else:
            self._set_temperature(left_out, codes)
        return self

    @available_if(takes_batches)
    def partial_fit(self, X, y, classes=None):
        """Add a batch of rows; only moments are kept of them.

        The first batch fixes the layers' maps, scales and weights and the landmarks; alpha is chosen anew
        after each batch, by generalized cross-validation, and the temperature on a batch before it is added.
        Stacked layers have no such method. After `fit`, which keeps no moments, it starts anew.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.
        y : array-like, shape (n,)
            Labels.
        classes : array-like, shape (C,), optional
            All labels that may come; needed in the first call.

        Returns
        -------
        LayerRidgeClassifier
            The classifier.
        """
        first = getattr(self, "moments_", None) is None
        X = self._read(X, reset=first)
        y = check_labels(y, X)
        if first:
            classes = getattr(self, "classes_", None) if classes is None else classes
            if classes is None:
                raise ValueError(
                    "classes must be given in the first call of partial_fit: all labels that may come."
                )
            self.classes_, self.stack_ = np.unique(classes), None
            refuse_one_class(self.classes_)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} is not the same as in the first call of partial_fit.")
        if UNLABELLED not in self.classes_:
            refuse_unlabeled(y)
        codes = np.searchsorted(self.classes_, y)
        if np.any(self.classes_[np.minimum(codes, len(self.classes_) - 1)] != y):
            raise ValueError("y holds labels that are not in classes.")
        before = None if first else self._ridge_scores(X)
        self._update(X, np.eye(len(self.classes_))[codes], first)
        self._set_temperature(self._ridge_scores(X) if before is None else before, codes)
        return self

    def _set_temperature(self, scores, codes):
        self.temperature_ = best_temperature(scores.astype(np.float64), codes)
        self.loo_score_ = float(np.mean(np.argmax(scores, axis=1) == codes))

    def _class_scores(self, X):
        """Scores (n, C), of the stack where there is one."""
        scores = self._scores(X)
        if self.stack_ is None:
            return scores
        logits = self.stack_.decision_function(scores).astype(scores.dtype)
        return logits if logits.ndim == 2 else np.column_stack([-logits / 2, logits / 2])


def fit_stack(left_out, codes):
    """Logistic regression on the scores of rows left out, its penalty by cross-validation.

    Parameters
    ----------
    left_out : ndarray, shape (n, L C)
        Scores of all layers, side by side.
    codes : ndarray of int, shape (n,)
        Classes.

    Returns
    -------
    stack : LogisticRegression
        Fitted to all rows.
    score : float
        Its accuracy over the folds; over the rows themselves where a class is too small to be folded.
    """
    plain = LogisticRegression(max_iter=1000)
    if np.bincount(codes).min() < 3:
        stack = plain.fit(left_out, codes)
        return stack, float(stack.score(left_out, codes))
    scoring = ["neg_log_loss", "accuracy"]
    search = GridSearchCV(plain, {"C": STACK_CS}, cv=3, scoring=scoring, refit="neg_log_loss")
    search.fit(left_out, codes)
    return search.best_estimator_, float(search.cv_results_["mean_test_accuracy"][search.best_index_])


def shares(coef, n_layers):
    """Each layer's share in the norm of coefficients (K, n_layers x C), columns grouped by layer."""
    sizes = np.linalg.norm(coef.reshape(len(coef), n_layers, -1), axis=(0, 2))
    return sizes / sizes.sum() if sizes.sum() > 0 else np.full(n_layers, 1.0 / n_layers)
