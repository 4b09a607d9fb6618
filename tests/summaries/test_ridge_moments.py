"""Joint moments of features and targets, from which a ridge is learned."""

import numpy as np

from manylens.summaries import Moments
from manylens.transfer.ridge import gcv_errors, path_from_moments
from tests.summaries.contract import SummaryContract


class TestRidgeMoments(SummaryContract):
    """The ridge that is learned from joint moments satisfies the contract of summaries."""

    rtol = 1e-8
    float32_rtol = 1e-3

    def make(self):
        return Moments(6)

    def batch(self, which, dtype=np.float64):
        rng = np.random.default_rng(0)
        features = rng.standard_normal((self.n_rows, 4)) + 3
        targets = features @ rng.standard_normal((4, 2)) + rng.standard_normal((self.n_rows, 2))
        return (np.hstack([features, targets])[which].astype(dtype),)

    def result(self, summary):
        path = path_from_moments(summary, 4)
        return [*path.solve(0.1), gcv_errors(path, summary, np.array([0.01, 1.0]))]

    def refused(self):
        return [(np.ones((3, 5)),)]
