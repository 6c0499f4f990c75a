"""What rows with a forward body say of a model: types that onnx cannot infer, and ops in a strange domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import onnx.numpy_helper
import onnx_ir as ir

from gradgen.engine.defaults import default_attributes
from gradgen.engine.inference import type_proto
from gradgen.engine.protos import Scope, all_nodes, imports
from gradgen.engine.registry import Registry, Rules
from gradgen.engine.rows import Row
from gradgen.engine.shaping import value_of
from gradgen.engine.specialise import specialise
from gradgen.engine.values import Value
from gradgen.errors import GradientError
from gradgen.rules.lang import OPSET

STRAY = "onnxruntime"
"""Where ops go that onnxruntime's optimiser writes into the standard domain, though the standard has no such op."""

SMALL = 64


def move_strays(proto: onnx.ModelProto, registry: Registry) -> None:
    """Give the nodes of the standard domain that the standard does not know, and a row does, a domain of their own."""
    rules = Rules(registry, imports(proto))
    nodes = [(n.op_type, n) for n in all_nodes(proto.graph) if not n.domain]
    unknown = {op for op in {op for op, _ in nodes} if not _has_schema(op, rules.opset)}
    moved = [n for op, n in nodes if op in unknown and rules.find(STRAY, op) is not None]
    for node in moved:
        node.domain = STRAY
    if moved:
        proto.opset_import.append(onnx.helper.make_opsetid(STRAY, 1))


def _has_schema(op_type: str, version: int) -> bool:
    try:
        onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return False
    return True


def fill_bodies(known: Sequence[Scope], rules: Rules) -> bool:
    """Give outputs without an inferred shape the type that their op's forward body gives; whether there were any."""
    found = False
    for scope in known:
        for node in scope.graph.node:
            row = rules.of(node) if node.domain else None
            if row is not None and (row.forward or row.straight_through):
                found = _fill(node, row, scope, rules) or found
    return found


def _fill(node: onnx.NodeProto, row: Row, scope: Scope, rules: Rules) -> bool:
    types = [scope.known[name].type.tensor_type if name in scope.known else None for name in node.output if name]
    if all(t is not None and t.elem_type and t.HasField("shape") for t in types):
        return False
    found = False
    values = [_value(name, scope) for name in node.input]
    for index, result in _run(node, row, values, rules).items():
        info = scope.info(node.output[index])
        before = info.SerializeToString(deterministic=True)
        if not info.type.tensor_type.HasField("shape"):
            info.type.CopyFrom(type_proto(result))
        found = found or info.SerializeToString(deterministic=True) != before
    return found


def _value(name: str, scope: Scope) -> Value | None:
    value, tensor = value_of(scope, name), scope.stored.get(name)
    if value is None or tensor is None or (value.size or 0) > SMALL:
        return value
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        value.peek = onnx.numpy_helper.to_array(tensor)
    return value


def _run(node: onnx.NodeProto, row: Row, values: list[Value | None], rules: Rules) -> dict[int, Value]:
    """The typed results of a forward body, by output position; none where it needs more than is known."""
    form = row.forward or row.straight_through
    assert form is not None
    arguments: dict[str, Any] = {}
    for position, formal in enumerate(row.inputs):
        if formal.endswith("*"):
            arguments[formal.rstrip("*")] = values[position:]
        elif position < len(values):
            arguments[formal] = values[position]
    attributes = dict(default_attributes(node.domain, node.op_type, rules.version(node.domain)))
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
            rules.registry,
            max(rules.opset, OPSET),
        )
    except GradientError:
        return {}  # said where the node is on a path
    dims = {d for v in values if v is not None and v.shape is not None for d in v.shape if isinstance(d, str)}
    found: dict[int, Value] = {}
    for name, result in template.outputs.items():
        if isinstance(result, Value) and result.dtype is not None:
            shape = result.shape  # where even the rank is open, what reads the value may still state it
            if shape is not None:
                shape = tuple(d if isinstance(d, int) or d in dims else None for d in shape)
            peer = arguments.get(row.like.get(name, ""))
            found[wanted[name]] = Value(result.dtype if peer is None else peer.dtype, shape)
    return found
