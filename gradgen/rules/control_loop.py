"""The rule of Loop: a Loop over the iterations in reverse order, which reads what the forward Loop saved of each."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.engine.flow import Flow
from gradgen.rules.lang import structural


def loop_flows(node):
    """Inputs are the trip count, the condition and the carried values; those of the body likewise. The body gives the
    condition, the carried values and a slice of each scan output."""
    carried = max(len(node.inputs) - 2, 0)
    enters = tuple((2 + k, 2 + k) for k in range(carried))
    leaves = tuple((1 + k, k) for k in range(len(node.outputs)))
    repeats = tuple((1 + k, 2 + k) for k in range(carried))
    return [Flow(node.attributes["body"].value, enters, leaves, repeats)]


@structural(flows=loop_flows)
def loop_vjp(context):
    """One iteration back: its forward values are computed anew from the carried values before it.

    The forward Loop saves those: as scan outputs where their shape is the same in every iteration, else as sequences.
    The cotangents of the carried values and those of captured values (sums over the iterations) are what the reverse
    Loop carries; it runs as often as the forward one did.
    """
    node, (flow,) = context.node, context.flows
    body, count = flow.graph, len(flow.repeats)
    run = context.backward(flow)
    carried = [j for j in run.cotangents if j - 1 in run.seeds]
    outer = [v for v, _ in run.captured]
    if not carried and not outer:
        return []
    sums = [context.value(f"{v.name}/sum", v) for v in outer]
    step = context.value("step", body.inputs[0])
    go = context.value("go", body.inputs[1])
    results = [
        go,
        *(run.cotangents[j] for j in carried),
        *(context.sum(run.graph, s, ct) for s, (_, ct) in zip(sums, run.captured, strict=True)),
    ]
    context.finish(run.graph, results, [body.inputs[1], *(body.inputs[j] for j in carried), *outer])
    run.graph.inputs.extend([step, go, *(run.seeds[j - 1] for j in carried), *sums])

    residuals = context.residuals(run)
    repeated = [_repeats_its_shape(flow, node, value) for value, _ in residuals]
    seeds = {o: ct for o, ct in run.seeds.items() if o > count}
    slices = [(ct, context.cotangents[o - 1]) for o, ct in seeds.items()]
    kept = [_save(context, body, value) for (value, _), same in zip(residuals, repeated, strict=True) if same]
    if not kept and all(repeated) and not slices:
        kept = [_save(context, body, body.inputs[0])]
    listed = _save_sequences(context, body, [v for (v, _), same in zip(residuals, repeated, strict=True) if not same])
    stacks, lists = iter(kept), iter(listed)
    slices += [(inner, next(stacks if same else lists)) for (_, inner), same in zip(residuals, repeated, strict=True)]
    trips = _trips(context, listed[0] if listed else (kept[0] if kept else slices[0][1]))
    _read(context, run, step, trips, slices)

    start = [context.cotangents[j - 2] or context.zeros(context.named(node.outputs[j - 2])) for j in carried]
    wrt = [*(node.inputs[j] for j in carried), *outer]
    found = context.emit("Loop", [trips, None, *start, *map(context.zeros, outer)], {"body": run.graph}, wrt)
    return zip(wrt, found, strict=True)


def _repeats_its_shape(flow, node, value):
    """Whether a value of the body is known to have the same shape in every iteration."""
    if isinstance(value.type, ir.SequenceType | ir.OptionalType) or value.shape is None:
        return False
    fixed = {d for v in flow.outer() if v.shape is not None for d in v.shape if isinstance(d, ir.SymbolicDim)}
    for o, j in flow.repeats:
        before, after, first = flow.graph.inputs[j].shape, flow.graph.outputs[o].shape, node.inputs[j].shape
        if before is not None and before == after and before == first:
            fixed |= {d for d in before if isinstance(d, ir.SymbolicDim)}
    return all(isinstance(d, int) or (d.value is not None and d in fixed) for d in value.shape)


def _save(context, body, value):
    """One more scan output of the forward node: a value of each iteration."""
    node = context.node
    context.add(body, value)
    node.resize_outputs(len(node.outputs) + 1)
    out = node.outputs[-1]
    out.name = context.linker.names.unique(f"{node.name}/{value.name}/saved")
    out.type, out.shape = value.type, ir.Shape([None, *value.shape])
    return out


def _save_sequences(context, body, values):
    """More carried values of the forward node: a sequence for each value, to which every iteration appends."""
    node, linker = context.node, context.linker
    states, listed = len(node.inputs) - 2, []
    for k, value in enumerate(values):
        kind = ir.SequenceType(value.type)
        like = ir.Value(type=kind)
        empty = linker.anchored(node).node("SequenceEmpty", [], like, f"{value.name}/none", dtype=int(value.dtype))
        before = context.value(f"{value.name}/saved", like)
        after = linker.within(body).node("SequenceInsert", [before, value], like, f"{value.name}/saved")
        node.resize_inputs(len(node.inputs) + 1)
        node.replace_input_with(len(node.inputs) - 1, empty)
        body.inputs.append(before)
        body.outputs.insert(1 + states + k, after)
        out = context.insert_output(states + k)
        out.name = linker.names.unique(f"{node.name}/{value.name}/saved")
        out.type = kind
        listed.append(out)
    return listed


def _trips(context, saved):
    """How often the forward Loop ran: the length of what it gave for each iteration, as a scalar."""
    linker = context.linker
    scalar = ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    base = f"{context.step.origin}/trips"
    if isinstance(saved.type, ir.SequenceType):
        return linker.node("SequenceLength", [saved], scalar, base)
    shape = ir.Value(type=scalar.type, shape=ir.Shape([1]))
    length = linker.node("Shape", [saved], shape, base, start=0, end=1)
    return linker.node("Squeeze", [length], scalar, base)


def _read(context, run, step, trips, slices):
    """At the head of the reverse body: the iteration that it reverses, and what belongs to that."""
    graph, linker = run.graph, context.linker
    one = linker.constants.get(np.asarray(1, np.int64))
    last = linker.node("Sub", [trips, one], trips, f"{context.step.origin}/last")
    head = linker.within(graph).anchored(graph[0])
    index = head.node("Sub", [last, step], step, f"{context.step.origin}/iteration")
    for inner, saved in slices:
        if isinstance(saved.type, ir.SequenceType):
            found = head.node("SequenceAt", [saved, index], inner, inner.name)
        else:
            found = head.node("Gather", [saved, index], inner, inner.name, axis=0)
        inner.replace_all_uses_with(found)
    run.inputs[0].replace_all_uses_with(index)
    run.inputs[1].replace_all_uses_with(linker.constants.get(np.asarray(True)))
