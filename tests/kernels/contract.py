"""Contracts of kernels and feature maps. Inherit and say how to build one."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from manylens.kernels import FeatureMap, Kernel, make_feature_map, make_kernel


class KernelContract:
    """A subclass gives `make`."""

    X = np.random.default_rng(0).normal(1.0, 2.0, (30, 5))  # rows of `fit`
    Y = np.random.default_rng(1).normal(1.0, 2.0, (12, 5))  # other rows
    takes_sparse = True
    positive = True
    keeps_float32 = True
    float32_tolerance = 1e-5  # relative to the largest entry

    def make(self) -> Kernel:
        raise NotImplementedError

    @pytest.fixture
    def fitted(self):
        return self.make().fit(self.X, 0)

    def test_the_gram_matrix_is_symmetric_and_positive_semi_definite(self, fitted):
        gram = fitted.gram(self.X)
        np.testing.assert_allclose(gram, gram.T, atol=1e-12 * np.abs(gram).max())
        values = np.linalg.eigvalsh(gram)
        assert (values.min() > -1e-9 * values.max()) == self.positive

    def test_training_rows_have_the_rows_of_the_gram_matrix(self, fitted):
        np.testing.assert_allclose(fitted(self.X[::3], self.X), fitted.gram(self.X)[::3], rtol=1e-9)

    def test_blocks_are_parts_of_the_gram_matrix(self, fitted):
        block = fitted.gram_block(self.X, slice(3, 9), slice(20, 30))
        np.testing.assert_allclose(block, fitted.gram(self.X)[3:9, 20:30], rtol=1e-9)

    def test_each_row_is_compared_by_itself(self, fitted):
        parts = np.vstack([fitted(self.Y[:5], self.X), fitted(self.Y[5:], self.X)])
        np.testing.assert_allclose(parts, fitted(self.Y, self.X), rtol=1e-9)

    def test_single_precision_rows_give_the_same_up_to_rounding(self, fitted):
        X, Y = self.X.astype(np.float32), self.Y.astype(np.float32)
        block, wanted = self.make().fit(X, 0)(Y, X), fitted(self.Y, self.X)
        assert block.dtype == (np.float32 if self.keeps_float32 else np.float64)
        np.testing.assert_allclose(block, wanted, atol=self.float32_tolerance * np.abs(wanted).max())

    def test_sparse_rows_give_the_same_as_dense_rows_or_are_refused(self):
        X, Y = np.where(np.abs(self.X) > 1, self.X, 0.0), np.where(np.abs(self.Y) > 1, self.Y, 0.0)
        if not self.takes_sparse:
            with pytest.raises(ValueError, match="give a dense array"):
                self.make().fit(sparse.csr_array(X), 0)
            return
        wanted = self.make().fit(X, 0)(Y, X)
        block = self.make().fit(sparse.csr_array(X), 0)(sparse.csr_array(Y), sparse.csr_array(X))
        block = block.toarray() if sparse.issparse(block) else block
        np.testing.assert_allclose(block, wanted, rtol=1e-9, atol=1e-12)

    def test_fit_leaves_the_parameters_and_the_rows_unchanged(self):
        kernel, before = self.make(), self.X.copy()
        parameters = kernel.get_params()
        assert kernel.fit(self.X, 0) is kernel
        assert kernel.get_params() == parameters
        np.testing.assert_array_equal(self.X, before)

    def test_copies_and_pickles_give_the_same_numbers(self, fitted):
        wanted = fitted(self.Y, self.X)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted))(self.Y, self.X), wanted)
        for copy in (clone(fitted), make_kernel(fitted)):
            assert copy is not fitted
            np.testing.assert_array_equal(copy.fit(self.X, 0)(self.Y, self.X), wanted)


class DefinedKernelContract(KernelContract):
    """A kernel with a definition to compare with, `literal`."""

    def literal(self, kernel: Kernel, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def test_the_kernel_is_its_definition(self, fitted):
        np.testing.assert_allclose(
            fitted(self.Y, self.X), self.literal(fitted, self.Y, self.X), rtol=1e-9, atol=1e-9
        )


class FeatureMapContract:
    """For every map psi(x).psi(y) = k(x, y) to `tolerance` on the training rows; a subclass gives `make`."""

    tolerance = 1e-8

    def make(self) -> FeatureMap:
        raise NotImplementedError

    def truth(self, X: np.ndarray) -> np.ndarray:
        """The kernel that the map represents, between all rows."""
        return make_kernel(self.make().kernel).fit(X)(X, X)

    def test_inner_products_are_the_kernel(self, X):
        psi = self.make().fit_transform(X)
        assert np.abs(psi @ psi.T - self.truth(X)).max() < self.tolerance

    def test_coordinates_are_features_times_root(self, X):
        fitted = self.make().fit(X)
        features = fitted.features(X)
        expected = features if fitted.root_ is None else features @ fitted.root_
        np.testing.assert_allclose(fitted.transform(X), expected, atol=1e-12)
        assert features.shape == (len(X), fitted.width)

    def test_rows_in_blocks_give_the_same_as_rows_at_once(self, X, monkeypatch):
        fitted = self.make().fit(X)
        whole = fitted.transform(X)
        monkeypatch.setattr("manylens.summaries.moments.BLOCK_BYTES", 64)
        np.testing.assert_allclose(fitted.transform(X), whole, atol=1e-12)

    def test_float32_stays_float32(self, X):
        psi = self.make().fit(X.astype(np.float32)).transform(X.astype(np.float32))
        assert psi.dtype == np.float32
        assert np.abs(psi @ psi.T - self.truth(X)).max() < max(1e-3, self.tolerance)

    def test_sparse_rows_give_the_same_as_dense_rows(self, X):
        thin = np.where(np.abs(X) > 1, X, 0.0)
        dense, csr = self.make().fit(thin), self.make().fit(sparse.csr_array(thin))
        a, b = dense.transform(thin), csr.transform(sparse.csr_array(thin))
        np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-8)

    def test_the_same_seed_gives_the_same_map(self, X):
        np.testing.assert_array_equal(self.make().fit_transform(X), self.make().fit_transform(X))

    def test_cloning_and_pickling_keep_the_map(self, X):
        fitted = self.make().fit(X)
        unpickled = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_allclose(unpickled.transform(X), fitted.transform(X), atol=1e-10)
        again = clone(fitted).fit(X).transform(X)
        np.testing.assert_allclose(again @ again.T, self.truth(X), atol=self.tolerance)

    def test_make_feature_map_copies_it(self, X):
        given = self.make()
        copy = make_feature_map(given, getattr(given, "kernel", None), X)
        assert type(copy) is type(given)
        assert copy is not given
        np.testing.assert_array_equal(copy.fit_transform(X), given.fit_transform(X))
