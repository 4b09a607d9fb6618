import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import manylens
from manylens import DiversitySearchCV, ModularAutoencoder, ModuleVotingClassifier, NetworkAutoencoder
from manylens.papers.modular_autoencoders import modular_reconstruction_error
from manylens.typing import DiverseModules, ModuleSet


def test_the_linear_autoencoder_does_not_import_torch():
    lines = (
        "import sys, numpy as np, manylens",
        "X = np.random.default_rng(0).normal(size=(30, 5))",
        "manylens.ModularAutoencoder(2, 2, random_state=0).fit(X).transform(X)",
        "assert 'torch' not in sys.modules",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_without_torch_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'manylens\[torch\]'"):
        NetworkAutoencoder(2, 2, hidden=4).fit(np.eye(6))


class TestWithTorch:
    pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

    @pytest.fixture(autouse=True)
    def _torch(self):
        pytest.importorskip("torch")

    @pytest.mark.parametrize("diversity", [0.0, 0.5, 0.9])
    @pytest.mark.parametrize("hidden", [(), 12])
    def test_identity_activation_reaches_the_loss_of_the_closed_form(self, X, diversity, hidden):
        best = ModularAutoencoder(3, 3, diversity, random_state=0).fit(X).loss_
        trained = NetworkAutoencoder(
            3,
            3,
            diversity,
            hidden=hidden,
            activation="identity",
            learning_rate=1e-2,
            validation_fraction=0,
            tol=1e-4,
            max_iter=400,
            random_state=0,
        ).fit(X)
        assert best * (1 - 1e-10) <= trained.loss_ <= 1.005 * best

    def test_hidden_layers_reconstruct_better_than_the_best_linear_modules(self, X):
        linear = ModularAutoencoder(3, 2, 0.5, random_state=0).fit(X)
        model = NetworkAutoencoder(
            3, 2, 0.5, hidden=40, activation="tanh", learning_rate=5e-3, max_iter=150, random_state=0
        )
        assert model.fit(X).loss_ < 0.9 * linear.loss_

    def test_the_loss_is_equation_1_over_the_rows(self, X):
        model = NetworkAutoencoder(3, 2, 0.7, hidden=10, max_iter=20, random_state=0).fit(X)
        each = model.networks_.outputs((X - model.mean_) / model.scale_) * model.scale_ + model.mean_
        assert model.loss_ == pytest.approx(modular_reconstruction_error(each, X, 0.7), rel=1e-10)
        decoded = model.inverse_transform(model.transform(X))
        np.testing.assert_allclose(decoded, each.mean(axis=0), atol=1e-9)
        assert model.split(model.transform(X)).shape == (300, 3, 2)
        assert len(model.loss_path_) == model.n_iter_ == len(model.validation_path_) - 1

    def test_the_same_seed_gives_the_same_model_in_memory_and_on_disk(self, X, tmp_path):
        pytest.importorskip("skops")
        model = NetworkAutoencoder(3, 2, hidden=(12, 6), max_iter=5, random_state=0)
        Z = model.fit_transform(X)
        np.testing.assert_array_equal(Z, clone(model).fit_transform(X))
        np.testing.assert_array_equal(Z, pickle.loads(pickle.dumps(model)).transform(X))
        manylens.save(model, tmp_path / "model.skops")
        np.testing.assert_array_equal(Z, manylens.load(tmp_path / "model.skops").transform(X))

    def test_sparse_and_float32_rows(self, X):
        model = NetworkAutoencoder(3, 2, hidden=8, max_iter=3, random_state=0)
        dense = clone(model).fit(X)
        thin = clone(model).fit(sparse.csr_matrix(X))
        np.testing.assert_allclose(thin.transform(sparse.csr_matrix(X)), dense.transform(X), atol=1e-8)
        narrow = clone(model).fit(X.astype(np.float32))
        Z = narrow.transform(X.astype(np.float32))
        assert Z.dtype == narrow.inverse_transform(Z).dtype == np.float32
        assert narrow.loss_ == pytest.approx(dense.loss_, rel=1e-3)

    def test_a_vote_takes_networks_as_modules(self, X, digits):
        y = digits.target[:300]
        lenses = NetworkAutoencoder(3, 4, hidden=20, max_iter=40, learning_rate=5e-3, random_state=0)
        assert ModuleVotingClassifier(lenses).fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.6

    def test_networks_are_modules_of_one_diversity(self, X):
        model = NetworkAutoencoder(3, 2, hidden=5, max_iter=2, random_state=0).fit(X)
        assert isinstance(model, ModuleSet)
        assert not isinstance(model, DiverseModules)
        with pytest.raises(TypeError, match="transformer with `with_diversity`"):
            DiversitySearchCV(ModuleVotingClassifier(model)).fit(X, np.arange(300) % 2)

    def test_invalid_input_is_refused(self, X):
        with pytest.raises(ValueError, match="activation='sine' is unknown"):
            NetworkAutoencoder(3, 2, hidden=5, activation="sine").fit(X)
        with pytest.raises(ValueError, match=r"diversity=1\.2 is outside"):
            NetworkAutoencoder(3, 2, diversity=1.2).fit(X)
        with pytest.raises(ValueError, match="All rows are equal"):
            NetworkAutoencoder(3, 2, hidden=5).fit(np.full((10, 4), 0.1))

    @parametrize_with_checks([NetworkAutoencoder(2, 2, hidden=4, max_iter=3, random_state=0)])
    def test_scikit_learn_checks(self, estimator, check):
        check(estimator)
