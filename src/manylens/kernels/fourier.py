"""Random Fourier features: psi without landmarks, for kernels of the difference x - y."""

import numpy as np
from scipy import linalg
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot

from manylens.kernels.feature_maps import FeatureMap, as_rows, refuse_without_landmarks
from manylens.kernels.kernels import RBF, Laplacian, fitted_kernel


class FourierMap(FeatureMap):
    """Random Fourier features, psi(x) = sqrt(2/R) [cos(w_j.x), sin(w_j.x)], j = 1 ... R/2.

    E psi(x).psi(y) = k(x, y) for the rbf kernel (Gaussian w) and the laplacian kernel (Cauchy w). Orthogonal
    frequencies (Yu et al. 2016) halve the variance or better, for the rbf kernel only.

    Parameters
    ----------
    kernel : Kernel, optional
        RBF (default) or Laplacian.
    rank : int
        Number of features R, even.
    orthogonal : bool or "auto"
        Whether the frequencies of a block are orthogonal; "auto" where the kernel allows it.
    random_state : int, RandomState or None
        Which frequencies.
    """

    kernels = (RBF, Laplacian)

    def __init__(self, kernel=None, rank=1000, orthogonal="auto", random_state=None):
        self.kernel = kernel
        self.rank = rank
        self.orthogonal = orthogonal
        self.random_state = random_state

    def fit(self, X, y=None):
        X = as_rows(X)
        random_state = check_random_state(self.random_state)
        refuse_without_landmarks(self.kernel, "fourier")
        self.kernel_ = fitted_kernel(self.kernel, X, random_state)
        if not isinstance(self.kernel_, self.kernels):
            raise ValueError(
                f"feature_map='fourier' draws frequencies of the rbf and laplacian kernels; "
                f"{type(self.kernel_).__name__} has none known here. Use feature_map='nystroem'."
            )
        if self.orthogonal is True and isinstance(self.kernel_, Laplacian):
            raise ValueError("Orthogonal frequencies are those of the rbf kernel: use orthogonal='auto'.")
        half = max(1, self.rank // 2)
        gamma = self.kernel_.gamma_
        if isinstance(self.kernel_, Laplacian):
            frequencies = gamma * random_state.standard_cauchy((X.shape[1], half))
        else:
            draw = gaussian_frequencies if self.orthogonal is False else orthogonal_frequencies
            frequencies = np.sqrt(2.0 * gamma) * draw(X.shape[1], half, random_state)
        self.frequencies_ = frequencies.astype(X.dtype)
        self.root_ = None
        return self

    def features(self, X):
        angles = safe_sparse_dot(X, self.frequencies_, dense_output=True)
        scale = np.sqrt(1.0 / angles.shape[1]).astype(angles.dtype)
        return scale * np.hstack([np.cos(angles), np.sin(angles)])

    @property
    def width(self):
        return 2 * self.frequencies_.shape[1]


def gaussian_frequencies(n_features, n_frequencies, random_state):
    """Independent standard normal columns.

    Parameters
    ----------
    n_features, n_frequencies : int
        Shape.
    random_state : RandomState
        Source.

    Returns
    -------
    ndarray, shape (n_features, n_frequencies)
        Frequencies.
    """
    return random_state.standard_normal((n_features, n_frequencies))


def orthogonal_frequencies(n_features, n_frequencies, random_state):
    """Columns with the norms of Gaussian vectors, orthogonal within blocks of `n_features` columns.

    Parameters
    ----------
    n_features, n_frequencies : int
        Shape.
    random_state : RandomState
        Source.

    Returns
    -------
    ndarray, shape (n_features, n_frequencies)
        Frequencies; each column alone is standard normal.
    """
    blocks = []
    for start in range(0, n_frequencies, n_features):
        width = min(n_features, n_frequencies - start)
        directions = linalg.qr(gaussian_frequencies(n_features, width, random_state), mode="economic")[0]
        lengths = np.sqrt(random_state.chisquare(n_features, size=width))
        blocks.append(directions * lengths)
    return np.hstack(blocks)
