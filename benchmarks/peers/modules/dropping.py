"""Random loss of modules: the inner products, the neighbors and the votes of those that answer."""

import numpy as np
from scipy.stats import mode

from benchmarks.harness import Claim, Comparison, gain
from benchmarks.peers.modules.kernel_pca import mnist, neighbors
from manylens import ModularKernelPCA
from manylens.baselines import PartitionKernelPCA, RandomKernelProjection
from manylens.modules.solver import pad_spectrum

KEEP = (0.9, 0.5, 0.2)
OTHERS = ("balanced", "default", "partition", "random")


class LossOfModules(Comparison):
    """MNIST, 6,000 rows, 15 modules of 20, rank 1,000, 1,000 queries; each module answers with probability
    0.9, 0.5 or 0.2, ten draws each. The error (%) of the sum of inner products over the modules that answer
    is its expectation relative to |K|², at the best common scale of each contender; precision (%) is that of
    the ten nearest neighbors by the distances in them; and votes are those of one 5-NN classifier per module.
    If no module answers, precision and accuracy count as 0."""

    contenders = ("keep_probability", *OTHERS)
    needs = ("mnist",)
    repeats = 1
    warm_up = False
    memory = False
    claims = (
        *(
            Claim(
                f"points of error above {other}, answering with probability {p}",
                gain("keep_probability", other, f"error_{p}"),
                at_most=1e-9,
            )
            for p in KEEP
            for other in OTHERS
        ),
        *(
            Claim(
                f"points of precision of diversity 1 above {other}, answering with probability 0.5",
                gain("balanced", other, "precision_0.5"),
                at_least=0,
            )
            for other in ("keep_probability", "default", "partition", "random")
        ),
        Claim(
            "points of precision of keep_probability above diversity 1, answering with probability 0.2",
            gain("keep_probability", "balanced", "precision_0.2"),
            at_least=0,
        ),
    )

    def make_data(self):
        (X, y), (queries, answers), _ = mnist(self.quick, 6_000, 1_000)
        self.settings = {
            "n_modules": 15,
            "n_components": 5 if self.quick else 20,
            "rank": 100 if self.quick else 1000,
            "random_state": 0,
        }
        return X, y, queries, answers

    def keep_probability(self, data):
        return [ModularKernelPCA(**self.settings, keep_probability=p).fit(data[0]) for p in KEEP]

    def balanced(self, data):
        return [ModularKernelPCA(**self.settings, diversity=1.0).fit(data[0])] * len(KEEP)

    def default(self, data):
        return [ModularKernelPCA(**self.settings).fit(data[0])] * len(KEEP)

    def partition(self, data):
        return [PartitionKernelPCA(**self.settings).fit(data[0])] * len(KEEP)

    def random(self, data):
        return [RandomKernelProjection(**self.settings).fit(data[0])] * len(KEEP)

    def score(self, data, models):
        X, y, queries, answers = data
        truth, scores = neighbors(X, queries), {}
        for p, model in zip(KEEP, models, strict=True):
            rows, asked = model.split(model.transform(X)), model.split(model.transform(queries))
            votes = np.stack(
                [mode(y[neighbors(rows[:, m], asked[:, m], 5)], axis=1).mode for m in range(rows.shape[1])]
            )
            draws = np.random.default_rng(self.seed).random((3 if self.quick else 10, len(votes))) < p
            found = [answer(kept, rows, asked, truth, votes, answers) for kept in draws]
            precision, accuracy = np.mean(found, axis=0)
            scores |= {f"precision_{p}": float(precision), f"accuracy_{p}": float(accuracy)}
            scores[f"error_{p}"] = expected_error(model, p)
        return scores


def expected_error(model, p):
    """min over s of E |s Σ_m η_m G_m - Q|² / |Q|² (%), η_m = 1 with probability p."""
    F, energy = model.modules_, model.decomposition_.energy
    M, _, width = F.shape
    q = pad_spectrum(model.spectrum_, width)
    gram = np.tensordot(F, F, axes=(2, 2))  # (M, H, M, H)
    own = sum(np.sum(gram[m, :, m] ** 2) for m in range(M))
    squares = p**2 * np.sum(gram**2) + p * (1 - p) * own
    return float(100 * (1 - (p * np.sum(F**2 * q)) ** 2 / squares / energy))


def answer(kept, rows, asked, truth, votes, answers):
    """Precision and accuracy (%) of the modules that answer."""
    if not kept.any():
        return 0.0, 0.0
    found = neighbors(rows[:, kept].reshape(len(rows), -1), asked[:, kept].reshape(len(asked), -1))
    hits = sum(len(np.intersect1d(mine, right)) for mine, right in zip(found, truth, strict=True))
    return 100 * hits / truth.size, 100 * np.mean(mode(votes[kept], axis=0).mode == answers)
