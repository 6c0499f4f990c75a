"""Frees a transposed backward pass of the cotangents that it was derived for, which stand for none in particular.

A rule is linear in its cotangent, so that its transpose does not depend on it; what still reads it are shapes, and guards
against poles, which ask whether it is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.compound import zeros
from gradgen.engine.contract import ir_shape
from gradgen.engine.link import Linker
from gradgen.engine.simplify import remove_unused
from gradgen.engine.subgraphs import operands
from gradgen.engine.values import Shape
from gradgen.rules import guards
from gradgen.rules.lang import same_shape
from gradgen.rules.library import expand_like


class Alike:
    """Values of the forward pass that have the shapes of values of the backward pass."""

    def __init__(self, graph: ir.Graph):
        self._by_shape: dict[Shape, ir.Value] = {}
        self.by_value: dict[ir.Value, ir.Value] = {}
        for value in [*graph.inputs, *(v for node in graph for v in node.outputs if v.name)]:
            shape = ir_shape(value)
            if shape is not None and None not in shape and isinstance(value.type, ir.TensorType):
                self._by_shape.setdefault(shape, value)

    def learn(self, pairs: Sequence[tuple[ir.Value, ir.Value]]) -> None:
        """The cotangent of a value has its type and shape."""
        for value, ct in pairs:
            self.by_value.setdefault(ct, value)

    def find(self, value: ir.Value) -> ir.Value | None:
        """A value of the forward pass with the shape of this one, or None."""
        known, shape = self.by_value.get(value), ir_shape(value)
        return self._by_shape.get(shape) if known is None and shape is not None else known

    def computed(self, graph: ir.Graph) -> list[ir.Value]:
        """What `find` may give and a node of the graph computes."""
        values = dict.fromkeys((*self._by_shape.values(), *self.by_value.values()))
        return [v for v in values if (node := v.producer()) is not None and node.graph is graph]


def release(graph: ir.Graph, free: Sequence[ir.Value], alike: Alike, linker: Linker) -> None:
    """Let nothing read the free cotangents any more.

    Shapes are read from the forward pass. A guard asks of a cotangent that is not zero: the division that it guards has
    a guard of its own in its transpose. Where something else reads a cotangent, zeros stand for that.
    """
    # A value that nothing reads so far may be the one whose shape is read below.
    outputs = list(graph.outputs)
    graph.outputs.extend(v for v in alike.computed(graph) if not v.is_graph_output())
    remove_unused(graph)
    depending = set(free)
    for node in graph:
        if any(v in depending for v in operands(node)):
            depending.update(node.outputs)
    _read_shapes_elsewhere(graph, depending, alike)
    _settle_guards(graph, depending, alike, linker)
    remove_unused(graph)
    first: dict[ir.Value, ir.Node] = {}
    for node in graph:
        for value in operands(node):
            if value in depending and value in alike.by_value:
                first.setdefault(value, node)
    for cotangent, node in first.items():
        cotangent.replace_all_uses_with(zeros(linker.anchored(node), alike.by_value[cotangent]))
    graph.outputs.clear()
    graph.outputs.extend(outputs)
    remove_unused(graph)


def _read_shapes_elsewhere(graph: ir.Graph, depending: set[ir.Value], alike: Alike) -> None:
    """Read the shapes of what depends on the free cotangents from values of the forward pass, where one has them."""
    for node in ir.traversal.RecursiveGraphIterator(graph):
        source = node.inputs[0] if not node.domain and node.op_type in ("Shape", "Size") else None
        if source is not None and source in depending and (other := alike.find(source)) is not None:
            node.replace_input_with(0, other)


def _settle_guards(graph: ir.Graph, depending: set[ir.Value], alike: Alike, linker: Linker) -> None:
    """Replace what follows from the answer that a cotangent is not zero."""
    known: dict[ir.Value, np.ndarray] = {}
    for node in graph:
        if node.domain or len(node.outputs) != 1 or not any(v in depending for v in node.inputs):
            continue
        contents = [known.get(v) if v is not None else None for v in node.inputs]
        zeros_at = [_is_zero(v, linker) for v in node.inputs]
        content = guards.answer(node.op_type, contents, zeros_at, node.outputs[0].dtype)
        passed = None if content is not None else guards.passed(node.op_type, contents)
        if content is not None:
            known[node.outputs[0]] = content
        elif passed is not None and (value := node.inputs[passed]) is not None:
            result = node.outputs[0]
            if not same_shape(ir_shape(value), ir_shape(result)):
                if (like := alike.find(result)) is None:
                    continue
                value = linker.anchored(node).library(expand_like, value, like)
            result.replace_all_uses_with(value)


def _is_zero(value: ir.Value | None, linker: Linker) -> bool:
    content: Any = None if value is None else linker.knowledge.constant(value)
    return content is not None and not np.any(content)
