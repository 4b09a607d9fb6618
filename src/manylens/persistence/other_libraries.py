"""Objects of other libraries whose compiled code trusts their content: how they are stored and checked."""

from __future__ import annotations

import importlib
import json
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from manylens.persistence.boosters import check_lightgbm, check_xgboost
from manylens.typing import AnyArray, IntArray

METRICS = {"Euclidean": "euclidean", "Manhattan": "manhattan", "Chebyshev": "chebyshev"}
# Ensembles that hand rows to their trees without another check.
TREE_ENSEMBLES = tuple(f"sklearn.ensemble.{name}" for name in ("_forest", "_gb", "_bagging", "_iforest"))
FACTORIES = {"None": None, "OrderedDict": OrderedDict, "dict": dict, "int": int, "list": list, "set": set}


class Adapter(NamedTuple):
    """Functions that store and restore the objects of one class."""

    take: Callable[[Any], Any]  # content of an object; None if it cannot be stored
    make: Callable[[Any], Any]  # the object from its content, checked


def take_tree(tree: Any) -> list[Any]:
    """Content of a tree of scikit-learn."""
    _, args, state = tree.__reduce__()
    return [*args, state]


def make_tree(content: list[Any]) -> Any:
    """A tree of scikit-learn; child nodes come after their parents, so that no path is endless."""
    n_features, n_classes, n_outputs, state = content
    nodes, n_classes = state["nodes"], np.array(n_classes, dtype=np.intp)
    inner = nodes["left_child"] >= 0
    children = [nodes["left_child"], nodes["right_child"]]
    require(n_classes.shape == (n_outputs,) and n_outputs > 0 and np.all(n_classes > 0), "Tree")
    require(nodes.ndim == 1 and len(nodes) == state["node_count"] > 0, "Tree")
    require(state["values"].shape == (len(nodes), n_outputs, n_classes.max()), "Tree")
    check_nodes(inner, children, nodes["feature"], n_features, "Tree")
    require(np.all(nodes["left_child"][~inner] == -1), "Tree")
    tree = importlib.import_module("sklearn.tree._tree").Tree(n_features, n_classes, n_outputs)
    tree.__setstate__(state)
    return tree


def check_nodes(
    inner: AnyArray, children: list[IntArray], feature: IntArray, n_features: int, who: str
) -> None:
    """Raise unless inner nodes have children after themselves and compare features that exist."""
    own, n = np.flatnonzero(inner), len(inner)
    for child in children:
        require(np.all(child[own] > own) and np.all(child[own] < n), who)
    require(np.all(feature[own] >= 0) and np.all(feature[own] < n_features), who)


def take_neighbor_tree(tree: Any) -> list[Any] | None:
    """Rows, leaf size and metric of a KDTree or BallTree; the tree itself is built again."""
    state = tree.__getstate__()
    rows, leaf_size, metric, weights = np.asarray(state[0]), state[4], state[11], state[12]
    name = type(metric).__name__.rstrip("0123456789").removesuffix("Distance")
    if weights is not None or name not in (*METRICS, "Minkowski"):
        return None
    p = float(metric.__getstate__()[0])
    return [rows, int(leaf_size), *((METRICS[name], {}) if name in METRICS else ("minkowski", {"p": p}))]


def make_neighbor_tree(module: str, name: str, content: list[Any]) -> Any:
    """A KDTree or BallTree from the content of `take_neighbor_tree`."""
    rows, leaf_size, metric, options = content
    return getattr(importlib.import_module(module), name)(rows, leaf_size, metric=metric, **options)


def make_lightgbm(content: list[Any]) -> Any:
    """A booster from LightGBM's text, and from the attributes that this does not contain."""
    text, best_iteration, params = content
    booster: Any = importlib.import_module("lightgbm").Booster(model_str=check_lightgbm(text))
    booster.best_iteration, booster.params = best_iteration, params
    return booster


def make_xgboost(content: str) -> Any:
    """A booster from XGBoost's JSON."""
    check_xgboost(json.loads(content))
    return importlib.import_module("xgboost").Booster(model_file=bytearray(content, "utf-8"))


def take_defaultdict(values: defaultdict[Any, Any]) -> list[Any] | None:
    """The kind of the default values, and the values."""
    known = [name for name, factory in FACTORIES.items() if factory is values.default_factory]
    return [known[0], dict(values)] if known else None


ADAPTERS = {
    "sklearn.tree._tree.Tree": Adapter(take_tree, make_tree),
    "lightgbm.basic.Booster": Adapter(
        lambda b: [b.model_to_string(num_iteration=-1), b.best_iteration, b.params], make_lightgbm
    ),
    "xgboost.core.Booster": Adapter(lambda booster: booster.save_raw("json").decode(), make_xgboost),
    "collections.OrderedDict": Adapter(dict, OrderedDict),
    "collections.defaultdict": Adapter(
        take_defaultdict, lambda content: defaultdict(FACTORIES[content[0]], content[1])
    ),
}
for _module, _name in (("_kd_tree", "KDTree"), ("_ball_tree", "BallTree")):
    for _width in ("", "32", "64"):
        _full = f"sklearn.neighbors.{_module}"
        _make = partial(make_neighbor_tree, _full, f"{_name}{_width}")
        ADAPTERS[f"{_full}.{_name}{_width}"] = Adapter(take_neighbor_tree, _make)


def check_estimator(made: Any) -> None:
    """Raise if an estimator of scikit-learn has attributes that its compiled code would misread."""
    kind = type(made)
    if not kind.__module__.startswith("sklearn."):
        return
    who, state = kind.__name__, vars(made) if hasattr(made, "__dict__") else {}
    n_features: Any = state.get("n_features_in_")
    if "tree_" in state:
        require(state["tree_"].n_features == n_features, who)
    if kind.__module__ in TREE_ENSEMBLES and "estimators_" in state:
        trees = np.ravel(np.array(state["estimators_"], dtype=object))
        used = map(len, state["estimators_features_"]) if "estimators_features_" in state else None
        for tree, width in zip(trees, used or [n_features] * len(trees), strict=True):
            require(getattr(tree, "n_features_in_", width) == width, who)
    if "_predictors" in state:
        categorical = state["_bin_mapper"].is_categorical_
        require(categorical.shape == (n_features,), who)
        for predictor in (each for stage in state["_predictors"] for each in stage):
            check_predictor(predictor, n_features, categorical, who)
    if who == "KNeighborsClassifier" and "_y" in state and not isinstance(state["classes_"], list):
        y, rows = state["_y"], state["n_samples_fit_"]
        require(y.shape[0] == rows and np.all((y >= 0) & (y < len(state["classes_"]))), who)


def check_predictor(predictor: Any, n_features: int, categorical: AnyArray, who: str) -> None:
    """Raise if a tree of scikit-learn's histogram boosting has nodes out of bounds."""
    nodes, bitsets = predictor.nodes, predictor.raw_left_cat_bitsets
    inner = nodes["is_leaf"] == 0
    children = [nodes["left"].astype(np.int64), nodes["right"].astype(np.int64)]
    check_nodes(inner, children, nodes["feature_idx"], n_features, who)
    by_category = nodes[inner & (nodes["is_categorical"] != 0)]
    require(bitsets.ndim == 2 and bitsets.shape[1:] == (8,) and bitsets.dtype == np.uint32, who)
    require(np.all(by_category["bitset_idx"] < len(bitsets)), who)
    require(np.all(categorical[by_category["feature_idx"]]), who)


def require(condition: Any, who: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise ValueError(
            f"The {who} has indices out of bounds, or arrays of the wrong shape: the file is damaged or was "
            "modified."
        )
