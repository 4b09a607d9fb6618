"""NCA where the start decides, against scikit-learn; and on-line, against the batch fit."""

import time
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from benchmarks.harness import Claim, Comparison, gain, ratio, result
from benchmarks.peers.metric.nca_fits import vote
from manylens import NCA
from manylens.datasets import load_dataset
from manylens.metric import Stochastic

warnings.filterwarnings("ignore", message="NCA stopped after")
warnings.filterwarnings("ignore", message=r"\[NeighborhoodComponentsAnalysis\] NCA did not converge")


def classes_and_noise(n_classes, per_class, spread, noise, seed):
    """Training rows and ten test rows per class: centers in ten columns, and 20 columns of noise."""
    rng = np.random.default_rng(seed)
    centers = spread * rng.normal(size=(n_classes, 10))

    def draw(count):
        y = np.repeat(np.arange(n_classes), count)
        return np.c_[centers[y] + rng.normal(size=(len(y), 10)), noise * rng.normal(size=(len(y), 20))], y

    return *draw(per_class), *draw(10)


class Starts(Comparison):
    """Base class: the defaults of ours and of scikit-learn on several draws of one kind of data. The accuracy
    is the mean of 5-NN's on test rows."""

    abstract = True
    repeats = 1
    memory = False
    contenders = ("ours", "sklearn")
    n_components = 8
    settings = (100, 15, 3.0, 3.0)
    draws = 5

    def make_data(self):
        settings = (min(10, self.settings[0]), *self.settings[1:]) if self.quick else self.settings
        return [classes_and_noise(*settings, 100 + seed) for seed in range(1 if self.quick else self.draws)]

    def ours(self, data):
        return [NCA(self.n_components, random_state=0).fit(*one[:2]) for one in data]

    def sklearn(self, data):
        return [
            NeighborhoodComponentsAnalysis(self.n_components, random_state=0).fit(*one[:2]) for one in data
        ]

    def score(self, data, outcome):
        return {
            "accuracy": float(np.mean([vote(map_, *one) for map_, one in zip(outcome, data, strict=True)]))
        }


class NCAManyClasses(Starts):
    """100 classes of 15 rows around centers in ten columns, and 20 columns of noise, in eight dimensions."""

    claims = (
        Claim("accuracy above scikit-learn's", gain("ours", "sklearn"), at_least=-0.01),
        Claim("times as fast as scikit-learn", ratio("sklearn", "ours"), at_least=1),
    )


class NCASmallClasses(NCAManyClasses):
    """100 classes of eight rows around centers in ten columns, 20 columns of noise, eight dimensions."""

    settings = (100, 8, 3.0, 3.0)


class NCAFewRows(NCAManyClasses):
    """Ten classes of eight rows around centers in ten columns, 20 columns of noise, four dimensions."""

    settings = (10, 8, 3.0, 3.0)
    n_components = 4
    draws = 20
    repeats = 3


class NCAGlass(NCAManyClasses):
    """Glass (214 rows, nine columns, six classes) in six dimensions, 100 random splits with 30 % test rows.
    Both start from principal components, ours at the scale that suits the kernel. The error is that of the
    mean of paired differences."""

    needs = ("glass",)
    n_components = 6
    draws = 100

    def make_data(self):
        glass = load_dataset("glass")
        y = np.unique(glass.y, return_inverse=True)[1]
        splits = StratifiedShuffleSplit(
            1 if self.quick else self.draws, test_size=0.3, random_state=self.seed
        )
        return [
            (glass.X[train], y[train], glass.X[test], y[test]) for train, test in splits.split(glass.X, y)
        ]

    def score(self, data, outcome):
        accuracies = np.array([vote(map_, *one) for map_, one in zip(outcome, data, strict=True)])
        found = {"accuracy": float(accuracies.mean())}
        if isinstance(outcome[0], NCA):  # scored first
            self.of_ours = accuracies
        elif len(data) > 1:
            difference = self.of_ours - accuracies
            found["error_of_difference"] = float(difference.std(ddof=1) / np.sqrt(len(data)))
        return found


class NCALargeNoise(Starts):
    """Five classes whose ten informative columns are small beside 20 columns of noise, in four dimensions, by
    every optimizer."""

    settings = (5, 60, 1.5, 30.0)
    n_components = 4
    contenders = ("ours", "minibatch", "stochastic", "sklearn")
    claims = (
        Claim("accuracy above scikit-learn's", gain("ours", "sklearn"), at_least=-0.01),
        Claim("mini-batches: accuracy above scikit-learn's", gain("minibatch", "sklearn"), at_least=-0.01),
        Claim("stochastic: accuracy above scikit-learn's", gain("stochastic", "sklearn"), at_least=-0.01),
    )

    def minibatch(self, data):
        return [NCA(self.n_components, method="minibatch", random_state=0).fit(*one[:2]) for one in data]

    def stochastic(self, data):
        return [NCA(self.n_components, method="stochastic", random_state=0).fit(*one[:2]) for one in data]


class NCAOnline(Comparison):
    """The digits as a stream, in five dimensions: one row at a time against a base of 500 or of all rows, and
    with the new row as the only anchor, as in the chapter; against a batch fit to all of them. The
    accuracy is that of 5-NN on 397 other digits, after 350, 700 and 1,400 rows."""

    contenders = ("batch", "online", "all_rows", "chapter")
    repeats = 1
    memory = False
    claims = (
        Claim("accuracy after one pass, above the batch fit's", gain("online", "batch"), at_least=-0.03),
        Claim("milliseconds per row", result("online", "ms_per_row")),
    )

    def make_data(self):
        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(X))
        X, y = X[order] / 16, y[order]
        n = 320 if self.quick else 1400
        return X[:n], y[:n], X[1400:], y[1400:]

    def batch(self, data):
        return NCA(5, random_state=0).fit(*data[:2]), {}

    def stream(self, data, method):
        X, y = data[:2]
        nca, found = NCA(5, method=method, random_state=0), {}
        seconds = 0.0
        for row in range(len(X)):
            start = time.perf_counter()
            nca.partial_fit(X[row : row + 1], y[row : row + 1])
            seconds += time.perf_counter() - start
            if row + 1 in (len(X) // 4, len(X) // 2):
                found[f"accuracy_after_{row + 1}"] = vote(nca, *data)
        return nca, {**found, "ms_per_row": 1000 * seconds / len(X)}

    def online(self, data):
        return self.stream(data, Stochastic(base=500))

    def all_rows(self, data):
        return self.stream(data, Stochastic(base=None))

    def chapter(self, data):
        return self.stream(data, Stochastic(anchors=1, base=None))

    def score(self, data, outcome):
        nca, found = outcome
        return {"accuracy": vote(nca, *data), **found}
