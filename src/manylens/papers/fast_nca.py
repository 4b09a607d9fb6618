"""Reducing the computational cost of NCA: the algorithms of the chapter (Sections 4.1 to 4.6), as written.

A is a map (d, D), X holds rows (N, D), y their classes, and Z = X Aᵀ the projected rows (N, d). Arrays are
N x N: this code is for reading; `manylens.NCA` is the fast version. "Until convergence" is replaced by a
fixed number of iterations, and the learning rate falls as 1 / sqrt(t).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.random import Generator
from scipy.spatial.distance import cdist
from scipy.special import gamma, logsumexp
from scipy.stats import multivariate_normal

from manylens.typing import BoolArray, FloatArray, IntArray

Clusters: TypeAlias = Literal["random", "fpc", "rpc"]
CutOff: TypeAlias = Literal["chapter", "bounded"]
RATE = 0.01  # the first learning rate
LEAF_SIZE = 8  # most points in a leaf of a k-d tree
Gradient: TypeAlias = Callable[[FloatArray, FloatArray, IntArray], FloatArray]  # (A, X, y) -> (d, D)


# --- the objective, by definition (Section 3.1) ---


def squared_distances(Z: FloatArray) -> FloatArray:
    """D_ij = |z_i - z_j|², shape (N, N)."""
    return cdist(Z, Z, "sqeuclidean")


def same_class(y: IntArray) -> BoolArray:
    """Whether j is another row of the class of i, shape (N, N)."""
    same = y[:, None] == y[None]
    np.fill_diagonal(same, False)
    return same


def assignments(Z: FloatArray) -> FloatArray:
    """p_ij = exp(-D_ij) / Σ_{k≠i} exp(-D_ik), p_ii = 0 (eq. 3.1), by the log-sum-exp trick."""
    exponent = -squared_distances(Z)
    np.fill_diagonal(exponent, -np.inf)
    return np.exp(exponent - logsumexp(exponent, axis=1, keepdims=True))


def log_probabilities(Z: FloatArray, y: IntArray) -> FloatArray:
    """log p_i with p_i = Σ_{j in c_i} p_ij (eq. 4.3); -inf for a row alone in its class."""
    exponent = -squared_distances(Z)
    np.fill_diagonal(exponent, -np.inf)
    own = np.where(same_class(y), exponent, -np.inf)
    return logsumexp(own, axis=1) - logsumexp(exponent, axis=1)


def probabilities(Z: FloatArray, y: IntArray) -> FloatArray:
    """p_i, the probability that row i picks a neighbor of its own class."""
    return np.exp(log_probabilities(Z, y))


def objective(A: FloatArray, X: FloatArray, y: IntArray) -> float:
    """f(A) = Σ_i p_i."""
    return float(probabilities(X @ A.T, y).sum())


def gradient(A: FloatArray, X: FloatArray, y: IntArray) -> FloatArray:
    """∂f/∂A = 2A Σ_i (p_i Σ_k p_ik x_ik x_ikᵀ - Σ_{j in c_i} p_ij x_ij x_ijᵀ)."""
    Z = X @ A.T
    weights = assignments(Z) * (probabilities(Z, y)[:, None] - same_class(y))
    return 2 * A @ scatter(weights, X)


def scatter(weights: FloatArray, X: FloatArray) -> FloatArray:
    """Σ_ij w_ij x_ij x_ijᵀ with x_ij = x_i - x_j, shape (D, D)."""
    degrees = np.diag(weights.sum(axis=0) + weights.sum(axis=1))
    return X.T @ (degrees - weights - weights.T) @ X


# --- class-conditional kernel density estimation (Section 3.2) ---


def class_densities(kernel: FloatArray, y: IntArray) -> FloatArray:
    """p(z_i|c) = 1/N_c Σ_{j in c, j≠i} k(z_i|z_j), shape (N, n_classes), from k with zero diagonal."""
    return np.stack([kernel[:, y == c].mean(axis=1) for c in np.unique(y)], axis=1)


def posteriors(densities: FloatArray, y: IntArray) -> FloatArray:
    """p_i = p(z_i|c_i) p(c_i) / Σ_c p(z_i|c) p(c) with p(c) = N_c / N (eq. 3.13); 0/0 is 0."""
    _, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    joint = densities * counts / len(y)
    total = joint.sum(axis=1)
    return joint[np.arange(len(y)), labels] / np.where(total > 0, total, 1)


# --- 4.1 Sub-sampling ---


def ascend(
    A: FloatArray, X: FloatArray, y: IntArray, n_iter: int, rate: float = RATE, slope: Gradient = gradient
) -> FloatArray:
    """Gradient ascent on all rows: A <- A + η ∂f/∂A."""
    for t in range(n_iter):
        A = A + rate / np.sqrt(1 + t) * slope(A, X, y)
    return A


def learn_from_subsample(
    A: FloatArray, X: FloatArray, y: IntArray, n: int, rng: Generator, n_iter: int = 100
) -> FloatArray:
    """The map learned from a random subset of n rows, to be applied to all rows."""
    rows = rng.permutation(len(X))[:n]
    return ascend(A, X[rows], y[rows], n_iter)


# --- 4.2 Mini-batches ---


def farthest_point_clusters(points: FloatArray, n_clusters: int, rng: Generator) -> list[IntArray]:
    """Algorithm 4.2: each center is the point farthest from all centers so far; points go to the nearest."""
    centers = [int(rng.integers(len(points)))]
    while len(centers) < n_clusters:
        centers.append(int(cdist(points, points[centers]).min(axis=1).argmax()))
    cluster = cdist(points, points[centers]).argmin(axis=1)
    return [np.flatnonzero(cluster == number) for number in range(n_clusters)]


def recursive_projection_clusters(
    points: FloatArray, size: int, rng: Generator, rows: IntArray | None = None
) -> list[IntArray]:
    """Algorithm 4.3: project onto the line through two random points, split at the median, recurse.

    The points are split by rank, which is the median if there are no ties.
    """
    rows = np.arange(len(points)) if rows is None else rows
    if len(rows) <= size:
        return [rows]
    one, two = points[rng.choice(rows, 2, replace=False)]
    ranked = rows[np.argsort(points[rows] @ (two - one))]
    halves = np.split(ranked, [len(rows) // 2])
    return [part for half in halves for part in recursive_projection_clusters(points, size, rng, half)]


def random_batches(n_rows: int, size: int, rng: Generator) -> list[IntArray]:
    """Random selection: a new allocation for each pass."""
    return np.array_split(rng.permutation(n_rows), max(1, round(n_rows / size)))


def learn_from_minibatches(
    A: FloatArray,
    X: FloatArray,
    y: IntArray,
    size: int,
    rng: Generator,
    clusters: Clusters = "rpc",
    original: bool = False,
) -> FloatArray:
    """Algorithm 4.1: cluster the projected rows, take one step per cluster on its pairs; ten epochs.

    `original` clusters the rows before they are projected, the alternative that the chapter names.
    """
    step = 0
    for _ in range(10):
        Z = X if original else X @ A.T
        if clusters == "rpc":
            batches = recursive_projection_clusters(Z, size, rng)
        elif clusters == "fpc":
            batches = farthest_point_clusters(Z, max(1, round(len(X) / size)), rng)
        else:
            batches = random_batches(len(X), size, rng)
        for rows in batches:
            if len(rows) > 1:
                A = A + RATE / np.sqrt(1 + step) * gradient(A, X[rows], y[rows])
            step += 1
    return A


# --- 4.3 Stochastic learning ---


def stochastic_objective(A: FloatArray, X: FloatArray, y: IntArray, rows: IntArray) -> float:
    """f_sNCA(A) = Σ_l p_{i_l} over n chosen rows, each p_i over all N rows (eq. 4.1)."""
    return float(probabilities(X @ A.T, y)[rows].sum())


def stochastic_gradient(A: FloatArray, X: FloatArray, y: IntArray, rows: IntArray) -> FloatArray:
    """Σ_l ∂p_{i_l}/∂A (eq. 4.2)."""
    Z = X @ A.T
    weights = np.zeros((len(X), len(X)))
    weights[rows] = (assignments(Z) * (probabilities(Z, y)[:, None] - same_class(y)))[rows]
    return 2 * A @ scatter(weights, X)


def learn_stochastically(A: FloatArray, X: FloatArray, y: IntArray, n: int, rng: Generator) -> FloatArray:
    """Algorithm 4.4: one step per group of n rows, compared with all rows; ten epochs."""
    step = 0
    for _ in range(10):
        for rows in random_batches(len(X), n, rng):
            A = A + RATE / np.sqrt(1 + step) * stochastic_gradient(A, X, y, rows)
            step += 1
    return A


# --- 4.4 Approximate computations ---


@dataclass(frozen=True)
class Node:
    """A node of a k-d tree: the rows in its bounding box, and its two children unless it is a leaf."""

    rows: IntArray
    children: tuple[Node, ...] = ()


def build_tree(points: FloatArray, leaf_size: int, rows: IntArray | None = None) -> Node:
    """Algorithm 4.5: split at the median of the direction with the largest range (eq. 4.4)."""
    rows = np.arange(len(points)) if rows is None else rows
    spread = points[rows].max(axis=0) - points[rows].min(axis=0)
    if len(rows) <= leaf_size or not spread.any():
        return Node(rows)
    values = points[rows, spread.argmax()]
    left = values <= np.median(values)
    if left.all():  # the median is the largest value
        left = values < np.median(values)
    return Node(rows, tuple(build_tree(points, leaf_size, rows[side]) for side in (left, ~left)))


def approximate_sum(
    z: FloatArray,
    points: FloatArray,
    tree: Node,
    tolerance: float,
    rule: CutOff = "chapter",
    shift: float = 0.0,
) -> tuple[float, FloatArray, int]:
    """Σ_j k(z|z_j) over a tree, weights of the points that add up to it, and the kernel values it took.

    k(z|z_j) = exp(shift - |z - z_j|²); a shift cancels in p_i and avoids underflow (Section 3.3.3).

    A group G is replaced by n_G times its mid value ½ (k_min + k_max) (eq. 4.8) if the error of one point,
    ½ (k_max - k_min) (eq. 4.9), is small. By the chapter's rule it is at most tolerance times its lower bound
    on the sum, sum so far + k_max; the errors of n_G points may then add up to more than the tolerance. The
    rule "bounded", at most tolerance · (sum so far + n_G k_min) / n, keeps the relative error of the sum
    within the tolerance. The closest and the farthest point of G get half of the value each (eq. 4.10,
    printed without the factor n_G). The nearest node is visited first. A node takes two kernel values for its
    cut-off, a leaf that is not replaced one per point.
    """
    kernel = np.exp(shift - np.square(points - z).sum(axis=1))
    weights = np.zeros(len(points))
    so_far, used = 0.0, 0

    def is_negligible(inside: FloatArray) -> bool:
        error = (inside.max() - inside.min()) / 2
        if rule == "chapter":
            return bool(error <= tolerance * (so_far + inside.max()))
        return bool(error <= tolerance * (so_far + len(inside) * inside.min()) / len(points))

    def visit(node: Node) -> None:
        nonlocal so_far, used
        inside = kernel[node.rows]
        used += 2
        if is_negligible(inside):
            closest, farthest = node.rows[inside.argmax()], node.rows[inside.argmin()]
            weights[closest] += len(inside) / 2 * inside.max()
            weights[farthest] += len(inside) / 2 * inside.min()
            so_far += len(inside) * (inside.min() + inside.max()) / 2
        elif node.children:
            for child in sorted(node.children, key=lambda child: -kernel[child.rows].max()):
                visit(child)
        else:
            weights[node.rows] += inside
            so_far += inside.sum()
            used += len(inside)

    visit(tree)
    return so_far, weights, used


def approximate_densities(
    Z: FloatArray, y: IntArray, tolerance: float, rule: CutOff = "chapter"
) -> Iterator[tuple[FloatArray, FloatArray, int]]:
    """Of each row: its kernel sums over every class, the weights (n_classes, N) of the rows in them, and the
    kernel values they took; one k-d tree per class (Algorithm 4.6)."""
    classes = np.unique(y)
    members = [np.flatnonzero(y == c) for c in classes]
    trees = [build_tree(Z[rows], LEAF_SIZE) for rows in members]
    for i, z in enumerate(Z):
        sums, weights, used = np.zeros(len(classes)), np.zeros((len(classes), len(Z))), 0
        shift = np.square(np.delete(Z, i, axis=0) - z).sum(axis=1).min()
        for c, rows in enumerate(members):
            tree = trees[c]
            if y[i] == classes[c]:
                rows = rows[rows != i]  # k(z_i|z_i) does not count
                if not len(rows):
                    continue
                tree = build_tree(Z[rows], LEAF_SIZE)
            sums[c], weights[c, rows], count = approximate_sum(z, Z[rows], tree, tolerance, rule, shift)
            used += count
        yield sums, weights, used


def approximate_probabilities(Z: FloatArray, y: IntArray, tolerance: float) -> tuple[FloatArray, float]:
    """p_i (N,) by Algorithm 4.6, and the number of kernel values, relative to the number of pairs."""
    own = np.unique(y, return_inverse=True)[1]
    found = list(approximate_densities(Z, y, tolerance))
    p = np.array([sums[c] / sums.sum() for (sums, _, _), c in zip(found, own, strict=True)])
    return p, sum(used for _, _, used in found) / (len(Z) * (len(Z) - 1))


def approximate_objective(
    A: FloatArray, X: FloatArray, y: IntArray, tolerance: float, rule: CutOff = "chapter"
) -> tuple[float, FloatArray, float]:
    """Algorithm 4.6: approximate densities, soft probabilities, and the gradient.

    Returns f, ∂f/∂A, and the number of kernel values, relative to the number of pairs. The gradient needs no
    kernel values beyond those of f.
    """
    own = np.unique(y, return_inverse=True)[1]
    value, slope, total = 0.0, np.zeros_like(A), 0
    for i, (sums, weights, used) in enumerate(approximate_densities(X @ A.T, y, tolerance, rule)):
        p = sums[own[i]] / sums.sum()
        value += p
        total += used
        # ∂p_i/∂A (eq. 3.14), with ∂k(z_i|z_j)/∂A = -2 A k x_ij x_ijᵀ
        combined = (p * weights.sum(axis=0) - weights[own[i]]) / sums.sum()
        differences = X[i] - X
        slope += 2 * A @ (combined * differences.T) @ differences
    return float(value), slope, total / (len(X) * (len(X) - 1))


# --- 4.5 Exact computations: compact support ---


def compact_kernel(Z: FloatArray) -> FloatArray:
    """k_CS(d_ij) = (1 - d_ij²)² if d_ij <= 1 (eq. 4.12), with zero diagonal."""
    kernel = np.maximum(1 - squared_distances(Z), 0) ** 2
    np.fill_diagonal(kernel, 0)
    return kernel


def compact_probabilities(Z: FloatArray, y: IntArray) -> FloatArray:
    """q_i = Σ_{j in c_i} q_ij with q_ij = k_CS(d_ij) / Σ_{k≠i} k_CS(d_ik) (eq. 4.13); 0/0 is 0."""
    kernel = compact_kernel(Z)
    total = kernel.sum(axis=1)
    return (kernel * same_class(y)).sum(axis=1) / np.where(total > 0, total, 1)


def compact_objective(A: FloatArray, X: FloatArray, y: IntArray) -> float:
    """f_CS(A) = Σ_i q_i (eq. 4.14)."""
    return float(compact_probabilities(X @ A.T, y).sum())


def compact_gradient(A: FloatArray, X: FloatArray, y: IntArray) -> FloatArray:
    """∂f_CS/∂A = 4A Σ_i (q_i Σ_k r_ik x_ik x_ikᵀ - Σ_{j in c_i} r_ij x_ij x_ijᵀ), r = q / (1 - d²) (4.16)."""
    Z = X @ A.T
    kernel = compact_kernel(Z)
    total = kernel.sum(axis=1, keepdims=True)
    r = np.sqrt(kernel) / np.where(total > 0, total, 1)
    return 4 * A @ scatter(r * (compact_probabilities(Z, y)[:, None] - same_class(y)), X)


# --- 4.6 Compact support and background distribution ---


def background_densities(
    Z: FloatArray, y: IntArray, beta: float | None = None, ridge: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """β N(z_i|μ_c, Σ_c) and (1 - β)/N_c Σ_{j in c} k_CS(z_i|z_j) (eq. 4.18), both (N, number of classes).

    β is 1 / (N_c + 1) by default. The constant that makes the kernel a density is 15/16 in one dimension
    only; here it is that of d dimensions. `ridge` is added to the diagonal of every covariance.
    """
    d = Z.shape[1]
    kernel = compact_kernel(Z) * gamma(d / 2 + 3) / (2 * np.pi ** (d / 2))
    compact = class_densities(kernel, y)
    normal = np.empty_like(compact)
    coefficients = np.empty(compact.shape[1])
    for number, c in enumerate(np.unique(y)):
        rows = Z[y == c]
        covariance = np.cov(rows.T, bias=True).reshape(d, d) + ridge * np.eye(d)
        normal[:, number] = multivariate_normal(rows.mean(axis=0), covariance).pdf(Z)
        coefficients[number] = 1 / (len(rows) + 1) if beta is None else beta
    return coefficients * normal, (1 - coefficients) * compact


def background_probabilities(
    Z: FloatArray, y: IntArray, beta: float | None = None, ridge: float = 0.0
) -> FloatArray:
    """p_i of eq. 3.13 with the densities of eq. 4.18."""
    return posteriors(np.add(*background_densities(Z, y, beta, ridge)), y)


def normal_gradient(A: FloatArray, x: FloatArray, mean: FloatArray, covariance: FloatArray) -> FloatArray:
    """∂/∂A N(Ax | Aμ, AΣAᵀ) (eq. 4.19), with v = (AΣAᵀ)⁻¹ A(x - μ)."""
    projected = A @ covariance @ A.T
    inverse = np.linalg.inv(projected)
    v = inverse @ A @ (x - mean)
    density = multivariate_normal(A @ mean, projected).pdf(A @ x)
    return density * (-inverse @ A @ covariance + np.outer(v, v) @ A @ covariance - np.outer(v, x - mean))


def density_slope(Z: FloatArray, y: IntArray, beta: float) -> FloatArray:
    """∂p(z_i|c)/∂β = N(z_i|μ_c, Σ_c) - 1/N_c Σ_{j in c} k_CS(z_i|z_j) (eq. 4.20)."""
    normal, compact = background_densities(Z, y, beta)
    return normal / beta - compact / (1 - beta)


def levels(tree: Node) -> Iterator[list[Node]]:
    """The nodes of a tree, level by level (Figure 4.3)."""
    nodes = [tree]
    while nodes:
        yield nodes
        nodes = [child for node in nodes for child in node.children]


# --- on-line learning (end of Section 4.3) ---


def on_line_gradient(A: FloatArray, X: FloatArray, y: IntArray, x: FloatArray, c: int) -> FloatArray:
    """∂p_{N+1}/∂A of a new point x of class c against the stored rows X (N, D)."""
    rows, classes = np.concatenate([X, x[None]]), np.append(y, c)
    return stochastic_gradient(A, rows, classes, np.array([len(X)]))


def learn_on_line(
    A: FloatArray, X: FloatArray, y: IntArray, new: FloatArray, classes: IntArray, rate: float = RATE
) -> FloatArray:
    """One step for each new point, which then joins the stored rows."""
    for t, (x, c) in enumerate(zip(new, classes, strict=True)):
        A = A + rate / np.sqrt(1 + t) * on_line_gradient(A, X, y, x, c)
        X, y = np.concatenate([X, x[None]]), np.append(y, c)
    return A
