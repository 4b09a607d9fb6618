"""Kernel ridge with free leave-one-out: against scikit-learn's KernelRidge, row by row."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.utils.estimator_checks import parametrize_with_checks

import manylens
from manylens.kernels import RBF
from manylens.transfer import KernelRidgeCV


@parametrize_with_checks([KernelRidgeCV()])
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def rows(n=40, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.column_stack([np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n), X[:, 1] + 3])


class CenteredKernelRidge(KernelRidge):
    """scikit-learn's kernel ridge with an intercept: the fit of centered values to the centered kernel."""

    def fit(self, X, y):
        K = self._get_kernel(X)
        self.mean_, self.center_ = y.mean(axis=0), K.mean(axis=0)
        H = np.eye(len(X)) - 1 / len(X)
        self.dual_coef_ = np.linalg.solve(H @ K @ H + self.alpha * np.eye(len(X)), y - self.mean_)
        self.X_fit_ = X
        return self

    def predict(self, X):
        K = self._get_kernel(X, self.X_fit_) - self.center_
        return (K - K.mean(axis=1, keepdims=True) + 0) @ self.dual_coef_ + self.mean_


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 10.0])
def test_left_out_predictions_are_those_of_refits(alpha):
    X, Y = rows()
    model = KernelRidgeCV([alpha], gamma=0.2).fit(X, Y)
    peer = CenteredKernelRidge(alpha=alpha, kernel="rbf", gamma=0.2)
    wanted = cross_val_predict(peer, X, Y, cv=LeaveOneOut())
    np.testing.assert_allclose(model.loo_predictions_, wanted, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.predict(X[:5]), peer.fit(X, Y).predict(X[:5]), rtol=1e-7)
    assert model.loo_errors_[0] == pytest.approx(np.mean((wanted - Y) ** 2))


def test_without_an_offset_it_is_kernel_ridge_of_scikit_learn():
    """Values and kernel columns of mean zero: the intercept then is zero."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    X, y = np.vstack([X, -X]), np.sin(X[:, 0])
    y = np.concatenate([y, -y])
    model = KernelRidgeCV([0.5], kernel="linear").fit(X, y)
    peer = KernelRidge(alpha=0.5, kernel="linear").fit(X, y)
    np.testing.assert_allclose(model.predict(X), peer.predict(X), atol=1e-10)
    assert abs(model.intercept_) < 1e-12


def test_the_best_penalty_is_chosen_for_all_or_for_each_target():
    X, Y = rows(80)
    alphas = np.logspace(-4, 2, 7)
    own = [KernelRidgeCV(alphas, gamma=0.1).fit(X, y) for y in Y.T]
    each = KernelRidgeCV(alphas, gamma=0.1, alpha_per_target=True).fit(X, Y)
    np.testing.assert_allclose(each.alpha_, [model.alpha_ for model in own])
    np.testing.assert_allclose(each.predict(X), np.column_stack([m.predict(X) for m in own]), rtol=1e-9)
    together = KernelRidgeCV(alphas, gamma=0.1).fit(X, Y)
    errors = [KernelRidgeCV([alpha], gamma=0.1).fit(X, Y).loo_errors_[0] for alpha in alphas]
    np.testing.assert_allclose(together.loo_errors_, errors)
    assert together.alpha_ == alphas[np.argmin(errors)]
    assert together.dual_coef_.shape == (80, 2)


def test_kernels_sparse_rows_and_single_precision():
    X, Y = rows(60)
    y = Y[:, 0]
    model = KernelRidgeCV(gamma=0.2).fit(X, y)
    gram = RBF(0.2).fit(X)(X, X)
    given = KernelRidgeCV(kernel="precomputed").fit(gram, y)
    np.testing.assert_allclose(given.predict(gram[:9]), model.predict(X[:9]), rtol=1e-6)
    thin = KernelRidgeCV(gamma=0.2).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(thin.predict(sparse.csr_matrix(X[:9])), model.predict(X[:9]), rtol=1e-6)
    single = KernelRidgeCV(alphas=[0.01], gamma=0.2).fit(X.astype(np.float32), y)
    double = KernelRidgeCV(alphas=[0.01], gamma=0.2).fit(X, y)
    np.testing.assert_allclose(single.predict(X.astype(np.float32)), double.predict(X), atol=1e-3)


def test_files_and_pickles(tmp_path):
    X, Y = rows()
    model = KernelRidgeCV().fit(X, Y)
    manylens.save(model, tmp_path / "ridge.manylens")
    for other in (manylens.load(tmp_path / "ridge.manylens"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(X), model.predict(X))


def test_bad_input_is_refused():
    X, Y = rows()
    for options, message in [
        ({"alphas": [0.0]}, "alphas=.* must be a sequence of at least one positive number"),
        ({"alphas": []}, "at least one positive number"),
        ({"kernel": "wave"}, "wave"),
        ({"gamma": -1.0}, "gamma"),
    ]:
        with pytest.raises(ValueError, match=message):
            KernelRidgeCV(**options).fit(X, Y)
    with pytest.raises(ValueError, match="NaN"):
        KernelRidgeCV().fit(np.where(X > 1, np.nan, X), Y)


@pytest.mark.parametrize("shape", [(), (20,)])
def test_rows_of_another_shape_are_refused_without_printing_them(shape):
    with pytest.raises(ValueError, match=r"instead. Reshape your data to \(n, d\)") as error:
        KernelRidgeCV().fit(np.zeros(shape), np.arange(20.0))
    assert "\n" not in str(error.value)


def test_targets_that_are_no_numbers_are_refused():
    X = np.eye(4)
    with pytest.raises(TypeError, match="y is sparse: give an array"):
        KernelRidgeCV().fit(X, sparse.csr_matrix(X[:, :1]))
    with pytest.raises(ValueError, match="y cannot be read as an array of numbers"):
        KernelRidgeCV().fit(X, np.array([b"a", b"b", b"c", b"d"]))


def test_huge_tensors_are_refused_like_arrays():
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    X = np.random.default_rng(0).standard_normal((9, 3))
    outlier = np.where(np.arange(9)[:, None] == 3, X * 1e160, X)
    for make in (np.asarray, torch.as_tensor):
        with pytest.raises(ValueError, match=r"X has entries up to about 1e.1\d\d, whose products"):
            KernelRidgeCV(kernel="linear").fit(make(outlier), X[:, 0])
        with pytest.raises(ValueError, match="y has entries up to about"):
            KernelRidgeCV(kernel="linear").fit(make(X), X[:, 0] * 1e160)
        model = KernelRidgeCV(kernel="linear").fit(make(X * 1e50), X[:, 0])
        with pytest.raises(ValueError, match="so much larger than the rows of fit"):
            model.predict(make(X * 1e290))
