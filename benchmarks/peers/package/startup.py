"""Waiting times of a fresh process: importing the package, and the first call of every estimator."""

import os
import subprocess
import sys
import tempfile

from benchmarks.harness import Claim, Comparison, ratio, result

SECONDS = 3.0  # that a first call may take

DATA = """
import time, warnings
warnings.simplefilter("ignore")
import numpy as np
import manylens
rng = np.random.default_rng(0)
y = np.arange(2000) % 3
X = rng.normal(size=(2000, 12)) + rng.normal(size=(3, 12))[y]
"""

TIMING = """
def seconds():
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
print(seconds(), seconds())
"""

LENSES = (
    "from manylens import ModularKernelPCA; lenses = ModularKernelPCA(3, 2, rank=50, random_state=0).fit(X);"
)
LAYERS = "layers = {'one': X[:, :4], 'two': X[:, 4:]};"
FOREST = "from sklearn.ensemble import RandomForestClassifier as F; forest = F(10, random_state=0).fit(X, y);"

# estimator -> what precedes the timed call (imports included), and the call
CALLS = {
    "ModularKernelPCA": (
        "from manylens import ModularKernelPCA",
        "ModularKernelPCA(3, 2, rank=50, random_state=0).fit(X).transform(X)",
    ),
    "ModularAutoencoder": (
        "from manylens import ModularAutoencoder",
        "ModularAutoencoder(3, 2, random_state=0).fit(X).transform(X)",
    ),
    "NCA": ("from manylens import NCA", "NCA(2, random_state=0, max_iter=20).fit(X, y).transform(X)"),
    "NCA_exact": (
        "from manylens import NCA",
        "NCA(2, method='exact', random_state=0, max_iter=20).fit(X, y)",
    ),
    "NCA_tree": ("from manylens import NCA", "NCA(2, method='tree', random_state=0, max_iter=20).fit(X, y)"),
    "NCA_minibatch": (
        "from manylens import NCA",
        "NCA(2, method='minibatch', random_state=0, max_iter=5).fit(X, y)",
    ),
    "ModuleNeighbors": (
        LENSES + "from manylens import ModuleNeighbors",
        "ModuleNeighbors(lenses).fit(X).kneighbors(X[:100])",
    ),
    "ModuleNeighbors_exact": (
        LENSES + "from manylens import ModuleNeighbors",
        "ModuleNeighbors(lenses, method='exact').fit(X).kneighbors(X[:100])",
    ),
    "ModuleNeighbors_graph": (
        LENSES + "from manylens import ModuleNeighbors",
        "ModuleNeighbors(lenses, backend='graph').fit(X).kneighbors(X[:100])",
    ),
    "ModuleNeighbors_many_rows": (  # enough to be linked all at once
        "from manylens import ModuleNeighbors; X = np.tile(X, (3, 1)); X += rng.random(X.shape)",
        "ModuleNeighbors(backend='graph').fit(X).kneighbors(X[:100])",
    ),
    "ModuleVotingClassifier": (
        LENSES
        + "from manylens import ModuleVotingClassifier; from sklearn.neighbors import KNeighborsClassifier",
        "ModuleVotingClassifier(lenses, KNeighborsClassifier(5)).fit(X, y).predict(X[:100])",
    ),
    "ModuleVotingRegressor": (
        LENSES + "from manylens import ModuleVotingRegressor; from sklearn.linear_model import Ridge",
        "ModuleVotingRegressor(lenses, Ridge()).fit(X, X[:, 0]).predict(X[:100])",
    ),
    "ScanNeighborsClassifier": (
        "from manylens import ScanNeighborsClassifier",
        "ScanNeighborsClassifier(5).fit(X, y).predict(X[:100])",
    ),
    "DiversitySearchCV": (
        LENSES + "from manylens import DiversitySearchCV, ModuleVotingClassifier;"
        "from sklearn.neighbors import NearestCentroid",
        "DiversitySearchCV(ModuleVotingClassifier(lenses, NearestCentroid()), [0.5, 0.9]).fit(X, y)",
    ),
    "KernelAlignment": (
        "from manylens import KernelAlignment",
        "KernelAlignment([6, 6]).fit(X, y)",
    ),
    "StreamingCKA": (
        "from manylens import StreamingCKA",
        "StreamingCKA().update({'one': X, 'two': X[:, :4]}).result()",
    ),
    "CountSketch": ("from manylens import CountSketch", "CountSketch(64).update(X)"),
    "distance_correlation": (
        "from manylens import distance_correlation",
        "distance_correlation(X[:, :4], X[:, 4:])",
    ),
    "LayerRidgeClassifier": (
        LAYERS + "from manylens import LayerRidgeClassifier",
        "LayerRidgeClassifier(random_state=0).fit(layers, y).predict(layers)",
    ),
    "LayerRidgeRegressor": (
        LAYERS + "from manylens import LayerRidgeRegressor",
        "LayerRidgeRegressor(random_state=0).fit(layers, X[:, 0]).predict(layers)",
    ),
    "TransductiveRidgeClassifier": (
        LAYERS + "given = np.where(np.arange(2000) < 100, y, -1);"
        "from manylens import TransductiveRidgeClassifier",
        "TransductiveRidgeClassifier(rank=50, random_state=0).fit(layers, given).predict(layers)",
    ),
    "TemperatureScaler": (
        "from manylens import TemperatureScaler",
        "TemperatureScaler().fit(X[:, :3], y).predict_proba(X[:, :3])",
    ),
    "AlignmentPruner": (
        FOREST + "from manylens import AlignmentPruner",
        "AlignmentPruner(forest).fit(X, y).predict(X)",
    ),
    "TreePruner": (
        FOREST + "from manylens.pruning import TreePruner",
        "TreePruner(forest, max_nodes=200, random_state=0).fit(X, y).predict(X)",
    ),
    "KernelRidgeCV": (
        "from manylens.transfer import KernelRidgeCV",
        "KernelRidgeCV().fit(X, y).predict(X[:100])",
    ),
    "compare": (
        "from manylens.alignment import compare",
        "compare(X, X[:, :3], 'mutual-knn', n_permutations=100)",
    ),
}
QUICK = ("ModularKernelPCA", "ModuleNeighbors", "NCA", "LayerRidgeClassifier", "AlignmentPruner")


def in_fresh_process(program, **environment):
    """Run a program in a new interpreter; return the numbers that it prints."""
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        check=False,
        text=True,
    )
    if run.returncode:
        raise RuntimeError(f"The program failed:\n{program}\n{run.stderr}")
    return [float(number) for number in run.stdout.split()]


class FirstCall(Comparison):
    """The first and the second call of every estimator on 2,000 x 12 rows, in a fresh process whose numba
    cache is empty. Imports are not included. `seconds` is the whole process."""

    contenders = tuple(CALLS)
    repeats = 1
    warm_up = False
    memory = False
    judge_if_quick = True
    claims = tuple(
        Claim(f"{name}: seconds of the first call", result(name, "first_call"), at_most=SECONDS)
        for name in CALLS
    )

    def __init__(self, quick=False):
        super().__init__(quick)
        if quick:
            self.contenders = QUICK
            self.claims = tuple(claim for claim in self.claims if claim.measure.contender in QUICK)

    def make_data(self):
        return None

    def score(self, data, outcome):
        first, second = outcome
        return {"first_call": first, "second_call": second}


def first_call_of(name):
    """Make the contender that calls one estimator twice."""
    setup, call = CALLS[name]

    def contender(*_):
        with tempfile.TemporaryDirectory() as empty:
            program = f"{DATA}\n{setup}\ncall = lambda: {call}\n{TIMING}"
            return in_fresh_process(program, NUMBA_CACHE_DIR=empty)

    return contender


for _name in CALLS:
    setattr(FirstCall, _name, first_call_of(_name))


class ImportTime(Comparison):
    """`import manylens` and `import sklearn.decomposition`, each in fresh processes, in turn; the best of
    nine. `all_names` resolves every public name of manylens, which loads the whole library."""

    contenders = ("manylens", "sklearn_decomposition", "all_names")
    repeats = 1
    warm_up = False
    memory = False
    judge_if_quick = True
    claims = (
        Claim(
            "import time relative to sklearn.decomposition",
            ratio("manylens", "sklearn_decomposition", "import_seconds"),
            at_most=1.2,
        ),
    )
    PROGRAMS = {
        "manylens": "import manylens",
        "sklearn_decomposition": "import sklearn.decomposition",
        "all_names": "import manylens; [getattr(manylens, name) for name in manylens.__all__]",
    }

    def make_data(self):
        timed = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
        rounds = [
            {name: in_fresh_process(timed.format(code))[0] for name, code in self.PROGRAMS.items()}
            for _ in range(2 if self.quick else 9)
        ]
        return {name: min(times[name] for times in rounds) for name in self.PROGRAMS}

    def manylens(self, data):
        return data["manylens"]

    def sklearn_decomposition(self, data):
        return data["sklearn_decomposition"]

    def all_names(self, data):
        return data["all_names"]

    def score(self, data, seconds):
        return {"import_seconds": seconds}
