"""Prepares nodes with subgraphs: shared initializers, rewriting to simpler nodes, shapes that hold in every iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
import onnx.shape_inference
import onnx_ir as ir

from gradgen.engine.expand import replace_value
from gradgen.engine.flow import Flow, flows_of, row_of, structural_form
from gradgen.engine.link import Constants, Knowledge, Linker, ir_shape
from gradgen.engine.names import Names
from gradgen.engine.registry import Registry, form_function
from gradgen.engine.subgraphs import discard, free_values, graphs, hoist_initializers
from gradgen.engine.values import Shape, is_float


def settle(model: ir.Model, registry: Registry, opset: int, infer: Callable[[ir.Model], ir.Model]) -> ir.Model:
    """The model with its subgraphs settled; `infer` infers shapes anew after a change.

    A node whose rule has a `rewrite` gives way to what that returns: a branch that is known to be taken, the loop that
    an operator stands for. A value that is carried from one iteration to the next gets the shape of its first where that
    is shown to be the same in all, by induction.
    """
    if not any(graphs(node) for node in model.graph):
        return model
    hoist_initializers(model.graph)
    while True:
        rewritten = rewrite_nodes(model.graph, registry, opset)
        if rewritten:
            model = infer(model)
        learnt = [_learn_shapes(n, registry, opset, model.opset_imports) for n in _nodes(model.graph)]
        if any(learnt):
            model = infer(model)
        elif not rewritten:
            return model


def _nodes(graph: ir.Graph) -> list[ir.Node]:
    """Every node of a graph that has subgraphs, an outer one before those inside it."""
    found = []
    for node in graph:
        if inside := graphs(node):
            found.append(node)
            found.extend(inner for graph in inside for inner in _nodes(graph))
    return found


def rewrite_nodes(graph: ir.Graph, registry: Registry, opset: int) -> bool:
    """Let rules rewrite their nodes; whether any did."""
    from gradgen.engine.prepare import learn_constants

    rewriting = [(n, f) for n in _nodes(graph) if (f := _rewriter(n, registry, opset)) is not None]
    if not rewriting:
        return False
    # What training changes decides nothing.
    stored = [v for v in graph.initializers.values() if is_float(v.dtype)]
    knowledge, names = Knowledge({*graph.inputs, *stored}), Names.of(graph)
    learn_constants(graph, knowledge, opset)
    linker = Linker(graph, registry, opset, knowledge, names, Constants(graph, names))
    changed = False
    for node, rewriter in rewriting:
        owner = node.graph
        if owner is None:  # in a subgraph that is gone
            continue
        results = rewriter(node, linker.within(owner).anchored(node))
        if results is None:
            continue
        for old, new in zip(node.outputs, results, strict=True):
            old.shape = new.shape or old.shape
            replace_value(old, new, linker, owner)
        owner.remove(node, safe=True)
        for inner in graphs(node):
            discard(inner)
        changed = True
    return changed


def _rewriter(node: ir.Node, registry: Registry, opset: int) -> Callable | None:
    form = structural_form(row_of(node, registry, opset))
    return None if form is None else form_function(form).rewrite


def _learn_shapes(node: ir.Node, registry: Registry, opset: int, imports: Mapping[str, int]) -> bool:
    """Give the values that a node's subgraphs carry the shapes that hold in every iteration; whether any was new."""
    learnt = False
    for flow in flows_of(node, row_of(node, registry, opset)):
        entered, left = {j: i for i, j in flow.enters}, dict(flow.leaves)
        shapes = _invariant_shapes(node, flow, imports)
        for (o, j), shape in shapes.items():
            values = [flow.graph.inputs[j], *([node.outputs[left[o]]] if o in left else [])]
            for value in values:
                if value is not node.inputs[entered[j]] and _says_more(shape, ir_shape(value)):
                    value.shape = ir.Shape(shape)
                    learnt = True
    return learnt


def _says_more(new: Shape, old: Shape | None) -> bool:
    """Whether a shape holds more sizes than another; names are taken only where nothing was known."""
    if old is None or len(new) != len(old):
        return old is None
    return any(
        o is None and n is not None or isinstance(n, int) and not isinstance(o, int)
        for n, o in zip(new, old, strict=True)
    )


def _invariant_shapes(node: ir.Node, flow: Flow, imports: Mapping[str, int]) -> dict[tuple[int, int], Shape]:
    """By induction: shapes of carried values that hold for the first, and for the next if they hold for the one before.

    A dimension that the subgraph changes is left open, until nothing changes.
    """
    entered = {j: i for i, j in flow.enters}
    found: dict[tuple[int, int], Shape] = {}
    for o, j in flow.repeats:
        first = node.inputs[entered[j]]
        shape = None if first is None else ir_shape(first)
        if shape is not None and isinstance(flow.graph.inputs[j].type, ir.TensorType):
            found[o, j] = shape
    known = {pair: ir_shape(flow.graph.inputs[pair[1]]) for pair in found}
    if not any(_says_more(shape, known[pair]) for pair, shape in found.items()):
        return {}
    body = ir.to_proto(flow.graph)
    captured = [ir.to_proto(v) for v in free_values(flow.graph)]
    while found:
        results = _infer(body, captured, {j: shape for (_, j), shape in found.items()}, imports)
        weaker = {(o, j): _agree(shape, results[o]) for (o, j), shape in found.items()}
        if weaker == found:
            return found
        found = {pair: shape for pair, shape in weaker.items() if shape is not None}
    return {}


def _agree(one: Shape, other: Shape | None) -> Shape | None:
    """What two shapes have in common."""
    if other is None or len(one) != len(other):
        return None
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def _infer(
    body: onnx.GraphProto, captured: list[onnx.ValueInfoProto], shapes: Mapping[int, Shape], imports: Mapping[str, int]
) -> list[Shape | None]:
    """The shapes of a subgraph's outputs if its inputs have these shapes."""
    graph = onnx.GraphProto()
    graph.CopyFrom(body)
    for j, shape in shapes.items():
        tensor = graph.input[j].type.tensor_type
        tensor.ClearField("shape")
        tensor.shape.SetInParent()
        for d in shape:
            dim = tensor.shape.dim.add()
            if isinstance(d, int):
                dim.dim_value = d
            elif d is not None:
                dim.dim_param = d
    graph.input.extend(captured)
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in imports.items()]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    try:
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return [None] * len(graph.output)
    results: list[Shape | None] = []
    for info in model.graph.output:
        tensor = info.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim]
        results.append(tuple(dims) if tensor.HasField("shape") else None)
    return results
