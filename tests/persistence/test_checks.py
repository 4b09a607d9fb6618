"""State that compiled code relies on is checked when it comes from a file or a pickle."""

import copy
import json
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import manylens
from manylens import CountSketch, ModuleNeighbors
from manylens.ensembles.finders import GrowingRows
from manylens.persistence.encoding import decode_dtype
from manylens.persistence.other_libraries import ADAPTERS
from tests.persistence.fitted import OPTIONAL, X, fitted, y

FAULT = "the file is damaged or was modified"


def assert_refused(model, tmp_path, match=FAULT):
    """A file of this model cannot be loaded."""
    manylens.save(model, tmp_path / "model")
    with pytest.raises(ValueError, match=match):
        manylens.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_buckets", 10**6),
        ("n_buckets", 8),
        ("n_hashes", 3),
        ("n_hashes", -1),
        ("random_state", "x"),
        ("n_rows_", -1),
        ("_sums", np.zeros((16, 3))),
        ("_sums", np.zeros((16, X.shape[1]), dtype=np.float32)),
        ("_ones", np.zeros(3)),
        ("_total", np.full(X.shape[1], np.nan)),
    ],
)
def test_a_sketch_with_settings_that_do_not_fit_its_sums_is_refused(name, value, tmp_path):
    sketch = CountSketch(16, 2).update(X)
    setattr(sketch, name, value)
    assert_refused(sketch, tmp_path, match="modified|must be|divide|integer|do not fit its settings")
    with pytest.raises((ValueError, TypeError)):
        pickle.loads(pickle.dumps(sketch))


def test_an_index_whose_parts_do_not_fit_together_is_refused(tmp_path):
    for name in ("ModuleNeighbors", "index, exact", "index, paper"):
        for change in ("rows", "n_leading", "finders", "widths", "method", "float16", "used"):
            index = copy.deepcopy(fitted(name))
            inner = index.index_
            if change == "rows":
                inner.rows = GrowingRows(inner.coordinates[:-1].copy())
            elif change == "n_leading":
                object.__setattr__(inner.plan, "n_leading", 10**6)
            elif change == "finders":
                inner.finders = [inner.finders[0], inner.finders[0]]
            elif change == "widths":
                object.__setattr__(inner.axes, "widths", (1, 1))
            elif change == "method":
                inner.method = "quick"
            elif change == "float16":
                inner.rows = GrowingRows(inner.coordinates.astype(np.float16))
            else:
                inner.rows._used -= 1
                inner.rows.__class__ = Cheating
            index.save(tmp_path / "index")
            trusted = [Cheating] if change == "used" else []
            with pytest.raises(ValueError, match=FAULT):
                ModuleNeighbors.load(tmp_path / "index", trusted=trusted)


class Cheating(GrowingRows):
    def __getstate__(self):
        return self.__dict__


def test_faiss_lists_with_other_rows_are_refused(tmp_path):
    faiss = pytest.importorskip("faiss")
    index = copy.deepcopy(fitted("index, faiss"))
    index.index_.finders[0].lists.add(np.zeros((1, index.index_.finders[0].lists.d), dtype=np.float32))
    assert_refused(index, tmp_path)
    lists = faiss.index_factory(8, "IVF4,Flat")
    rows = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    lists.train(rows)
    lists.add_with_ids(rows, np.arange(200) + 10**9)
    finder = copy.deepcopy(fitted("index, faiss").index_.finders[0])
    finder.lists = lists
    assert_refused(finder, tmp_path)


class TestTreesOfScikitLearn:
    @pytest.mark.parametrize(
        ("field", "value"),
        [("left_child", 0), ("right_child", 10**6), ("feature", 10**6), ("feature", -5), ("left_child", -2)],
    )
    def test_nodes_out_of_bounds_are_refused(self, field, value):
        take, make = ADAPTERS["sklearn.tree._tree.Tree"]
        content = copy.deepcopy(take(DecisionTreeClassifier(max_depth=3).fit(X, y).tree_))
        make(content)
        content[3]["nodes"][field][0] = value
        with pytest.raises(ValueError, match=FAULT):
            make(content)

    def test_rows_with_fewer_columns_than_a_tree_compares_are_refused(self, tmp_path):
        tree = DecisionTreeClassifier(random_state=0).fit(X, y)
        tree.n_features_in_ = 2
        assert_refused(tree, tmp_path)
        forest = RandomForestClassifier(3).fit(X, y)
        forest.n_features_in_ = 2
        assert_refused(forest, tmp_path)

    def test_histogram_boosting(self, tmp_path):
        for field, value in (("left", 0), ("right", 2**31), ("feature_idx", 10**6)):
            model = HistGradientBoostingClassifier(max_iter=2).fit(X, y)
            model._predictors[0][0].nodes[field][0] = value
            assert_refused(model, tmp_path)


def test_labels_of_neighbors_out_of_bounds_are_refused(tmp_path):
    model = KNeighborsClassifier().fit(X, y)
    model._y = model._y + 5
    assert_refused(model, tmp_path)


@pytest.mark.parametrize("name", [name for name in OPTIONAL if "LightGBM" in name or "XGBoost" in name])
def test_boosters_with_nodes_out_of_bounds_are_refused(name):
    pytest.importorskip(OPTIONAL[name][0])
    members = fitted(name).estimator_.members
    kind = type(members.booster)
    take, make = ADAPTERS[f"{kind.__module__}.{kind.__qualname__}"]
    content = take(members.booster)
    make(content)
    for broken in (break_lightgbm if "LightGBM" in name else break_xgboost)(content):
        with pytest.raises(ValueError, match=FAULT):
            make(broken)
    other = copy.copy(members)
    other.members = [10**6]
    with pytest.raises(ValueError, match=FAULT):
        copy.copy(other)


def break_lightgbm(content):
    text, *rest = content
    lines = text.split("\n")
    for field, value in (
        ("left_child", "9999"),
        ("right_child", "0"),
        ("left_child", "-9999"),
        ("split_feature", "9999"),
        ("num_leaves", "9999"),
        ("num_leaves", "2"),
        ("leaf_value", ""),
        ("max_feature_idx", "1"),
        ("threshold", ""),
        ("decision_type", "1"),
    ):
        at = next(k for k, line in enumerate(lines) if line.startswith(f"{field}="))
        others = lines[at].partition("=")[2].split()[1:]
        changed = f"{field}={' '.join([value, *others])}"
        yield ["\n".join([*lines[:at], changed, *lines[at + 1 :]]), *rest]


def break_xgboost(content):
    for change in (
        "left_children",
        "right_children",
        "split_indices",
        "split_conditions",
        "tree_info",
        "indptr",
    ):
        model = json.loads(content)
        inner = model["learner"]["gradient_booster"]["model"]
        if change == "tree_info":
            inner["tree_info"][0] = 99
        elif change == "indptr":
            inner["iteration_indptr"][-1] += 1
        elif change == "split_conditions":
            inner["trees"][0][change].pop()
        else:
            inner["trees"][0][change][0] = 10**6
        yield json.dumps(model)


def test_a_random_generator_in_an_impossible_state_is_refused(tmp_path):
    generator = np.random.RandomState(0)
    state = generator.get_state(legacy=False)
    state["state"]["pos"] = 10**6

    class Broken(np.random.RandomState):
        def get_state(self, legacy=True):
            return state

    assert_refused(Broken(0), tmp_path, match="impossible state of a random generator")


def test_sparse_matrices_with_indices_out_of_bounds_are_refused(tmp_path):
    matrix = sparse.csr_matrix(np.eye(4))
    matrix.indices[2] = 10**6
    assert_refused(matrix, tmp_path, match=r"indices must be|column index|must be <")


@pytest.mark.parametrize(
    "node",
    ["O", "|O8", [["a"], ["<i8"], [2**31 - 1], 16], [["a"], ["<i8"], [-8], 16], [["a"], ["O"], [0], 8]],
)
def test_types_with_objects_or_fields_outside_are_refused(node):
    with pytest.raises(ValueError, match="The file contains an array"):
        decode_dtype(node)
