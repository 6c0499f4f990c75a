"""Graphs that a rule traces for the attribute of a node: the body of a Scan or Loop, the branches of an If."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from gradgen.engine.surgery import clone_graph
from gradgen.engine.values import Value

if TYPE_CHECKING:
    from gradgen.engine.builder import BodyNode


@dataclass(eq=False)
class Subgraph:
    """A traced graph.

    Attributes:
        graph: the graph; its outer values are placeholders, its dimension names those of the signature.
        captures: the placeholders with the values of the outer builder for which they stand.
        outputs: its results, which carry their types.
    """

    graph: ir.Graph
    captures: list[tuple[ir.Value, Value]]
    outputs: list[Value]


def make_graph(inputs: Sequence[Value], outputs: Sequence[Value], nodes: Sequence[BodyNode]) -> Subgraph:
    """The graph from inputs to outputs; what else its nodes read is captured.

    A graph's outputs are distinct values that its own nodes produce, so others are copied.
    """
    names = itertools.count()
    env: dict[int, ir.Value] = {}
    captures: list[tuple[ir.Value, Value]] = []

    def declare(value: Value, stem: str) -> ir.Value:
        kind = None if value.dtype is None else ir.TensorType(value.dtype)
        return ir.Value(name=f"{stem}_{next(names)}", type=kind, shape=value.ir_shape({}))

    def resolve(value: Value | None) -> ir.Value | None:
        if value is None:
            return None
        if id(value) not in env:
            env[id(value)] = declare(value, "outer")
            captures.append((env[id(value)], value))
        return env[id(value)]

    formals = [env.setdefault(id(v), declare(v, "input")) for v in inputs]
    made: list[ir.Node] = []
    for body in nodes:
        attributes = bind_captures(body, resolve)
        operands = [resolve(v) for v in body.inputs]
        results = [env.setdefault(id(v), declare(v, body.op_type)) for v in body.outputs]
        made.append(ir.Node(body.domain, body.op_type, operands, attributes, outputs=results))
    finals: list[ir.Value] = []
    for value in outputs:
        final = resolve(value)
        assert final is not None
        if final.producer() is None or final in finals:
            copy = declare(value, "output")
            made.append(ir.Node("", "Identity", [final], outputs=[copy]))
            final = copy
        finals.append(final)
    return Subgraph(ir.Graph(formals, finals, nodes=made, name="body"), captures, list(outputs))


def bind_captures(body: BodyNode, resolve: Callable[[Value | None], ir.Value | None]) -> dict[str, ir.Attr]:
    """A node's attributes with copies of its graphs that read what its captures stand for."""
    if not any(a.type == ir.AttributeType.GRAPH for a in body.attributes.values()):
        return body.attributes
    mapping = {outer: resolve(value) for outer, value in body.captures}
    return {
        name: ir.AttrGraph(name, clone_graph(attr.value, dict(mapping)))
        if attr.type == ir.AttributeType.GRAPH
        else attr
        for name, attr in body.attributes.items()
    }
