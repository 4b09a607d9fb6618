"""Class weights and monotonic constraints of fitted ensembles, which pruning does not use."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from manylens.pruning.tree_ensembles import TreeEnsemble

CONSTRAINED = re.compile(r'monotone_constraints(":"|: )[^]"]*1')  # in XGBoost's or LightGBM's settings
EQUAL = {"scale_pos_weight": 1.0, "is_unbalance": 0.0}  # values that give both classes equal weights


def warn_of_class_weights(ensemble: Any, whole: TreeEnsemble) -> None:
    """Warn if the ensemble gave classes different weights, because pruning gives rows equal ones."""
    setting = None if whole.classes is None else class_weighting(ensemble, whole.n_outputs == 1)
    if setting is not None:
        warnings.warn(
            f"The {type(ensemble).__name__} was fitted with {setting}, but pruning judges and refits all "
            "rows alike, so that rare classes are predicted less often: lower the threshold of "
            "predict_proba for them, or use `guarantee`, which keeps the predicted classes of given rows.",
            stacklevel=4,
        )


def class_weighting(ensemble: Any, two_classes: bool) -> str | None:
    """The parameter by which classes had different weights; None if there is none, or if it is not known."""
    given = getattr(ensemble, "class_weight", None)
    if given is not None and (not isinstance(given, dict) or any(each != 1 for each in given.values())):
        return f"class_weight={given!r}"
    booster, lines = booster_of(ensemble), []
    if two_classes and hasattr(booster, "save_config"):  # of XGBoost
        objective = json.loads(booster.save_config())["learner"]["objective"]
        weight = objective.get("reg_loss_param", {}).get("scale_pos_weight", "1")
        lines = [f"[scale_pos_weight: {weight}]"]
    elif two_classes and hasattr(booster, "model_to_string"):  # of LightGBM
        lines = booster.model_to_string(num_iteration=1).split("\n")
    for line in lines:
        name, _, value = line.strip("[]").partition(": ")
        if name in EQUAL and float(value) != EQUAL[name]:
            return f"{name}={float(value):g}"
    return None


def warn_of_constraints(ensemble: Any, what: str) -> None:
    """Warn if the ensemble was fitted with monotonic constraints that `what` need not keep."""
    if (name := constraint_of(ensemble)) is not None:
        warnings.warn(
            f"The {type(ensemble).__name__} was fitted with {name}, but {what} need not keep predictions "
            "monotonic: use AlignmentPruner with refit='nonnegative', whose weights do.",
            stacklevel=4,
        )


def constraint_of(ensemble: Any) -> str | None:
    """The parameter of monotonic constraints; None if there are none, or if they are not known."""
    given, booster = getattr(ensemble, "monotonic_cst", None), booster_of(ensemble)
    if given is not None:
        values = list(given.values()) if isinstance(given, Mapping) else given
        return "monotonic_cst" if np.any(np.asarray(values)) else None
    read = getattr(booster, "model_to_string", lambda **_: "")  # of LightGBM
    text = booster.save_config() if hasattr(booster, "save_config") else read(num_iteration=1)
    return "monotone_constraints" if CONSTRAINED.search(text) else None


def booster_of(ensemble: Any) -> Any:
    """The Booster of an estimator, or the model itself."""
    booster = ensemble.get_booster() if hasattr(ensemble, "get_booster") else ensemble
    return getattr(booster, "booster_", booster)


def has_first_trees(model: TreeEnsemble, whole: TreeEnsemble) -> bool:
    """Whether a model consists of the first trees of another, without changes."""
    few, many = ((each.trees.feature, each.trees.value) for each in (model, whole))
    return all(np.array_equal(a, b[: len(a)]) for a, b in zip(few, many, strict=True))
