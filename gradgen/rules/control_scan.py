"""The rule of Scan: a Scan over the steps in reverse order, which reads the states that the forward Scan saved."""

from __future__ import annotations

import onnx_ir as ir

from gradgen.engine.flow import Flow
from gradgen.errors import GradientError
from gradgen.rules.lang import structural


def scan_flows(node):
    """States repeat; a step reads its slice of each scan input, and gives one of each scan output."""
    states = len(node.inputs) - node.attributes["num_scan_inputs"].value
    enters = tuple((i, i) for i in range(len(node.inputs)))
    leaves = tuple((k, k) for k in range(len(node.outputs)))
    axes, _ = _layout(node, "input", len(node.inputs) - states)
    sliced = tuple((states + k, axis) for k, axis in enumerate(axes))
    return [Flow(node.attributes["body"].value, enters, leaves, leaves[:states], sliced)]


@structural(flows=scan_flows)
def scan_vjp(context):
    """One step back: its forward values are computed anew from the state before it, which the forward Scan saves.

    The cotangents of the states and those of captured values (sums over the steps) are the states of the reverse Scan.
    """
    node, (flow,) = context.node, context.flows
    states = len(flow.repeats)
    axes, directions = _layout(node, "input", len(node.inputs) - states)
    out_axes, out_directions = _layout(node, "output", len(node.outputs) - states)
    run = context.backward(flow)
    body = flow.graph

    carried = [j for j in range(states) if j in run.cotangents or j in run.seeds]
    sliced = [j for j in run.cotangents if j >= states]
    outer = [v for v, _ in run.captured]
    for value in outer:
        if not isinstance(value.type, ir.TensorType):
            raise GradientError(
                f"{context.step.origin} (Scan): its body reads '{value.name}', {value.type}, whose cotangent a Scan cannot "
                "carry from step to step: read its elements outside, or write a Loop"
            )
    sums = [context.value(f"{v.name}/sum", v) for v in outer]
    results = [
        *(context.input_cotangent(run, j) for j in carried),
        *(context.sum(run.graph, s, ct) for s, (_, ct) in zip(sums, run.captured, strict=True)),
        *(context.input_cotangent(run, j) for j in sliced),
    ]
    seeds = [o for o in run.seeds if o >= states]
    like = [*(body.inputs[j] for j in carried), *outer, *(body.inputs[j] for j in sliced)]
    context.finish(run.graph, results, like)
    saved = context.residuals(run)
    read = [j for j in range(states, len(body.inputs)) if run.inputs[j].uses()]
    if not saved and not read and not seeds:
        read = [states]  # something has to tell how many steps there are
    run.graph.inputs.extend([
        *(run.seeds.get(j) or context.value("unread", body.inputs[j]) for j in carried),
        *sums, *(inner for _, inner in saved),
        *(run.inputs[j] for j in read), *(run.seeds[o] for o in seeds),
    ])  # fmt: skip

    length = _dimension(node.inputs[states], axes[0])
    kept = [_save(context, body, value, length) for value, _ in saved]
    start = [context.cotangents[j] or context.zeros(node.outputs[j]) for j in carried]
    scanned = [*kept, *(node.inputs[j] for j in read), *(context.cotangents[o] for o in seeds)]
    found = context.emit(
        "Scan",
        [*start, *map(context.zeros, outer), *scanned],
        {"body": run.graph},
        [*(node.inputs[j] for j in carried), *outer, *(node.inputs[j] for j in sliced)],
        num_scan_inputs=len(scanned),
        scan_input_axes=[
            *[0] * len(kept), *(axes[j - states] for j in read), *(out_axes[o - states] for o in seeds),
        ] or None,
        scan_input_directions=[
            *[1] * len(kept), *(1 - directions[j - states] for j in read),
            *(1 - out_directions[o - states] for o in seeds),
        ] or None,
        scan_output_axes=[axes[j - states] for j in sliced] or None,
        scan_output_directions=[1 - directions[j - states] for j in sliced] or None,
    )  # fmt: skip
    return zip([*(node.inputs[j] for j in carried), *outer, *(node.inputs[j] for j in sliced)], found, strict=True)


def _layout(node, side, count):
    """Axes and directions of the scan inputs or outputs."""
    given = [node.attributes.get(f"scan_{side}_{what}") for what in ("axes", "directions")]
    axes, directions = ([0] * count if a is None else list(a.value) for a in given)
    return axes, directions


def _dimension(value, axis):
    """A dimension of a value, where it is known."""
    return None if value.shape is None else value.shape[axis]


def _save(context, body, value, length):
    """One more scan output of the forward node: a value of each step."""
    node = context.node
    context.add(body, value)
    out = context.output(len(node.outputs), value)
    if value.shape is not None:
        out.shape = ir.Shape([length, *value.shape])
    for what in ("axes", "directions"):
        given = node.attributes.get(f"scan_output_{what}")
        if given is not None:
            node.attributes[given.name] = ir.AttrInt64s(given.name, [*given.value, 0])
    return out
