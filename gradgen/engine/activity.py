"""Activity analysis: which nodes lie between the wrt and the outputs that are differentiated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from gradgen.engine.registry import Registry
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
    """

    active: set[ir.Value]
    useful: set[ir.Value]
    path: list[ir.Node]

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
    structural = row is not None and any(f.kind == "structural" for f in row.forms)
    for value in captures(node):
        if is_float(value.dtype):
            yield None, value, "rule" if structural else ("missing" if row is None or row.forms else "zero")


def analyse(
    nodes: Sequence[ir.Node],
    sources: Iterable[ir.Value],
    targets: Iterable[ir.Value],
    registry: Registry,
    opset: int,
    stop: Iterable[ir.Value] = (),
) -> Activity:
    """Activity of a topologically ordered list of nodes; no derivative flows through the values of `stop`."""
    active, stopped = set(sources), set(stop)
    rows = [registry.find(n.domain, n.op_type, opset) for n in nodes]
    for node, row in zip(nodes, rows, strict=True):
        if any(value in active and kind != "zero" for _, value, kind in edges(node, row)):
            active.update(v for v in node.outputs if is_float(v.dtype) and v not in stopped)
    useful = set(targets)
    path = []
    for node, row in zip(reversed(nodes), reversed(rows), strict=True):
        if not any(v in useful and v in active for v in node.outputs):
            continue
        operands = [value for _, value, kind in edges(node, row) if kind != "zero" and value in active]
        if operands:
            useful.update(operands)
            path.append(node)
    return Activity(active, useful, path[::-1])
