"""A fitted instance of every public class, and models that hold other libraries' objects.

A public class with a constructor without arguments and scikit-learn's `fit` needs no entry here.
"""

import functools
import importlib
import importlib.util
import inspect
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import manylens as ml
from manylens import alignment, cluster, kernels, modules, pruning, summaries, transfer

ROOT = Path(__file__).resolve().parents[2]
X, y = load_digits(return_X_y=True)
X, y = X[:240] / 16.0, y[:240] % 3
X = X[:, X.std(axis=0) > 0]
NEW = X[:40] + 0.01
target = X @ np.linspace(-1, 1, X.shape[1])


def public_classes():
    """Dotted name -> class, for every public class but displays, papers and exceptions."""
    spec = importlib.util.spec_from_file_location("public_names", ROOT / "docs" / "public_names.py")
    names = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(names)
    found = {}
    for room, name in names.public_names():
        value = names.resolve(name)
        if inspect.isclass(value) and room not in ("plotting", "papers", "datasets"):
            found[name.removeprefix("manylens.")] = value
    return found


def lenses(**options):
    return ml.ModularKernelPCA(3, 4, random_state=0, **options)


def pruner(ensemble, **options):
    rows, values = (X, target) if type(ensemble).__name__.endswith("Regressor") else (X, y)
    return ml.AlignmentPruner(ensemble.fit(rows, values), **options).fit(rows, values)


def tree_pruner(ensemble):
    return pruning.TreePruner(ensemble, max_nodes=40, fit_ensemble=True, random_state=0).fit(X, y)


def streaming():
    return ml.StreamingCKA().update({"a": X, "b": X[:, :5]})


def count_sketch():
    return ml.CountSketch(16, 2, random_state=3).update(X)


def search_cv():
    voting = ml.ModuleVotingClassifier(lenses(), LogisticRegression())
    return ml.DiversitySearchCV(voting, diversities=[0.2, 0.8], cv=3).fit(X, y)


def half_labeled():
    return ml.TransductiveRidgeClassifier().fit([X, X[:, :20]], np.where(np.arange(len(y)) % 2, y, -1))


def layer_sketches():
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 9), torch.nn.ReLU(), torch.nn.Linear(9, 5))
    return ml.collect_layers(network, [torch.tensor(X, dtype=torch.float32)], sketch=ml.CountSketch(8))


FEW = {"max_iter": 2, "hidden": 4, "random_state": 0}  # a little training


# Public classes that need arguments, other data, or something other than `fit`.
def distributed(in_files=False):
    """A distributed index of rows in memory or in files."""
    if not in_files:
        return cluster.DistributedNeighbors(lenses().fit(X), n_groups=2).fit(X)
    folder = tempfile.mkdtemp()
    np.save(f"{folder}/rows.npy", X)
    return cluster.DistributedNeighbors(lenses().fit(X), n_groups=2).fit(folder)


def saved_distributed():
    """A distributed index that reads its parts from files."""
    folder = tempfile.mkdtemp()
    distributed().save(folder)
    return cluster.DistributedNeighbors.load(folder)


RECIPES = {
    "NCA": lambda: ml.NCA(2, random_state=0, max_iter=5).fit(X, y),
    "AlignmentPruner": lambda: pruner(RandomForestClassifier(12, random_state=0)),
    "CountSketch": count_sketch,
    "cluster.Blockwise": lambda: cluster.Blockwise(lenses(rank=50)).fit(np.split(X, 4)),
    "cluster.ClusterNeighbors": lambda: distributed().kneighbors(NEW),
    "cluster.DistributedNeighbors": lambda: distributed(),
    "DiversitySearchCV": search_cv,
    "KernelAlignment": lambda: ml.KernelAlignment().fit(X, y),
    "ModularAutoencoder": lambda: ml.ModularAutoencoder(3, 2, random_state=0).fit(X),
    "ModularKernelPCA": lambda: lenses().fit(X),
    "ModuleNeighbors": lambda: ml.ModuleNeighbors(lenses()).fit(X),
    "ModuleVotingRegressor": lambda: ml.ModuleVotingRegressor().fit(X, target),
    "NegativeCorrelationClassifier": lambda: ml.NegativeCorrelationClassifier(3, **FEW).fit(X, y),
    "NegativeCorrelationRegressor": lambda: ml.NegativeCorrelationRegressor(3, **FEW).fit(X, target),
    "NetworkAutoencoder": lambda: ml.NetworkAutoencoder(3, 2, **FEW).fit(X),
    "StreamingCKA": streaming,
    "TransductiveRidgeClassifier": half_labeled,
    "TemperatureScaler": lambda: ml.TemperatureScaler().fit(np.eye(3)[y] + X[:, :3], y),
    "alignment.FeatureSketch": lambda: alignment.FeatureSketch(16, random_state=3).update(X),
    "alignment.Estimate": lambda: alignment.Estimate(0.5, 0.1, (0.4, 0.6)),
    "alignment.Measure": alignment.Measure,
    "alignment.Similarity": lambda: alignment.compare(X, X[:, :9], n_permutations=50),
    "alignment.SimilarityMatrix": lambda: alignment.compare_matrix({"a": X, "b": X[:, :9]}),
    "alignment.ModelRanking": lambda: ml.rank_models({"a": X, "b": X[:, :9]}, y),
    "kernels.FeatureMap": kernels.FeatureMap,
    "kernels.FromCallable": None,  # holds a function
    "kernels.Kernel": kernels.Kernel,
    "kernels.Precomputed": lambda: ml.ModularKernelPCA(3, 2, kernel="precomputed").fit(X @ X.T),
    "modules.Ambiguity": lambda: modules.Ambiguity(1.0, 2.0, 3.0),
    "pruning.PrunedEnsemble": lambda: pruner(RandomForestClassifier(12, random_state=0)).estimator_,
    "pruning.PrunedTrees": lambda: tree_pruner(RandomForestClassifier(12, random_state=0)).estimator_,
    "pruning.TreeEnsemble": lambda: tree_pruner(RandomForestClassifier(12, random_state=0)).estimator_.model,
    "pruning.TreePruner": lambda: tree_pruner(RandomForestClassifier(12, random_state=0)),
    "pruning.PruningResult": lambda: ml.prune_predictions(target[:, None] + X[:, :6], target),
    "summaries.BootstrapMoments": lambda: summaries.BootstrapMoments(X.shape[1], 2).update(
        X, np.ones((2, len(X)))
    ),
    "summaries.CrossMoments": lambda: summaries.CrossMoments([(0, 0), (0, 1), (1, 1)]).update([X, X[:, :4]]),
    "summaries.Moments": lambda: summaries.Moments(X.shape[1]).update(X),
    "summaries.Summary": None,  # abstract
    "transfer.AlignmentHistory": None,  # holds a network
    "transfer.FineTuningGain": lambda: transfer.FineTuningGain(True, 0.1, 0.02, 100, None),
    "transfer.LayerTransfer": None,  # its file leaves out the network: tests/transfer/test_layer_transfer.py
    "transfer.TransductionSearch": lambda: transfer.TransductionSearch(),
}


# Models beyond the defaults, named by what they hold.
def stream(optimizer):
    """NCA after enough rows for its first steps."""
    method = ml.metric.Stochastic(64, optimizer, base=100)
    return ml.NCA(2, method=method, random_state=0).partial_fit(X, y)


MODELS = {
    "Fourier features": lambda: lenses(feature_map="fourier", rank=40).fit(X),
    "Nystroem features": lambda: lenses(feature_map="nystroem", landmarks="k-means", rank=40).fit(X),
    "landmarks by sketch": lambda: lenses(feature_map="nystroem", landmarks="count-sketch", rank=40).fit(X),
    "inverse transform": lambda: lenses(fit_inverse_transform=True).fit(X),
    "voting by trees": lambda: ml.ModuleVotingClassifier(
        lenses(), DecisionTreeClassifier(random_state=0)
    ).fit(X, y),
    "voting by neighbors": lambda: ml.ModuleVotingClassifier(lenses(), KNeighborsClassifier(3)).fit(X, y),
    "voting by ridge": lambda: ml.ModuleVotingRegressor(lenses(), Ridge()).fit(X, target),
    "NCA on a stream": lambda: stream("adam"),
    "NCA on a stream, AdaGrad": lambda: stream("adagrad"),
    "neighbors after NCA": lambda: (
        ml.NCA(2, max_iter=5, random_state=0).fit(X, y).neighbor_classifier(X, y, 3)
    ),
    "pipeline": lambda: make_pipeline(StandardScaler(), lenses(), LogisticRegression()).fit(X, y),
    "KD tree": lambda: make_pipeline(lenses(), KNeighborsClassifier(algorithm="kd_tree")).fit(X, y),
    "ball tree": lambda: make_pipeline(lenses(), KNeighborsClassifier(algorithm="ball_tree", p=3)).fit(X, y),
    "ufunc": lambda: make_pipeline(FunctionTransformer(np.log1p), lenses(), GaussianNB()).fit(X, y),
    "SGD": lambda: make_pipeline(lenses(), SGDClassifier(random_state=0)).fit(X, y),
    "grid search": lambda: GridSearchCV(
        make_pipeline(lenses(), LogisticRegression()),
        {"modularkernelpca__diversity": [0.1, 0.9]},
        cv=StratifiedKFold(2),
        scoring="accuracy",
    ).fit(X, y),
    "histogram boosting": lambda: make_pipeline(
        lenses(), HistGradientBoostingClassifier(max_iter=3, random_state=0)
    ).fit(X, y),
    "text": lambda: TfidfVectorizer().fit(["one file", "two files", "two savers"]),
    "pruned bagging": lambda: pruner(
        BaggingClassifier(DecisionTreeClassifier(), 8, max_features=0.5, random_state=0)
    ),
    "pruned neighbors": lambda: pruner(BaggingClassifier(KNeighborsClassifier(), 6, random_state=0)),
    "pruned AdaBoost": lambda: pruner(
        AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=6)
    ),
    "model of pruned AdaBoost": lambda: (
        pruner(AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=6)).estimator_
    ),
    "model of pruned boosting": lambda: (
        pruner(GradientBoostingClassifier(n_estimators=6, random_state=0)).estimator_
    ),
    "pruned boosting": lambda: pruner(GradientBoostingClassifier(n_estimators=6, random_state=0)),
    "pruned extra trees": lambda: pruner(ExtraTreesRegressor(8, bootstrap=True, random_state=0)),
    "pruned histogram boosting": lambda: pruner(HistGradientBoostingRegressor(max_iter=6, random_state=0)),
    "pruned voting": lambda: pruner(
        VotingClassifier([("a", GaussianNB()), ("b", DecisionTreeClassifier()), ("c", LogisticRegression())])
    ),
    "pruned stacking": lambda: pruner(
        StackingClassifier([("a", GaussianNB()), ("b", DecisionTreeClassifier(random_state=0))])
    ),
    "pruned list": lambda: ml.AlignmentPruner(
        [GaussianNB().fit(X, y), DecisionTreeClassifier(random_state=0).fit(X[:, :], y)]
    ).fit(X, y),
    "model of a pruned list": lambda: (
        ml.AlignmentPruner([GaussianNB().fit(X, y), DecisionTreeClassifier(random_state=0).fit(X, y)])
        .fit(X, y)
        .estimator_
    ),
    "index, graph": lambda: ml.ModuleNeighbors(backend="graph").fit(X),
    "index, graph, float32": lambda: ml.ModuleNeighbors(backend="graph").fit(X.astype(np.float32)),
    "index, exact": lambda: ml.ModuleNeighbors(lenses(), method="exact").fit(X),
    "index, paper": lambda: ml.ModuleNeighbors(
        ml.ModularAutoencoder(3, 2, random_state=0), method="paper"
    ).fit(X),
    "index, input space": lambda: ml.ModuleNeighbors(metric="cosine").fit(
        X, ids=[f"row {i}" for i in range(len(X))]
    ),
    "distributed index of files": lambda: distributed(in_files=True),
    "saved distributed index": lambda: saved_distributed(),
    "part of a distributed index": lambda: next(iter(distributed()._parts.parts.values())).columns,
    "dict of sketches": lambda: {"first": count_sketch(), "second": count_sketch()},
    "stacked layers": lambda: ml.LayerRidgeClassifier(weights="stacked").fit([X, X[:, :20]], y),
    "lists of results": lambda: [streaming(), (1, 2.5, None), {"k": np.float32(3), 4: "é"}, {1, 2}, slice(2)],
}
OPTIONAL = {
    "sketches of layers": ("torch", lambda _: layer_sketches()),
    "pruned LightGBM": ("lightgbm", lambda m: pruner(m.LGBMClassifier(n_estimators=6, verbose=-1))),
    "pruned LightGBM, two classes": (
        "lightgbm",
        lambda m: ml.AlignmentPruner(m.LGBMClassifier(n_estimators=6, verbose=-1).fit(X, y > 0)).fit(
            X, y > 0
        ),
    ),
    "pruned XGBoost": ("xgboost", lambda m: pruner(m.XGBClassifier(n_estimators=6))),
    "pruned XGBoost regression": ("xgboost", lambda m: pruner(m.XGBRegressor(n_estimators=6))),
    "index, faiss": ("faiss", lambda _: ml.ModuleNeighbors(lenses(), backend="faiss").fit(X)),
}


@functools.cache
def fitted(name):
    """The fitted model with this name; None if it has no data to save."""
    if name in MODELS:
        return MODELS[name]()
    if name in OPTIONAL:
        module, make = OPTIONAL[name]
        return make(importlib.import_module(module))
    if name in RECIPES:
        return RECIPES[name]() if RECIPES[name] else None
    kind = public_classes()[name]
    made = kind()
    if "random_state" in getattr(made, "get_params", dict)():
        made.set_params(random_state=0)
    if hasattr(made, "fit"):
        made.fit(X, target if name.endswith("Regressor") else y)
    return made


# Arguments of methods that take something other than rows of X.
QUERIES = {
    "TransductiveRidgeClassifier": [NEW, NEW[:, :20]],
    "stacked layers": [NEW, NEW[:, :20]],
    "TemperatureScaler": np.eye(3)[y[:40]],
    "kernels.Precomputed": NEW @ X.T,
    "sketches of layers": {"0": np.ones((3, 9), np.float32), "2": np.ones((3, 5), np.float32)},
    "text": ["two files", "three savers"],
}
ASKED = ("predict", "predict_proba", "transform", "kneighbors", "result", "centered", "gram", "covariance")


def answers(name, model):
    """The result of each method that a model has, or the error that it raises."""
    query, found = QUERIES.get(name, NEW), {}
    for method in ASKED:
        if hasattr(model, method):
            try:
                call = getattr(model, method)
                found[method] = call() if method in ("result", "centered", "covariance") else call(query)
            except Exception as error:
                found[method] = f"{type(error).__name__}: {error}"
    return found
