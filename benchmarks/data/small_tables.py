"""Small tables that come with scikit-learn, standardized."""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

LOADERS = {
    "wine": load_wine,
    "iris": load_iris,
    "breast cancer": load_breast_cancer,
    "digits": load_digits,
}


def table(name):
    """Rows with standardized columns (constant ones left out) and classes."""
    X, y = LOADERS[name](return_X_y=True)
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def leave_one_out_error(Z, y):
    """Error (%) of the nearest other row."""
    squared = np.sum(Z**2, axis=1)
    distances = squared[:, None] + squared - 2 * Z @ Z.T
    np.fill_diagonal(distances, np.inf)
    return 100 * float(np.mean(y[distances.argmin(axis=1)] != y))
