"""Rules of operators that join, cut, pad and repeat tensors along their axes."""

from __future__ import annotations

import numpy as np

from gradgen.rules.lang import op, traced


def extent(x, axis):
    """The size of one axis as a one-element tensor; a constant where it is known."""
    return op.Shape(x, start=axis, end=axis + 1 if axis != -1 else None)


@traced("dinputs")
def concat_vjp(dconcat_result, inputs, *, axis):
    """Each input's cotangent is its stretch of dy along the axis."""
    if len(inputs) == 1:
        return [op.Identity(dconcat_result)]
    sizes = op.Concat(*[extent(x, axis) for x in inputs], axis=0)
    return op.Split(dconcat_result, sizes, axis=axis, _outputs=len(inputs))
