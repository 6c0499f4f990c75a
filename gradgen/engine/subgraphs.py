"""Subgraphs: the outer values that a node's graphs read, and copies of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from gradgen.engine.names import Names

_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def graphs(node: ir.Node) -> list[ir.Graph]:
    """The graphs that a node holds in its attributes."""
    attributes = node.attributes.data  # a plain dictionary
    return graphs_of(attributes) if attributes else []


def graphs_of(attributes: Mapping[str, ir.Attr]) -> list[ir.Graph]:
    """The graphs that attributes hold."""
    found: list[ir.Graph] = []
    for attr in attributes.values():
        kind = attr.type
        if kind == _GRAPH and attr.value is not None:
            found.append(attr.value)
        elif kind == _GRAPHS and attr.value is not None:
            found.extend(attr.value)
    return found


def every_node(graph: ir.Graph) -> list[ir.Node]:
    """Every node of a graph, each before those of its own graphs."""
    found: list[ir.Node] = []
    for node in graph:
        found.append(node)
        if attributes := node.attributes.data:
            for inner in graphs_of(attributes):
                found.extend(every_node(inner))
    return found


def captures(node: ir.Node) -> list[ir.Value]:
    """The values from outside that a node's graphs read, nested ones included, in order of first use."""
    found: dict[ir.Value, None] = {}
    for graph in graphs(node):
        found.update(dict.fromkeys(free_values(graph)))
    return list(found)


def operands(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads, its subgraphs included; a value may come more than once."""
    yield from (v for v in node.inputs if v is not None)
    yield from captures(node)


def free_values(graph: ir.Graph) -> list[ir.Value]:
    """The values that a graph reads and does not define."""
    defined = {*graph.inputs, *graph.initializers.values()}
    found: dict[ir.Value, None] = {}
    for node in graph:
        for value in operands(node):
            if value not in defined:
                found[value] = None
        defined.update(node.outputs)
    found.update((v, None) for v in graph.outputs if v not in defined)
    return list(found)


def fit(graph: ir.Graph, names: Names, base: str, dimensions: Mapping[str, str], metadata: Mapping[str, str]) -> None:
    """Fit a graph copied from a rule into a model: unique names, the model's names of dimensions, metadata."""
    values = [*graph.inputs, *graph.initializers.values()]
    for node in graph:
        node.name = names.unique(f"{base}/{node.op_type}")
        node.metadata_props.update(metadata)
        values.extend(v for v in node.outputs if v.name)
        for inner in graphs(node):
            fit(inner, names, base, dimensions, metadata)
    for value in values:
        value.name = names.unique(f"{base}/{value.name}")
        if value.shape is not None:
            dims = [d if isinstance(d, int) else dimensions.get(d.value or "", d.value) for d in value.shape.dims]
            value.shape = ir.Shape(dims)


def hoist_initializers(graph: ir.Graph) -> None:
    """Move the initializers of a graph's subgraphs into it, so that copies of a subgraph share them."""
    count = Counter(v.name for v in all_values(graph))
    for node in every_node(graph):
        for inner in graphs(node):
            for name, value in list(inner.initializers.items()):
                if value.is_graph_input() or value.is_graph_output():
                    continue
                del inner.initializers[name]
                fresh, suffix = name, 1
                while count[fresh] > (fresh == name):
                    suffix += 1
                    fresh = f"{name}_{suffix}"
                value.name = fresh
                count[name] -= 1
                count[fresh] += 1
                graph.register_initializer(value)


def rename(graph: ir.Graph, names: Names) -> None:
    """Give every value and node that a subgraph defines a name of its own."""
    for value in all_values(graph):
        value.name = names.unique(value.name or "value")
    for node in every_node(graph):
        node.name = names.unique(node.name or node.op_type)


def discard(graph: ir.Graph) -> None:
    """Let the nodes of a subgraph that is no longer part of a model read nothing."""
    for node in every_node(graph):
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)


def splice(graph: ir.Graph, node: ir.Node, names: Names) -> list[ir.Value]:
    """Move the nodes of a subgraph without inputs in front of the node that it belongs to; returns its outputs."""
    outputs, nodes = list(graph.outputs), list(graph)
    graph.outputs.clear()
    rename(graph, names)
    graph.remove(nodes)
    assert node.graph is not None
    node.graph.insert_before(node, nodes)
    return outputs


def all_values(graph: ir.Graph) -> list[ir.Value]:
    """Every value that a graph defines, nested graphs included."""
    found = [*graph.inputs, *graph.initializers.values()]
    for node in every_node(graph):
        found.extend(v for v in node.outputs if v.name)
        for inner in graphs(node):
            found.extend([*inner.inputs, *inner.initializers.values()])
    return found
