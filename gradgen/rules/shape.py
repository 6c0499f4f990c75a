"""Rules of operators that move, copy or view elements."""

from __future__ import annotations

from gradgen.rules.lang import op, vjp


@vjp
def identity_vjp(doutput):
    """dx = dy."""
    dinput = op.Identity(doutput)
    return dinput
