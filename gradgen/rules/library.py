"""Library functions that rules call: a general onnxscript body, and a static lowering for what linking knows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from gradgen.errors import GradientError
from gradgen.rules.lang import library, op, same_dim

# From so many elements on, rows are summed by a product with a row of ones, which is faster than ReduceSum; what is to
# be viewed as a matrix first, from ROWS_SIZE on.
MATRIX_SIZE, ROWS_SIZE = 1 << 11, 1 << 15
# So many ones are a constant; more are made at run time.
ROWS_CONSTANT = 1 << 12


@library
def sum_to(ct, like):
    """The cotangent of `like` where it was broadcast to the shape of ct: sums over the broadcast dimensions."""
    ct_shape = op.Shape(ct)
    like_shape = op.Shape(like)
    missing = op.Sub(op.Size(ct_shape), op.Size(like_shape))
    ones = op.Expand(op.Constant(value_ints=[1]), op.Reshape(missing, op.Constant(value_ints=[1])))
    padded = op.Concat(ones, like_shape, axis=0)
    single = op.Equal(padded, op.Constant(value_int=1))
    axes = op.Reshape(op.NonZero(single), op.Constant(value_ints=[-1]))
    reduced = op.ReduceSum(ct, axes, keepdims=1, noop_with_empty_axes=1)
    result = op.Reshape(reduced, like_shape, allowzero=1)
    return result


@sum_to.lower
def _sum_to(ct, like):
    if ct.shape is None or like.shape is None:
        return None
    extra = like.shape[: max(len(like.shape) - len(ct.shape), 0)]
    if any(isinstance(s, int) and s > 1 for s in extra):
        raise GradientError(
            f"an operand of {len(like.shape)} dimensions is not broadcast to a result of {len(ct.shape)}"
        )
    if extra:
        return None
    lead = len(ct.shape) - len(like.shape)
    inner = []
    for axis, (c, s) in enumerate(zip(ct.shape[lead:], like.shape, strict=True), start=lead):
        if same_dim(c, s) or c == 1 or (isinstance(s, int) and s != 1):
            continue
        if s != 1:
            return None
        inner.append(axis)
    axes = np.asarray([*range(lead), *inner], np.int64)
    if not inner and lead and len(like.shape) == 1 and many_rows(ct):
        result = sum_rows(ct if len(ct.shape) == 2 else op.Flatten(ct, axis=-1))
    elif not inner:
        result = op.ReduceSum(ct, axes, keepdims=0) if lead else ct
    elif not lead:
        result = op.ReduceSum(ct, axes, keepdims=1)
    else:
        result = reshape_like(op.ReduceSum(ct, axes, keepdims=0), like)
    return result


def many_rows(x):
    """Whether rows of x are better summed by `sum_rows`."""
    least = MATRIX_SIZE if x.rank == 2 else ROWS_SIZE
    return x.static and x.size >= least and x.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def sum_rows(x):
    """The sum of the rows of a matrix of known size, as a product with a row of ones."""
    count, one = x.shape[0], np.ones(1, x.dtype.numpy())
    return op.MatMul(np.repeat(one, count) if count <= ROWS_CONSTANT else op.Expand(one, [count]), x)


@library
def reshape_like(x, like):
    """x with the shape of `like`, which has as many elements."""
    result = op.Reshape(x, op.Shape(like), allowzero=1)
    return result


@library
def expand_like(x, like):
    """x broadcast to the shape of `like`."""
    result = op.Expand(x, op.Shape(like))
    return result


@library
def zeros_like(like):
    """Zeros of the shape and type of `like`."""
    zero = op.CastLike(op.Constant(value_float=0.0), like)
    result = op.Expand(zero, op.Shape(like))
    return result


@zeros_like.lower
def _zeros_like(like):
    if like.dtype is None or not like.static:
        return None
    result = op.Expand(np.zeros((), like.dtype.numpy()), np.asarray(like.shape, np.int64))
    result.zero = True
    return result


@library
def mask(condition, like):
    """1 where the condition holds and 0 elsewhere, in the type of `like`: multiplying by it is faster than Where."""
    result = op.CastLike(condition, like)
    return result


@library
def select(condition, ct):
    """ct where the condition holds and exactly 0 elsewhere, whatever ct holds there (inf, NaN)."""
    zero = op.CastLike(op.Constant(value_float=0.0), ct)
    result = op.Where(condition, ct, zero)
    return result


@library
def nudge(x, ct):
    """x, but 1 where both x and ct are 0: ct divided by it is ±inf at a pole for a non-zero ct, and 0 for a zero one.

    Dearer than x itself, far cheaper than a Where; where x is not 0 the derivative to ct is kept even for a zero ct.
    """
    both = op.And(op.Equal(x, op.CastLike(0.0, x)), op.Equal(ct, op.CastLike(0.0, ct)))
    result = x + op.CastLike(both, x)
    return result


@nudge.lower
def _nudge(x, ct):
    return x if x.peek is not None and np.all(x.peek) else None


@library
def divide_inside(ct, root):
    """ct / root; where the root is not positive (an edge of the domain, NaN beyond it), 0 for a zero ct."""
    keep = op.Or(op.Greater(root, op.CastLike(0.0, root)), op.Cast(ct, to=9))
    result = select(keep, ct / root)
    return result


@library
def transpose_matrix(x):
    """x with its last two axes exchanged; x has rank 2 or more."""
    rows = op.Shape(x, start=-2, end=-1)
    columns = op.Shape(x, start=-1)
    batch = op.Shape(x, end=-2)
    # Rank-free: the matrices are read through an index that walks them column by column.
    flat = op.Reshape(x, op.Concat(op.Constant(value_ints=[-1]), op.Mul(rows, columns), axis=0))
    steps = op.Range(op.Constant(value_int=0), op.Squeeze(op.Mul(rows, columns)), op.Constant(value_int=1))
    order = op.Reshape(op.Transpose(op.Reshape(steps, op.Concat(rows, columns, axis=0))), op.Constant(value_ints=[-1]))
    picked = op.Gather(flat, order, axis=1)
    result = op.Reshape(picked, op.Concat(batch, columns, rows, axis=0))
    return result


@transpose_matrix.lower
def _transpose_matrix(x):
    if x.shape is None:
        return None
    axes = list(range(len(x.shape)))
    return op.Transpose(x, perm=[*axes[:-2], axes[-1], axes[-2]])


@library
def finite_positive(x):
    """x ≥ 0 with a large number in place of infinity, so that a zero cotangent times it is zero."""
    large = op.CastLike(op.Constant(value_float=65504.0), x)
    result = op.Where(op.IsInf(x), large, x)
    return result


@finite_positive.lower
def _finite_positive(x):
    return None if x.dtype is None else op.Min(x, np.asarray(ml_dtypes.finfo(x.dtype.numpy()).max, x.dtype.numpy()))


@library
def recurrence(a, b, backward: int = 0):
    """h with hᵢ = bᵢ + aᵢ·hᵢ₋₁ along axis 1 of values of rank 3 (hᵢ₊₁ where `backward` is 1), in log n steps."""
    size = op.Shape(b, start=1, end=2)
    one = op.Constant(value_ints=[1])
    sign = op.Sub(one, op.Mul(op.Constant(value_ints=[2]), op.Reshape(op.Constant(value_int=backward), one)))
    none = op.Constant(value_ints=[0])
    zero = op.CastLike(op.Constant(value_float=0.0), b)
    step = op.Identity(one)
    more = op.Squeeze(op.Less(step, size))
    while more:
        # What lies `step` places back is 0 at the edge.
        move = op.Mul(step, sign)
        pads = op.Concat(none, move, none, none, op.Neg(move), none, axis=0)
        b = b + a * op.Pad(b, pads, zero)
        a = a * op.Pad(a, pads, zero)
        step = op.Add(step, step)
        more = op.Squeeze(op.Less(step, size))
    result = op.Identity(b)
    return result


@recurrence.lower
def _recurrence(a, b, backward=0):
    if b.shape is None or not isinstance(b.shape[1], int):
        return None
    step, sign, zero = 1, -1 if backward else 1, op.CastLike(0.0, b)
    while step < b.shape[1]:
        pads = [0, sign * step, 0, 0, -sign * step, 0]
        b = b + a * op.Pad(b, pads, zero)
        a = a * op.Pad(a, pads, zero)
        step *= 2
    return b
