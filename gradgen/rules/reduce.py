"""Rules of reductions, cumulative sums, TopK and OneHot."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.rules.lang import op, traced
from gradgen.rules.library import expand_like


def unreduced(x, data, axes, keepdims):
    """A reduced tensor with the reduced axes put back as axes of size 1: it broadcasts against the data.

    Empty and absent axes need nothing: they reduce everything, which leaves a scalar, or nothing at all.
    """
    if keepdims or axes is None or data.shape == ():
        return x
    return op.Unsqueeze(x, axes)


def reduced_share(data, reduced):
    """Elements of the result ÷ elements of the data, which is 1/n for n reduced ones; in the type of the data."""
    if data.size is not None and reduced.size is not None and data.dtype is not None:
        return np.asarray(reduced.size / data.size if data.size else 0.0, data.dtype.numpy())
    wide = [op.Cast(op.Size(x), to=int(ir.DataType.DOUBLE)) for x in (reduced, data)]
    return op.CastLike(op.Div(*wide), data)


@traced("ddata")
def reduce_sum_vjp(dreduced, data, axes, *, keepdims: int = 1, noop_with_empty_axes: int = 0):
    """dx = dy, spread over the reduced axes."""
    return expand_like(unreduced(dreduced, data, axes, keepdims), data)


@traced("ddata")
def reduce_mean_vjp(dreduced, data, axes, reduced, *, keepdims: int = 1, noop_with_empty_axes: int = 0):
    """dx = dy / n, spread over the n reduced elements."""
    return expand_like(unreduced(dreduced * reduced_share(data, reduced), data, axes, keepdims), data)
