"""CKA of arrays of other libraries: the values of NumPy, on the arrays' device."""

import numpy as np
import pytest

from manylens import cka, cka_matrix
from manylens.alignment import CCA, compare, compare_matrix

pytest.importorskip("array_api_compat")


def library(name):
    module = pytest.importorskip(name)
    return module.asarray


def features(seed=0, n=60):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    return [X, X[:, :3] @ rng.standard_normal((3, 90)), rng.standard_normal((n, 4)) + 100]


@pytest.mark.parametrize("name", ["torch", "array_api_strict"])
@pytest.mark.parametrize("options", [{}, {"estimator": "unbiased"}, {"center": False}, {"return_": "angle"}])
def test_the_values_are_those_of_numpy(name, options):
    asarray, arrays = library(name), features()
    foreign = [asarray(X) for X in arrays]
    found = cka_matrix(foreign, **options)
    assert type(found) is type(foreign[0])
    np.testing.assert_allclose(np.asarray(found), cka_matrix(arrays, **options), atol=1e-7)
    pair = cka(foreign[0], foreign[1], **options)
    assert float(pair) == pytest.approx(cka(arrays[0], arrays[1], **options), abs=1e-7)
    both = cka_matrix(foreign[:2], foreign[1:], **options)
    np.testing.assert_allclose(np.asarray(both), cka_matrix(arrays[:2], arrays[1:], **options), atol=1e-7)


def test_the_dtype_and_the_device_are_kept():
    torch = pytest.importorskip("torch")
    arrays = [torch.as_tensor(X, dtype=torch.float32) for X in features()]
    found = cka_matrix({f"layer {k}": X for k, X in enumerate(arrays)})
    assert found.dtype == torch.float32
    assert found.device == arrays[0].device
    np.testing.assert_allclose(found, cka_matrix(features()), atol=1e-4)


def test_huge_values_do_not_overflow():
    torch = pytest.importorskip("torch")
    X, Y, _ = features()
    assert float(cka(torch.as_tensor(X) * 1e300, torch.as_tensor(Y))) == pytest.approx(cka(X, Y))


def test_bad_input_gets_one_sentence():
    torch = pytest.importorskip("torch")
    X, Y = torch.ones(6, 2) * torch.arange(6.0)[:, None], torch.arange(12.0).reshape(6, 2)
    for arguments, kind, message in [
        ((X, Y.to("meta")), ValueError, "Arrays on the devices cpu and meta were given"),
        ((X, Y.numpy()), TypeError, "Arrays of numpy and torch were given: convert them to one library"),
        ((X, Y[:4]), ValueError, "X has 6 rows and Y has 4"),
        ((X, torch.ones(6, 2)), ValueError, "Y is constant"),
        ((X, Y / 0), ValueError, "Y contains NaN or infinity"),
        ((X, Y[0]), ValueError, r"Y has the shape \(2,\)"),
        ((X, Y, "rbf"), ValueError, "support kernel='linear' only"),
    ]:
        with pytest.raises(kind, match=message):
            cka(*arguments)


@pytest.mark.parametrize("name", ["torch", "array_api_strict"])
@pytest.mark.parametrize(
    "measure", ["cka", "biased-cka", "procrustes", "mean-cca", "svcca", "pwcca", CCA("projection", 0.9)]
)
def test_comparisons_are_those_of_numpy(name, measure, monkeypatch):
    asarray, (X, Y, Z) = library(name), features()
    Y = Y + 0.1 * np.random.default_rng(1).standard_normal(Y.shape)  # of full rank, wider than the rows
    wanted = compare_matrix({"x": X, "y": Y}, {"y": Y, "z": Z}, measure, n_groups=4)
    pair = compare(X, Y, measure)
    monkeypatch.setattr("manylens.alignment.comparing.check_feature_sets", None)  # nothing is converted
    foreign = {"x": asarray(X), "y": asarray(Y)}, {"y": asarray(Y), "z": asarray(Z)}
    found = compare_matrix(*foreign, measure, n_groups=4)
    np.testing.assert_allclose(found.values, wanted.values, atol=1e-7)
    np.testing.assert_allclose(found.standard_errors, wanted.standard_errors, atol=1e-6)
    np.testing.assert_allclose(compare(asarray(X), asarray(Y), measure)[:2], pair[:2], atol=1e-6)


def test_other_comparisons_run_on_the_host_or_are_refused():
    torch = pytest.importorskip("torch")
    X, Y, _ = features()
    wanted = compare(X, Y, "mutual-knn", n_permutations=50)
    assert compare(torch.asarray(X), torch.asarray(Y), "mutual-knn", n_permutations=50) == wanted
    away = torch.asarray(X).to("meta")
    for options in ({"measure": "rsa"}, {"n_permutations": 10}):
        with pytest.raises(ValueError, match="run on the host, but the features are on the device meta"):
            compare(away, away, **options)


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_sparse_tensors_are_refused_in_one_sentence(layout):
    torch = pytest.importorskip("torch")
    X = torch.randn(20, 3)
    with pytest.raises(TypeError, match=r"X is a sparse tensor: give X.to_dense\(\)"):
        cka(getattr(X, layout)(), X)


@pytest.mark.parametrize("types", [("float16", "bfloat16"), ("bfloat16", "float32"), ("float16", "float16")])
def test_numbers_of_16_bits_are_compared_in_32(types):
    torch = pytest.importorskip("torch")
    arrays = [torch.as_tensor(X).to(getattr(torch, each)) for X, each in zip(features(), types, strict=False)]
    wide = [X.to(torch.float32) for X in arrays]
    assert torch.equal(cka_matrix(arrays), cka_matrix(wide))
