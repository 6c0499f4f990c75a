"""Differentiates a graph in place: activity, expansion of ops without a rule, plan, reverse pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx
import onnx_ir as ir

from gradgen.engine.activity import Activity, analyse, analyse_body, edges
from gradgen.engine.expand import expand, expands
from gradgen.engine.flow import flows_of
from gradgen.engine.labels import node_label
from gradgen.engine.link import Linker
from gradgen.engine.plan import Step, apply_forward, make_step
from gradgen.engine.rows import Row
from gradgen.engine.walk import Pull, pull, reverse
from gradgen.errors import GradientError
from gradgen.rules.lang import OPSET

TRAINING = "ai.onnx.preview.training"


def derive(
    graph: ir.Graph,
    sources: Sequence[ir.Value],
    seeds: Mapping[ir.Value, ir.Value],
    linker: Linker,
    stop: Sequence[ir.Value] = (),
    pull: Pull = pull,
) -> tuple[list[ir.Value | None], dict[ir.Value, ir.Value]]:
    """Append the backward pass of a graph.

    Args:
        graph: the graph; nodes are appended, and pairs stand in for forward nodes.
        sources: the values whose cotangents are wanted.
        seeds: the cotangents of values of the graph, by value.
        linker: the linker of the graph.
        stop: values through which no derivative flows.
        pull: applies the rule of a step.

    Returns:
        the cotangent of each source, None where the seeded values do not depend on it; and the values that were
        replaced by a pair's.

    Raises:
        GradientError: that lists every node on the path that has no rule.
    """
    steps, replaced = plan_graph(graph, sources, list(seeds), linker, stop=stop)
    found = reverse(steps, {replaced.get(v, v): ct for v, ct in seeds.items()}, linker, pull)
    return [found.total(replaced.get(v, v)) for v in sources], replaced


def plan_graph(
    graph: ir.Graph,
    sources: Sequence[ir.Value],
    targets: Sequence[ir.Value],
    linker: Linker,
    where: str = "",
    stop: Sequence[ir.Value] = (),
) -> tuple[list[Step], dict[ir.Value, ir.Value]]:
    """The steps of the path from sources to targets, with ops that have no rule replaced by their bodies."""
    expanded: dict[ir.Value, ir.Value] = {}
    while True:
        sources = [expanded.get(v, v) for v in sources]
        targets = [expanded.get(v, v) for v in targets]
        activity = analyse(list(graph), sources, targets, linker.rules, stop)
        if not any([expand(n, graph, linker, expanded) for n in activity.path if expands(_row(n, linker))]):
            break
    problems = list(_problems(activity, linker, where))
    if problems:
        stated = any(n.domain == TRAINING and n.op_type == "Gradient" for n in activity.path)
        first = (
            "Gradient nodes are replaced by gradgen.lower_gradient_ops (gradgen lower): call it first. "
            if stated
            else ""
        )
        raise GradientError(
            "no gradient for these nodes on the path:\n  " + "\n  ".join(problems) + "\n"
            f"{first}Register a rule (gradgen.register_vjp), choose other wrt or of, or replace the op in the model."
        )
    steps = []
    for node in activity.path:
        row = _row(node, linker)
        assert row is not None
        step = make_step(node, row, activity, linker)
        steps.append(step)
    replaced = apply_forward(steps, graph, linker)
    return steps, {**{old: replaced.get(new, new) for old, new in expanded.items()}, **replaced}


def _row(node: ir.Node, linker: Linker) -> Row | None:
    return linker.rules.of(node)


def _label(node: ir.Node, linker: Linker, where: str) -> str:
    """A node in a message: its op, the version of its operator set, its name."""
    domain, version = node.domain or "ai.onnx", linker.version(node)
    return f"{where + ': ' if where else ''}{domain}::{node.op_type} (opset {version}), node '{node_label(node)}'"


def _problems(activity: Activity, linker: Linker, where: str = "") -> Iterable[str]:
    """One line for each thing on the path that has no derivative."""
    for node in activity.path:
        row = _row(node, linker)
        missing: dict[str, list[str]] = {}
        for index, value, kind in edges(node, row):
            if value not in activity.active or kind in ("rule", "zero"):
                continue
            if row is None:
                reads = f"input {index}" if index is not None else "a captured value"
                missing.setdefault("", []).append(f"{reads} ('{value.name}')")
            else:
                name = row.input_name(index) if index is not None else ""
                reason = row.none.get(name, "the rule does not differentiate it")
                missing.setdefault(reason, []).append(f"input '{name}' ('{value.name}')")
        for reason, listed in missing.items():
            label = _label(node, linker, where)
            depends = f"no rule for the op; {', '.join(listed)} depend{'' if listed[1:] else 's'} on wrt"
            yield f"{label}: {', '.join(listed)}: {reason}" if reason else f"{label}: {depends}"
        if row is not None:
            if linker.opset > OPSET:
                for a in _new_attributes(node, row):
                    yield f"{_label(node, linker, where)}: attribute '{a}' is newer than the rule"
            receiving = {v for v in node.outputs if activity.receives(v)}
            for flow in flows_of(node, row):
                inner = analyse_body(flow, node, activity.active, receiving, linker.rules)
                inner.path = [n for n in inner.path if not expands(_row(n, linker)) or not has_body(n, linker)]
                yield from _problems(inner, linker, f"{where + ' in ' if where else 'in '}'{node_label(node)}'")


def has_body(node: ir.Node, linker: Linker) -> bool:
    """Whether the op can be replaced by a body: the standard's, or its row's."""
    from gradgen.engine.expand import standard_body

    return _row(node, linker) is not None or standard_body(node, linker) is not None


def _new_attributes(node: ir.Node, row: Row) -> list[str]:
    """Attributes that are set, that opset 21 does not have, and that the row does not know."""
    if node.domain not in ("", "ai.onnx") or not node.attributes:
        return []
    try:
        old = onnx.defs.get_schema(node.op_type, max(row.since, OPSET), "").attributes
    except onnx.defs.SchemaError:
        return []
    mentioned = {a for f in row.forms for a in (*f.attributes, *f.fwd_attributes)} | set(row.ignores)
    return [a for a in node.attributes if a not in old and a not in mentioned]
