"""Trees as models of ONNX and treelite."""

from __future__ import annotations

from typing import Any

import numpy as np

from manylens.optional import import_optional
from manylens.pruning.tree_ensembles import TreeEnsemble, constant_tree, join_trees, split_trees, tree_ends
from manylens.typing import AnyArray, IntArray

OPSETS = {"": 18, "ai.onnx.ml": 3}
IR_VERSION = 8


def onnx_model(model: TreeEnsemble, n_features: int) -> Any:
    """An ONNX model: one TreeEnsembleRegressor for the scores, then the link and the label."""
    onnx = import_optional("onnx", "Exporting to ONNX", "onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    double = model.trees.threshold.dtype == np.float64
    if not len(model.trees.roots):  # a regressor of ONNX needs a tree
        constant = [constant_tree(np.zeros(model.trees.value.shape[1]))]
        model = model._replace(trees=join_trees(constant, "f8" if double else "f4")[0])
    nodes = [helper.make_node("TreeEnsembleRegressor", ["X"], ["score"], domain="ai.onnx.ml",
                              **tree_attributes(onnx, model, double))]  # fmt: skip
    values: dict[str, Any] = {"shift": model.intercept.astype(np.float32)}
    C = model.n_outputs
    if model.classes is None:
        nodes.append(helper.make_node("Add", ["score", "shift"], ["values"]))
        outputs = [helper.make_tensor_value_info("values", kinds.FLOAT, [None, 1])]
    else:
        nodes.append(helper.make_node("Add", ["score", "shift"], ["shifted"]))
        if model.link == "identity":
            values |= {"zero": np.float32(0), "one": np.float32(1)}
            nodes.append(helper.make_node("Clip", ["shifted", "zero", "one"], ["clipped"]))
            values |= {"axis": np.array([1]), "least": np.float32(1e-30)}
            nodes.append(helper.make_node("ReduceSum", ["clipped", "axis"], ["sum"], keepdims=1))
            nodes.append(helper.make_node("Max", ["sum", "least"], ["positive"]))
            nodes.append(helper.make_node("Div", ["clipped", "positive"], ["probabilities"]))
        elif C == 1:
            values |= {"one": np.float32(1)}
            nodes.append(helper.make_node("Sigmoid", ["shifted"], ["second"]))
            nodes.append(helper.make_node("Sub", ["one", "second"], ["first"]))
            nodes.append(helper.make_node("Concat", ["first", "second"], ["probabilities"], axis=1))
        else:
            nodes.append(helper.make_node("Softmax", ["shifted"], ["probabilities"], axis=1))
        nodes.append(helper.make_node("ArgMax", ["probabilities"], ["place"], axis=1, keepdims=0))
        nodes.append(helper.make_node("Gather", ["classes", "place"], ["label"]))
        is_number = model.classes.dtype.kind in "iubf"  # classes of type float are whole numbers
        values["classes"] = model.classes.astype(np.int64 if is_number else object)
        kind = kinds.INT64 if is_number else kinds.STRING
        outputs = [
            helper.make_tensor_value_info("label", kind, [None]),
            helper.make_tensor_value_info("probabilities", kinds.FLOAT, [None, len(model.classes)]),
        ]
    rows = helper.make_tensor_value_info("X", kinds.DOUBLE if double else kinds.FLOAT, [None, n_features])
    constants = [constant_tensor(onnx, name, np.asarray(value)) for name, value in values.items()]
    graph = helper.make_graph(nodes, "manylens_trees", [rows], outputs, constants)
    opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    return helper.make_model(graph, opset_imports=opsets, producer_name="manylens", ir_version=IR_VERSION)


def constant_tensor(onnx: Any, name: str, value: AnyArray) -> Any:
    """A constant of a graph."""
    if value.dtype == object:
        texts = [str(each).encode() for each in value]
        return onnx.helper.make_tensor(name, onnx.TensorProto.STRING, value.shape, texts)
    return onnx.numpy_helper.from_array(value, name)


def tree_attributes(onnx: Any, model: TreeEnsemble, double: bool) -> dict[str, Any]:
    """Attributes of a TreeEnsembleRegressor; nodes are numbered within their tree."""
    trees, V = model.trees, model.trees.value.shape[1]
    m = len(trees.feature)
    sizes = tree_ends(trees) - trees.roots.astype(np.int64)
    tree_of = np.repeat(np.arange(len(sizes)), sizes)
    first = np.repeat(trees.roots.astype(np.int64), sizes)
    leaf = trees.children[:, 0] == np.arange(m)
    children = np.where(leaf[:, np.newaxis], 0, trees.children.astype(np.int64) - first[:, np.newaxis])
    leaves = np.flatnonzero(leaf)
    threshold = np.where(leaf, 0, trees.threshold)

    def each_value(column: IntArray) -> list[int]:
        return np.repeat(column[leaves], V).tolist()

    targets = trees.column.astype(np.int64)[tree_of[leaves]][:, np.newaxis] + np.arange(V)
    value = trees.value[trees.leaf[leaves]].ravel()
    attributes: dict[str, Any] = {
        "n_targets": model.n_outputs,
        "aggregate_function": "SUM",
        "nodes_treeids": tree_of.tolist(),
        "nodes_nodeids": (np.arange(m) - first).tolist(),
        "nodes_featureids": trees.feature.tolist(),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_truenodeids": children[:, 0].tolist(),
        "nodes_falsenodeids": children[:, 1].tolist(),
        "nodes_missing_value_tracks_true": (~leaf & (trees.missing == 0)).astype(int).tolist(),
        "target_treeids": each_value(tree_of),
        "target_nodeids": each_value(np.arange(m) - first),
        "target_ids": targets.ravel().tolist(),
    }
    if not double:
        return attributes | {"nodes_values": threshold.tolist(), "target_weights": value.tolist()}
    return attributes | {
        "nodes_values_as_tensor": onnx.numpy_helper.from_array(threshold.astype(np.float64), "thresholds"),
        "target_weights_as_tensor": onnx.numpy_helper.from_array(value.astype(np.float64), "weights"),
    }


def treelite_model(model: TreeEnsemble, n_features: int) -> Any:
    """A treelite model with the same trees."""
    builder = import_optional("treelite.model_builder", "Exporting to treelite", "treelite")
    kind = "float64" if model.trees.threshold.dtype == np.float64 else "float32"
    C, V = model.n_outputs, model.trees.value.shape[1]
    trees = split_trees(model.trees, model.cover) or [constant_tree(np.zeros(V))]
    vector = C > 1 and V == C
    if model.classes is None:
        task, post = "kRegressor", "identity"
    elif C == 1:
        task, post = "kBinaryClf", "sigmoid"
    else:
        task, post = "kMultiClf", "identity" if model.link == "identity" else "softmax"
    made = builder.ModelBuilder(
        threshold_type=kind,
        leaf_output_type=kind,
        metadata=builder.Metadata(
            num_feature=n_features,
            task_type=task,
            average_tree_output=False,
            num_target=1,
            num_class=[C],
            leaf_vector_shape=(1, C if vector else 1),
        ),
        tree_annotation=builder.TreeAnnotation(
            num_tree=len(trees),
            target_id=[0] * len(trees),
            class_id=[-1 if vector else tree.column for tree in trees],
        ),
        postprocessor=builder.PostProcessorFunc(name=post),
        base_scores=model.intercept.astype(np.float64).tolist(),
    )
    for tree in trees:
        made.start_tree()
        for node in range(len(tree.left)):
            made.start_node(node)
            if tree.left[node] < 0:
                made.leaf(tree.value[node].tolist() if vector else float(tree.value[node, 0]))
            else:
                made.numerical_test(
                    feature_id=int(tree.feature[node]),
                    threshold=float(tree.threshold[node]),
                    default_left=bool(tree.missing_left[node]),
                    opname="<=",
                    left_child_key=int(tree.left[node]),
                    right_child_key=int(tree.right[node]),
                )
            made.end_node()
        made.end_tree()
    return made.commit()
