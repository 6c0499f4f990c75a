"""What gradgen does with onnx_ir that its public calls do not offer: the one place that knows its private parts.

pyproject.toml keeps onnx-ir below its next major version because of it.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import _cloner


def clone_graph(graph: ir.Graph, mapping: dict[ir.Value, ir.Value | None]) -> ir.Graph:
    """A copy of a graph that reads `mapping`'s values in place of the outer ones; the copies are added to it."""
    cloner = _cloner.Cloner(
        attr_map={}, value_map=mapping, metadata_props={}, resolve_ref_attrs=False, allow_outer_scope_values=True
    )
    return cloner.clone_graph(graph)


def insert_output(node: ir.Node, index: int) -> ir.Value:
    """One more output of a node, in front of the one at `index`."""
    node.resize_outputs(len(node.outputs) + 1)
    *others, new = node.outputs
    others.insert(index, new)
    node._outputs = tuple(others)  # onnx_ir appends outputs only
    for position, value in enumerate(others):
        value._index = position
    return new


def remove_node(node: ir.Node) -> None:
    """Remove a node whose results nobody reads from its graph, in constant time; it reads nothing from then on.

    onnx_ir's own `remove` looks at every output of the graph each time.
    """
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    assert is_unread(node), f"{node.name} is in use"
    for index, value in enumerate(node.inputs):
        if value is not None:
            value._remove_usage(node, index)
    node._inputs = (None,) * len(node.inputs)
    node.graph = None
    graph._nodes.remove(node)


def is_read(value: ir.Value) -> bool:
    """Whether a node reads a value or its graph gives it out, in constant time: `uses` lists every reader."""
    return bool(value._uses) or value.is_graph_output()


def is_unread(node: ir.Node) -> bool:
    """Whether nobody reads any of a node's results, as `is_read` says."""
    return not any([value._uses or value.is_graph_output() for value in node._outputs])


def count_uses(value: ir.Value) -> int:
    """How often nodes read a value, in constant time."""
    return len(value._uses)


def is_linked(node: ir.Node | None) -> bool:
    """Whether gradgen has added a node."""
    return node is not None and "gradgen.node" in node.metadata_props


def is_noted(value: ir.Value) -> bool:
    """Whether a value has `meta` entries, by a look that does not make it a store for them."""
    return bool(value._metadata)


class Outputs:
    """The places of a graph's outputs: to search them for each value takes long where they are many."""

    def __init__(self, graph: ir.Graph):
        self._graph = graph
        self._places: dict[ir.Value, list[int]] = {}
        for place, output in enumerate(graph.outputs):
            self._places.setdefault(output, []).append(place)

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Let a value be the output that another is."""
        self._places[new] = self._places.pop(old)
        for place in self._places[new]:
            self._graph.outputs[place] = new
