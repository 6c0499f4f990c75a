"""The defaults of attributes, as the schemas state them, and writing them out for onnx's inference."""

from __future__ import annotations

from functools import cache

import onnx
import onnx_ir as ir

from gradgen.engine.protos import all_nodes


@cache
def default_attributes(domain: str, op_type: str, version: int) -> dict[str, ir.Attr]:
    """The attributes of an op that its schema gives a default; none where there is no schema."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return {}
    return {
        name: ir.serde.deserialize_attribute(a.default_value)
        for name, a in schema.attributes.items()
        if a.default_value.name
    }


@cache
def nonzero_defaults(op_type: str, opset: int) -> tuple[onnx.AttributeProto, ...]:
    """The integer attributes of a standard op that are not 0 by default: onnx's inference takes some of them for 0."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return ()
    return tuple(a.default_value for a in schema.attributes.values() if a.default_value.i)


def spell_defaults(graph: onnx.GraphProto, opset: int) -> list[int]:
    """Write out the absent attributes of `nonzero_defaults` in a graph and its subgraphs.

    Returns how many attributes each node had, for `drop_spelled`.
    """
    nodes = list(all_nodes(graph))
    counts = [len(node.attribute) for node in nodes]
    for node in nodes:
        spell_node(node, opset)
    return counts


def spell_node(node: onnx.NodeProto, opset: int) -> None:
    """Write out the absent attributes of `nonzero_defaults` of one node."""
    defaults = nonzero_defaults(node.op_type, opset) if node.domain in ("", "ai.onnx") else ()
    if defaults:
        given = {a.name for a in node.attribute}
        node.attribute.extend(a for a in defaults if a.name not in given)


def drop_spelled(graph: onnx.GraphProto, counts: list[int]) -> None:
    """Remove what `spell_defaults` wrote, from that graph or from what inference made of it."""
    for node, count in zip(list(all_nodes(graph)), counts, strict=True):
        del node.attribute[count:]
