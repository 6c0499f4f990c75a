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

from gradgen.engine.contract import MisfitError, contradict, merge_shapes
from gradgen.engine.defaults import spell_defaults, spell_node
from gradgen.engine.propagation import propagated
from gradgen.engine.values import Shape, Value
from gradgen.rules.elements import stated_shape
from gradgen.rules.products import CORRECTED, LOST, RANKS, Operand, ranks_of

_IR_VERSION = 10
# What onnx's inference says of operands and attributes that no node can have; it checks some ops, others not at all.
CONTRADICTIONS = ("Incompatible dimensions", "Dimension mismatch", "existing shape differ", "incompatible shapes",
                   "Unknown value", "Unexpected axis value")  # fmt: skip


def type_proto(value: Value) -> onnx.TypeProto:
    """The value's type as onnx writes it; an unknown rank or element type is left out."""
    proto = onnx.TypeProto()
    if value.dtype is not None:
        proto.tensor_type.elem_type = int(value.dtype)
    if value.shape is not None:
        set_shape(proto, value.shape)
    return proto


def set_shape(proto: onnx.TypeProto, shape: Shape) -> None:
    """Give the type of a tensor a shape."""
    tensor = proto.tensor_type
    tensor.ClearField("shape")
    tensor.shape.SetInParent()
    for d in shape:
        dim = tensor.shape.dim.add()
        if isinstance(d, int):
            dim.dim_value = d
        elif d is not None:
            dim.dim_param = d


def set_type(value: Value, proto: onnx.TypeProto) -> None:
    """Give a value what is known of its type."""
    if not proto.HasField("tensor_type"):
        return
    tensor = proto.tensor_type
    if tensor.elem_type:
        value.dtype = ir.DataType(tensor.elem_type)
    if tensor.HasField("shape"):
        value.shape = tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim)


def infer_shapes(proto: onnx.ModelProto, inferred: onnx.ModelProto | None = None) -> onnx.ModelProto:
    """onnx's shape inference without what it gets wrong.

    It makes sizes of 0 of unknown ones (Attention's total length): a result of size 0 whose node reads unknown sizes
    and no 0 is taken for unknown, and what follows from it with it. Of sizes that
    broadcast it takes the first, in some ops (gradgen.rules.products). `inferred` is what onnx's inference gives for the
    model, where the caller knows.
    """
    stated: dict[int, list[onnx.ValueInfoProto]] = {}
    inferred = propagated(proto) if inferred is None else inferred
    while (right := _corrections(inferred, stated)) != stated:
        stated = right
        inferred = _infer(proto, stated)
    return inferred


def _infer(proto: onnx.ModelProto, stated: Mapping[int, list[onnx.ValueInfoProto]]) -> onnx.ModelProto:
    """onnx's inference, where some nodes, by position, have results of stated types."""
    if not stated:
        return propagated(proto)
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
    result = propagated(result)
    for index in stated:
        result.graph.node[index].domain = proto.graph.node[index].domain
    del result.opset_import[-1]
    return result


def _corrections(
    inferred: onnx.ModelProto, stated: Mapping[int, list[onnx.ValueInfoProto]]
) -> dict[int, list[onnx.ValueInfoProto]]:
    """The right types of all results of nodes of which inference gets one wrong, by the nodes' position."""
    known = {v.name: v for v in [*inferred.graph.input, *inferred.graph.output, *inferred.graph.value_info]}
    empty = {name for name, value in known.items() if _is_empty(value)}
    suspects = [
        (index, node)
        for index, node in enumerate(inferred.graph.node)
        if node.op_type in CORRECTED or index in stated or (empty and not empty.isdisjoint(node.output))
    ]
    if not suspects:
        return {}
    stored = {t.name: tuple(t.dims) for t in inferred.graph.initializer if t.name not in known}
    contents = _contents(inferred.graph) if any(node.op_type in CORRECTED for _, node in suspects) else {}
    right: dict[int, list[onnx.ValueInfoProto]] = {}
    for index, node in suspects:
        results = [known[name] for name in node.output if name in known]
        shapes = [stored[n] if n in stored else _shape(known.get(n)) for n in node.input]
        wanted = {v.name: _shape(v) for v in results}
        if node.op_type in CORRECTED and not node.domain and results:
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            inputs = [Operand(s, contents.get(n)) if n else None for n, s in zip(node.input, shapes, strict=True)]
            found = CORRECTED[node.op_type](attributes, inputs, [_shape(known.get(n)) for n in node.output])
            wanted |= {name: shape for name, shape in zip(node.output, found, strict=True) if name in wanted}
        sizes = {d if isinstance(d, int) else None for shape in shapes for d in shape or ()}
        if None in sizes and 0 not in sizes:
            wanted = {
                n: None if shape is None else tuple(None if d == 0 else d for d in shape) for n, shape in wanted.items()
            }
        if index in stated or any(wanted[v.name] != _shape(v) for v in results):
            right[index] = [v if (shape := wanted[v.name]) is None else _shaped(v, shape) for v in results]
    return right


def _contents(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """The constants of one element in a graph: initializers that are no inputs, and Constant nodes."""
    inputs = {v.name for v in graph.input}
    small = {t.name: t for t in graph.initializer if t.name not in inputs and int(np.prod(t.dims)) == 1}
    small |= {n.output[0]: a.t for n in graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"}
    local = {name: t for name, t in small.items() if t.data_location != onnx.TensorProto.EXTERNAL}
    found = {name: onnx.numpy_helper.to_array(t) for name, t in local.items() if int(np.prod(t.dims)) == 1}
    numbers = {
        n.output[0]: a.i for n in graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value_int"
    }
    return found | {name: np.asarray(i) for name, i in numbers.items()}


def _shape(value: onnx.ValueInfoProto | None) -> Shape | None:
    if value is None or not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in dims)


def _is_empty(value: onnx.ValueInfoProto) -> bool:
    """Whether a size of a value is known to be 0."""
    return any([not d.dim_value and d.HasField("dim_value") for d in value.type.tensor_type.shape.dim])


def _shaped(value: onnx.ValueInfoProto, shape: Shape) -> onnx.ValueInfoProto:
    """A value of the same name and element type."""
    return onnx.helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shape)


def node_proto(node: Any, opset: int) -> onnx.NodeProto:
    """A body node as a NodeProto whose inputs are i0, i1, … and whose outputs are o0, o1, …; defaults are written out
    where onnx's inference gets them wrong."""
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    proto.input.extend("" if v is None else f"i{k}" for k, v in enumerate(node.inputs))
    proto.output.extend(f"o{k}" for k in range(len(node.outputs)))
    proto.attribute.extend(ir.serde.serialize_attribute(a) for a in node.attributes.values())
    spell_node(proto, opset)
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
            schema, node_proto(node, opset), types, data, None, [onnx.helper.make_opsetid("", opset)], _IR_VERSION
        )
    except (InferenceError, RuntimeError, ValueError) as error:
        if any(mark in str(error) for mark in CONTRADICTIONS):
            line = " ".join(str(error).split())[:200]
            raise MisfitError(f"its operands do not fit together, at {node.op_type}: {line}") from error
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
    spell_defaults(model.graph, opset)
    try:
        inferred = propagated(model).graph.node[0]
    except (InferenceError, RuntimeError, ValueError):
        return
    found = {a.name: [a.g] if a.type == onnx.AttributeProto.GRAPH else list(a.graphs) for a in inferred.attribute}
    for name, attr in node.attributes.items():
        held = [attr.value] if attr.type == ir.AttributeType.GRAPH else attr.value
        for graph, typed in zip(held, found[name], strict=True) if found[name] else ():
            take_types(graph, typed)


def take_types(graph: ir.Graph, typed: onnx.GraphProto, named: bool = False) -> None:
    """Copy the types that a graph's values lack from its inferred form, nested graphs included.

    Names of dimensions come along where they are those of the graph, as `named` says.
    """
    known = {v.name: v.type for v in [*typed.input, *typed.output, *typed.value_info]}
    for value in [*graph.inputs, *(v for node in graph for v in node.outputs)]:
        found = Value()
        set_type(found, known.get(value.name, onnx.TypeProto()))
        if value.type is None and found.dtype is not None:
            value.type = ir.TensorType(found.dtype)
        if value.shape is None and found.shape is not None:
            value.shape = ir.Shape([d if named or isinstance(d, int) else None for d in found.shape])
    for node, proto in zip(graph, typed.node, strict=True):
        inner = {a.name: a.g for a in proto.attribute if a.type == onnx.AttributeProto.GRAPH}
        for name, attr in node.attributes.items():
            if name in inner:
                take_types(attr.value, inner[name], named)


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
    if node.op_type in LOST and not node.domain:
        attributes = {name: a.value for name, a in node.attributes.items()}
        inputs = [None if v is None else Operand(v.shape, v.peek) for v in node.inputs]
        found = LOST[node.op_type](attributes, inputs, [v.shape for v in node.outputs])
        for value, shape in zip(node.outputs, found, strict=True):
            value.shape = shape
    if node.op_type in RANKS and not node.domain:
        shapes = [None if v is None else v.shape for v in node.inputs]
        for value, rank in zip(node.outputs, ranks_of(node.op_type, shapes), strict=False):
            value.shape = (None,) * rank if value.shape is None and rank is not None else value.shape
    if result.shape is None or None in result.shape:
        shape = stated_shape(node)
        if shape is not None and not contradict(result.shape, shape):
            result.shape = merge_shapes(result.shape, shape)


def evaluate(node: Any, opset: int) -> np.ndarray | None:
    """The single output of a node whose inputs are all known, or None where it cannot be computed.

    Nothing is computed either where the reference implementation and inference disagree about the shape.
    """
    from onnx.reference import ReferenceEvaluator

    given = {f"i{k}": v for k, v in enumerate(node.inputs) if v is not None}
    feeds = {name: v.const for name, v in given.items()}
    graph = onnx.helper.make_graph(
        [node_proto(node, opset)],
        "fold",
        [onnx.helper.make_value_info(name, type_proto(v)) for name, v in given.items()],
        [onnx.helper.make_value_info("o0", onnx.TypeProto())],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=_IR_VERSION)
    try:
        with np.errstate(all="ignore"):
            outputs: Any = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # numpy has many ways to refuse what a model holds; what cannot be computed is not known
        return None
    if not isinstance(outputs[0], np.ndarray | np.generic):
        return None
    result, shape = np.asarray(outputs[0]), node.outputs[0].shape
    agrees = shape is None or (
        len(shape) == result.ndim
        and all(not isinstance(d, int) or d == size for d, size in zip(shape, result.shape, strict=True))
    )
    return result if agrees else None
