"""What estimators and results show in a notebook."""

from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

from manylens import (
    NCA,
    AlignmentPruner,
    DiversitySearchCV,
    KernelAlignment,
    LayerRidgeClassifier,
    ModularAutoencoder,
    ModularKernelPCA,
    ModuleNeighbors,
    ModuleVotingClassifier,
    TemperatureScaler,
    hsic_test,
    prune_predictions,
)
from manylens.reprs import MOST_ITEMS, facts_table, shown_value

X, y = load_iris(return_X_y=True)
names = load_iris().target_names[y]
modules = ModularKernelPCA(3, 2, 0.9, random_state=0)

ESTIMATORS = {
    "ModularKernelPCA": (modules, {"optimality gap", "lower bound of the loss", "diversity"}),
    "ModularAutoencoder": (ModularAutoencoder(2, 2), {"optimality gap", "loss"}),
    "NCA": (NCA(2, max_iter=200, tol=1e-3), {"map", "mean score", "iterations"}),
    "ModuleNeighbors": (ModuleNeighbors(modules), {"rows", "measured recall"}),
    "ModuleVotingClassifier": (ModuleVotingClassifier(modules), {"predictors", "classes"}),
    "DiversitySearchCV": (
        DiversitySearchCV(ModuleVotingClassifier(modules), [0.0, 0.9], cv=2),
        {"best diversity", "best score", "scores"},
    ),
    "AlignmentPruner": (
        AlignmentPruner(RandomForestClassifier(9, random_state=0), fit_ensemble=True),
        {"kept"},
    ),
    "KernelAlignment": (KernelAlignment(), {"kept", "alignment", "weights"}),
    "LayerRidgeClassifier": (
        LayerRidgeClassifier(layer_slices=[slice(0, 2), slice(2, 4)]),
        {"weights of the layers", "leave-one-out score"},
    ),
}


class Cells(HTMLParser):
    """The tags of a page, and the text of all cells of tables of facts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.cells, self.inside = [], [], False
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "table":
            self.inside = dict(attributes).get("class") == "manylens-facts"
        if tag in ("th", "td") and self.inside:
            self.cells.append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "table"

    def handle_data(self, data):
        if self.inside and self.cells:
            self.cells[-1] += data

    @property
    def facts(self):
        return dict(zip(self.cells[::2], self.cells[1::2], strict=True))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fitted_estimator_shows_what_it_learned_below_its_diagram(name):
    estimator, expected = ESTIMATORS[name]
    assert Cells(estimator._repr_html_()).facts == {}  # nothing is known before fit
    fitted = sklearn.clone(estimator).fit(X, names)
    html = fitted._repr_html_()
    assert expected <= Cells(html).facts.keys()
    assert "sk-container" in html  # scikit-learn's diagram
    bundle = fitted._repr_mimebundle_()
    assert Cells(bundle["text/html"]).facts == Cells(html).facts
    assert bundle["text/plain"] == repr(fitted)


def test_the_certificate_and_the_choice_are_the_fitted_values():
    fitted = sklearn.clone(modules).fit(X)
    facts = Cells(fitted._repr_html_()).facts
    assert facts["loss"] == f"{fitted.loss_:.4g}"
    assert facts["optimality gap"] == shown_value(fitted.optimality_gap_)
    assert facts["modules, dimensions of each"] == "3, 2"
    search = sklearn.clone(ESTIMATORS["DiversitySearchCV"][0]).fit(X, y)
    facts = Cells(search._repr_html_()).facts
    assert facts["best diversity"] == shown_value(search.best_diversity_)
    assert facts["scores"].startswith("0: ")
    pruner = sklearn.clone(ESTIMATORS["AlignmentPruner"][0]).fit(X, y)
    assert Cells(pruner._repr_html_()).facts["kept"] == f"{pruner.n_kept_} of 9 members"


def test_text_display_has_no_html():
    with sklearn.config_context(display="text"):
        assert "text/html" not in modules._repr_mimebundle_()
        with pytest.raises(AttributeError):
            modules._repr_html_()


HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>"


def test_names_of_users_are_text():
    labels = np.where(y == 0, HOSTILE, names)
    layers = {HOSTILE: X[:, :2], "other": X[:, 2:]}
    vote = ModuleVotingClassifier(modules).fit(X, labels)
    ridge = LayerRidgeClassifier().fit(layers, labels)
    weights = KernelAlignment({HOSTILE: [2, 3], "others": [0, 1]}).fit(X, names)
    for fitted in (vote, ridge, weights, TemperatureScaler().fit(np.eye(3)[y], labels)):
        html = facts_table(fitted._facts())
        assert "alert(1)" in html
        assert not {"script", "img"} & set(Cells(html).tags)
        assert HOSTILE not in html


def test_results_show_their_fields():
    facts = Cells(hsic_test(X[:40], X[:40], n_permutations=9, random_state=0)._repr_html_()).facts
    assert facts["p value"] == "0.1"
    assert facts["n permutations"] == "9"
    result = prune_predictions(np.random.default_rng(0).normal(size=(30, 20)), X[:30, 0])
    facts = Cells(result._repr_html_()).facts
    assert facts["weights"] == "array of shape (20,)"
    assert "held out error" in facts
    index = ModuleNeighbors(modules).fit(X)
    assert Cells(index.measured_._repr_html_()).facts["n neighbors"] == str(index.measured_.n_neighbors)


def test_values_are_short():
    assert shown_value(123456) == "123,456"
    assert shown_value(np.float32(0.123456)) == "0.1235"
    assert shown_value(float("nan")) == "nan"
    assert shown_value(float("inf")) == "inf"
    assert shown_value(True) == "True"
    assert shown_value(list(range(30))).endswith(f"and {30 - MOST_ITEMS} more")
    assert len(shown_value("x" * 1000)) <= 80
    assert shown_value({"a": 1, "<b>": None}) == "a: 1, &lt;b&gt;: None"
    assert facts_table({}) == ""
