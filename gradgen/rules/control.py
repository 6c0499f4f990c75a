"""The rule of If."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.engine.subgraphs import splice
from gradgen.errors import GradientError
from gradgen.rules.lang import structural


def decide(node, linker):
    """The branch itself, where the model's constants decide which one is taken."""
    condition = linker.knowledge.constant(node.inputs[0])
    if condition is None:
        return None
    taken = "then_branch" if condition.reshape(-1)[0] else "else_branch"
    return splice(node.attributes[taken].value, node, linker.names)


@structural(rewrite=decide)
def if_vjp(context):
    """The derivative of a branch is taken where the branch was: an If on the same condition.

    Each branch recomputes what its backward pass reads; captured values are read where they are.
    """
    branches = {}
    for flow, name in zip(context.flows, context.node.attributes, strict=True):
        branches[name] = context.backward(flow, {o: ct for o, ct in enumerate(context.cotangents) if ct is not None})
    wrt = [v for v in context.active if any(v in dict(run.captured) for run in branches.values())]
    if not wrt:
        return []
    for run in branches.values():
        found = dict(run.captured)
        context.finish(run.graph, [found.get(v) or context.zeros(v, run.graph) for v in wrt], wrt)
        for value, inner in context.residuals(run):
            inner.replace_all_uses_with(_keep(context, run.flow, value))
    graphs = {name: run.graph for name, run in branches.items()}
    return list(zip(wrt, context.emit("If", context.inputs, graphs, wrt), strict=True))


def _keep(context, flow, value):
    """One more output of the forward If: a random draw of one branch. The other one gives something of its type."""
    node, linker = context.node, context.linker
    out = context.output(len(node.outputs), value)
    for other in context.flows:
        if other.graph is flow.graph:
            context.add(flow.graph, value)
            continue
        inner = linker.within(other.graph)
        if isinstance(value.type, ir.SequenceType):
            stand_in = inner.node("SequenceEmpty", [], value, f"{value.name}/none", dtype=int(value.dtype))
        elif value.dtype is None or value.shape is None:
            raise GradientError(
                f"{context.step.origin} (If): its backward pass needs the random draw '{value.name}' of a branch, "
                "whose type is not known: the other branch cannot give anything in its place. State it in value_info"
            )
        else:
            static = all(isinstance(d, int) for d in value.shape)
            shape = list(value.shape) if static else [0] * len(value.shape)
            zeros = linker.constants.get(np.zeros(shape, value.dtype.numpy()))
            stand_in = inner.node("Identity", [zeros], value, f"{value.name}/none")
            out.shape = ir.Shape([d if static else None for d in value.shape])
        other.graph.outputs.append(stand_in)
    return out
