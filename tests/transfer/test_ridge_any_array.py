"""`KernelRidgeCV` of arrays of other libraries: the values of NumPy, on the arrays' device."""

import numpy as np
import pytest

from manylens.transfer import KernelRidgeCV

pytest.importorskip("array_api_compat")
LIBRARIES = ("torch", "array_api_strict")


def task(n=70, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4)) + 3
    return X, np.column_stack([np.sin(X[:, 0]), X[:, 1] + rng.standard_normal(n)])


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(
    "options",
    [{}, {"kernel": "linear"}, {"gamma": "max-norm"}, {"gamma": 0.3}, {"alpha_per_target": True}],
    ids=str,
)
def test_fits_and_predictions_are_those_of_numpy(name, options):
    asarray = pytest.importorskip(name).asarray
    X, Y = task()
    for y in (Y, Y[:, 0]):
        wanted = KernelRidgeCV(**options).fit(X[:50], y[:50])
        found = KernelRidgeCV(**options).fit(asarray(X[:50]), asarray(y[:50]))
        np.testing.assert_allclose(found.loo_errors_, wanted.loo_errors_, rtol=1e-6)
        np.testing.assert_allclose(found.alpha_, wanted.alpha_)
        assert found.loo_score_ == pytest.approx(wanted.loo_score_, abs=1e-6)
        new = asarray(X[50:])
        assert type(found.predict(new)) is type(new)
        np.testing.assert_allclose(np.asarray(found.predict(new)), wanted.predict(X[50:]), atol=1e-5)
        np.testing.assert_allclose(np.asarray(found.loo_predictions_), wanted.loo_predictions_, atol=1e-5)


@pytest.mark.parametrize("name", LIBRARIES)
def test_kernel_matrices_are_taken_as_they_are(name):
    asarray = pytest.importorskip(name).asarray
    X, Y = task()
    K = X @ X.T / 1e4
    wanted = KernelRidgeCV(kernel="precomputed").fit(K[:50, :50], Y[:50])
    found = KernelRidgeCV(kernel="precomputed").fit(asarray(K[:50, :50]), Y[:50])
    np.testing.assert_allclose(
        np.asarray(found.predict(asarray(K[50:, :50]))), wanted.predict(K[50:, :50]), atol=1e-6
    )


def test_leave_one_out_predictions_are_those_of_refits():
    torch = pytest.importorskip("torch")
    X, Y = (torch.asarray(each) for each in task(20))
    model = KernelRidgeCV(alphas=[0.1], kernel="rbf", gamma=0.1).fit(X, Y[:, 0])
    for row in (0, 7, 19):
        others = torch.arange(20) != row
        refit = KernelRidgeCV(alphas=[0.1], kernel="rbf", gamma=0.1).fit(X[others], Y[others, 0])
        assert float(refit.predict(X[row : row + 1])[0]) == pytest.approx(float(model.loo_predictions_[row]))


def test_what_is_not_supported_gets_one_sentence():
    torch = pytest.importorskip("torch")
    X, Y = (torch.asarray(each) for each in task())
    model = KernelRidgeCV().fit(X, Y)
    for call, kind, message in [
        (lambda: KernelRidgeCV(kernel="laplacian").fit(X, Y), ValueError, "not 'laplacian': convert them"),
        (lambda: KernelRidgeCV(gamma="median").fit(X, Y), ValueError, "not 'median': convert them to NumPy"),
        (lambda: KernelRidgeCV(kernel="precomputed").fit(X, Y), ValueError, "must be square"),
        (lambda: KernelRidgeCV().fit(X, Y[:9]), ValueError, "inconsistent numbers of samples"),
        (lambda: KernelRidgeCV().fit(X / 0, Y), ValueError, "X contains NaN or infinity"),
        (lambda: KernelRidgeCV().fit(X[:1], Y[:1]), ValueError, "at least 2 rows"),
        (lambda: model.predict(X.numpy()), TypeError, "Arrays of numpy and torch were given"),
        (lambda: model.predict(X.to("meta")), ValueError, "Arrays on the devices cpu and meta"),
        (lambda: model.predict(X[:, :2]), ValueError, "X has 2 columns, but the model was fitted to 4"),
    ]:
        with pytest.raises(kind, match=message):
            call()
