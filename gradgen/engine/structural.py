"""What a structural rule gets: a node with subgraphs, its cotangents, and a way to differentiate a graph.

FunctionProtos cannot capture outer values, so the rule of a node with subgraphs is a Python function
`fn(context) -> iterable of (value, cotangent)` that appends nodes of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from gradgen.engine.link import Linker
from gradgen.engine.registry import form_function
from gradgen.engine.simplify import remove_unused
from gradgen.engine.subgraphs import captures, clone_graph
from gradgen.engine.values import is_float
from gradgen.errors import GradientError


class StructuralContext:
    """One application of a structural rule.

    Attributes:
        node: the forward node.
        inputs, outputs: its operands and results.
        cotangents: one per output, None where nothing arrived.
        active: the captured values whose cotangents are wanted.
    """

    def __init__(self, step: Any, cotangents: Sequence[ir.Value | None], linker: Linker):
        self.step = step
        self.node: ir.Node = step.node
        self.inputs: list[ir.Value | None] = step.inputs
        self.outputs: list[ir.Value] = step.outputs
        self.cotangents = list(cotangents)
        self.linker = linker
        self.active = [v for v in captures(self.node) if v in step.active]

    def copy(self, attribute: str) -> ir.Graph:
        """A copy of a subgraph, which reads the same outer values."""
        graph = clone_graph(self.node.attributes[attribute].value, {})
        for value in all_values(graph):
            value.name = self.linker.names.unique(value.name or "value")
        for node in graph:
            node.name = self.linker.names.unique(node.name or node.op_type)
        return graph

    def differentiate(self, graph: ir.Graph, wrt: Sequence[ir.Value]) -> list[ir.Value | None]:
        """Append to a graph the backward pass of its outputs, seeded with this node's cotangents.

        Returns the cotangent of each wrt inside the graph, None where the outputs do not depend on it.
        """
        from gradgen.engine.derive import plan_graph
        from gradgen.engine.walk import Cotangents, reverse

        linker = self.linker.within(graph)
        targets = list(graph.outputs)
        steps, replaced = plan_graph(graph, wrt, targets, linker, self.step.origin)
        seeds = Cotangents(linker, {})
        for value, ct in zip(targets, self.cotangents, strict=True):
            if ct is not None and is_float(value.dtype):
                seeds.add(replaced.get(value, value), ct)
        found = reverse(steps, {v: t for v in seeds.values() if (t := seeds.total(v)) is not None}, linker)
        return [found.total(v) for v in wrt]

    def finish(self, graph: ir.Graph, results: Sequence[ir.Value | None], like: Sequence[ir.Value]) -> None:
        """Make `results` the outputs of a graph; zeros where None, of the type and shape of `like`."""
        from gradgen.rules.library import zeros_like

        linker = self.linker.within(graph)
        outputs = []
        for result, value in zip(results, like, strict=True):
            inner = linker.library(zeros_like, value) if result is None else result
            outputs.append(linker.node("Identity", [inner], value, f"{self.step.origin}/{value.name}/cotangent"))
        graph.outputs.clear()
        graph.outputs.extend(outputs)
        remove_unused(graph)
        repeated = [n for n in ir.traversal.RecursiveGraphIterator(graph) if linker.draws(n)]
        if repeated:
            raise GradientError(
                f"{self.step.origin} ({self.node.op_type}): its backward pass needs the value of the random node "
                f"'{repeated[0].name}' ({repeated[0].op_type}) inside a branch, and a random node is never repeated; "
                "move the draw out of the branch"
            )

    def emit(
        self, op_type: str, inputs: Sequence[ir.Value | None], graphs: dict[str, ir.Graph], like: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Append a node with subgraphs; its outputs have the types and shapes of `like`."""
        names = self.linker.names
        base = f"{self.step.origin}/{self.step.form.rule}"
        outputs = [ir.Value(name=names.unique(f"{base}/{v.name}"), type=v.type, shape=v.shape) for v in like]
        attributes = [ir.AttrGraph(k, g) for k, g in graphs.items()]
        node = ir.Node(
            "", op_type, inputs, attributes, outputs=outputs, name=names.unique(f"{base}/{op_type}"),
            metadata_props={"gradgen.rule": self.step.form.rule, "gradgen.node": self.step.origin},
        )  # fmt: skip
        self.linker.graph.append(node)
        return outputs


def all_values(graph: ir.Graph) -> list[ir.Value]:
    """Every value that a graph defines, nested graphs included."""
    found = [*graph.inputs, *graph.initializers.values()]
    for node in ir.traversal.RecursiveGraphIterator(graph):
        found.extend(v for v in node.outputs if v.name)
        for attr in node.attributes.values():
            if attr.type == ir.AttributeType.GRAPH and attr.value is not None:
                found.extend(attr.value.inputs)
    return found


def reverse_structural(
    step: Any, cotangents: Sequence[ir.Value | None], linker: Linker
) -> list[tuple[ir.Value, ir.Value]]:
    """Apply a structural rule; returns (value, contribution) pairs."""
    context = StructuralContext(step, cotangents, linker)
    return [(v, ct) for v, ct in form_function(step.form).fn(context) if ct is not None]
