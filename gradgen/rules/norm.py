"""Rules of normalizations: batch, layer, group, instance, RMS, Lp and local response."""

from __future__ import annotations

import functools
import inspect
from math import prod
from typing import Any

import numpy as np

from gradgen.rules.lang import op, traced
from gradgen.rules.library import ROWS_CONSTANT, reshape_like, sum_to
from gradgen.rules.ranks import axes_from, stated

FLOAT, DOUBLE = 1, 11


def _half(x: Any) -> bool:
    """Whether statistics want float32 in place of the value's own type."""
    return x.dtype is not None and int(x.dtype) not in (FLOAT, DOUBLE)


def _wide(like: Any, *values: Any) -> list[Any]:
    """The values in the type in which the statistics of `like` are computed: its own, float32 for half types."""
    if _half(like):
        return [None if v is None else op.Cast(v, to=FLOAT) for v in values]
    return [None if v is None else op.CastLike(v, like) for v in values]


def _count(x: Any, part: Any) -> Any:
    """How many elements of x there are for each of `part`: a number, or a value of the type of `part`."""
    if x.size is not None and part.size:
        return float(x.size // part.size)
    return op.CastLike(op.Div(op.Size(x), op.Max(op.Size(part), np.int64(1))), part)


def _statistics(x: Any, axes: Any, epsilon: float) -> tuple[Any, Any]:
    """x minus its mean, and 1 ÷ √(variance + ε), over these axes."""
    centred = x - op.ReduceMean(x, axes, keepdims=1)
    variance = op.ReduceMean(centred * centred, axes, keepdims=1)
    return centred, op.Reciprocal(op.Sqrt(variance + epsilon))


def _normalised(x: Any, axes: list[int], epsilon: float) -> tuple[Any, Any]:
    """x̂ and 1/σ over the last axes: by one LayerNormalization where it computes in x's type, else by their parts."""
    sizes = x.shape[axes[0] :]
    if x.dtype is not None and int(x.dtype) == FLOAT and sizes and all(isinstance(d, int) and d for d in sizes):
        one = np.ones((), np.float32)
        scale = np.ones(sizes, np.float32) if prod(sizes) <= ROWS_CONSTANT else op.Expand(one, np.asarray(sizes))
        normal, _, inverse = op.LayerNormalization(x, scale, axis=axes[0], epsilon=epsilon, _outputs=3)
        return normal, inverse
    centred, inverse = _statistics(x, axes, epsilon)
    return centred * inverse, inverse


def _project(ct: Any, normal: Any, inverse: Any, axes: Any) -> Any:
    """The cotangent of x from that of x̂: (ct − mean(ct) − x̂·mean(ct·x̂)) ÷ σ."""
    slope = op.ReduceMean(ct * normal, axes, keepdims=1)
    return (ct - op.ReduceMean(ct, axes, keepdims=1) - normal * slope) * inverse


@traced("dX", "dScale", "dB")
def layer_normalization_vjp__saved(dY, X, Scale, B, InvStdDev, *, axis=-1, epsilon=1e-5):
    """dX = (g − mean(g) − x̂·mean(g·x̂)) ÷ σ with g = dY·Scale; dScale = Σ dY·x̂, dB = Σ dY; 1/σ is saved."""
    axes = axes_from(axis, X)
    size = X.shape[axis:] if X.shape else ()
    if size and all(isinstance(d, int) for d in size):
        normal = op.LayerNormalization(X, np.ones(size, X.dtype.numpy()), axis=axis, epsilon=epsilon)
    else:
        normal = (X - op.ReduceMean(X, axes, keepdims=1)) * InvStdDev
    dX = _project(dY * Scale, normal, InvStdDev, axes)
    return dX, sum_to(dY * normal, Scale), None if B is None else sum_to(dY, B)


@traced("dX", "dScale", "dB")
def layer_normalization_vjp(dY, dMean, dInvStdDev, X, Scale, B, *, axis=-1, epsilon=1e-5):
    """As the saved form, with the statistics computed again; to X also dMean/n − dInvStdDev·x̂/(n·σ²)."""
    ct, mean_ct, inverse_ct, x, scale = _wide(X, dY, dMean, dInvStdDev, X, Scale)
    axes = axes_from(axis, X)
    centred, inverse = _statistics(x, axes, epsilon)
    normal = centred * inverse
    parts = []
    if ct is not None:
        parts.append(_project(ct * scale, normal, inverse, axes))
    if mean_ct is not None:
        parts.append(op.Expand(mean_ct / _count(X, mean_ct), op.Shape(X)))
    if inverse_ct is not None:
        parts.append(normal * (inverse_ct * inverse * inverse / _count(X, inverse_ct) * -1.0))
    dX = op.CastLike(op.Sum(*parts) if len(parts) > 2 else parts[0] if len(parts) == 1 else parts[0] + parts[1], X)
    if ct is None:
        return dX, None, None
    dScale = op.CastLike(sum_to(ct * normal, Scale), Scale)
    return dX, dScale, None if B is None else op.CastLike(sum_to(ct, B), B)


@traced("dX", "dscale")
def rms_normalization_vjp(dY, X, scale, *, axis=-1, epsilon=1e-5):
    """dX = (g − x̂·mean(g·x̂)) ÷ rms with g = dY·scale, x̂ = x ÷ rms; dscale = Σ dY·x̂."""
    ct, x, gain = _wide(X, dY, X, scale)
    axes = axes_from(axis, X)
    inverse = op.Reciprocal(op.Sqrt(op.ReduceMean(x * x, axes, keepdims=1) + epsilon))
    normal = x * inverse
    g = ct * gain
    dX = (g - normal * op.ReduceMean(g * normal, axes, keepdims=1)) * inverse
    return op.CastLike(dX, X), op.CastLike(sum_to(ct * normal, scale), scale)


def _column(v: Any, rank: int) -> Any:
    """A value per channel as a factor of [N, C, …]."""
    return v if rank <= 2 else op.Reshape(v, [-1] + [1] * (rank - 2))


def _in_three(like: str, *flat: str, channels: str | None = None) -> Any:
    """Decorates a rule for `like`, [N, C, …], and values of its shape: where its rank is lost, they are [N, C, space].

    The first result has the shape of `like`. `channels` is a vector of C elements, where `like` may have N alone.
    """

    def decorate(fn: Any) -> Any:
        positional = list(inspect.signature(fn).parameters)

        @functools.wraps(fn)
        def rule(*values: Any, **attributes: Any) -> Any:
            given = dict(zip(positional, values, strict=False))
            x = given[like]
            if x.shape is not None:
                return fn(*values, **attributes)
            width = op.Shape(x, start=1, end=2) if channels is None else op.Shape(given[channels])
            space = op.ReduceProd(op.Shape(x, start=2), keepdims=1)
            shape = op.Concat(op.Shape(x, end=1), width, space, axis=0)
            for name in (*flat, like):
                if given[name] is not None:
                    given[name] = stated(op.Reshape(given[name], shape, allowzero=1), 3)
            results = fn(*given.values(), **attributes)
            first, *others = results if isinstance(results, tuple | list) else [results]
            first = None if first is None else reshape_like(first, x)
            return (first, *others) if others else first

        return rule

    return decorate


def _over_channels(reduce: Any, x: Any, rank: int) -> Any:
    """A sum or mean per channel of [N, C, …]: over space, then over N, which is faster than at once."""
    if rank > 2:
        x = reduce(x, list(range(2, rank)), keepdims=0)
    return reduce(x, [0], keepdims=int(rank == 1))


@traced("dX", "dscale", "dB", "dinput_mean", "dinput_var")
@_in_three("X", "dY", channels="scale")
def batch_normalization_vjp(
    dY, drunning_mean, drunning_var, X, scale, B, input_mean, input_var, *, epsilon=1e-5, momentum=0.9, training_mode=0
):  # fmt: skip
    """dX = a·dY, in training mode a·dY + b·(X−μ) + c; per channel dscale = Σ dY·x̂ and dB = Σ dY."""
    rank = X.rank
    ct, mean_ct, var_ct, x, gain, mean, var = _wide(
        X, dY, drunning_mean, drunning_var, X, scale, input_mean, input_var
    )  # fmt: skip
    if training_mode:
        results = _train(ct, mean_ct, var_ct, x, gain, epsilon, 1 - momentum)
        results += [None if c is None else c * momentum for c in (mean_ct, var_ct)]
    else:
        inverse = op.Reciprocal(op.Sqrt(var + epsilon))
        factor = gain * inverse
        total = _over_channels(op.ReduceSum, ct, rank)
        moment = _over_channels(op.ReduceSum, ct * (x - _column(mean, rank)), rank)
        dvar = moment * factor * inverse * inverse * -0.5
        results = [ct * _column(factor, rank), moment * inverse, total, op.Neg(total * factor), dvar]
    likes = (X, scale, B, input_mean, input_var)
    return tuple(None if r is None else op.CastLike(r, v) for r, v in zip(results, likes, strict=True))


def _train(ct: Any, mean_ct: Any, var_ct: Any, x: Any, gain: Any, epsilon: float, rate: float) -> list[Any]:
    """Through the batch's statistics: cotangents of X, scale and B."""
    rank = x.rank
    centred = x - _column(_over_channels(op.ReduceMean, x, rank), rank)
    count = _count(x, gain)
    slope = shift = dscale = total = None
    dx = None
    if ct is not None:
        variance = _over_channels(op.ReduceMean, centred * centred, rank)
        inverse = op.Reciprocal(op.Sqrt(variance + epsilon))
        factor = gain * inverse
        total = _over_channels(op.ReduceSum, ct, rank)
        moment = _over_channels(op.ReduceSum, ct * centred, rank)
        dscale = moment * inverse
        shift = op.Neg(factor * total / count)
        slope = op.Neg(factor * inverse * dscale / count)
        dx = ct * _column(factor, rank)
    if var_ct is not None:
        own = var_ct * (2 * rate) / count
        slope = own if slope is None else slope + own
    if mean_ct is not None:
        own = mean_ct * rate / count
        shift = own if shift is None else shift + own
    if slope is not None:
        bent = centred * _column(slope, rank)
        dx = bent if dx is None else dx + bent
    if shift is not None:
        moved = _column(shift, rank)
        dx = op.Expand(moved, op.Shape(x)) if dx is None else dx + moved
    return [dx, dscale, total]


@traced("dX", "dscale", "dbias")
@_in_three("X", "dY")
def group_normalization_vjp(dY, X, scale, *, epsilon=1e-5, num_groups):
    """In each group as LayerNormalization, with g = dY·scale; per channel dscale = Σ dY·x̂, dbias = Σ dY."""
    rank = X.rank
    ct, x, gain = _wide(X, dY, X, scale)
    grouped = [0, num_groups, -1]
    normal, inverse = _normalised(op.Reshape(x, grouped), [2], epsilon)
    dx = _project(op.Reshape(ct * _column(gain, rank), grouped), normal, inverse, [2])
    dscale = _over_channels(op.ReduceSum, ct * reshape_like(normal, X), rank)
    dbias = _over_channels(op.ReduceSum, ct, rank)
    return op.CastLike(reshape_like(dx, X), X), op.CastLike(dscale, scale), op.CastLike(dbias, scale)


@traced("output", "inverse")
def instance_normalization_fwd(input, *, epsilon=1e-5):
    """The node where its scale is 1 and its B is 0; saves 1/σ of each channel of each image."""
    return _normalised(input, list(range(2, input.rank)), epsilon)


@traced("dinput")
def instance_normalization_vjp__saved(doutput, input, output, inverse):
    """As the general form; x̂ is the output, and 1/σ is saved."""
    return _project(doutput, output, inverse, list(range(2, input.rank)))


@traced("dinput", "dscale", "dB")
@_in_three("input", "doutput")
def instance_normalization_vjp(doutput, input, scale, *, epsilon=1e-5):
    """In each channel of each image as LayerNormalization; dscale = Σ dY·x̂, dB = Σ dY."""
    rank = input.rank
    ct, x, gain = _wide(input, doutput, input, scale)
    axes = list(range(2, rank))
    normal, inverse = _normalised(x, axes, epsilon)
    # The scale is constant over the image, so it may be applied after the projection.
    dx = _project(ct, normal, inverse * _column(gain, rank), axes)
    dscale = _over_channels(op.ReduceSum, ct * normal, rank)
    dB = _over_channels(op.ReduceSum, ct, rank)
    return op.CastLike(dx, input), op.CastLike(dscale, scale), op.CastLike(dB, scale)


@traced("dinput")
def lp_normalization_vjp(doutput, input, *, axis=-1, p=2):
    """(ct − s·Σ ct·y) ÷ ‖x‖ with s = y for p = 2 and s = sign(x) for p = 1; 0 at the zero vector."""
    norm = (op.ReduceL1 if p == 1 else op.ReduceL2)(input, [axis], keepdims=1)
    empty = op.CastLike(op.Equal(norm, 0.0), norm)
    inverse = (1.0 - empty) / (norm + empty)
    unit = input * inverse
    slope = op.ReduceSum(doutput * unit, [axis], keepdims=1)
    return (doutput - (op.Sign(input) if p == 1 else unit) * slope) * inverse


def _across_channels(x: Any, size: int, before: int) -> Any:
    """The sum over `size` neighbouring channels, `before` of them in front, ÷ size."""
    spatial = x.rank - 2
    plane = op.Unsqueeze(x, [1]) if spatial <= 2 else op.Reshape(x, op.Concat(
        op.Shape(x, end=1), [1], op.Shape(x, start=1, end=2), [-1], axis=0))  # fmt: skip
    inner = spatial if spatial <= 2 else 1
    pads = [before] + [0] * inner + [size - 1 - before] + [0] * inner
    pooled = op.AveragePool(plane, kernel_shape=[size] + [1] * inner, pads=pads, count_include_pad=1)
    return op.Squeeze(pooled, [1]) if spatial <= 2 else reshape_like(pooled, x)


@traced("dX")
@_in_three("X", "dY")
def lrn_vjp(dY, X, *, size, alpha=1e-4, beta=0.75, bias=1.0):
    """dX = dY·s^(−β) − 2αβ/size·X·Σ dY·X·s^(−β−1), over the channels c whose window holds the element's."""
    before = (size - 1) // 2
    base = _across_channels(X * X, size, before) * alpha + bias
    direct = dY * op.Pow(base, -beta)
    back = _across_channels(direct * X / base, size, size - 1 - before)
    return direct - X * back * (2 * alpha * beta)
