"""Compares the types that a model declares for its values with those that its nodes compute."""

from __future__ import annotations

import onnx
import onnx.helper
import onnx.shape_inference

from gradgen.engine.inference import infer_shapes
from gradgen.engine.propagation import propagated
from gradgen.engine.protos import all_graphs
from gradgen.errors import GradientError

_ERRORS = (onnx.shape_inference.InferenceError, RuntimeError, ValueError)
# What onnx's inference says of a contradiction; anything else it reports may be its own lack, and so may be what it
# says of the nodes inside an op that the standard defines by a function.
_DECLARED, _MIXED = "existing", "has inconsistent type"
_INSIDE = "Inference error(s)"


def check_declarations(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Refuse a model that declares types which contradict those that onnx infers.

    Returns:
        what onnx infers of the model, as it does where it is lenient too; None where that is less than all.

    Raises:
        GradientError: that lists the values whose declared type is wrong, or names the op whose inputs do not agree.
    """
    for check_type in (True, False):
        try:
            return propagated(proto, check_type=check_type, strict_mode=True)
        except _ERRORS as error:
            text = " ".join(str(error).split())
        if check_type and _MIXED in text and _INSIDE not in text:
            raise GradientError(f"the model is not valid: {text[:300]}")
        if _DECLARED in text and (wrong := _wrong(proto)):
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise GradientError(f"the model declares types that its nodes do not compute: {', '.join(wrong[:5])}{more}")
    return None


def _wrong(proto: onnx.ModelProto) -> list[str]:
    """The values whose declared type is not the inferred one, with both."""
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    for graph in all_graphs(bare.graph):
        computed = _computed(graph)
        kept = [v for v in graph.value_info if v.name not in computed]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        for value in graph.output:
            if value.name in computed:
                value.ClearField("type")
    try:
        bare = infer_shapes(bare)
    except _ERRORS:
        return []
    wrong = []
    for given, inferred in zip(all_graphs(proto.graph), all_graphs(bare.graph), strict=True):
        found = {v.name: v.type for v in [*inferred.value_info, *inferred.output] if v.name in _computed(given)}
        wrong += [
            f"'{v.name}' is declared {_text(v.type)} and is {_text(found[v.name])}"
            for v in [*given.value_info, *given.output]
            if v.name in found and _contradict(v.type, found[v.name])
        ]
    return list(dict.fromkeys(wrong))


def _computed(graph: onnx.GraphProto) -> set[str]:
    """The values whose types onnx can infer: the results of the standard's ops."""
    return {o for n in graph.node if not n.domain for o in n.output}


def _contradict(one: onnx.TypeProto, other: onnx.TypeProto) -> bool:
    """Whether no tensor can have both types; an inferred size of 0 may be one that onnx does not know."""
    a, b = one.tensor_type, other.tensor_type
    if not (one.HasField("tensor_type") and other.HasField("tensor_type")):
        return False
    if a.elem_type and b.elem_type and a.elem_type != b.elem_type:
        return True
    if not (a.HasField("shape") and b.HasField("shape")):
        return False
    pairs = list(zip(a.shape.dim, b.shape.dim, strict=False))
    return len(a.shape.dim) != len(b.shape.dim) or any(
        p.HasField("dim_value") and q.HasField("dim_value") and 0 < q.dim_value != p.dim_value for p, q in pairs
    )


def _text(proto: onnx.TypeProto) -> str:
    kind = onnx.helper.tensor_dtype_to_string(proto.tensor_type.elem_type).removeprefix("TensorProto.").lower()
    if not proto.tensor_type.HasField("shape"):
        return kind
    dims = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in proto.tensor_type.shape.dim]
    return f"{kind}[{','.join(dims)}]"
