"""Networks trained jointly against networks trained separately: ten networks with 20 hidden units each.

The diversity is the default. scikit-learn's bagging and its single large network (200 units) get the same
batches, learning rate, early stopping, and standardized columns and targets. All rows are float32; scores are
those of held-out rows.
"""

import warnings
from importlib.util import find_spec

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.harness import Claim, Comparison, gain, ratio
from manylens import ModularAutoencoder, NegativeCorrelationRegressor, NetworkAutoencoder
from manylens.datasets import load_dataset


def reason_to_leave_out():
    return "" if find_spec("torch") else "torch is not installed"


def first_training():
    """Load torch's optimizers, which takes seconds on first use."""
    with warnings.catch_warnings(action="ignore"):
        NegativeCorrelationRegressor(2, 2, max_iter=1).fit(np.eye(5), np.arange(5.0))


class JointNetworksKin8nm(Comparison):
    """kin8nm, 6,144 training and 2,048 test rows of 8 columns: ten networks, diversity 0.9, one thread."""

    needs = ("reg_kin8nm",)
    data_set = "reg_kin8nm"
    memory = False
    warm_up = False
    repeats = 1
    contenders = ("ours", "ours_apart", "sklearn_bagging", "sklearn_big")
    claims = (
        Claim(
            "gain in R² over bagging of scikit-learn's networks",
            gain("ours", "sklearn_bagging", "r2"),
            at_least=0,
        ),
        Claim(
            "gain in R² over the same networks trained separately",
            gain("ours", "ours_apart", "r2"),
            at_least=0,
        ),
        Claim("times as fast as bagging", ratio("sklearn_bagging", "ours"), at_least=1),
    )

    @classmethod
    def left_out(cls):
        return reason_to_leave_out()

    def make_data(self):
        import torch

        torch.set_num_threads(1)  # the matrices are small; scikit-learn's networks use one core, too
        data = load_dataset(self.data_set)
        X, y = data.X.astype(np.float32), data.y.astype(np.float32)
        parts = train_test_split(X, y, test_size=0.25, random_state=0)
        first_training()
        if self.quick:
            warnings.simplefilter("ignore", ConvergenceWarning)  # five epochs are not expected to converge
            return tuple(part[:300] for part in parts)
        return tuple(parts)

    @property
    def passes(self):
        return 5 if self.quick else 500

    def ours(self, data):
        return NegativeCorrelationRegressor(10, 20, max_iter=self.passes, random_state=0).fit(
            data[0], data[2]
        )

    def ours_apart(self, data):
        model = NegativeCorrelationRegressor(10, 20, diversity=0.0, max_iter=self.passes, random_state=0)
        return model.fit(data[0], data[2])

    def network(self, units):
        # scikit-learn's early stopping monitors R² with an absolute tolerance; 1e-4 and ten epochs here, too.
        network = MLPRegressor(
            hidden_layer_sizes=(units,),
            learning_rate_init=3e-3,
            early_stopping=True,
            max_iter=self.passes,
            random_state=0,
        )
        return TransformedTargetRegressor(
            make_pipeline(StandardScaler(), network), transformer=StandardScaler()
        )

    def sklearn_bagging(self, data):
        return BaggingRegressor(self.network(20), 10, random_state=0).fit(data[0], data[2])

    def sklearn_big(self, data):
        return self.network(200).fit(data[0], data[2])

    def score(self, data, model):
        return {"r2": model.score(data[1], data[3])}


class JointNetworksAbalone(JointNetworksKin8nm):
    """abalone, 3,132 training and 1,045 test rows: ten networks, diversity 0.9, one thread."""

    needs = ("reg_abalone",)
    data_set = "reg_abalone"


class JointNetworksHousing(JointNetworksKin8nm):
    """California housing, 15,480 training and 5,160 test rows: ten networks, diversity 0.9, one thread."""

    needs = ("reg_cal_housing",)
    data_set = "reg_cal_housing"


class TrainedAutoencoder(Comparison):
    """USPS, 7,291 rows, five modules of 4: linear networks trained by gradient descent, and networks with
    a tanh layer, against the closed form."""

    alone = False
    needs = ("usps",)
    memory = False
    warm_up = False
    repeats = 1
    contenders = ("closed_form", "trained_linear", "trained_tanh")
    claims = (
        Claim(
            "loss of linear networks relative to the closed form",
            ratio("trained_linear", "closed_form", "loss"),
            at_most=1.01,
        ),
        Claim(
            "loss of networks with a hidden layer relative to the closed form",
            ratio("trained_tanh", "closed_form", "loss"),
            at_most=1.0,
        ),
    )

    @classmethod
    def left_out(cls):
        return reason_to_leave_out()

    def make_data(self):
        first_training()
        data = load_dataset("usps")
        return data.X[: 300 if self.quick else data.n_train].astype(np.float32)

    def closed_form(self, X):
        return ModularAutoencoder(5, 4, diversity=0.9, random_state=0).fit(X)

    def trained(self, X, **options):
        passes = 5 if self.quick else 200
        model = NetworkAutoencoder(
            5, 4, diversity=0.9, tol=1e-4, learning_rate=3e-3, max_iter=passes, random_state=0, **options
        )
        return model.fit(X)

    def trained_linear(self, X):
        return self.trained(X, hidden=(), activation="identity", validation_fraction=0)

    def trained_tanh(self, X):
        return self.trained(X, hidden=64, activation="tanh")

    def score(self, data, model):
        return {"loss": model.loss_}
