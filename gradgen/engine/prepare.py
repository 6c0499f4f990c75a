"""Prepares a model: reads it, inlines its functions, raises its opset, infers shapes, learns constants."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.shape_inference
import onnx_ir as ir

from gradgen.engine.declarations import check_declarations
from gradgen.engine.external import BASE_KEY
from gradgen.engine.forward import fill_bodies, move_strays
from gradgen.engine.inference import evaluate, infer_shapes, shape_elements
from gradgen.engine.link import Knowledge, small
from gradgen.engine.opsets import raise_opset
from gradgen.engine.reading import Model, check, densify, normalise_domains, open_dimensions, read
from gradgen.engine.registry import Registry, is_random
from gradgen.engine.settling import settle
from gradgen.engine.subgraphs import graphs
from gradgen.engine.values import is_float

MODEL_OPSET = 21


@dataclass(eq=False)
class Prepared:
    """A model that the reverse pass can work on.

    Attributes:
        model: the onnx_ir model, at opset 21 or later.
        opset: its ai.onnx opset.
        as_ir: whether the caller handed in an onnx_ir model.
    """

    model: ir.Model
    opset: int
    as_ir: bool


def prepare(model: Model, registry: Registry, types: bool = True) -> Prepared:
    """Read a model and bring it into the form that the reverse pass works on.

    Args:
        model: what the caller handed in.
        registry: the rules; a model's own function that has one is not inlined.
        types: False leaves out inference and the raising of old opsets, for a look at the model alone.

    Raises:
        GradientError: for a file that is missing or no model, and for a model that the standard does not admit.
    """
    proto, as_ir = read(model)
    normalise_domains(proto)
    move_strays(proto, registry)
    check(proto)
    open_dimensions(proto)
    densify(proto)
    proto = _inline_functions(proto, registry)
    proto = infer(proto, registry, declared=True) if types else proto
    ir_model = _from_proto(proto)
    if (ir_model.ir_version or 0) < 4:
        # Before IR 4 every initializer had to be a graph input too, and runtimes never let a caller override it.
        stored = set(ir_model.graph.initializers.values())
        kept = [v for v in ir_model.graph.inputs if v not in stored]
        ir_model.graph.inputs.clear()
        ir_model.graph.inputs.extend(kept)
    opset = ir_model.opset_imports.get("")
    if opset is None:
        ir_model.opset_imports[""] = opset = MODEL_OPSET
    if opset < MODEL_OPSET and types:
        raise_opset(ir_model, MODEL_OPSET)
        ir_model = _from_proto(infer(ir.to_proto(ir_model), registry))
        opset = MODEL_OPSET
    if types:
        ir_model = settle(ir_model, registry, opset, lambda m: _from_proto(infer(ir.to_proto(m), registry)))
    return Prepared(ir_model, opset, as_ir)


def _from_proto(proto: onnx.ModelProto) -> ir.Model:
    """The onnx_ir model, which knows where its external data is."""
    model = ir.from_proto(proto)
    if base := model.metadata_props.get(BASE_KEY):
        for value in [v for graph in model.graphs() for v in graph.initializers.values()]:
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value.base_dir = base
    return model


def infer(proto: onnx.ModelProto, registry: Registry, declared: bool = False) -> onnx.ModelProto:
    """Infer shapes, with the values of shape computations propagated; what cannot be inferred stays open.

    onnx leaves the rank open where a shape is computed at run time, though the length of that shape states it, and
    knows nothing of the results of some ops, where a row's `like` or its forward body does: these are filled in, and
    what follows from them is inferred again.

    Raises:
        GradientError: with `declared`, if the types that the model declares are not those that its nodes compute.
    """
    overridable = _take_overridable(proto)
    spelled = _spell_defaults(proto)
    if declared:
        check_declarations(proto)
    while True:
        try:
            proto = infer_shapes(proto)
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
            break
        if not any([_fill_ranks(proto.graph), _fill_alike(proto, registry), fill_bodies(proto, registry)]):
            break
    proto.graph.initializer.extend(overridable)
    for node, given in zip(proto.graph.node, spelled, strict=True):
        del node.attribute[given:]
    return proto


def _spell_defaults(proto: onnx.ModelProto) -> list[int]:
    """Write out integer attributes that are absent and not 0 by default: onnx's inference takes some of them for 0.

    Returns how many attributes each node of the main graph had.
    """
    opset = next((e.version for e in proto.opset_import if e.domain in ("", "ai.onnx")), MODEL_OPSET)
    counts = [len(node.attribute) for node in proto.graph.node]
    for node in proto.graph.node:
        defaults = _nonzero_defaults(node.op_type, opset) if not node.domain else ()
        if defaults:
            given = {a.name for a in node.attribute}
            node.attribute.extend(a for a in defaults if a.name not in given)
    return counts


@functools.cache
def _nonzero_defaults(op_type: str, opset: int) -> tuple[onnx.AttributeProto, ...]:
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return ()
    return tuple(a.default_value for a in schema.attributes.values() if a.default_value.i)


def _take_overridable(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Remove the initializers that a caller may override, so that inference does not take their content as known."""
    inputs = {i.name for i in proto.graph.input} if proto.ir_version >= 4 else set()
    if not any(t.name in inputs for t in proto.graph.initializer):
        return []
    every = list(proto.graph.initializer)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(t for t in every if t.name not in inputs)
    return [t for t in every if t.name in inputs]


def _fill_ranks(graph: onnx.GraphProto) -> bool:
    """Give results of computed shapes the rank that the length of the shape states; whether there were any."""
    computed = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}
    nodes = [n for n in graph.node if n.op_type in computed and not n.domain]
    if not nodes:
        return False
    known = {v.name: v for v in [*graph.input, *graph.output, *graph.value_info]}
    lengths = {t.name: t.dims[0] for t in graph.initializer if len(t.dims) == 1}
    found = False
    for node in nodes:
        position = computed[node.op_type]
        info = known.get(node.output[0]) if len(node.input) > position else None
        if info is None or info.type.tensor_type.HasField("shape") or not info.type.HasField("tensor_type"):
            continue
        shape = known.get(node.input[position])
        length = lengths.get(node.input[position])
        if length is None and shape is not None and len(shape.type.tensor_type.shape.dim) == 1:
            dim = shape.type.tensor_type.shape.dim[0]
            length = dim.dim_value if dim.HasField("dim_value") else None
        if length is None or (node.op_type == "Expand" and not _ranked(known.get(node.input[0]), length)):
            continue
        info.type.tensor_type.shape.SetInParent()
        info.type.tensor_type.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in range(length))
        found = True
    return found


def _fill_alike(proto: onnx.ModelProto, registry: Registry) -> bool:
    """Give outputs without an inferred shape the type of the input that their row names; whether there were any."""
    graph = proto.graph
    version = next((e.version for e in proto.opset_import if e.domain == ""), MODEL_OPSET)
    known = {v.name: v for v in [*graph.input, *graph.output, *graph.value_info]}
    known |= {
        t.name: onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
        for t in graph.initializer
        if t.name not in known
    }
    found = False
    for node in graph.node:
        row = registry.find(node.domain, node.op_type, version)
        if row is None or not row.like or row.straight_through is not None:
            continue
        inputs = {row.input_name(i): name for i, name in enumerate(node.input)}
        for index, name in enumerate(node.output):
            source = known.get(inputs.get(row.like.get(row.output_name(index), ""), ""))
            info = known.get(name)
            if source is None or not source.type.tensor_type.HasField("shape"):
                continue
            if info is None:
                info = known[name] = graph.value_info.add(name=name)
            if not info.type.tensor_type.HasField("shape"):
                info.type.CopyFrom(source.type)
                found = True
    return found


def _ranked(info: onnx.ValueInfoProto | None, most: int) -> bool:
    """Whether a value's rank is known and at most `most`."""
    return info is not None and info.type.tensor_type.HasField("shape") and len(info.type.tensor_type.shape.dim) <= most


def _inline_functions(proto: onnx.ModelProto, registry: Registry) -> onnx.ModelProto:
    """Inline the model's own functions, except those that have a rule."""
    if not proto.functions:
        return proto
    defaults = {(f.domain, f.name): list(f.attribute_proto) for f in proto.functions}
    version = next((e.version for e in proto.opset_import if e.domain == ""), MODEL_OPSET)

    def bind(nodes: Any) -> None:
        for node in nodes:
            given = {a.name for a in node.attribute}
            node.attribute.extend(a for a in defaults.get((node.domain, node.op_type), ()) if a.name not in given)
            for attribute in node.attribute:
                bind(attribute.g.node)

    bind(proto.graph.node)
    for function in proto.functions:
        bind(function.node)
        del function.value_info[:]  # its dimension names are those of one call, and would be shared by all
    kept = [(f.domain, f.name) for f in proto.functions if registry.find(f.domain, f.name, version) is not None]
    return (
        onnx.inliner.inline_selected_functions(proto, kept, exclude=True)
        if kept
        else onnx.inliner.inline_local_functions(proto)
    )


def learn_constants(graph: ir.Graph, knowledge: Knowledge, opset: int) -> None:
    """Learn the contents of integer values that are computed from constants and static shapes."""
    from gradgen.engine.builder import BodyNode
    from gradgen.engine.values import Value

    elements: dict[ir.Value, Value] = {}

    def describe(value: ir.Value | None) -> Value | None:
        if value is None:
            return None
        if value not in elements:
            elements[value] = knowledge.describe(value, {})
        return elements[value]

    for node in ir.traversal.RecursiveGraphIterator(graph):
        if node.domain or len(node.outputs) != 1 or graphs(node) or is_random("", node.op_type):
            continue
        if node.op_type == "Constant":
            content = constant_content(node)
            if content is not None and node.outputs[0] not in knowledge.variable:
                knowledge.learn(node.outputs[0], content)
            continue
        if is_float(node.outputs[0].dtype):
            continue
        inputs = [describe(v) for v in node.inputs]
        out = knowledge.describe(node.outputs[0], {})
        body = BodyNode("", node.op_type, inputs, [out], dict(node.attributes))
        found = shape_elements(body)
        content = None
        if found is not None:
            out.elements = found
            elements[node.outputs[0]] = out
            if all(isinstance(e, int) for e in found) and out.shape is not None:
                content = np.asarray(found, np.int64).reshape(() if not out.shape else (-1,))
        elif (
            inputs
            and all(v is None or v.peek is not None for v in inputs)
            and (out.size or 0) <= 256
            and out.size is not None
        ):
            content = evaluate(body, opset)
        if content is not None:
            knowledge.learn(node.outputs[0], np.asarray(content))
            elements.pop(node.outputs[0], None)


def constant_content(node: ir.Node) -> np.ndarray | None:
    """The content of a Constant node, where it is small enough to be static knowledge."""
    for name, attr in node.attributes.items():
        if name in ("value_int", "value_ints"):
            return small(np.asarray(attr.value, np.int64))
        if name in ("value_float", "value_floats"):
            return small(np.asarray(attr.value, np.float32))
        if name == "value" and attr.value is not None and attr.value.dtype != ir.DataType.STRING:
            return small(attr.value.numpy()) if attr.value.size <= 256 else None
    return None
