"""Tables for node pruning: those on which its rules were chosen, and those on which it is judged."""

from typing import NamedTuple

import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_wine,
    make_classification,
    make_friedman2,
    make_friedman3,
)
from sklearn.model_selection import train_test_split

from manylens.datasets import load_dataset, make_friedman, make_shells

# benchmarks.tuning.pruning_nodes and pruning_limits use these, and nothing else may change a rule
CHOOSING = (
    "letter",
    "yeast",
    "optdigits",
    "digits",
    "shells",
    "clusters",
    "reg_cal_housing",
    "reg_abalone",
    "friedman",
    "friedman2",
    "friedman3",
)
# small draws of these have few held-out rows and nearly separable classes; ":3" means three of the classes
FEW_ROWS = (
    *("digits:2", "digits:3", "optdigits:3", "letter:2", "letter:3", "yeast:3", "separable", "separable2"),
    *("clusters", "shells", "friedman", "friedman2", "friedman3", "reg_abalone", "reg_cal_housing"),
)
# the benchmarks' claims are about these
JUDGED = (
    "isolet",
    "usps",
    "glass",
    "ionosphere",
    "ecoli",
    "balance",
    "breast_cancer",
    "wine",
    "reg_kin8nm",
    "diabetes",
)
VALUES = ("reg_cal_housing", "reg_abalone", "reg_kin8nm", "diabetes", "friedman", "friedman2", "friedman3")
BUNDLED = {
    "digits": load_digits,
    "breast_cancer": load_breast_cancer,
    "wine": load_wine,
    "diabetes": load_diabetes,
}
GENERATED = {
    "shells": lambda n, seed: make_shells(n, random_state=seed),
    "clusters": lambda n, seed: make_classification(
        n, 20, n_informative=8, n_classes=4, flip_y=0.05, random_state=seed
    ),
    "separable": lambda n, seed: make_separable(n, 3, seed),
    "separable2": lambda n, seed: make_separable(n, 2, seed),
    "friedman": lambda n, seed: make_friedman(n, random_state=seed),
    "friedman2": lambda n, seed: make_friedman2(n, noise=100.0, random_state=seed),
    "friedman3": lambda n, seed: make_friedman3(n, noise=0.1, random_state=seed),
}
NEEDED = tuple(name for name in (*CHOOSING, *JUDGED) if name not in BUNDLED and name not in GENERATED)
RARE = 5  # classes with fewer rows are left out
FREQUENT = 100  # rows of a class that may be one of few


def make_separable(n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of classes that hardly overlap."""
    shape = {"n_informative": 6, "n_redundant": 3, "n_clusters_per_class": 1}
    return make_classification(
        n, 13, n_classes=n_classes, class_sep=2.0, flip_y=0.0, random_state=seed, **shape
    )


class Draw(NamedTuple):
    """Training and test rows."""

    X: np.ndarray
    y: np.ndarray
    test: np.ndarray
    truth: np.ndarray


def draw(name: str, seed: int, most: int, most_test: int | None = None) -> Draw:
    """At most `most` training and `most_test` test rows of a table; a third of the rows are for testing.

    A name such as "digits:3" is a table with three of its frequent classes, drawn at random.
    """
    most_test = most if most_test is None else most_test
    name, _, n_classes = name.partition(":")
    if name in GENERATED:
        X, y = GENERATED[name](most + most_test, seed)
    elif name in BUNDLED:
        X, y = BUNDLED[name](return_X_y=True)
    else:
        table = load_dataset(name)
        X, y = table["X"], table["y"]
    X = np.asarray(X, dtype=np.float32).reshape(len(X), -1)
    if name in VALUES:
        y = np.asarray(y, dtype=np.float64)
    else:
        _, y, count = np.unique(y, return_inverse=True, return_counts=True)
        kept = np.flatnonzero(count >= (FREQUENT if n_classes else RARE))
        if n_classes:
            kept = np.random.RandomState(seed).permutation(kept)[: int(n_classes)]
        frequent = np.isin(y, kept)
        X, y = X[frequent], np.unique(y[frequent], return_inverse=True)[1]
    n = min(most, 2 * len(X) // 3)
    parts = train_test_split(
        X,
        y,
        train_size=n,
        test_size=min(most_test, len(X) - n),
        random_state=seed,
        stratify=None if name in VALUES else y,
    )
    return Draw(parts[0], parts[2], parts[1], parts[3])
