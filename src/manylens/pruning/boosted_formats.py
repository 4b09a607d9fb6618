"""The models of LightGBM and XGBoost as trees, read from and written to the formats of their own files."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from manylens.optional import import_optional
from manylens.pruning.tree_ensembles import (
    OneTree,
    TreeEnsemble,
    TreeFormat,
    join_trees,
    refuse,
    split_trees,
    stages_of,
    with_intercept,
)
from manylens.pruning.ubjson import read_ubjson
from manylens.typing import AnyArray, FloatArray

CATEGORICAL, DEFAULT_LEFT, MISSING_TYPE, MISSING_NAN = 1, 2, 12, 8  # bits of LightGBM's decision_type
LIGHTGBM_LINKS = {"regression": "identity", "binary sigmoid:1": "logistic"}
XGBOOST_LINKS = {"reg:squarederror": "identity", "binary:logistic": "logistic"}
XGBOOST_LINKS |= {"multi:softprob": "logistic", "multi:softmax": "logistic"}


class LightGBMFormat(TreeFormat):
    """LightGBM's estimators and its Booster: the text that it writes to files."""

    class_names = ("LGBMClassifier", "LGBMRegressor")
    booster_module = "lightgbm"

    def read(self, model: Any) -> TreeEnsemble:
        text = lightgbm_booster(model).model_to_string()  # up to the best iteration after early stopping
        head, *sections = text.partition("\nend of trees")[0].split("\nTree=")
        settings = text_fields(head)
        objective = settings.get("objective", "")
        n_columns = int(settings["num_tree_per_iteration"])
        link = (
            "logistic" if objective == f"multiclass num_class:{n_columns}" else LIGHTGBM_LINKS.get(objective)
        )
        if link is None or "average_output" in head.split("\n"):
            raise refuse(model, f"was fitted with objective={objective!r}, or with boosting='rf'")
        trees, cover = join_trees(
            read_lightgbm_trees(model, [text_fields(each) for each in sections], n_columns)
        )
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


def read_lightgbm_trees(model: Any, trees: Sequence[dict[str, str]], n_columns: int) -> list[OneTree]:
    """The trees of LightGBM: inner nodes 0, 1, ..., leaves -1, -2, ...; here leaves follow inner nodes."""
    if any(tree.get("is_linear", "0") != "0" for tree in trees):
        raise refuse(model, "has linear models in its leaves")
    leaves = np.array([int(tree["num_leaves"]) for tree in trees])
    value = numbers_of(trees, "leaf_value")
    # without splits or counts, all leaves count the same
    known = [n > 1 and "leaf_count" in tree for n, tree in zip(leaves, trees, strict=True)]
    cover = np.ones(len(value))
    cover[np.repeat(known, leaves)] = numbers_of(list(compress(trees, known)), "leaf_count")
    decision, threshold = numbers_of(trees, "decision_type").astype(np.int64), numbers_of(trees, "threshold")
    if np.any(decision & CATEGORICAL):
        raise refuse(model, "splits by categories")
    kind = decision & MISSING_TYPE
    if np.any((kind != 0) & (kind != MISSING_NAN)):
        raise refuse(model, "takes zeros as missing values")
    # without missing values in training, LightGBM replaces them by zero
    missing_left = np.where(kind == MISSING_NAN, (decision & DEFAULT_LEFT) > 0, threshold >= 0)
    last = np.repeat(leaves - 2, leaves - 1)  # number of the last inner node
    sides = [numbers_of(trees, name).astype(np.int64) for name in ("left_child", "right_child")]
    left, right = (np.where(side >= 0, side, last - side) for side in sides)
    feature = numbers_of(trees, "split_feature").astype(np.int64)
    count = numbers_of(trees, "internal_count")
    found, i, j = [], 0, 0
    for number, n in enumerate(leaves):
        inner, ends = slice(i, i + n - 1), slice(j, j + n)
        i, j = inner.stop, ends.stop
        none, zero = np.full(n, -1), np.zeros(n)
        tree = OneTree(
            np.concatenate([left[inner], none]),
            np.concatenate([right[inner], none]),
            np.concatenate([feature[inner], np.zeros(n, dtype=np.int64)]),
            np.concatenate([threshold[inner], zero]),
            np.concatenate([missing_left[inner], zero + (n == 1)]),
            np.concatenate([np.zeros(n - 1), value[ends]])[:, np.newaxis],
            np.concatenate([count[inner], cover[ends]]),
            number % n_columns,
        )
        found.append(tree)
    return found


def numbers_of(trees: Sequence[dict[str, str]], name: str) -> FloatArray:
    """The numbers of one field in all trees, one after the other; read at once, which is fast."""
    return np.array(" ".join(tree.get(name, "") for tree in trees).split(), dtype=np.float64)


def lightgbm_text(number: int, tree: OneTree) -> str:
    """The section of one tree in LightGBM's text."""
    inner = tree.left >= 0
    place = np.where(
        inner, np.cumsum(inner) - 1, -1 * np.cumsum(~inner)
    )  # inner 0, 1, ...; leaves -1, -2, ...
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

    def read(self, model: Any) -> TreeEnsemble:
        booster = xgboost_booster(model)
        learner = read_ubjson(bytes(booster.save_raw("ubj")))["learner"]
        objective, settings = learner["objective"]["name"], learner["learner_model_param"]
        link = XGBOOST_LINKS.get(objective)
        if link is None or learner["gradient_booster"]["name"] != "gbtree" or settings["num_target"] != "1":
            kind = learner["gradient_booster"]["name"]
            raise refuse(model, f"was fitted with objective={objective!r} and booster={kind!r}")
        parts = learner["gradient_booster"]["model"]
        n_columns = max(1, int(settings["num_class"]))
        trees, cover = join_trees(read_xgboost_trees(model, parts["trees"], parts["tree_info"]), "f4")
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
    """The Booster of an estimator, up to its best iteration after early stopping, or the Booster itself."""
    if not hasattr(model, "get_booster"):
        return model
    if not model.__sklearn_is_fitted__():
        raise ValueError(
            f"This {type(model).__name__} is not fitted yet: call its fit first, or use fit_ensemble=True."
        )
    booster = model.get_booster()
    return booster[: model.best_iteration + 1] if model.early_stopping_rounds else booster


def xgboost_intercept(settings: dict[str, Any], link: str) -> FloatArray:
    """The constant score (C,) from which XGBoost starts; for two classes, its files hold a probability."""
    text = settings["base_score"]
    base = np.array(json.loads(text) if text.startswith("[") else [float(text)], dtype=np.float64)
    n_columns = max(1, int(settings["num_class"]))
    if link == "logistic" and n_columns == 1:
        base = np.log(base) - np.log1p(-base)
    return np.broadcast_to(base, (n_columns,)).copy()


def read_xgboost_trees(model: Any, trees: Sequence[dict[str, Any]], columns: Sequence[int]) -> list[OneTree]:
    """The trees of XGBoost, in which rows below the threshold go left."""
    if any(np.any(tree.get("split_type", ())) for tree in trees):
        raise refuse(model, "splits by categories")
    ends = np.cumsum([len(tree["left_children"]) for tree in trees])[:-1]

    def parts(name: str, dtype: str) -> list[AnyArray]:
        """One field of each tree; converted at once, which is fast."""
        return np.split(np.concatenate([tree[name] for tree in trees]).astype(dtype), ends)

    split = parts("split_conditions", "f4")
    fields = zip(
        parts("left_children", "i8"),
        parts("right_children", "i8"),
        parts("split_indices", "i8"),
        (np.nextafter(each, np.float32(-np.inf)) for each in split),
        parts("default_left", "i8"),
        (each.astype(np.float64)[:, np.newaxis] for each in split),
        parts("sum_hessian", "f8"),
        columns,
        strict=True,
    )
    return [OneTree(*each) for each in fields]


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


def classes_of(model: Any, n_classes: int) -> AnyArray:
    """The classes of an estimator, or 0, 1, ... for a Booster, which knows no others."""
    return np.asarray(model.classes_) if hasattr(model, "classes_") else np.arange(n_classes)


def text_fields(section: str) -> dict[str, str]:
    """The lines name=value of a section of LightGBM's text."""
    return dict(line.split("=", 1) for line in section.split("\n") if "=" in line)


def plain(values: AnyArray | Sequence[Any]) -> list[Any]:
    """Python's own numbers."""
    return np.asarray(values).tolist()
