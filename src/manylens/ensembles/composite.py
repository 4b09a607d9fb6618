"""The composite distance of modules as a plain distance between coordinates, the most telling first.

For modules φ_1 ... φ_M the distance that retrieval ranks by is (1/M) Σ_m |φ_m(x) - φ_m(y)|², that is
|z(x) - z(y)|²/M with z the modules side by side. Any rotation of z keeps it; on the principal axes of z the
coordinates are uncorrelated with falling variances. For modular kernel PCA these are sqrt(t_i/q_i) c_i, the
kernel principal components weighted by how much the modules keep of each, and their variances are t_i.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.utils import gen_batches

from manylens.kernels.spectrum import leading_eigenpairs
from manylens.summaries import Moments, block_rows


@dataclass(frozen=True)
class CompositeAxes:
    """A rotation of the modules, side by side, that keeps their composite distance.

    Parameters
    ----------
    n_modules : int
        M.
    mean : ndarray, shape (MH,)
        Taken off first; distances do not change, rounding errors shrink.
    axes : ndarray, shape (MH, MH)
        Orthogonal, one column an axis.
    """

    n_modules: int
    mean: np.ndarray
    axes: np.ndarray

    def coordinates(self, Z):
        """Coordinates whose squared distances are composite distances, (z - mean) axes / sqrt(M).

        Parameters
        ----------
        Z : ndarray, shape (n, MH)
            Modules side by side.

        Returns
        -------
        ndarray, shape (n, MH)
            C-ordered, in the precision of Z.
        """
        mean, scale = self.mean.astype(Z.dtype), Z.dtype.type(self.n_modules**-0.5)
        axes = self.axes.astype(Z.dtype) * scale
        out = np.empty((len(Z), axes.shape[1]), dtype=Z.dtype)
        for batch in gen_batches(len(Z), block_rows(len(mean), Z.dtype.itemsize)):
            np.matmul(Z[batch] - mean, axes, out=out[batch])
        return out

    def columns(self, coordinates, part):
        """Some columns of the modules side by side, less their mean and over sqrt(M), from coordinates.

        Parameters
        ----------
        coordinates : ndarray, shape (n, MH)
            From `coordinates`.
        part : slice
            Which columns: those of one module, say.

        Returns
        -------
        ndarray, shape (n, width of the part)
            Rows as that module sees them, up to a shift and a scale that are common to all modules.
        """
        return coordinates @ self.axes[part].T.astype(coordinates.dtype)


def composite_axes(Z, n_modules):
    """Principal axes of the modules side by side.

    None is left out, not even those along which the base does not vary: queries may.

    Parameters
    ----------
    Z : ndarray, shape (n, MH)
        Modules of the base, side by side.
    n_modules : int
        M.

    Returns
    -------
    CompositeAxes
        Axes of falling variance.
    """
    moments = Moments(Z.shape[1])
    for batch in gen_batches(len(Z), block_rows(Z.shape[1], Z.dtype.itemsize)):
        moments.update(Z[batch])
    return CompositeAxes(n_modules, moments.mean, leading_eigenpairs(moments.covariance())[1])
