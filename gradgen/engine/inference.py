"""Types, shape elements and values of single nodes, by onnx's own inference and reference implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference
import onnx_ir as ir
from onnx.shape_inference import InferenceError, infer_node_outputs

from gradgen.engine.products import einsum_shape
from gradgen.engine.values import Dim, Shape, Value

_IR_VERSION = 10


def type_proto(value: Value) -> onnx.TypeProto:
    """The value's type as onnx writes it; an unknown rank or element type is left out."""
    proto = onnx.TypeProto()
    tensor = proto.tensor_type
    if value.dtype is not None:
        tensor.elem_type = int(value.dtype)
    if value.shape is not None:
        tensor.shape.SetInParent()
        for d in value.shape:
            dim = tensor.shape.dim.add()
            if isinstance(d, int):
                dim.dim_value = d
            elif d is not None:
                dim.dim_param = d
    return proto


def set_type(value: Value, proto: onnx.TypeProto) -> None:
    """Give a value what is known of its type."""
    if not proto.HasField("tensor_type"):
        return
    tensor = proto.tensor_type
    if tensor.elem_type:
        value.dtype = ir.DataType(tensor.elem_type)
    if tensor.HasField("shape"):
        value.shape = tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim)


def infer_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """onnx's shape inference without what it gets wrong.

    It makes sizes of 0 of unknown ones (Attention's total length): a result of size 0 whose node reads unknown sizes
    and no 0 is taken for unknown, and what follows from it with it. Of an Einsum's sizes it takes the first.
    """
    stated: dict[int, list[onnx.ValueInfoProto]] = {}
    while True:
        inferred = _infer(proto, stated)
        right = _corrections(inferred, stated)
        if right == stated:
            return inferred
        stated = right


def _infer(proto: onnx.ModelProto, stated: Mapping[int, list[onnx.ValueInfoProto]]) -> onnx.ModelProto:
    """onnx's inference, where some nodes, by position, have results of stated types."""
    if not stated:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    # Inference passes over ops that it does not know, and takes the types of their results as they are stated.
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    declared = {v.name: v for v in [*result.graph.output, *result.graph.value_info]}
    for index, values in stated.items():
        result.graph.node[index].domain = "gradgen.unknown"
        for value in values:
            if value.name not in declared:
                result.graph.value_info.append(value)
            elif not declared[value.name].type.tensor_type.HasField("shape"):
                declared[value.name].CopyFrom(value)
            else:
                dims = declared[value.name].type.tensor_type.shape.dim
                for dim, found in zip(dims, value.type.tensor_type.shape.dim, strict=True):
                    if dim.WhichOneof("value") is None:
                        dim.CopyFrom(found)
    result.opset_import.append(onnx.helper.make_opsetid("gradgen.unknown", 1))
    result = onnx.shape_inference.infer_shapes(result, data_prop=True)
    for index in stated:
        result.graph.node[index].domain = proto.graph.node[index].domain
    del result.opset_import[-1]
    return result


def _corrections(
    inferred: onnx.ModelProto, stated: Mapping[int, list[onnx.ValueInfoProto]]
) -> dict[int, list[onnx.ValueInfoProto]]:
    """The right types of all results of nodes of which inference gets one wrong, by the nodes' position."""
    known = {v.name: v for v in [*inferred.graph.input, *inferred.graph.output, *inferred.graph.value_info]}
    stored = {t.name: tuple(t.dims) for t in inferred.graph.initializer if t.name not in known}
    right: dict[int, list[onnx.ValueInfoProto]] = {}
    for index, node in enumerate(inferred.graph.node):
        results = [known[name] for name in node.output if name in known]
        if node.op_type == "Einsum" and not node.domain and results:
            shapes = [stored[n] if n in stored else _shape(known.get(n)) for n in node.input]
            shape = einsum_shape(next(a.s.decode() for a in node.attribute if a.name == "equation"), shapes)
            if shape is not None and (index in stated or shape != _shape(results[0])):
                right[index] = [_shaped(results[0], shape)]
            continue
        if index in stated:
            right[index] = stated[index]
            continue
        sizes = {d if isinstance(d, int) else None for n in node.input for d in _shape(known.get(n)) or ()}
        if None in sizes and 0 not in sizes and any(0 in (_shape(v) or ()) for v in results):
            right[index] = [_shaped(v, tuple(d or None for d in shape)) if (shape := _shape(v)) else v for v in results]
    return right


def _shape(value: onnx.ValueInfoProto | None) -> Shape | None:
    if value is None or not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in dims)


def _shaped(value: onnx.ValueInfoProto, shape: Shape) -> onnx.ValueInfoProto:
    """A value of the same name and element type."""
    return onnx.helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shape)


def node_proto(node: Any) -> onnx.NodeProto:
    """A body node as a NodeProto whose inputs are i0, i1, … and whose outputs are o0, o1, …"""
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    proto.input.extend("" if v is None else f"i{k}" for k, v in enumerate(node.inputs))
    proto.output.extend(f"o{k}" for k in range(len(node.outputs)))
    proto.attribute.extend(ir.serde.serialize_attribute(a) for a in node.attributes.values())
    return proto


def infer_types(node: Any, schema: onnx.defs.OpSchema | None, opset: int) -> None:
    """Set the types of the node's outputs, as far as they follow from its inputs."""
    if schema is None:
        return
    if any(a.ref_attr_name is not None for a in node.attributes.values()):
        # The value of an attribute parameter is not known here: only the element type follows.
        _share_dtypes(node, schema)
        return
    inputs = {f"i{k}": v for k, v in enumerate(node.inputs) if v is not None}
    types = {name: type_proto(v) for name, v in inputs.items()}
    data = {
        name: onnx.numpy_helper.from_array(v.peek, name)
        for name, v in inputs.items()
        if v.peek is not None and v.peek.dtype.kind in "iuf" and v.peek.size <= 64
    }
    try:
        outputs = infer_node_outputs(
            schema, node_proto(node), types, data, None, [onnx.helper.make_opsetid("", opset)], _IR_VERSION
        )
    except (InferenceError, RuntimeError, ValueError):
        outputs = {}
    for k, value in enumerate(node.outputs):
        if f"o{k}" in outputs:
            set_type(value, outputs[f"o{k}"])
    _refine(node, schema)


def infer_graphs(
    node: ir.Node, operands: Sequence[Value | None], captures: Sequence[tuple[ir.Value, Value]], opset: int
) -> None:
    """Give the values in a node's graphs the types that follow from its operands and captures; dimensions lose names.

    Args:
        node: a node of a function's body; its graphs are changed in place.
        operands: what is known of its inputs.
        captures: the outer values that its graphs read, with what is known of them.
        opset: the ai.onnx opset.
    """
    proto = ir.to_proto(node)
    known = {v.name or "": k for v, k in zip(node.inputs, operands, strict=True) if v is not None and k is not None}
    known |= {outer.name or "": value for outer, value in captures}
    inputs = [onnx.helper.make_value_info(name, type_proto(value)) for name, value in known.items()]
    # Inference looks at the content of constants, the axes of an Unsqueeze say, in their own graph alone.
    constants = [onnx.numpy_helper.from_array(v.const, o.name) for o, v in captures if v.const is not None]
    for attribute in proto.attribute:
        for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
            graph.initializer.extend(constants)
    model = onnx.helper.make_model(
        onnx.helper.make_graph([proto], "node", inputs, []), opset_imports=[onnx.helper.make_opsetid("", opset)]
    )
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.node[0]
    except (InferenceError, RuntimeError, ValueError):
        return
    found = {a.name: [a.g] if a.type == onnx.AttributeProto.GRAPH else list(a.graphs) for a in inferred.attribute}
    for name, attr in node.attributes.items():
        held = [attr.value] if attr.type == ir.AttributeType.GRAPH else attr.value
        for graph, typed in zip(held, found[name], strict=True) if found[name] else ():
            _take_types(graph, typed)


def _take_types(graph: ir.Graph, typed: onnx.GraphProto) -> None:
    """Copy the types of a graph's values from its inferred form, nested graphs included."""
    known = {v.name: v.type for v in [*typed.input, *typed.output, *typed.value_info]}
    for value in [*graph.inputs, *(v for node in graph for v in node.outputs)]:
        found = Value()
        set_type(found, known.get(value.name, onnx.TypeProto()))
        if value.type is None and found.dtype is not None:
            value.type = ir.TensorType(found.dtype)
        if value.shape is None and found.shape is not None:
            value.shape = ir.Shape([d if isinstance(d, int) else None for d in found.shape])
    for node, proto in zip(graph, typed.node, strict=True):
        inner = {a.name: a.g for a in proto.attribute if a.type == onnx.AttributeProto.GRAPH}
        for name, attr in node.attributes.items():
            if name in inner:
                _take_types(attr.value, inner[name])


def _share_dtypes(node: Any, schema: onnx.defs.OpSchema) -> None:
    """Element types that outputs share with inputs."""
    by_name: dict[str, ir.DataType] = {}
    formals, out_formals = list(schema.inputs), list(schema.outputs)
    for k, v in enumerate(node.inputs):
        if v is not None and v.dtype is not None:
            by_name.setdefault(formals[min(k, len(formals) - 1)].type_str, v.dtype)
    for k, value in enumerate(node.outputs):
        if value.dtype is None:
            value.dtype = by_name.get(out_formals[min(k, len(out_formals) - 1)].type_str)


def _refine(node: Any, schema: onnx.defs.OpSchema) -> None:
    """What onnx's inference leaves open: an element type shared with an input, a shape given by known elements."""
    _share_dtypes(node, schema)
    result = node.outputs[0]
    if node.op_type == "Einsum" and all(v is not None for v in node.inputs):
        result.shape = einsum_shape(node.attributes["equation"].value, [v.shape for v in node.inputs]) or result.shape
    if result.shape is None or None in result.shape:
        shape = _target_shape(node)
        if shape is not None:
            result.shape = shape


def _target_shape(node: Any) -> tuple[Dim, ...] | None:
    if node.op_type == "ConstantOfShape" and node.inputs[0] is not None:
        return node.inputs[0].elements
    if len(node.inputs) < 2 or node.inputs[1] is None or node.inputs[1].elements is None:
        return None
    elements, source = node.inputs[1].elements, node.inputs[0]
    if node.op_type == "Expand" and source.shape is not None and len(source.shape) <= len(elements):
        padded = (1,) * (len(elements) - len(source.shape)) + source.shape
        return tuple(e if s == 1 or s == e else (s if e == 1 else None) for s, e in zip(padded, elements, strict=True))
    if node.op_type == "Reshape":
        keep_zero = "allowzero" in node.attributes and node.attributes["allowzero"].value == 1
        if -1 in elements or (0 in elements and not keep_zero):
            return None
        return elements
    return None


def shape_elements(node: Any) -> tuple[Dim, ...] | None:
    """The elements of an integer tensor computed from shapes, where onnx's inference sees only its type."""
    op_type, inputs = node.op_type, node.inputs
    first = inputs[0] if inputs else None
    if first is None:
        return None
    if op_type == "Shape" and first.shape is not None:
        start = node.attributes["start"].value if "start" in node.attributes else 0
        end = node.attributes["end"].value if "end" in node.attributes else None
        return first.shape[slice(start, end)]
    if op_type == "Size" and first.size is not None:
        return (first.size,)
    if op_type == "Concat" and all(v is not None and v.elements is not None for v in inputs):
        return tuple(e for v in inputs for e in v.elements)
    if first.elements is None:
        return None
    if op_type in ("Squeeze", "Unsqueeze", "Identity") and (op_type == "Identity" or len(first.elements) == 1):
        return first.elements if node.outputs[0].shape is not None and len(node.outputs[0].shape) <= 1 else None
    if op_type == "Reshape" and node.outputs[0].shape is not None and len(node.outputs[0].shape) <= 1:
        return first.elements
    if op_type == "Cast" and node.outputs[0].dtype == ir.DataType.INT64:
        return first.elements
    if op_type == "Gather" and len(inputs) == 2 and inputs[1] is not None and inputs[1].const is not None:
        index, size = inputs[1].const, len(first.elements)
        if index.ndim <= 1 and first.shape is not None and len(first.shape) == 1 and (abs(index + 0.5) < size).all():
            return tuple(first.elements[int(i)] for i in index.reshape(-1))
    if op_type == "Slice" and first.shape is not None and len(first.shape) == 1:
        bounds = [v.const.reshape(-1) for v in inputs[1:] if v is not None and v.const is not None]
        if len(bounds) == len(inputs) - 1 and len(bounds) >= 2 and all(b.size == 1 for b in bounds):
            step = int(bounds[3][0]) if len(bounds) > 3 else 1
            start, end = int(bounds[0][0]), int(bounds[1][0])
            if step > 0:
                return first.elements[start:end:step] if abs(start) < 2**31 else None
    return None


def evaluate(node: Any, opset: int) -> np.ndarray | None:
    """The single output of a node whose inputs are all known, or None where it cannot be computed.

    Nothing is computed either where the reference implementation and inference disagree about the shape.
    """
    from onnx.reference import ReferenceEvaluator

    given = {f"i{k}": v for k, v in enumerate(node.inputs) if v is not None}
    feeds = {name: v.const for name, v in given.items()}
    graph = onnx.helper.make_graph(
        [node_proto(node)],
        "fold",
        [onnx.helper.make_value_info(name, type_proto(v)) for name, v in given.items()],
        [onnx.helper.make_value_info("o0", onnx.TypeProto())],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=_IR_VERSION)
    try:
        with np.errstate(all="ignore"):
            outputs: Any = ReferenceEvaluator(model).run(None, feeds)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, AttributeError):
        return None
    if not isinstance(outputs[0], np.ndarray | np.generic):
        return None
    result, shape = np.asarray(outputs[0]), node.outputs[0].shape
    agrees = shape is None or (
        len(shape) == result.ndim
        and all(not isinstance(d, int) or d == size for d, size in zip(shape, result.shape, strict=True))
    )
    return result if agrees else None
