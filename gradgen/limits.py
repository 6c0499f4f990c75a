"""What is not run for a check: loops that would not end, and values that fit no memory."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterable, Mapping

import numpy as np
import onnx
import onnx.numpy_helper

from gradgen.engine.protos import subgraphs
from gradgen.errors import GradientError

MAX_STEPS = 10_000_000  # of a loop, those of the loops around it counted in
MAX_ELEMENTS = 1 << 30  # of one value

Numbers = ChainMap[str, int | None]
"""The values in scope that are known to be one integer or truth value; None is a value of which more is not known."""


def refuse_costly(primal: onnx.ModelProto, derivative: onnx.ModelProto, point: Mapping[str, np.ndarray]) -> None:
    """Refuse to run two models for a check where no engine could be stopped or the memory would not do.

    Args:
        primal: the model, of whose loops the known ones are counted.
        derivative: its gradient or jvp model, of whose values the known sizes are looked at.
        point: what the primal is fed.

    Raises:
        GradientError: a loop is known to run more than `MAX_STEPS` times, or a value to have more than `MAX_ELEMENTS`
            elements.
    """
    _refuse_endless(primal, point)
    _refuse_huge(derivative)


def _refuse_endless(model: onnx.ModelProto, point: Mapping[str, np.ndarray]) -> None:
    fed = {name: int(array.item()) for name, array in point.items() if _is_number(array)}
    functions = {(f.domain, f.name): f for f in model.functions}
    _walk(model.graph.node, _of_graph(model.graph, ChainMap()).new_child(dict(fed)), functions, 1)


def _walk(nodes: Iterable[onnx.NodeProto], known: Numbers, functions: Mapping, times: float) -> None:
    """Look at the loops of a graph or function that runs `times`; what its nodes compute is added to `known`."""
    for node in nodes:
        standard = node.domain in ("", "ai.onnx")
        known.update(dict.fromkeys(node.output))
        if standard and node.op_type in ("Constant", "Identity"):
            known[node.output[0]] = _computed(node, known)
        function = functions.get((node.domain, node.op_type))
        if function is not None:
            given = {f: known.get(a) for f, a in zip(function.input, node.input, strict=False)}
            _walk(function.node, ChainMap(given), functions, times)
        bodies = [(body, _of_graph(body, known)) for body in subgraphs([node])]
        steps = _steps(node, bodies[0], known) if standard and node.op_type == "Loop" and bodies else 1
        if times * steps > MAX_STEPS:
            often = "without end" if steps == math.inf else f"{times * steps} times"
            raise GradientError(
                f"Loop '{node.name or node.output[0]}' runs {often}, and what runs it cannot be stopped: a check takes "
                f"loops of up to {MAX_STEPS} steps. Make the trip count an input and feed a smaller one, or check a model "
                "of the part that is in question (onnx.utils.extract_model)"
            )
        for body, inner in bodies:
            _walk(body.node, inner, functions, times * max(steps, 1))


def _of_graph(graph: onnx.GraphProto, outer: Numbers) -> Numbers:
    """What is known in a graph before any of its nodes: siblings may have values of one name, so each has its own."""
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer if math.prod(t.dims) == 1}
    own: dict[str, int | None] = {value.name: None for value in graph.input}
    own.update({t.name: None for t in graph.initializer})
    own.update({name: int(array.item()) for name, array in stored.items() if _is_number(array)})
    return outer.new_child(own)


def _is_number(array: np.ndarray) -> bool:
    return array.size == 1 and array.dtype.kind in "iub"


def _computed(node: onnx.NodeProto, known: Numbers) -> int | None:
    """The number that a Constant or an Identity gives, where it is known."""
    if node.op_type == "Identity":
        return known.get(node.input[0])
    for attribute in node.attribute:
        if attribute.ref_attr_name:  # of the function that it is in
            return None
        if attribute.name == "value_int":
            return attribute.i
        if attribute.name == "value_ints" and len(attribute.ints) == 1:
            return attribute.ints[0]
        if attribute.name == "value" and math.prod(attribute.t.dims) == 1:
            array = onnx.numpy_helper.to_array(attribute.t)
            return int(array.item()) if _is_number(array) else None
    return None


def _steps(node: onnx.NodeProto, body: tuple[onnx.GraphProto, Numbers], known: Numbers) -> float:
    """How often a Loop is known to run: 1 where that is not known or its condition may end it."""
    count, started = (node.input[k] if k < len(node.input) else "" for k in range(2))
    if (started and not known.get(started)) or not _goes_on(*body):
        return 1
    steps = known.get(count) if count else math.inf
    return 1 if steps is None else steps


def _goes_on(body: onnx.GraphProto, known: Numbers) -> bool:
    """Whether the body of a Loop hands on the condition that it is given, or says true each time."""
    held = known.new_child({body.input[1].name: 1})  # it is true when the body runs
    for node in body.node:
        held.update(dict.fromkeys(node.output))
        if node.domain in ("", "ai.onnx") and node.op_type in ("Constant", "Identity"):
            held[node.output[0]] = _computed(node, held)
    return bool(held.get(body.output[0].name))


def _refuse_huge(model: onnx.ModelProto) -> None:
    for info in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        size = math.prod(d.dim_value for d in info.type.tensor_type.shape.dim)
        if size > MAX_ELEMENTS:
            raise GradientError(
                f"'{info.name}' has {size} elements, and a check computes in float64: it takes values of up to "
                f"{MAX_ELEMENTS} elements. Feed smaller inputs, or check a model of the part that is in question "
                "(onnx.utils.extract_model)"
            )
