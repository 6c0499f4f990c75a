"""The transpose of the backward pass: tangents of values from the reverse rules, which are linear in the cotangent.

The backward pass is derived for cotangents that stand for none in particular, and then with respect to these; what is
left of it is what does not depend on them. An op that is linear in what varies is its own jvp, and a row may have a rule
for the tangents: there the first pass leaves a mark in the graph, an internal node, and the second one writes the op
again, on tangents, or links that rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from gradgen.engine.compound import add, zeros
from gradgen.engine.derive import derive, plan_graph
from gradgen.engine.link import Linker
from gradgen.engine.plan import Step, tangent_form
from gradgen.engine.registry import Registry
from gradgen.engine.rows import Form, Row
from gradgen.engine.values import is_float
from gradgen.engine.walk import pull, reverse
from gradgen.errors import GradientError
from gradgen.rules.lang import INTERNAL, RuleFunction
from gradgen.transforms.release import Alike, release

Pair = tuple[ir.Value, ir.Value]
MARK = "Pulled"


def push_forward(
    graph: ir.Graph, sources: Sequence[ir.Value], targets: Sequence[ir.Value], tangents: Sequence[ir.Value],
    linker: Linker, *, alone: bool = True,
) -> tuple[list[ir.Value | None], dict[ir.Value, ir.Value]]:  # fmt: skip
    """Append to a graph the tangents of its targets.

    Args:
        graph: the graph.
        sources: the values that vary.
        targets: the values whose tangents are wanted.
        tangents: those of the sources.
        linker: the linker of the graph, whose registry is one of `with_mark`.
        alone: whether the call derives no gradient beside them, which may compute what the tangents need.

    Returns:
        the tangent of each target, None where one does not depend on the sources; and the values of the graph that
        were replaced by others.
    """
    purposes = {"transposed", "pushed"} if alone else {"transposed"}
    linker.knowledge.purposes.update(purposes)
    steps, replaced = plan_graph(graph, sources, targets, linker)
    targets = [replaced.get(v, v) for v in targets]
    free = [linker.value(f"{v.name}/any", v) for v in targets]
    alike = Alike(graph)
    alike.learn(list(zip(targets, free, strict=True)))

    def pull_alike(step: Step, incoming: Sequence[ir.Value | None], linker: Linker) -> list[Pair]:
        pairs = list(_pull(step, incoming, linker))
        alike.learn(pairs)
        return pairs

    found = reverse(steps, dict(zip(targets, free, strict=True)), linker, pull_alike)
    alike.learn([(v, ct) for v in found.values() if (ct := found.total(v)) is not None])
    cotangents = [found.total(replaced.get(v, v)) for v in sources]
    linker.knowledge.purposes.difference_update(purposes)
    results, _ = derive(graph, free, weighed(cotangents, tangents, linker), linker)
    kept = [v for v in results if v is not None]
    graph.outputs.extend(kept)
    release(graph, free, alike, linker)
    for _ in kept:
        graph.outputs.pop()
    linker.knowledge.purposes.update(purposes - {"transposed"})  # it still holds where the graph is rewritten
    return results, replaced


def weighed(values: Sequence[ir.Value | None], weights: Sequence[ir.Value], linker: Linker) -> dict[ir.Value, ir.Value]:
    """The cotangents of values of which the sum of products with weights is derived; one may be there several times."""
    seeds: dict[ir.Value, ir.Value] = {}
    for value, weight in zip(values, weights, strict=True):
        if value is not None:
            seeds[value] = add(linker, [seeds[value], weight], value) if value in seeds else weight
    return seeds


def with_mark(registry: Registry) -> Registry:
    """A registry that knows the internal node too."""
    return registry.extended(_MARKED)


# Ops that are their own jvp, and rules for tangents


def _pull(step: Step, incoming: Sequence[ir.Value | None], linker: Linker) -> Sequence[Pair]:
    """Apply a step's rule, or leave a mark where its tangents are not the transpose of that."""
    varying = [k for k, v in enumerate(step.inputs) if v in step.active and v is not None and is_float(v.dtype)]
    form = tangent_form(step, varying, linker)
    calls = _linear_calls(step, varying) if form is None else [varying]
    if calls is None:
        return list(pull(step, incoming, linker))
    operands = list(dict.fromkeys(v for call in calls for k in call if (v := step.inputs[k]) is not None))
    names = [linker.names.unique(f"{step.origin}/{v.name}/any") for v in operands]
    outputs = [ir.Value(name=n, type=v.type, shape=v.shape) for n, v in zip(names, operands, strict=True)]
    node = ir.Node(INTERNAL, MARK, list(incoming), outputs=outputs, name=linker.names.unique(f"{step.origin}/{MARK}"))
    node.meta.update({"step": step, "operands": operands, "calls": calls, "form": form})
    linker.append(node)
    return list(zip(operands, outputs, strict=True))


def _linear_calls(step: Step, varying: Sequence[int]) -> list[list[int]] | None:
    """The calls of the op whose sum is its jvp: for each the positions of the inputs that give way to tangents.

    None where the op is not linear in what varies.
    """
    row, inputs = step.row, step.inputs
    if not row.linear or step.form.fwd is not None:
        return None
    calls = []
    while varying:
        group = _group(row, varying[0])
        taken = [k for k in varying if row.input_name(k) in group]
        members = [k for k, v in enumerate(inputs) if row.input_name(k) in group and v is not None]
        if not taken or any(k not in taken and not group[row.input_name(k)] for k in members):
            return None
        calls.append(taken)
        varying = [k for k in varying if k not in taken]
    return calls


def _group(row: Row, position: int) -> dict[str, bool]:
    """The inputs in which, held the others, the op is linear together with one of them: may each be left out?"""
    for group in row.linear:
        found = {name.rstrip("?"): name.endswith("?") for name in group}
        if row.input_name(position) in found:
            return found
    return {}


def _apply(context) -> Iterator[Pair]:
    """The tangents of a marked step's outputs: by the row's rule, or the sum of calls of the op on tangents of inputs."""
    node, linker = context.node, context.linker
    step: Step = node.meta["step"]
    given = dict(zip(node.meta["operands"], context.cotangents, strict=True))
    if node.meta["form"] is not None:
        yield from _linked(step, node.meta["form"], given, node.inputs, linker)
        return
    totals: dict[int, ir.Value] = {}
    for call in node.meta["calls"]:
        tangents = {k: given[step.inputs[k]] for k in call}
        if all(t is None for t in tangents.values()):
            continue
        for k, tangent in _call(step, tangents, node.inputs, linker).items():
            totals[k] = add(linker, [totals[k], tangent], step.outputs[k]) if k in totals else tangent
    yield from ((node.inputs[k], tangent) for k, tangent in totals.items())


def _linked(
    step: Step, form: Form, given: Mapping[ir.Value, ir.Value | None], wanted: Sequence[ir.Value | None], linker: Linker
) -> Iterator[Pair]:
    """The wanted tangents of a step's outputs by a rule for them, with the cotangents whose places they take."""
    row = step.row
    if all(t is None for t in given.values()):
        return
    tangents = {f"t{row.input_name(k)}": given.get(v) for k, v in enumerate(step.inputs) if v is not None}
    arguments = {n: tangents[n] if n in tangents else step.operand(n) for n in form.reads}
    names = {f"t{row.output_name(k)}": ct for k, ct in enumerate(wanted) if ct is not None}
    results = linker.vjp(form, arguments, step.attributes, dict.fromkeys(names, True), {}, step.origin)
    yield from ((ct, results[n]) for n, ct in names.items() if results[n] is not None)


def _call(
    step: Step, tangents: Mapping[int, ir.Value | None], wanted: Sequence[ir.Value | None], linker: Linker
) -> dict[int, ir.Value]:
    """One call of the op on tangents; its wanted results by position."""
    row = step.row
    group = _group(row, min(tangents))
    inputs: list[ir.Value | None] = []
    for k, value in enumerate(step.inputs):
        tangent = tangents.get(k)
        if row.input_name(k) in group and tangent is None and value is not None:
            inputs.append(None if group[row.input_name(k)] else zeros(linker, value))
        else:
            inputs.append(tangent if k in tangents else value)
    while inputs and inputs[-1] is None:
        inputs.pop()
    base = f"{step.origin}/tangent"
    # All outputs: how many there are may be a part of what the op does (Split).
    outputs = [ir.Value(name=linker.names.unique(base), type=v.type, shape=v.shape) for v in step.outputs]
    attributes = step.node.attributes.values()
    node = ir.Node("", step.node.op_type, inputs, attributes, outputs=outputs, name=linker.names.unique(f"{base}/node"))
    node.metadata_props.update({"gradgen.node": step.origin, "gradgen.rule": "linear"})
    linker.append(node)
    return {k: outputs[k] for k, ct in enumerate(wanted) if ct is not None}


def _mark_row() -> Row:
    rule = RuleFunction(_apply, "structural")
    form = Form("linear", "structural", __name__, (), (), function=rule)
    return Row(INTERNAL, MARK, 1, ("cotangents*",), ("operands*",), (form,))


_MARKED = _mark_row()


def refuse_nonlinear(linker: Linker) -> None:
    """Raise a GradientError that lists the rules which were applied and are declared not to be linear."""
    if linker.knowledge.nonlinear:
        listed = "\n  ".join(dict.fromkeys(reversed(linker.knowledge.nonlinear)))
        raise GradientError(
            "these rules are declared linear=False: they are no derivatives that could be transposed or derived again:\n"
            f"  {listed}\nUse vjp, choose other wrt or of, or pass a registry with other rules."
        )
