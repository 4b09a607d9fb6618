"""Whole fits of NCA: time, memory and test 5-NN accuracy, every method, against scikit-learn where it can."""

import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis

from benchmarks.harness import Claim, Comparison, ratio, result
from manylens import NCA
from manylens.datasets import load_dataset
from manylens.metric import MiniBatch

warnings.filterwarnings("ignore", message="NCA stopped after")


def split(name, quick=False, n_train=None):
    """Training and test part of a data set as float32, images in [0, 1]; if quick, of the digits."""
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
    """Accuracy of the five nearest neighbors under a map."""
    neighbors = KNeighborsClassifier(5).fit(map_.transform(X), y)
    return float(neighbors.score(map_.transform(X_test), y_test))


class NCAMnist(Comparison):
    """MNIST, d = 10: ours on 60,000 rows against scikit-learn on 10,000 of them; test 5-NN on 10,000."""

    contenders = ("ours", "scikit_learn")
    repeats = 1
    warm_up = ("ours",)
    memory = False  # scikit-learn would take four minutes again; ours is weighed as a whole process
    needs = ("mnist",)
    claims = (
        Claim("96.3 % test 5-NN on MNIST", result("ours", "accuracy"), at_least=0.963),
        Claim(
            "in at most 1/20 of the time that scikit-learn takes on 10,000 rows",
            ratio("scikit_learn", "ours"),
            at_least=20,
        ),
        Claim("the whole process stays under 600 MB", result("ours", "process_mb"), at_most=600),
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

    Linux only: `getrusage` would count what this process held when it started the other.
    """
    program = (
        "from benchmarks.bench_nca_fits import NCA, split; X, y = split('mnist')[:2];"
        "NCA(n_components=10, random_state=0).fit(X, y);"
        "lines = open('/proc/self/status').read().splitlines();"
        "print(next(int(line.split()[1]) / 1024 for line in lines if line.startswith('VmHWM')))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    return float(run.stdout)


class EveryMethod:
    """Base: every method on one data set; time and test 5-NN accuracy, nothing chosen by the test part."""

    contenders = (
        "auto",
        "exact",
        "tree",
        "subsample",
        "minibatch",
        "rpc",
        "fpc",
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

    def compact(self, data):
        return self.fit(data, method="compact")

    def background(self, data):
        return self.fit(data, method="compact-background")

    def pca(self, data):
        return PCA(self.n_components, random_state=0).fit(data[0])

    def score(self, data, outcome):
        return {"accuracy": vote(outcome, *data)}


class NCALetter(EveryMethod, Comparison):
    """letter, 16,000 rows, d = 8: every method."""

    alone = False
    needs = ("letter",)
    warm_up = ("tree", "compact", "background")  # which compile all there is
    data_set = "letter"
    n_components = 8
    claims = (Claim("95.5 % test 5-NN on letter", result("auto", "accuracy"), at_least=0.955),)


class NCAIsolet(EveryMethod, Comparison):
    """isolet, 6,238 rows, d = 20: every method that does not need the whole objective many times."""

    alone = False
    contenders = ("auto", "exact", "subsample", "minibatch", "rpc", "fpc", "pca")
    needs = ("isolet",)
    data_set = "isolet"
    n_components = 20
    claims = (Claim("94 % test 5-NN on isolet", result("auto", "accuracy"), at_least=0.94),)


class NCACompactSupport(Comparison):
    """MNIST, 20,000 rows, d = 10: fits with compact support and range search against the exact Gaussian."""

    contenders = ("exact", "compact", "background")
    repeats = 1
    memory = False
    needs = ("mnist",)
    claims = (
        Claim("compact support fits faster than the exact Gaussian", ratio("exact", "compact"), at_least=1),
        Claim(
            "its test 5-NN accuracy is within 1.5 points",
            lambda results: results["exact"]["accuracy"] - results["compact"]["accuracy"],
            at_most=0.015,
        ),
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
    """1,000,000 x 50 float32 rows with method="auto" and d = 10, against a half of them."""

    contenders = ("million", "half")
    repeats = 1
    claims = (
        Claim("a million rows fit in 2 GB above the data", result("million", "peak_mb"), at_most=2048),
        Claim("twice the rows take at most 2.3 times the time", ratio("million", "half"), at_most=2.3),
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


class NCAFirstCall(Comparison):
    """The first fit in a fresh process: with nothing compiled, and with the compiled code cached."""

    contenders = ("cold", "cached")
    repeats = 1
    warm_up = False
    memory = False
    claims = (
        Claim("the first call compiles in under 10 s", result("cold", "first_call"), at_most=10),
        Claim("and takes under 1 s once cached", result("cached", "first_call"), at_most=1),
        Claim(
            "importing manylens takes under 0.5 s beyond scikit-learn",
            result("cached", "import_time"),
            at_most=0.5,
        ),
    )

    PROGRAM = """
import time
import sklearn.neighbors, sklearn.decomposition, sklearn.discriminant_analysis, sklearn.pipeline
start = time.perf_counter()
import manylens
imported = time.perf_counter() - start
import numpy as np
rng = np.random.default_rng(0)
X, y = rng.normal(size=(200, 5)), rng.integers(3, size=200)
nca = manylens.NCA(2, tol=0.1, max_iter=1000)
start = time.perf_counter()
nca.fit(X, y)
print(time.perf_counter() - start, imported)
"""

    def make_data(self):
        return tempfile.TemporaryDirectory()

    def run_fresh(self, folder):
        environment = dict(os.environ)
        if not self.quick:
            environment["NUMBA_CACHE_DIR"] = folder.name
        run = subprocess.run(
            [sys.executable, "-c", self.PROGRAM], env=environment, capture_output=True, check=True, text=True
        )
        first_call, import_time = map(float, run.stdout.split())
        return {"first_call": first_call, "import_time": import_time}

    def cold(self, data):
        return self.run_fresh(data)

    def cached(self, data):
        runs = [self.run_fresh(data) for _ in range(1 if self.quick else 3)]
        return {name: min(run[name] for run in runs) for name in runs[0]}

    def score(self, data, outcome):
        return outcome
