"""The rule of Loop: a Loop over the iterations in reverse order, which reads what the forward Loop saved of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from gradgen.engine.compound import BOOL, INT64, as_optional, as_sequence, map_elements
from gradgen.engine.flow import Flow
from gradgen.engine.subgraphs import captures
from gradgen.errors import GradientError
from gradgen.rules.lang import structural


def loop_flows(node):
    """Inputs are the trip count, the condition and the carried values; those of the body likewise. The body gives the
    condition, the carried values and a slice of each scan output."""
    carried = max(len(node.inputs) - 2, 0)
    enters = tuple((2 + k, 2 + k) for k in range(carried))
    leaves = tuple((1 + k, k) for k in range(len(node.outputs)))
    repeats = tuple((1 + k, 2 + k) for k in range(carried))
    return [Flow(node.attributes["body"].value, enters, leaves, repeats, skips=True)]


def as_optionals(node, linker):
    """The Loop in which a value that enters an iteration as an optional and leaves it as what that holds, or the other
    way round, is an optional throughout.

    onnxruntime takes a value for an optional that holds it. Where there is nothing in the optional, there is no value.
    """
    body = node.attributes["body"].value
    pairs = list(zip(body.inputs[2:], body.outputs[1:], strict=False))
    leaving = [k for k, (before, after) in enumerate(pairs) if _holds(before.type, after.type)]
    entering = [k for k, (before, after) in enumerate(pairs) if _holds(after.type, before.type)]
    if not leaving and not entering:
        return None
    node.attributes.pop("body")
    base = node.name or f"{next(v.name for v in node.outputs if v.name)}/loop"
    inner, given, like = linker.within(body), list(node.inputs), list(node.outputs)
    for k in leaving:
        before, after = pairs[k]
        like[k] = ir.Value(name=base, type=before.type)
        body.outputs[1 + k] = inner.node("Optional", [after], like[k], f"{after.name}/optional")
    for k in entering:
        before, after = pairs[k]
        body.inputs[2 + k] = whole = linker.value(f"{before.name}/optional", ir.Value(type=after.type))
        held = inner.anchored(body[0]).node("OptionalGetElement", [whole], before, f"{before.name}/held")
        before.replace_all_uses_with(held, replace_graph_outputs=True)
        given[2 + k] = linker.node("Optional", [given[2 + k]], ir.Value(type=after.type), f"{base}/optional")
    results = linker.structured("Loop", given, {"body": body}, like, base)
    for k in leaving:
        results[k] = linker.node("OptionalGetElement", [results[k]], node.outputs[k], f"{base}/held")
    return results


def _holds(optional, held):
    return isinstance(optional, ir.OptionalType) and held is not None and optional.elem_type == held


@structural(flows=loop_flows, rewrite=as_optionals)
def loop_vjp(context):
    """One iteration back: its forward values are computed anew from the carried values before it.

    The forward Loop saves those: as scan outputs where their shape is the same in every iteration, else as sequences.
    The cotangents of the carried values and those of captured values (sums over the iterations) are what the reverse
    Loop carries; it runs as often as the forward one did.
    """
    node, (flow,) = context.node, context.flows
    body, count = flow.graph, len(flow.repeats)
    for i, j in flow.enters:  # a body of the function library states no types
        body.inputs[j].type = body.inputs[j].type or node.inputs[i].type
    reads = {v: found for v in context.active if (found := _row_reads(flow, v))}
    run = context.backward(flow, cut={v: [read.outputs[0] for read in found] for v, found in reads.items()})
    # Without an iteration the first value is the last: its cotangent passes.
    carried = [j for _, j in flow.repeats if j in run.cotangents or context.cotangents[j - 2] is not None]
    _check_types(context, body, carried)
    outer = [v for v, _ in run.captured]
    sums = [context.value(f"{v.name}/sum", v) for v in outer]
    step, go = context.value("step", INT64), context.value("go", BOOL)
    positions = [row.producer().inputs[1] for row, _ in run.cut]
    results = [
        go,
        *(context.input_cotangent(run, j) for j in carried),
        *(context.sum(run.graph, s, ct) for s, (_, ct) in zip(sums, run.captured, strict=True)),
        *(ct for _, ct in run.cut),
        *(run.copied.get(position, position) for position in positions),
    ]
    like = [go, *(body.inputs[j] for j in carried), *outer, *(row for row, _ in run.cut), *positions]
    context.finish(run.graph, results, like)
    later = [run.seeds.get(j - 1) or context.value("unread", body.inputs[j]) for j in carried]
    run.graph.inputs.extend([step, go, *later, *sums])

    slices = [(ct, _item(context.cotangents[o - 1], node.outputs[o - 1])) for o, ct in run.seeds.items() if o > count]
    saving = [(inner, _plan(context, flow, value), value) for value, inner in context.residuals(run)]
    trips = _stated_trips(context, flow)
    if trips is None and not slices and not saving:
        saving = [(None, _stacked, body.inputs[0])]
    for inner, save, value in sorted(saving, key=lambda s: s[1] is not _stacked):
        slices.append((inner, save(context, body, value)))
    trips = _trips(context, slices[0][1].counted) if trips is None else trips
    _read(context, run, step, trips, slices)

    start = [context.cotangents[j - 2] or context.zeros(context.named(node.outputs[j - 2])) for j in carried]
    wrt = [*(node.inputs[j] for j in carried), *outer]
    like = [*wrt, *(_stack_of(v) for v in [*(row for row, _ in run.cut), *positions])]
    found = context.emit("Loop", [trips, None, *start, *map(context.zeros, outer)], {"body": run.graph}, like)
    stacks, rows = found[len(wrt) :], [row.producer().inputs[0] for row, _ in run.cut]
    pairs = list(zip(wrt, found, strict=False))
    for whole, ct, index in zip(rows, stacks, stacks[len(rows) :], strict=False):
        pairs.extend(context.pull("Gather", [whole, index], ct, axis=0))
    return pairs


def _check_types(context, body, carried):
    """What enters an iteration as a tensor and leaves it as a sequence, which no runtime takes, has no cotangent."""
    for j in carried:
        before, after = body.inputs[j], body.outputs[j - 1]
        if before.type is not None and after.type is not None and type(before.type) is not type(after.type):
            raise GradientError(
                f"{context.step.origin} (Loop): '{before.name}' enters an iteration as {before.type} and leaves it as "
                f"'{after.name}', {after.type}: onnx and its runtimes refuse such a Loop, give both one type"
            )


def _row_reads(flow, value):
    """The Gather nodes that read one row of a captured value each, where nothing else in the body reads it.

    The cotangents of the rows are stacked, and added up once, after the reverse Loop: a sum of the size of the whole
    value in every iteration would make the cost quadratic.
    """
    nodes = [node for node in flow.graph if value in node.inputs]
    if isinstance(value.type, ir.SequenceType) or any(value in captures(node) for node in flow.graph):
        return []
    plain = all(_reads_a_row(node) and node.inputs[0] is value for node in nodes)
    return nodes if plain else []


def _reads_a_row(node):
    if node.op_type != "Gather" or node.domain or node.outputs[0].shape is None:
        return False
    axis, index = node.attributes.get("axis"), node.inputs[1]
    return index.shape is not None and len(index.shape) == 0 and (axis is None or axis.value == 0)


def _stack_of(value):
    """The type of a scan output with this value in each iteration."""
    return ir.Value(name=value.name, type=value.type, shape=ir.Shape([None, *value.shape]))


@dataclass
class Saved:
    """What the forward Loop gives for each iteration.

    Attributes:
        counted: an output with one element for each iteration, which tells how many there were.
        at: writes into the reverse body the value that belongs to an iteration.
    """

    counted: ir.Value
    at: Callable


def _item(stack, counted=None):
    """A value of each iteration, stacked; `counted` is a primal value as long where that is a cotangent."""
    return Saved(
        counted or stack, lambda head, like, index: head.node("Gather", [stack, index], like, like.name, axis=0)
    )


def _plan(context, flow, value):
    """How a value of the body is saved."""
    if value.type is None:
        raise GradientError(
            f"{context.step.origin} (Loop): the backward pass of an iteration reads '{value.name}', whose type is not "
            "known; state it in value_info"
        )
    if isinstance(value.type, ir.OptionalType):
        return _unpacked
    if isinstance(value.type, ir.SequenceType):
        return _flattened
    return _stacked if _repeats_its_shape(flow, context.node, value) else _listed


def _repeats_its_shape(flow, node, value):
    """Whether a value of the body is known to have the same shape in every iteration."""
    if value.shape is None:
        return False
    fixed = {d.value for v in flow.outer() if v.shape is not None for d in v.shape if isinstance(d, ir.SymbolicDim)}
    for o, j in flow.repeats:
        before, after, first = flow.graph.inputs[j].shape, flow.graph.outputs[o].shape, node.inputs[j].shape
        if before is not None and before == after and before == first:
            fixed |= {d.value for d in before if isinstance(d, ir.SymbolicDim)}
    return all(isinstance(d, int) or d.value in fixed - {None} for d in value.shape)


def _stacked(context, body, value):
    """One more scan output of the forward node."""
    context.add(body, value)
    out = context.output(len(context.node.outputs), value)
    out.shape = _stack_of(value).shape
    return _item(out)


def _listed(context, body, value):
    """One more carried value of the forward node: a sequence to which every iteration appends a tensor."""
    kind = ir.Value(name=value.name, type=ir.SequenceType(value.type))
    saved = _carry(
        context, body, kind, lambda inner, before: inner.node("SequenceInsert", [before, value], kind, value.name)
    )
    return Saved(saved, lambda head, like, index: head.node("SequenceAt", [saved, index], like, like.name))


def _flattened(context, body, value):
    """A sequence in each iteration: one carried sequence of all elements, and where each begins and how long it is."""
    inner = context.linker.within(body)
    first = []

    def append(inner, before):
        first.append(inner.node("SequenceLength", [before], INT64, f"{value.name}/first"))
        return map_elements(inner, [value], value, lambda _, items: items[0], onto=before)

    length = inner.node("SequenceLength", [value], INT64, f"{value.name}/length")
    lengths = _stacked(context, body, length)
    saved = _carry(context, body, ir.Value(name=value.name, type=value.type), append)
    firsts = _stacked(context, body, first[0])

    def at(head, like, index):
        start, count = (
            s.at(head, ir.Value(name=like.name, type=INT64.type, shape=INT64.shape), index) for s in (firsts, lengths)
        )
        return map_elements(head, [saved], like, lambda _, items: items[0], start=start, length=count)

    return Saved(lengths.counted, at)


def _unpacked(context, body, value):
    """An optional in each iteration: whether it holds something, and what it holds as a sequence."""
    has, content = as_sequence(context.linker.within(body), value)
    flags, contents = _stacked(context, body, has), _flattened(context, body, content)

    def at(head, like, index):
        flag = flags.at(head, ir.Value(name=like.name, type=BOOL.type, shape=BOOL.shape), index)
        held = ir.Value(name=like.name, type=content.type, shape=content.shape)
        return as_optional(head, flag, contents.at(head, held, index), like)

    return Saved(flags.counted, at)


def _carry(context, body, kind, extend):
    """One more carried value of the forward node, a sequence that is empty at first."""
    node, linker, states = context.node, context.linker, len(context.node.inputs) - 2
    empty = linker.anchored(node).node(
        "SequenceEmpty", [], ir.Value(type=kind.type), f"{kind.name}/none", dtype=int(kind.dtype)
    )
    before = context.value(f"{kind.name}/saved", kind)
    after = extend(linker.within(body), before)
    node.resize_inputs(len(node.inputs) + 1)
    node.replace_input_with(len(node.inputs) - 1, empty)
    body.inputs.append(before)
    body.outputs.insert(1 + states, after)
    return context.output(states, kind)


def _stated_trips(context, flow):
    """The Loop's own trip count, where no condition ends it before; else None."""
    node, known = context.node, context.linker.knowledge.constant
    count, start, after = node.inputs[0], node.inputs[1], flow.graph.outputs[0]
    if count is None or count.shape is None or len(count.shape) > 0:
        return None
    while after is not flow.graph.inputs[1] and (producer := after.producer()) and producer.op_type == "Identity":
        after = producer.inputs[0]
    goes_on = after is flow.graph.inputs[1] or _is_true(known(after))
    return count if goes_on and (start is None or _is_true(known(start))) else None


def _is_true(content):
    return content is not None and bool(np.all(content))


def _trips(context, counted):
    """How often the forward Loop ran: the length of what it gave for each iteration, as a scalar."""
    linker, base = context.linker, f"{context.step.origin}/trips"
    if isinstance(counted.type, ir.SequenceType):
        return linker.node("SequenceLength", [counted], INT64, base)
    length = linker.node("Shape", [counted], ir.Value(type=INT64.type, shape=ir.Shape([1])), base, start=0, end=1)
    return linker.node("Squeeze", [length], INT64, base)


def _read(context, run, step, trips, slices):
    """At the head of the reverse body: the iteration that it reverses, and what belongs to that."""
    graph, linker = run.graph, context.linker
    one = linker.constants.get(np.asarray(1, np.int64))
    last = linker.node("Sub", [trips, one], INT64, f"{context.step.origin}/last")
    head = linker.within(graph).anchored(graph[0])
    index = head.node("Sub", [last, step], INT64, f"{context.step.origin}/iteration")
    for inner, saved in slices:
        if inner is not None:
            inner.replace_all_uses_with(saved.at(head, inner, index))
    run.inputs[0].replace_all_uses_with(index)
    run.inputs[1].replace_all_uses_with(linker.constants.get(np.asarray(True)))
