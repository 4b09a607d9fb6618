"""What modular kernel PCA and its baselines share: a feature map, its spectrum, and modules on it."""

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.feature_maps import make_feature_map
from manylens.kernels.kernels import Precomputed, make_kernel
from manylens.kernels.spectrum import feature_moments, principal_spectrum
from manylens.modules.base import ModuleTransformer, forget, refuse_equal_rows
from manylens.modules.loss import ambiguity
from manylens.modules.preimage import RidgePreimage
from manylens.modules.water_filling import pad_spectrum


class KernelModules(ModuleTransformer):
    """Base of modular kernel PCA and of its baselines: a feature map, its spectrum, and modules on it.

    A subclass gives `_choose_modules(spectrum, rows, rng)`, the modules F of shape (M, H, k) in the
    coordinates of the spectrum, and sets what else it knows about them.
    """

    def __init__(
        self,
        n_modules=10,
        n_components=10,
        *,
        kernel="rbf",
        gamma="mean",
        degree=3,
        coef0=1.0,
        kernel_params=None,
        feature_map="auto",
        rank=1000,
        landmarks="uniform",
        fit_inverse_transform=False,
        alpha=1e-3,
        random_state=None,
    ):
        self.n_modules = n_modules
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.feature_map = feature_map
        self.rank = rank
        self.landmarks = landmarks
        self.fit_inverse_transform = fit_inverse_transform
        self.alpha = alpha
        self.random_state = random_state

    def fit(self, X, y=None):
        """Learn the modules.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows; with kernel="precomputed" the square matrix of their similarities.
        y : None
            Not used.

        Returns
        -------
        self
            Fitted.
        """
        self._check_parameters()
        X = self._validated(X, reset=True)
        forget(self, "components_", "moments_", "preimage_")
        self.feature_map_ = self._make_feature_map(X).fit(X)
        self._learn(X, feature_moments(self.feature_map_, X))
        if self.fit_inverse_transform:
            self.preimage_ = RidgePreimage(self.alpha, self.rank, self.random_state).fit(
                self._transform_validated(X), X
            )
        return self

    def _check_parameters(self):
        self._check_sizes()
        check_scalar(self.rank, "rank", (int, np.integer), min_val=1)
        check_scalar(self.alpha, "alpha", (int, float, np.number), min_val=0, include_boundaries="neither")

    def _make_feature_map(self, X):
        kernel = make_kernel(self.kernel, self.gamma, self.degree, self.coef0, self.kernel_params)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        return make_feature_map(self.feature_map, kernel, X, self.rank, self.landmarks, seed)

    def _learn(self, X, moments):
        """From moments of the features to modules; X only where the modules need the rows once more."""
        self.decomposition_ = principal_spectrum(moments, self.feature_map_, self._n_wanted())
        self.spectrum_ = self.decomposition_.values
        refuse_equal_rows(self.spectrum_)
        self._set_modules(self._choose_modules(self.decomposition_, X, self._generator()))

    def _n_wanted(self):
        """How many components the modules live on; None for all."""
        return

    def _choose_modules(self, spectrum, X, rng):
        raise TypeError(f"{type(self).__name__} does not say how to choose modules.")

    def _set_modules(self, modules):
        """Write modules, given in the coordinates of the spectrum, as weights on the features."""
        spectrum = self.decomposition_
        M, H, _ = modules.shape
        k = len(spectrum.values)
        self.modules_ = modules
        self.module_shape_ = (M, H)
        flat = modules[:, :, :k].reshape(M * H, -1)
        scaled = np.divide(flat, np.sqrt(spectrum.values[: flat.shape[1]]))
        self.components_ = scaled @ spectrum.projection[:, : flat.shape[1]].T
        self.offset_ = scaled @ spectrum.shift[: flat.shape[1]]

    def _features(self, X):
        return self.feature_map_.features(X)

    def _block_width(self):
        return max(super()._block_width(), self.feature_map_.block_width)

    def principal_coordinates(self, X):
        """Coordinates of rows on the kernel principal components that the modules are made of.

        They do not depend on the diversity: `transform_coordinates` of the model at any diversity takes them.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, k)
            Formed in blocks of rows.
        """
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        return np.vstack(
            [self.decomposition_.coordinates(block) for block in self.feature_map_.feature_blocks(X)]
        )

    def transform_coordinates(self, C):
        """Modules of rows that are given by their principal coordinates.

        Parameters
        ----------
        C : ndarray, shape (n, k)
            From `principal_coordinates`.

        Returns
        -------
        ndarray, shape (n, n_modules * n_components)
            What `transform` gives.
        """
        check_is_fitted(self)
        M, H = self.module_shape_
        weights = self.modules_[:, :, : C.shape[1]].reshape(M * H, -1)
        k = weights.shape[1]
        return C[:, :k] @ (weights / np.sqrt(self.spectrum_[:k])).T.astype(C.dtype)

    def ambiguity(self):
        """The loss taken apart into what modules lose each, how much they differ, and what all lose together.

        Returns
        -------
        Ambiguity
            `individual`, `diversity` and `ensemble`, with ensemble = individual - diversity.
        """
        check_is_fitted(self)
        width = self.modules_.shape[2]
        return ambiguity(self.modules_, pad_spectrum(self.spectrum_, width), self.decomposition_.energy)

    def inverse_transform(self, Z):
        """Rows whose modules are about Z, by ridge regression on the training rows.

        Parameters
        ----------
        Z : array-like, shape (n, n_modules * n_components)
            Modules side by side.

        Returns
        -------
        ndarray, shape (n, d)
            Approximate pre-images.
        """
        check_is_fitted(self)
        if not hasattr(self, "preimage_"):
            raise NotFittedError(
                "inverse_transform needs pre-images, which this model did not learn: fit it with "
                "fit_inverse_transform=True."
            )
        Z = self.split(Z)  # which refuses other widths
        return self.preimage_.predict(Z.reshape(len(Z), -1))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        by_name = isinstance(self.kernel, str) and self.kernel == "precomputed"
        tags.input_tags.pairwise = by_name or isinstance(self.kernel, Precomputed)
        return tags
