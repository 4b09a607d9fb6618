"""Complete NCA fits: time, memory and test accuracy of 5-NN, for every method and for other libraries."""

import subprocess
import sys
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.utils import check_array, check_X_y

from benchmarks.harness import Claim, Comparison, gain, ratio, result
from manylens import NCA
from manylens.datasets import load_dataset
from manylens.metric import MiniBatch

warnings.filterwarnings("ignore", message="NCA stopped after")


def split(name, quick=False, n_train=None):
    """Training and test rows of a data set as float32, images in [0, 1]; scikit-learn's digits if quick."""
    if quick:
        X, y = load_digits(return_X_y=True)
        X = X.astype(np.float32) / 16
        return X[:600], y[:600], X[600:1000], y[600:1000]
    found = load_dataset(name)
    X = found.X.astype(np.float32)
    if found.image_shape is not None:
        X /= 255
    y = np.unique(found.y, return_inverse=True)[1]
    n = n_train or found.n_train
    return X[:n], y[:n], X[found.n_train :], y[found.n_train :]


def vote(map_, X, y, X_test, y_test):
    """Test accuracy of 5-NN on the projected rows."""
    neighbors = KNeighborsClassifier(5).fit(map_.transform(X), y)
    return float(neighbors.score(map_.transform(X_test), y_test))


class NCAMNIST(Comparison):
    """MNIST in ten dimensions: ours fits 60,000 rows, scikit-learn 10,000 of them. The accuracy is that of
    5-NN on 10,000 test rows."""

    contenders = ("ours", "scikit_learn")
    repeats = 1
    warm_up = ("ours",)
    memory = False  # scikit-learn would take another four minutes; ours is measured as a whole process
    needs = ("mnist",)
    claims = (
        Claim("test accuracy of 5-NN on MNIST", result("ours", "accuracy"), at_least=0.963),
        Claim(
            "times as fast as scikit-learn on a sixth of the rows", ratio("scikit_learn", "ours"), at_least=20
        ),
        Claim("peak MB of the whole process", result("ours", "process_mb"), at_most=600),
    )

    def make_data(self):
        return split("mnist", self.quick)

    def ours(self, data):
        return NCA(n_components=10, method="auto", random_state=0).fit(data[0], data[1])

    def scikit_learn(self, data):
        rows = np.random.default_rng(0).permutation(len(data[0]))[:10_000]
        limits = {"max_iter": 2} if self.quick else {}
        return NeighborhoodComponentsAnalysis(10, random_state=0, **limits).fit(data[0][rows], data[1][rows])

    def score(self, data, outcome):
        found = {"accuracy": vote(outcome, *data)}
        if isinstance(outcome, NCA) and not self.quick:
            found["process_mb"] = whole_process_mb()
        return found


def whole_process_mb():
    """Largest resident size, in MB, of a process that loads MNIST and fits NCA to it.

    Linux only; `getrusage` would also count the memory of the parent process at the start.
    """
    program = (
        "from benchmarks.peers.metric.nca_fits import NCA, split; X, y = split('mnist')[:2];"
        "NCA(n_components=10, random_state=0).fit(X, y);"
        "lines = open('/proc/self/status').read().splitlines();"
        "print(next(int(line.split()[1]) / 1024 for line in lines if line.startswith('VmHWM')))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    return float(run.stdout)


class EveryMethod:
    """Base class: every method on one data set; no setting is chosen on the test rows."""

    contenders = (
        "auto",
        "exact",
        "tree",
        "subsample",
        "minibatch",
        "rpc",
        "fpc",
        "rpc_original",
        "fpc_original",
        "compact",
        "background",
        "pca",
    )
    repeats = 1
    memory = False
    data_set = ""
    n_components = 2

    def make_data(self):
        return split(self.data_set, self.quick)

    def fit(self, data, **parameters):
        parameters = {"max_iter": 2, **parameters} if self.quick else parameters
        return NCA(self.n_components, random_state=0, **parameters).fit(data[0], data[1])

    def auto(self, data):
        return self.fit(data)

    def exact(self, data):
        return self.fit(data, method="exact")

    def tree(self, data):
        return self.fit(data, method="tree")

    def subsample(self, data):
        return self.fit(data, method="subsample")

    def minibatch(self, data):
        return self.fit(data, method="minibatch")

    def rpc(self, data):
        return self.fit(data, method=MiniBatch(batching="rpc"))

    def fpc(self, data):
        return self.fit(data, method=MiniBatch(batching="fpc"))

    def rpc_original(self, data):
        return self.fit(data, method=MiniBatch(batching="rpc-original"))

    def fpc_original(self, data):
        return self.fit(data, method=MiniBatch(batching="fpc-original"))

    def compact(self, data):
        return self.fit(data, method="compact")

    def background(self, data):
        return self.fit(data, method="compact-background")

    def pca(self, data):
        return PCA(self.n_components, random_state=0).fit(data[0])

    def score(self, data, outcome):
        return {"accuracy": vote(outcome, *data)}


class NCALetter(EveryMethod, Comparison):
    """All methods on the data set letter: 16,000 rows, eight dimensions."""

    alone = False
    needs = ("letter",)
    warm_up = ("tree", "compact", "background")  # these compile everything
    data_set = "letter"
    n_components = 8
    claims = (Claim("test accuracy of 5-NN on letter", result("auto", "accuracy"), at_least=0.955),)


class NCAIsolet(EveryMethod, Comparison):
    """The faster methods on the data set isolet: 6,238 rows, 20 dimensions."""

    alone = False
    contenders = (
        "auto",
        "exact",
        "subsample",
        "minibatch",
        "rpc",
        "fpc",
        "rpc_original",
        "fpc_original",
        "pca",
    )
    needs = ("isolet",)
    data_set = "isolet"
    n_components = 20
    claims = (Claim("test accuracy of 5-NN on isolet", result("auto", "accuracy"), at_least=0.94),)


class NCACompactSupport(Comparison):
    """20,000 rows of MNIST in ten dimensions: compact support with range search against the exact Gaussian
    kernel."""

    contenders = ("exact", "compact", "background")
    repeats = 1
    memory = False
    needs = ("mnist",)
    claims = (
        Claim("compact support: times as fast as the exact Gaussian", ratio("exact", "compact"), at_least=1),
        Claim("compact support: loss of test accuracy", gain("exact", "compact"), at_most=0.015),
    )

    def make_data(self):
        return split("mnist", self.quick, 20_000)

    def fit(self, data, method):
        limit = 2 if self.quick else 30
        return NCA(10, method=method, init="pca", max_iter=limit, random_state=0).fit(data[0], data[1])

    def exact(self, data):
        return self.fit(data, "exact")

    def compact(self, data):
        return self.fit(data, "compact")

    def background(self, data):
        return self.fit(data, "compact-background")

    def score(self, data, outcome):
        return {"accuracy": vote(outcome, *data), "iterations": outcome.n_iter_}


class NCAMillionRows(Comparison):
    """1,000,000 float32 rows with 50 features, method="auto", ten dimensions; compared with half of the
    rows."""

    contenders = ("million", "half")
    repeats = 1
    claims = (
        Claim("peak MB above the data", result("million", "peak_mb"), at_most=2048),
        Claim("time for twice the rows, relative", ratio("million", "half"), at_most=2.3),
    )

    def make_data(self):
        n = 6000 if self.quick else 1_000_000
        rng = np.random.default_rng(0)
        y = rng.integers(20, size=n)
        X = rng.normal(size=(n, 50)).astype(np.float32)
        X += (1.2 * rng.normal(size=(20, 50)).astype(np.float32))[y]
        return X, y

    def million(self, data):
        return self.fit(*data)

    def fit(self, X, y):
        return NCA(10, random_state=0, max_iter=1 if self.quick else 50).fit(X, y)

    def half(self, data):
        n = len(data[0]) // 2
        return self.fit(data[0][:n], data[1][:n])

    def score(self, data, outcome):
        return {"mean_score": outcome.score_path_[-1], "sweeps": outcome.n_iter_}


def renamed(check):
    """Wrap a check of scikit-learn so that it takes metric-learn's keyword, which 1.8 has renamed."""

    def with_old_keyword(*arrays, force_all_finite=True, **options):
        return check(*arrays, ensure_all_finite=force_all_finite, **options)

    return with_old_keyword


class PeerNCA(Comparison):
    """NCA of 1,000 of scikit-learn's digits in two dimensions, with at most 30 iterations for each
    contender. The accuracy is that of 5-NN on the other 797 digits, mean of eight random splits: one split
    has a standard error of 1.5 points."""

    contenders = ("ours", "sklearn", "metric_learn")
    needs_packages = {"metric_learn": "metric_learn"}
    repeats = 3
    memory = False
    claims = (
        Claim("times as fast as scikit-learn", ratio("sklearn", "ours"), at_least=1),
        Claim("times as fast as metric-learn", ratio("metric_learn", "ours"), at_least=1),
        Claim(
            "5-NN accuracy minus scikit-learn's, mean of eight splits",
            gain("ours", "sklearn"),
            at_least=-0.01,
        ),
    )

    def make_data(self):
        X, y = load_digits(return_X_y=True)
        X = X / 16
        self.iterations = 3 if self.quick else 30
        n = 300 if self.quick else 1_000
        return X[:n], y[:n], X[1_000:], y[1_000:]

    def ours(self, data):
        return NCA(2, method="exact", max_iter=self.iterations, random_state=0).fit(*data[:2])

    def sklearn(self, data):
        model = NeighborhoodComponentsAnalysis(2, max_iter=self.iterations, random_state=0)
        return model.fit(*data[:2])

    def metric_learn(self, data):
        from metric_learn import NCA as TheirNCA
        from metric_learn import _util

        _util.check_X_y, _util.check_array = renamed(check_X_y), renamed(check_array)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that it stopped at the last iteration
            return TheirNCA(n_components=2, max_iter=self.iterations, random_state=0).fit(*data[:2])

    def score(self, data, model):
        X, y = (np.concatenate(data[k::2]) for k in range(2))
        found = []
        for draw in range(1 if self.quick else 8):
            parts = train_test_split(X, y, train_size=len(data[0]), random_state=draw, stratify=y)
            X_train, X_test, y_train, y_test = parts
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                lens = clone(model).fit(X_train, y_train)
            found.append(vote(lens, X_train, y_train, X_test, y_test))
        return {"accuracy": np.mean(found), "accuracies": found}
