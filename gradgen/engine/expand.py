"""Replaces a node by the body that the standard gives its op, so that it is differentiated through that."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from gradgen.engine.inference import type_proto
from gradgen.engine.link import Linker
from gradgen.engine.specialise import Template, needed
from gradgen.engine.values import Value


def standard_body(node: ir.Node, linker: Linker) -> onnx.FunctionProto | None:
    """The function by which the standard defines the op for these types and attributes, or None."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        version = linker.opset if domain == "" else (node.version or 1)
        schema: Any = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= max(linker.opset, schema.since_version)]
        if versions:
            return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(max(versions)))
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= linker.opset]
        names: dict[str, str] = {}
        types = [type_proto(_described(v, linker, names)).SerializeToString() for v in node.inputs]
        proto = ir.to_proto(node)
        for version in sorted(versions, reverse=True):
            content = schema.get_context_dependent_function_with_opset_version(
                version, proto.SerializeToString(), types
            )
            if content:
                return onnx.FunctionProto.FromString(content)
    return None


def _described(value: ir.Value | None, linker: Linker, names: dict[str, str]) -> Value:
    return Value() if value is None else linker.knowledge.describe(value, names)


def expand(node: ir.Node, graph: ir.Graph, linker: Linker, replaced: dict[ir.Value, ir.Value]) -> bool:
    """Replace a node by its standard body and record its outputs' replacements; False where the standard gives none."""
    from gradgen.engine.builder import Builder
    from gradgen.engine.plan import _default_attributes

    proto = standard_body(node, linker)
    if proto is None:
        return False
    produced = {o for n in proto.node for o in n.output}
    kept = [o for o in proto.output if o in produced]
    positions = [list(proto.output).index(o) for o in kept]
    del proto.output[:]
    proto.output.extend(kept)
    body = ir.serde.deserialize_function(proto)
    names: dict[str, str] = {}
    actual = [v for v in node.inputs if v is not None]
    described: list[Value | None] = [None if v is None else linker.knowledge.describe(v, names) for v in node.inputs]
    attributes: dict[str, Any] = {**_default_attributes(node.domain, node.op_type, linker.opset), **node.attributes}
    builder = Builder(linker.registry.body, linker.opset, lenient=True)
    padded = described + [None] * (len(body.inputs) - len(described))
    results = builder.inline(body, padded, attributes)
    found = dict(zip(positions, results, strict=True))
    wanted = {str(k): v for k, o in enumerate(node.outputs) if o.name and (v := found.get(k)) is not None}
    inputs = [d for d in described if d is not None]
    template = Template(inputs, dict(wanted), needed(builder.nodes, list(wanted.values())))
    origin = node.name or (node.outputs[0].name or node.op_type)
    outputs = linker.anchored(node)._clone(template, actual, names, node.op_type, origin)
    for key, new in outputs.items():
        replaced[node.outputs[int(key)]] = replace_value(node.outputs[int(key)], new, linker, graph)
    graph.remove(node, safe=True)
    return True


def replace_value(old: ir.Value, new: ir.Value, linker: Linker, graph: ir.Graph) -> ir.Value:
    """Let `new` take the place, name and type of `old`, a node's output; returns what now stands there."""
    if new.producer() is None or new.is_graph_output():
        node = ir.Node("", "Identity", [new], num_outputs=1, name=linker.names.unique(f"{old.name}/Identity"))
        producer = old.producer()
        assert producer is not None
        graph.insert_before(producer, node)
        new = node.outputs[0]
    new.type, new.shape = old.type or new.type, old.shape or new.shape
    name = old.name
    old.name = linker.names.unique(f"{name}/replaced")
    new.name = name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    return new
