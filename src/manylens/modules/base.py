"""What every set of modules has: slices, names, one matrix from features to all modules."""

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state, check_scalar, gen_batches
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from manylens.summaries import block_rows


class ModuleTransformer(TransformerMixin, BaseEstimator):
    """Base of the estimators whose output is M modules of H columns side by side.

    A subclass sets, when fitted, `components_` of shape (M H, R) and `offset_` of shape (M H,), and gives
    `_features(X)` of shape (n, R); the modules of a row are then features @ components_.T - offset_.
    """

    def _check_sizes(self):
        for name in ("n_modules", "n_components"):
            check_scalar(getattr(self, name), name, (int, np.integer), min_val=1)

    def _generator(self):
        """A new-style generator that `random_state` determines."""
        return np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))

    def _validated(self, X, reset):
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_min_samples=2 if reset else 1,
        )

    def _features(self, X):
        return X

    def transform(self, X):
        """Map rows to all modules.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, n_modules * n_components)
            The modules side by side; `split` gives one slice a module. Formed in blocks of rows: memory
            beyond the result is that of one block.
        """
        check_is_fitted(self, "components_")
        X = self._validated(X, reset=False)
        return self._transform_validated(X)

    def _transform_validated(self, X):
        weights, offset = self.components_.T.astype(X.dtype), self.offset_.astype(X.dtype)
        Z = np.empty((X.shape[0], weights.shape[1]), dtype=X.dtype)
        for batch in gen_batches(X.shape[0], block_rows(self._block_width(), X.dtype.itemsize)):
            Z[batch] = safe_sparse_dot(self._features(X[batch]), weights, dense_output=True)
            Z[batch] -= offset
        return Z

    def _block_width(self):
        return max(self.components_.shape)

    def split(self, Z):
        """Cut the columns of `transform` into modules.

        Parameters
        ----------
        Z : array-like, shape (n, n_modules * n_components)
            What `transform` returned.

        Returns
        -------
        ndarray, shape (n, n_modules, n_components)
            A view of the same numbers, where Z is an array.
        """
        check_is_fitted(self)
        Z = np.asarray(Z)
        M, H = self.module_shape_
        if Z.ndim != 2 or Z.shape[1] != M * H:
            raise ValueError(
                f"split takes the {M * H} columns that transform returns ({M} modules of {H}); an array of "
                f"shape {Z.shape} was given."
            )
        return Z.reshape(len(Z), M, H)

    def get_feature_names_out(self, input_features=None):
        """Names of the columns of `transform`, such as "module3_component0".

        Parameters
        ----------
        input_features : array-like of str, optional
            Checked against the names seen in `fit`, and otherwise not used.

        Returns
        -------
        ndarray of str
            One name a column.
        """
        check_is_fitted(self)
        if input_features is not None:
            self._check_input_names(np.asarray(input_features, dtype=object))
        M, H = self.module_shape_
        return np.array([f"module{m}_component{h}" for m in range(M) for h in range(H)], dtype=object)

    def _check_input_names(self, names):
        known = getattr(self, "feature_names_in_", None)
        if known is not None and not np.array_equal(known, names):
            raise ValueError("input_features is not equal to feature_names_in_")
        if len(names) != self.n_features_in_:
            raise ValueError(
                f"input_features should have length equal to number of features ({self.n_features_in_}), "
                f"got {len(names)}"
            )

    @property
    def _n_features_out(self):
        return self.components_.shape[0]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class DiversityPathMixin:
    """For models that give themselves at another diversity by `with_diversity`."""

    def with_diversity(self, diversity):
        """The same model at another diversity; each kind of model says how.

        Parameters
        ----------
        diversity : float
            λ in [0, 1].
        """
        raise TypeError(f"{type(self).__name__} does not say what it is at another diversity.")

    def diversity_path(self, diversities):
        """The model at many diversities; one decomposition serves all.

        Parameters
        ----------
        diversities : iterable of float
            Values in [0, 1].

        Returns
        -------
        list of estimators
            One fitted model for each.
        """
        return [self.with_diversity(diversity) for diversity in diversities]


def forget(estimator, *attributes):
    """Remove fitted attributes, so that a fit that fails leaves no half of an older one behind.

    Parameters
    ----------
    estimator : object
        The estimator.
    *attributes : str
        Names; those not set are passed over.
    """
    for name in attributes:
        estimator.__dict__.pop(name, None)


def refuse_equal_rows(spectrum):
    """Raise where a spectrum is empty: no direction has any variance.

    Parameters
    ----------
    spectrum : ndarray, shape (k,)
        Positive eigenvalues or singular values.
    """
    if len(spectrum) == 0:
        raise ValueError(
            "All rows are the same to this kernel, so there is nothing to represent: check the input for "
            "columns read wrongly, or choose another kernel or gamma."
        )


def check_iterations(estimator):
    """Raise where the options of the iterative solvers make no sense.

    Parameters
    ----------
    estimator : object
        With `max_iter`, `tol` and `learning_rate`.
    """
    check_scalar(estimator.max_iter, "max_iter", (int, np.integer), min_val=1)
    check_scalar(estimator.tol, "tol", (int, float, np.number))
    if estimator.learning_rate is not None:
        positive = {"min_val": 0, "include_boundaries": "neither"}
        check_scalar(estimator.learning_rate, "learning_rate", (int, float, np.number), **positive)


def refuse_larger_shape(estimator):
    """Raise where more dimensions are asked for than the model was fitted for.

    Parameters
    ----------
    estimator : object
        Fitted.
    """
    asked = (estimator.n_modules, estimator.n_components)
    if np.prod(asked) > np.prod(estimator.module_shape_):
        raise ValueError(
            f"This model was fitted for (n_modules, n_components) = {estimator.module_shape_}; {asked} asks "
            "for more dimensions: fit it again."
        )
