"""Raises a model of an older opset to opset 21, node by node, without changing what it computes."""

from __future__ import annotations

import functools

import onnx
import onnx_ir as ir

from gradgen.engine import adapters, adapters_image
from gradgen.engine.adapters import Adapter, Edit
from gradgen.engine.inference import take_types
from gradgen.engine.serde import to_proto
from gradgen.engine.shaping import infer_types_of
from gradgen.errors import GradientError
from gradgen.rules.lang import OPSET

OLDEST = 7  # the oldest opset whose every later change has a decision below
TARGET = OPSET

# The new version takes the old form and means the same by it: more element types, attributes whose default is the
# old behaviour, inputs that became optional, wording.
RELABEL = None

reduce_axes = adapters.attribute_to_input("axes", 1)

# For each operator that changed after opset 7: what each change asks of a node of the version before.
CHANGES: dict[str, dict[int, Adapter | None]] = {
    "Abs": {13: RELABEL},
    "Add": {13: RELABEL, 14: RELABEL},
    "ArgMax": {11: RELABEL, 12: RELABEL, 13: RELABEL},
    "ArgMin": {11: RELABEL, 12: RELABEL, 13: RELABEL},
    # onnxruntime counts a ceil_mode window and its padding alike in all versions.
    "AveragePool": {10: RELABEL, 11: RELABEL, 19: RELABEL},
    "BatchNormalization": {9: adapters_image.batch_norm_spatial, 14: adapters_image.batch_norm_training, 15: RELABEL},
    "Cast": {9: RELABEL, 13: RELABEL, 19: RELABEL, 21: RELABEL},
    "CastLike": {19: RELABEL, 21: RELABEL},
    "Ceil": {13: RELABEL},
    "Clip": {11: adapters.clip_bounds, 12: RELABEL, 13: RELABEL},
    "Compress": {11: RELABEL},
    "Concat": {11: RELABEL, 13: RELABEL},
    "Constant": {9: RELABEL, 11: RELABEL, 12: RELABEL, 13: RELABEL, 19: RELABEL, 21: RELABEL},
    "ConstantOfShape": {20: RELABEL, 21: RELABEL},
    "Conv": {11: RELABEL},
    # The wording of auto_pad changed; onnxruntime pads alike in all versions.
    "ConvTranspose": {11: RELABEL},
    "CumSum": {14: RELABEL},
    "DFT": {20: adapters.dft_axis},
    "DepthToSpace": {11: RELABEL, 13: RELABEL},
    "DequantizeLinear": {13: RELABEL, 19: RELABEL, 21: RELABEL},
    "Div": {13: RELABEL, 14: RELABEL},
    "Dropout": {10: adapters.dropout_bool_mask, 12: adapters.dropout_ratio, 13: RELABEL},
    "Equal": {11: RELABEL, 13: RELABEL, 19: RELABEL},
    "Erf": {13: adapters.erf_of_floats},
    "Exp": {13: RELABEL},
    "Expand": {13: RELABEL},
    "Flatten": {9: RELABEL, 11: RELABEL, 13: RELABEL, 21: RELABEL},
    "Floor": {13: RELABEL},
    "GRU": {14: RELABEL},
    "Gather": {11: RELABEL, 13: RELABEL},
    "GatherElements": {13: RELABEL},
    "GatherND": {12: RELABEL, 13: RELABEL},
    "Gemm": {9: RELABEL, 11: RELABEL, 13: RELABEL},
    "Greater": {9: RELABEL, 13: RELABEL},
    "GreaterOrEqual": {16: RELABEL},
    "GridSample": {20: adapters_image.grid_sample_modes},
    "GroupNormalization": {21: adapters_image.group_norm_channels},
    "Hardmax": {11: RELABEL, 13: adapters.softmax_axis},
    "Identity": {13: RELABEL, 14: RELABEL, 16: RELABEL, 19: RELABEL, 21: RELABEL},
    "If": {11: RELABEL, 13: RELABEL, 16: RELABEL, 19: RELABEL, 21: RELABEL},
    "IsInf": {20: RELABEL},
    "IsNaN": {13: RELABEL, 20: RELABEL},
    "LRN": {13: RELABEL},
    "LSTM": {14: RELABEL},
    "LeakyRelu": {16: RELABEL},
    "Less": {9: RELABEL, 13: RELABEL},
    "LessOrEqual": {16: RELABEL},
    "Log": {13: RELABEL},
    "LogSoftmax": {11: RELABEL, 13: adapters.softmax_axis},
    "Loop": {11: RELABEL, 13: RELABEL, 16: RELABEL, 19: RELABEL, 21: RELABEL},
    "LpPool": {11: RELABEL, 18: RELABEL},
    "MatMul": {9: RELABEL, 13: RELABEL},
    "Max": {8: RELABEL, 12: RELABEL, 13: RELABEL},
    "MaxPool": {8: RELABEL, 10: RELABEL, 11: RELABEL, 12: RELABEL},
    "MaxUnpool": {11: RELABEL},
    "Mean": {8: RELABEL, 13: RELABEL},
    "MeanVarianceNormalization": {13: adapters_image.mean_variance_axes},
    "Min": {8: RELABEL, 12: RELABEL, 13: RELABEL},
    "Mod": {13: RELABEL},
    "Mul": {13: RELABEL, 14: RELABEL},
    "Neg": {13: RELABEL},
    "NegativeLogLikelihoodLoss": {13: RELABEL},
    "NonMaxSuppression": {11: RELABEL},
    "NonZero": {13: RELABEL},
    # 9 knows no negative indices by its text; onnxruntime counts them from the end in both versions.
    "OneHot": {11: RELABEL},
    "OptionalGetElement": {18: RELABEL},
    "OptionalHasElement": {18: RELABEL},
    "PRelu": {9: RELABEL, 16: RELABEL},
    "Pad": {11: adapters.pad_amounts, 13: RELABEL, 18: RELABEL, 19: RELABEL, 21: RELABEL},
    "Pow": {12: RELABEL, 13: RELABEL, 15: RELABEL},
    "QLinearMatMul": {21: RELABEL},
    # Before 13 there is one scale only, for which the axis means nothing.
    "QuantizeLinear": {13: RELABEL, 19: RELABEL, 21: RELABEL},
    "RNN": {14: RELABEL},
    "Reciprocal": {13: RELABEL},
    "ReduceL1": {11: RELABEL, 13: RELABEL, 18: reduce_axes},
    "ReduceL2": {11: RELABEL, 13: RELABEL, 18: reduce_axes},
    "ReduceLogSum": {11: RELABEL, 13: RELABEL, 18: reduce_axes},
    "ReduceLogSumExp": {11: RELABEL, 13: RELABEL, 18: reduce_axes},
    "ReduceMax": {11: RELABEL, 12: RELABEL, 13: RELABEL, 18: reduce_axes, 20: RELABEL},
    "ReduceMean": {11: RELABEL, 13: RELABEL, 18: reduce_axes},
    "ReduceMin": {11: RELABEL, 12: RELABEL, 13: RELABEL, 18: reduce_axes, 20: RELABEL},
    "ReduceProd": {11: RELABEL, 13: RELABEL, 18: reduce_axes},
    "ReduceSum": {11: RELABEL, 13: reduce_axes},
    "ReduceSumSquare": {11: RELABEL, 13: RELABEL, 18: reduce_axes},
    "Relu": {13: RELABEL, 14: RELABEL},
    "Reshape": {13: RELABEL, 14: RELABEL, 19: RELABEL, 21: RELABEL},
    "Resize": {
        11: adapters_image.resize_asymmetric,
        13: adapters_image.resize_optional_inputs,
        18: RELABEL,
        19: RELABEL,
    },
    "RoiAlign": {16: adapters_image.roi_align_coordinates},
    "Scan": {9: adapters.scan_batch, 11: RELABEL, 16: RELABEL, 19: RELABEL, 21: RELABEL},
    "Scatter": {11: adapters.scatter_renamed},
    "ScatterElements": {13: RELABEL, 16: RELABEL, 18: RELABEL},
    "ScatterND": {13: RELABEL, 16: RELABEL, 18: RELABEL},
    "Shape": {13: RELABEL, 15: RELABEL, 19: RELABEL, 21: RELABEL},
    "Sigmoid": {13: RELABEL},
    "Sign": {13: RELABEL},
    "Size": {13: RELABEL, 19: RELABEL, 21: RELABEL},
    "Slice": {10: adapters.slice_bounds, 11: RELABEL, 13: RELABEL},
    "Softmax": {11: RELABEL, 13: adapters.softmax_axis},
    "SoftmaxCrossEntropyLoss": {13: RELABEL},
    "SpaceToDepth": {13: RELABEL},
    "Split": {11: RELABEL, 13: adapters.attribute_to_input("split", 1), 18: adapters.split_count},
    "Sqrt": {13: RELABEL},
    "Squeeze": {11: RELABEL, 13: adapters.attribute_to_input("axes", 1), 21: RELABEL},
    "Sub": {13: RELABEL, 14: RELABEL},
    "Sum": {8: RELABEL, 13: RELABEL},
    "Tanh": {13: RELABEL},
    "Tile": {13: RELABEL},
    "TopK": {10: adapters.topk_k, 11: RELABEL},
    "Transpose": {13: RELABEL, 21: RELABEL},
    "Unsqueeze": {11: RELABEL, 13: adapters.attribute_to_input("axes", 1, empty=True), 21: RELABEL},
    "Upsample": {9: adapters_image.upsample_scales, 10: adapters_image.upsample_to_resize},
    "Where": {16: RELABEL},
}


def raise_opset(model: ir.Model, target: int = TARGET) -> None:
    """Raise a model to opset 21, in place; one that imports 21 or later is left alone.

    Each ai.onnx node of the graph and of its subgraphs is rewritten where its operator's form or meaning changed.
    Names of nodes and of values stay; new constants are initializers of the node's graph, marked as the
    linker marks its own, and are no parameters. Types and shapes of the values that are new are not set. The IR
    version becomes at least 10. Inputs stay, also those that IR 3 required for initializers: their content counts
    as fixed here, as onnxruntime has it.

    Args:
        model: its functions are inlined already.
        target: 21, the opset in which gradgen's rules are written.

    Raises:
        GradientError: some nodes cannot be raised; the message lists all of them, and the model is unchanged.
        ValueError: another target.
    """
    if target != TARGET:
        raise ValueError(f"models are raised to opset {TARGET}, not {target}")
    imports = model.opset_imports
    version = imports.get("", imports.get("ai.onnx"))
    if version is None or version >= target:
        return
    nodes = [node for node in model.graph.all_nodes() if node.domain == ""]
    overridable = (model.ir_version or 0) >= 4
    taken = _names(model)
    edits = [Edit(node, taken, overridable) for node in nodes]
    if any(_misses_types(edit, version) for edit in edits):
        _infer(model)
    problems = [problem for edit in edits if (problem := _problem(edit, version))]
    if problems:
        raise GradientError(
            f"{len(problems)} node(s) cannot be raised from opset {version} to {target}:\n  " + "\n  ".join(problems)
        )
    for edit in edits:
        _raise_node(edit, version)
    for graph in model.graphs():
        if graph is model.graph or "" in graph.opset_imports or "ai.onnx" in graph.opset_imports:
            graph.opset_imports.pop("ai.onnx", None)
            graph.opset_imports[""] = target
    model.ir_version = max(model.ir_version or 0, 10)


def _infer(model: ir.Model) -> None:
    """Infer types and shapes at the old opset."""
    take_types(model.graph, infer_types_of(to_proto(model)).graph, named=True)


def _names(model: ir.Model) -> set[str]:
    """Every name of a value or a node, subgraphs included."""
    names: set[str | None] = set()
    for graph in model.graphs():
        names.update(value.name for value in graph.inputs)
        names.update(graph.initializers)
        for node in graph:
            names.add(node.name)
            names.update(value.name for value in node.outputs)
    return {name for name in names if name}


def _changes(op: str, version: int) -> dict[int, Adapter | None]:
    """The changes of an operator after a version, oldest first."""
    return {since: CHANGES[op][since] for since in sorted(CHANGES.get(op, ())) if version < since <= TARGET}


def _misses_types(edit: Edit, version: int) -> bool:
    """Whether an adapter of the node asks for types that its inputs lack."""
    if not any(change and change.types for change in _changes(edit.node.op_type, version).values()):
        return False
    return edit.dtype(0) is None or edit.shape(0) is None


@functools.cache
def _schema(op: str, version: int) -> onnx.defs.OpSchema | None:
    """The operator's schema in an opset, or None where the opset has none or has given it up."""
    try:
        return onnx.defs.get_schema(op, max_inclusive_version=version)
    except onnx.defs.SchemaError:
        return None


def _problem(edit: Edit, version: int) -> str | None:
    """Why the node cannot be raised, as one line, or None."""
    op = edit.node.op_type
    schema, last = _schema(op, version), _schema(op, TARGET)
    since = schema.since_version if schema else version
    reason = None
    if schema is None or last is None:
        reason = f"opset {version} has no such operator: replace it, or import the domain that defines it"
    elif schema.deprecated and since == last.since_version:
        reason = f"it was removed from the standard in opset {since}: export the model again"
    elif version < OLDEST and last.since_version > since and _schema(op, OLDEST).since_version > since:  # type: ignore[union-attr]
        reason = f"its form is older than opset {OLDEST}: export the model at opset {OLDEST} or later"
    elif last.since_version > since and last.since_version not in CHANGES.get(op, ()):
        reason = f"it changed in opset {last.since_version}, for which there is no adapter: export at opset {TARGET}"
    else:
        refusals = (change.refuse(edit) for change in _changes(op, version).values() if change and change.refuse)
        reason = next((refusal for refusal in refusals if refusal), None)
    if reason is None:
        return None
    first = next((value.name for value in edit.node.outputs if value.name), "")
    return f"{op} (version {since}) node '{edit.node.name or ''}' that writes '{first}': {reason}"


def _raise_node(edit: Edit, version: int) -> None:
    """Apply the node's changes, oldest first; a node that becomes another operator goes on with that one's."""
    while changes := _changes(edit.node.op_type, version):
        version, change = next(iter(changes.items()))
        if change is not None:
            version = change.apply(edit) or version
