"""The cotangent of a strided convolution's kernel as a convolution, which onnxruntime can compute in blocks.

The gradient model writes X's patches out and multiplies them by dY. The same is X convolved with dY, batch and channels
changing places, with the stride as the dilation: slower as it is, and faster with the channels in blocks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from gradgen.engine.names import Names

ALIGNMENT, MIN_OUTPUTS = 8, 8  # of the batch, which becomes the channels of a block; of dY's channels
MOST_NUMBERS = 1 << 24  # of the products that are followed on numbers
BLOCKED = "gradgen.blocked"  # marks a convolution that is worth to be blocked, however small


class _Found(NamedTuple):
    """X, dY, dW, and the forward convolution's padding, strides and kernel."""

    x: ir.Value
    dy: ir.Value
    dw: ir.Value
    pads: list[int]
    strides: list[int]
    kernel: tuple[int, ...]


def turn(graph: ir.Graph, names: Names) -> bool:
    """Write such convolutions into a graph in place of patches and products; whether there was any."""
    found = [match for node in graph if (match := _match(node)) is not None]
    for match in found:
        _write(graph, names, match)
    return bool(found)


def _match(node: ir.Node) -> _Found | None:
    """What is computed from the patches that a convolution with a one-hot kernel writes out."""
    strides = list(node.attributes.get_ints("strides", (1, 1)))
    if node.op_type != "Conv" or node.domain or len(node.inputs) != 2 or max(strides) < 2:
        return None
    x, taps, patches = node.inputs[0], node.inputs[1], node.outputs[0]
    sizes, shape = _sizes(x), _sizes(taps)
    if x is None or taps is None or sizes is None or shape is None or len(sizes) != 4 or len(shape) != 4:
        return None
    if set(node.attributes.get_ints("dilations", (1, 1))) != {1} or x.dtype != ir.DataType.FLOAT:
        return None
    channels, each = sizes[1], math.prod(shape[2:])
    if taps.const_value is None or taps.is_graph_input() or shape[:2] != (channels * each, 1):
        return None
    if node.attributes.get_int("group", 1) != channels or not _is_one_hot(taps.const_value.numpy(), channels):
        return None
    rows = _reader(patches, "Reshape")
    product = None if rows is None else _reader(rows.outputs[0], "MatMul")
    turned = None if product is None or rows is None else _producer(product.inputs[1], "Transpose")
    places = None if turned is None else _producer(turned.inputs[0], "Reshape")
    if rows is None or product is None or turned is None or places is None or product.inputs[0] is not rows.outputs[0]:
        return None
    dy, dims, result = places.inputs[0], _sizes(places.inputs[0]), _sizes(product.outputs[0])
    if dy is None or dims is None or len(dims) != 4 or turned.attributes.get_ints("perm") != (0, 2, 1):
        return None
    if result != (sizes[0], channels * each, dims[1]) or _sizes(places.outputs[0]) != (*dims[:2], math.prod(dims[2:])):
        return None
    if sizes[0] % ALIGNMENT or dims[1] < MIN_OUTPUTS or math.prod(result) > MOST_NUMBERS:
        return None
    dw = _kernel_cotangent(product.outputs[0], (dims[1], channels, *shape[2:]))
    begin = list(node.attributes.get_ints("pads", (0, 0, 0, 0)))[:2]
    end = [shape[2 + k] + strides[k] * (dims[2 + k] - 1) - sizes[2 + k] - begin[k] for k in range(2)]
    if dw is None or min(end) < 0 or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return None
    return _Found(x, dy, dw, begin + end, strides, dims[2:])


def _kernel_cotangent(products: ir.Value, shape: tuple[int, ...]) -> ir.Value | None:
    """The sum over the batch of products of taps and places, ordered as a kernel; found by following numbers."""
    batch, rows, columns = _sizes(products) or (0, 0, 0)
    code = np.arange(rows * columns).reshape(1, rows, columns)
    wanted = batch * code.reshape(*shape[1:], columns).transpose(3, 0, 1, 2)
    value, numbers = products, np.broadcast_to(code, (batch, rows, columns))
    while not np.array_equal(numbers, wanted):
        uses = list(value.uses())
        if len(uses) != 1 or value.is_graph_output():
            return None
        node, index = uses[0].node, uses[0].idx
        other = node.inputs[1 - index] if len(node.inputs) == 2 else None
        constant = None if other is None or other.is_graph_input() or other.const_value is None else other.const_value
        if node.domain or node.graph is not products.producer().graph:  # type: ignore[union-attr]
            return None
        if node.op_type == "Transpose":
            numbers = numbers.transpose(node.attributes.get_ints("perm", tuple(range(numbers.ndim))[::-1]))
        elif node.op_type == "Reshape" and index == 0 and (sizes := _sizes(node.outputs[0])) is not None:
            numbers = numbers.reshape(sizes)
        elif constant is None:
            return None
        elif node.op_type == "ReduceSum" and index == 0 and constant.numpy().tolist() == [0]:
            numbers = numbers.sum(0, keepdims=bool(node.attributes.get_int("keepdims", 1)))
        elif node.op_type == "MatMul" and index == 1 and constant.shape.rank() == 1 and (constant.numpy() == 1).all():
            numbers = numbers.sum(0)
        else:
            return None
        value = node.outputs[0]
    return value


def _write(graph: ir.Graph, names: Names, found: _Found) -> None:
    before = found.dw.producer()
    assert before is not None

    def write(op_type: str, *inputs: ir.Value, **attributes: list[int]) -> ir.Value:
        node = ir.Node("", op_type, inputs, ir.convenience.convert_attributes(attributes))
        node.outputs[0].name = names.unique(f"{found.dw.name}/{op_type}")
        graph.insert_before(before, node)
        return node.outputs[0]

    x, dy = [write("Transpose", value, perm=[1, 0, 2, 3]) for value in (found.x, found.dy)]
    y = write("Conv", x, dy, pads=found.pads, dilations=found.strides)
    sizes, batch = _sizes(found.dw) or (), _sizes(found.x) or ()
    for value, shape in ((x, (sizes[1], batch[0], *batch[2:])), (dy, (sizes[0], batch[0], *found.kernel))):
        value.type, value.shape = found.dw.type, ir.Shape(shape)
    y.type, y.shape = found.dw.type, ir.Shape([sizes[1], sizes[0], *sizes[2:]])
    producer = y.producer()
    assert producer is not None
    producer.metadata_props[BLOCKED] = "1"
    dw = write("Transpose", y, perm=[1, 0, 2, 3])
    dw.name, found.dw.name = found.dw.name, names.unique(f"{found.dw.name}/replaced")
    dw.type, dw.shape = found.dw.type, found.dw.shape
    ir.convenience.replace_all_uses_with(found.dw, dw, replace_graph_outputs=True)


def _is_one_hot(taps: np.ndarray, channels: int) -> bool:
    """Whether a kernel reads each tap of each channel once, one after the other."""
    each = math.prod(taps.shape[2:])
    return np.array_equal(taps.reshape(channels, each, each), np.broadcast_to(np.eye(each), (channels, each, each)))


def _sizes(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape of a value of which all sizes are known."""
    if value is None or value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return None
    return tuple(value.shape.numpy())


def _producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and not node.domain and node.op_type == op_type else None


def _reader(value: ir.Value, op_type: str) -> ir.Node | None:
    """The only reader of a value, if it is such an op."""
    uses = list(value.uses())
    if len(uses) != 1 or value.is_graph_output():
        return None
    node = uses[0].node
    return node if not node.domain and node.op_type == op_type else None
