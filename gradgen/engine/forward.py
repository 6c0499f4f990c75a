"""What rows with a forward body say of a model: types that onnx cannot infer, and ops in a strange domain."""

from __future__ import annotations

from typing import Any

import onnx
import onnx.numpy_helper
import onnx_ir as ir

from gradgen.engine.inference import set_type, type_proto
from gradgen.engine.plan import _default_attributes
from gradgen.engine.registry import Registry
from gradgen.engine.rows import Row
from gradgen.engine.specialise import specialise
from gradgen.engine.values import Value
from gradgen.errors import GradientError
from gradgen.rules.lang import OPSET

STRAY = "onnxruntime"
"""Where ops go that onnxruntime's optimiser writes into the standard domain, though the standard has no such op."""

SMALL = 64


def move_strays(proto: onnx.ModelProto, registry: Registry) -> None:
    """Give the nodes of the standard domain that the standard does not know, and a row does, a domain of their own."""
    version = next((e.version for e in proto.opset_import if e.domain == ""), OPSET)
    moved = False

    def visit(nodes: Any) -> None:
        nonlocal moved
        for node in nodes:
            known = node.domain or _has_schema(node.op_type, version)
            if not known and registry.find(STRAY, node.op_type, version) is not None:
                node.domain, moved = STRAY, True
            for attribute in node.attribute:
                visit(attribute.g.node)

    visit(proto.graph.node)
    if moved:
        proto.opset_import.append(onnx.helper.make_opsetid(STRAY, 1))


def _has_schema(op_type: str, version: int) -> bool:
    try:
        onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return False
    return True


def fill_bodies(proto: onnx.ModelProto, registry: Registry) -> bool:
    """Give outputs without an inferred shape the type that their op's forward body gives; whether there were any."""
    graph = proto.graph
    version = next((e.version for e in proto.opset_import if e.domain == ""), OPSET)
    found_rows = [(n, registry.find(n.domain, n.op_type, version)) for n in graph.node if n.domain]
    rows = [(n, row) for n, row in found_rows if row is not None and (row.forward or row.straight_through)]
    if not rows:
        return False
    known = {v.name: v for v in [*graph.input, *graph.output, *graph.value_info]}
    stored = {t.name: t for t in graph.initializer if t.name not in known}
    found = False
    for node, row in rows:
        types = [known[o].type.tensor_type if o in known else None for o in node.output]
        if all(
            t is not None and t.elem_type and t.HasField("shape") for t, o in zip(types, node.output, strict=True) if o
        ):
            continue
        values = [_value(name, known, stored) if name else None for name in node.input]
        for index, result in _run(node, row, values, registry, max(version, OPSET)).items():
            name = node.output[index]
            info = known.get(name)
            if info is None:
                info = known[name] = graph.value_info.add(name=name)
            before = info.SerializeToString(deterministic=True)
            if not info.type.tensor_type.HasField("shape"):
                info.type.CopyFrom(type_proto(result))
            found = found or info.SerializeToString(deterministic=True) != before
    return found


def _value(name: str, known: dict[str, onnx.ValueInfoProto], stored: dict[str, onnx.TensorProto]) -> Value:
    tensor = stored.get(name)
    if tensor is not None:
        value = Value(ir.DataType(tensor.data_type), tuple(tensor.dims))
        if (value.size or 0) <= SMALL and tensor.data_location != onnx.TensorProto.EXTERNAL:
            value.peek = onnx.numpy_helper.to_array(tensor)
        return value
    value = Value()
    if name in known:
        set_type(value, known[name].type)
    return value


def _run(
    node: onnx.NodeProto, row: Row, values: list[Value | None], registry: Registry, opset: int
) -> dict[int, Value]:
    """The typed results of a forward body, by output position; none where it needs more than is known."""
    form = row.forward or row.straight_through
    assert form is not None
    arguments: dict[str, Any] = {}
    for position, formal in enumerate(row.inputs):
        if formal.endswith("*"):
            arguments[formal.rstrip("*")] = values[position:]
        elif position < len(values):
            arguments[formal] = values[position]
    attributes = dict(_default_attributes(node.domain, node.op_type, 1))
    attributes.update((a.name, ir.from_proto(a)) for a in node.attribute)
    wanted = {row.output_name(k): k for k, name in enumerate(node.output) if name}
    try:
        template = specialise(
            form.rule,
            form.reads,
            form.returns,
            form,
            arguments,
            attributes,
            dict.fromkeys(wanted, True),
            registry,
            opset,
        )
    except GradientError:
        return {}  # said where the node is on a path
    dims = {d for v in values if v is not None and v.shape is not None for d in v.shape if isinstance(d, str)}
    found: dict[int, Value] = {}
    for name, result in template.outputs.items():
        if isinstance(result, Value) and result.dtype is not None and result.shape is not None:
            shape = tuple(d if isinstance(d, int) or d in dims else None for d in result.shape)
            peer = arguments.get(row.like.get(name, ""))
            found[wanted[name]] = Value(result.dtype if peer is None else peer.dtype, shape)
    return found
