import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import manylens
from manylens import ModularAutoencoder, ModularKernelPCA
from manylens.baselines import BaggingAutoencoder, BootstrapKernelPCA


@pytest.fixture(scope="module")
def X():
    return load_digits().data[:200]


@pytest.mark.parametrize(
    "model",
    [
        ModularKernelPCA(3, 2, random_state=0),
        ModularKernelPCA(3, 2, feature_map="fourier", rank=40, random_state=0),
        ModularKernelPCA(3, 2, feature_map="nystroem", landmarks="count-sketch", rank=40, random_state=0),
        ModularKernelPCA(3, 2, fit_inverse_transform=True, random_state=0),
        ModularAutoencoder(3, 2, random_state=0),
        BaggingAutoencoder(3, 2, random_state=0),
        BootstrapKernelPCA(3, 2, random_state=0),
        make_pipeline(StandardScaler(), ModularKernelPCA(3, 2, random_state=0)),
    ],
    ids=str,
)
def test_a_loaded_model_equals_the_saved_one(model, X, tmp_path):
    pytest.importorskip("skops")
    model.fit(X)
    manylens.save(model, tmp_path / "model.skops")
    loaded = manylens.load(tmp_path / "model.skops")
    np.testing.assert_allclose(loaded.transform(X), model.transform(X), atol=1e-12)
    assert str(loaded.get_params()) == str(model.get_params())


def test_a_loaded_model_can_be_updated(X, tmp_path):
    pytest.importorskip("skops")
    options = {"feature_map": "nystroem", "landmarks": X[:30], "gamma": 1e-3, "random_state": 0}
    model = ModularKernelPCA(3, 2, **options).partial_fit(X[:100])
    manylens.save(model, tmp_path / "model.skops")
    resumed = manylens.load(tmp_path / "model.skops").partial_fit(X[100:])
    whole = ModularKernelPCA(3, 2, **options).fit(X)
    np.testing.assert_allclose(resumed.spectrum_, whole.spectrum_, rtol=1e-8)


def test_a_file_with_someone_elses_functions_is_refused(X, tmp_path):
    pytest.importorskip("skops")
    model = ModularKernelPCA(3, 2, kernel=np.dot, random_state=0)
    manylens.save(model, tmp_path / "model.skops")
    with pytest.raises(TypeError, match="could run any code"):
        manylens.load(tmp_path / "model.skops")


def test_loading_without_skops_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(ImportError, match=r'pip install "manylens\[save\]"'):
        manylens.load(tmp_path / "model.skops")
