"""How networks are trained: options, checked."""

from dataclasses import dataclass

import numpy as np
from sklearn.utils import check_scalar

from manylens.modules.networks import ACTIVATIONS

LEARNING_RATE = 1e-3  # Adam's customary step, for rows and targets of variance one


@dataclass(frozen=True)
class TrainingOptions:
    """How networks are trained.

    Parameters
    ----------
    diversity : float
        λ.
    learning_rate : float
        Of Adam.
    batch_size : int
        Rows a step.
    max_iter : int
        Passes over the rows at most.
    tol : float
        Share of the loss that counts as a gain.
    patience : int
        Passes without a gain after which training ends.
    validation_fraction : float
        Share of the rows held back to watch the loss on; with 0 the training loss is watched.
    device : str
        Where torch computes.
    verbose : bool or int
        Whether to print the loss: every ten passes, or with 2 every pass.
    """

    diversity: float
    learning_rate: float
    batch_size: int
    max_iter: int
    tol: float
    patience: int
    validation_fraction: float
    device: str
    verbose: int


def options_of(estimator, diversity):
    """The training options that an estimator's parameters spell, checked.

    Parameters
    ----------
    estimator : object
        With parameters named as those of `TrainingOptions`; a `learning_rate` of None is the customary one.
    diversity : float
        λ, checked already.

    Returns
    -------
    TrainingOptions
        Checked.
    """
    for name in ("batch_size", "max_iter", "patience"):
        check_scalar(getattr(estimator, name), name, (int, np.integer), min_val=1)
    real = (int, float, np.number)
    check_scalar(estimator.tol, "tol", real)
    check_scalar(
        estimator.validation_fraction,
        "validation_fraction",
        real,
        min_val=0,
        max_val=1,
        include_boundaries="left",
    )
    rate = LEARNING_RATE if estimator.learning_rate is None else estimator.learning_rate
    check_scalar(rate, "learning_rate", real, min_val=0, include_boundaries="neither")
    return TrainingOptions(
        diversity=diversity,
        learning_rate=float(rate),
        batch_size=int(estimator.batch_size),
        max_iter=int(estimator.max_iter),
        tol=float(estimator.tol),
        patience=int(estimator.patience),
        validation_fraction=float(estimator.validation_fraction),
        device=estimator.device,
        verbose=int(estimator.verbose),
    )


def hidden_widths(hidden):
    """Widths of hidden layers as a list.

    Parameters
    ----------
    hidden : int or sequence of int
        One layer, or several.

    Returns
    -------
    list of int
        At least 1 each.
    """
    widths = [hidden] if isinstance(hidden, int | np.integer) else list(hidden)
    for width in widths:
        check_scalar(width, "hidden", (int, np.integer), min_val=1)
    return [int(width) for width in widths]


def check_activation(activation):
    """Raise where an activation is not known.

    Parameters
    ----------
    activation : str
        Its name.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation={activation!r} is unknown: give one of {', '.join(ACTIVATIONS)}.")
