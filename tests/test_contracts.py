"""Contract of all public estimators, found by introspection: new ones are covered without being listed."""

import importlib
import inspect
import pkgutil

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics.pairwise import rbf_kernel

import manylens
from manylens.kernels import FeatureMap, FromCallable, Kernel
from manylens.pruning import PrunedEnsemble, PrunedTrees, TreePruner

PACKAGES = [
    importlib.import_module(f"manylens.{m.name}") for m in pkgutil.iter_modules(manylens.__path__) if m.ispkg
]
NO_FIT = {
    Kernel,
    FeatureMap,
    PrunedEnsemble,
    PrunedTrees,
}  # base classes, and models that fit does not change

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 6))
y = (X[:, 0] + 0.5 * rng.standard_normal(60) > 0).astype(int)


def public_estimators():
    named = [getattr(package, name) for package in PACKAGES for name in getattr(package, "__all__", [])]
    classes = {c for c in named if inspect.isclass(c) and callable(getattr(c, "fit", None))} - NO_FIT
    return sorted(classes, key=lambda c: c.__name__)


NETWORKS = (
    manylens.NegativeCorrelationClassifier,
    manylens.NegativeCorrelationRegressor,
    manylens.NetworkAutoencoder,
)


def make(kind):
    """A small estimator of this class."""
    if kind in NETWORKS:
        pytest.importorskip("torch")
    if kind is manylens.AlignmentPruner:
        return kind(RandomForestClassifier(5, random_state=0), fit_ensemble=True)
    if kind is TreePruner:
        forest = RandomForestClassifier(5, random_state=0)
        return kind(forest, max_nodes=20, fit_ensemble=True, random_state=0)
    if kind is manylens.DiversitySearchCV:
        return kind(
            manylens.ModuleVotingClassifier(manylens.ModularKernelPCA(2, 2)), diversities=[0.5, 0.9], cv=2
        )
    if kind.__name__ == "Blockwise":
        return kind(manylens.ModularKernelPCA(2, 2, rank=20, random_state=0))
    if kind.__name__ == "LayerTransfer":
        pytest.importorskip("torch")
        return kind(importlib.import_module("tests.transfer.test_layer_transfer").AnyWidth())
    if kind is FromCallable:
        return kind(rbf_kernel)
    small = {"n_modules": 2, "n_components": 2, "n_networks": 2, "n_neighbors": 3, "max_iter": 2, "rank": 20}
    names = inspect.signature(kind).parameters
    estimator = kind(**{name: value for name, value in small.items() if name in names})
    return estimator.set_params(random_state=0) if "random_state" in names else estimator


def data(kind, columns=6):
    """Rows and targets for this class, as positional arguments of `fit`."""
    rows = X[:, :columns]
    if kind.__name__ == "Precomputed":
        return (rows[:columns],)
    if kind.__name__ == "Blockwise":
        return ([rows[:30], rows[30:]],)
    if issubclass(kind, Kernel | FeatureMap):
        return (rows,)
    if kind.__name__ == "TransductiveRidgeClassifier":
        return rows, np.where(np.arange(60) % 3, y, -1)
    return (rows[:, :2] if kind.__name__ == "TemperatureScaler" else rows), y


def options(kind, method):
    """Keyword arguments that this method needs."""
    return {"classes": [0, 1]} if (kind.__name__, method) == ("LayerRidgeClassifier", "partial_fit") else {}


def breaking(estimator):
    """Give the estimator a class that can be told to fail when the n-th attribute is set."""

    class Breaking(type(estimator)):
        countdown = None

        def __setattr__(self, name, value):
            if Breaking.countdown is not None and "callback" not in name:  # those are scikit-learn's own
                if Breaking.countdown == 0:
                    raise RuntimeError("injected")
                Breaking.countdown -= 1
            super().__setattr__(name, value)

    estimator.__class__ = Breaking
    return Breaking


ESTIMATORS = public_estimators()
every = pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)


def test_the_public_estimators_are_found():
    assert {manylens.NCA, manylens.ModularKernelPCA, manylens.TemperatureScaler} <= set(ESTIMATORS)
    assert len(ESTIMATORS) > 30


@every
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.filterwarnings("ignore")
def test_a_fit_that_raises_leaves_the_estimator_as_it_was(kind, method):
    """Whatever attribute was to be set when the error came, and whether or not it was fitted before."""
    if not hasattr(kind, method):
        pytest.skip(f"has no {method}")
    if "torch" in inspect.getsource(kind):
        pytest.importorskip("torch")
    # A refit sees other rows, so that a mixture of two fits would show.
    other = data(kind, 6 if method == "partial_fit" else 5)
    for fitted in (False, True):
        estimator = make(kind)
        if fitted:
            getattr(estimator, method)(*data(kind), **options(kind, method))
        before = joblib.hash(vars(estimator))
        broken = breaking(estimator)
        for step in range(50):
            broken.countdown = step
            try:
                getattr(estimator, method)(*other, **options(kind, method))
            except RuntimeError as error:
                assert str(error) == "injected"  # noqa: PT017
                assert joblib.hash(vars(estimator)) == before, f"changed by an error at attribute {step}"
            else:
                break
        broken.countdown = None
        assert step < 49
        learned = vars(estimator).keys() - estimator.get_params(deep=False).keys()
        assert step > 0 or fitted or not learned  # errors were injected


def flags():
    """Every estimator with the name of each parameter that is True or False."""
    for kind in ESTIMATORS:
        for name, parameter in inspect.signature(kind).parameters.items():
            if parameter.annotation in (bool, "bool"):
                yield pytest.param(kind, name, id=f"{kind.__name__}-{name}")


@pytest.mark.parametrize(("kind", "name"), list(flags()))
@pytest.mark.parametrize("value", [np.array([1, 2]), "yes"], ids=["array", "text"])
def test_flags_are_true_or_false(kind, name, value):
    estimator = make(kind).set_params(**{name: value})
    with pytest.raises((TypeError, ValueError), match=f"{name}=.* True"):
        estimator.fit(*data(kind))


def scores_targets(kind):
    """Whether this class has a score that compares predictions with y."""
    return callable(getattr(kind, "score", None)) and callable(getattr(kind, "predict", None))


@pytest.mark.parametrize("kind", [kind for kind in ESTIMATORS if scores_targets(kind)])
@pytest.mark.filterwarnings("ignore")
def test_scores_refuse_targets_that_cannot_be_compared(kind):
    rows, targets = data(kind)
    fitted = make(kind).fit(rows, targets)
    said = r"y mixes labels of types|y cannot be read as an array of numbers|[Uu]nknown label type|mix of"
    for mixed in (
        np.array([None, "a", 2.5] * 20, dtype=object),
        np.array(["a", 2.5, "b"] * 20, dtype=object),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            fitted.score(rows, mixed)


@every
@pytest.mark.filterwarnings("ignore")
def test_refused_rows_leave_a_fitted_estimator_as_it_was(kind):
    if issubclass(kind, Kernel | FeatureMap):
        pytest.skip("takes rows that an estimator has checked")
    if kind.__name__ == "Blockwise":
        pytest.skip("takes blocks; tests/cluster gives it bad ones")
    rows, targets = data(kind)
    refused = 0
    for bad in (np.where(np.eye(*rows.shape) > 0, np.nan, rows), rows[:1], rows[:, 0], rows[:, :0]):
        estimator = make(kind).fit(rows, targets)
        before = joblib.hash(vars(estimator))
        try:
            estimator.fit(bad, targets[: len(bad)])
        except ValueError:
            refused += 1
            assert joblib.hash(vars(estimator)) == before
    assert refused >= 3 - (kind in (manylens.AlignmentPruner, TreePruner))  # a forest accepts NaN


@every
@pytest.mark.filterwarnings("ignore")
def test_an_estimator_can_be_cloned_and_fitted_twice(kind):
    estimator = make(kind)
    estimator.fit(*data(kind, 5))
    estimator.fit(*data(kind))
    fresh = clone(make(kind)).fit(*data(kind))
    assert vars(estimator).keys() == vars(fresh).keys()
