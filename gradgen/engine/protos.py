"""Walks over protobuf graphs: their subgraphs, their nodes, and what is known of the values in scope."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx


def subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """The graphs that nodes hold in their attributes."""
    for node in nodes:
        if attributes := node.attribute:  # to ask is faster than to walk over none
            for attribute in attributes:
                if attribute.HasField("g"):
                    yield attribute.g
                yield from attribute.graphs


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and every subgraph in it."""
    yield graph
    for inner in subgraphs(graph.node):
        yield from all_graphs(inner)


def all_nodes(owner: onnx.GraphProto | onnx.FunctionProto | Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Every node of a graph or a function, or of these, those of subgraphs included."""
    nodes = owner.node if isinstance(owner, onnx.GraphProto | onnx.FunctionProto) else list(owner)
    yield from nodes
    for inner in subgraphs(nodes):
        yield from all_nodes(inner)


@dataclass(eq=False)
class Scope:
    """A graph with what it and the graphs around it say of their values.

    Attributes:
        graph: the graph.
        known: the infos of the values in scope, by name.
        stored: the initializers in scope that are no inputs, by name.
    """

    graph: onnx.GraphProto
    known: ChainMap[str, onnx.ValueInfoProto]
    stored: ChainMap[str, onnx.TensorProto]

    def info(self, name: str) -> onnx.ValueInfoProto:
        """The info of a value that the graph computes; it is added where there is none."""
        found = self.known.get(name)
        if found is None:
            found = self.known[name] = self.graph.value_info.add(name=name)
        return found


def scopes(graph: onnx.GraphProto, outer: Scope | None = None) -> Iterator[Scope]:
    """A graph and every subgraph in it, with what is in scope there."""
    own = {v.name: v for v in [*graph.input, *graph.output, *graph.value_info]}
    stored = {t.name: t for t in graph.initializer if t.name not in own}
    known, held = (ChainMap({}), ChainMap({})) if outer is None else (outer.known, outer.stored)
    scope = Scope(graph, known.new_child(own), held.new_child(stored))
    yield scope
    for inner in subgraphs(graph.node):
        yield from scopes(inner, scope)


def imports(proto: onnx.ModelProto) -> dict[str, int]:
    """The version of each operator set that a model imports; the standard one is ''."""
    return {"" if e.domain == "ai.onnx" else e.domain: e.version for e in proto.opset_import}
