"""Choosing the diversity: what nine diversities cost over one."""

import numpy as np
from sklearn.model_selection import ShuffleSplit
from sklearn.neighbors import NearestCentroid

from benchmarks.harness import Claim, Comparison
from manylens import DiversitySearchCV, ModularKernelPCA, ModuleVotingClassifier
from manylens.datasets import load_dataset
from manylens.ensembles.diversity_search import DIVERSITIES


def on_representations(results):
    """Seconds on representations with nine diversities over those with one."""
    return results["ours"]["representation_seconds"] / results["one_diversity"]["representation_seconds"]


class NineDiversities(Comparison):
    """MNIST, one fold of 60,000 and 10,000 rows, 15 modules of 20, nearest centroids that vote."""

    needs = ("mnist",)
    memory = False
    contenders = ("ours", "one_diversity")
    claims = (Claim("nine diversities, times the representations of one", on_representations, at_most=1.5),)

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
