"""What is not run: loops that would not end, and values that fit no memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx
import onnx.numpy_helper

from gradgen.engine.protos import all_graphs, all_nodes
from gradgen.errors import GradientError

MAX_STEPS = 10_000_000  # of a loop
MAX_ELEMENTS = 1 << 30  # of one value


def refuse_endless(model: onnx.ModelProto) -> None:
    """Refuse loops that are known to run more than `MAX_STEPS` times, with a GradientError: no engine can be stopped."""
    numbers = _numbers(model.graph)
    for node in all_nodes(model.graph):
        body = next((a.g for a in node.attribute if a.name == "body"), None)
        if node.op_type != "Loop" or node.domain or body is None or not _goes_on(body, numbers):
            continue
        count, started = (node.input[k] if k < len(node.input) else "" for k in range(2))
        steps = numbers.get(count, 0) if count else math.inf
        if steps > MAX_STEPS and numbers.get(started, not started):
            times = "without end" if steps == math.inf else f"{steps} times"
            raise GradientError(
                f"Loop '{node.name or node.output[0]}' runs {times}: verify runs the model, and takes loops of up to "
                f"{MAX_STEPS} steps"
            )


def _numbers(graph: onnx.GraphProto) -> dict[str, int]:
    """The constants of a graph and its subgraphs that are one integer or truth value."""
    kinds = (onnx.TensorProto.INT64, onnx.TensorProto.BOOL)
    stored = [(t.name, t) for inner in all_graphs(graph) for t in inner.initializer]
    found: dict[str, int] = {}
    for node in all_nodes(graph):
        for attribute in node.attribute if node.op_type == "Constant" and not node.domain else ():
            stored += [(node.output[0], attribute.t)] if attribute.name == "value" else []
            found |= {node.output[0]: attribute.i} if attribute.name == "value_int" else {}
    single = [(name, t) for name, t in stored if t.data_type in kinds and math.prod(t.dims) == 1]
    return found | {name: int(onnx.numpy_helper.to_array(t).item()) for name, t in single}


def _goes_on(body: onnx.GraphProto, numbers: Mapping[str, int]) -> bool:
    """Whether the body of a Loop hands on the condition that it is given, or says true each time."""
    given, said = body.input[1].name, body.output[0].name
    same = {given, *(n.output[0] for n in body.node if n.op_type == "Identity" and n.input[0] == given)}
    return said in same or bool(numbers.get(said))


def refuse_huge(model: onnx.ModelProto) -> None:
    """Refuse values known to have more than `MAX_ELEMENTS` elements, with a GradientError, before they take memory."""
    for info in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        size = math.prod(d.dim_value for d in info.type.tensor_type.shape.dim)
        if size > MAX_ELEMENTS:
            raise GradientError(
                f"'{info.name}' has {size} elements: verify runs the model in float64, and takes values of up to "
                f"{MAX_ELEMENTS} elements"
            )
