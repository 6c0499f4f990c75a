"""Rules of control flow."""

from __future__ import annotations

from gradgen.rules.lang import structural


@structural
def if_vjp(context):
    """The derivative of a branch is taken where the branch was: an If on the same condition.

    Each branch recomputes what its backward pass reads; captured values are read where they are.
    """
    branches, found = {}, {}
    for name in ("then_branch", "else_branch"):
        branches[name] = context.copy(name)
        found[name] = context.differentiate(branches[name], context.active)
    wrt = [v for v, *cts in zip(context.active, *found.values(), strict=True) if any(ct is not None for ct in cts)]
    if not wrt:
        return []
    for name, branch in branches.items():
        by_value = dict(zip(context.active, found[name], strict=True))
        context.finish(branch, [by_value[v] for v in wrt], wrt)
    return list(zip(wrt, context.emit("If", context.inputs, branches, wrt), strict=True))
