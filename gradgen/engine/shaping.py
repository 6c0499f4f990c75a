"""Infers the types of whole models: onnx's inference, and what it leaves open though the model states it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx
import onnx.shape_inference
import onnx_ir as ir

from gradgen.engine.defaults import drop_spelled, spell_defaults
from gradgen.engine.inference import infer_shapes, set_shape, set_type, type_proto
from gradgen.engine.protos import Scope, imports, scopes
from gradgen.engine.ranks import recover_ranks
from gradgen.engine.values import Value
from gradgen.rules.elements import STATED, stated_shape
from gradgen.rules.lang import OPSET
from gradgen.rules.products import RANKS, ranks_of

Fill = Callable[[Sequence[Scope]], bool]


def infer_types_of(
    proto: onnx.ModelProto,
    fills: Sequence[Fill] = (),
    check: Callable[[onnx.ModelProto], onnx.ModelProto | None] | None = None,
) -> onnx.ModelProto:
    """The model with all types that can be inferred, those of subgraphs included; what cannot be stays open.

    onnx leaves the rank open where a shape is computed at run time, though the length of that shape states it, or what
    reads the value: it is filled in, and what follows from it is inferred again.

    Args:
        proto: the model; the result may share with it.
        fills: what else fills in types, given the model's scopes; each returns whether there were any.
        check: called once with the model as inference sees it, its defaults written out; it may return what onnx infers.
    """
    versions = imports(proto)
    counts = spell_defaults(proto.graph, versions.get("", OPSET))
    inferred = None if check is None else check(proto)
    while True:
        try:
            proto = infer_shapes(proto, inferred)
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
            break
        known, inferred = list(scopes(proto.graph)), None
        if not any([fill(known) for fill in (fill_ranks, *fills)]) and not recover_ranks(known, versions):
            break
    drop_spelled(proto.graph, counts)
    return proto


@dataclass
class _Node:
    op_type: str
    inputs: list[Value | None]
    attributes: dict = field(default_factory=dict)


def fill_ranks(known: Sequence[Scope]) -> bool:
    """Give results the rank that the length of a computed shape states, or the op; whether there were any."""
    found = False
    for scope in known:
        for node in scope.graph.node:
            if node.domain not in ("", "ai.onnx"):
                continue
            if node.op_type in RANKS:
                found |= _fill_known(scope, node)
            if node.op_type not in STATED:
                continue
            info = scope.known.get(node.output[0])
            if info is None or info.type.tensor_type.HasField("shape") or not info.type.HasField("tensor_type"):
                continue
            values = [value_of(scope, name) for name in node.input]
            position = STATED[node.op_type][0]
            target = values[position] if position < len(values) else None
            if target is None or target.shape is None or len(target.shape) != 1 or not isinstance(target.shape[0], int):
                continue
            target.elements = (None,) * target.shape[0]  # which sizes they are, onnx's inference looks at itself
            shape = stated_shape(_Node(node.op_type, values))
            if shape is not None:
                set_shape(info.type, tuple(d if isinstance(d, int) else None for d in shape))
                found = True
    return found


def _fill_known(scope: Scope, node: onnx.NodeProto) -> bool:
    """Give the results of a node the ranks that follow from its inputs'."""
    found = False
    values = [value_of(scope, name) for name in node.input]
    shapes = [None if v is None else v.shape for v in values]
    for name, rank in zip(node.output, ranks_of(node.op_type, shapes), strict=False):
        info = scope.known.get(name)
        if rank is None or info is None or not info.type.HasField("tensor_type"):
            continue
        if not info.type.tensor_type.HasField("shape"):
            set_shape(info.type, (None,) * rank)
            found = True
    return found


def value_of(scope: Scope, name: str) -> Value | None:
    """What is known of the type of a value in scope; None for an absent operand."""
    if not name:
        return None
    value = Value()
    if name in scope.stored:
        tensor = scope.stored[name]
        value.dtype, value.shape = ir.DataType(tensor.data_type), tuple(tensor.dims)
    elif name in scope.known:
        set_type(value, scope.known[name].type)
    return value


def fill_type(scope: Scope, name: str, source: Value) -> bool:
    """Give a value that has no shape yet the type of another; whether it had none."""
    info = scope.info(name)
    if info.type.tensor_type.HasField("shape"):
        return False
    info.type.CopyFrom(type_proto(source))
    return True
