"""The pruned model agrees with scikit-learn and is saved without executable code."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier

import manylens
from manylens import AlignmentPruner
from manylens.native.trees import FlatTrees, check_flat_trees
from manylens.pruning import PrunedEnsemble
from tests.pruning.conftest import S, X, label, weighted_sum, y

TREES = [
    RandomForestRegressor(12, random_state=0),
    RandomForestRegressor(12, max_leaf_nodes=20, random_state=0),  # grown best first
    GradientBoostingRegressor(n_estimators=12, random_state=0),
    AdaBoostRegressor(n_estimators=6, random_state=0),
    RandomForestClassifier(12, random_state=0),
    ExtraTreesClassifier(12, bootstrap=True, random_state=0),
    BaggingClassifier(DecisionTreeClassifier(max_depth=4), 12, max_features=0.5, random_state=0),
    AdaBoostClassifier(DecisionTreeClassifier(max_depth=3), n_estimators=6, random_state=0),
    GradientBoostingClassifier(n_estimators=5, random_state=0),
]


@pytest.fixture(scope="module", params=TREES, ids=lambda e: type(e).__name__)
def pruned(request):
    rows, target = (X, y) if type(request.param).__name__.endswith("Regressor") else (S, label)
    fitted = request.param.fit(rows, target)
    return AlignmentPruner(fitted).fit(rows, target), rows


@pytest.mark.parametrize("n_rows", [1, 7, 8, 9, 400])
def test_flat_trees_equal_the_weighted_sum_of_members_for_any_number_of_rows(pruned, n_rows):
    pruner, rows = pruned
    assert pruner.estimator_.trees is not None
    wanted = weighted_sum(pruner, rows[:n_rows])
    np.testing.assert_allclose(pruner.estimator_.raw_scores(rows[:n_rows]), wanted, atol=1e-10)
    np.testing.assert_allclose(
        pruner.estimator_.raw_scores(sparse.csr_array(rows[:n_rows])), wanted, atol=1e-10
    )


def test_loading_a_pruned_model_of_trees_requires_no_trusted_types(pruned, tmp_path):
    pytest.importorskip("skops")
    pruner, rows = pruned
    manylens.save(pruner.estimator_, tmp_path / "small.skops")
    loaded = manylens.load(tmp_path / "small.skops")
    np.testing.assert_array_equal(loaded.predict(rows), pruner.predict(rows))
    again = pickle.loads(pickle.dumps(loaded))
    np.testing.assert_array_equal(again.predict(rows), pruner.predict(rows))


@pytest.mark.parametrize("part", ["roots", "feature", "children", "leaf", "missing", "depths"])
def test_a_file_with_node_indices_out_of_bounds_raises(part, tmp_path):
    pytest.importorskip("skops")
    model = AlignmentPruner(RandomForestRegressor(5, random_state=0).fit(X, y)).fit(X, y).estimator_
    broken = getattr(model.trees, part).copy()
    broken.flat[0] = np.iinfo(broken.dtype).max
    model.trees = model.trees._replace(**{part: broken})
    manylens.save(model, tmp_path / "broken.skops")
    with pytest.raises(ValueError, match="node indices out of bounds"):
        manylens.load(tmp_path / "broken.skops")
    with pytest.raises(ValueError, match="node indices out of bounds"):
        pickle.loads(pickle.dumps(model))


def test_arrays_of_the_wrong_type_or_shape_raise():
    trees = AlignmentPruner(RandomForestRegressor(5, random_state=0).fit(X, y)).fit(X, y).estimator_.trees
    check_flat_trees(trees, 10, 1)
    wrong = [
        trees._replace(children=trees.children.astype(np.int64)),
        trees._replace(children=trees.children[:, ::-1]),
        trees._replace(leaf=trees.leaf[1:]),
        trees._replace(value=trees.value.tolist()),
    ]
    for each in wrong:
        with pytest.raises(ValueError, match="node indices out of bounds"):
            check_flat_trees(FlatTrees(*each), 10, 1)
    with pytest.raises(ValueError, match="node indices out of bounds"):
        check_flat_trees(trees, 5, 1)


def test_flat_trees_and_scikit_learn_agree_at_the_thresholds():
    forest = RandomForestRegressor(40, random_state=0).fit(X, y)
    pruner = AlignmentPruner(forest).fit(X, y)
    tree = forest.estimators_[pruner.kept_[0]].tree_
    inner = tree.children_left >= 0
    edge = np.repeat(X[:1], inner.sum(), axis=0)[:100]
    edge[np.arange(len(edge)), tree.feature[inner][:100]] = tree.threshold[inner][:100]
    np.testing.assert_allclose(pruner.predict(edge), weighted_sum(pruner, edge)[:, 0])


@pytest.mark.parametrize("trained_with_missing", [True, False])
def test_missing_values_take_the_same_branch_as_in_scikit_learn(trained_with_missing):
    holes = X.copy()
    holes[::3, 3] = np.nan
    holes[1::4, 0] = np.nan
    forest = RandomForestRegressor(10, random_state=0).fit(holes if trained_with_missing else X, y)
    pruner = AlignmentPruner(forest, cv=None).fit(holes, y)
    np.testing.assert_allclose(pruner.estimator_.raw_scores(holes), weighted_sum(pruner, holes))


def test_values_too_large_for_single_precision_raise():
    pruner = AlignmentPruner(RandomForestRegressor(5, random_state=0).fit(X, y)).fit(X, y)
    with pytest.raises(ValueError, match="too large for dtype"):
        pruner.predict(np.full((1, 10), 1e300))


def test_a_model_built_from_wrong_parts_raises_one_sentence(forest):
    good = AlignmentPruner(forest).fit(X, y).estimator_
    for members in (3, "trees", None, forest):
        wrong = PrunedEnsemble(members, np.ones(2), np.zeros(1))
        for call in (wrong.predict, wrong.raw_scores, wrong.predict_proba):
            with pytest.raises(
                TypeError, match=r"are not the members of an ensemble: use the estimator_ of a"
            ):
                call(X)
    for weights, intercept, trees in (
        (good.weights, np.zeros(3), good.trees),
        (np.ones((2, 2)), good.intercept, good.trees),
        (good.weights, good.intercept, None),
        (good.weights, good.intercept, "trees"),
    ):
        with pytest.raises(ValueError, match="use the estimator_ of a fitted AlignmentPruner"):
            PrunedEnsemble(good.members, weights, intercept, trees).predict(X)


def test_a_long_text_in_place_of_members_is_cut():
    with pytest.raises(TypeError, match="are not the members of an ensemble") as caught:
        PrunedEnsemble("a" * 5000, np.ones(1), np.ones(1)).predict(np.eye(2))
    assert len(str(caught.value)) < 400
