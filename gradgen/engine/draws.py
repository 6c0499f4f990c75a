"""Random draws inside subgraphs: the backward pass reads what the forward pass drew, and never draws again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from gradgen.engine.simplify import remove_if_unused, remove_unused
from gradgen.engine.subgraphs import all_values, discard, graphs, rename
from gradgen.engine.surgery import clone_graph, insert_output, remove_node


def take_out(
    graph: ir.Graph, copied: Mapping[ir.Value, ir.Value | None], linker: Any
) -> list[tuple[ir.Value, ir.Value]]:
    """Remove from a copied graph every node that draws, itself or in a subgraph.

    Args:
        graph: the copy of a subgraph with a backward pass behind it.
        copied: from the values of the subgraph to those of the copy.
        linker: a linker, for names.

    Returns:
        Pairs of a value of the subgraph and a new one, without a producer, that stands for it in the copy: what the
        copy read of those nodes. Where it is an output that the original node did not have, that node has it now.
    """
    original = {new: old for old, new in copied.items() if new is not None}
    pairs: list[tuple[ir.Value, ir.Value]] = []
    remove_unused(graph)
    for node in reversed(graph):
        # What only a node behind it read, which is gone by now, is not needed either.
        if remove_if_unused(node, graph) or not _draws(node, linker):
            continue
        source = next(original[v].producer() for v in node.outputs if v in original)
        assert source is not None
        _extend(source, node, original, linker)
        for index, value in enumerate(node.outputs):
            if value.uses():
                stand_in = linker.value(f"{value.name}/drawn", value)
                value.replace_all_uses_with(stand_in)
                pairs.append((source.outputs[index], stand_in))
        remove_node(node)
    return pairs


def _draws(node: ir.Node, linker: Any) -> bool:
    return linker.draws(node) or any(_draws(inner, linker) for graph in graphs(node) for inner in graph)


def _extend(source: ir.Node, node: ir.Node, original: dict[ir.Value, ir.Value], linker: Any) -> None:
    """Give a node what its copy was given meanwhile: outputs that a rule reads, and what its subgraphs save."""
    if graphs(node):
        source.resize_inputs(len(node.inputs))
        for index, value in enumerate(node.inputs):
            source.replace_input_with(
                index, None if value is None else _source_of(value, node.graph, source, original, linker)
            )
        for name, attr in node.attributes.items():
            if attr.type != ir.AttributeType.GRAPH:
                source.attributes[name] = attr
                continue
            inside = set(all_values(attr.value))
            mapping: dict[ir.Value, ir.Value | None] = {new: old for new, old in original.items() if new not in inside}
            graph = clone_graph(attr.value, mapping)
            for value in inside:
                content, clone = linker.knowledge.constant(value), mapping.get(value)
                if content is not None and clone is not None:
                    linker.knowledge.learn(clone, content)
            discard(source.attributes[name].value)
            rename(graph, linker.names)
            source.attributes[name] = ir.AttrGraph(name, graph)
    for index, value in enumerate(node.outputs):
        if value not in original:
            new = insert_output(source, index)
            new.name = linker.names.unique(value.name) if value.name else ""
            new.type, new.shape = value.type, value.shape
            original[value] = new


def _source_of(
    value: ir.Value, copy: Any, before: ir.Node, original: dict[ir.Value, ir.Value], linker: Any
) -> ir.Value:
    """The value that a copy stands for; what only the copy has is written in front of the original node."""
    if value in original:
        return original[value]
    producer = value.producer()
    if producer is None or producer.graph is not copy:
        return value
    inputs = [None if v is None else _source_of(v, copy, before, original, linker) for v in producer.inputs]
    new = ir.Node(
        producer.domain, producer.op_type, inputs, producer.attributes.values(), num_outputs=len(producer.outputs),
        name=linker.names.unique(producer.name or producer.op_type),
    )  # fmt: skip
    for old, out in zip(producer.outputs, new.outputs, strict=True):
        out.name, out.type, out.shape = linker.names.unique(old.name or "value"), old.type, old.shape
        original[old] = out
    assert before.graph is not None
    before.graph.insert_before(before, [new])
    return original[value]
