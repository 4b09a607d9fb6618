"""Compact support with a Gaussian behind each class, so that no row is ever out of everyone's reach.

With N_c rows in class c, mixing coefficient b_c and kernel constant K (the kernel integrates to 1/K over the
unit ball of d dimensions), the class densities of eq. 4.18, times N_c, are

    h_c(z) = (1 - b_c) K Σ_{j in c} k(|z - z_j|²) + N_c b_c N(z | mean_c, cov_c),

    p_i = h_{c_i}(z_i) / Σ_c h_c(z_i),       b_c = 1 / (N_c + 1), or one b learned for all classes.

Mean and covariance are those of the projected rows of the class, so all of it is a function of Z.
"""

import numpy as np
from scipy.special import expit, gammaln

from manylens.metric.objectives import Objective, Outcome, force_coefficients, forces_from_moments
from manylens.metric.pairs import ALL_PAIRS, arithmetic, pair_moments, pair_sums

# Added to every class covariance, in units of the kernel's reach: a class of one row, or one flattened into
# a plane, still has a density.
RIDGE = 1e-3


def kernel_constant(d):
    """K = Γ(d/2 + 3) / (2 π^(d/2)): K (1 - |z|²)² integrates to one over the unit ball of d dimensions.

    Parameters
    ----------
    d : int
        Dimensions; 15/16 for d = 1.

    Returns
    -------
    float
    """
    return float(np.exp(gammaln(d / 2 + 3) - np.log(2) - d / 2 * np.log(np.pi)))


class ClassGaussians:
    """The normal density of each class of projected rows, and how it pulls on them.

    Parameters
    ----------
    Z : ndarray, shape (n, d)
        Projected rows.
    layout : Layout
        Their classes.
    """

    def __init__(self, Z, layout):
        n, d = Z.shape
        self.Z, self.labels, self.counts = Z, layout.labels, layout.counts
        n_classes = len(layout.counts)
        self.members = [np.flatnonzero(layout.labels == c) for c in range(n_classes)]
        self.pulls = np.empty((n_classes, n, d))  # v_ic = cov_c⁻¹ (z_i - mean_c)
        self.inverses = np.empty((n_classes, d, d))
        self.log_density = np.empty((n, n_classes))
        for c, rows in enumerate(self.members):
            mean = Z[rows].mean(axis=0)
            centered = Z[rows] - mean
            covariance = centered.T @ centered / len(rows) + RIDGE * np.eye(d)
            self.inverses[c] = np.linalg.inv(covariance)
            self.pulls[c] = (Z - mean) @ self.inverses[c]
            squares = np.einsum("ij,ij->i", Z - mean, self.pulls[c])
            log_volume = np.linalg.slogdet(covariance)[1] + d * np.log(2 * np.pi)
            self.log_density[:, c] = -0.5 * (squares + log_volume)

    def forces(self, slopes):
        """Gradient with respect to Z of a function whose slopes in the log densities are given.

        Through z_i itself -t v; through the mean, which every member moves by 1/N_c; and through the
        covariance, H = ½ Σ_i t_i (v_i v_iᵀ - cov⁻¹), whose change with a member is 2 H (z_j - mean) / N_c.

        Parameters
        ----------
        slopes : ndarray, shape (n, n_classes)
            t_ic = ∂f / ∂ log N(z_i | mean_c, cov_c).

        Returns
        -------
        ndarray, shape (n, d)
        """
        forces = np.zeros_like(self.Z)
        for c, rows in enumerate(self.members):
            t, v = slopes[:, c], self.pulls[c]
            forces -= t[:, None] * v
            spread = 0.5 * ((t[:, None] * v).T @ v - t.sum() * self.inverses[c])
            centered = self.Z[rows] - self.Z[rows].mean(axis=0)
            forces[rows] += (t @ v + 2.0 * centered @ spread) / len(rows)
        return forces


class CompactBackground(Objective):
    """Compact support mixed with a normal density for each class.

    Parameters
    ----------
    form : {"accuracy", "likelihood"}, default="accuracy"
        Sum of p_i, or of log p_i.
    mixing : {"fixed", "learned"}, default="fixed"
        b_c = 1 / (N_c + 1), or one b for all classes that is learned with A (as its log odds).
    """

    kernel = "compact-background"

    def __init__(self, form="accuracy", mixing="fixed"):
        super().__init__(form)
        self.mixing = mixing
        self.n_extra = int(mixing == "learned")

    def initial_extra(self, counts):
        mean_size = np.mean(counts)
        return np.full(self.n_extra, -np.log(mean_size))  # the log odds of 1 / (N_c + 1) at the mean size

    def coefficients(self, counts, extra):
        """b_c of each class, shape (n_classes,)."""
        if self.n_extra:
            return np.full(len(counts), expit(extra[0]))
        return 1.0 / (counts + 1.0)

    def evaluate(self, Z, layout, pairs=ALL_PAIRS, dtype=np.float64, extra=None):
        Z = np.asarray(Z, np.float64)
        Z = Z - Z.mean(axis=0)
        rows = np.arange(len(Z))
        labels, counts = layout.labels, layout.counts
        b = self.coefficients(counts, extra)
        constant = kernel_constant(Z.shape[1])
        tiles = layout.place(Z, arithmetic(Z, dtype))
        near = [sums[layout.slots] for sums in pair_sums(tiles, layout, pairs, True, (1 - b) * constant)]
        gaussians = ClassGaussians(Z, layout)
        behind = counts * b * np.exp(gaussians.log_density)  # (n, n_classes)
        own_sum = near[0] + behind[rows, labels]
        total = near[0] + near[1] + behind.sum(axis=1)
        reached = total > 0
        own, cross = force_coefficients(own_sum, total, self.form)
        by_slot = np.zeros((2, layout.n_slots))
        by_slot[:, layout.slots] = own, cross
        moments = pair_moments(tiles, layout, pairs, True, by_slot[0], by_slot[1], (1 - b) * constant)
        forces = forces_from_moments(tiles, moments, layout, 1.0)
        # ∂score_i/∂h_c is -own for the row's class and -cross for the others.
        slopes = -cross[:, None] * behind
        slopes[rows, labels] = -own * behind[rows, labels]
        forces += gaussians.forces(slopes)
        p = np.divide(own_sum, total, out=np.zeros_like(total), where=reached)
        scores = p if self.form == "accuracy" else np.log(p, out=np.zeros_like(p), where=p > 0)
        return Outcome(scores, forces, self.extra_gradient(near, own, cross, slopes, b))

    def extra_gradient(self, near, own, cross, slopes, b):
        """With b = expit(t): ∂b/∂t = b (1 - b), the compact part goes as 1 - b and the normal one as b."""
        if not self.n_extra:
            return np.empty(0)
        compact = -(own * near[0] + cross * near[1]).sum() / (1 - b[0])
        return np.array([(slopes.sum() / b[0] - compact) * b[0] * (1 - b[0])])
