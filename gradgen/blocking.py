"""Convolutions in onnxruntime's blocked layout of channels where weights are fed: constants stand in for these.

With channels in blocks convolutions take 0.6 of the time, those of each channel alone a fifth, but onnxruntime blocks
them only where weights are constants. So constants stand in for the weights that are fed while it optimises the model.
Afterwards nodes that order the fed weights as it has ordered their stand-ins take the place of these. No number of a
stand-in is found twice, so its order is read off the result, and no layout is taken for granted; where anything is
found that is not understood, the model stays as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from onnx.shape_inference import InferenceError

from gradgen.blocked_orders import Step, apply, orders
from gradgen.engine.names import Names
from gradgen.engine.propagation import propagated

# Part of the key of what is kept on disk: models that another version has made are not taken for this one's.
VERSION = 1
NCHWC = "com.microsoft.nchwc"
# onnxruntime's passes that compute new weights from constant ones.
FUSIONS = ("ConvAddFusion", "ConvBNFusion", "ConvMulFusion")
# Ordering the weights anew in each call has to pay: each must be read at so many places of the batch's images, fewer
# where each channel has a kernel of its own. A size that is not known counts as UNKNOWN.
PLACES, PLACES_ALONE, UNKNOWN = 512, 8, 4
# The elements of the largest kernel: what stands in for it is held twice while the model is optimised.
LARGEST = 1 << 24
# Channels of the result are filled up to a block: with fewer than these the plain convolution, or the transposed one,
# is faster.
FEWEST, FEWEST_TURNED = 8, 12
ALIGNMENT = 8  # onnxruntime blocks no other number of the operand's channels, unless it is smaller
# The numbers of stand-ins, as bits: finite float32 from the smallest normal one on, each once.
FIRST, END = 0x0080_0000, 0x7F80_0000


@dataclass(frozen=True)
class StandIn:
    """A constant that stands in for a weight or a bias.

    Attributes:
        value: the name of what it stands in for.
        code: its numbers, in the order of `value`.
        turned: whether `value` is the kernel of a transposed convolution, and the constant that of the convolution that
            computes the same: turned around in space, the channels of operand and result exchanged.
    """

    value: str
    code: np.ndarray
    turned: bool = False

    @property
    def first(self) -> int:
        """The bits of the constant's first number, which is the first in each order."""
        return int((self.code[0, 0, -1, -1] if self.turned else self.code.flat[0]).view(np.int32))


@dataclass(frozen=True)
class _Kernel:
    """What is known of the weights of a convolution that is to be blocked."""

    shape: tuple[int, ...]
    turned: bool
    alone: bool  # each channel has a kernel of its own

    @property
    def outputs(self) -> int:
        return self.shape[1] if self.turned and not self.alone else self.shape[0]

    @property
    def inputs(self) -> int:
        return self.shape[0] if self.turned else self.shape[1]

    def turn(self, weights: np.ndarray) -> np.ndarray:
        turned = weights[..., ::-1, ::-1]
        return np.ascontiguousarray(turned if self.alone else turned.swapaxes(0, 1))


class _StandIns:
    """Puts constants into a graph, whose numbers tell what they stand in for."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph, self.names = graph, Names.of(graph)
        self.made: list[StandIn] = []
        self._next = FIRST

    def fits(self, kernel: _Kernel) -> bool:
        return self._next + math.prod(kernel.shape) + kernel.outputs < END

    def weights(self, value: ir.Value, kernel: _Kernel) -> ir.Value:
        """What stands in for the weights of a convolution."""
        code = self._stand_in(value, kernel.shape, kernel.turned)
        return _constant(self.graph, self.names, kernel.turn(code) if kernel.turned else code)

    def bias(self, value: ir.Value, kernel: _Kernel) -> ir.Value:
        """What stands in for the bias of a convolution."""
        return _constant(self.graph, self.names, self._stand_in(value, (kernel.outputs,), False))

    def _stand_in(self, value: ir.Value, shape: tuple[int, ...], turned: bool) -> np.ndarray:
        start, self._next = self._next, self._next + math.prod(shape)
        code = np.arange(start, self._next, dtype=np.int32).view(np.float32).reshape(shape)
        self.made.append(StandIn(str(value.name), code, turned))
        if value.producer() is not None and not value.is_graph_output():
            self.graph.outputs.append(value)  # so that onnxruntime keeps it
        return code


def stand_in(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, list[StandIn]] | None:
    """The model with constants in place of the convolution weights and biases that are fed, or computed from such.

    What is computed becomes an output besides. Transposed convolutions of stride 1 become convolutions, whose weights
    are turned around.

    Returns:
        The model and what stands in for what; None where no convolution gains by it.
    """
    if not any(node.op_type in ("Conv", "ConvTranspose") for node in proto.graph.node):
        return None
    try:
        model = ir.from_proto(propagated(proto))
    except (InferenceError, TypeError, ValueError):  # onnxruntime will say what is wrong with the model
        return None
    graph, changed = model.graph, False
    stand_ins, fed = _StandIns(graph), _fed(graph)
    for node in list(graph):
        kernel, weights = _kernel(node), node.inputs[1] if len(node.inputs) > 1 else None
        if kernel is None or weights is None or not stand_ins.fits(kernel):
            continue
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if weights in fed:
            weights = stand_ins.weights(weights, kernel)
        elif kernel.turned and weights.const_value is not None:
            weights = _constant(graph, stand_ins.names, kernel.turn(weights.const_value.numpy()))
        else:
            continue  # onnxruntime blocks it, or computes it once
        if bias is not None and bias in fed:
            bias = stand_ins.bias(bias, kernel)
        if kernel.turned:
            node = _turn(graph, node, kernel)
        node.replace_input_with(1, weights)
        if bias is not None:
            node.replace_input_with(2, bias)
        changed = True
    return (ir.to_proto(model), stand_ins.made) if changed else None


def _fed(graph: ir.Graph) -> set[ir.Value | None]:
    """The values that something fed decides on."""
    fed: set[ir.Value | None] = {value for value in graph.inputs if not value.is_initializer()}
    for node in graph:
        inner = any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values())
        if inner or not fed.isdisjoint(node.inputs):
            fed.update(node.outputs)
    return fed - {None}


def _kernel(node: ir.Node) -> _Kernel | None:
    """The kernel of a node whose convolution gains from blocks, None for any other node."""
    if node.domain or node.op_type not in ("Conv", "ConvTranspose"):
        return None
    weights, result = node.inputs[1], node.outputs[0]
    if weights is None or weights.dtype != ir.DataType.FLOAT or weights.shape is None or result.shape is None:
        return None
    if len(weights.shape) != 4 or len(result.shape) != 4 or not all(isinstance(d, int) for d in weights.shape):
        return None
    shape, group = tuple(weights.shape.numpy()), node.attributes.get_int("group", 1)
    kernel = _Kernel(shape, node.op_type == "ConvTranspose", group > 1)
    if kernel.alone and shape[:2] != (group, 1):
        return None
    channels = kernel.outputs if kernel.alone else kernel.inputs
    if channels % ALIGNMENT and (kernel.alone or kernel.turned or channels > ALIGNMENT):
        return None
    if kernel.outputs < (FEWEST_TURNED if kernel.turned else FEWEST) or math.prod(shape[2:]) == 1:
        return None
    if math.prod(shape) > LARGEST:
        return None
    if kernel.turned and not _turns(node, kernel):
        return None
    places = math.prod(d if isinstance(d, int) else UNKNOWN for d in (result.shape[0], *result.shape[2:]))
    return kernel if places >= (PLACES_ALONE if kernel.alone else PLACES) else None


def _turns(node: ir.Node, kernel: _Kernel) -> bool:
    """Whether a transposed convolution is a convolution with the kernel turned around."""
    ints = node.attributes.get_ints
    if "output_shape" in node.attributes or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return False
    if any(n != 1 for n in ints("strides", ())) or any(ints("output_padding", ())):
        return False
    return min(_turned_pads(node, kernel)) >= 0


def _turned_pads(node: ir.Node, kernel: _Kernel) -> list[int]:
    pads = node.attributes.get_ints("pads", (0, 0, 0, 0))
    dilations = node.attributes.get_ints("dilations", (1, 1))
    return [(kernel.shape[2 + i % 2] - 1) * dilations[i % 2] - p for i, p in enumerate(pads)]


def _turn(graph: ir.Graph, node: ir.Node, kernel: _Kernel) -> ir.Node:
    """Put the convolution that a transposed one is in its place, as yet with the same operands."""
    kept = [a for name, a in node.attributes.items() if name in ("group", "dilations")]
    pads = ir.AttrInt64s("pads", _turned_pads(node, kernel))
    conv = ir.Node("", "Conv", node.inputs, [*kept, pads], name=node.name)
    old, new = node.outputs[0], conv.outputs[0]
    new.name, new.type, new.shape = old.name, old.type, old.shape
    graph.insert_before(node, conv)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return conv


def restore(optimised: onnx.ModelProto, stand_ins: list[StandIn], outputs: int) -> onnx.ModelProto | None:
    """What onnxruntime has made of a model with stand-ins, with what they stand in for in the order that it gave them.

    Args:
        outputs: how many outputs the model has of its own.

    Returns:
        The model; None where it has no convolution in blocks, or where something has become of a stand-in that is not
        understood.
    """
    model = ir.from_proto(optimised)
    graph, missing = model.graph, {s.first: s for s in stand_ins}
    names = Names.of(graph)
    del graph.outputs[outputs:]
    values = {v.name: v for v in graph.inputs} | {v.name: v for node in graph for v in node.outputs}
    done: dict[tuple[str, str], ir.Value] = {}
    blocked = False
    for node in [n for n in graph if n.op_type in ("Conv", "FusedConv")]:
        blocked = blocked or node.domain == NCHWC
        for slot, operand in enumerate(node.inputs[1:3], 1):
            found = None if operand is None else _numbers(operand)
            stood = None if found is None else missing.pop(_bits(found), None)
            if found is None or stood is None:
                continue
            order = next((o for o in orders(stood, found.shape) if np.array_equal(apply(o, stood.code), found)), None)
            if order is None:
                return None
            key = (stood.value, str(order))  # several nodes may have the same weights
            if key not in done:
                done[key] = _ordered(graph, names, node, values[stood.value], order)
            node.replace_input_with(slot, done[key])
    if not blocked or missing:
        return None
    firsts = {s.first for s in stand_ins}
    for name, value in list(graph.initializers.items()):
        numbers = _numbers(value)
        if numbers is not None and _bits(numbers) in firsts:
            if value.uses():
                return None
            del graph.initializers[name]
    graph.sort()
    return ir.to_proto(model)


def _numbers(value: ir.Value) -> np.ndarray | None:
    """The elements of a constant of float32 that has any."""
    if value.const_value is None or value.const_value.dtype != ir.DataType.FLOAT or not value.const_value.size:
        return None
    return np.ascontiguousarray(value.const_value.numpy())


def _bits(numbers: np.ndarray) -> int:
    return int(numbers.flat[0].view(np.int32))


def _ordered(graph: ir.Graph, names: Names, before: ir.Node, value: ir.Value, order: list[Step]) -> ir.Value:
    """The value in another order, by nodes in front of `before`."""
    base = f"{value.name}/blocked"
    for op_type, argument in order:
        if op_type == "Transpose":
            inputs, attributes = [value], [ir.AttrInt64s("perm", argument)]
        else:
            inputs = [value, _constant(graph, names, np.asarray(argument, np.int64))]
            attributes = [ir.AttrInt64("axis", 1)] if op_type == "Gather" else []
        node = ir.Node("", op_type, inputs, attributes)
        node.outputs[0].name = names.unique(base)
        graph.insert_before(before, node)
        value = node.outputs[0]
    return value


def _constant(graph: ir.Graph, names: Names, array: np.ndarray) -> ir.Value:
    name = names.unique("stand_in" if array.dtype == np.float32 else "order")
    value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
    value.dtype, value.shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
    graph.initializers[name] = value
    return value
