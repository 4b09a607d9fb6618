"""Refusals of what `NCA` cannot be fitted with, each in a sentence that says what to do."""

from numbers import Integral, Real

import numpy as np


def check_number(name, value, kind, least, above=False):
    """Refuse `value` unless it is a finite number of this kind, at least (or above) `least`.

    Parameters
    ----------
    name : str
        Name of the parameter.
    value : object
        What was given.
    kind : {Integral, Real}
        Kind of number.
    least : int
        Smallest value allowed.
    above : bool, default=False
        Whether `least` itself is refused.
    """
    good = isinstance(value, kind) and not isinstance(value, bool) and bool(np.isfinite(value))
    if not good or value < least or (above and value == least):
        noun = "an integer" if kind is Integral else "a finite number"
        bound = f"above {least}" if above else f"of at least {least}"
        raise ValueError(f"{name}={value!r} is not {noun} {bound}.")


def check_parameters(nca):
    """Refuse numbers among the parameters of `nca` that make no sense for any data.

    Parameters
    ----------
    nca : NCA
        The estimator.
    """
    check_number("max_iter", nca.max_iter, Integral, 1)
    check_number("tol", nca.tol, Real, 0)
    check_number("alpha", nca.alpha, Real, 0)
    if nca.batch_size is not None:
        check_number("batch_size", nca.batch_size, Integral, 2)
    if nca.init_scale != "auto":
        check_number("init_scale", nca.init_scale, Real, 0, above=True)
    if not (isinstance(nca.tolerance, Real) and 0 < float(nca.tolerance) < 1):
        raise ValueError(
            f"tolerance={nca.tolerance!r} is outside (0, 1): it is the part of a row's kernel sum that "
            "may be left out. 1e-3 is a good start."
        )


def check_components(n_components, n_features):
    """Number of rows of A for `n_features` features; as many as these where None was given.

    Parameters
    ----------
    n_components : int or None
        What was asked for.
    n_features : int
        Features of X.

    Returns
    -------
    int
    """
    if n_components is None:
        return n_features
    check_number("n_components", n_components, Integral, 1)
    if n_components > n_features:
        raise ValueError(
            f"n_components={n_components} is more than the {n_features} features of X: a linear map "
            f"cannot add dimensions. Choose at most {n_features}."
        )
    return int(n_components)
