"""Rules of operators that view elements in another shape, order or type."""

from __future__ import annotations

import numpy as np

from gradgen.rules.lang import op, traced, vjp
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


@vjp
def expand_vjp(doutput, input):
    """dx = Σ dy over the axes along which x was repeated."""
    dinput = sum_to(doutput, input)
    return dinput


@traced("ddata")
def transpose_vjp(dtransposed, *, perm):
    """dx = dy with the axes put back: the inverse permutation."""
    if perm is None:
        return op.Transpose(dtransposed)
    return op.Transpose(dtransposed, perm=[int(p) for p in np.argsort(perm)])


@traced("ddata")
def squeeze_vjp(dsqueezed, data, axes):
    """dx = dy with the axes of size 1 put back."""
    # Without axes, or with none in them, every axis of size 1 went: only the shape of x tells which.
    if axes is not None and axes.const is not None and axes.const.size:
        return op.Unsqueeze(dsqueezed, axes)
    return reshape_like(dsqueezed, data)


@traced("ddata")
def unsqueeze_vjp(dexpanded, data, axes):
    """dx = dy without the inserted axes."""
    if axes.const is not None and axes.const.size:
        return op.Squeeze(dexpanded, axes)
    return reshape_like(dexpanded, data)
