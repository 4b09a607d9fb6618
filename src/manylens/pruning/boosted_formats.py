"""The models of LightGBM and XGBoost as trees, read from and written to the formats of their own files."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from manylens.native.trees import FlatTrees
from manylens.optional import import_optional
from manylens.pruning.boosting_members import refuse_unreadable_xgboost, xgboost_rounds
from manylens.pruning.tree_ensembles import (
    OneTree,
    TreeEnsemble,
    TreeFormat,
    flatten_nodes,
    refuse,
    split_trees,
    stages_of,
    with_intercept,
)
from manylens.pruning.ubjson import read_arrays, read_list
from manylens.typing import AnyArray, FloatArray

DEFAULT_LEFT, MISSING_TYPE, MISSING_NAN = 2, 12, 8  # bits of LightGBM's decision_type
TREES_AT_ONCE = 200  # of LightGBM; with its default of 31 leaves, they take up to 0.7 MB of text
LIGHTGBM_LINKS = {"regression": "identity", "binary sigmoid:1": "logistic"}
XGBOOST_LINKS = {"reg:squarederror": "identity", "binary:logistic": "logistic"}
XGBOOST_LINKS |= {"multi:softprob": "logistic", "multi:softmax": "logistic"}
XGBOOST_FIELDS = ["default_left", "left_children", "right_children", "split_conditions", "split_indices"]
XGBOOST_FIELDS += ["split_type", "sum_hessian"]  # in alphabetical order, like XGBoost's files


class LightGBMFormat(TreeFormat):
    """LightGBM's estimators and its Booster: the text that it writes to files."""

    class_names = ("LGBMClassifier", "LGBMRegressor")
    booster_module = "lightgbm"

    def read(self, model: Any) -> TreeEnsemble:
        head, sections = lightgbm_sections(lightgbm_booster(model))
        settings = text_fields(head)
        objective = settings.get("objective", "")
        n_columns = int(settings["num_tree_per_iteration"])
        link = (
            "logistic" if objective == f"multiclass num_class:{n_columns}" else LIGHTGBM_LINKS.get(objective)
        )
        if link is None:
            raise refuse(model, f"was fitted with objective={objective!r}")
        check_objective(model, objective, link == "logistic")
        if "average_output" in head.split("\n"):
            raise refuse(model, "was fitted with boosting='rf', whose trees are averaged and not added")
        trees, cover = read_lightgbm_trees(model, sections, n_columns)
        classes = None if link == "identity" else classes_of(model, max(2, n_columns))
        return TreeEnsemble(trees, cover, np.zeros(n_columns), link, classes)  # type: ignore[arg-type]

    def empty(self, model: Any) -> Any:
        booster = lightgbm_booster(model)
        text = booster.model_to_string(num_iteration=1)
        head, _, rest = text.partition("\nTree=")
        tail = rest[rest.index("end of trees") :]
        before, _, after = tail.partition("feature_importances:")
        lines = [line for line in head.split("\n") if not line.startswith("tree_sizes=")]
        estimator = None if model is booster else copy.copy(model)
        if estimator is not None:
            estimator._Booster = None
        parts = after.partition("\nparameters:")
        return {"head": "\n".join(lines), "tail": before + parts[1] + parts[2], "estimator": estimator}

    def write(self, empty: Any, ensemble: TreeEnsemble) -> Any:
        trees = with_intercept(split_trees(ensemble.trees, ensemble.cover), ensemble.intercept)
        stages = stages_of(trees, ensemble.n_outputs)
        sections = [
            lightgbm_text(k, tree) for k, tree in enumerate(tree for stage in stages for tree in stage)
        ]
        text = empty["head"].rstrip("\n") + "\n\n" + "\n".join(sections) + "\n" + empty["tail"]
        lightgbm = import_optional("lightgbm", "Writing a LightGBM model", "lightgbm")
        booster = lightgbm.Booster(model_str=text)
        if empty["estimator"] is None:
            return booster
        estimator = copy.copy(empty["estimator"])
        estimator._Booster = booster  # LightGBM has no public way to set it
        estimator._best_iteration = 0
        estimator.n_estimators = len(stages)
        return estimator


def lightgbm_booster(model: Any) -> Any:
    """The Booster of an estimator, or the Booster itself."""
    if hasattr(model, "model_to_string"):
        return model
    if not model.__sklearn_is_fitted__():
        raise ValueError(
            f"This {type(model).__name__} is not fitted yet: call its fit first, or use fit_ensemble=True."
        )
    return model.booster_


def lightgbm_sections(booster: Any) -> tuple[str, list[str]]:
    """What precedes the trees in LightGBM's text, and the sections of the trees.

    LightGBM writes a text of more than 1 MB twice, so few trees are read at a time. After early stopping,
    these are the trees up to the best iteration.
    """
    head, sections = "", []
    stages = booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()
    few = max(1, TREES_AT_ONCE // booster.num_model_per_iteration())
    for first in range(0, max(1, stages), few):
        text = booster.model_to_string(num_iteration=max(1, min(few, stages - first)), start_iteration=first)
        head, *found = text.partition("\nend of trees")[0].split("\nTree=")
        sections += found
    return head, sections


def read_lightgbm_trees(model: Any, sections: Sequence[str], n_columns: int) -> tuple[FlatTrees, FloatArray]:
    """The trees of LightGBM: inner nodes 0, 1, ..., leaves -1, -2, ...; here leaves follow inner nodes."""
    # without categories and linear leaves, all sections have the same fields in the same order
    columns = zip(*(section.split("\n") for section in sections), strict=False)
    fields = {lines[0].partition("=")[0]: lines for lines in columns}
    if any(line != "num_cat=0" for line in fields["num_cat"]):
        raise refuse(model, "splits by categories")
    if any(line != "is_linear=0" for line in fields.get("is_linear", ())):
        raise refuse(model, "has linear models in its leaves")
    leaves = numbers_in(fields["num_leaves"])
    value = numbers_in(fields["leaf_value"], np.float64)
    cover = np.ones(len(value))  # trees without splits need no counts
    cover[np.repeat(leaves > 1, leaves)] = numbers_in(list(compress(fields["leaf_count"], leaves > 1)))
    decision, threshold = numbers_in(fields["decision_type"]), numbers_in(fields["threshold"], np.float64)
    kind = decision & MISSING_TYPE
    if np.any((kind != 0) & (kind != MISSING_NAN)):
        raise refuse(model, "takes zeros as missing values")
    # without missing values in training, LightGBM replaces them by zero
    missing_left = np.where(kind == MISSING_NAN, (decision & DEFAULT_LEFT) > 0, threshold >= 0)
    last = np.repeat(leaves - 2, leaves - 1)  # number of the last inner node
    sides = [numbers_in(fields[name]) for name in ("left_child", "right_child")]
    left, right = (np.where(side >= 0, side, last - side) for side in sides)
    sizes = 2 * leaves - 1
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # in its tree
    inner = place < np.repeat(leaves - 1, sizes)

    def both(splits: AnyArray, ends: AnyArray | float) -> AnyArray:
        """One entry per node, from those of inner nodes and of leaves."""
        merged = np.empty(len(inner), dtype=splits.dtype)
        merged[inner], merged[~inner] = splits, ends
        return merged

    nodes = OneTree(
        both(left, -1),
        both(right, -1),
        both(numbers_in(fields["split_feature"]), 0),
        both(threshold, 0.0),
        both(missing_left, np.repeat(leaves == 1, leaves)),
        both(np.zeros(len(last)), value)[:, np.newaxis],
        both(numbers_in(fields["internal_count"]).astype(np.float64), cover),
    )
    return flatten_nodes([nodes], sizes, np.arange(len(leaves)) % n_columns, "f8")


def numbers_in(lines: Sequence[str], dtype: type = np.int64) -> AnyArray:
    """The numbers in lines name=numbers, one after the other; read at once, which is fast."""
    name, *_ = "".join(lines[:1]).partition("=")
    return np.fromstring(" ".join(lines).replace(f"{name}=", ""), dtype=dtype, sep=" ")


def lightgbm_text(number: int, tree: OneTree) -> str:
    """The section of one tree in LightGBM's text."""
    inner = tree.left >= 0
    place = np.where(inner, np.cumsum(inner) - 1, -1 * np.cumsum(~inner))  # inner 0, 1, ...; leaves -1, ...
    zeros = np.zeros(inner.sum())
    fields: dict[str, Any] = {"num_leaves": [int((~inner).sum())], "num_cat": [0]}
    if inner.any():
        fields |= {
            "split_feature": tree.feature[inner].astype(int),
            "split_gain": zeros.astype(int),
            "threshold": tree.threshold[inner],
            "decision_type": MISSING_NAN + DEFAULT_LEFT * np.asarray(tree.missing_left[inner]).astype(int),
            "left_child": place[tree.left[inner]],
            "right_child": place[tree.right[inner]],
        }
    fields |= {
        "leaf_value": tree.value[~inner, 0],
        "leaf_weight": tree.cover[~inner],
        "leaf_count": tree.cover[~inner].astype(int),
    }
    if inner.any():
        fields |= {"internal_value": zeros, "internal_weight": tree.cover[inner]}
        fields |= {"internal_count": tree.cover[inner].astype(int)}
    fields |= {"is_linear": [0], "shrinkage": [1]}
    lines = [f"{name}={' '.join(repr(each) for each in plain(values))}" for name, values in fields.items()]
    return "\n".join([f"Tree={number}", *lines, "", ""])


class XGBoostFormat(TreeFormat):
    """XGBoost's estimators and its Booster: the UBJSON and JSON that it writes to files."""

    class_names = ("XGBClassifier", "XGBRegressor")
    booster_module = "xgboost"
    cover_is_curvature = True
    absent = np.nan

    def read(self, model: Any) -> TreeEnsemble:
        booster = xgboost_booster(model)
        refuse_unreadable_xgboost(model)
        learner = json.loads(booster.save_config())["learner"]
        objective, settings = learner["objective"]["name"], learner["learner_model_param"]
        link = XGBOOST_LINKS.get(objective)
        if link is None or learner["gradient_booster"]["name"] != "gbtree" or settings["num_target"] != "1":
            kind = learner["gradient_booster"]["name"]
            raise refuse(model, f"was fitted with objective={objective!r} and booster={kind!r}")
        check_objective(model, objective, link == "logistic")
        n_columns = max(1, int(settings["num_class"]))
        trees, cover = read_xgboost_trees(model, bytes(booster.save_raw("ubj")))
        classes = None if link == "identity" else classes_of(model, max(2, n_columns))
        return TreeEnsemble(trees, cover, xgboost_intercept(settings, link), link, classes)  # type: ignore[arg-type]

    def empty(self, model: Any) -> Any:
        booster = xgboost_booster(model)
        content = json.loads(booster[:1].save_raw("json"))  # one stage stands for all: it is left out below
        for name in ("best_iteration", "best_score"):
            content["learner"]["attributes"].pop(name, None)
        parts = content["learner"]["gradient_booster"]["model"]
        parts |= {"trees": [], "tree_info": [], "iteration_indptr": [0]}
        text = json.dumps(content)
        if model is booster or not hasattr(model, "get_booster"):
            return {"model": text, "estimator": None}
        return {"model": text, "estimator": (type(model).__name__, model.get_params())}

    def write(self, empty: Any, ensemble: TreeEnsemble) -> Any:
        content = json.loads(empty["model"])
        settings = content["learner"]["learner_model_param"]
        shift = ensemble.intercept - xgboost_intercept(settings, ensemble.link)
        trees = with_intercept(split_trees(ensemble.trees, ensemble.cover), shift)
        stages = stages_of(trees, ensemble.n_outputs)
        ordered = [tree for stage in stages for tree in stage]
        parts = content["learner"]["gradient_booster"]["model"]
        n_features = settings["num_feature"]
        parts["trees"] = [xgboost_tree(k, tree, n_features) for k, tree in enumerate(ordered)]
        parts["tree_info"] = [tree.column for tree in ordered]
        parts["iteration_indptr"] = list(range(0, len(ordered) + 1, ensemble.n_outputs))
        parts["gbtree_model_param"] |= {"num_trees": str(len(ordered)), "num_parallel_tree": "1"}
        raw = bytearray(json.dumps(content), "utf-8")
        xgboost = import_optional("xgboost", "Writing an XGBoost model", "xgboost")
        if empty["estimator"] is None:
            return xgboost.Booster(model_file=raw)
        name, params = empty["estimator"]
        params = params | {"n_estimators": len(stages), "early_stopping_rounds": None}
        estimator = getattr(xgboost, name)(**params)
        estimator.load_model(raw)
        return estimator


def xgboost_booster(model: Any) -> Any:
    """The Booster of an estimator, with the rounds that its `predict` uses, or the Booster itself."""
    if not hasattr(model, "get_booster"):
        return model
    if not model.__sklearn_is_fitted__():
        raise ValueError(
            f"This {type(model).__name__} is not fitted yet: call its fit first, or use fit_ensemble=True."
        )
    booster, rounds = model.get_booster(), xgboost_rounds(model)
    return booster[:rounds] if rounds < booster.num_boosted_rounds() else booster


def xgboost_intercept(settings: dict[str, Any], link: str) -> FloatArray:
    """The constant score (C,) from which XGBoost starts; for two classes, its files hold a probability."""
    text = settings["base_score"]
    base = np.array(json.loads(text) if text.startswith("[") else [float(text)], dtype=np.float64)
    n_columns = max(1, int(settings["num_class"]))
    if link == "logistic" and n_columns == 1:
        base = np.log(base) - np.log1p(-base)
    return np.broadcast_to(base, (n_columns,)).copy()


def read_xgboost_trees(model: Any, content: bytes) -> tuple[FlatTrees, FloatArray]:
    """The trees of XGBoost, in which rows below the threshold go left."""
    columns = read_list(content, content.rindex(b"tree_info") + 9)  # a feature of this name comes before
    found = read_arrays(content, XGBOOST_FIELDS, len(columns))
    if np.any(found["split_type"][1]):
        raise refuse(model, "splits by categories")
    missing_left, left, right, feature = (found[XGBOOST_FIELDS[k]][1].astype("i8") for k in (0, 1, 2, 4))
    split, cover = found["split_conditions"][1].astype("f4"), found["sum_hessian"][1].astype("f8")
    threshold, value = np.nextafter(split, np.float32(-np.inf)), split.astype(np.float64)[:, np.newaxis]
    nodes = OneTree(left, right, feature, threshold, missing_left, value, cover)
    return flatten_nodes([nodes], found["left_children"][0], np.array(columns, dtype=np.int64), "f4")


def xgboost_tree(number: int, tree: OneTree, n_features: str) -> dict[str, Any]:
    """One tree in XGBoost's JSON."""
    inner, m = tree.left >= 0, len(tree.left)
    parents = np.full(m, 2**31 - 1)
    for side in (tree.left, tree.right):
        parents[side[inner]] = np.flatnonzero(inner)
    above = np.nextafter(tree.threshold.astype(np.float32), np.float32(np.inf))
    split = np.where(inner, above.astype(np.float64), tree.value[:, 0])
    return {
        "base_weights": plain(np.where(inner, 0.0, tree.value[:, 0])),
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": plain(np.asarray(tree.missing_left).astype(int) * inner),
        "id": number,
        "left_children": plain(tree.left),
        "loss_changes": [0.0] * m,
        "parents": plain(parents),
        "right_children": plain(tree.right),
        "split_conditions": plain(split),
        "split_indices": plain(np.where(inner, tree.feature, 0)),
        "split_type": [0] * m,
        "sum_hessian": plain(tree.cover.astype(float)),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": n_features,
            "num_nodes": str(m),
            "size_leaf_vector": "1",
        },
    }


def check_objective(model: Any, objective: str, of_classes: bool) -> None:
    """Raise if a regressor has an objective for classes, or a classifier one for values."""
    if hasattr(model, "fit") and is_classifier(model) != of_classes:
        what = "classes, which needs a classifier" if of_classes else "values, which needs a regressor"
        raise refuse(model, f"was fitted with objective={objective!r} for {what} of the same library")


def classes_of(model: Any, n_classes: int) -> AnyArray:
    """The classes of an estimator, or 0, 1, ... for a Booster, which knows no others."""
    return np.asarray(model.classes_) if hasattr(model, "classes_") else np.arange(n_classes)


def text_fields(section: str) -> dict[str, str]:
    """The lines name=value of a section of LightGBM's text."""
    return dict(line.split("=", 1) for line in section.split("\n") if "=" in line)


def plain(values: AnyArray | Sequence[Any]) -> list[Any]:
    """Python's own numbers."""
    return np.asarray(values).tolist()
