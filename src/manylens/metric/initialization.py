"""Where the search for A starts: a linear map, and the scale at which to use it.

NCA's objective knows a length: the kernel's. At a scale too small every p_ij is the same, at one too large
each row sees its nearest neighbor only, and either way the gradient says little. The scale is therefore
looked for, by the objective itself, before anything else is learned.
"""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.utils import check_array

from manylens.metric.batching import subsample
from manylens.metric.compact import Compact
from manylens.metric.gaussian import Gaussian
from manylens.metric.layout import class_layout

SAMPLE = 2000  # rows on which a scale is looked for
ANCHORS = 500  # of them, where each is scored against all rows
PCA_SAMPLE = 20_000  # rows from which the first directions are taken
INITS = ("auto", "pca", "lda", "identity", "random")


def choose_init(n_rows, n_features, n_components, n_classes, batches):
    """The start that "auto" stands for, as in scikit-learn; never "lda" where A is learned from batches.

    From LDA's few directions, whose spread between classes is already as large as it gets, noisy steps lead
    down to a collapsed map.

    Parameters
    ----------
    n_rows, n_features, n_components, n_classes : int
        Sizes of the problem.
    batches : bool
        Whether the optimizer sees batches.

    Returns
    -------
    {"lda", "pca", "identity"}
    """
    if not batches and n_components <= min(n_features, n_classes - 1) and n_rows > n_classes:
        return "lda"
    if n_components < min(n_features, n_rows):
        return "pca"
    return "identity"


def initial_map(init, X, y, n_components, rng):
    """The map that `init` names, its rows of length one in the mean.

    Parameters
    ----------
    init : {"pca", "lda", "identity", "random"}
        Which.
    X : ndarray, shape (n, n_features)
        Rows; a sample of them does.
    y : ndarray, shape (n,)
        Their classes.
    n_components : int
        Number of rows of the map.
    rng : numpy.random.RandomState
        For "random", and for the solver of PCA.

    Returns
    -------
    ndarray of float64, shape (n_components, n_features)
    """
    n_features = X.shape[1]
    if init == "identity":
        A = np.eye(n_components, n_features)
    elif init == "random":
        A = rng.standard_normal((n_components, n_features))
    elif init == "pca":
        solver = "covariance_eigh" if n_features <= 2000 and len(X) > n_features else "auto"
        A = PCA(n_components, svd_solver=solver, random_state=rng).fit(X).components_
    else:
        A = LinearDiscriminantAnalysis().fit(X, y).scalings_.T[:n_components]
        if len(A) < n_components:  # the classes differ in fewer directions
            rest = PCA(n_components - len(A), random_state=rng).fit(X).components_
            A = np.concatenate([A, rest * np.sqrt(np.square(A).sum(axis=1).mean())])
    A = np.asarray(A, np.float64)
    return A * (np.sqrt(n_components) / np.linalg.norm(A))


def median_neighbor_distance(Z):
    """Median over the rows of `Z`, shape (n, d), of the distance to the nearest other row."""
    squared = np.einsum("ij,ij->i", Z, Z)
    distances = squared[:, None] + squared - 2 * Z @ Z.T
    np.fill_diagonal(distances, np.inf)
    return float(np.sqrt(max(0.0, np.median(distances.min(axis=1)))))


def find_scale(value, start, most=12):
    """Scale s at which value(s) is largest, by doubling and halving, then two finer steps.

    Parameters
    ----------
    value : callable
        Objective as a function of the scale.
    start : float
        Where to begin; positive.
    most : int, default=12
        Doublings or halvings at most.

    Returns
    -------
    float
    """
    best, best_value = start, value(start)
    for factor in (2.0, 0.5):
        for _ in range(most):
            trial = value(best * factor)
            if not trial > best_value:
                break
            best, best_value = best * factor, trial
        if best != start:
            break
    for factor in (2.0**0.5, 2.0**0.25):
        for scale in (best * factor, best / factor):
            trial = value(scale)
            if trial > best_value:
                best, best_value = scale, trial
    return best


def first_guess(Z):
    """A scale that gives the rows of `Z` a length near the kernel's: one over a typical distance."""
    typical = median_neighbor_distance(Z)
    if not typical > 0:  # most rows have a twin
        typical = float(np.sqrt(np.mean(np.var(Z, axis=0))))
    return 1.0 / typical if typical > 0 else 1.0


def scale_for(Z, labels, objective, alone, dtype, rng):
    """The scale at which projected rows serve `objective` best.

    The Gaussian is judged by its likelihood: the expected accuracy of a good map goes on rising to a scale
    where each row sees one neighbor and no gradient is left. Compact support punishes that itself, since
    rows out of reach score nothing; with a background it is judged without, or the background would do
    everything at a scale where no row reaches another.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        Rows under the unscaled map.
    labels : ndarray of int, shape (n,)
        Classes.
    objective : Objective
        What will be maximized.
    alone : int or None
        Number of rows that will be scored among themselves; None where it is all of them.
    dtype : dtype
        Arithmetic of the pairs.
    rng : numpy.random.RandomState
        Chooses the rows to look at.

    Returns
    -------
    float
    """
    rows = subsample(labels, SAMPLE if alone is None else min(SAMPLE, alone), rng)
    start = first_guess(Z[rows])
    if objective.anchors and alone is None and len(rows) < len(Z):
        layout = class_layout(labels)
        anchors = rng.permutation(rows)[:ANCHORS]
        likelihood = Gaussian("likelihood", rough=True)

        def value(scale):
            return likelihood.evaluate_anchors(Z * scale, layout, anchors, dtype).scores.mean()
    else:
        layout = class_layout(np.unique(labels[rows], return_inverse=True)[1])
        judge = Gaussian("likelihood", rough=True) if objective.anchors else Compact()

        def value(scale):
            return judge.evaluate(Z[rows] * scale, layout, dtype=dtype).scores.mean()

    return find_scale(value, start)


def unscaled_start(init, X, labels, n_components, batches, rng):
    """The first A before it is scaled, by the name of a start or as an array of the right shape.

    Parameters
    ----------
    init : str or array-like
        One of `INITS`, or A itself.
    X : ndarray, shape (n, n_features)
        Rows.
    labels : ndarray of int, shape (n,)
        Classes.
    n_components : int
        Rows of A.
    batches : bool
        Whether the optimizer sees batches.
    rng : numpy.random.RandomState
        Randomness.

    Returns
    -------
    ndarray of float64, shape (n_components, n_features)
    """
    if isinstance(init, str):
        if init not in INITS:
            raise ValueError(f"init={init!r} is unknown. Choose one of {', '.join(INITS)}, or an array.")
        if init == "auto":
            init = choose_init(len(X), X.shape[1], n_components, labels.max() + 1, batches)
        rows = subsample(labels, PCA_SAMPLE, rng)
        return initial_map(init, X[rows], labels[rows], n_components, rng)
    A = check_array(init, dtype=np.float64)
    if A.shape != (n_components, X.shape[1]):
        raise ValueError(
            f"init has shape {A.shape}, but n_components={n_components} and {X.shape[1]} features need "
            f"{(n_components, X.shape[1])}."
        )
    return A
