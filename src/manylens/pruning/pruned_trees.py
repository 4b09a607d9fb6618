"""The model that node pruning returns: a sum of trees that predicts, saves, and exports."""

from __future__ import annotations

from math import isfinite
from typing import Any, TypeGuard

import numpy as np
from sklearn.utils import Tags

from manylens.native.trees import LANES, FlatTrees, add_complete_rows, check_flat_trees
from manylens.pruning.boosted_formats import LightGBMFormat, XGBoostFormat
from manylens.pruning.pruned_ensemble import PrunedModel, tree_sums, typed_tags, validate_float_rows
from manylens.pruning.tree_ensembles import (
    ForestFormat,
    GradientBoostingFormat,
    HistGradientBoostingFormat,
    TreeEnsemble,
    TreeFormat,
)
from manylens.pruning.tree_exports import onnx_model, treelite_model
from manylens.typing import FloatArray, MatrixLike
from manylens.validation import is_same

FORMATS: tuple[TreeFormat, ...] = (
    ForestFormat(),
    GradientBoostingFormat(),
    HistGradientBoostingFormat(),
    LightGBMFormat(),
    XGBoostFormat(),
)


class PrunedTrees(PrunedModel):
    """A sum of trees, intercept + Σ_t v_t(leaf of x), created by `TreePruner`.

    Parameters
    ----------
    model : TreeEnsemble
        The trees as arrays, the intercept, the link and the classes.
    empty : object, default=None
        The original model without its trees, for `to_ensemble`.
    allow_nan : bool, default=False
        Whether rows may have missing values.
    """

    def __init__(self, model: TreeEnsemble, empty: Any = None, allow_nan: bool = False) -> None:
        self.model = model
        self.empty = empty
        self.allow_nan = allow_nan

    def _check_state(self) -> None:
        if isinstance(self.model, TreeEnsemble):  # evaluated without bounds checks: the file may be untrusted
            self._require(hasattr(self, "n_features_in_") and isinstance(self.model.trees, FlatTrees))
            check_flat_trees(self.model.trees, self.n_features_in_, len(self.model.intercept))
            self._require(len(self.model.cover) == len(self.model.trees.feature))

    def _checked_model(self) -> TreeEnsemble:
        """The trees; raises if this model was not created by `TreePruner`."""
        if not isinstance(self.model, TreeEnsemble) or not hasattr(self, "n_features_in_"):
            raise TypeError("model is not an ensemble of trees: use the estimator_ of a fitted TreePruner.")
        return self.model

    @property
    def n_members(self) -> int:
        """Number of trees."""
        return len(self._checked_model().trees.roots)

    @property
    def n_nodes(self) -> int:
        """Number of nodes, inner nodes and leaves."""
        return len(self._checked_model().trees.feature)

    @property
    def n_bytes(self) -> int:
        """Bytes of the trees as arrays: 16 per tree, 21 per node (25 if in double), 8 per leaf value."""
        return tree_bytes(self._checked_model().trees)

    def raw_scores(self, X: MatrixLike) -> FloatArray:
        model = self._checked_model()
        if self._is_plain(X) and len(model.trees.roots):
            return plain_sums(X, model)
        absent = named_format(self.empty[0]).absent if isinstance(self.empty, tuple) else 0.0
        X = validate_float_rows(self, X, self.allow_nan, False, absent)
        if not len(model.trees.roots):
            return np.repeat(model.intercept[np.newaxis], X.shape[0], axis=0)
        return tree_sums(X, model.trees, model.n_outputs, absent) + model.intercept

    def _is_plain(self, X: Any) -> TypeGuard[FloatArray]:
        """Whether X needs no validation, which takes longer than the prediction of a single row."""
        if type(X) is not np.ndarray or X.dtype != self.model.trees.threshold.dtype or X.ndim != 2:
            return False
        if X.shape[1] != self.n_features_in_ or not len(X) or "feature_names_in_" in self.__dict__:
            return False
        return isfinite(X.sum())  # NaN, infinity and sums that overflow need validation

    def to_ensemble(self) -> Any:
        """Return a model of the original class with these trees.

        It saves, loads and predicts in its own library. Statistics of training, such as feature importances,
        are not kept. A forest of classes needs link="identity".

        Returns
        -------
        estimator or Booster
        """
        model = self._checked_model()
        if not isinstance(self.empty, tuple):
            raise ValueError(
                "This model does not know the class that it came from: prune the ensemble again."
            )
        name, empty = self.empty
        return named_format(name).write(empty, model)

    def to_onnx(self) -> Any:
        """Return an ONNX model: inputs X (n, d), outputs `values`, or `label` and `probabilities`.

        X is float32, or float64 for LightGBM and HistGradientBoosting, which compare in double precision. The
        label is int64 for classes that are numbers or booleans, and a string for others.

        Returns
        -------
        onnx.ModelProto
        """
        return onnx_model(self._checked_model(), self.n_features_in_)

    def to_treelite(self) -> Any:
        """Return a treelite model, which predicts values or class probabilities.

        Returns
        -------
        treelite.Model
        """
        return treelite_model(self._checked_model(), self.n_features_in_)

    def __sklearn_tags__(self) -> Tags:
        tags = typed_tags(super().__sklearn_tags__(), getattr(self.model, "classes", None) is not None)
        tags.input_tags.sparse, tags.input_tags.allow_nan = True, is_same(self.allow_nan, True)
        return tags


def tree_bytes(trees: FlatTrees) -> int:
    """Bytes of all arrays."""
    return int(sum(array.nbytes for array in trees))


def plain_sums(X: FloatArray, model: TreeEnsemble) -> FloatArray:
    """Scores (n, C) of finite rows in the precision of the trees."""
    total = np.empty((len(X), len(model.intercept)))
    total[:] = model.intercept
    add_complete_rows(np.ascontiguousarray(X), model.trees, np.empty(LANES, dtype=np.uint32), total)
    return total


def named_format(name: str) -> TreeFormat:
    """The format whose class has this name."""
    return next(each for each in FORMATS if type(each).__name__ == name)


def find_format(ensemble: Any) -> TreeFormat:
    """The format that reads a model."""
    bases = type(ensemble).__mro__
    for each in FORMATS:
        if any(base.__name__ in each.class_names for base in bases):
            return each
        module = getattr(each, "booster_module", None)
        if module and any(
            base.__name__ == "Booster" and base.__module__.startswith(f"{module}.") for base in bases
        ):
            return each
    known = sorted(name for each in FORMATS for name in each.class_names)
    raise TypeError(
        f"{type(ensemble).__name__} has no trees that can be pruned: give a fitted {', '.join(known)}, or "
        "a Booster of LightGBM or XGBoost."
    )
