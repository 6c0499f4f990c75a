"""Ops that no runtime knows: their forward bodies stand in for them, or travel with the model as its functions."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from gradgen.engine.expand import expand_where
from gradgen.engine.knowledge import Constants, Knowledge
from gradgen.engine.link import Linker
from gradgen.engine.names import Names
from gradgen.engine.protos import all_nodes, imports
from gradgen.engine.registry import Registry, Rules, form_body
from gradgen.engine.rows import Row
from gradgen.engine.subgraphs import every_node
from gradgen.errors import GradientError
from gradgen.rules.lang import DOMAIN, OPSET

DEPTH = 100  # bodies within bodies; more is a circle


def keeps_call(row: Row | None) -> bool:
    """Whether a call of a model's own function stays a call: the op has a rule, or a derivative known without one.

    An op that is differentiated through a body is differentiated through the body that the model gives it.
    """
    return row is not None and not row.through_body


def stands_in(row: Row | None) -> bool:
    """Whether an op's forward body takes its place wherever the op occurs."""
    return row is not None and row.through_body and not row.kernel


def expand_custom(model: ir.Model, registry: Registry) -> bool:
    """Replace the nodes that no runtime knows by their ops' bodies, in place; whether there were any.

    Raises:
        GradientError: a body that calls itself, or that does not fit its node.
    """
    graph = model.graph
    rules = Rules(registry, {**graph.opset_imports, "": graph.opset_imports.get("", OPSET)})
    for depth in range(DEPTH):
        chosen = [n for n in every_node(graph) if n.domain and stands_in(rules.of(n))]
        if not chosen:
            return depth > 0
        names = Names.of(graph)
        knowledge = Knowledge({*graph.inputs, *graph.initializers.values()})
        linker = Linker(graph, registry, rules.opset, knowledge, names, Constants(graph, names))
        expand_where(graph, linker, lambda node: bool(node.domain) and stands_in(rules.of(node)), {})
    raise GradientError(f"{chosen[0].domain}::{chosen[0].op_type}: its body calls itself")


def add_functions(model: ir.Model, rules: Rules) -> None:
    """Give a model the bodies of the ops in it that no runtime knows, as functions, where it has none of that name."""
    pending = [model.graph, *(f.graph for f in model.functions.values())]
    while pending:
        for node in every_node(pending.pop()):
            if not node.domain:
                continue
            key = (node.domain, node.op_type, node.overload)
            if key in model.functions:
                continue
            if node.domain == DOMAIN:  # a library function that a body calls
                model.functions[key] = _copy(rules.registry.body(node.op_type), rules)
                model.opset_imports[DOMAIN] = 1
                pending.append(model.functions[key].graph)
                continue
            row = rules.of(node)
            if row is None or row.kernel or row.forward is None or row.forward.kind != "compiled":
                continue
            function = as_op(row, rules)
            model.functions[key] = function
            for domain in function.opset_imports:
                model.opset_imports.setdefault(domain, rules.version(domain))
            pending.append(function.graph)


def as_op(row: Row, rules: Rules) -> ir.Function:
    """A row's compiled forward body as the function of its op, for the operator sets that a model imports."""
    assert row.forward is not None
    return _copy(form_body(row.forward, rules.registry), rules, row.domain, row.op_type)


def _copy(body: ir.Function, rules: Rules, domain: str = DOMAIN, name: str = "") -> ir.Function:
    proto = ir.serde.serialize_function(body)
    proto.domain, proto.name = domain, name or proto.name
    for entry in proto.opset_import:
        entry.version = rules.opset if entry.domain in ("", "ai.onnx") else rules.version(entry.domain)
    return ir.serde.deserialize_function(proto)


def runnable(proto: onnx.ModelProto, registry: Registry) -> onnx.ModelProto:
    """The model with the bodies of the ops in it that no runtime knows; itself where there are none."""
    from gradgen.engine.prepare import prepare

    rules, own = Rules(registry, imports(proto)), {(f.domain, f.name) for f in proto.functions}
    unknown = (n for n in all_nodes(proto.graph) if n.domain and (n.domain, n.op_type) not in own)
    if not any((row := rules.of(n)) is not None and row.forward is not None and not row.kernel for n in unknown):
        return proto
    model = prepare(proto, registry).model
    add_functions(model, Rules(registry, model.opset_imports))
    return ir.to_proto(model)
