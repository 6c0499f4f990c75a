"""Flow: how values move between a node and its subgraphs, and which of them carry a derivative there."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import onnx_ir as ir

from gradgen.engine.registry import form_function
from gradgen.engine.rows import Row
from gradgen.engine.subgraphs import free_values, graphs

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Flow:
    """What one subgraph of a node reads from it and gives to it, by positions.

    Attributes:
        graph: the subgraph.
        enters: (input of the node, input of the graph).
        leaves: (output of the graph, output of the node).
        repeats: (output of the graph, input of the graph that it is in the next iteration).
        sliced: (input of the graph, axis) for inputs that are one slice of the node's input each.
        skips: whether there may be no iteration at all, so that values that repeat leave as they entered.
    """

    graph: ir.Graph
    enters: Pairs = ()
    leaves: Pairs = ()
    repeats: Pairs = ()
    sliced: Pairs = ()
    skips: bool = False

    def outer(self) -> list[ir.Value]:
        """The captured values."""
        return free_values(self.graph)

    def around(self, node: ir.Node) -> list[tuple[ir.Value | None, ir.Value]]:
        """Inputs of the node that may be its outputs."""
        entered, left = {j: i for i, j in self.enters}, dict(self.leaves)
        if not self.skips:
            return []
        return [(node.inputs[entered[j]], node.outputs[left[o]]) for o, j in self.repeats if o in left]

    def sources(self, node: ir.Node, active: AbstractSet[ir.Value]) -> set[ir.Value]:
        """The inputs and captured values of the graph that are active because of values outside."""
        found = {self.graph.inputs[j] for i, j in self.enters if node.inputs[i] in active}
        return found | {v for v in free_values(self.graph) if v in active}

    def targets(self, node: ir.Node, useful: AbstractSet[ir.Value]) -> set[ir.Value]:
        """The outputs of the graph that are useful because of values outside."""
        return {self.graph.outputs[o] for o, k in self.leaves if node.outputs[k] in useful}


def structural_form(row: Row | None):
    """The structural form of a row, or None."""
    if row is None or not row.structural:
        return None
    return next(f for f in row.forms if f.kind == "structural")


def flows_of(node: ir.Node, row: Row | None) -> list[Flow]:
    """The flows of a node whose rule is structural; none for any other."""
    form = structural_form(row)
    if form is None:
        return []
    function = form_function(form)
    if function.flows is not None:
        return function.flows(node)
    return [Flow(g, (), tuple((i, i) for i in range(len(node.outputs)))) for g in graphs(node)]
