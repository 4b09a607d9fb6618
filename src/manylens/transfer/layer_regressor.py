"""Ridge regression on the layers of a network, for values."""

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manylens.transfer.labels import refuse_no_target
from manylens.transfer.layer_ridge import LayerRidge, shares, takes_batches
from manylens.transfer.ridge import choose_alpha, linear_ridge


class LayerRidgeRegressor(RegressorMixin, LayerRidge):
    """Predict values from several layers of features, in closed form.

    As `LayerRidgeClassifier`, with the values themselves for targets: low-rank layers of equal trace, summed
    with weights, a Gaussian kernel on the sum, and a ridge whose penalty exact leave-one-out chooses.

    Parameters
    ----------
    layer_slices : None, list of int, list of columns or dict, default=None
        Where X is one array, how its columns form layers; see `LayerRidgeClassifier`.
    weights : {"uniform", "alignment", "stacked"}, dict or array-like of shape (L,), default="uniform"
        How layers are combined. "stacked" gives each a ridge of its own, and joins their leave-one-out
        predictions by another ridge.
    head : {"rbf", "linear"}, default="rbf"
        Kernel of the ridge.
    layer_map : {"nystroem", "projection"}, default="nystroem"
        How a wide layer is made low-rank.
    layer_rank : int or None, default=1024
        Width above which a layer is made low-rank.
    gamma : {"max-norm", "mean", "median"} or float, default="max-norm"
        Scale of the Gaussian kernel.
    max_exact_rows : int, default=6000
        Rows up to which the kernel ridge is exact, in O(n³) time; beyond it is linear in n.
    rank : int, default=2048
        Number of landmarks.
    landmarks : {"uniform", "k-means", "count-sketch"}, default="uniform"
        How they are chosen.
    alphas : array-like of float, default=1e-6 ... 1e2
        Penalties to choose from.
    preset : {"thesis"} or None, default=None
        The recipe of the literature; overrides the parameters above.
    random_state : int, RandomState or None, default=None
        Seed of hashes and landmarks.

    Attributes
    ----------
    layer_names_ : list
        Names of the layers, or their positions.
    layer_weights_ : ndarray, shape (L,)
        Weights of the layers' kernels, summing to one; with "stacked", their shares in the norm of the second
        ridge's coefficients.
    selected_layers_ : list
        Names of the layers with a weight.
    alpha_ : float or ndarray, shape (L,)
        Chosen penalty; one for each layer where they are stacked.
    loo_errors_ : ndarray, shape (A,)
        Squared error of the rows left out, for each of `alphas`; None where layers are stacked.
    loo_score_ : float
        R² of the predictions of the rows left out; not there after `partial_fit`.
    n_features_in_ : int
        Number of columns of all layers.
    feature_names_in_ : ndarray of str
        Names of the columns seen in fit, where X was one array that had any.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from manylens import LayerRidgeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LayerRidgeRegressor(layer_slices=[4, 6]).fit(X, y)
    >>> bool(model.loo_score_ > 0.4)
    True
    """

    def fit(self, X, y):
        """Fit the weights and the ridge.

        Parameters
        ----------
        X : dict or list of array-like, each of shape (n, d_l), or array-like of shape (n, d)
            Layers of the same rows.
        y : array-like, shape (n,) or (n, C)
            Values.

        Returns
        -------
        LayerRidgeRegressor
            The fitted regressor.
        """
        X = self._read(X, reset=True)
        targets = self._check_values(y, X)
        left_out = self._fit_ridge(X, targets)
        self.stack_ = None
        if self._stacked:
            ridge = linear_ridge(left_out, targets)
            alpha, _ = choose_alpha(ridge, self._head_settings.alphas)
            self.stack_ = ridge.solve(alpha)
            self._set_weights(shares(self.stack_[0].T, len(self.heads_)))
            left_out = ridge.left_out(alpha)
        self.loo_score_ = float(r2_score(targets, left_out))
        return self

    @available_if(takes_batches)
    def partial_fit(self, X, y):
        """Add a batch of rows; only moments are kept of them.

        The first batch fixes the layers' maps, scales and weights and the landmarks; alpha is chosen anew
        after each batch, by generalized cross-validation. Stacked layers have no such method. After `fit`,
        which keeps no moments, it starts anew.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.
        y : array-like, shape (n,) or (n, C)
            Values.

        Returns
        -------
        LayerRidgeRegressor
            The regressor.
        """
        first = getattr(self, "moments_", None) is None
        X = self._read(X, reset=first)
        targets = self._check_values(y, X)
        if first:
            self.stack_ = None
            self.__dict__.pop("loo_score_", None)
        return self._update(X, targets, first)

    def _check_values(self, y, X):
        refuse_no_target(y)
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        check_consistent_length(X, y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        self._flat = y.ndim == 1
        return y.reshape(len(y), -1)

    def predict(self, X):
        """Predicted values.

        Parameters
        ----------
        X : dict or list of array-like, or array-like of shape (n, d)
            Layers, as in `fit`.

        Returns
        -------
        ndarray, shape (n,) or (n, C)
            Values, in the dtype of X.
        """
        check_is_fitted(self)
        scores = self._scores(X)
        if self.stack_ is not None:
            coef, intercept = self.stack_
            scores = (scores @ coef + intercept).astype(scores.dtype)
        return scores[:, 0] if self._flat else scores

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
