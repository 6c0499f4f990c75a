# Parts of random graphs with subgraphs, sequences and optionals: small bodies over values that are at hand.
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper
from random_graph_grower import SIZES, Grower, Part
from random_graph_values import Value

from gradgen.samples import RANGE

UNARY = ("Sin", "Tanh", "Sigmoid", "Neg", "Softplus", "Identity")
BINARY = ("Add", "Mul", "Sub", "Max")


def _info(name: str, shape: Sequence[int] = (), kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def _unary(grower: Grower, name: str) -> onnx.NodeProto:
    return helper.make_node(grower.choices.choice(UNARY), [name], [grower.fresh("s")])


def _binary(grower: Grower, one: str, other: str) -> onnx.NodeProto:
    return helper.make_node(grower.choices.choice(BINARY), [one, other], [grower.fresh("s")])


def _graph(
    grower: Grower, nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
) -> onnx.GraphProto:
    for node in nodes:
        node.name = grower.fresh("node")
    return helper.make_graph(nodes, grower.fresh("body"), inputs, outputs)


def _shape(grower: Grower, rank: int) -> list[int]:
    return [grower.choices.choice(SIZES[1:]) for _ in range(rank)]


def _if(grower: Grower) -> None:
    one = grower.into(grower.pick(), *RANGE)
    two = grower.supply(one.array.shape, *RANGE)
    if grower.chance(0.4):
        total = grower.emit("ReduceMean", [one], keepdims=0)[0]
        condition = grower.emit("Greater", [total, grower.constant(0.1, np.float32)])[0]
    else:
        condition = grower.constant(grower.chance(0.5), bool, dynamic=0.6)
    branches = []
    for _ in range(2):
        first = _unary(grower, grower.choices.choice([one.name, two.name]))
        second = _binary(grower, first.output[0], grower.choices.choice([one.name, two.name]))
        outputs = [_info(n.output[0], one.array.shape) for n in (first, second)]
        branches.append(_graph(grower, [first, second], [], outputs))
    grower.emit(
        "If", [condition], 2, captures=[one, two], pooled=True, then_branch=branches[0], else_branch=branches[1]
    )


def _scan(grower: Grower) -> None:
    size, steps = _shape(grower, 2)
    state, weight = grower.supply([size], *RANGE), grower.supply([size], -1.0, 1.0)
    axis = grower.choices.randint(0, 1)
    sequence = grower.supply([size, steps] if axis else [steps, size], *RANGE)
    before, element = grower.fresh("s"), grower.fresh("s")
    scaled = helper.make_node("Mul", [before, weight.name], [grower.fresh("s")])
    mixed = _binary(grower, scaled.output[0], element)
    after = helper.make_node("Tanh", [mixed.output[0]], [grower.fresh("s")])
    shown = _binary(grower, after.output[0], element)
    inputs = [_info(before, [size]), _info(element, [size])]
    outputs = [_info(after.output[0], [size]), _info(shown.output[0], [size])]
    body = _graph(grower, [scaled, mixed, after, shown], inputs, outputs)
    grower.emit(
        "Scan", [state, sequence], 2, captures=[weight], pooled=True, body=body, num_scan_inputs=1,
        scan_input_axes=[axis], scan_input_directions=[grower.choices.randint(0, 1)],
        scan_output_directions=[grower.choices.randint(0, 1)],
    )  # fmt: skip


def _loop(grower: Grower) -> None:
    shape = _shape(grower, grower.choices.randint(0, 2))
    state, weight = grower.supply(shape, *RANGE), grower.supply(shape, -1.0, 1.0)
    trips = grower.constant(grower.choices.randint(1, 4), dynamic=0.5)
    step, going, before = grower.fresh("s"), grower.fresh("s"), grower.fresh("s")
    scaled = helper.make_node("Mul", [before, weight.name], [grower.fresh("s")])
    after = _unary(grower, scaled.output[0])
    shown = _binary(grower, after.output[0], before)
    nodes = [scaled, after, shown]
    if grower.chance(0.4):  # stops early, as the data say
        limit = helper.make_node("Constant", [], [grower.fresh("s")], value_float=0.7)
        largest = helper.make_node("ReduceMax", [after.output[0]], [grower.fresh("s")], keepdims=0)
        goes_on = helper.make_node("Less", [largest.output[0], limit.output[0]], [grower.fresh("s")])
        nodes += [limit, largest, goes_on]
    else:
        goes_on = helper.make_node("Identity", [going], [grower.fresh("s")])
        nodes.append(goes_on)
    inputs = [_info(step, kind=TensorProto.INT64), _info(going, kind=TensorProto.BOOL), _info(before, shape)]
    outputs = [
        _info(goes_on.output[0], kind=TensorProto.BOOL),
        _info(after.output[0], shape),
        _info(shown.output[0], shape),
    ]
    body = _graph(grower, nodes, inputs, outputs)
    grower.emit("Loop", [trips, None, state], 2, captures=[weight], pooled=True, body=body)


def _joined(grower: Grower, nodes: list[onnx.NodeProto], sequence: str, given: list[Value]) -> None:
    """A sequence back as a tensor: one of its elements, or all of them."""
    if grower.chance(0.4):
        place = grower.constant(0, dynamic=0.3)
        last = helper.make_node("SequenceAt", [sequence, place.name], [grower.fresh("y")])
        given = [*given, place]
    else:
        axes = {"axis": 0} if grower.chance(0.5) else {"axis": 0, "new_axis": 1}
        last = helper.make_node("ConcatFromSequence", [sequence], [grower.fresh("y")], **axes)
    grower.emit_all([*nodes, last], given)


def _split(grower: Grower) -> None:
    value = grower.supply([grower.choices.randint(2, 4), *_shape(grower, 1)], *RANGE)
    sequence = grower.fresh("q")
    nodes = [helper.make_node("SplitToSequence", [value.name], [sequence], axis=0, keepdims=1)]
    _joined(grower, nodes, sequence, [value])


def _constructed(grower: Grower) -> tuple[list[onnx.NodeProto], str, list[Value]]:
    shape = _shape(grower, grower.choices.randint(1, 2))
    values = [grower.supply(shape, *RANGE) for _ in range(grower.choices.randint(2, 3))]
    sequence = grower.fresh("q")
    return [helper.make_node("SequenceConstruct", [v.name for v in values], [sequence])], sequence, values


def _construct(grower: Grower) -> None:
    nodes, sequence, values = _constructed(grower)
    _joined(grower, nodes, sequence, values)


def _changed(op: str) -> Part:
    def part(grower: Grower) -> None:
        nodes, sequence, values = _constructed(grower)
        result, place = grower.fresh("q"), grower.constant(grower.choices.choice((0, 1, -1)), dynamic=0.3)
        more = [grower.supply(values[0].array.shape, *RANGE)] if op == "SequenceInsert" else []
        inputs = [sequence, *(v.name for v in more), place.name]
        nodes.append(helper.make_node(op, inputs, [result]))
        _joined(grower, nodes, result, [*values, *more, place])

    return part


def _map(grower: Grower) -> None:
    nodes, sequence, values = _constructed(grower)
    shape = values[0].array.shape
    weight = grower.supply(shape, *RANGE)
    element, whole = grower.fresh("s"), grower.fresh("s")
    first = _unary(grower, element)
    second = _binary(grower, first.output[0], whole)
    inputs = [_info(element, shape), _info(whole, shape)]
    body = _graph(grower, [first, second], inputs, [_info(second.output[0], shape)])
    result = grower.fresh("q")
    nodes.append(helper.make_node("SequenceMap", [sequence, weight.name], [result], body=body))
    _joined(grower, nodes, result, [*values, weight])


def _optional(grower: Grower) -> None:
    value, held = grower.pick(), grower.fresh("o")
    nodes = [
        helper.make_node("Optional", [value.name], [held]),
        helper.make_node("OptionalGetElement", [held], [grower.fresh("y")]),
    ]
    grower.emit_all(nodes, [value])


CONTROL: dict[str, Part] = {
    "If": _if,
    "Scan": _scan,
    "Loop": _loop,
    "SplitToSequence": _split,
    "SequenceConstruct": _construct,
    "SequenceAt": _split,
    "ConcatFromSequence": _construct,
    "SequenceInsert": _changed("SequenceInsert"),
    "SequenceErase": _changed("SequenceErase"),
    "SequenceMap": _map,
    "Optional": _optional,
    "OptionalGetElement": _optional,
}
