"""Checks of the models of LightGBM and XGBoost, whose own readers trust the indices in them."""

from __future__ import annotations

from typing import Any

MESSAGE = "has indices out of bounds, or lists of the wrong length: the file is damaged or was modified."


def check_lightgbm(text: str) -> str:
    """LightGBM's text of a model, without the sizes of trees, which its reader would trust."""
    head, *trees = text.split("\nTree=")
    settings = fields(head)
    n_features = int(settings["max_feature_idx"]) + 1
    per_iteration = int(settings["num_tree_per_iteration"])
    names = settings["feature_names"].split()
    _require(head.startswith("tree\n") and len(names) == n_features > 0, "LightGBM")
    _require(per_iteration > 0 and len(trees) % per_iteration == 0, "LightGBM")
    for tree in trees:
        check_lightgbm_tree(fields(tree.partition("\n\n\n")[0]), n_features)
    kept = [line for line in head.split("\n") if not line.startswith("tree_sizes=")]
    return "\nTree=".join(["\n".join(kept), *trees])


def check_lightgbm_tree(tree: dict[str, str], n_features: int) -> None:
    """Raise if nodes of one tree are out of bounds; node k has children after itself or leaves -1 - leaf."""
    n_leaves, n_categories = int(tree["num_leaves"]), int(tree["num_cat"])
    n_nodes = n_leaves - 1
    _require(n_leaves > 0 and n_categories >= 0 and int(tree.get("is_linear", "0")) == 0, "LightGBM")
    _require(len(tree["leaf_value"].split()) == n_leaves, "LightGBM")
    if not n_nodes:
        return
    columns = ("left_child", "right_child", "split_feature", "decision_type")
    left, right, feature, decision = ([int(each) for each in tree[name].split()] for name in columns)
    threshold = [float(each) for each in tree["threshold"].split()]
    _require({len(each) for each in (left, right, feature, decision, threshold)} == {n_nodes}, "LightGBM")
    for k in range(n_nodes):
        for child in (left[k], right[k]):
            _require(k < child < n_nodes or 0 <= -1 - child < n_leaves, "LightGBM")
        _require(0 <= feature[k] < n_features, "LightGBM")
        _require(not decision[k] & 1 or 0 <= threshold[k] < n_categories, "LightGBM")
    if n_categories:
        starts = [int(each) for each in tree["cat_boundaries"].split()]
        words = len(tree["cat_threshold"].split())
        _require(len(starts) == n_categories + 1 and starts == sorted(starts), "LightGBM")
        _require(starts[0] == 0 and starts[-1] == words, "LightGBM")


def fields(section: str) -> dict[str, str]:
    """The lines name=value of a section."""
    pairs = (line.partition("=") for line in section.split("\n") if "=" in line)
    return {name: value for name, _, value in pairs}


def check_xgboost(model: dict[str, Any]) -> None:
    """Raise if a tree of XGBoost's JSON has nodes out of bounds; children come after their parents."""
    learner = model["learner"]
    n_features = int(learner["learner_model_param"]["num_feature"])
    booster = learner["gradient_booster"]
    n_groups = max(1, int(learner["learner_model_param"]["num_class"]))
    _require(booster["name"] == "gbtree", "XGBoost")
    trees, groups = booster["model"]["trees"], booster["model"]["tree_info"]
    starts = booster["model"].get("iteration_indptr", [0, len(trees)])
    _require(len(groups) == len(trees) and all(0 <= each < n_groups for each in groups), "XGBoost")
    _require(starts[0] == 0 and starts[-1] == len(trees) and starts == sorted(starts), "XGBoost")
    for tree in trees:
        left, right, feature = tree["left_children"], tree["right_children"], tree["split_indices"]
        columns = (right, feature, tree["split_conditions"], tree["default_left"], tree["parents"])
        n = int(tree["tree_param"]["num_nodes"])
        _require(n > 0 and all(len(each) == n for each in (left, *columns)), "XGBoost")
        _require(int(tree["tree_param"].get("size_leaf_vector", 1)) <= 1, "XGBoost")
        for k in range(n):
            leaf = left[k] == right[k] == -1
            _require(leaf or (k < left[k] < n and k < right[k] < n), "XGBoost")
            _require(leaf or 0 <= feature[k] < n_features, "XGBoost")
        sizes, segments = tree["categories_sizes"], tree["categories_segments"]
        lists = zip(segments, sizes, strict=True)
        n_values = len(tree["categories"])
        _require(all(0 <= start <= start + size <= n_values for start, size in lists), "XGBoost")
        _require(all(0 <= node < n for node in tree["categories_nodes"]), "XGBoost")


def _require(condition: bool, library: str) -> None:
    if not condition:
        raise ValueError(f"The model of {library} {MESSAGE}")
