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
from gradgen.runtime_graph import numbers, producer, sizes

ALIGNMENT, MIN_OUTPUTS = 8, 8  # of the batch, which becomes the channels of a block; of dY's channels
MOST_NUMBERS = 1 << 24  # of the products that are followed on numbers


class Cotangent(NamedTuple):
    """dW of a forward convolution of X whose cotangent is dY, its padding as it is needed, and its strides."""

    x: ir.Value
    dy: ir.Value
    dw: ir.Value
    pads: list[int]
    strides: list[int]


def kernel_cotangents(graph: ir.Graph) -> list[Cotangent]:
    """What a graph computes from patches, all sizes known, and each of dY's numbers read more than once."""
    return [match for node in graph if (match := _match(node)) is not None]


def _match(node: ir.Node) -> Cotangent | None:
    """What is computed from the patches that a convolution with a one-hot kernel writes out."""
    if node.op_type != "Conv" or node.domain or len(node.inputs) != 2:
        return None
    strides = list(node.attributes.get_ints("strides", (1, 1)))
    x, taps, patches = node.inputs[0], node.inputs[1], node.outputs[0]
    size, shape = sizes(x), sizes(taps)
    if x is None or taps is None or size is None or shape is None or len(size) != 4 or len(shape) != 4:
        return None
    if set(node.attributes.get_ints("dilations", (1, 1))) != {1} or x.dtype != ir.DataType.FLOAT:
        return None
    channels, each, constant = size[1], math.prod(shape[2:]), numbers(taps)
    if max(strides) < 2 or constant is None or shape[:2] != (channels * each, 1):
        return None
    if node.attributes.get_int("group", 1) != channels or not _is_one_hot(constant, channels):
        return None
    rows = _reader(patches, "Reshape")
    product = None if rows is None else _reader(rows.outputs[0], "MatMul")
    turned = None if product is None or rows is None else producer(product.inputs[1], "Transpose")
    places = None if turned is None else producer(turned.inputs[0], "Reshape")
    if rows is None or product is None or turned is None or places is None or product.inputs[0] is not rows.outputs[0]:
        return None
    dy, dims, result = places.inputs[0], sizes(places.inputs[0]), sizes(product.outputs[0])
    if (
        dy is None
        or dims is None
        or len(dims) != 4
        or dims[2:] != (sizes(patches) or ())[2:]
        or turned.attributes.get_ints("perm") != (0, 2, 1)
    ):
        return None
    if result != (size[0], channels * each, dims[1]) or sizes(places.outputs[0]) != (*dims[:2], math.prod(dims[2:])):
        return None
    if size[0] % ALIGNMENT or dims[1] < MIN_OUTPUTS or math.prod(dims[2:]) == 1 or math.prod(result[1:]) > MOST_NUMBERS:
        return None
    dw = _kernel_cotangent(product.outputs[0], (dims[1], channels, *shape[2:]))
    begin = list(node.attributes.get_ints("pads", (0, 0, 0, 0)))[:2]
    end = [shape[2 + k] + strides[k] * (dims[2 + k] - 1) - size[2 + k] - begin[k] for k in range(2)]
    if dw is None or min(end) < 0 or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return None
    return Cotangent(x, dy, dw, begin + end, strides)


def _kernel_cotangent(products: ir.Value, shape: tuple[int, ...]) -> ir.Value | None:
    """The sum over the batch of products of taps and places, ordered as a kernel; found by following numbers."""
    batch, rows, columns = sizes(products) or (0, 0, 0)
    code = np.arange(rows * columns).reshape(1, rows, columns)
    wanted = batch * code.reshape(*shape[1:], columns).transpose(3, 0, 1, 2)
    value, found = products, np.broadcast_to(code, (batch, rows, columns))
    while not np.array_equal(found, wanted):
        uses = list(value.uses())
        if len(uses) != 1 or value.is_graph_output():
            return None
        node, index = uses[0].node, uses[0].idx
        other = node.inputs[1 - index] if len(node.inputs) == 2 else None
        constant = numbers(other)
        if node.domain or node.graph is not products.producer().graph:  # type: ignore[union-attr]
            return None
        if node.op_type == "Transpose":
            found = found.transpose(node.attributes.get_ints("perm", tuple(range(found.ndim))[::-1]))
        elif node.op_type == "Reshape" and index == 0 and (size := sizes(node.outputs[0])) is not None:
            found = found.reshape(size)
        elif constant is None:
            return None
        elif node.op_type == "ReduceSum" and index == 0 and constant.tolist() == [0]:
            found = found.sum(0, keepdims=bool(node.attributes.get_int("keepdims", 1)))
        elif (
            node.op_type == "MatMul" and index == 1 and constant.ndim == 1 and found.ndim == 2 and (constant == 1).all()
        ):
            found = found.sum(0)
        else:
            return None
        value = node.outputs[0]
    return value


def write(graph: ir.Graph, names: Names, found: Cotangent) -> ir.Node:
    """Write the convolution in place of the patches and products; its weights are dY with batch and channels swapped."""
    before = found.dw.producer()
    assert before is not None

    def result(op_type: str, shape: list[int], *inputs: ir.Value, **attributes: list[int]) -> ir.Value:
        node = ir.Node("", op_type, inputs, ir.convenience.convert_attributes(attributes))
        value = node.outputs[0]
        value.name, value.type = names.unique(f"{found.dw.name}/{op_type}"), found.dw.type
        value.shape = ir.Shape(shape)
        graph.insert_before(before, node)
        return value

    def swapped(value: ir.Value) -> ir.Value:
        batch, channels, *rest = sizes(value) or ()
        return result("Transpose", [channels, batch, *rest], value, perm=[1, 0, 2, 3])

    channels, inputs, *kernel = sizes(found.dw) or ()
    x, dy = swapped(found.x), swapped(found.dy)
    convolved = result("Conv", [inputs, channels, *kernel], x, dy, pads=found.pads, dilations=found.strides)
    dw = swapped(convolved)
    dw.name, found.dw.name = found.dw.name, names.unique(f"{found.dw.name}/replaced")
    ir.convenience.replace_all_uses_with(found.dw, dw, replace_graph_outputs=True)
    node = convolved.producer()
    assert node is not None
    return node


def _is_one_hot(taps: np.ndarray, channels: int) -> bool:
    """Whether a kernel reads each tap of each channel once, one after the other."""
    each = math.prod(taps.shape[2:])
    return np.array_equal(taps.reshape(channels, each, each), np.broadcast_to(np.eye(each), (channels, each, each)))


def _reader(value: ir.Value, op_type: str) -> ir.Node | None:
    """The only reader of a value, if it is such an op."""
    uses = list(value.uses())
    if len(uses) != 1 or value.is_graph_output():
        return None
    node = uses[0].node
    return node if not node.domain and node.op_type == op_type else None
