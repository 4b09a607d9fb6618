"""Data and predictors shared by the pruning tests."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from manylens.datasets import make_friedman, make_shells
from manylens.pruning.alignment_pruner import read_members

X, y = make_friedman(400, random_state=0)
S, number = make_shells(400, random_state=0)
label = np.array(["inner", "middle", "outer"])[number]

REGRESSORS = [
    ("line", LinearRegression()),
    ("near", KNeighborsRegressor()),
    ("tree", DecisionTreeRegressor(random_state=0)),
]
CLASSIFIERS = [
    ("near", KNeighborsClassifier()),
    ("ridge", RidgeClassifier()),
    ("logit", LogisticRegression()),
]


@pytest.fixture(scope="session")
def forest():
    return RandomForestRegressor(40, random_state=0).fit(X, y)


def predictions(seed, n=60, p=8, C=1):
    """Random predictions (n, p, C) with different correlations with a target, and the target (n, C)."""
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((n, C))
    shares = rng.uniform(-0.3, 1, (p, 1))
    P = Y[:, None] * shares + rng.standard_normal((n, p, C)) + rng.standard_normal(p)[:, None]
    return P, Y


def centered(P, Y):
    """Predictions as centered columns (n C, p), and the centered target (n C,)."""
    P, Y = P - P.mean(axis=0), Y - Y.mean(axis=0)
    return P.transpose(0, 2, 1).reshape(-1, P.shape[1]), Y.ravel()


def weighted_sum(pruner, rows):
    """Scores (n, C) of a fitted pruner, from the predictions of all members of its ensemble."""
    P = read_members(pruner.ensemble_).predict(rows)
    return np.einsum("ikc,k->ic", P, pruner.weights_) + pruner.intercept_
