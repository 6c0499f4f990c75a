"""Prepares a model: reads it, inlines its functions, raises its opset, infers shapes, learns constants."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from gradgen.engine.custom import expand_custom, keeps_call
from gradgen.engine.declarations import check_declarations
from gradgen.engine.external import BASE_KEY
from gradgen.engine.forward import fill_bodies, move_strays
from gradgen.engine.inference import evaluate
from gradgen.engine.knowledge import Knowledge, small
from gradgen.engine.opsets import raise_opset
from gradgen.engine.protos import Scope, imports
from gradgen.engine.reading import Model, check, densify, normalise_domains, open_dimensions, read, settle_pads
from gradgen.engine.registry import Registry, Rules, is_random
from gradgen.engine.serde import from_proto, to_proto
from gradgen.engine.settling import settle
from gradgen.engine.shaping import Fill, fill_type, infer_types_of, value_of
from gradgen.engine.subgraphs import every_node, graphs
from gradgen.engine.values import is_float
from gradgen.inlining import inline_functions
from gradgen.rules.elements import shape_elements
from gradgen.rules.lang import OPSET


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


def prepare(model: Model, registry: Registry, types: bool = True, fills: Sequence[Fill] = ()) -> Prepared:
    """Read a model and bring it into the form that the reverse pass works on.

    Args:
        model: what the caller handed in.
        registry: the rules; a model's own function that has one is not inlined.
        types: False leaves out inference and the raising of old opsets, for a look at the model alone.
        fills: what else fills in types that onnx cannot infer; see `infer_types_of`.

    Raises:
        GradientError: for a file that is missing or no model, and for a model that the standard does not admit.
    """
    proto, as_ir = read(model)
    normalise_domains(proto)
    move_strays(proto, registry)
    check(proto)
    open_dimensions(proto)
    settle_pads(proto)
    densify(proto)
    rules = Rules(registry, imports(proto))
    proto = inline_functions(proto, lambda f: keeps_call(rules.find(f.domain, f.name)))
    proto = infer(proto, registry, declared=True, fills=fills) if types else proto
    ir_model = _from_proto(proto)
    if (ir_model.ir_version or 0) < 4:
        # Before IR 4 every initializer had to be a graph input too, and runtimes never let a caller override it.
        stored = set(ir_model.graph.initializers.values())
        kept = [v for v in ir_model.graph.inputs if v not in stored]
        ir_model.graph.inputs.clear()
        ir_model.graph.inputs.extend(kept)
    opset = ir_model.opset_imports.get("")
    if opset is None:
        ir_model.opset_imports[""] = opset = OPSET
    if opset < OPSET and types:
        raise_opset(ir_model, OPSET)
        ir_model = _from_proto(infer(to_proto(ir_model), registry, fills=fills))
        opset = OPSET
    if types and expand_custom(ir_model, registry):
        ir_model = _from_proto(infer(to_proto(ir_model), registry, fills=fills))
    if types:
        ir_model = settle(
            ir_model,
            Rules(registry, ir_model.opset_imports),
            lambda m: _from_proto(infer(to_proto(m), registry, fills=fills)),
        )
    return Prepared(ir_model, opset, as_ir)


def _from_proto(proto: onnx.ModelProto) -> ir.Model:
    """The onnx_ir model, which knows where its external data is."""
    model = from_proto(proto)
    if base := model.metadata_props.get(BASE_KEY):
        for value in [v for graph in model.graphs() for v in graph.initializers.values()]:
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value.base_dir = base
    return model


def infer(
    proto: onnx.ModelProto, registry: Registry, declared: bool = False, fills: Sequence[Fill] = ()
) -> onnx.ModelProto:
    """Infer shapes, with the values of shape computations propagated; what cannot be inferred stays open.

    onnx leaves the rank open where a shape is computed at run time, though the length of that shape states it, and
    knows nothing of the results of some ops, where a row's `like` or its forward body does: these are filled in, and
    what follows from them is inferred again.

    Raises:
        GradientError: with `declared`, if the types that the model declares are not those that its nodes compute.
    """
    overridable = _take_overridable(proto)
    rules = Rules(registry, imports(proto))
    own = [functools.partial(fill, rules=rules) for fill in (_fill_alike, fill_bodies)]
    proto = infer_types_of(proto, [*own, *fills], check_declarations if declared else None)
    proto.graph.initializer.extend(overridable)
    return proto


def _take_overridable(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Remove the initializers that a caller may override, so that inference does not take their content as known."""
    inputs = {i.name for i in proto.graph.input} if proto.ir_version >= 4 else set()
    if not any(t.name in inputs for t in proto.graph.initializer):
        return []
    every = list(proto.graph.initializer)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(t for t in every if t.name not in inputs)
    return [t for t in every if t.name in inputs]


def _fill_alike(known: Sequence[Scope], rules: Rules) -> bool:
    """Give outputs without an inferred shape the type of the input that their row names; whether there were any."""
    found = False
    for scope in known:
        for node in scope.graph.node:
            row = rules.of(node)
            if row is None or not row.like or row.straight_through is not None:
                continue
            inputs = {row.input_name(i): name for i, name in enumerate(node.input)}
            for index, name in enumerate(node.output):
                source = value_of(scope, inputs.get(row.like.get(row.output_name(index), ""), ""))
                if source is None or source.shape is None or not name:
                    continue
                found |= fill_type(scope, name, source)
    return found


def learn_constants(graph: ir.Graph, knowledge: Knowledge, opset: int) -> None:
    """Learn the contents of integer values that are computed from constants and static shapes."""
    from gradgen.engine.builder import BodyNode
    from gradgen.engine.values import Value

    elements: dict[ir.Value, Value] = {}

    def describe(value: ir.Value | None) -> Value | None:
        if value is None:
            return None
        if value not in elements:
            # Names of dimensions mean nothing across values here: they are never compared, and only elements that are
            # all sizes become a content.
            elements[value] = knowledge.describe(value, {})
        return elements[value]

    for node in every_node(graph):
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
