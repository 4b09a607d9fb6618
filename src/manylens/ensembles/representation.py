"""From rows to one view a module: what voting, retrieval and the diversity search share."""

import warnings

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted


def is_fitted(estimator):
    """Whether an estimator has been fitted, as scikit-learn sees it.

    Parameters
    ----------
    estimator : estimator
        Any.

    Returns
    -------
    bool
        True where `check_is_fitted` is content.
    """
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def check_modules(modules):
    """Refuse what is no set of modules.

    Parameters
    ----------
    modules : transformer
        To have `transform` and `split`.
    """
    missing = [name for name in ("transform", "split") if not hasattr(modules, name)]
    if isinstance(modules, type) or missing:
        raise TypeError(
            f"modules={modules!r} is no set of modules: give a transformer with transform and split, such as "
            "ModularKernelPCA(n_modules=15, n_components=20)."
        )


def fitted_modules(modules, X=None, y=None):
    """The modules as they are where they are fitted, else a copy fitted to the rows given.

    Parameters
    ----------
    modules : transformer
        With `transform` and `split`.
    X : array-like, shape (n, d), optional
        Rows to fit to.
    y : array-like, shape (n,), optional
        Targets, for modules that want them.

    Returns
    -------
    transformer
        Fitted.
    """
    check_modules(modules)
    if is_fitted(modules):
        return modules
    if X is None:
        raise NotFittedError(
            f"These modules ({type(modules).__name__}) are not fitted and there are no rows here to fit them "
            "to: call modules.fit(X) first."
        )
    return clone(modules).fit(X, y)


def transformed(modules, X):
    """The modules of rows that were checked already, against the names of their columns too.

    Parameters
    ----------
    modules : transformer
        Fitted.
    X : ndarray or CSR matrix, shape (n, d)
        Rows, without names.

    Returns
    -------
    ndarray, shape (n, sum of the widths)
        Modules side by side, whatever container the modules were told to return.
    """
    with warnings.catch_warnings():
        # Names were compared by `refuse_other_names`, and are gone since the rows became an array.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return np.asarray(modules.transform(X))


def refuse_other_names(modules, owner):
    """Raise where fitted modules know the columns by other names, or in another order, than their user.

    Parameters
    ----------
    modules : transformer
        Fitted.
    owner : estimator
        Which has just seen its own rows.
    """
    theirs, ours = (getattr(one, "feature_names_in_", None) for one in (modules, owner))
    if theirs is not None and ours is not None and not np.array_equal(theirs, ours):
        raise ValueError(
            f"The modules were fitted to columns named {', '.join(map(str, theirs[:4]))}, ...; these rows "
            f"have {', '.join(map(str, ours[:4]))}, ...: give the same columns in the same order."
        )


def module_views(modules, Z):
    """One array a module from what the modules' `transform` returned.

    Parameters
    ----------
    modules : transformer
        Fitted, with `split`.
    Z : array-like, shape (n, sum of the widths)
        Modules side by side.

    Returns
    -------
    list of ndarray, each of shape (n, width)
        Views of Z where `split` gives views. `split` may return an array (n, M, H) or a list of arrays.
    """
    parts = modules.split(Z)
    if isinstance(parts, np.ndarray):
        return [parts[:, m] for m in range(parts.shape[1])]
    return [np.asarray(part) for part in parts]
