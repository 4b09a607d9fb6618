"""Scores that guess, before any training, how well a linear model on given features would do.

Each takes the features (n, d), or a source model's class probabilities (n, Z), and the target; larger is
better.
"""

import numpy as np
from scipy.special import xlogy
from sklearn.covariance import ledoit_wolf

from manylens.alignment.inner_products import alignments


def alignment_score(X, Y):
    """Linear CKA of the features (n, d) with the target columns (n, C)."""
    return float(alignments([X, Y.astype(X.dtype)], ["the features", "y"])[0, 1])


def log_evidence(X, Y, tolerance=1e-6, most=300):
    """LogME (You et al. 2021): largest log evidence of Bayesian linear regression, per row.

    y ~ N(0, I/β + X Xᵀ/α), with α and β at the fixed point of MacKay's equations: with σ_i the singular
    values of X, z = Uᵀy, γ = Σ β σ_i²/(α + β σ_i²):  α = γ/|m|²,  β = (n - γ)/|Xm - y|².

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Features, as they are (not centered).
    Y : ndarray, shape (n, C)
        Target columns; constant ones are left out.
    tolerance : float
        Relative change of α/β at which the iteration ends.
    most : int
        Most iterations.

    Returns
    -------
    float
        Mean of the log evidence over columns, divided by n.
    """
    X, Y = X.astype(np.float64), Y[:, np.ptp(Y, axis=0) > 0]
    n = len(X)
    squares, projections = left_projections(X, Y)
    outside = np.maximum((Y**2).sum(axis=0) - projections.sum(axis=0), 0.0)
    least = np.finfo(np.float64).eps * (Y**2).sum(axis=0)  # keeps β finite where X explains y entirely
    alpha = np.ones(Y.shape[1])
    beta = np.ones(Y.shape[1])
    for _ in range(most):
        ratio = alpha / beta
        shrunk = ratio + squares[:, np.newaxis]
        gamma = (squares[:, np.newaxis] / shrunk).sum(axis=0)
        size = (projections * squares[:, np.newaxis] / shrunk**2).sum(axis=0)
        residual = (projections * (ratio / shrunk) ** 2).sum(axis=0) + outside
        alpha = gamma / np.maximum(size, least)
        beta = np.maximum(n - gamma, n * np.finfo(np.float64).eps) / np.maximum(residual, least)
        if np.all(abs(alpha / beta - ratio) <= tolerance * ratio):
            break
    ratio = alpha / beta
    shrunk = ratio + squares[:, np.newaxis]
    size = (projections * squares[:, np.newaxis] / shrunk**2).sum(axis=0)
    residual = (projections * (ratio / shrunk) ** 2).sum(axis=0) + outside
    evidence = n * np.log(beta / (2 * np.pi)) - beta * residual - alpha * size
    evidence += np.log(ratio / shrunk).sum(axis=0)
    return float(np.mean(evidence) / (2 * n))


def left_projections(X, Y):
    """Squared singular values of X (n, d) and squares of Uᵀ Y, from the smaller Gram matrix.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    Y : ndarray, shape (n, C)

    Returns
    -------
    squares : ndarray, shape (r,)
        σ², those that are zero up to rounding left out.
    projections : ndarray, shape (r, C)
        (Uᵀ Y)².
    """
    n, d = X.shape
    values, vectors = np.linalg.eigh(X.T @ X if d <= n else X @ X.T)
    kept = values > max(n, d) * np.finfo(np.float64).eps * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    if d <= n:
        return values, (vectors.T @ (X.T @ Y)) ** 2 / values[:, np.newaxis]
    return values, (vectors.T @ Y) ** 2


def class_means(X, codes):
    """Mean of each class (C, d), and the share of each (C,)."""
    counts = np.bincount(codes)
    sums = np.zeros((len(counts), X.shape[1]))
    np.add.at(sums, codes, X)
    return sums / counts[:, np.newaxis], counts / len(codes)


def between_covariance(X, codes):
    """Covariance of E[x | y], shape (d, d)."""
    means, shares = class_means(X, codes)
    residual = means - shares @ means
    return residual.T @ (residual * shares[:, np.newaxis])


def h_score(X, codes):
    """H-score (Bao et al. 2019): tr(Cov(x)⁺ Cov(E[x | y])), the sum of squared canonical correlations.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Features.
    codes : ndarray of int, shape (n,)
        Classes 0 ... C - 1.

    Returns
    -------
    float
        Between 0 and C - 1; with d near n it says nothing, as any covariance can then be matched.
    """
    X = X.astype(np.float64)
    covariance = np.cov(X.T, bias=True).reshape(X.shape[1], X.shape[1])
    return float(np.sum(np.linalg.pinv(covariance, hermitian=True) * between_covariance(X, codes)))


def shrunk_h_score(X, codes):
    """Regularized H-score (Ibrahim, Ponomareva and Mazumder 2022): Cov(x) shrunk as Ledoit and Wolf advise.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Features.
    codes : ndarray of int, shape (n,)
        Classes 0 ... C - 1.

    Returns
    -------
    float
        tr(Σ_s⁻¹ (1 - s) Cov(E[x | y])) with shrinkage s.
    """
    X = X.astype(np.float64)
    covariance, shrinkage = ledoit_wolf(X)
    between = between_covariance(X, codes)
    return float((1 - shrinkage) * np.trace(np.linalg.solve(covariance, between)))


def coding_rate(Z, epsilon=1e-4):
    """½ log det(I + ZᵀZ/(n ε)), from the smaller Gram matrix; Z has shape (n, d)."""
    n, d = Z.shape
    gram = Z.T @ Z if d <= n else Z @ Z.T
    return 0.5 * np.linalg.slogdet(np.eye(len(gram)) + gram / (n * epsilon))[1]


def trans_rate(X, codes):
    """TransRate (Huang et al. 2022): coding rate of the features minus its mean over classes.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Features; they are centered first.
    codes : ndarray of int, shape (n,)
        Classes 0 ... C - 1.

    Returns
    -------
    float
        R(Z) - (1/C) Σ_c R(Z_c), with ε = 1e-4 as the authors have it; the scale of X matters.
    """
    Z = X.astype(np.float64)
    Z = Z - Z.mean(axis=0)
    classes = np.unique(codes)
    return float(coding_rate(Z) - np.mean([coding_rate(Z[codes == c]) for c in classes]))


def log_expected_prediction(P, codes):
    """LEEP (Nguyen et al. 2020): mean log likelihood of y when source classes are mapped to target classes.

    With θ_i the source probabilities of row i and p(y, z) = (1/n) Σ_i [y_i = y] θ_iz, it is
    (1/n) Σ_i log Σ_z p(y_i | z) θ_iz.

    Parameters
    ----------
    P : ndarray, shape (n, Z)
        Probabilities of the source classes.
    codes : ndarray of int, shape (n,)
        Classes 0 ... C - 1.

    Returns
    -------
    float
        At most zero.
    """
    conditional = target_given_source(P, codes)
    return float(np.mean(np.log(np.einsum("iz,iz->i", P, conditional[codes]))))


def negative_conditional_entropy(P, codes):
    """NCE (Tran, Nguyen and Hassner 2019): -H(Y | Z), Z the most probable source class of each row.

    Parameters
    ----------
    P : ndarray, shape (n, Z)
        Probabilities of the source classes.
    codes : ndarray of int, shape (n,)
        Classes 0 ... C - 1.

    Returns
    -------
    float
        At most zero; zero where the source class tells the target class.
    """
    hard = np.eye(P.shape[1])[P.argmax(axis=1)]
    conditional = target_given_source(hard, codes)
    return float(np.sum(hard.mean(axis=0) * xlogy(conditional, conditional).sum(axis=0)))


def target_given_source(P, codes):
    """p(y | z), shape (C, Z), from source probabilities (n, Z) and classes (n,); zero where z has no mass."""
    joint = np.zeros((codes.max() + 1, P.shape[1]))
    np.add.at(joint, codes, P)
    mass = joint.sum(axis=0)
    return np.divide(joint, mass, out=np.zeros_like(joint), where=mass > 0)
