"""Choosing the diversity: the cost of nine diversities relative to one."""

import numpy as np
from sklearn.model_selection import ShuffleSplit
from sklearn.neighbors import NearestCentroid

from benchmarks.harness import Claim, Comparison
from manylens import DiversitySearchCV, ModularKernelPCA, ModuleVotingClassifier
from manylens.datasets import load_dataset
from manylens.ensembles.diversity_search import DIVERSITIES


def representation_cost(results):
    """Seconds spent on representations for nine diversities, relative to one."""
    return results["ours"]["representation_seconds"] / results["one_diversity"]["representation_seconds"]


class DiversitySearchCost(Comparison):
    """MNIST, one split into 60,000 and 10,000 rows, voting of nearest-centroid classifiers in 15 modules of
    20."""

    needs = ("mnist",)
    memory = False
    contenders = ("ours", "one_diversity")
    scores = ("accuracy",)
    claims = (
        Claim(
            "time for the representations of nine diversities, relative to one",
            representation_cost,
            at_most=1.5,
            compared=("ours", "one_diversity"),
        ),
    )

    def make_data(self):
        loaded = load_dataset("mnist")
        n = 1400 if self.quick else len(loaded.X)
        size, rank = ((5, 4), 100) if self.quick else ((15, 20), 1000)
        X, y = loaded.X[:n].astype(np.float32) / 255, loaded.y[:n]
        vote = ModuleVotingClassifier(ModularKernelPCA(*size, rank=rank, random_state=0), NearestCentroid())
        return X, y, vote, ShuffleSplit(1, test_size=n // 7, random_state=0)

    def ours(self, data):
        X, y, vote, split = data
        return DiversitySearchCV(vote, DIVERSITIES, cv=split, refit=False).fit(X, y)

    def one_diversity(self, data):
        X, y, vote, split = data
        return DiversitySearchCV(vote, DIVERSITIES[:1], cv=split, refit=False).fit(X, y)

    def score(self, data, search):
        return {"representation_seconds": search.representation_time_, "accuracy": search.best_score_}
