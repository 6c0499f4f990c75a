"""Rules of reductions, cumulative sums, TopK and OneHot."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.rules.index import product_of_zeros, scatter
from gradgen.rules.lang import op, picked, traced
from gradgen.rules.library import expand_like, mask, nudge, recurrence, zeros_like


def unreduced(x, data, axes, keepdims):
    """A reduced tensor with the reduced axes put back as axes of size 1: it broadcasts against the data.

    Empty and absent axes need nothing: they reduce everything, which leaves a scalar, or nothing at all.
    """
    if keepdims or axes is None or data.shape == ():
        return x
    return op.Unsqueeze(x, axes)


def again(op_type, data, axes, noop_with_empty_axes):
    """Another reduction over the same axes, which stay as axes of size 1."""
    return getattr(op, op_type)(data, axes, keepdims=1, noop_with_empty_axes=noop_with_empty_axes)


def reduced_dims(data, axes, noop_with_empty_axes):
    """The dimensions that a reduction sums over, or None where they are unknown."""
    chosen = np.zeros(0, np.int64) if axes is None else axes.const
    if chosen is None or data.shape is None:
        return None
    if chosen.size == 0:
        return () if noop_with_empty_axes else data.shape
    return [data.shape[a] for a in chosen] if data.shape else ()


def reduced_axes(data, axes, noop_with_empty_axes):
    """The axes that a reduction takes, in order, or None where they are unknown."""
    chosen = np.zeros(0, np.int64) if axes is None else axes.const
    if chosen is None or data.shape is None:
        return None
    if chosen.size == 0:
        return [] if noop_with_empty_axes else list(range(data.rank))
    return sorted({int(a) % data.rank for a in chosen}) if data.rank else []


def other_factors(data, axes):
    """For every element of the data the product of all others along the axes, by running products from both ends.

    Products alone: its derivatives of every order are exact, however many elements are zero.
    """
    rest = [a for a in range(data.rank) if a not in axes]
    order = [*rest, *axes]
    lines = data if order == sorted(order) else op.Transpose(data, perm=order)
    outer, length = (
        op.ReduceProd(op.Gather(op.Shape(data), np.asarray(part, np.int64)), [0], keepdims=1) if part else [1]
        for part in (rest, axes)
    )
    flat = op.Reshape(lines, op.Concat(outer, length, [1], axis=0), allowzero=1)
    places = op.Range(np.int64(0), op.Squeeze(op.Shape(flat, start=1, end=2), [0]), np.int64(1))
    product = 1.0
    for backward in (0, 1):
        onward = -1 if backward else 1
        factors = op.Pad(flat, [0, onward, 0, 0, -onward, 0], op.CastLike(1.0, flat))
        end = op.Shape(flat, start=1, end=2) - 1 if backward else np.zeros(1, np.int64)
        start = op.CastLike(op.Unsqueeze(op.Equal(places, end), [0, 2]), flat) + zeros_like(flat)
        product = recurrence(factors, start, backward=backward) * product
    product = op.Reshape(product, op.Shape(lines), allowzero=1)
    return product if lines is data else op.Transpose(product, perm=[order.index(a) for a in range(data.rank)])


def averaged(dreduced, data, axes, reduced, noop_with_empty_axes):
    """dy / n for n elements that are reduced into one."""
    dims = reduced_dims(data, axes, noop_with_empty_axes)
    if dims is not None and all(isinstance(d, int) for d in dims) and data.dtype is not None:
        count = int(np.prod(dims, dtype=np.int64))
        return dreduced * np.asarray(1.0 / count if count else 0.0).astype(data.dtype.numpy())
    if axes is None and not noop_with_empty_axes and data.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return dreduced / op.CastLike(op.Size(data), data)
    # Through double: float16 cannot hold n beyond 65504, but it can hold 1/n.
    wide = [op.Cast(op.Size(x), to=int(ir.DataType.DOUBLE)) for x in (reduced, data)]
    return dreduced * op.CastLike(op.Div(*wide), data)


@traced("ddata")
def reduce_sum_vjp(dreduced, data, axes, *, keepdims: int = 1):
    """dx = dy, spread over the reduced axes."""
    return expand_like(unreduced(dreduced, data, axes, keepdims), data)


@traced("ddata")
def reduce_mean_vjp(dreduced, data, axes, reduced, *, keepdims: int = 1, noop_with_empty_axes: int = 0):
    """dx = dy / n, spread over the n reduced elements."""
    part = averaged(dreduced, data, axes, reduced, noop_with_empty_axes)
    return expand_like(unreduced(part, data, axes, keepdims), data)


@traced("ddata")
def reduce_extremum_vjp(dreduced, data, axes, reduced, *, keepdims: int = 1, noop_with_empty_axes: int = 0):
    """dx = dy·[x = y] / n, where n elements tie for the maximum or minimum."""
    tied = mask(picked(data, unreduced(reduced, data, axes, keepdims)), data)
    ties = again("ReduceSum", tied, axes, noop_with_empty_axes)
    return tied * (unreduced(dreduced, data, axes, keepdims) / ties)


@traced("ddata")
def reduce_prod_vjp(dreduced, data, axes, *, keepdims: int = 1, noop_with_empty_axes: int = 0):
    """dx = dy · the factors before · those behind. Where the axes show at run time alone: dy · P / x, P of those that are
    not zero, times the product of the zeros, which is exact to second order."""
    chosen = reduced_axes(data, axes, noop_with_empty_axes)
    if chosen is not None:
        ct = unreduced(dreduced, data, axes, keepdims)
        return ct * other_factors(data, chosen) if chosen else ct
    zero = op.Equal(data, 0.0)
    blank = mask(zero, data)
    safe = op.Where(zero, 1.0, data)
    own = blank * data
    product = again("ReduceProd", safe, axes, noop_with_empty_axes)
    count, total, squares = (again("ReduceSum", x, axes, noop_with_empty_axes) for x in (blank, own, own * data))
    others = unreduced(dreduced, data, axes, keepdims) * product / safe
    return others * product_of_zeros(count - blank, total - own, squares - own * data)


@traced("ddata")
def reduce_l1_vjp(dreduced, data, axes, *, keepdims: int = 1):
    """dx = dy·sign(x)."""
    return op.Sign(data) * unreduced(dreduced, data, axes, keepdims)


@traced("ddata")
def reduce_l2_vjp(dreduced, data, axes, reduced, *, keepdims: int = 1):
    """dx = x·dy/y, and 0 at the zero vector."""
    norm = reduced + mask(op.Equal(reduced, 0.0), reduced)
    return data * unreduced(dreduced / norm, data, axes, keepdims)


@traced("ddata")
def reduce_sum_square_vjp(dreduced, data, axes, *, keepdims: int = 1):
    """dx = 2·x·dy."""
    return data * unreduced(dreduced * 2.0, data, axes, keepdims)


@traced("ddata")
def reduce_log_sum_vjp(dreduced, data, axes, *, keepdims: int = 1, noop_with_empty_axes: int = 0):
    """dx = dy / Σx; where the sum is 0 an infinity, or 0 for a zero dy."""
    dy = unreduced(dreduced, data, axes, keepdims)
    return expand_like(dy / nudge(again("ReduceSum", data, axes, noop_with_empty_axes), dy), data)


@traced("ddata")
def reduce_log_sum_exp_vjp(dreduced, data, axes, reduced, *, keepdims: int = 1):
    """dx = dy·exp(x − y), and 0 for a row of −∞, whose y is −∞."""
    shift = op.Where(op.Equal(reduced, float("-inf")), 0.0, reduced)
    return op.Exp(data - unreduced(shift, data, axes, keepdims)) * unreduced(dreduced, data, axes, keepdims)


@traced("dx")
def cum_sum_vjp(dy, axis, *, exclusive: int = 0, reverse: int = 0):
    """dx = the cumulative sum of dy in the other direction."""
    return op.CumSum(dy, axis, exclusive=exclusive, reverse=1 - reverse)


@traced("dX")
def top_k_vjp(dValues, X, Indices, *, axis: int = -1):
    """dX = dValues at the elements that were picked, 0 elsewhere."""
    return scatter(zeros_like(X), Indices, dValues, axis, "add")


@traced("dvalues")
def one_hot_vjp(doutput, indices, depth, values, *, axis: int = -1):
    """dvalues = [Σ dy where the output is off, Σ dy where it is on]."""
    hot = doutput * op.CastLike(op.OneHot(indices, depth, np.asarray([0, 1], np.float32), axis=axis), values)
    sums = [op.Reshape(op.ReduceSum(x, keepdims=0), [1]) for x in (doutput - hot, hot)]
    return op.Concat(*sums, axis=0)
