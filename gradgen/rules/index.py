"""Rules of operators that read or write elements by index."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.rules.lang import op, traced
from gradgen.rules.library import expand_like, reshape_like, zeros_like

HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def ones_like(x):
    """Ones of the shape and type of x."""
    return expand_like(op.CastLike(op.Constant(value=ir.tensor(np.float32(1.0))), x), x)


def scatter(x, indices, updates, axis, reduction):
    """ScatterElements with a reduction; the half types, which onnxruntime cannot scatter, go through float32."""
    if x.dtype not in HALVES:
        return op.ScatterElements(x, indices, updates, axis=axis, reduction=reduction)
    wide = [op.Cast(v, to=int(ir.DataType.FLOAT)) for v in (x, updates)]
    return op.Cast(op.ScatterElements(wide[0], indices, wide[1], axis=axis, reduction=reduction), to=int(x.dtype))


def positions(like):
    """The numbers 0, 1, … in the shape of `like`."""
    return reshape_like(op.Range(np.int64(0), op.Size(like), np.int64(1)), like)


def distinct(indices, axis, shape):
    """Whether the indices are known to name every element at most once."""
    if shape is not None and -len(shape) <= axis < len(shape) and indices.shape is not None:
        if indices.shape[axis] in (0, 1):
            return True
    if indices.const is None or shape is None or not isinstance(shape[axis], int):
        return False
    ordered = np.sort(indices.const % max(shape[axis], 1), axis=axis)
    return not np.any(np.diff(ordered, axis=axis) == 0)


def kept(data, indices, updates, axis):
    """Which updates a scatter without reduction leaves in the result: for each element the last in index order."""
    order = positions(updates)
    nothing = op.Expand(np.int64(-1), op.Shape(data))
    last = op.ScatterElements(nothing, indices, order, axis=axis, reduction="max")
    return op.Equal(op.GatherElements(last, indices, axis=axis), order)


def tail(x, axis):
    """The dimensions of x behind an axis."""
    return np.zeros(0, np.int64) if axis == -1 else op.Shape(x, start=axis + 1)


@traced("ddata")
def gather_vjp(doutput, data, indices, *, axis: int = 0):
    """dx = Σ over the places that were read, by a scatter along the axis; repeated indices are summed."""
    count = op.Reshape(op.Size(indices), [1])
    spread = op.Concat(op.Shape(data, end=axis), count, tail(data, axis), axis=0)
    behind = (data.rank - axis - 1) % data.rank if axis >= 0 else -axis - 1
    index = op.Reshape(indices, op.Concat(count, np.ones(behind, np.int64), axis=0), allowzero=1)
    updates = op.Reshape(doutput, spread, allowzero=1)
    return scatter(zeros_like(data), op.Expand(index, spread), updates, axis, "add")


@traced("ddata")
def gather_elements_vjp(doutput, data, indices, *, axis: int = 0):
    """dx = dy added up at the indices."""
    return scatter(zeros_like(data), indices, doutput, axis, "add")


@traced("ddata", "dupdates")
def scatter_elements_vjp(doutput, data, indices, updates, output, *, axis: int = 0, reduction: str = "none"):
    """dx = dy where nothing was written; du = dy[i]. Reductions: see `scattered`."""
    return scattered(doutput, data, indices, updates, output, axis, reduction)


def scattered(doutput, data, indices, updates, output, axis, reduction):
    """Cotangents of the data and of the updates of a scatter.

    none: an element keeps the last update in index order. add: dx = dy, du = dy[i]. max, min: split evenly among the
    data and the updates that tie. mul: the products of the other factors.
    """
    read = op.GatherElements(doutput, indices, axis=axis)
    if reduction == "add":
        return op.Identity(doutput), read
    if reduction in ("max", "min"):
        return _scattered_extremum(doutput, data, indices, updates, output, axis)
    if reduction == "mul":
        return _scattered_product(doutput, data, indices, updates, axis)
    ddata = op.ScatterElements(doutput, indices, zeros_like(updates), axis=axis)
    if not distinct(indices, axis, data.shape):
        read = read * op.CastLike(kept(data, indices, updates, axis), read)
    return ddata, read


def _scattered_extremum(doutput, data, indices, updates, output, axis):
    """du = dy[i]·[u = y[i]] / n[i], where n counts what ties."""
    own = op.CastLike(op.Equal(data, output), data)
    theirs = op.CastLike(op.Equal(updates, op.GatherElements(output, indices, axis=axis)), data)
    share = doutput / scatter(own, indices, theirs, axis, "add")
    return own * share, theirs * op.GatherElements(share, indices, axis=axis)


def _scattered_product(doutput, data, indices, updates, axis):
    """du = dy[i] · the other factors at i, right where factors are zero: P / u, P of the factors that are not zero.

    With exactly one other zero factor the product is that factor, times P: it is written as the sum of the factors that
    are zero, which is 0 and has the right derivative. With more there is nothing. So the rule is exact to second order.
    """
    zero = op.CastLike(op.Constant(value=ir.tensor(np.float32(0.0))), data)
    own, theirs = (op.CastLike(op.Equal(x, zero), data) for x in (data, updates))
    ddata = doutput * scatter(ones_like(data), indices, updates, axis, "mul")
    safe = op.Add(updates, theirs)
    others = scatter(op.Add(data, own), indices, safe, axis, "mul")
    count = scatter(own, indices, theirs, axis, "add")
    blank = scatter(own * data, indices, theirs * updates, axis, "add")
    others, count, blank, read = (op.GatherElements(x, indices, axis=axis) for x in (others, count, blank, doutput))
    return ddata, read * (others / safe) * product_of_zeros(count - theirs, blank - theirs * updates)


def product_of_zeros(count, total):
    """The product of `count` factors that are zero and add up to `total`: 1, the factor, or 0; exact to second order."""
    none, one = (op.CastLike(op.Equal(count, op.CastLike(np.float32(n), count)), count) for n in (0.0, 1.0))
    return none + one * total
