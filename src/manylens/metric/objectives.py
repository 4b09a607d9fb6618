"""What NCA maximizes: scores of projected points, and the force on each of them.

Every objective here is a function of the projected points Z = X Aᵀ alone, so that one gradient with respect
to Z serves them all, and  ∂f/∂A = (∂f/∂Z)ᵀ X  costs O(n d D) beside the O(n² d) of the pairs.

With squared distances D_ij = |z_i - z_j|², a kernel k and p_ij = k(D_ij) / Σ_{l≠i} k(D_il), a row's
probability of being taken for its own class is p_i = Σ_{j in class(i), j≠i} p_ij. Its score is p_i (form
"accuracy": the expected number of rows put right) or log p_i (form "likelihood").
"""

from dataclasses import dataclass

import numpy as np

from manylens.metric.pairs import ALL_PAIRS

FORMS = ("accuracy", "likelihood")


@dataclass(frozen=True)
class Outcome:
    """An objective at one place.

    Parameters
    ----------
    scores : ndarray of float64, shape (n,)
        p_i or log p_i of each row.
    forces : ndarray of float64, shape (n, d)
        Gradient of the sum of the scores with respect to the projected points.
    extra : ndarray of float64, shape (n_extra,)
        Gradient with respect to the objective's own parameters.
    """

    scores: np.ndarray
    forces: np.ndarray
    extra: np.ndarray


def force_coefficients(same, total, form):
    """u of MATHS: the weight of a pair is w_ij = k_ij (own_i within a class, cross_i between).

    accuracy:    w_ij = p_ij (p_i - [same class]),      own = (p - 1) / S,      cross = p / S
    likelihood:  w_ij = p_ij (1 - [same class] / p_i),  own = 1/S - 1/P,        cross = 1 / S

    Parameters
    ----------
    same, total : ndarray, shape (n,)
        P_i and S_i, the kernel sums within the class and over all; positive where used, S = 0 elsewhere.
    form : {"accuracy", "likelihood"}
        Form of the objective.

    Returns
    -------
    own, cross : ndarray, shape (n,)
    """
    inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    p = same * inverse
    if form == "accuracy":
        return (p - 1.0) * inverse, p * inverse
    inverse_same = np.divide(1.0, same, out=np.zeros_like(same), where=(same > 0) & (total > 0))
    return inverse - inverse_same, np.where(inverse_same > 0, inverse, 0.0)


def forces_from_moments(tiles, moments, layout, unit):
    """∂f/∂z_i = 2 Σ_j g_ij (z_i - z_j) from Σ_j g_ij z_j and Σ_j g_ij, by row, shape (n, d)."""
    forces = moments[:, -1:] * tiles[:, :-1]
    forces -= moments[:, :-1]
    forces *= 2.0 * unit
    return layout.by_row(forces)


class Objective:
    """Base of the objectives: a kernel and a form.

    Parameters
    ----------
    form : {"accuracy", "likelihood"}, default="accuracy"
        Sum of p_i, or of log p_i.
    """

    kernel = ""
    anchors = False  # whether single rows can be evaluated against all
    n_extra = 0  # parameters besides A

    def __init__(self, form="accuracy"):
        self.form = form

    def initial_extra(self, counts):
        """Where the objective's own parameters start, shape (n_extra,)."""
        return np.empty(0)

    def evaluate(self, Z, layout, pairs=ALL_PAIRS, dtype=np.float64, extra=None):
        """Scores and forces of all rows.

        Parameters
        ----------
        Z : ndarray, shape (n, d)
            Projected points.
        layout : Layout
            Where the rows stand.
        pairs : TilePairs
            Which tiles meet.
        dtype : dtype
            Arithmetic of the pairs; sums over them are float64 in any case.
        extra : ndarray, shape (n_extra,), optional
            The objective's own parameters.

        Returns
        -------
        Outcome
        """
        raise NotImplementedError
