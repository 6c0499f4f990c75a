"""The rule of If."""

from __future__ import annotations

from gradgen.engine.subgraphs import splice
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
        branches[name] = context.backward(flow, dict(enumerate(context.cotangents)))
    wrt = [v for v in context.active if any(v in dict(run.captured) for run in branches.values())]
    if not wrt:
        return []
    for run in branches.values():
        found = dict(run.captured)
        context.finish(run.graph, [found.get(v) for v in wrt], wrt)
    graphs = {name: run.graph for name, run in branches.items()}
    return list(zip(wrt, context.emit("If", context.inputs, graphs, wrt), strict=True))
