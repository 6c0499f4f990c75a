"""Rules and straight-through bodies of quantised ops.

A straight-through body computes in float what the op computes on integers, with the derivative of rounding taken as 1:
the range's mask to x and the learned-step-size rule to the scale follow by calculus.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from gradgen.rules.lang import forward, given, op, traced
from gradgen.rules.library import reshape_like, sum_to
from gradgen.rules.ranks import ones_behind

FLOAT = 1
UINT8 = ir.DataType.UINT8


def blocks(part, like, axis, block_size):
    """The scale or zero point of every element of `like`: one for all, for each index of an axis or each block."""
    if part is None:
        return None
    if block_size:
        axis %= like.rank
        wide = op.Unsqueeze(part, [axis + 1])
        ones = op.Expand(np.ones(1, np.int64), [like.rank + 1])
        wide = op.Expand(
            wide, op.Concat(op.Slice(ones, [0], [axis + 1]), [block_size], op.Slice(ones, [axis + 2], [99]), axis=0)
        )
        before, after = op.Shape(part, end=axis), op.Shape(part, start=axis + 1)
        flat = op.Reshape(wide, op.Concat(before, [-1], after, axis=0))
        return op.Slice(flat, [0], op.Shape(like, start=axis, end=axis + 1), [axis])
    if part.shape in ((), (1,)):
        return op.Reshape(part, np.zeros(0, np.int64))
    behind = ones_behind(axis if axis < 0 or like.shape is None else axis - like.rank, like)
    if part.shape is not None and isinstance(behind, np.ndarray) and not behind.size:
        return part
    return op.Reshape(part, op.Concat([-1], behind, axis=0))


def unblock(ct, part, like, axis, block_size):
    """The cotangent of a scale, given that of every element: sums over what shares it."""
    if block_size:
        axis %= like.rank
        length = op.Shape(like, start=axis, end=axis + 1)
        missing = op.Sub(op.Mul(op.Shape(part, start=axis, end=axis + 1), [block_size]), length)
        zeros = [np.zeros(n, np.int64) for n in (like.rank + axis, like.rank - 1 - axis)]
        padded = op.Pad(
            ct,
            op.Concat(*[z for z in (zeros[0], missing, zeros[1]) if not isinstance(z, np.ndarray) or z.size], axis=0),
        )
        before, after = op.Shape(like, end=axis), op.Shape(like, start=axis + 1)
        grouped = op.Reshape(padded, op.Concat(before, [-1, block_size], after, axis=0))
        return op.ReduceSum(grouped, [axis + 1], keepdims=0)
    if part.shape in ((), (1,)):
        return reshape_like(op.ReduceSum(ct, keepdims=0), part)
    return sum_to(op.ReduceSum(ct, [i for i in range(like.rank) if i != axis % like.rank], keepdims=0), part)


def content(x, like):
    """A quantised tensor (or the stand-in of one) in the float type of `like`."""
    return op.CastLike(x, like)


@traced("dx_scale")
def dequantizelinear_vjp(dy, x, x_scale, x_zero_point, *, axis=1, block_size=0):
    """dx_scale = Σ dy·(x − x_zero_point) over what shares the scale."""
    centred = content(x, dy)
    if x_zero_point is not None:
        centred = centred - blocks(content(x_zero_point, dy), x, axis, block_size)
    return op.CastLike(unblock(dy * centred, x_scale, x, axis, block_size), x_scale)


@forward("y")
def dequantizelinear_through(x, x_scale, x_zero_point, y, *, axis=1, block_size=0):
    """y = (x − x_zero_point)·x_scale."""
    return dequantise(x, x_scale, x_zero_point, axis, block_size, y)


def dequantise(x, scale, zero_point, axis=1, block_size=0, like=None):
    """(x − zero_point)·scale in the type of `like` (by default of the scale)."""
    like = scale if like is None else like
    centred = content(x, like)
    if zero_point is not None:
        centred = centred - blocks(content(zero_point, like), x, axis, block_size)
    return centred * blocks(op.CastLike(scale, like), x, axis, block_size)


def quantise(x, scale, zero_point, kind, axis=1, block_size=0):
    """clip(round(x / scale) + zero_point) as a float, where rounding has the derivative 1."""
    ratio = x / blocks(op.CastLike(scale, x), x, axis, block_size)
    kind = np.dtype(kind.numpy())
    if kind.kind == "f" or "float" in kind.name:
        bound = float(ml_dtypes.finfo(kind).max)
        return op.Clip(ratio, -bound, bound)
    limits = ml_dtypes.iinfo(kind)
    rounded = given(ratio, op.Round(ratio))
    if zero_point is not None:
        rounded = rounded + blocks(content(zero_point, x), x, axis, block_size)
    return op.Clip(rounded, float(limits.min), float(limits.max))


def kind_of(y, zero_point):
    """The quantised type: that of the output, where it is known, or of its zero point; uint8 where neither is."""
    known = [v.dtype for v in (y, zero_point) if v is not None and v.dtype is not None]
    return known[0] if known else UINT8


@forward("y")
def quantizelinear_through(x, y_scale, y_zero_point, y, *, axis=1, block_size=0):
    """y = clip(round(x / y_scale) + y_zero_point)."""
    return quantise(x, y_scale, y_zero_point, kind_of(y, y_zero_point), axis, block_size)


@forward("y_scale")
def dynamicquantizelinear(x):
    """y_scale = (max(x, 0) − min(x, 0)) / 255; the other outputs are no floats."""
    most, least = op.ReduceMax(x, keepdims=0), op.ReduceMin(x, keepdims=0)
    zero = np.zeros((), x.dtype.numpy())
    return (op.Max(most, zero) - op.Min(least, zero)) / 255.0


@forward("y")
def dynamicquantizelinear_through(x, y, y_scale, y_zero_point):
    """y = clip(round(x / y_scale) + y_zero_point); the scale has its own derivative."""
    return quantise(x, y_scale, y_zero_point, kind_of(y, y_zero_point))


@forward("y")
def qlinearmatmul_through(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point, y):
    """quantise(dequantise(a)·dequantise(b))."""
    left, right = dequantise(a, a_scale, a_zero_point, -2), dequantise(b, b_scale, b_zero_point, -1)
    return quantise(op.MatMul(left, right), y_scale, y_zero_point, kind_of(y, y_zero_point), -2)


@forward("y")
def qlinearconv_through(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, y, *,
                        auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None,
                        strides=None):  # fmt: skip
    """quantise(Conv(dequantise(x), dequantise(w), dequantise(B)))."""
    bias = None if B is None else content(B, x_scale) * (op.Reshape(x_scale, [-1]) * op.Reshape(w_scale, [-1]))
    product = op.Conv(dequantise(x, x_scale, x_zero_point), dequantise(w, w_scale, w_zero_point, 0), bias,
                      auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
                      strides=strides)  # fmt: skip
    return quantise(product, y_scale, y_zero_point, kind_of(y, y_zero_point))


def centred(x, zero_point, axis):
    """x − zero_point as float32."""
    x32 = op.Cast(x, to=FLOAT)
    return x32 if zero_point is None else x32 - blocks(op.Cast(zero_point, to=FLOAT), x, axis, 0)


@forward("Y")
def matmulinteger_through(A, B, a_zero_point, b_zero_point):
    """Y = (A − a_zero_point)·(B − b_zero_point)."""
    return op.MatMul(centred(A, a_zero_point, -2), centred(B, b_zero_point, -1))


@forward("y")
def convinteger_through(x, w, x_zero_point, w_zero_point, *, auto_pad="NOTSET", dilations=None, group=1,
                        kernel_shape=None, pads=None, strides=None):  # fmt: skip
    """y = Conv(x − x_zero_point, w − w_zero_point)."""
    return op.Conv(centred(x, x_zero_point, 1), centred(w, w_zero_point, 0), auto_pad=auto_pad, dilations=dilations,
                   group=group, kernel_shape=kernel_shape, pads=pads, strides=strides)  # fmt: skip


# The quantised ops of onnxruntime.


@forward("Y")
def qgemm_through(A, a_scale, a_zero_point, B, b_scale, b_zero_point, C, y_scale, y_zero_point, Y, *, alpha=1.0,
                  transA=0, transB=0):  # fmt: skip
    """Y = quantise(alpha·a_scale·b_scale·((A − a_zero_point)·(B − b_zero_point) + C)); a float without y_scale."""
    product = op.Gemm(centred(A, a_zero_point, 1), centred(B, b_zero_point, 0 if transB else 1),
                      None if C is None else op.Cast(C, to=FLOAT), alpha=1.0, transA=transA, transB=transB)  # fmt: skip
    product = product * (op.Reshape(a_scale, [-1]) * op.Reshape(b_scale, [-1]) * alpha)
    return product if y_scale is None else quantise(product, y_scale, y_zero_point, kind_of(Y, y_zero_point))


@forward("C")
def qlinearadd_through(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point, C):
    """C = quantise(dequantise(A) + dequantise(B))."""
    total = dequantise(A, A_scale, A_zero_point) + dequantise(B, B_scale, B_zero_point)
    return quantise(total, C_scale, C_zero_point, kind_of(C, C_zero_point))


@forward("C")
def qlinearmul_through(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point, C):
    """C = quantise(dequantise(A)·dequantise(B))."""
    product = dequantise(A, A_scale, A_zero_point) * dequantise(B, B_scale, B_zero_point)
    return quantise(product, C_scale, C_zero_point, kind_of(C, C_zero_point))


@forward("Y")
def qlinearsigmoid_through(X, X_scale, X_zero_point, Y_scale, Y_zero_point, Y):
    """Y = quantise(σ(dequantise(X)))."""
    y = op.Sigmoid(dequantise(X, X_scale, X_zero_point))
    return quantise(y, Y_scale, Y_zero_point, kind_of(Y, Y_zero_point))


@forward("Y")
def qlinearleakyrelu_through(X, X_scale, X_zero_point, Y_scale, Y_zero_point, Y, *, alpha=0.01):
    """Y = quantise(LeakyRelu(dequantise(X)))."""
    y = op.LeakyRelu(dequantise(X, X_scale, X_zero_point), alpha=alpha)
    return quantise(y, Y_scale, Y_zero_point, kind_of(Y, Y_zero_point))


@forward("Y")
def qlinearglobalaveragepool_through(X, x_scale, x_zero_point, y_scale, y_zero_point, Y, *, channels_last=0):
    """Y = quantise(the mean over the spatial axes of dequantise(X))."""
    axes = range(1, X.rank - 1) if channels_last else range(2, X.rank)
    y = op.ReduceMean(dequantise(X, x_scale, x_zero_point), list(axes), keepdims=1)
    return quantise(y, y_scale, y_zero_point, kind_of(Y, y_zero_point))


@forward("Y")
def qlinearsoftmax_through(X, X_scale, x_zero_point, y_scale, y_zero_point, Y, *, axis=-1, opset=13):
    """Y = quantise(softmax(dequantise(X))); before opset 13 over all axes from `axis` on."""
    x = dequantise(X, X_scale, x_zero_point)
    if opset < 13 and axis % X.rank != X.rank - 1:
        y = op.Reshape(op.Softmax(op.Flatten(x, axis=axis), axis=-1), op.Shape(x), allowzero=1)
    else:
        y = op.Softmax(x, axis=axis)
    return quantise(y, y_scale, y_zero_point, kind_of(Y, y_zero_point))


@forward("Y")
def dynamic_quantize_matmul(A, B, b_scale, b_zero_point=None, bias=None):
    """Y = A·(B − zero point)·scale + bias, A quantised to uint8 on the way."""
    quantised, scale, zero = op.DynamicQuantizeLinear(A, _outputs=3)
    return matmul_integer_to_float(quantised, B, scale, b_scale, zero, b_zero_point, bias)


@forward("Y")
def matmul_integer_to_float(A, B, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None):
    """Y = (A − zero point)·(B − zero point)·scales + bias."""
    y = op.CastLike(op.MatMulInteger(A, B, a_zero_point, b_zero_point), a_scale) * (a_scale * b_scale)
    return y if bias is None else y + bias
