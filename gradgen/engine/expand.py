"""Replaces a node by its op's body and so differentiates through it: the standard's, or a row's forward body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx
import onnx_ir as ir

from gradgen.engine.contract import conform
from gradgen.engine.defaults import default_attributes
from gradgen.engine.inference import type_proto
from gradgen.engine.labels import node_label
from gradgen.engine.link import Linker
from gradgen.engine.rows import Form, Row
from gradgen.engine.specialise import Template, needed
from gradgen.engine.subgraphs import captures, graphs
from gradgen.engine.surgery import remove_node
from gradgen.engine.values import Value
from gradgen.errors import GradientError


def standard_body(node: ir.Node, linker: Linker) -> onnx.FunctionProto | None:
    """The function by which the standard defines the op for these types and attributes, or None."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, linker.version(node), domain)
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


def expands(row: Row | None) -> bool:
    """Whether an op is differentiated through its body: it has no row, or one with a forward body."""
    return row is None or row.through_body


def expand(node: ir.Node, graph: ir.Graph, linker: Linker, replaced: dict[ir.Value, ir.Value]) -> bool:
    """Replace a node by its op's body and record its outputs' replacements; False where there is none."""
    # Never calls into the function library, whatever the linker does with rules: the nodes have to be differentiated.
    shared = (linker.registry, linker.opset, linker.knowledge, linker.names, linker.constants)
    inline = Linker(graph, *shared).anchored(node)
    row = linker.rules.of(node)
    if row is not None and row.forward is not None:
        outputs: Mapping[int, ir.Value] | None = _forward(node, row, row.forward, inline)
    else:
        outputs = _standard(node, inline)
    if outputs is None:
        return False
    for index, new in outputs.items():
        old = node.outputs[index]
        if new in replaced.values():
            new = inline.node("Identity", [new], old, f"{old.name}/Identity")
        replaced[old] = replace_value(old, new, linker, graph)
    if not any(v.uses() or v.is_graph_output() for v in node.outputs):
        # It stays for the outputs that its body leaves to it, such as the labels of a classifier.
        remove_node(node)
    return True


def expand_where(
    graph: ir.Graph, linker: Linker, chosen: Callable[[ir.Node], bool], replaced: dict[ir.Value, ir.Value]
) -> None:
    """Replace the chosen nodes of a graph, those of its subgraphs included, by their ops' bodies."""
    for node in list(graph):
        for sub in graphs(node):
            expand_where(sub, linker, chosen, replaced)
        if chosen(node):
            expand(node, graph, linker, replaced)


def _forward(node: ir.Node, row: Row, form: Form, linker: Linker) -> dict[int, ir.Value]:
    """Link a row's forward body in front of a node; the outputs that are used, by position."""
    from gradgen.engine.plan import bind_attributes, operand

    origin = node_label(node)
    used = {row.output_name(k): k for k, v in enumerate(node.outputs) if v.uses() or v.is_graph_output()}
    names = {n: k for n, k in used.items() if n in form.returns}
    if not used:  # nothing reads the node
        return {}
    if not names:
        raise GradientError(
            f"{origin} ({node.op_type}): its output '{min(used)}' has no derivative; only {form.returns} have"
        )
    arguments = {n: operand(row, n, node.inputs, node.outputs) for n in form.reads}
    attributes = bind_attributes(node, row, linker)
    if strange := sorted(set(node.attributes) - set(form.attributes) - set(row.ignores)):
        raise GradientError(
            f"{origin} ({node.op_type}): the op's forward body does not know the attribute '{strange[0]}'"
        )
    try:
        found = linker.vjp(form, arguments, attributes, dict.fromkeys(names, True), {}, origin)
    except GradientError as error:
        raise GradientError(f"{origin} ({node.op_type}): {error}") from error
    computed = {k: found[n] for n, k in names.items() if found.get(n) is not None}
    if not computed:
        raise GradientError(
            f"{origin} ({node.op_type}): the op's forward body does not compute its output '{min(names)}'"
        )
    return computed


def _standard(node: ir.Node, linker: Linker) -> dict[int, ir.Value] | None:
    """Link the standard's body of an op in front of a node; the outputs that the node has, by position; None if none."""
    from gradgen.engine.builder import Builder

    outer = captures(node)
    with _own_names(outer, linker) as free:
        proto = standard_body(node, linker)
    if proto is None:
        return None
    operands = [*node.inputs, *[None] * (len(proto.input) - len(node.inputs)), *outer]
    proto.input.extend(free)
    produced = {o for n in proto.node for o in n.output}
    kept = [o for o in proto.output if o in produced]
    positions = [list(proto.output).index(o) for o in kept]
    del proto.output[:]
    proto.output.extend(kept)
    body = ir.serde.deserialize_function(proto)
    names: dict[str, str] = {}
    actual = [v for v in operands if v is not None]
    described: list[Value | None] = [None if v is None else linker.knowledge.describe(v, names) for v in operands]
    attributes: dict[str, Any] = {
        **default_attributes(node.domain, node.op_type, linker.version(node)),
        **node.attributes,
    }
    builder = Builder(linker.registry.body, linker.opset, lenient=True, callee=linker.registry.callee)
    results = builder.inline(body, described, attributes)
    found = dict(zip(positions, results, strict=True))
    wanted = {str(k): v for k, o in enumerate(node.outputs) if o.name and (v := found.get(k)) is not None}
    inputs = [d for d in described if d is not None]
    template = Template(inputs, dict(wanted), needed(builder.nodes, list(wanted.values())))
    origin = node_label(node)
    outputs = linker.clone(template, actual, names, node.op_type, origin)
    return {int(key): new for key, new in outputs.items()}


@contextmanager
def _own_names(values: Sequence[ir.Value], linker: Linker) -> Iterator[list[str]]:
    """Meanwhile the values have names that no body has: a body into which a node's graphs are written reads them."""
    before = [v.name for v in values]
    for value in values:
        value.name = linker.names.unique("captured")
    yield [v.name or "" for v in values]
    for value, name in zip(values, before, strict=True):
        value.name = name


def replace_value(old: ir.Value, new: ir.Value, linker: Linker, graph: ir.Graph) -> ir.Value:
    """Let `new` take the place, name and type of `old`, a node's output; returns what now stands there."""
    if new.producer() is None or new.is_graph_output():
        node = ir.Node("", "Identity", [new], num_outputs=1, name=linker.names.unique(f"{old.name}/Identity"))
        producer = old.producer()
        assert producer is not None
        graph.insert_before(producer, node)
        node.outputs[0].type, node.outputs[0].shape = new.type, new.shape
        new = node.outputs[0]
    conform(new, old, f"the body of '{old.name}'")
    name = old.name
    old.name = linker.names.unique(f"{name}/replaced")
    new.name = name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    return new
