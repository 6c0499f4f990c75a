"""`lower_gradient_ops`: the standard's Gradient operator, replaced by what it stands for."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.arguments import check_switches
from gradgen.engine.compound import zeros
from gradgen.engine.contract import ir_shape
from gradgen.engine.derive import derive
from gradgen.engine.expand import expand_where
from gradgen.engine.forward import STRAY
from gradgen.engine.knowledge import Constants, Knowledge
from gradgen.engine.labels import node_label
from gradgen.engine.link import Linker
from gradgen.engine.names import Names
from gradgen.engine.prepare import learn_constants, prepare
from gradgen.engine.reading import Model, read
from gradgen.engine.registry import Registry, registry_of
from gradgen.engine.serde import to_proto
from gradgen.engine.simplify import merge_common, remove_unused
from gradgen.engine.subgraphs import graphs, operands, rename
from gradgen.engine.surgery import clone_graph
from gradgen.engine.through import Through, stops
from gradgen.engine.values import is_float
from gradgen.errors import GradientError, GradientWarning
from gradgen.functions import infer_node
from gradgen.rules.library import zeros_like
from gradgen.rules.rewriting import rewrite
from gradgen.rules.rows import forget_open_rows
from gradgen.transforms.common import complete, paused_collector
from gradgen.transforms.gradient_ops import count_gradients, fill_gradients, is_marked, mark_gradients
from gradgen.transforms.partition import SMALL


def lower_gradient_ops(model: Model, *, portable: bool = False, registry: Registry | None = None) -> Any:
    """Replace every Gradient node of ai.onnx.preview.training by standard nodes, so that the model runs anywhere.

    Such a node gives the derivatives of the tensor `y` with respect to the tensors `xs`, at the values that are its
    inputs: those for `xs`, then those for `zs`. Each name in `xs` and `zs` counts as an independent variable, whatever
    computes it elsewhere, and what `y` depends on besides keeps its value. A `y` of several elements is differentiated
    as their sum. Where the inputs are the tensors of these names, nothing is computed twice; where they differ, what
    lies between them and `y` is computed again from them. `y` may come from another Gradient node, for derivatives of
    higher order. A node inside an If, a Loop or a Scan names values of that body, or of the graphs around it where
    nothing outside the body leads from `xs` or `zs` to `y`.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model. It is not changed.
        portable: emit forms that engines beside onnxruntime have too, see `vjp`.
        registry: rules to use in place of the registered ones.

    Returns:
        A model of the kind that was handed in (a ModelProto for a path), with the same inputs and outputs, at opset 21
        or later, without the domain ai.onnx.preview.training. A model without such nodes is returned as it is.

    Raises:
        GradientError: that names the node and the reason: names that do not exist or are not float, as many inputs as
            there are not names, a path through ops without a rule, a random draw that would have to be repeated.
    """
    check_switches(portable=portable)
    proto, as_ir = read(model)
    if not count_gradients(proto):
        return ir.from_proto(proto) if as_ir else proto
    registry = registry_of(registry)
    with paused_collector(model):
        mark_gradients(proto)
        prepared = prepare(proto, registry, fills=[fill_gradients])
        graph = prepared.model.graph
        names = Names.of(graph)
        variable = {v for n in ir.traversal.RecursiveGraphIterator(graph) if is_marked(n) for v in _Request.of(n).named}
        knowledge = Knowledge({*variable, *graph.inputs})
        knowledge.purposes.update({"portable"} if portable else ())
        learn_constants(graph, knowledge, prepared.opset)
        linker = Linker(graph, registry, prepared.opset, knowledge, names, Constants(graph, names))
        expand_where(graph, linker, lambda node: node.domain == STRAY, {})
        _lower(graph, linker)
        _finish(prepared.model, linker)
        return prepared.model if as_ir else to_proto(prepared.model)


@dataclass(frozen=True)
class _Request:
    """What a marked node asks for: the values at which, the values named in `xs` and `zs`, how many are xs, and y."""

    given: list[ir.Value]
    named: list[ir.Value]
    count: int
    y: ir.Value

    @classmethod
    def of(cls, node: ir.Node) -> _Request:
        inputs = [v for v in node.inputs if v is not None]
        size = len(inputs) // 2
        return cls(inputs[:size], inputs[size:-1], node.attributes["xs"].as_int(), inputs[-1])


def _lower(graph: ir.Graph, linker: Linker) -> None:
    """Lower the nodes of a graph, those inside its subgraphs before what comes after them."""
    for node in list(graph):
        if node.graph is not graph:
            continue  # a pair stands in for it
        for sub in graphs(node):
            _lower(sub, linker.within(sub))
        if is_marked(node):
            try:
                _lower_node(node, graph, linker.anchored(node))
            except GradientError as error:
                raise GradientError(f"Gradient node '{node_label(node)}': {error}") from error


def _lower_node(node: ir.Node, graph: ir.Graph, linker: Linker) -> None:
    request = _Request.of(node)
    problems = [
        f"{role}: '{v.name}' is of {v.dtype.name.lower() if v.dtype else 'unknown type'}, and only float tensors have a "
        "gradient"
        for role, values in (("xs", request.named[: request.count]), ("y", [request.y]))
        for v in values
        if v.dtype is None or not is_float(v.dtype)
    ]
    if problems:
        raise GradientError("; ".join(problems))
    moved: dict[ir.Value, ir.Value | None] = {}
    independent, restored = [], {}
    for named, given in zip(request.named, request.given, strict=True):
        # While the gradient is made, a value without a producer stands for what an independent variable is computed
        # from: no derivative flows there, nor to what else reads a value that is given for another.
        if named is given and named.producer() is None:
            independent.append(named)
            continue
        stand_in = _stand_in(given, named is given, linker)
        independent.append(stand_in)
        restored[stand_in] = given
        if named is not given:
            moved[named] = stand_in
    y = next((s for n, s in zip(request.named, independent, strict=True) if n is request.y), request.y)
    same = all(_shown(v) == _shown(w) for v, w in moved.items())
    for original in _chain(y, [*request.named, *independent], graph):
        _run_again(original, moved, same, linker)
    y = moved.get(y) or y
    wanted = [i for i, out in enumerate(node.outputs) if out.name and (out.uses() or out.is_graph_output())]
    sources = [independent[i] for i in wanted]
    lines, stopped = stops(graph, sources, [y], linker, Through())
    label = f"Gradient node '{node_label(node)}'"
    if lines:
        warnings.warn(f"{label}: {'; '.join(lines)}", GradientWarning, stacklevel=4)
    found, replaced = derive(graph, sources, {y: _ones(y, linker)}, linker)
    for index, source, ct in zip(wanted, sources, found, strict=True):
        source = replaced.get(source, source)
        if ct is None and source not in stopped:
            listed = f"'{request.named[index].name}' does not influence '{request.y.name}': its gradient is zero"
            warnings.warn(f"{label}: {listed}", GradientWarning, stacklevel=4)
        _publish(node.outputs[index], zeros(linker, source) if ct is None else ct, source, linker)
    graph.remove(node, safe=True)
    for stand_in, value in restored.items():
        ir.convenience.replace_all_uses_with(stand_in, replaced.get(value, value))


def _stand_in(value: ir.Value, everywhere: bool, linker: Linker) -> ir.Value:
    """A value of the same type and content without a producer; `everywhere` lets all readers read it."""
    found = linker.value(f"{value.name}/given", value)
    content = linker.knowledge.constant(value)
    if content is not None and not is_float(value.dtype):
        linker.knowledge.learn(found, content)
    if everywhere:
        for use in list(value.uses()):
            use.node.replace_input_with(use.idx, found)
    return found


def _shown(value: ir.Value | None) -> Any:
    """What is known of a value's type and shape."""
    return None if value is None else (value.dtype, ir_shape(value))


def _chain(y: ir.Value, named: Sequence[ir.Value], graph: ir.Graph) -> list[ir.Node]:
    """The nodes of a graph from independent values to y; raises GradientError where some of them are outside."""
    ends, found, outside = set(named), set[ir.Node](), []
    pending = [y]
    while pending:
        value = pending.pop()
        node = value.producer()
        if value in ends or node is None or node in found:
            continue
        if node.graph is not graph:
            outside.append(value)
            continue
        found.add(node)
        pending.extend(operands(node))
    beyond: set[ir.Value] = set()
    pending = list(outside)
    while pending:
        value = pending.pop()
        if value in ends:
            first = outside[0].name
            raise GradientError(
                f"y: '{y.name}' depends on '{value.name}' through '{first}', which is computed outside of the subgraph "
                "that holds the node: move the node there, or compute it in the subgraph"
            )
        if value not in beyond:
            beyond.add(value)
            producer = value.producer()
            pending.extend(operands(producer) if producer is not None else ())
    return [n for n in graph if n in found]


def _run_again(original: ir.Node, moved: dict[ir.Value, ir.Value | None], same: bool, linker: Linker) -> None:
    """Copy a node that depends on values which others stand for; `same` says that these have the same shapes."""
    if not any(v in moved for v in operands(original)):
        return
    inner = [n for sub in graphs(original) for n in ir.traversal.RecursiveGraphIterator(sub)]
    if any(linker.draws(n) for n in [original, *inner]):
        raise GradientError(
            f"its inputs are not the tensors of its names, and '{node_label(original)}' ({original.op_type}) draws random "
            "numbers, which is never repeated: pass the named tensors"
        )
    attributes = []
    for name, attr in original.attributes.items():
        if attr.type == ir.AttributeType.GRAPH:
            attr = ir.AttrGraph(name, clone_graph(attr.value, moved))
            rename(attr.value, linker.names)
        attributes.append(attr)
    inputs = [None if v is None else moved.get(v, v) for v in original.inputs]
    node = ir.Node(
        original.domain, original.op_type, inputs, attributes, overload=original.overload,
        num_outputs=len(original.outputs), name=linker.names.unique(f"{node_label(original)}/again"),
        metadata_props={"gradgen.node": node_label(original)},
    )  # fmt: skip
    for old, new in zip(original.outputs, node.outputs, strict=True):
        new.name = linker.names.unique(f"{old.name}/again") if old.name else ""
        new.type, new.shape = old.type, old.shape if same else None
        moved[old] = new
    linker.append(node)
    if not same:
        infer_node(node, linker.opset)
        return
    for before, after in list(moved.items()):
        content = linker.knowledge.constant(before)
        if content is not None and after is not None and after.producer() is not None:
            linker.knowledge.learn(after, content)


def _ones(y: ir.Value, linker: Linker) -> ir.Value:
    shape = ir_shape(y)
    assert y.dtype is not None
    sizes = [d for d in shape or () if isinstance(d, int)]
    if shape is not None and len(sizes) == len(shape) and math.prod(sizes) <= SMALL:
        return linker.constants.get(np.ones(sizes, y.dtype.numpy()))  # rules leave factors of one out
    one = linker.constants.get(np.ones((), y.dtype.numpy()))
    return linker.node("Add", [linker.library(zeros_like, y), one], y, f"{y.name}/seed")


def _publish(output: ir.Value, gradient: ir.Value, like: ir.Value, linker: Linker) -> None:
    """Let a gradient take the place and the name of a node's output."""
    name = output.name or ""
    output.name = linker.names.unique(f"{name}/replaced")
    found = linker.publish(gradient, name, like)
    ir.convenience.replace_all_uses_with(output, found, replace_graph_outputs=True)


def _finish(model: ir.Model, linker: Linker) -> None:
    graph = model.graph
    remove_unused(graph)
    merge_common(graph, linker.draws)
    if rewrite(graph, linker):
        remove_unused(graph)
    complete(model, linker)
    forget_open_rows(model.graph)
