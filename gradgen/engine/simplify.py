"""Light, linear passes over the linked graph: dead nodes, common subexpressions, unused constants."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from gradgen.engine.keys import attribute_key
from gradgen.engine.subgraphs import discard, graphs
from gradgen.engine.surgery import is_read, is_unread, remove_node


def remove_unused(graph: ir.Graph) -> None:
    """Remove the nodes of a graph, subgraphs included, whose results nobody reads."""
    for node in reversed(graph):
        if is_unread(node):
            _remove(node)
        elif node.attributes.data:
            for sub in graphs(node):
                remove_unused(sub)


def remove_if_unused(node: ir.Node, graph: ir.Graph) -> bool:
    """Remove a node of a graph if nobody reads its results; whether that was so."""
    if not is_unread(node):
        return False
    _remove(node)
    return True


def _remove(node: ir.Node) -> None:
    remove_node(node)
    for sub in graphs(node):
        discard(sub)


def remove_unused_initializers(graph: ir.Graph) -> None:
    """Remove the initializers that nobody reads and that no caller can override."""
    inputs = set(graph.inputs)
    for name, value in list(graph.initializers.items()):
        if value not in inputs and not is_read(value):
            del graph.initializers[name]


def merge_common(graph: ir.Graph, draws: Callable[[ir.Node], bool]) -> None:
    """Let a linked node give way to an equal one; forward nodes, random ones and those with subgraphs stay."""
    seen: dict[tuple, ir.Node] = {}
    keys: dict[int, tuple] = {}  # of attributes, which nodes share that are copies of one rule's
    for node in graph:
        attributes, outputs, domain = node.attributes.data, node.outputs, node.domain
        linked = "gradgen.node" in node.metadata_props
        if (domain and not linked) or (attributes and graphs(node)):
            continue
        for name, attr in attributes.items():
            if id(attr) not in keys:
                keys[id(attr)] = (name, attribute_key(attr))
        key = (
            domain,
            node.op_type,
            node.overload,
            node.inputs,
            tuple([bool(v.name) for v in outputs]),
            tuple(sorted([keys[id(a)] for a in attributes.values()])) if attributes else (),
        )
        first = seen.setdefault(key, node)
        if first is node or not linked or any([v.is_graph_output() for v in outputs]) or draws(node):
            continue
        for old, new in zip(outputs, first.outputs, strict=True):
            old.replace_all_uses_with(new)
        remove_node(node)
