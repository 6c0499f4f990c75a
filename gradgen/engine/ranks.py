"""Recovers ranks that inference has lost from what reads a value: an op that takes one rank alone says which it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx.defs
import onnx.helper
from onnx.shape_inference import InferenceError, infer_node_outputs

from gradgen.engine.inference import set_shape
from gradgen.engine.protos import Scope

# A node that takes even this rank takes any from some rank on: there is nothing to recover.
BEYOND = 9
_CONTENT = 64
_IR_VERSION = 10


def recover_ranks(known: Sequence[Scope], versions: Mapping[str, int]) -> bool:
    """Give values of unknown rank the one rank that a node of their own graph can read; whether there were any.

    A node of a subgraph says nothing of an outer value: it may be in a branch that is not taken.
    """
    found = False
    for scope in known:
        opened = {name for name, info in scope.known.maps[0].items() if _open(info)}
        if not opened:
            continue
        opened &= {name for node in scope.graph.node for name in node.output} | {v.name for v in scope.graph.input}
        for node in scope.graph.node:
            unknown = [name for name in dict.fromkeys(node.input) if name in opened and _open(scope.known.get(name))]
            schema = _schema(node, versions) if unknown else None
            if schema is None:
                continue
            for name in unknown:
                rank = _only_rank(scope, node, name, schema, versions)
                if rank is not None:
                    set_shape(scope.known[name].type, (None,) * rank)
                    found = True
    return found


def _open(info: onnx.ValueInfoProto | None) -> bool:
    """Whether a value is a tensor of known element type and unknown rank."""
    kind = None if info is None else info.type
    if kind is None or not kind.HasField("tensor_type"):
        return False
    return bool(kind.tensor_type.elem_type) and not kind.tensor_type.HasField("shape")


def _schema(node: onnx.NodeProto, versions: Mapping[str, int]) -> onnx.defs.OpSchema | None:
    domain = "" if node.domain == "ai.onnx" else node.domain
    if any(a.HasField("g") or a.graphs or a.ref_attr_name for a in node.attribute):
        return None
    try:
        schema = onnx.defs.get_schema(node.op_type, versions.get(domain, 0), domain)
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else schema  # onnx infers nothing for what it takes for deprecated


def _only_rank(
    scope: Scope, node: onnx.NodeProto, name: str, schema: onnx.defs.OpSchema, versions: Mapping[str, int]
) -> int | None:
    """The rank of an input with which alone inference accepts the node; None where it accepts several or none."""
    types = {n: scope.known[n].type for n in node.input if n in scope.known}
    types |= {
        n: onnx.helper.make_tensor_type_proto(scope.stored[n].data_type, scope.stored[n].dims)
        for n in node.input
        if n in scope.stored
    }
    if set(node.input) - {""} != set(types):
        return None
    held = {n: scope.stored[n] for n in node.input if n in scope.stored}
    content = {
        n: t
        for n, t in held.items()
        if t.data_location != onnx.TensorProto.EXTERNAL and sum(t.dims[:1]) <= _CONTENT and len(t.dims) < 2
    }
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in versions.items()]
    outputs = {n: _rank(scope.known[n].type) for n in node.output if n in scope.known}

    def accepts(rank: int | None) -> bool:
        trial = onnx.TypeProto()
        trial.CopyFrom(types[name])
        if rank is not None:
            set_shape(trial, (None,) * rank)
        try:
            given = infer_node_outputs(schema, node, {**types, name: trial}, content, None, opsets, _IR_VERSION)
        except (InferenceError, RuntimeError, ValueError):
            return False
        ranks = {n: _rank(kind) for n, kind in given.items()}
        return all(None in (ranks.get(n), known) or ranks[n] == known for n, known in outputs.items())

    if accepts(BEYOND) or not accepts(None):
        return None
    accepted = [rank for rank in range(BEYOND) if accepts(rank)]
    return accepted[0] if len(accepted) == 1 else None


def _rank(kind: onnx.TypeProto) -> int | None:
    tensor = kind.tensor_type
    return len(tensor.shape.dim) if kind.HasField("tensor_type") and tensor.HasField("shape") else None
