"""Convolutions in onnxruntime's blocked layout of channels where weights are fed: constants stand in for these.

With channels in blocks convolutions take 0.6 of the time, depthwise ones a fifth, but onnxruntime blocks them only where
weights are constants. So constants stand in for the weights that are fed while it optimises the model. Afterwards nodes
that order the fed weights as it has ordered their stand-ins take the place of these. The numbers of the stand-ins all
differ, so an order is read off the result, and no layout is taken for granted; where anything is found that is not
understood, the model stays as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from gradgen.blocked_cotangents import kernel_cotangents, write
from gradgen.blocked_orders import StandIn, Step, apply, orders
from gradgen.engine.names import Names
from gradgen.engine.simplify import remove_unused
from gradgen.engine.surgery import remove_node
from gradgen.runtime_graph import fed, inferred, sizes

# Part of the key of what is kept on disk. To be raised with every change of what is blocked, and how, here and in the
# files beside this one: models that were kept are not made again else.
VERSION = 2
NCHWC = "com.microsoft.nchwc"
CONVOLUTIONS = ("Conv", "FusedConv")
# onnxruntime's passes that compute new weights from constant ones, and the operators that they read.
FUSIONS = {"Add": "ConvAddFusion", "BatchNormalization": "ConvBNFusion", "Mul": "ConvMulFusion"}
# The first opset in which Pad and Reshape take what they need as inputs.
MIN_OPSET = 11
# Ordering the weights anew in each call has to pay: each must be read at so many places of the batch's images, fewer
# in depthwise convolutions. A size that is not known counts as UNKNOWN_SIZE.
MIN_PLACES, MIN_PLACES_DEPTHWISE, UNKNOWN_SIZE = 512, 8, 4
# Channels of the result are filled up to a block: with fewer than these the plain convolution, or the transposed one,
# is faster.
MIN_OUTPUTS, MIN_OUTPUTS_FLIPPED = 8, 12
ALIGNMENT = 8  # onnxruntime blocks no other number of the operand's channels, unless it is smaller
# The numbers of stand-ins, as bits: float32 from one on that models hardly hold, up to 256 MB, of which there are a few
# copies while the model is optimised.
FIRST_CODE, MAX_CODES = 0x0123_4567, 1 << 26


@dataclass(frozen=True)
class _Kernel:
    """What is known of the weights of a convolution that is to be blocked."""

    shape: tuple[int, ...]
    flipped: bool
    depthwise: bool  # each channel has a kernel of its own

    @property
    def outputs(self) -> int:
        return self.shape[1] if self.flipped and not self.depthwise else self.shape[0]

    @property
    def inputs(self) -> int:
        return self.shape[0] if self.flipped else self.shape[1]

    def flip(self, weights: np.ndarray) -> np.ndarray:
        flipped = weights[..., ::-1, ::-1]
        return np.ascontiguousarray(flipped if self.depthwise else flipped.swapaxes(0, 1))


class _StandIns:
    """Puts constants into a graph, whose numbers tell what they stand in for."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph, self.names = graph, Names.of(graph)
        self.made: list[StandIn] = []
        self._next = FIRST_CODE

    def fits(self, kernel: _Kernel) -> bool:
        return self._next - FIRST_CODE + math.prod(kernel.shape) + kernel.outputs <= MAX_CODES

    def weights(self, value: ir.Value, kernel: _Kernel, gains_blocked: bool = False) -> ir.Value:
        """What stands in for the weights of a convolution."""
        code = self._stand_in(value, kernel.shape, kernel.flipped, gains_blocked)
        return _constant(self.graph, self.names, kernel.flip(code) if kernel.flipped else code)

    def bias(self, value: ir.Value, kernel: _Kernel) -> ir.Value:
        """What stands in for the bias of a convolution."""
        return _constant(self.graph, self.names, self._stand_in(value, (kernel.outputs,), False))

    def _stand_in(
        self, value: ir.Value, shape: tuple[int, ...], flipped: bool, gains_blocked: bool = False
    ) -> np.ndarray:
        start, self._next = self._next, self._next + math.prod(shape)
        code = np.arange(start, self._next, dtype=np.int32).view(np.float32).reshape(shape)
        self.made.append(StandIn(str(value.name), code, flipped, gains_blocked))
        if value.producer() is not None and not value.is_graph_output():
            self.graph.outputs.append(value)  # so that onnxruntime keeps it
        return code


class Prepared(NamedTuple):
    """A model to be optimised.

    Attributes:
        model: the model with stand-ins.
        stand_ins: what stands in for what.
        disabled: the passes of onnxruntime that would change a stand-in's numbers.
    """

    model: onnx.ModelProto
    stand_ins: list[StandIn]
    disabled: list[str]


def stand_in(proto: onnx.ModelProto) -> Prepared | None:
    """The model with constants in place of the convolution weights and biases that are fed, or computed from such.

    What is computed becomes an output besides. Transposed convolutions of stride 1 become convolutions, whose weights
    are flipped in space, and so do cotangents of kernels with a stride, whose weights are those of the result.

    Returns:
        None where no convolution gains by it.
    """
    opset = next((o.version for o in proto.opset_import if not o.domain), 0)
    if opset < MIN_OPSET or not any(node.op_type in ("Conv", "ConvTranspose") for node in proto.graph.node):
        return None
    model = inferred(proto)
    graph = model.graph
    stand_ins, changing, changed = _StandIns(graph), fed(graph), list[ir.Node]()
    for node in list(graph):
        kernel = _kernel(node)
        if kernel is None or not stand_ins.fits(kernel):
            continue
        weights, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
        assert weights is not None
        if weights in changing:
            weights = stand_ins.weights(weights, kernel)
        elif kernel.flipped:
            if weights.const_value is None:
                continue  # computed from constants: onnxruntime has it when it is too late
            weights = _constant(graph, stand_ins.names, kernel.flip(weights.const_value.numpy()))
        elif bias not in changing:
            continue  # onnxruntime blocks it
        if bias is not None and bias in changing:
            bias = stand_ins.bias(bias, kernel)
        if kernel.flipped:
            node = _flip(graph, node, kernel, changing)
        node.replace_input_with(1, weights)
        if bias is not None:
            node.replace_input_with(2, bias)
        changed.append(node)
    for found in kernel_cotangents(graph):
        channels, outputs, *places = sizes(found.dy) or ()
        kernel = _Kernel((outputs, channels, *places), False, False)
        if found.dy in changing and stand_ins.fits(kernel):
            node = write(graph, stand_ins.names, found)
            node.replace_input_with(1, stand_ins.weights(node.inputs[1], kernel, gains_blocked=True))  # type: ignore[arg-type]
            changed.append(node)
    if not changed:
        return None
    remove_unused(graph)  # onnxruntime runs what nothing reads
    readers = [use.node.op_type for node in changed for use in node.outputs[0].uses()]
    return Prepared(ir.to_proto(model), stand_ins.made, sorted({FUSIONS[r] for r in readers if r in FUSIONS}))


def _kernel(node: ir.Node) -> _Kernel | None:
    """The kernel of a node whose convolution gains from blocks, None for any other node."""
    if node.domain or node.op_type not in ("Conv", "ConvTranspose") or len(node.inputs) < 2:
        return None
    weights, result = node.inputs[1], node.outputs[0]
    shape, group = sizes(weights), node.attributes.get_int("group", 1)
    if weights is None or weights.dtype != ir.DataType.FLOAT or shape is None or result.shape is None:
        return None
    if len(shape) != 4 or len(result.shape) != 4 or not all(shape):
        return None
    kernel = _Kernel(shape, node.op_type == "ConvTranspose", group > 1)
    if kernel.depthwise and shape[:2] != (group, 1):
        return None
    channels = kernel.outputs if kernel.depthwise else kernel.inputs
    if channels % ALIGNMENT and (kernel.depthwise or kernel.flipped or channels > ALIGNMENT):
        return None
    if kernel.outputs < (MIN_OUTPUTS_FLIPPED if kernel.flipped else MIN_OUTPUTS) or math.prod(shape[2:]) == 1:
        return None
    if kernel.flipped and not _flips(node, kernel):
        return None
    places = math.prod(d if isinstance(d, int) else UNKNOWN_SIZE for d in (result.shape[0], *result.shape[2:]))
    return kernel if places >= (MIN_PLACES_DEPTHWISE if kernel.depthwise else MIN_PLACES) else None


def _flips(node: ir.Node, kernel: _Kernel) -> bool:
    """Whether a transposed convolution is a convolution with the kernel flipped."""
    ints = node.attributes.get_ints
    if "output_shape" in node.attributes or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return False
    if any(n != 1 for n in ints("strides", ())) or any(ints("output_padding", ())):
        return False
    return min(_flipped_pads(node, kernel)) >= 0


def _flipped_pads(node: ir.Node, kernel: _Kernel) -> list[int]:
    pads = node.attributes.get_ints("pads", (0, 0, 0, 0))
    dilations = node.attributes.get_ints("dilations", (1, 1))
    return [(kernel.shape[2 + i % 2] - 1) * dilations[i % 2] - p for i, p in enumerate(pads)]


def _flip(graph: ir.Graph, node: ir.Node, kernel: _Kernel, changing: set[ir.Value | None]) -> ir.Node:
    """Put the convolution that a transposed one is in its place, as yet with the same operands."""
    kept = [a for name, a in node.attributes.items() if name in ("group", "dilations")]
    pads = ir.AttrInt64s("pads", _flipped_pads(node, kernel))
    conv = ir.Node("", "Conv", node.inputs, [*kept, pads], name=node.name)
    old, new = node.outputs[0], conv.outputs[0]
    new.name, new.type, new.shape = old.name, old.type, old.shape
    graph.insert_before(node, conv)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    remove_node(node)
    if old in changing:
        changing.add(new)
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
    values = {v.name: v for v in (*graph.inputs, *graph.initializers.values())}
    values |= {v.name: v for node in graph for v in node.outputs}
    done: dict[tuple[str, str], ir.Value] = {}
    blocked = False
    for node in [n for n in graph if n.op_type in CONVOLUTIONS]:
        blocked = blocked or node.domain == NCHWC
        for slot, operand in enumerate(node.inputs[1:3], 1):
            found = None if operand is None else _numbers(operand)
            stood = None if found is None else missing.pop(_bits(found), None)
            if found is None or stood is None:
                continue
            order = next((o for o in orders(stood, found.shape) if np.array_equal(apply(o, stood.code), found)), None)
            if order is None or stood.value not in values or (stood.gains_blocked and node.domain != NCHWC):
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
            if value.uses() or value.is_graph_output():
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
