"""Activity analysis: which nodes lie between the wrt and the outputs that are differentiated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import onnx_ir as ir

from gradgen.engine.flow import Flow, flows_of
from gradgen.engine.registry import Rules
from gradgen.engine.rows import Row
from gradgen.engine.subgraphs import captures
from gradgen.engine.values import is_float


@dataclass
class Activity:
    """The values that carry a derivative and the nodes that have to be reversed.

    Attributes:
        active: values that depend differentiably on a source.
        useful: values on which a target depends differentiably.
        path: nodes with an active operand and a useful output, in topological order.
        sources: the values whose cotangents are wanted.
    """

    active: set[ir.Value]
    useful: set[ir.Value]
    path: list[ir.Node]
    sources: set[ir.Value] = field(default_factory=set)

    def carries(self, value: ir.Value | None) -> bool:
        """Whether a cotangent of this value is wanted."""
        return value is not None and value in self.active

    def receives(self, value: ir.Value) -> bool:
        """Whether a cotangent of this value can arrive."""
        return value in self.active and value in self.useful


def edges(node: ir.Node, row: Row | None) -> Iterator[tuple[int | None, ir.Value, str]]:
    """The operands of a node with their dispositions; captured values have no index.

    An op without a row may depend on every input: `missing`.
    """
    for index, value in enumerate(node.inputs):
        if value is not None and is_float(value.dtype):
            yield index, value, "missing" if row is None else row.disposition(index)
    structural = row is not None and row.structural
    for value in captures(node) if node.attributes.data else ():
        if is_float(value.dtype):
            yield None, value, "rule" if structural else ("missing" if row is None or row.forms else "zero")


def analyse(
    nodes: Sequence[ir.Node],
    sources: Iterable[ir.Value],
    targets: Iterable[ir.Value],
    rules: Rules,
    stop: Iterable[ir.Value] = (),
) -> Activity:
    """Activity of a topologically ordered list of nodes; no derivative flows through the values of `stop`."""
    sources = set(sources)
    active = _active(nodes, sources, rules, frozenset(stop))
    useful, path = _useful(nodes, targets, active, rules)
    return Activity(active, useful, path, sources)


def analyse_body(
    flow: Flow,
    node: ir.Node,
    active: AbstractSet[ir.Value],
    useful: AbstractSet[ir.Value],
    rules: Rules,
) -> Activity:
    """Activity inside one of a node's subgraphs, over all iterations: a value that is carried from one to the next may
    become active, or useful, in a later one.

    Args:
        flow: what connects the subgraph with the node.
        node: the node.
        active, useful: the values outside.
        rules: where rows are looked up.
    """
    nodes, graph = list(flow.graph), flow.graph
    sources = flow.sources(node, active)
    while True:
        inside = _active(nodes, sources, rules)
        carried = {graph.inputs[j] for o, j in flow.repeats if graph.outputs[o] in inside}
        if carried <= sources:
            break
        sources |= carried
    targets = flow.targets(node, useful)
    while True:
        back, path = _useful(nodes, targets, inside, rules)
        carried = {graph.outputs[o] for o, j in flow.repeats if graph.inputs[j] in back and graph.outputs[o] in inside}
        if carried <= targets:
            return Activity(inside, back, path)
        targets |= carried


def _active(
    nodes: Sequence[ir.Node],
    sources: Iterable[ir.Value],
    rules: Rules,
    stopped: AbstractSet[ir.Value] = frozenset(),
) -> set[ir.Value]:
    active = set(sources)
    for node in nodes:
        active.update(v for v in _outputs_reached(node, active, rules) if v not in stopped)
    return active


def _outputs_reached(node: ir.Node, active: set[ir.Value], rules: Rules) -> list[ir.Value]:
    """The outputs that depend differentiably on active values."""
    row = rules.of(node)
    if not any(value in active and kind != "zero" for _, value, kind in edges(node, row)):
        return []
    outputs = [v for v in node.outputs if is_float(v.dtype)]
    flows = flows_of(node, row)
    if not flows:
        return outputs
    reached = {
        node.outputs[k]
        for flow in flows
        for inside in [analyse_body(flow, node, active, frozenset(), rules).active]
        for o, k in flow.leaves
        if flow.graph.outputs[o] in inside
    }
    reached.update(output for flow in flows for value, output in flow.around(node) if value in active)
    return [v for v in outputs if v in reached]


def _useful(
    nodes: Sequence[ir.Node], targets: Iterable[ir.Value], active: set[ir.Value], rules: Rules
) -> tuple[set[ir.Value], list[ir.Node]]:
    useful = set(targets)
    path = []
    for node in reversed(nodes):
        if not any(v in useful and v in active for v in node.outputs):
            continue
        operands = _operands_needed(node, active, useful, rules)
        if operands:
            useful.update(operands)
            path.append(node)
    return useful, path[::-1]


def _operands_needed(node: ir.Node, active: set[ir.Value], useful: set[ir.Value], rules: Rules) -> list[ir.Value]:
    """The active operands and captured values on which the useful outputs depend differentiably."""
    row = rules.of(node)
    operands = [value for _, value, kind in edges(node, row) if kind != "zero" and value in active]
    flows = flows_of(node, row)
    if not flows:
        return operands
    needed: set[ir.Value | None] = set()
    receiving = {v for v in node.outputs if v in useful and v in active}
    for flow in flows:
        inside = analyse_body(flow, node, active, receiving, rules)
        needed.update(node.inputs[i] for i, j in flow.enters if inside.receives(flow.graph.inputs[j]))
        needed.update(v for v in inside.useful if v in active)
        needed.update(value for value, output in flow.around(node) if output in receiving)
    return [v for v in operands if v in needed]
