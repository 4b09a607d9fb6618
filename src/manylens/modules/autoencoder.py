"""Modular autoencoders: many small encoders that reconstruct well alone and better together."""

import copy

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manylens.modules.backfitting import backfit, gradient_descent
from manylens.modules.base import DiversityPathMixin, check_iterations, forget, refuse_larger_shape
from manylens.modules.descent import warn_if_unsettled
from manylens.modules.linear_autoencoders import LinearAutoencoders, is_linear
from manylens.modules.loss import check_diversity
from manylens.modules.network_autoencoder import train_autoencoders
from manylens.modules.network_options import check_activation, options_of
from manylens.modules.network_training import warn_unless_rested
from manylens.modules.solver import ModularSolution, count_equal, solve_modules
from manylens.modules.water_filling import lower_bound, pad_spectrum

SOLVERS = ("auto", "backfit", "gradient")
# What only linear autoencoders have: an earlier fit's must not stand beside networks.
CERTIFICATE = (
    "lower_bound_",
    "optimality_gap_",
    "spectrum_",
    "coverage_",
    "n_shared_",
    "encoders_",
    "decoders_",
)


class ModularAutoencoder(DiversityPathMixin, LinearAutoencoders):
    """Many small autoencoders, trained together; linear ones with a certificate of optimality.

    M modules of H dimensions each minimize, over the rows x,

        (1-λ) mean_m |A_m B_m x - x|² + λ |mean_m A_m B_m x - x|²,

    where B_m encodes, A_m decodes and λ is the `diversity`: at 0 every module is PCA on H components, at 1
    all together are one linear autoencoder with M H hidden units. With `hidden` layers A_m and B_m are
    networks, trained by torch on the same loss.

    Parameters
    ----------
    n_modules, n_components : int
        M and H.
    diversity : float
        λ in [0, 1].
    solver : {"auto", "backfit", "gradient"}
        "auto" constructs a minimizer directly. The others are iterative, kept to compare: backfitting sets
        each module in turn to its best, gradient descends on all encoders and decoders.
    hidden : int or sequence of int, optional
        Units of the hidden layers between rows and modules, and in reverse between modules and
        reconstructions. None is the linear autoencoder, solved without torch.
    activation : {"relu", "tanh", "logistic", "identity"}
        What follows every hidden layer.
    max_iter : int
        Iterations of the iterative solvers, or passes over the rows by networks, at most.
    tol : float
        They stop when the loss falls by less than this share of itself.
    learning_rate : float, optional
        Of "gradient", times M over the largest variance; of networks, the step of Adam (0.001).
    batch_size : int
        Rows a step; of networks only, as are the next three.
    patience : int
        Passes without a gain after which training ends.
    validation_fraction : float
        Share of the rows held back to watch the loss on; with 0 the training loss is watched.
    device : str
        Where torch computes.
    verbose : bool or int
        Whether iterative solvers print their progress.
    random_state : int, RandomState or None
        Seed of the modules.

    Attributes
    ----------
    loss_, lower_bound_, optimality_gap_ : float
        Loss reached; a bound that no modules can go below; (loss - bound)/bound.
    spectrum_ : ndarray, shape (k,)
        Singular values of the centered rows over sqrt(n).
    coverage_ : ndarray, shape (n_modules * n_components,)
        How much of each singular value the modules keep together.
    n_shared_ : int
        Principal axes that every module keeps whole.
    encoders_ : ndarray, shape (n_modules, n_components, d)
        B.
    decoders_ : ndarray, shape (n_modules, d, n_components)
        A.
    mean_ : ndarray, shape (d,)
        Mean of the rows.
    loss_path_, n_iter_ : ndarray, int
        Loss after each iteration and their number; the direct solver needs one.
    networks_ : NetworkAutoencoders
        With `hidden` layers, in place of all but `mean_`, `loss_`, `loss_path_` and `n_iter_`; weights are
        NumPy arrays, and no torch is needed once fitted.
    validation_path_ : ndarray, shape (n_iter + 1,)
        With `hidden` layers, the loss that was watched, before the first pass and after each.

    Notes
    -----
    Memory beyond the input is O(min(n, d)²) and a block of rows; with `hidden` layers the rows once more
    (sparse rows: one batch) and M networks. Networks carry no certificate.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manylens import ModularAutoencoder
    >>> X = load_digits().data
    >>> lenses = ModularAutoencoder(n_modules=5, n_components=4, diversity=0.9, random_state=0).fit(X)
    >>> lenses.optimality_gap_ < 1e-9
    True
    >>> lenses.inverse_transform(lenses.transform(X)).shape
    (1797, 64)
    """

    def __init__(
        self,
        n_modules=10,
        n_components=10,
        diversity=0.5,
        *,
        solver="auto",
        hidden=None,
        activation="relu",
        max_iter=1000,
        tol=1e-6,
        learning_rate=None,
        batch_size=200,
        patience=10,
        validation_fraction=0.1,
        device="cpu",
        verbose=False,
        random_state=None,
    ):
        self.n_modules = n_modules
        self.n_components = n_components
        self.diversity = diversity
        self.solver = solver
        self.hidden = hidden
        self.activation = activation
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _check_parameters(self):
        super()._check_parameters()
        check_diversity(self.diversity)
        if self.solver not in SOLVERS:
            raise ValueError(f"solver={self.solver!r} is unknown: give one of {', '.join(SOLVERS)}.")
        check_iterations(self)

    def fit(self, X, y=None):
        """Learn encoders and decoders.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.
        y : None
            Not used.

        Returns
        -------
        self
            Fitted.
        """
        forget(self, "networks_")
        if self.hidden is None:
            return super().fit(X, y)
        self._check_parameters()
        check_activation(self.activation)
        if self.solver != "auto":
            raise ValueError(
                f"solver={self.solver!r} is for linear autoencoders: leave it with hidden layers."
            )
        X = self._validated(X, reset=True)
        forget(self, "components_", *CERTIFICATE)
        options, shape = (
            options_of(self, check_diversity(self.diversity)),
            (self.n_modules, self.n_components),
        )
        networks, trained = train_autoencoders(
            X, shape, self.hidden, self.activation, options, self._generator()
        )
        self.module_shape_, self.diversity_, self.mean_ = shape, options.diversity, networks.mean
        self.loss_path_ = trained.path * networks.scale**2
        self.validation_path_ = trained.watched_path * networks.scale**2
        self.n_iter_, self.loss_ = len(trained.path), networks.loss(X, options.diversity)
        self.networks_ = networks
        warn_unless_rested(trained, options, stacklevel=3)
        return self

    def transform(self, X):
        """Map rows to all modules.

        Parameters
        ----------
        X : array-like or CSR matrix, shape (n, d)
            Rows.

        Returns
        -------
        ndarray, shape (n, n_modules * n_components)
            The modules side by side; `split` gives one slice a module.
        """
        if not hasattr(self, "networks_"):
            return super().transform(X)
        return self.networks_.encode(self._validated(X, reset=False))

    def inverse_transform(self, Z):
        """Rows reconstructed by all modules together: the mean of what each decodes.

        Parameters
        ----------
        Z : array-like, shape (n, n_modules * n_components)
            Modules side by side.

        Returns
        -------
        ndarray, shape (n, d)
            Rows.
        """
        return (
            self.networks_.decode(self.split(Z))
            if hasattr(self, "networks_")
            else super().inverse_transform(Z)
        )

    @property
    def _n_features_out(self):
        return int(np.prod(self.module_shape_))

    def _choose_modules(self, X, rng):
        s, diversity = self.spectrum_, check_diversity(self.diversity)
        M, H, k = self.n_modules, self.n_components, len(self.spectrum_)
        self.diversity_ = diversity
        if self.solver != "auto":
            return self._iterate(rng)
        solution = solve_modules(s, M, H, diversity, rng)
        self.loss_path_, self.n_iter_ = np.array([solution.loss]), 1
        self._certify(solution)
        modules = solution.modules[:, :, :k]
        padded = np.zeros((M, H, k))
        padded[:, :, : modules.shape[2]] = modules
        # C_m = G_m S^(-1) with G_m = F_mᵀ F_m: encode by F_m S^(-1), decode by F_mᵀ.
        return padded / s, padded.swapaxes(1, 2)

    def _iterate(self, rng):
        M, H, s, diversity = self.n_modules, self.n_components, self.spectrum_, self.diversity_
        options = {"max_iter": self.max_iter, "tol": self.tol, "verbose": self.verbose, "rng": rng}
        if self.solver == "backfit":
            descent = backfit(s, M, H, diversity, **options)
        else:
            if self.learning_rate is not None:
                options["learning_rate"] = self.learning_rate
            descent = gradient_descent(s, M, H, diversity, **options)
        self.loss_path_, self.n_iter_ = descent.path, len(descent.path) - 1
        warn_if_unsettled(descent, self.solver, stacklevel=5)
        encoders, decoders = descent.modules.encoders, descent.modules.decoders
        maps = (decoders @ encoders) * s  # C_m S, which plays G_m
        own = np.einsum("mii->mi", maps)
        beside = np.sqrt(np.maximum(np.sum(maps**2, axis=1) - own**2, 0.0))
        coverage, n_shared = pad_spectrum(own.mean(axis=0), M * H), count_equal(own, beside)
        loss, bound = float(np.nanmin(descent.path)), lower_bound(s, M, H, diversity)
        self._certify(ModularSolution(encoders, coverage, n_shared, loss, bound, float(s @ s)))
        return encoders, decoders

    def _certify(self, solution):
        self.loss_, self.lower_bound_ = solution.loss, solution.lower_bound
        self.optimality_gap_ = solution.optimality_gap
        self.coverage_, self.n_shared_ = solution.coverage, solution.n_shared

    @available_if(is_linear)
    def with_diversity(self, diversity):
        """The same model at another diversity, from the principal axes that this one holds.

        Parameters
        ----------
        diversity : float
            λ in [0, 1].

        Returns
        -------
        ModularAutoencoder
            A fitted copy; the axes are shared with this one.
        """
        check_is_fitted(self, "components_")
        refuse_larger_shape(self)
        other = copy.copy(self)
        other.set_params(diversity=diversity, solver="auto")
        other._check_parameters()
        other._set_modules(*other._choose_modules(None, other._generator()))
        return other
