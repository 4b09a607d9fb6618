"""Ensembles of trees in one form, read from scikit-learn's models and written back.

`boosted_formats` has the formats of LightGBM and XGBoost. To support another library, derive from
`TreeFormat` and add an instance to FORMATS in `pruned_trees`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from manylens.native.threads import in_threads
from manylens.native.trees import FlatTrees, pack_trees, round_down
from manylens.pruning.boosting_members import initial_score
from manylens.pruning.members import Link
from manylens.typing import AnyArray, FloatArray, IntArray

MANY_NODES = 2**18  # from which on threads pay


class OneTree(NamedTuple):
    """A tree with m nodes; children come after their parents, and are -1 for leaves."""

    left: IntArray  # (m,)
    right: IntArray  # (m,)
    feature: IntArray  # (m,)
    threshold: FloatArray  # (m,): rows with at most this value go left
    missing_left: AnyArray  # (m,): whether rows with a missing value go left
    value: FloatArray  # (m, V); entries of inner nodes are not used
    cover: FloatArray  # (m,): training rows in a node, or another measure of their number
    column: int = 0  # first of the V columns of the score that the tree adds to


class TreeEnsemble(NamedTuple):
    """A sum of trees: score(x) = intercept + Σ_t value of the leaf of x in tree t.

    Parameters
    ----------
    trees : FlatTrees
        All nodes as arrays.
    cover : ndarray of shape (m,)
        Training rows in each node, or another measure of their number.
    intercept : ndarray of shape (C,)
        Constant, one per column of the score.
    link : {"identity", "logistic"}
        "identity": the score is the prediction. "logistic": log-odds, of the second class or of all classes.
    classes : ndarray or None
        Classes; None for regression.
    averages : bool, default=False
        Whether the trees are those of a forest and can be exchanged; those of boosting have an order.
    """

    trees: FlatTrees
    cover: FloatArray
    intercept: FloatArray
    link: Link
    classes: AnyArray | None
    averages: bool = False

    @property
    def n_outputs(self) -> int:
        """Number of columns C of the score."""
        return len(self.intercept)


def join_trees(trees: Sequence[OneTree], dtype: str = "f8") -> tuple[FlatTrees, FloatArray]:
    """All trees in flat arrays, with thresholds of this type, and the cover of their nodes."""
    sizes, columns = [len(tree.left) for tree in trees], [tree.column for tree in trees]
    return flatten_nodes(trees, np.array(sizes), np.array(columns), dtype)


def flatten_nodes(
    parts: Sequence[OneTree], sizes: IntArray, columns: IntArray, dtype: str
) -> tuple[FlatTrees, FloatArray]:
    """Flat arrays of trees of these sizes, and the cover of their nodes; each part has one or more trees.

    The children are numbered within each tree.
    """
    lengths, m = np.array([len(part.left) for part in parts]), int(sizes.sum())
    starts = np.cumsum(lengths) - lengths
    children, feature = np.empty((m, 2), dtype=np.uint32), np.empty(m, dtype=np.uint32)
    threshold, missing, cover = np.empty(m, dtype=dtype), np.empty(m, dtype=bool), np.empty(m)
    value = np.empty((m, parts[0].value.shape[1]))

    def copy_parts(first: int, last: int) -> None:  # part by part, because nodes of scikit-learn are records
        for part, start, length in zip(
            parts[first:last], starts[first:last], lengths[first:last], strict=True
        ):
            here = slice(start, start + length)
            children[here, 0], children[here, 1], feature[here] = part.left, part.right, part.feature
            value[here], cover[here] = part.value, part.cover
            threshold[here] = round_down(part.threshold) if dtype == "f4" else part.threshold
            np.equal(part.missing_left, 0, out=missing[here])

    in_threads(copy_parts, len(parts), alone=m < MANY_NODES)
    arrays = (children, feature, threshold, missing.view(np.uint8), value, np.cumsum(sizes) - sizes, columns)
    return pack_trees(*arrays, within=True), cover


class LeafValues(NamedTuple):
    """The leaves of trees, for scores and losses: rows have leaf numbers instead of nodes."""

    value: FloatArray  # (leaves, V)
    column: IntArray  # (t,) uint32
    intercept: FloatArray  # (C,)
    link: Link
    classes: AnyArray | None
    averages: bool

    @property
    def n_trees(self) -> int:
        return len(self.column)


def leaf_values(ensemble: TreeEnsemble, n_trees: int) -> LeafValues:
    """The leaves of the first trees; those of a forest get the weights of their mean."""
    trees, tail = ensemble.trees, (ensemble.intercept, ensemble.link, ensemble.classes, ensemble.averages)
    whole = not ensemble.averages or n_trees == len(trees.roots)
    value = trees.value
    if not whole:
        last = trees.leaf[: trees.roots[n_trees]].max(initial=0)
        value = trees.value[: last + 1] * (len(trees.roots) / max(n_trees, 1))
    return LeafValues(value, trees.column[:n_trees], *tail)


def tree_ends(trees: FlatTrees) -> IntArray:
    """The position after the last node of each tree; none if there are no trees."""
    return np.append(trees.roots, len(trees.feature))[1:].astype(np.int64)


def split_trees(trees: FlatTrees, cover: FloatArray) -> list[OneTree]:
    """The single trees of flat arrays."""
    ends = tree_ends(trees)
    found = []
    for root, end, column in zip(trees.roots.astype(np.int64), ends, trees.column, strict=True):
        children = trees.children[root:end].astype(np.int64) - root
        leaf = children[:, 0] == np.arange(end - root)
        value = np.where(leaf[:, np.newaxis], trees.value[trees.leaf[root:end]], 0.0)
        missing_left = trees.missing[root:end] == 0
        left, right = np.where(leaf[:, np.newaxis], -1, children).T
        feature, threshold = trees.feature[root:end].astype(np.int64), trees.threshold[root:end]
        found.append(
            OneTree(left, right, feature, threshold, missing_left, value, cover[root:end], int(column))
        )
    return found


def constant_tree(value: FloatArray, column: int = 0) -> OneTree:
    """A tree that is one leaf."""
    none, zero = np.array([-1]), np.zeros(1, dtype=np.int64)
    return OneTree(none, none, zero, np.zeros(1), np.ones(1), value[np.newaxis], np.ones(1), column)


def with_intercept(trees: Sequence[OneTree], shift: FloatArray) -> list[OneTree]:
    """Trees with a shift (C,) added to their sum, in the first tree of each column."""
    shifted = list(trees)
    for column in np.flatnonzero(shift):
        for k, tree in enumerate(shifted):
            if tree.column <= column < tree.column + tree.value.shape[1]:
                value = tree.value.copy()
                value[:, column - tree.column] += shift[column]
                shifted[k] = tree._replace(value=value)
                break
        else:
            shifted.append(constant_tree(shift[column : column + 1], int(column)))
    return shifted


def stages_of(trees: Sequence[OneTree], n_columns: int) -> list[list[OneTree]]:
    """Trees in stages with one tree per column; columns with fewer trees get constant ones."""
    queues = [[tree for tree in trees if tree.column == column] for column in range(n_columns)]
    n_stages = max(1, *map(len, queues))
    for column, queue in enumerate(queues):
        queue.extend([constant_tree(np.zeros(1), column)] * (n_stages - len(queue)))
    return [[queue[k] for queue in queues] for k in range(n_stages)]


class TreeFormat:
    """Reads and writes the models of one kind."""

    class_names: tuple[str, ...] = ()  # names of the classes that this format reads
    cover_is_curvature = False  # the cover sums second derivatives of the loss instead of counting rows
    absent: float = 0.0  # what the library reads for entries that a sparse matrix does not store

    def read(self, model: Any) -> TreeEnsemble:
        """The trees of a fitted model; raises if it has parts that the common form cannot hold."""
        raise NotImplementedError

    def empty(self, model: Any) -> Any:
        """The parts of a model that `write` needs: everything but its trees."""
        raise NotImplementedError

    def write(self, empty: Any, ensemble: TreeEnsemble) -> Any:
        """A model of the original class with other trees."""
        raise NotImplementedError


def refuse(model: Any, what: str) -> ValueError:
    """The error for a model that the common form cannot hold."""
    return ValueError(
        f"{type(model).__name__} {what}. Node pruning supports numeric splits, one target, and squared error "
        "or log loss."
    )


def check_single_target(model: Any) -> None:
    """Raise if a model of scikit-learn is not fitted or predicts several targets."""
    check_is_fitted(
        model, msg="This %(name)s is not fitted yet: call its fit first, or use fit_ensemble=True."
    )
    if getattr(model, "n_outputs_", 1) > 1:
        raise refuse(model, "predicts several targets at once: fit and prune one per target")


class ForestFormat(TreeFormat):
    """Random forests and extremely randomized trees: the mean of their trees."""

    class_names = (
        *("RandomForestClassifier", "RandomForestRegressor"),
        *("ExtraTreesClassifier", "ExtraTreesRegressor"),
    )

    def read(self, model: Any) -> TreeEnsemble:
        check_single_target(model)
        if getattr(model, "criterion", "squared_error") in ("absolute_error", "poisson"):
            raise refuse(model, f"was fitted with criterion={model.criterion!r}")
        trees, cover = join_trees(
            [read_tree(tree, tree.tree_.value[:, 0, :]) for tree in model.estimators_], "f4"
        )
        trees.value[:] /= len(model.estimators_)
        classes = model.classes_ if is_classifier(model) else None
        return TreeEnsemble(trees, cover, np.zeros(trees.value.shape[1]), "identity", classes, averages=True)

    def empty(self, model: Any) -> Any:
        forest = without_row_attributes(model)
        forest.estimators_ = [root_of(model.estimators_[0])]
        return forest

    def write(self, empty: Any, ensemble: TreeEnsemble) -> Any:
        if is_classifier(empty) and ensemble.link != "identity":
            raise ValueError(
                f"{type(empty).__name__} averages probabilities, but this pruned model adds log-odds: use "
                "link='identity' to get the original class, or the pruned model itself (estimator_), ONNX or "
                "treelite."
            )
        trees = split_trees(ensemble.trees, ensemble.cover) or [constant_tree(np.zeros(ensemble.n_outputs))]
        factor, shift = len(trees), np.asarray(ensemble.intercept)  # a forest takes the mean
        forest = copy.copy(empty)
        forest.estimators_ = [
            write_tree(empty.estimators_[0], tree._replace(value=factor * tree.value + shift))
            for tree in trees
        ]
        forest.n_estimators = len(trees)
        return forest


class GradientBoostingFormat(TreeFormat):
    """scikit-learn's GradientBoosting: one tree per stage and column of the score."""

    class_names = ("GradientBoostingClassifier", "GradientBoostingRegressor")

    def read(self, model: Any) -> TreeEnsemble:
        check_single_target(model)
        if model.loss not in ("squared_error", "log_loss"):
            raise refuse(model, f"was fitted with loss={model.loss!r}")
        if model.init is not None and model.init != "zero":
            raise refuse(model, "starts from another model (init)")
        trees, cover = join_trees(
            [
                read_tree(tree, model.learning_rate * tree.tree_.value[:, 0, :], column)
                for stage in model.estimators_
                for column, tree in enumerate(stage)
            ],
            "f4",
        )
        classes = model.classes_ if is_classifier(model) else None
        link: Link = "identity" if classes is None else "logistic"
        return TreeEnsemble(trees, cover, initial_score(model), link, classes)

    def empty(self, model: Any) -> Any:
        boosting = without_row_attributes(model)
        stage = [root_of(tree) for tree in model.estimators_[0]]
        boosting.estimators_ = np.array([stage], dtype=object)
        for tree in stage:
            tree.tree_.value[:] = 0.0  # so that the score of the empty model is what boosting starts from
        return boosting

    def write(self, empty: Any, ensemble: TreeEnsemble) -> Any:
        boosting = copy.copy(empty)
        trees = with_intercept(
            split_trees(ensemble.trees, ensemble.cover), ensemble.intercept - initial_score(empty)
        )
        rate, template = empty.learning_rate, empty.estimators_[0, 0]
        stages = stages_of(trees, ensemble.n_outputs)
        boosting.estimators_ = np.array(
            [
                [write_tree(template, tree._replace(value=tree.value / rate)) for tree in stage]
                for stage in stages
            ],
            dtype=object,
        ).reshape(len(stages), ensemble.n_outputs)
        boosting.n_estimators = boosting.n_estimators_ = len(stages)
        return boosting


class HistGradientBoostingFormat(TreeFormat):
    """scikit-learn's histogram boosting, whose trees are arrays of nodes."""

    class_names = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")

    def read(self, model: Any) -> TreeEnsemble:
        check_single_target(model)
        if model.loss not in ("squared_error", "log_loss"):
            raise refuse(model, f"was fitted with loss={model.loss!r}")
        stages = model._predictors  # there is no public access to the trees
        if any(np.any(tree.nodes["is_categorical"]) for stage in stages for tree in stage):
            raise refuse(model, "splits by categories")
        found = []
        for column, nodes in ((c, tree.nodes) for stage in stages for c, tree in enumerate(stage)):
            leaf = nodes["is_leaf"] != 0
            left, right = (np.where(leaf, -1, nodes[side].astype(np.int64)) for side in ("left", "right"))
            parts = (nodes["feature_idx"], nodes["num_threshold"], nodes["missing_go_to_left"])
            found.append(
                OneTree(
                    left, right, *parts, nodes["value"][:, np.newaxis], nodes["count"].astype(float), column
                )
            )
        trees, cover = join_trees(found)
        classes = model.classes_ if is_classifier(model) else None
        intercept = np.array(model._baseline_prediction, dtype=np.float64).ravel()
        return TreeEnsemble(trees, cover, intercept, "identity" if classes is None else "logistic", classes)

    def empty(self, model: Any) -> Any:
        boosting = copy.copy(model)
        kind = type(model._predictors[0][0])
        nodes = model._predictors[0][0].nodes[:1].copy()
        nodes["is_leaf"] = 1
        bitsets = np.empty((0, 8), dtype=np.uint32)
        boosting._predictors = [[kind(nodes, bitsets, bitsets) for _ in model._predictors[0]]]
        return boosting

    def write(self, empty: Any, ensemble: TreeEnsemble) -> Any:
        boosting = copy.copy(empty)
        template = empty._predictors[0][0]
        stages = stages_of(split_trees(ensemble.trees, ensemble.cover), ensemble.n_outputs)
        boosting._predictors = [
            [type(template)(histogram_nodes(template.nodes.dtype, tree), *[template.raw_left_cat_bitsets] * 2)
             for tree in stage]
            for stage in stages
        ]  # fmt: skip
        baseline = np.asarray(empty._baseline_prediction)
        boosting._baseline_prediction = ensemble.intercept.astype(baseline.dtype).reshape(baseline.shape)
        boosting.max_iter = len(stages)
        return boosting


def histogram_nodes(dtype: Any, tree: OneTree) -> AnyArray:
    """Nodes of histogram boosting."""
    nodes = np.zeros(len(tree.left), dtype=dtype)
    inner = tree.left >= 0
    nodes["is_leaf"] = ~inner
    nodes["value"], nodes["count"] = tree.value[:, 0], tree.cover
    for name, column in (("left", tree.left), ("right", tree.right), ("feature_idx", tree.feature)):
        nodes[name][inner] = column[inner]
    nodes["num_threshold"][inner] = tree.threshold[inner]
    nodes["missing_go_to_left"] = tree.missing_left
    nodes["depth"] = node_depths(tree)
    return nodes


def node_depths(tree: OneTree) -> IntArray:
    """Steps from the root to each node."""
    depth = np.zeros(len(tree.left), dtype=np.int64)
    for node in np.flatnonzero(tree.left >= 0):  # parents come first
        depth[[tree.left[node], tree.right[node]]] = depth[node] + 1
    return depth


def read_tree(estimator: Any, value: FloatArray, column: int = 0) -> OneTree:
    """A tree of scikit-learn with these values (m, V)."""
    nodes = estimator.tree_
    parts = (nodes.children_left, nodes.children_right, nodes.feature, nodes.threshold)
    return OneTree(*parts, nodes.missing_go_to_left, value, nodes.weighted_n_node_samples, column)


def write_tree(template: Any, tree: OneTree) -> Any:
    """A copy of a tree estimator of scikit-learn with other nodes."""
    state = template.tree_.__getstate__()
    inner = tree.left >= 0
    nodes = np.zeros(len(tree.left), dtype=state["nodes"].dtype)
    for name, column, none in (
        ("left_child", tree.left, -1),
        ("right_child", tree.right, -1),
        ("feature", tree.feature, -2),
        ("threshold", tree.threshold, -2.0),
    ):
        nodes[name] = np.where(inner, column, none)
    nodes["missing_go_to_left"] = inner & np.asarray(tree.missing_left, dtype=bool)
    nodes["n_node_samples"] = nodes["weighted_n_node_samples"] = tree.cover
    _, (n_features, n_classes, n_outputs), _ = template.tree_.__reduce__()
    made = type(template.tree_)(n_features, n_classes, n_outputs)
    values = np.ascontiguousarray(tree.value[:, np.newaxis, :], dtype=np.float64)
    depth = int(node_depths(tree).max())
    made.__setstate__(
        state | {"max_depth": depth, "node_count": len(nodes), "nodes": nodes, "values": values}
    )
    written = copy.copy(template)
    written.tree_, written.random_state = made, None  # the seed would draw the rows of the template
    return written


def root_of(estimator: Any) -> Any:
    """A copy of a tree estimator of scikit-learn with its root alone."""
    tree = read_tree(estimator, estimator.tree_.value[:, 0, :])
    return write_tree(estimator, constant_tree(tree.value[0])._replace(cover=tree.cover[:1]))


def without_row_attributes(model: Any) -> Any:
    """A copy of an ensemble without attributes that have one entry per training row."""
    copied = copy.copy(model)
    for name in [name for name in vars(copied) if name.startswith("oob_") and name != "oob_score"]:
        delattr(copied, name)
    return copied
