"""Similarity measures against other libraries: time, added memory, and the price of permutation tests."""

import importlib

import numpy as np

from benchmarks.harness import Claim, Comparison, ratio, result
from benchmarks.peers.alignment.cka import related_features
from manylens import cka_matrix
from manylens.alignment import compare_matrix


class PeerPytorchCKA(Comparison):
    """Unbiased linear CKA of all pairs of 20 layers of 2,000 x 512 float32, against pytorch-cka's arithmetic
    on all rows at once (its function `hsic` on the stacked kernel matrices), on one thread each.

    Both need the 20 kernel matrices. Ours are symmetric halves, made in blocks and not kept, so that at most
    about half of the operations and all of the memory can be saved. `symmetric_products` is the time of these
    halves alone: what BLAS needs for them, before anything is compared.
    """

    contenders = ("ours", "pytorch_cka", "symmetric_products")
    needs_packages = {"pytorch_cka": "cka"}
    repeats = 3
    rows, quick_rows = 2000, 300
    claims = (
        Claim("times as fast as pytorch-cka", ratio("pytorch_cka", "ours"), at_least=5),
        Claim("added memory relative to pytorch-cka", ratio("ours", "pytorch_cka", "peak_mb"), at_most=0.2),
        Claim(
            "largest difference from pytorch-cka", result("pytorch_cka", "difference_from_ours"), at_most=1e-3
        ),
        Claim(
            "time relative to the products of each layer with itself alone",
            ratio("ours", "symmetric_products"),
            at_most=1.25,
        ),
    )

    def make_data(self):
        importlib.import_module("torch")  # which takes seconds that are not those of the arithmetic
        n, p, d = (self.quick_rows, 4, 64) if self.quick else (self.rows, 20, 512)
        return related_features(n, [d] * p, np.float32)

    def ours(self, data):
        return cka_matrix(data, estimator="unbiased")

    def pytorch_cka(self, data):
        import torch
        from cka.hsic import hsic

        torch.set_num_threads(1)
        grams = torch.stack([X @ X.T for X in map(torch.as_tensor, data)])
        cross, own, other = hsic(grams, grams)
        return (cross / torch.sqrt(own[:, None] * other)).numpy()

    def symmetric_products(self, data):
        for X in data:
            X @ X.T  # which NumPy computes as a symmetric product

    def score(self, data, scores):
        if scores is None:
            return {}
        exact = cka_matrix(data, estimator="unbiased")
        return {"difference_from_ours": float(np.abs(scores - exact).max())}


class PeerPytorchCKAManyRows(PeerPytorchCKA):
    """The same for 20,000 rows. pytorch-cka's kernel matrices would take 32 GB, so its arithmetic is timed on
    one pair of layers and multiplied: 10 times for the 20 kernel matrices and their norms, and by the 190
    pairs of layers for their products."""

    contenders = ("ours", "one_pair", "one_product")
    needs_packages = {"one_pair": "cka", "one_product": "torch"}
    repeats = 1
    warm_up = False
    rows = 20_000
    claims = (
        Claim(
            "times as fast as pytorch-cka, from its time for one pair and for one product of a pair",
            lambda results: (
                (10 * results["one_pair"]["seconds"] + 180 * results["one_product"]["seconds"])
                / results["ours"]["seconds"]
            ),
            at_least=5,
            compared=("ours", "one_pair"),
        ),
        Claim(
            "added memory relative to pytorch-cka's for one pair",
            ratio("ours", "one_pair", "peak_mb"),
            at_most=0.2,
        ),
    )

    def one_pair(self, data):
        return self.pytorch_cka(data[:2])

    def one_product(self, data):
        """The product of two kernel matrices, entry by entry, and its sum."""
        import torch

        K = torch.as_tensor(data[0]) @ torch.as_tensor(data[0]).T
        return float(torch.einsum("ij,ij->", K, K))

    def score(self, data, found):
        if np.ndim(found) != 2 or len(found) != 2:
            return {}
        exact = cka_matrix(data[:2], estimator="unbiased")
        return {"difference_from_ours": float(np.abs(found - exact).max())}


class PeerMutualNeighbors(Comparison):
    """Mutual 10-nearest neighbors of all pairs of 20 layers of 2,000 x 512 float32: ours; Huh et al.'s way
    (2024), a full sort of the similarities for both layers of each pair, in NumPy; and what a careful user
    would write, scikit-learn's neighbor search once per layer, and set intersections in NumPy.

    `products_alone` is the time of the similarities of each layer, by BLAS and as symmetric halves, before
    any neighbor is looked for: no exact search is faster."""

    contenders = ("ours", "full_sorts", "scikit_learn", "products_alone")
    repeats = 1  # full sorts take a minute
    memory = False
    claims = (
        Claim(
            "times as fast as full sorts for both layers of each pair",
            ratio("full_sorts", "ours"),
            at_least=5,
        ),
        Claim("times as fast as one search per layer", ratio("scikit_learn", "ours"), at_least=5),
        Claim(
            "time relative to the similarities of each layer alone",
            ratio("ours", "products_alone"),
            at_most=1.5,
        ),
    )

    def make_data(self):
        n, p, d = (300, 4, 64) if self.quick else (2000, 20, 512)
        return related_features(n, [d] * p, np.float32)

    def ours(self, data):
        return compare_matrix(data, measure="mutual-knn").values

    def full_sorts(self, data):
        def neighbors(X):
            Z = X / np.linalg.norm(X, axis=1, keepdims=True)
            near = Z @ Z.T
            np.fill_diagonal(near, -np.inf)
            return np.argsort(-near, axis=1)[:, :10]

        return np.array([[self.overlap(neighbors(X), neighbors(Y)) for Y in data] for X in data])

    def scikit_learn(self, data):
        from sklearn.neighbors import NearestNeighbors

        finder = NearestNeighbors(n_neighbors=10, metric="cosine")
        lists = [finder.fit(X).kneighbors(return_distance=False) for X in data]
        return np.array([[self.overlap(one, other) for other in lists] for one in lists])

    def products_alone(self, data):
        for X in data:
            X @ X.T  # which NumPy computes as a symmetric product

    def overlap(self, one, other):
        """Mean share of neighbors in common of two arrays of lists (n, 10)."""
        return float(np.mean((one[:, :, np.newaxis] == other[:, np.newaxis]).any(axis=2)))

    def score(self, data, scores):
        return {} if scores is None else {"mean_overlap": float(np.mean(scores))}


class PermutationTests(Comparison):
    """CKA of 20 layers with 20 others, 2,000 x 512 float32: the matrix, the matrix with at least 1,000
    permutations of the rows, and calibrated_similarity for one pair and 20 permutations, from which its time
    for all is computed."""

    contenders = ("one_matrix", "with_permutations", "calibrated_similarity_part")
    needs_packages = {"calibrated_similarity_part": "calibrated_similarity"}
    memory = False
    repeats = 1
    claims = (
        Claim(
            "time with permutations relative to one matrix",
            ratio("with_permutations", "one_matrix"),
            at_most=10,
        ),
        Claim(
            "times as fast as calibrated_similarity (its time for 20 permutations of one pair, times 50 "
            "and 400 pairs)",
            lambda results: (
                400
                * 50
                * results["calibrated_similarity_part"]["seconds"]
                / results["with_permutations"]["seconds"]
            ),
            at_least=20,
            compared=("with_permutations",),
        ),
    )

    def make_data(self):
        n, p, d = (200, 3, 64) if self.quick else (2000, 20, 512)
        layers = related_features(n, [d] * 2 * p, np.float32)
        return layers[:p], layers[p:]

    def one_matrix(self, data):
        return compare_matrix(*data)

    def with_permutations(self, data):
        return compare_matrix(*data, n_permutations=1000)

    def calibrated_similarity_part(self, data):
        import torch
        from calibrated_similarity import calibrate

        def linear_cka(X, Y):
            X, Y = X - X.mean(0), Y - Y.mean(0)
            return (X.T @ Y).norm() ** 2 / (X.T @ X).norm() / (Y.T @ Y).norm()

        calibrate(torch.as_tensor(data[0][0]), torch.as_tensor(data[1][0]), linear_cka, K=20)

    def score(self, data, found):
        if found is None:
            return {}
        largest = {} if found.p_values is None else {"largest_p_value": float(found.p_values.max())}
        return {"mean_value": float(found.values.mean()), **largest}
