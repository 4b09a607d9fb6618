"""Voting of five nearest neighbors per module against five nearest neighbors in a monolithic representation.

Both use `ScanNeighborsClassifier`; scikit-learn's classifier on the monolithic representation is the third
contender. Only predictions are timed. The data sets are MNIST, rotated MNIST (regenerated) and USPS, which is
small, so only accuracy is claimed for it.
"""

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.data.mnist import load_rotated_mnist
from benchmarks.harness import Claim, Comparison, gain, ratio
from manylens import ModularKernelPCA, ScanNeighborsClassifier
from manylens.baselines import MonolithicKernelPCA
from manylens.datasets import load_dataset


class VotingMNIST(Comparison):
    """MNIST, 60,000 training, 10,000 test rows, 15 modules of 20 (diversity 0.9) against 300 components."""

    needs = ("mnist",)
    data_set = "mnist"
    memory = False
    contenders = ("ours", "ours_one_module", "monolithic", "sklearn_monolithic")
    claims = (
        Claim("points of accuracy lost by voting", gain("monolithic", "ours", scale=100), at_most=1),
        Claim(
            "times as fast if every module has its own worker",
            ratio("monolithic", "ours_one_module"),
            at_least=5,
            compared=("ours", "monolithic"),
        ),
        Claim("total time relative to the monolithic classifier", ratio("ours", "monolithic"), at_most=2),
    )

    def make_data(self):
        if self.data_set == "rotated":
            X, y, n = load_rotated_mnist(*((1000, 300) if self.quick else ()))
        else:
            loaded = load_dataset(self.data_set)
            X, y, n = loaded.X.astype(np.float32), loaded.y, loaded.n_train
        X /= X.max()
        y = np.unique(y, return_inverse=True)[1]
        train, test = (slice(0, 1000), slice(n, n + 300)) if self.quick else (slice(0, n), slice(n, None))
        size, rank = ((5, 4), 100) if self.quick else ((15, 20), 1000)
        lenses = ModularKernelPCA(*size, diversity=0.9, rank=rank, random_state=0).fit(X[train])
        whole = MonolithicKernelPCA(size[0] * size[1], rank=rank, random_state=0).fit(X[train])
        views = [lenses.split(lenses.transform(X[part])).swapaxes(0, 1) for part in (train, test)]
        members = [ScanNeighborsClassifier(5).fit(np.ascontiguousarray(view), y[train]) for view in views[0]]
        return {
            "members": members,
            "views": [np.ascontiguousarray(view) for view in views[1]],
            "whole": ScanNeighborsClassifier(5).fit(whole.transform(X[train]), y[train]),
            "sklearn": KNeighborsClassifier(5).fit(whole.transform(X[train]), y[train]),
            "rows": whole.transform(X[test]),
            "y": y[test],
        }

    def ours(self, data):
        pairs = zip(data["members"], data["views"], strict=True)
        return np.argmax(np.sum([member.predict_proba(view) for member, view in pairs], axis=0), axis=1)

    def ours_one_module(self, data):
        return data["members"][0].predict(data["views"][0])

    def monolithic(self, data):
        return data["whole"].predict(data["rows"])

    def sklearn_monolithic(self, data):
        return data["sklearn"].predict(data["rows"])

    def score(self, data, predicted):
        return {"accuracy": np.mean(predicted == data["y"])}


class VotingRotatedMNIST(VotingMNIST):
    """MNIST with rotated digits (regenerated), 60,000 training and 10,000 test rows, 15 modules of 20
    against 300 components."""

    data_set = "rotated"


class VotingUSPS(VotingMNIST):
    """USPS, 7,291 training and 2,007 test rows, 15 modules of 20 (diversity 0.9) against 300 components."""

    needs = ("usps",)
    data_set = "usps"
    claims = VotingMNIST.claims[:1]
