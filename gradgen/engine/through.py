"""Straight-through derivatives: float stand-ins carry cotangents past tensors of integer and 8-bit float type.

A stand-in has the value of the quantised tensor and the derivative that a row's straight-through body gives it. The
forward nodes stay as they are: what reads a dequantised value reads it with the derivative of the body's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from gradgen.engine.activity import analyse, analyse_body, edges
from gradgen.engine.builder import find_schema
from gradgen.engine.flow import flows_of
from gradgen.engine.link import Linker
from gradgen.engine.plan import bind_attributes, operand
from gradgen.engine.rows import Form, Row
from gradgen.engine.subgraphs import every_node, graphs, operands
from gradgen.engine.surgery import is_read
from gradgen.engine.values import FLOATS, is_float
from gradgen.errors import GradientError
from gradgen.rules import quantised
from gradgen.rules.lang import INTERNAL


@dataclass
class Through:
    """What the pass did.

    Attributes:
        stand_ins: the float stand-in of each quantised value.
        lost: nodes that read stand-ins, without a body that passes them on, or whose subgraphs make them.
        replaced: float values by the ones that took their names, with the derivative of a body.
    """

    stand_ins: dict[ir.Value, ir.Value] = field(default_factory=dict)
    replaced: dict[ir.Value, ir.Value] = field(default_factory=dict)
    lost: list[ir.Node] = field(default_factory=list)

    def restore_names(self) -> None:
        """Give the values their names back, after the internal nodes are gone."""
        for old, new in self.replaced.items():
            name, new.name = new.name, f"{new.name}/through"
            old.name = name


def quantises(node: ir.Node, linker: Linker) -> bool:
    """Whether an op's forward body quantises, so that it is the body's nodes that stop a derivative or pass it on.

    Of a node that nothing reads there is no body.
    """
    row = linker.rules.of(node)
    if row is None or row.forward is None or row.straight_through is not None:
        return False
    return row.forward.module == quantised.__name__ and any(map(is_read, node.outputs))


def pass_through(graph: ir.Graph, sources: Sequence[ir.Value], linker: Linker) -> Through:
    """Add stand-ins for the quantised values that depend on the sources, those of subgraphs included."""
    done = Through()
    _pass(graph, set(sources), linker, done)
    return done


def _pass(graph: ir.Graph, active: set[ir.Value], linker: Linker, done: Through) -> None:
    """Add the stand-ins of one graph and those inside it; `active` grows by what depends on its members."""
    nodes = list(graph)
    for node, following in zip(nodes, [*nodes[1:], None], strict=True):
        row = linker.rules.of(node)
        standing = [v for v in operands(node) if v in done.stand_ins]
        if not standing and not any(v in active for v in operands(node)):
            continue
        for inner in graphs(node):
            _pass(inner, active | {v for v in inner.inputs if is_float(v.dtype)}, linker, done)
        place = Linker(graph, linker.registry, linker.opset, linker.knowledge, linker.names, linker.constants)
        place = place if following is None else place.anchored(following)
        if any(v in done.stand_ins for inner in graphs(node) for v in inner.outputs):
            done.lost.append(node)  # a quantised value leaves, or is carried on, without its stand-in
        if row is not None and row.straight_through is not None:
            _apply(node, row, row.straight_through, done, active, place)
        elif any(v in done.stand_ins for v in node.inputs) and not (
            _move(node, done, place) or _known_zero(node, row, done)
        ):
            done.lost.append(node)
        if any(v in active and kind != "zero" for _, v, kind in edges(node, row)):
            active.update(v for v in node.outputs if is_float(v.dtype))


def _apply(node: ir.Node, row: Row, form: Form, done: Through, active: set[ir.Value], linker: Linker) -> None:
    """Link a row's straight-through body behind a node, and let its results stand for the node's."""
    inputs = [done.stand_ins.get(v, v) if v is not None else None for v in node.inputs]
    arguments = {n: operand(row, n, inputs, node.outputs) for n in form.reads}
    names = {row.output_name(k): v for k, v in enumerate(node.outputs) if v.name and row.output_name(k) in form.returns}
    origin = node.name or node.op_type
    try:
        found = linker.vjp(form, arguments, bind_attributes(node, row, linker), dict.fromkeys(names, True), {}, origin)
    except GradientError as error:
        raise GradientError(f"{origin} ({node.op_type}), straight through: {error}") from error
    for name, old in names.items():
        computed = found.get(name)
        if computed is None:
            continue
        if not is_float(old.dtype):
            done.stand_ins[old] = _stand_in(old, computed, linker)
            continue
        new = _given(computed, old, old, f"{old.name}/primal", linker)
        given = new.producer()
        assert given is not None
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        given.replace_input_with(1, old)
        old.name, new.name = new.name, old.name
        done.replaced[old] = new
        active.add(new)


def _stand_in(old: ir.Value, computed: ir.Value, linker: Linker) -> ir.Value:
    """A float value with the content of a quantised one and the derivative of what a body computes."""
    like = ir.Value(name=old.name, type=computed.type, shape=old.shape or computed.shape)
    assert computed.dtype is not None
    content = linker.node("Cast", [old], like, f"{old.name}/content", to=int(computed.dtype))
    return _given(computed, content, like, f"{old.name}/through", linker)


def _given(computed: ir.Value, given: ir.Value, like: ir.Value, name: str, linker: Linker) -> ir.Value:
    out = ir.Value(name=linker.names.unique(name), type=like.type, shape=like.shape)
    linker.append(ir.Node(INTERNAL, "Given", [computed, given], outputs=[out], name=out.name, version=1))
    return out


def _known_zero(node: ir.Node, row: Row | None, done: Through) -> bool:
    """Whether the op's derivative to every quantised input is known to be zero, as a Shape's."""
    positions = [k for k, v in enumerate(node.inputs) if v in done.stand_ins]
    return row is not None and all(row.disposition(k) == "zero" for k in positions)


def _move(node: ir.Node, done: Through, linker: Linker) -> bool:
    """Repeat on stand-ins a node whose quantised results have the type of its quantised inputs, such as a Transpose.

    Returns whether it is such a node.
    """
    if node.domain == INTERNAL:  # the value that a caller supplies has the derivative of the computed one
        computed = next(done.stand_ins[v] for v in node.inputs if v in done.stand_ins)
        done.stand_ins[node.outputs[0]] = _stand_in(node.outputs[0], computed, linker)
        return True
    schema = find_schema(node.op_type, node.domain, linker.opset)
    if schema is None or graphs(node):
        return False
    formals, results = list(schema.inputs), list(schema.outputs)
    kinds = [formals[min(k, len(formals) - 1)].type_str for k in range(len(node.inputs))]
    moved = {kinds[k] for k, v in enumerate(node.inputs) if v in done.stand_ins}
    chosen = {k for k, v in enumerate(node.outputs) if results[min(k, len(results) - 1)].type_str in moved}
    chosen = {k for k in chosen if not is_float(node.outputs[k].dtype)}
    kind = next(done.stand_ins[v].dtype for v in node.inputs if v in done.stand_ins)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    if not chosen or kind not in FLOATS or any(_type_string(kind) not in allowed.get(m, ()) for m in moved):
        return False
    inputs = []
    for k, value in enumerate(node.inputs):
        if value is not None and value in done.stand_ins:
            value = done.stand_ins[value]
        elif value is not None and kinds[k] in moved:
            like = ir.Value(type=ir.TensorType(kind), shape=value.shape)
            value = linker.node("Cast", [value], like, f"{value.name}/content", to=int(kind))
        inputs.append(value)
    names = [linker.names.unique(f"{v.name}/moved") if k in chosen else "" for k, v in enumerate(node.outputs)]
    outputs = [ir.Value(name=n) for n in names]
    for k in chosen:
        outputs[k].type, outputs[k].shape = ir.TensorType(kind), node.outputs[k].shape
    name = linker.names.unique(f"{node.name or node.op_type}/moved")
    linker.append(ir.Node(node.domain, node.op_type, inputs, node.attributes.values(), outputs=outputs, name=name))
    for k in chosen:
        done.stand_ins[node.outputs[k]] = _stand_in(node.outputs[k], outputs[k], linker)
    return True


def _type_string(kind: ir.DataType) -> str:
    return f"tensor({kind.name.lower()})"


def stops(
    graph: ir.Graph, sources: Sequence[ir.Value], targets: Sequence[ir.Value], linker: Linker,
    through: Through,
) -> tuple[list[str], set[ir.Value]]:  # fmt: skip
    """What stops a derivative between sources and targets though the target depends on it, in subgraphs too.

    Returns a line for each node that makes a quantised or integer value of a value that carries a derivative, and the
    sources whose derivatives stop there.
    """
    nodes = every_node(graph)
    if not any(row is not None and row.straight_through is not None for row in map(linker.rules.of, nodes)):
        return [], set()
    search = _Search(sources, linker, through)
    search.look(list(graph), analyse(list(graph), sources, targets, linker.rules).active, set(targets))
    return search.lines, search.stopped


class _Search:
    """Looks for what stops derivatives in a graph, then in the graphs inside it."""

    def __init__(self, sources: Sequence[ir.Value], linker: Linker, through: Through) -> None:
        self.sources, self.rules = sources, linker.rules
        self.passed, self.lost = through.stand_ins, set(through.lost)
        # What the inputs of subgraphs are, outside and in the iteration before.
        self.entered: dict[ir.Value, list[ir.Value]] = {}
        self.lines: list[str] = []
        self.stopped: set[ir.Value] = set()

    def look(self, nodes: Sequence[ir.Node], active: set[ir.Value], reaching: set[ir.Value]) -> None:
        """Look through a graph's nodes; `active` values carry a derivative, and targets depend on `reaching` ones."""
        _reach(nodes, reaching)
        for node in nodes:
            row = self.rules.of(node)
            ended = [v for v in self._ended(node, row, active) if v in reaching]
            read = operands(node)
            carrying = [v for v in (self.passed.get(v, v) for v in read) if v in active]
            if ended and carrying:
                origins = self._origins(carrying, active)
                listed = ", ".join(f"'{v.name}'" for v in origins)
                self.lines.append(f"'{ended[0].name}' = {node.op_type} stops the gradient of {listed}")
                self.stopped.update(origins)
            for flow in flows_of(node, row):
                inside = flow.targets(node, reaching)
                while True:  # what is carried on reaches a target in a later iteration
                    _reach(list(flow.graph), inside)
                    carried = {flow.graph.outputs[o] for o, j in flow.repeats if flow.graph.inputs[j] in inside}
                    if carried <= inside:
                        break
                    inside |= carried
                pairs = [(j, node.inputs[i]) for i, j in flow.enters]
                for j, value in [*pairs, *((j, flow.graph.outputs[o]) for o, j in flow.repeats)]:
                    if value is not None:
                        self.entered.setdefault(flow.graph.inputs[j], []).append(value)
                own = analyse_body(flow, node, active, frozenset(), self.rules).active
                self.look(list(flow.graph), active | own, inside)

    def _ended(self, node: ir.Node, row: Row | None, active: set[ir.Value]) -> list[ir.Value]:
        """The outputs of a node to which its derivative is known to be zero."""
        if node in self.lost:
            return sorted(node.outputs, key=lambda v: is_float(v.dtype))
        if row is None or row.straight_through is None or any(v in self.passed for v in node.outputs):
            return []
        kinds = [kind for _, v, kind in edges(node, row) if v in active]
        blocked = bool(kinds) and all(kind == "zero" for kind in kinds)
        return [v for v in node.outputs if blocked or not is_float(v.dtype)]

    def _origins(self, carrying: Sequence[ir.Value], active: set[ir.Value]) -> list[ir.Value]:
        """The sources that values carry derivatives of."""
        pending, seen = list(carrying), set(carrying)
        while pending:
            value = pending.pop()
            node = value.producer()
            behind = self.entered.get(value, []) if node is None else operands(node)
            fresh = [v for v in behind if v in active and v not in seen]
            pending.extend(fresh)
            seen.update(fresh)
        return [v for v in self.sources if v in seen]


def _reach(nodes: Sequence[ir.Node], reaching: set[ir.Value]) -> None:
    """Add what values depend on, in whatever way."""
    for node in reversed(nodes):
        if any(v in reaching for v in node.outputs):
            reaching.update(operands(node))
