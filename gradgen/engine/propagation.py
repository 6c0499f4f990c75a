"""onnx's shape inference with data propagation, kept from taking long vectors for shapes.

Where an operator with data propagation reads a vector of n elements, onnx makes n dimensions of it: seconds and hundreds
of megabytes for a few millions, and no end for an absurd size. A vector of that length is no shape. And where a Slice
steps further than integers reach, it writes past the end of its memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import onnx
import onnx.numpy_helper
import onnx.shape_inference

from gradgen.engine.protos import Scope, scopes
from gradgen.engine.soundness import MAX_RANK

LONGEST = 1 << 14  # elements: far more than any shape has
_LONG = "gradgen.long"  # inference passes over nodes of a domain that it does not know
_READERS = frozenset(
    s.name for s in onnx.defs.get_all_schemas() if not s.domain and s.has_data_propagation_function
) - {"Shape", "Size"}  # which read the type of their operand alone


def propagated(proto: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    """`onnx.shape_inference.infer_shapes(proto, data_prop=True, **options)`; raises what that raises."""
    hidden = _hidden(proto) if any(_is_suspect(scope) for scope in scopes(proto.graph)) else {}
    if not hidden:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True, **options)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    copy.opset_import.append(onnx.helper.make_opsetid(_LONG, 1))
    for position, (scope, node) in enumerate(_nodes(copy)):
        if position in hidden:
            node.domain = _LONG
        for info in hidden.get(position, ()):
            _state(scope.info(info.name).type, info.type)
    result = onnx.shape_inference.infer_shapes(copy, data_prop=True, **options)
    for _, node in _nodes(result):
        if node.domain == _LONG:
            node.domain = ""
    result.opset_import.remove(onnx.helper.make_opsetid(_LONG, 1))
    return result


def _state(declared: onnx.TypeProto, found: onnx.TypeProto) -> None:
    """Write into a type what is known of it; what it says itself stays."""
    if not declared.tensor_type.HasField("shape"):
        declared.CopyFrom(found)
        return
    for dim, known in zip(declared.tensor_type.shape.dim, found.tensor_type.shape.dim, strict=False):
        if dim.WhichOneof("value") is None:
            dim.CopyFrom(known)


def _nodes(proto: onnx.ModelProto) -> Iterator[tuple[Scope, onnx.NodeProto]]:
    return ((scope, node) for scope in scopes(proto.graph) for node in scope.graph.node)


def inferred_values(proto: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """What is inferred of the values that the nodes of the main graph make, by name; large constants are not copied."""
    graph = propagated(_light(proto)).graph
    return {value.name: value for value in (*graph.output, *graph.value_info)}


def _hidden(proto: onnx.ModelProto) -> dict[int, list[onnx.ValueInfoProto]]:
    """The nodes that read a long vector and would propagate it, by position, with what is known of their results."""
    found: dict[int, list[onnx.ValueInfoProto]] = {}
    for position, (scope, node) in enumerate(_nodes(onnx.shape_inference.infer_shapes(_light(proto)))):
        if node.op_type not in _READERS or node.domain:
            continue
        if any(_is_long(scope, name) for name in node.input) or _strides(node, _steps(scope)):
            found[position] = [scope.known[name] for name in node.output if name in scope.known]
    return found


def _steps(scope: Scope) -> set[str]:
    """The values of a graph that hold small constants."""
    made = ((n.output[0], a.t) for n in scope.graph.node if n.op_type == "Constant" for a in n.attribute if n.output)
    tensors = {**dict(scope.stored), **{name: t for name, t in made if t.dims}}
    return {name for name, tensor in tensors.items() if math.prod(tensor.dims) <= 64 and not _is_large(tensor)}


def _strides(node: onnx.NodeProto, small: Collection[str]) -> bool:
    """Whether a node is a Slice by steps that may be large."""
    return node.op_type == "Slice" and len(node.input) > 4 and bool(node.input[4]) and node.input[4] not in small


def _light(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inputs in place of its large initializers: their content says nothing about shapes."""
    light = onnx.ModelProto(ir_version=10, opset_import=proto.opset_import, functions=proto.functions)
    graph = proto.graph
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    light.graph.input.extend(graph.input)
    light.graph.output.extend(graph.output)
    light.graph.value_info.extend(graph.value_info)
    inputs = {v.name for v in graph.input}
    for tensor in graph.initializer:
        if math.prod(tensor.dims) < LONGEST:
            light.graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    return light


def _is_long(scope: Scope, name: str) -> bool:
    if name in scope.stored:
        dims = list(scope.stored[name].dims)
    elif name in scope.known:
        dims = [d.dim_value for d in scope.known[name].type.tensor_type.shape.dim]
    else:
        return False
    return len(dims) == 1 and dims[0] >= LONGEST


def _is_suspect(scope: Scope) -> bool:
    """Whether a graph holds anything of which a long vector could be made, a large tensor or number; or a long step."""
    for info in scope.known.maps[0].values():
        if math.prod([d.dim_value or 1 for d in info.type.tensor_type.shape.dim]) >= LONGEST:
            return True
    if any(math.prod(t.dims) >= LONGEST or _is_large(t) for t in scope.graph.initializer):
        return True
    for node in scope.graph.node:
        if node.op_type == "Constant":
            for a in node.attribute:
                if (
                    a.i >= LONGEST
                    or max(a.ints, default=0) >= LONGEST
                    or math.prod(a.t.dims) >= LONGEST
                    or _is_large(a.t)
                ):
                    return True
    if _grows(scope):
        return True
    sliced = [node for node in scope.graph.node if node.op_type == "Slice" and len(node.input) > 4]
    return bool(sliced) and any(_strides(node, small) for small in [_steps(scope)] for node in sliced)


def _grows(scope: Scope) -> bool:
    """Whether vectors that are joined, again and again, may become long ones."""
    if all(node.op_type != "Concat" for node in scope.graph.node):
        return False
    sizes: dict[str, int] = {}
    for node in scope.graph.node:
        if node.op_type not in _READERS or node.domain:
            continue
        given = [sizes[name] if name in sizes else _length(scope, name) for name in node.input]
        size = sum(given) if node.op_type == "Concat" else max(given, default=0)
        if size >= LONGEST:
            return True
        sizes.update(dict.fromkeys(node.output, size))
    return False


def _length(scope: Scope, name: str) -> int:
    """The length of a value where it is a vector of known size; else as much as a shape can have."""
    info = scope.known.get(name)
    dims = [] if info is None else info.type.tensor_type.shape.dim
    return dims[0].dim_value if len(dims) == 1 and dims[0].dim_value else MAX_RANK


def _is_large(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor of a few integers holds a large one."""
    if tensor.data_type not in (onnx.TensorProto.INT64, onnx.TensorProto.INT32) or math.prod(tensor.dims) > 64:
        return False
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return True
    content = onnx.numpy_helper.to_array(tensor)
    return bool(content.size) and max(int(content.max()), -int(content.min())) >= LONGEST
