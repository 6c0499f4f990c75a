"""Prepares nodes with subgraphs: shared initializers, rewriting, shapes that hold in every iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
import onnx.numpy_helper
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.expand import replace_value
from gradgen.engine.flow import Flow, flows_of, structural_form
from gradgen.engine.inference import set_shape
from gradgen.engine.knowledge import Constants, Knowledge
from gradgen.engine.link import Linker
from gradgen.engine.names import Names
from gradgen.engine.registry import Rules, form_function
from gradgen.engine.serde import to_proto
from gradgen.engine.shaping import infer_types_of
from gradgen.engine.subgraphs import discard, free_values, graphs, hoist_initializers
from gradgen.engine.surgery import remove_node
from gradgen.engine.values import Shape, is_float
from gradgen.rules.elements import SCALARS

Deduce = Callable[[onnx.GraphProto], onnx.GraphProto]


def settle(model: ir.Model, rules: Rules, infer: Callable[[ir.Model], ir.Model]) -> ir.Model:
    """The model with its subgraphs settled; `infer` infers shapes anew after a change.

    A node whose rule has a `rewrite` gives way to what that returns: a branch that is known to be taken, the loop that
    an operator stands for. A value that is carried from one iteration to the next gets the shape of its first where
    that is shown to be the same in all, by induction.
    """
    if not any(graphs(node) for node in model.graph):
        return model
    hoist_initializers(model.graph)
    seen: dict[bytes, onnx.GraphProto] = {}
    while True:
        if rewritten := _rewrite(model.graph, rules, _knowledge(model.graph, rules.opset)):
            model = infer(model)
            _scalars(model.graph, rules)
        before, model = model, _learn_all(model, rules, infer, seen)
        if model is before and not rewritten:
            return model


def _learn_all(
    model: ir.Model, rules: Rules, infer: Callable[[ir.Model], ir.Model], seen: dict[bytes, onnx.GraphProto]
) -> ir.Model:
    """The model with all shapes inside its subgraphs that can be shown; the same one where none was new.

    `seen` keeps what was deduced of each graph: one within others is met again from each of them.
    """
    imports = [onnx.helper.make_opsetid(d, v) for d, v in model.opset_imports.items()]

    def deduce(graph: onnx.GraphProto) -> onnx.GraphProto:
        """A graph with inferred shapes; those of loops inside it are shown on the way."""
        key = graph.SerializeToString(deterministic=True)
        if key not in seen:
            seen[key] = deduced(graph)
        return seen[key]

    def deduced(graph: onnx.GraphProto) -> onnx.GraphProto:
        found = infer_types_of(onnx.helper.make_model(graph, opset_imports=imports, ir_version=10))
        if not any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
            return found.graph
        again = _learn_all(ir.from_proto(found), rules, lambda m: ir.from_proto(infer_types_of(to_proto(m))), seen)
        return to_proto(again).graph

    while True:
        knowledge = _knowledge(model.graph, rules.opset)
        flows = [(n, f) for n in _nodes(model.graph) for f in flows_of(n, rules.of(n))]
        if not any([_learn(node, flow, knowledge, deduce) for node, flow in flows]):
            return model
        model = infer(model)


def _scalars(graph: ir.Graph, rules: Rules) -> None:
    """Take the axis off vectors of one element where an op wants scalars: a rewriting has shown that they are vectors."""
    names = Names.of(graph)
    for node in ir.traversal.RecursiveGraphIterator(graph):
        for index in SCALARS.get(node.op_type, ()) if node.domain == "" else ():
            value = node.inputs[index]
            if value is None or ir_shape(value) != (1,) or node.graph is None:
                continue
            scalar = ir.Value(name=names.unique(f"{value.name}/scalar"), type=value.type, shape=ir.Shape([]))
            squeeze = ir.Node("", "Squeeze", [value], outputs=[scalar], name=names.unique(f"{scalar.name}/Squeeze"))
            node.graph.insert_before(node, squeeze)
            node.replace_input_with(index, scalar)


def rewrite_nodes(graph: ir.Graph, rules: Rules) -> None:
    """Let the rules of nodes with subgraphs rewrite them."""
    if any(graphs(node) for node in graph):
        hoist_initializers(graph)
        while _rewrite(graph, rules, _knowledge(graph, rules.opset)):
            pass


def _nodes(graph: ir.Graph) -> list[ir.Node]:
    """Every node of a graph that has subgraphs, an outer one before those inside it."""
    found = []
    for node in graph:
        if inside := graphs(node):
            found.append(node)
            found.extend(inner for graph in inside for inner in _nodes(graph))
    return found


def _knowledge(graph: ir.Graph, opset: int) -> Knowledge:
    """What is known whatever is fed, and whatever training changes."""
    from gradgen.engine.prepare import learn_constants

    stored = [v for v in graph.initializers.values() if is_float(v.dtype)]
    knowledge = Knowledge({*graph.inputs, *stored})
    learn_constants(graph, knowledge, opset)
    return knowledge


def _rewrite(graph: ir.Graph, rules: Rules, knowledge: Knowledge) -> bool:
    """Let rules rewrite their nodes; whether any did."""
    rewriting = [(n, f) for n in _nodes(graph) if (f := _rewriter(n, rules)) is not None]
    if not rewriting:
        return False
    names = Names.of(graph)
    linker = Linker(graph, rules.registry, rules.opset, knowledge, names, Constants(graph, names))
    changed, gone = False, set()
    for node, rewriter in rewriting:
        owner = node.graph
        if owner is None or node in gone:
            continue
        results = rewriter(node, linker.within(owner).anchored(node))
        if results is None:
            continue
        for old, new in zip(node.outputs, results, strict=True):
            old.shape = new.shape or old.shape
            replace_value(old, new, linker, owner)
        remove_node(node)
        for inner in graphs(node):
            gone.update(_nodes(inner))
            discard(inner)
        changed = True
    return changed


def _rewriter(node: ir.Node, rules: Rules) -> Callable | None:
    form = structural_form(rules.of(node))
    return None if form is None else form_function(form).rewrite


def _learn(node: ir.Node, flow: Flow, knowledge: Knowledge, deduce: Deduce) -> bool:
    """Give the values of a subgraph the types and shapes that hold in every iteration; whether any was new."""
    learnt = _learn_inputs(node, flow)
    body = ir.to_proto(flow.graph)
    for value in free_values(flow.graph):
        content = knowledge.constant(value)
        if content is not None and value.name:
            body.initializer.append(onnx.numpy_helper.from_array(content, value.name))
        else:
            body.input.append(ir.to_proto(value))
    entered, left = {j: i for i, j in flow.enters}, dict(flow.leaves)
    shapes: dict[tuple[int, int], Shape] = {}
    for o, j in flow.repeats:
        first = node.inputs[entered[j]]
        shape = None if first is None else ir_shape(first)
        if shape is not None and isinstance(flow.graph.inputs[j].type, ir.TensorType):
            shapes[o, j] = shape
    inferred, shapes = _by_induction(body, shapes, deduce)
    for (o, j), shape in shapes.items():
        outputs = [node.outputs[left[o]]] if o in left else []
        learnt = any([_state(value, shape) for value in (flow.graph.inputs[j], *outputs)]) or learnt
    known = {d.dim_param for info in _infos(body) for d in info.type.tensor_type.shape.dim}
    known |= {d for shape in shapes.values() for d in shape if isinstance(d, str)}
    return _state_all(flow.graph, inferred, known) or learnt


def _learn_inputs(node: ir.Node, flow: Flow) -> bool:
    """What follows from the node's inputs alone; whether any was new."""
    learnt, axes = False, dict(flow.sliced)
    for i, j in flow.enters:
        outer, value = node.inputs[i], flow.graph.inputs[j]
        if outer is None or outer.type is None:
            continue
        if value.type is None:
            value.type, learnt = outer.type, True
        shape = ir_shape(outer)
        if j in axes and shape is not None:
            axis = axes[j] % max(len(shape), 1)
            learnt = _state(value, (*shape[:axis], *shape[axis + 1 :])) or learnt
    return learnt


def _state(value: ir.Value, shape: Shape) -> bool:
    """Give a value a shape that says more than the one it has; whether it does."""
    old = ir_shape(value)
    if old is not None and len(old) != len(shape):
        return False
    merged = shape
    if old is not None:
        merged = tuple([n if o is None or isinstance(n, int) else o for n, o in zip(shape, old, strict=True)])
    if merged == old:
        return False
    value.shape = ir.Shape(merged)
    return True


def _state_all(graph: ir.Graph, inferred: onnx.GraphProto, known: set[str]) -> bool:
    """Give the values inside a graph their inferred shapes; names that only the inference knows are left out."""
    learnt, types = False, {info.name: info.type for info in _infos(inferred)}
    protos = {proto.output[0]: proto for proto in inferred.node if proto.output}
    for node in graph:
        for value in node.outputs:
            kind = types.get(value.name or "")
            if kind is None or not kind.tensor_type.HasField("shape"):
                continue
            if value.type is None:
                value.type = ir.TensorType(ir.DataType(kind.tensor_type.elem_type))
            dims = [d if isinstance(d, int) or d in known else None for d in _dims(kind)]
            learnt = _state(value, tuple(dims)) or learnt
        proto = protos.get(node.outputs[0].name or "") if node.outputs else None
        for attribute in proto.attribute if proto is not None else ():
            if attribute.HasField("g"):
                learnt = _state_all(node.attributes[attribute.name].value, attribute.g, known) or learnt
    return learnt


def _by_induction(
    body: onnx.GraphProto, shapes: dict[tuple[int, int], Shape], deduce: Deduce
) -> tuple[onnx.GraphProto, dict[tuple[int, int], Shape]]:
    """The subgraph with inferred shapes, and the shapes of carried values by (output, input).

    They hold for the first value, and for the next if they hold for the one before. A dimension that the subgraph
    changes is left open, until nothing changes.
    """
    while True:
        graph = deduce(_supposing(body, {j: shape for (_, j), shape in shapes.items()}))
        weaker = {(o, j): _agree(shape, graph.output[o].type) for (o, j), shape in shapes.items()}
        if weaker == shapes:
            return graph, shapes
        shapes = {pair: shape for pair, shape in weaker.items() if shape is not None}


def _agree(shape: Shape, kind: onnx.TypeProto) -> Shape | None:
    """What a shape and a type have in common."""
    dims = _dims(kind)
    if not kind.tensor_type.HasField("shape") or len(dims) != len(shape):
        return None
    return tuple(a if a == b else None for a, b in zip(shape, dims, strict=True))


def _supposing(body: onnx.GraphProto, shapes: Mapping[int, Shape]) -> onnx.GraphProto:
    """A copy of a subgraph whose inputs have these shapes."""
    graph = onnx.GraphProto()
    graph.CopyFrom(body)
    for j, shape in shapes.items():
        set_shape(graph.input[j].type, shape)
    return graph


def _infos(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    return [*graph.input, *graph.output, *graph.value_info]


def _dims(kind: onnx.TypeProto) -> list[int | str | None]:
    dims = kind.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in dims]
