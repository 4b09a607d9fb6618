"""Modular kernel PCA: many small kernel representations, trained together, with a certificate."""

import copy

import numpy as np
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from manylens.kernels.spectrum import feature_moments
from manylens.modules.base import DiversityPathMixin, check_iterations, forget, refuse_larger_shape
from manylens.modules.descent import adam, module_by_module, warn_if_unsettled
from manylens.modules.kernel_modules import KernelModules
from manylens.modules.loss import check_diversity
from manylens.modules.pairs import drop_module, keep_probability_of, stochastic_pairs
from manylens.modules.solver import certify, solve_modules
from manylens.modules.water_filling import pad_spectrum

SOLVERS = ("auto", "mbm", "adam", "sgd", "drop-module")


class ModularKernelPCA(DiversityPathMixin, KernelModules):
    """Many small, diverse kernel representations of the same rows, with a certificate of optimality.

    M modules of H dimensions each are trained together to minimize

        (1-λ) mean_m |K_m - K|² + λ |mean_m K_m - K|²   (over n²),

    where K is the centered kernel matrix, K_m the inner products within module m and λ the `diversity`: at 0
    every module is kernel PCA on H components, at 1 all of them together are kernel PCA on M H components,
    evenly dealt. Where the feature map approximates the kernel (more rows than `rank`), K is the kernel of
    the map, and so is what the certificate is about.

    Parameters
    ----------
    n_modules, n_components : int
        M and H.
    diversity : float
        λ in [0, 1]. Just below 1 serves retrieval, 0.2-0.9 voting.
    kernel : str, callable or Kernel
        "rbf", "linear", "laplacian", "polynomial", "cosine", "precomputed", a function of two sets of rows,
        or a kernel of `manylens.kernels` (the graph kernels of Isomap, LLE and Laplacian eigenmaps too).
    gamma : {"mean", "median", "max-norm"} or float
        Scale of rbf, laplacian and polynomial.
    degree, coef0 : float
        Of the polynomial kernel.
    kernel_params : dict, optional
        Keyword arguments for a function.
    feature_map : {"auto", "exact", "nystroem", "fourier", "linear"} or FeatureMap
        How the kernel is turned into coordinates. "auto" is exact up to `rank` rows and takes landmarks
        beyond.
    rank : int
        Number of landmarks or Fourier features.
    landmarks : {"uniform", "k-means", "count-sketch"} or array-like of shape (rank, d)
        Landmarks of the Nystroem map.
    fit_inverse_transform : bool
        Whether to learn pre-images, for `inverse_transform`.
    alpha : float
        Ridge penalty of the pre-images.
    solver : {"auto", "mbm", "adam", "sgd", "drop-module"}
        "auto" constructs a minimizer directly. The others are iterative, kept to compare: module-by-module
        (alternating minimization), Adam on the compressed problem, stochastic gradients on pairs of rows,
        the same with modules dropped at random.
    max_iter : int
        Iterations of the iterative solvers at most.
    tol : float
        They stop when the loss falls by less than this share of itself.
    learning_rate : float, optional
        Of "adam", "sgd" and "drop-module", for a spectrum scaled to a largest value of 1.
    batch_size : int
        Pairs of rows a step, for "sgd" and "drop-module".
    keep_probability : float, optional
        Of "drop-module": sets diversity to M p / (1 + p (M-1)), whatever `diversity` says.
    verbose : bool or int
        Whether iterative solvers print their progress.
    random_state : int, RandomState or None
        Seed of landmarks and modules.

    Attributes
    ----------
    loss_, lower_bound_, optimality_gap_ : float
        Loss reached; a bound that no modules can go below; (loss - bound)/bound.
    spectrum_ : ndarray, shape (k,)
        Eigenvalues of the centered kernel over n that the modules can use.
    coverage_ : ndarray, shape (n_modules * n_components,)
        How much of each component the modules keep together.
    n_shared_ : int
        Components that every module keeps whole.
    modules_ : ndarray, shape (n_modules, n_components, k)
        Modules in the coordinates of the kernel principal components.
    components_ : ndarray, shape (n_modules * n_components, R)
        Modules as weights on the feature map's columns.
    diversity_ : float
        Diversity that was used.
    feature_map_ : FeatureMap
        The map from rows to features.
    loss_path_, n_iter_ : ndarray, int
        Loss after each iteration and their number; the direct solver needs one.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    Memory beyond the input is O(block x R + R²) with R = rank, or n where n is smaller; a model holds the
    landmarks and O(M H R) numbers.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ModularKernelPCA
    >>> X = load_digits().data
    >>> lenses = ModularKernelPCA(n_modules=5, n_components=4, diversity=0.9, random_state=0).fit(X)
    >>> lenses.optimality_gap_ < 1e-9
    True
    >>> lenses.split(lenses.transform(X)).shape
    (1797, 5, 4)
    """

    def __init__(
        self,
        n_modules=10,
        n_components=10,
        diversity=0.9,
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
        solver="auto",
        max_iter=500,
        tol=1e-6,
        learning_rate=None,
        batch_size=64,
        keep_probability=None,
        verbose=False,
        random_state=None,
    ):
        super().__init__(
            n_modules,
            n_components,
            kernel=kernel,
            gamma=gamma,
            degree=degree,
            coef0=coef0,
            kernel_params=kernel_params,
            feature_map=feature_map,
            rank=rank,
            landmarks=landmarks,
            fit_inverse_transform=fit_inverse_transform,
            alpha=alpha,
            random_state=random_state,
        )
        self.diversity = diversity
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.keep_probability = keep_probability
        self.verbose = verbose

    def partial_fit(self, X, y=None):
        """Add rows to what the modules are learned from.

        The first call fixes the feature map, its landmarks and its scale, so its batch should hold at least
        `rank` rows, or `landmarks` be given; every call adds to the moments of the features and finds the
        modules anew. Memory O(R²), whatever the number of rows seen. A `fit` keeps no moments: after one,
        `partial_fit` starts anew.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : None
            Not used.

        Returns
        -------
        self
            Fitted on all rows given so far.
        """
        self._check_parameters()
        if self.solver in ("sgd", "drop-module"):
            raise ValueError(
                f"solver={self.solver!r} goes over the rows again and again: use fit, not partial_fit."
            )
        if self.fit_inverse_transform:
            raise ValueError("Pre-images are learned from all rows at once: use fit, not partial_fit.")
        first = not hasattr(self, "moments_")
        X = self._validated(X, reset=first)
        if first:
            self.feature_map_ = self._make_feature_map(X).fit(X)
            moments = None
        else:
            moments = copy.deepcopy(
                getattr(self, "moments_", None)
            )  # so that a batch that is refused leaves no trace
        moments = feature_moments(self.feature_map_, X, moments)
        self._learn(X, moments)
        self.moments_ = moments
        return self

    def _check_parameters(self):
        super()._check_parameters()
        self._diversity()
        if self.solver not in SOLVERS:
            raise ValueError(f"solver={self.solver!r} is unknown: give one of {', '.join(SOLVERS)}.")
        check_iterations(self)
        check_scalar(self.batch_size, "batch_size", (int, np.integer), min_val=1)

    def _diversity(self):
        if self.keep_probability is None:
            return check_diversity(self.diversity)
        if self.solver != "drop-module":
            raise ValueError(
                f"keep_probability is of solver='drop-module'; solver={self.solver!r} takes diversity."
            )
        p, M = float(self.keep_probability), self.n_modules
        if not 0 < p <= 1:
            raise ValueError(f"keep_probability={self.keep_probability} is outside (0, 1].")
        return M * p / (1 + p * (M - 1))

    def _n_wanted(self):
        return self.n_modules * self.n_components if self.solver == "auto" else None

    def _choose_modules(self, spectrum, X, rng):
        M, H, diversity = self.n_modules, self.n_components, self._diversity()
        if self.solver == "auto":
            solution = solve_modules(spectrum.values, M, H, diversity, rng, spectrum.energy)
            self.loss_path_, self.n_iter_ = np.array([solution.loss]), 1
        else:
            solution = self._iterate(spectrum, X, diversity, rng)
        self.diversity_ = diversity
        self.loss_, self.lower_bound_ = solution.loss, solution.lower_bound
        self.optimality_gap_ = solution.optimality_gap
        self.coverage_, self.n_shared_ = pad_spectrum(solution.coverage, M * H), solution.n_shared
        return solution.modules

    def _iterate(self, spectrum, X, diversity, rng):
        q = pad_spectrum(spectrum.values, max(self.n_components, len(spectrum.values)))
        M, H = self.n_modules, self.n_components
        options = {"max_iter": self.max_iter, "tol": self.tol, "verbose": self.verbose, "rng": rng}
        if self.learning_rate is not None and self.solver != "mbm":
            options["learning_rate"] = self.learning_rate
        if self.solver == "mbm":
            descent = module_by_module(q, M, H, diversity, **options)
        elif self.solver == "adam":
            descent = adam(q, M, H, diversity, **options)
        else:
            options["batch_size"] = self.batch_size
            rows = np.zeros((X.shape[0], len(q)))
            rows[:, : len(spectrum.values)] = np.vstack(
                [spectrum.coordinates(block) for block in self.feature_map_.feature_blocks(X)]
            )
            if self.solver == "sgd":
                descent = stochastic_pairs(rows, q, M, H, diversity, **options)
            else:
                descent = drop_module(rows, q, M, H, keep_probability_of(diversity, M), **options)
        self.loss_path_, self.n_iter_ = descent.path, len(descent.path) - 1
        warn_if_unsettled(descent, self.solver, stacklevel=6)
        return certify(descent.modules, q, diversity, spectrum.energy)

    def with_diversity(self, diversity):
        """The same model at another diversity, from the decomposition that this one holds.

        Parameters
        ----------
        diversity : float
            λ in [0, 1].

        Returns
        -------
        ModularKernelPCA
            A fitted copy; the feature map and the decomposition are shared with this one.
        """
        check_is_fitted(self, "components_")
        refuse_larger_shape(self)
        other = copy.copy(self)
        other.set_params(diversity=diversity, keep_probability=None, solver="auto")
        other._check_parameters()
        forget(other, "preimage_", "moments_")
        other._set_modules(other._choose_modules(self.decomposition_, None, other._generator()))
        return other
