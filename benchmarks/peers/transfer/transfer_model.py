"""A ridge on the layers of a frozen network, against himalaya on the same features."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from benchmarks.harness import Claim, Comparison, ratio
from manylens import LayerRidgeClassifier, TemperatureScaler, collect_layers, expected_calibration_error


def frozen_layers(n_train):
    """Layers of a small network trained on half of the digits' classes, for all digits."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)  # more only wait for each other on images of 64 pixels
    X, y = load_digits(return_X_y=True)
    images = torch.as_tensor(X.reshape(-1, 1, 8, 8) / 16, dtype=torch.float32)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 5),
    )  # fmt: skip
    known = torch.as_tensor(np.flatnonzero(y < 5))
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(60):
        loss = nn.functional.cross_entropy(network(images[known]), torch.as_tensor(y)[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    layers = collect_layers(network, images, ["0", "2", "5"], pooling="flatten")
    train, test = train_test_split(np.arange(len(y)), train_size=n_train, random_state=0, stratify=y)
    return layers[train], y[train], layers[test], y[test]


class TransferPeers(Comparison):
    """Ten digits from three layers of a network trained on five of them, 900 labels: accuracy, log loss,
    calibration error and time of ours, himalaya's MultipleKernelRidgeCV (one linear kernel per layer,
    and a temperature from held-out rows) and logistic regression on the top layer, on one thread each."""

    contenders = ("ours", "himalaya", "logistic_top_layer")
    needs_packages = {"himalaya": "himalaya"}
    repeats = 1  # himalaya takes about ten seconds
    memory = False
    claims = (
        Claim("accuracy relative to himalaya", ratio("ours", "himalaya", "accuracy"), at_least=0.99),
        Claim("log loss relative to himalaya", ratio("ours", "himalaya", "log_loss"), at_most=1),
        Claim("time relative to himalaya", ratio("ours", "himalaya"), at_most=1),
    )

    def make_data(self):
        return frozen_layers(200 if self.quick else 900)

    def ours(self, data):
        layers, y, new, _ = data
        with threadpool_limits(1):
            return LayerRidgeClassifier(random_state=0).fit(layers, y).predict_proba(new)

    def himalaya(self, data):
        from himalaya.kernel_ridge import MultipleKernelRidgeCV

        layers, y, new, _ = data
        scaled = {
            name: np.sqrt(np.mean(np.square(rows - rows.mean(0)).sum(1))) for name, rows in layers.items()
        }
        train, test = (
            [(rows[name] - layers[name].mean(0)) / scaled[name] for name in layers] for rows in (layers, new)
        )
        fit, held_out = train_test_split(np.arange(len(y)), test_size=0.2, random_state=0, stratify=y)
        targets = np.eye(10, dtype=np.float32)[y]

        def scores(own, others):
            model = MultipleKernelRidgeCV(
                kernels="precomputed",
                solver="random_search",
                solver_params={"n_iter": 10, "alphas": np.logspace(-6, 2, 17), "progress_bar": False},
                random_state=0,
            )
            mean = targets[own].mean(0)
            model.fit(np.stack([X[own] @ X[own].T for X in train]), targets[own] - mean)
            return model.predict(np.stack([Z @ X[own].T for Z, X in zip(others, train, strict=True)])) + mean

        # A temperature for it, too: from rows that it was not fitted to, before it is fitted to all.
        with threadpool_limits(1):  # the threads of several BLAS libraries take the cores from each other
            scaler = TemperatureScaler().fit(scores(fit, [X[held_out] for X in train]), y[held_out])
            return scaler.predict_proba(scores(np.arange(len(y)), test))

    def logistic_top_layer(self, data):
        layers, y, new, _ = data
        with threadpool_limits(1):
            return LogisticRegression(max_iter=1000).fit(layers["5"], y).predict_proba(new["5"])

    def score(self, data, proba):
        y, proba = data[3], np.asarray(proba, dtype=np.float64)
        proba = proba / proba.sum(axis=1, keepdims=True)  # up to the rounding of float32
        return {
            "accuracy": float(np.mean(np.argmax(proba, axis=1) == y)),
            "log_loss": float(log_loss(y, proba)),
            "calibration_error": expected_calibration_error(y, proba, binning="mass"),
        }
