"""What `compile` writes otherwise for onnxruntime: other standard nodes that compute the same there in less time.

They are more nodes than those that they replace, and some pay on this runtime alone, so the model that was given stays
as it is. docs/performance.md has the figures.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.names import Names
from gradgen.engine.simplify import remove_unused
from gradgen.engine.surgery import remove_node
from gradgen.rules.lang import same_dim
from gradgen.runtime_graph import fed, inferred, numbers, producer, sizes

# Part of the key of what is kept on disk. To be raised with every change of what is written, and how.
VERSION = 1
# The first opset in which Unsqueeze takes its axes as an input, and LogSoftmax normalises over one axis.
MIN_OPSET = 13
WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
INDICES = (ir.DataType.INT32, ir.DataType.INT64)
# A product reads the left factor as it lies, and copies the right one first, in panels of so many columns. Of few rows
# and large weights the copy of these takes long; up to so many rows it pays to put the weights on the left.
PANEL, MOST_ROWS, LEAST_WEIGHTS = 16, 64, 1 << 17
# What onnxruntime computes within the product that it follows.
ACTIVATIONS = ("Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh")
# From so many elements on, one flat axis is faster than an index for each element of the rows; ScatterND, which adds up
# whole rows, from so wide a row on.
LEAST_SCATTERED, LEAST_WIDTH = 1 << 16, 4


def rewritten(proto: onnx.ModelProto, alone: bool) -> onnx.ModelProto | None:
    """The model with these forms, None where none of them holds. Only the main graph is looked at.

    Args:
        alone: whether each node runs on one thread. ScatterND, which is far the fastest way to add up rows, loses
            some where several threads add to the same one.
    """
    opset = next((o.version for o in proto.opset_import if not o.domain), 0)
    stored = {t.name for t in proto.graph.initializer}
    if opset < MIN_OPSET or not any(_may_gain(node, stored) for node in proto.graph.node):
        return None
    model = inferred(proto)
    graph = model.graph
    place, changed = _Place(graph, Names.of(graph), next(iter(graph)), fed(graph), {}, alone), False
    for node in list(graph):
        form = None if node.domain else FORMS.get(node.op_type)
        changed = (form is not None and form(place.at(node))) or changed
    if not changed:
        return None
    remove_unused(graph)  # onnxruntime runs what nothing reads
    return ir.to_proto(model)


def _may_gain(node: onnx.NodeProto, stored: set[str]) -> bool:
    """Whether it is worth to infer shapes for a node."""
    return not node.domain and node.op_type in FORMS and not (node.op_type == "Gemm" and node.input[1] in stored)


@dataclass
class _Place:
    """A node, and what is written in front of it and in its place.

    Attributes:
        fed: the values that are no constants.
        shared: what was written for one node, and serves others.
        alone: whether nodes run on one thread.
    """

    graph: ir.Graph
    names: Names
    node: ir.Node
    fed: set[ir.Value | None]
    shared: dict[Any, ir.Value]
    alone: bool

    def at(self, node: ir.Node) -> _Place:
        """The place of another node."""
        return dataclasses.replace(self, node=node)

    def operand(self, index: int) -> ir.Value | None:
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def write(self, op_type: str, *inputs: ir.Value | np.ndarray | list[int], **attributes: Any) -> ir.Value:
        """The result of a new node; arrays and lists of integers among its inputs are constants."""
        values = [v if isinstance(v, ir.Value) else self._constant(np.asarray(v)) for v in inputs]
        node = ir.Node("", op_type, values, ir.convenience.convert_attributes(attributes))
        node.outputs[0].name = self.names.unique(f"{self.node.outputs[0].name}/{op_type}")
        self.graph.insert_before(self.node, node)
        return node.outputs[0]

    def put(self, *results: ir.Value | None) -> bool:
        """Let these be the node's results, under their names."""
        for old, new in zip(self.node.outputs, results, strict=False):
            if new is None or not old.name:
                continue
            new.name, old.name = old.name, self.names.unique(f"{old.name}/replaced")
            new.type, new.shape = old.type, old.shape
            if old in self.fed:
                self.fed.add(new)
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        remove_node(self.node)
        return True

    def _constant(self, array: np.ndarray) -> ir.Value:
        value = ir.Value(name=self.names.unique("form"), const_value=ir.tensor(array))
        value.dtype, value.shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
        self.graph.register_initializer(value)
        return value


def _attributes(node: ir.Node) -> dict[str, Any]:
    return {name: attribute.value for name, attribute in node.attributes.items()}


def _weights_left(place: _Place) -> bool:
    """A product of few rows with weights that are fed, rows·weightsᵀ + bias, is the turned weights·rowsᵀ + bias.

    An activation that alone reads the product is applied before it is turned.
    """
    node = place.node
    rows, weights, bias = place.operand(0), place.operand(1), place.operand(2)
    shape, columns = sizes(rows), sizes(weights)
    addend = () if bias is None else sizes(bias)
    if shape is None or columns is None or addend is None or rows is None or weights is None:
        return False
    if node.attributes.get_int("transA", 0) or not node.attributes.get_int("transB", 0):
        return False
    if weights not in place.fed or weights.dtype != ir.DataType.FLOAT or math.prod(columns) < LEAST_WEIGHTS:
        return False
    if not 0 < shape[0] <= MOST_ROWS or shape[0] % PANEL or (len(addend) == 2 and addend[0] > 1):
        return False
    readers = list(node.outputs[0].uses())
    follows = len(readers) == 1 and not node.outputs[0].is_graph_output() and _activates(readers[0].node, node)
    last = place.at(readers[0].node) if follows else place
    operands = [weights, rows]
    if bias is not None:
        operands.append(bias if math.prod(addend) == 1 else last.write("Reshape", bias, [-1, 1]))
    value = last.write("Gemm", *operands, **_attributes(node))
    if last is not place:
        value = last.write(last.node.op_type, value, **_attributes(last.node))
    last.put(last.write("Transpose", value, perm=[1, 0]))
    if last is not place:
        remove_node(node)
    return True


def _activates(reader: ir.Node, node: ir.Node) -> bool:
    return not reader.domain and reader.op_type in ACTIVATIONS and reader.graph is node.graph


def _short_loss(place: _Place) -> bool:
    """The cross entropy of a matrix of scores, without weights; onnxruntime makes twice as many nodes of it."""
    node = place.node
    scores, labels = place.operand(0), place.operand(1)
    if scores is None or labels is None or place.operand(2) is not None or scores.dtype not in WIDE:
        return False
    if scores.shape is None or len(scores.shape) != 2 or labels.dtype not in INDICES:
        return False
    log_prob = place.write("LogSoftmax", scores, axis=1)
    index, ignored = place.write("Unsqueeze", labels, [1]), None
    number, limits = node.attributes.get_int("ignore_index", None), np.iinfo(labels.dtype.numpy())
    if number is not None and limits.min <= number <= limits.max:
        label = np.asarray(number, limits.dtype)
        ignored = place.write("Equal", index, label)
        index = place.write("Where", ignored, np.zeros((), label.dtype), index)
    likelihood = place.write("GatherElements", log_prob, index, axis=1)
    kept = None
    if ignored is not None:
        likelihood = place.write("Where", ignored, np.zeros((), scores.dtype.numpy()), likelihood)
        kept = place.write("Cast", place.write("Not", ignored), to=int(scores.dtype))
    reduction = node.attributes.get_string("reduction", "mean")
    if reduction == "none":
        result = place.write("Squeeze", likelihood, [1])
    else:
        result = place.write("ReduceSum", likelihood, keepdims=0)
    if reduction == "mean":  # of nothing: not a number
        if kept is None:
            count = place.write("Cast", place.write("Size", labels), to=int(scores.dtype))
        else:
            count = place.write("ReduceSum", kept, keepdims=0)
        result = place.write("Div", result, count)
    return place.put(place.write("Neg", result), log_prob)


def _rows_scattered(place: _Place) -> bool:
    """Whole rows that are scattered: row by row on one thread, where none gets lost, else along one flat axis."""
    node = place.node
    data, indices, updates = node.inputs[:3]
    found = _column(indices)
    if found is None or data is None or updates is None or data.shape is None or data.dtype not in WIDE:
        return False
    column, width = found
    flat, size = len(data.shape) == 1, math.prod(sizes(indices) or (0,))
    if width < 1 or (flat and (not isinstance(data.shape[0], int) or data.shape[0] % width)):
        return False
    if not flat and _row_width(data) != width:
        return False
    if column.dtype != ir.DataType.INT64:
        return False
    if node.attributes.get_int("axis", 0) not in (0, -len(data.shape)):
        return False
    attributes = {name: value for name, value in _attributes(node).items() if name != "axis"}
    if place.alone and width >= LEAST_WIDTH:
        rows = [place.write("Reshape", value, [-1, width]) for value in (data, updates)]
        value = place.write("ScatterND", rows[0], place.write("Reshape", column, [-1, 1]), rows[1], **attributes)
        return place.put(place.write("Reshape", value, [-1]) if flat else value)
    if flat or size < LEAST_SCATTERED:
        return False
    if (column, width) not in place.shared:
        far = (1 << 62) // width  # what is out of range stays so, in place of wrapping around
        near = place.write("Clip", column, np.asarray(-far), np.asarray(far))
        first = place.write("Mul", near, np.asarray(width, np.int64))
        each = place.write("Add", first, np.arange(width, dtype=np.int64))
        place.shared[column, width] = place.write("Reshape", each, [-1])
    views = [place.write("Reshape", value, [-1]) for value in (data, updates)]
    value = place.write("ScatterElements", views[0], place.shared[column, width], views[1], axis=0, **attributes)
    return place.put(place.write("Reshape", value, [-1, width]))


def _column(indices: ir.Value | None) -> tuple[ir.Value, int] | None:
    """The column of row numbers, and the width of the rows, whose elements' indices are all read off it.

    Either the column is expanded to the width; or the indices are of one flat axis, the column times the width plus the
    element's place in the row.
    """
    expand, view = producer(indices, "Expand"), producer(indices, "Reshape")
    if expand is not None:
        column, shape = expand.inputs[0], ir_shape(expand.outputs[0])
        source = None if column is None else ir_shape(column)
        if column is None or source is None or len(source) != 2:
            return None
        if source[1] != 1 or shape is None or len(shape) != 2 or not same_dim(source[0], shape[0]):
            return _open_column(expand)
        return (column, shape[1]) if isinstance(shape[1], int) else None
    add = None if view is None else producer(view.inputs[0], "Add")
    mul = None if add is None else producer(add.inputs[0], "Mul")
    if add is None or mul is None or indices is None or indices.shape is None or len(indices.shape) != 1:
        return None
    column, factor, places = mul.inputs[0], numbers(mul.inputs[1]), numbers(add.inputs[1])
    shape = None if column is None else ir_shape(column)
    if column is None or shape is None or len(shape) != 2 or shape[1] != 1 or factor is None or places is None:
        return None
    width = int(factor.reshape(())) if factor.size == 1 else 0
    return (column, width) if places.ndim == 1 and np.array_equal(places, np.arange(width)) else None


def _open_column(expand: ir.Node) -> tuple[ir.Value, int] | None:
    """As gradients of Gather have it where the number of rows is open: counted, for the column and for what it becomes."""
    column, view, shape = (
        expand.inputs[0],
        producer(expand.inputs[0], "Reshape"),
        producer(expand.inputs[1], "Concat"),
    )
    width = None if shape is None or len(shape.inputs) != 2 else numbers(shape.inputs[1])
    if column is None or view is None or shape is None or width is None or width.size != 1:
        return None
    count, target = shape.inputs[0], producer(view.inputs[1], "Concat")
    if target is None:
        rows = producer(count, "Reshape")
        size = None if rows is None else producer(rows.inputs[0], "Size")
        found, wanted = numbers(view.inputs[1]), [-1, 1]
        if size is None or size.inputs[0] is not view.inputs[0]:
            return None
    else:
        found, wanted = numbers(target.inputs[-1]), [1]
        if len(target.inputs) != 2 or target.inputs[0] is not count:
            return None
    return (column, int(width.reshape(()))) if found is not None and found.tolist() == wanted else None


def _row_width(table: ir.Value) -> int | None:
    """The size of the second axis of a matrix, where it is known, or a constant that it is expanded to."""
    shape, expand = ir_shape(table) or (), producer(table, "Expand")
    if len(shape) == 2 and isinstance(shape[1], int):
        return shape[1]
    target = None if expand is None else producer(expand.inputs[1], "Concat")
    last = None if target is None or len(shape) != 2 else numbers(target.inputs[-1])
    return int(last.reshape(())) if last is not None and last.size == 1 else None


FORMS = {"Gemm": _weights_left, "ScatterElements": _rows_scattered, "SoftmaxCrossEntropyLoss": _short_loss}
