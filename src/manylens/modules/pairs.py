"""Stochastic solvers of modular kernel PCA: gradients on random pairs of rows, modules dropped or not."""

import numpy as np

from manylens.modules.descent import descend, rescaled, spectrum_scale
from manylens.modules.loss import modular_loss


def pair_gradient(weights, left, right, diversity):
    """Gradient of the modular loss over given pairs of rows.

    With s_m = (W_m x).(W_m y) and k = x.y the loss of a pair is (1-λ) mean_m (s_m - k)² + λ (s̄ - k)².

    Parameters
    ----------
    weights : ndarray, shape (M, H, r)
        W.
    left, right : ndarray, shape (B, r)
        The rows x and y.
    diversity : float
        λ.

    Returns
    -------
    ndarray, shape (M, H, r)
        Mean over the pairs.
    """
    products, target, x_modules, y_modules = _pair_products(weights, left, right)
    M = len(weights)
    together = products.mean(axis=1) - target
    slope = 2 / M * ((1 - diversity) * (products - target[:, None]) + diversity * together[:, None])
    return _pull_back(slope, left, right, x_modules, y_modules)


def drop_gradient(weights, left, right, kept):
    """Gradient of the drop-module loss, (1/M Σ_m η_m s_m - k)², over given pairs of rows.

    Parameters
    ----------
    weights : ndarray, shape (M, H, r)
        W.
    left, right : ndarray, shape (B, r)
        The rows x and y.
    kept : ndarray, shape (B, M)
        η: which modules each pair keeps.

    Returns
    -------
    ndarray, shape (M, H, r)
        Mean over the pairs.
    """
    products, target, x_modules, y_modules = _pair_products(weights, left, right)
    M = len(weights)
    together = np.mean(kept * products, axis=1) - target
    return _pull_back(2 / M * kept * together[:, None], left, right, x_modules, y_modules)


def _pair_products(weights, left, right):
    M, H, r = weights.shape
    flat = weights.reshape(M * H, r).T
    x_modules = (left @ flat).reshape(-1, M, H)
    y_modules = (right @ flat).reshape(-1, M, H)
    products = np.einsum("bmh,bmh->bm", x_modules, y_modules)
    return products, np.einsum("br,br->b", left, right), x_modules, y_modules


def _pull_back(slope, left, right, x_modules, y_modules):
    B, M, H = x_modules.shape
    by_left = (slope[:, :, None] * y_modules).reshape(B, M * H)
    by_right = (slope[:, :, None] * x_modules).reshape(B, M * H)
    return ((by_left.T @ left + by_right.T @ right) / B).reshape(M, H, -1)


def stochastic_pairs(
    rows,
    spectrum,
    n_modules,
    n_components,
    diversity,
    *,
    rng,
    max_iter,
    tol,
    verbose=False,
    learning_rate=0.5,
    batch_size=64,
):
    """Stochastic gradient descent on random pairs of rows.

    Parameters
    ----------
    rows : ndarray, shape (n, r)
        Coordinates of the rows on the components, variances q.
    spectrum : ndarray, shape (r,)
        q.
    n_modules, n_components : int
        M and H.
    diversity : float
        λ.
    rng : numpy.random.Generator
        Source of the start and the pairs.
    max_iter : int
        Passes of n pairs at most.
    tol : float
        Share of the loss that five passes must gain on the five before.
    verbose : bool or int
        Whether to print progress.
    learning_rate : float
        First step, over the rows' mean squared norm; it falls as 1/(1 + pass/30), and is halved whenever a
        pass more than doubles the loss.
    batch_size : int
        Pairs a step.

    Returns
    -------
    Descent
        One entry of the path for each pass.
    """

    def gradient(weights, left, right):
        return pair_gradient(weights, left, right, diversity)

    return _descend_on_pairs(
        "sgd",
        rows,
        spectrum,
        (n_modules, n_components),
        gradient,
        diversity,
        1.0,
        rng=rng,
        max_iter=max_iter,
        tol=tol,
        verbose=verbose,
        learning_rate=learning_rate,
        batch_size=batch_size,
    )


def keep_probability_of(diversity, n_modules):
    """The p with diversity = M p / (1 + p (M-1)) (Theorem 2).

    Parameters
    ----------
    diversity : float
        λ in (0, 1].
    n_modules : int
        M.

    Returns
    -------
    float
        p = λ / (M - λ (M-1)).
    """
    if diversity == 0:
        raise ValueError(
            "solver='drop-module' keeps modules with probability p = 0 at diversity=0, and so learns "
            "nothing: choose a diversity above 0."
        )
    return diversity / (n_modules - diversity * (n_modules - 1))


def drop_module(
    rows,
    spectrum,
    n_modules,
    n_components,
    keep_probability,
    *,
    rng,
    max_iter,
    tol,
    verbose=False,
    learning_rate=0.5,
    batch_size=64,
):
    """Stochastic gradient descent on random pairs of rows with modules dropped at random.

    Its minimizers are those of the modular loss at λ = M p/(1 + p (M-1)), over sqrt(p/λ) (Theorem 2); the
    modules returned are scaled back, and the path is the modular loss.

    Parameters
    ----------
    rows : ndarray, shape (n, r)
        Coordinates of the rows on the components, variances q.
    spectrum : ndarray, shape (r,)
        q.
    n_modules, n_components : int
        M and H.
    keep_probability : float
        p.
    rng : numpy.random.Generator
        Source of the start, the pairs and the modules kept.
    max_iter : int
        Passes of n pairs at most.
    tol : float
        Share of the loss that five passes must gain on the five before.
    verbose : bool or int
        Whether to print progress.
    learning_rate : float
        As in `stochastic_pairs`.
    batch_size : int
        Pairs a step.

    Returns
    -------
    Descent
        One entry of the path for each pass.
    """
    diversity = n_modules * keep_probability / (1 + keep_probability * (n_modules - 1))

    def gradient(weights, left, right):
        kept = (rng.random((len(left), n_modules)) < keep_probability).astype(float)
        return drop_gradient(weights, left, right, kept)

    return _descend_on_pairs(
        "drop-module",
        rows,
        spectrum,
        (n_modules, n_components),
        gradient,
        diversity,
        np.sqrt(keep_probability / diversity),
        rng=rng,
        max_iter=max_iter,
        tol=tol,
        verbose=verbose,
        learning_rate=learning_rate,
        batch_size=batch_size,
    )


def _descend_on_pairs(
    name,
    rows,
    spectrum,
    shape,
    gradient,
    diversity,
    shrink,
    *,
    rng,
    max_iter,
    tol,
    verbose,
    learning_rate,
    batch_size,
):
    """`shrink` turns the solver's own weights into those whose modular loss is reported."""
    scale = spectrum_scale(spectrum)
    q, rows = spectrum / scale, rows / np.sqrt(scale)
    n, M = len(rows), shape[0]
    start = rng.standard_normal((*shape, len(q))) / np.sqrt(2 * shape[1] * max(1, np.sum(q > 0.01)))
    steps = max(1, n // batch_size)
    # A pair's curvature is at most the product of its squared norms: their mean, q.sum(), sets the step.
    first_rate = learning_rate * M / max(1.0, q.sum())

    def modules_of(state):
        return shrink * state[0] * np.sqrt(q)

    def loss_of(modules):
        return modular_loss(modules, q, diversity)

    def one_pass(state):
        weights, passes, rate = state
        before = loss_of(modules_of(state))
        for _ in range(steps):
            left, right = rows[rng.integers(n, size=batch_size)], rows[rng.integers(n, size=batch_size)]
            weights = weights - rate / (1 + passes / 30) * gradient(weights, left, right)
        after = loss_of(modules_of((weights,)))
        if not after < 2 * before:  # the step was too long for these rows: take the pass back and halve it
            return state[0], passes, rate / 2
        return weights, passes + 1, rate

    found = descend(
        name,
        (start, 0, first_rate),
        one_pass,
        modules_of,
        loss_of,
        max_iter=max_iter,
        tol=tol,
        verbose=verbose,
        window=5,
    )
    return rescaled(found, scale)
