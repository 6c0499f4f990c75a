"""Rules of activation functions: rectifiers, smooth units, Clip and the softmaxes."""

from __future__ import annotations

import math

import numpy as np

from gradgen.rules.lang import op, picked, traced, vjp
from gradgen.rules.library import mask, sum_to


@vjp
def relu_vjp(dY, Y):
    """dX = dY where Y > 0, else 0."""
    dX = dY * mask(Y > 0.0, Y)
    return dX


@vjp
def relu_vjp__sign(dY, Y):
    """dX = dY·sign(Y): one node fewer; for many elements the mask is faster."""
    dX = dY * op.Sign(Y)
    return dX


@vjp
def leakyrelu_vjp__max(dY, Y, alpha: float = 0.01):
    """dX = dY·max(1[Y > 0], α), for α in [0, 1]: X and Y then have the same sign."""
    dX = dY * op.Max(mask(Y > 0.0, Y), op.CastLike(op.Constant(value_float=alpha), Y))
    return dX


@vjp
def leakyrelu_vjp(dY, X, alpha: float = 0.01):
    """dX = dY·(p + α·(1 − p)), p = 1[X > 0]."""
    positive = mask(X > 0.0, X)
    dX = dY * (positive + (1.0 - positive) * op.CastLike(op.Constant(value_float=alpha), X))
    return dX


@vjp
def prelu_vjp(dY, X, slope):
    """dX = dY·(p + slope·(1 − p)), p = 1[X > 0]; dslope = dY·min(X, 0), summed where it was broadcast."""
    positive = mask(X > 0.0, X)
    dX = dY * (positive + (1.0 - positive) * slope)
    dslope = sum_to(dY * op.Min(X, op.CastLike(0.0, X)), slope)
    return dX, dslope


@vjp
def elu_vjp__unit(dY, X):
    """dX = dY·exp(min(X, 0)), for α = 1."""
    dX = dY * op.Exp(op.Min(X, op.CastLike(0.0, X)))
    return dX


@vjp
def elu_vjp(dY, X, alpha: float = 1.0):
    """dX = dY·(p + α·(e − p)), p = 1[X > 0], e = exp(min(X, 0)): e is exactly 1 where p is."""
    positive = mask(X > 0.0, X)
    grown = op.Exp(op.Min(X, op.CastLike(0.0, X)))
    dX = dY * (positive + (grown - positive) * op.CastLike(op.Constant(value_float=alpha), X))
    return dX


@vjp
def selu_vjp(dY, X, alpha: float = 1.6732632, gamma: float = 1.050701):
    """dX = dY·γ·(p + α·(e − p)), p = 1[X > 0], e = exp(min(X, 0)): e is exactly 1 where p is."""
    positive = mask(X > 0.0, X)
    grown = op.Exp(op.Min(X, op.CastLike(0.0, X)))
    scale = op.CastLike(op.Constant(value_float=gamma), X)
    negative = scale * op.CastLike(op.Constant(value_float=alpha), X)
    dX = dY * (positive * scale + (grown - positive) * negative)
    return dX


@vjp
def celu_vjp(dY, X, alpha: float = 1.0):
    """dX = dY·exp(min(X, 0)/α)."""
    dX = dY * op.Exp(op.Min(X, op.CastLike(0.0, X)) / op.CastLike(op.Constant(value_float=alpha), X))
    return dX


@vjp
def softplus_vjp(dY, X):
    """dX = dY·σ(X)."""
    dX = dY * op.Sigmoid(X)
    return dX


@vjp
def softsign_vjp(doutput, input):
    """dinput = doutput / (1 + |x|)², divided twice: the square may overflow."""
    scale = op.Abs(input) + 1.0
    dinput = doutput / scale / scale
    return dinput


@vjp
def hardsigmoid_vjp(dY, Y, alpha: float = 0.2):
    """dX = dY·α where 0 < Y < 1, else 0."""
    inside = mask(op.And(Y > 0.0, Y < 1.0), Y)
    dX = dY * (inside * op.CastLike(op.Constant(value_float=alpha), Y))
    return dX


@vjp
def hardswish_vjp(dY, X):
    """dX = dY·(1/2 + t/6·(1 + 1[|t| < 3])), t = clip(X, −3, 3): 0 and 1 at the breaks and beyond."""
    t = op.Clip(X, op.CastLike(-3.0, X), op.CastLike(3.0, X))
    inside = mask(op.Abs(t) < 3.0, X)
    dX = dY * (t / 6.0 * (inside + 1.0) + 0.5)
    return dX


@vjp
def mish_vjp(dY, X):
    """dX = dY·(t + X·σ·(1 − t²)), t = tanh(softplus(X)).

    With σ = sigmoid(X), u = 1 − σ and r = 1 + u²: t = σ(1 + u)/r and 1 − t² = 4u²/r², without overflow or cancellation.
    """
    s = op.Sigmoid(X)
    u = 1.0 - s
    square = u * u
    r = square + 1.0
    bent = X * s * 4.0 * square / r
    dX = dY * ((s * (u + 1.0) + bent) / r)
    return dX


@traced("Y", "below")
def gelu_fwd(X):
    """Y = X·Φ; saves Φ, the part of the normal distribution below X."""
    below = _below(X)
    return X * below, below


@traced("dX")
def gelu_vjp__saved(dY, X, below):
    """dX = dY·(Φ + X·φ); Φ is saved."""
    return dY * (X * _density(X) + below)


def _below(X):
    return op.Erf(X * _exact(math.sqrt(0.5), X)) * 0.5 + 0.5


def _density(X):
    return op.Exp(X * -0.5 * X) * _exact(1 / math.sqrt(2 * math.pi), X)


@traced("dX")
def gelu_vjp(dY, X, *, approximate="none"):
    """dX = dY·(Φ + X·φ); with tanh: dX = dY·s·(1 + (1 − s)·X·v′), Y = X·s, s = σ(v), v = X·(k + k·a·X²)."""
    if approximate != "tanh":
        return dY * (X * _density(X) + _below(X))
    # Beyond ±10, s is 0 or 1 to every float type's precision; the clipped cube cannot overflow.
    x = op.Clip(X, -10.0, 10.0)
    k, cubic = 2 * math.sqrt(2 / math.pi), 2 * math.sqrt(2 / math.pi) * 0.044715
    square = x * x
    s = op.Sigmoid(x * (square * _exact(cubic, X) + _exact(k, X)))
    growth = x * (square * _exact(3 * cubic, X) + _exact(k, X))
    return dY * (s * ((1.0 - s) * growth + 1.0))


def _exact(number, like):
    """A constant in the precision of `like`."""
    return op.CastLike(np.asarray(number), like)


@vjp
def sigmoid_vjp(dY, Y):
    """dX = dY·Y·(1 − Y)."""
    dX = dY * (Y * (1.0 - Y))
    return dX


@vjp
def swish_vjp(dY, X, Y, alpha: float = 1.0):
    """dX = dY·(s + α·Y·(1 − s)), s = σ(α·X)."""
    gain = op.CastLike(op.Constant(value_float=alpha), X)
    s = op.Sigmoid(X * gain)
    dX = dY * (Y * (1.0 - s) * gain + s)
    return dX


@vjp
def thresholdedrelu_vjp(dY, X, alpha: float = 1.0):
    """dX = dY where X > α, else 0."""
    threshold = op.CastLike(op.Constant(value_float=alpha), X)
    dX = dY * mask(op.Greater(X, threshold), X)
    return dX


@vjp
def shrink_vjp(doutput, input, lambd: float = 0.5):
    """dinput = doutput where |x| > λ, else 0."""
    dinput = doutput * mask(op.Abs(input) > op.CastLike(op.Constant(value_float=lambd), input), input)
    return dinput


@traced("dinput", "dmin", "dmax")
def clip_vjp(doutput, input, min, max, output):
    """To the input where it passes, bounds included; to a bound where it cuts; all to max where min > max."""
    passed = mask(picked(input, output), doutput)
    ordered = None
    if min is not None and max is not None:
        ordered = mask(op.LessOrEqual(min, max), doutput)
        passed = passed * ordered
    dmin = dmax = None
    if min is not None:
        raised = doutput * mask(op.Less(input, min), doutput)
        dmin = sum_to(raised if ordered is None else raised * ordered, min)
    if max is not None:
        raised = input if min is None else op.Max(input, min)
        dmax = sum_to(doutput * mask(op.Greater(raised, max), doutput), max)
    return doutput * passed, dmin, dmax


@vjp
def softmax_vjp(doutput, output, axis: int = -1):
    """dx = y·(dy − Σ y·dy), the sum along the axis."""
    weighted = doutput * output
    total = op.ReduceSum(weighted, op.Reshape(op.Constant(value_int=axis), op.Constant(value_ints=[1])))
    dinput = weighted - output * total
    return dinput


@vjp
def softmax_vjp__selected(doutput, output, axis: int = -1):
    """dx = y·(dy − Σ y·dy), and 0 in a row of −∞ alone: its y is NaN, and a later node leaves it out."""
    y = op.Where(op.IsNaN(output), op.CastLike(0.0, output), output)
    weighted = doutput * y
    total = op.ReduceSum(weighted, op.Reshape(op.Constant(value_int=axis), op.Constant(value_ints=[1])))
    dinput = weighted - y * total
    return dinput


@vjp
def logsoftmax_vjp__selected(doutput, output, axis: int = -1):
    """dx = dy − exp(y)·Σ dy, and 0 in a row of −∞ alone: its y is NaN, and a later node leaves it out."""
    y = op.Where(op.IsNaN(output), op.CastLike(0.0, output), op.Exp(output))
    total = op.ReduceSum(doutput, op.Reshape(op.Constant(value_int=axis), op.Constant(value_ints=[1])))
    dinput = doutput - y * total
    return dinput


@vjp
def logsoftmax_vjp(doutput, output, axis: int = -1):
    """dx = dy − exp(y)·Σ dy, the sum along the axis."""
    total = op.ReduceSum(doutput, op.Reshape(op.Constant(value_int=axis), op.Constant(value_ints=[1])))
    dinput = doutput - op.Exp(output) * total
    return dinput
