"""Rules of operators that view elements in another shape, order or type."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from gradgen.engine.values import FLOATS
from gradgen.errors import GradientError
from gradgen.rules.lang import forward, op, traced, vjp
from gradgen.rules.library import reshape_like, sum_to


@vjp
def identity_vjp(doutput):
    """dx = dy."""
    dinput = op.Identity(doutput)
    return dinput


@vjp
def cast_vjp(doutput, input):
    """dx = dy in the type of x; a target that is no float carries no cotangent."""
    dinput = op.CastLike(doutput, input)
    return dinput


@forward("output")
def cast_through(input, output):
    """A cast to a float type with few values is the identity inside their range; from a stand-in it is a cast."""
    kind = output.dtype
    if kind is None or kind.is_integer() or kind.name in ("BOOL", "STRING"):
        return None
    if kind in FLOATS:
        return op.Cast(input, to=int(kind))
    bound = float(ml_dtypes.finfo(kind.numpy()).max)
    return op.Clip(input, -bound, bound)


@vjp
def reshape_vjp(dreshaped, data):
    """dx = dy in the shape of x."""
    ddata = reshape_like(dreshaped, data)
    return ddata


@vjp
def flatten_vjp(doutput, input):
    """dx = dy in the shape of x."""
    dinput = reshape_like(doutput, input)
    return dinput


@traced("dinput")
def expand_vjp(doutput, input, shape):
    """dx = Σ dy over the axes along which x was repeated."""
    if shape.const is None or input.shape is None:
        return sum_to(doutput, input)
    # A target of 1 keeps an axis as it is, whatever its size: what the shapes of dy and x alone do not tell.
    rank = len(input.shape)
    target = [1] * (rank - shape.const.size) + shape.const.tolist()
    lead = len(target) - rank
    pairs = list(zip(input.shape, target[lead:], strict=True))
    if any(not isinstance(size, int) and wanted != 1 for size, wanted in pairs):
        return sum_to(doutput, input)
    inner = [lead + a for a, (size, wanted) in enumerate(pairs) if size == 1 and wanted != 1]
    if not lead and not inner:
        return op.Identity(doutput)
    summed = op.ReduceSum(doutput, [*range(lead), *inner], keepdims=0 if lead else 1)
    return reshape_like(summed, input) if lead and inner else summed


@traced("ddata")
def transpose_vjp(dtransposed, *, perm):
    """dx = dy with the axes put back: the inverse permutation."""
    if perm is None:
        return op.Transpose(dtransposed)
    return op.Transpose(dtransposed, perm=[int(p) for p in np.argsort(perm)])


@traced("ddata")
def squeeze_vjp(dsqueezed, data, axes):
    """dx = dy with the axes of size 1 put back."""
    some = data.shape is None or any(not isinstance(d, int) or d == 1 for d in data.shape)
    if axes is not None and axes.shape == (0,) and some:
        raise GradientError(
            "an empty list of axes means every axis of size 1 to onnxruntime and none to the standard: name the axes, "
            "or leave the input out for all of them"
        )
    # Without axes every axis of size 1 went: only the shape of x tells which.
    if axes is not None and axes.const is not None and axes.const.size:
        return op.Unsqueeze(dsqueezed, axes)
    return reshape_like(dsqueezed, data)


@traced("ddata")
def unsqueeze_vjp(dexpanded, data, axes):
    """dx = dy without the inserted axes."""
    if axes.const is not None and axes.const.size:
        return op.Squeeze(dexpanded, axes)
    return reshape_like(dexpanded, data)


@vjp
def reverse_sequence_vjp(dY, sequence_lens, batch_axis: int = 1, time_axis: int = 0):
    """dx = dy with each sequence turned back."""
    dinput = op.ReverseSequence(dY, sequence_lens, batch_axis=batch_axis, time_axis=time_axis)
    return dinput


@vjp
def space_to_depth_vjp(doutput, blocksize: int):
    """dx = dy with each pixel's channels laid out as a block."""
    dinput = op.DepthToSpace(doutput, blocksize=blocksize)
    return dinput


@traced("dinput")
def space_to_depth_vjp__modes(doutput, *, blocksize, mode):
    """dx = dy with each pixel's channels laid out as a block, in the order of the mode."""
    return op.DepthToSpace(doutput, blocksize=blocksize, mode=mode)


@traced("dinput")
def depth_to_space_vjp(doutput, input, *, blocksize, mode):
    """dx = dy with each block gathered into the channels of one pixel, in the order of the mode."""
    if mode != "CRD":
        return op.SpaceToDepth(doutput, blocksize=blocksize)
    # [b, c, h·s, w·s] → [b, c, h, s, w, s] → [b, c, s, s, h, w]
    batch, height, width = op.Shape(input, end=1), op.Shape(input, start=2, end=3), op.Shape(input, start=3)
    channels = op.Div(op.Shape(input, start=1, end=2), [blocksize**2])
    sizes = op.Concat(batch, channels, height, [blocksize], width, [blocksize], axis=0)
    blocks = op.Reshape(doutput, sizes, allowzero=1)
    return reshape_like(op.Transpose(blocks, perm=[0, 1, 3, 5, 2, 4]), input)


@vjp
def range_vjp(doutput, start, limit, delta, output):
    """dstart = Σ dy, ddelta = Σ i·dy; the limit only counts."""
    steps = op.Range(op.Constant(value_int=0), op.Size(output), op.Constant(value_int=1))
    dstart = op.ReduceSum(doutput, keepdims=0)
    ddelta = op.ReduceSum(doutput * op.CastLike(steps, doutput), keepdims=0)
    return dstart, ddelta
