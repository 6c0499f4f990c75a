"""Subgraphs: the outer values that a node's graphs read, and copies of a graph."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
from onnx_ir import _cloner

from gradgen.engine.names import Names


def graphs(node: ir.Node) -> list[ir.Graph]:
    """The graphs that a node holds in its attributes."""
    return graphs_of(node.attributes)


def graphs_of(attributes: Mapping[str, ir.Attr]) -> list[ir.Graph]:
    """The graphs that attributes hold."""
    found: list[ir.Graph] = []
    for attr in attributes.values():
        if attr.type == ir.AttributeType.GRAPH and attr.value is not None:
            found.append(attr.value)
        elif attr.type == ir.AttributeType.GRAPHS and attr.value is not None:
            found.extend(attr.value)
    return found


def captures(node: ir.Node) -> list[ir.Value]:
    """The values from outside that a node's graphs read, nested ones included, in order of first use."""
    found: dict[ir.Value, None] = {}
    for graph in graphs(node):
        found.update(dict.fromkeys(free_values(graph)))
    return list(found)


def free_values(graph: ir.Graph) -> list[ir.Value]:
    """The values that a graph reads and does not define."""
    defined = {*graph.inputs, *graph.initializers.values()}
    found: dict[ir.Value, None] = {}
    for node in graph:
        for value in (*node.inputs, *captures(node)):
            if value is not None and value not in defined:
                found[value] = None
        defined.update(node.outputs)
    found.update((v, None) for v in graph.outputs if v not in defined)
    return list(found)


def clone_graph(graph: ir.Graph, mapping: Mapping[ir.Value, ir.Value | None]) -> ir.Graph:
    """A copy of a graph that reads `mapping`'s values in place of the outer ones."""
    cloner = _cloner.Cloner(
        attr_map={}, value_map=dict(mapping), metadata_props={}, resolve_ref_attrs=False, allow_outer_scope_values=True
    )
    return cloner.clone_graph(graph)


def settle(
    graph: ir.Graph, names: Names, base: str, dimensions: Mapping[str, str], metadata: Mapping[str, str]
) -> None:
    """Fit a graph copied from a rule into a model: unique names, the model's names of dimensions, metadata."""
    values = [*graph.inputs, *graph.initializers.values()]
    for node in graph:
        node.name = names.unique(f"{base}/{node.op_type}")
        node.metadata_props.update(metadata)
        values.extend(v for v in node.outputs if v.name)
        for inner in graphs(node):
            settle(inner, names, base, dimensions, metadata)
    for value in values:
        value.name = names.unique(f"{base}/{value.name}")
        if value.shape is not None:
            dims = [d if isinstance(d, int) else dimensions.get(d.value or "", d.value) for d in value.shape.dims]
            value.shape = ir.Shape(dims)
