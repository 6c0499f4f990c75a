"""Rules of arithmetic with broadcasting."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from gradgen.rules.lang import op, picked, traced, vjp
from gradgen.rules.library import divide_inside, finite_positive, mask, nudge, select, sum_to

INFINITY = numpy_helper.from_array(np.array(np.inf))


@vjp
def add_vjp(dC, A, B):
    """dA = dC, dB = dC, each summed over the axes along which it was broadcast."""
    dA = sum_to(dC, A)
    dB = sum_to(dC, B)
    return dA, dB


@vjp
def sub_vjp(dC, A, B):
    """dA = dC, dB = −dC."""
    dA = sum_to(dC, A)
    dB = op.Neg(sum_to(dC, B))
    return dA, dB


@vjp
def mul_vjp(dC, A, B):
    """dA = dC·B, dB = dC·A."""
    dA = sum_to(dC * B, A)
    dB = sum_to(dC * A, B)
    return dA, dB


@vjp
def div_vjp(dC, A, B):
    """dA = dC/B, dB = −dC·A/B², both 0 where dC and B are 0."""
    divisor = nudge(B, dC)
    quotient = dC / divisor
    dA = sum_to(quotient, A)
    dB = op.Neg(sum_to(quotient * A / divisor, B))
    return dA, dB


@vjp
def neg_vjp(dY):
    """dX = −dY."""
    dX = op.Neg(dY)
    return dX


@vjp
def abs_vjp(dY, X):
    """dX = dY·sign(X), 0 at 0."""
    dX = dY * op.Sign(X)
    return dX


@vjp
def exp_vjp(doutput, output):
    """dx = dy·y; where y overflows a zero dy stays zero."""
    dinput = doutput * finite_positive(output)
    return dinput


@vjp
def log_vjp(doutput, input):
    """dx = dy/x; at 0 an infinity, or 0 for a zero dy."""
    dinput = doutput / nudge(input, doutput)
    return dinput


@vjp
def sqrt_vjp(dY, Y):
    """dX = dY/(2·Y); at 0 an infinity, and there and below 0 for a zero dY."""
    dX = divide_inside(dY * 0.5, Y)
    return dX


@vjp
def reciprocal_vjp(dY, X):
    """dX = −dY/X²; at 0 an infinity, or 0 for a zero dY."""
    divisor = nudge(X, dY)
    dX = op.Neg(dY / divisor / divisor)
    return dX


@vjp
def pow_vjp(dZ, X, Y, Z):
    """dX = dZ·Y·X^(Y−1), 0 where Y = 0; dY = dZ·Z·ln X, 0 where X = 0 and Y ≥ 0; 0 for a zero dZ at a pole.

    The exponent Y − 1 is left at 0 where Y = 0, and ln X at 0 where 0 is raised to Y ≥ 0. dY is NaN for X < 0, where
    the power is defined at isolated exponents alone.
    """
    limit = op.CastLike(op.Constant(value=INFINITY), X)
    given = op.Cast(dZ, to=9)
    exponent = op.CastLike(Y, X)
    slope = exponent * op.Pow(X, exponent - mask(op.Cast(exponent, to=9), X))
    keep = op.Or(op.Less(op.Abs(slope), limit), given)
    dX = sum_to(select(keep, dZ * slope), X)
    nothing = op.CastLike(0.0, X)
    flat = op.And(op.Equal(X, nothing), op.GreaterOrEqual(exponent, nothing))
    rise = Z * op.Log(X + mask(flat, X))
    kept = op.Or(op.Less(op.Abs(rise), limit), given)
    dY = op.CastLike(sum_to(select(kept, dZ * rise), Y), Y)
    return dX, dY


@vjp
def pow_vjp__integer(dZ, X, Y):
    """dX = dZ·Y·X^(Y−1) for a known whole Y ≥ 1, which has no pole."""
    exponent = op.CastLike(Y, X)
    dX = sum_to(dZ * (op.Pow(X, exponent - 1.0) * exponent), X)
    return dX


@vjp
def pow_vjp__one(dZ, X):
    """dX = dZ for Y = 1."""
    dX = sum_to(dZ, X)
    return dX


@vjp
def pow_vjp__two(dZ, X):
    """dX = dZ·2X for Y = 2."""
    dX = sum_to(dZ * (X * 2.0), X)
    return dX


@vjp
def pow_vjp__three(dZ, X):
    """dX = dZ·3X² for Y = 3."""
    dX = sum_to(dZ * (X * X * 3.0), X)
    return dX


@vjp
def pow_vjp__half(dZ, X, Z):
    """dX = dZ/(2·Z) for Y = 1/2; at 0 an infinity, and there and below 0 for a zero dZ."""
    dX = sum_to(divide_inside(dZ * 0.5, Z), X)
    return dX


@vjp
def pow_vjp__minus_one(dZ, X):
    """dX = −dZ/X² for Y = −1; at 0 an infinity, or 0 for a zero dZ."""
    divisor = nudge(X, dZ)
    dX = op.Neg(sum_to(dZ / divisor / divisor, X))
    return dX


@vjp
def mod_vjp(dC, A, B, C):
    """dA = dC, dB = −dC·n for C = A − n·B: the quotient rounded down, or towards zero for fmod; 0 where it has none."""
    dA = sum_to(dC, A)
    quotient = (A - C) / B
    finite = op.Less(op.Abs(quotient), op.CastLike(op.Constant(value=INFINITY), A))
    # Whole but for rounding; Round takes no bfloat16 at opset 21.
    times = op.Floor(select(finite, quotient) + 0.5)
    dB = op.Neg(sum_to(dC * times, B))
    return dA, dB


@vjp
def where_vjp(doutput, condition, X, Y):
    """dX = dy where the condition holds, dY = dy elsewhere; the branch not taken gets exactly 0."""
    dX = sum_to(select(condition, doutput), X)
    dY = sum_to(op.Where(condition, op.CastLike(0.0, doutput), doutput), Y)
    return dX, dY


@traced("ddata_0")
def sum_vjp(dsum, data_0):
    """Each input gets the cotangent, summed over the axes along which it was broadcast."""
    return [sum_to(dsum, x) for x in data_0]


@traced("ddata_0")
def mean_vjp(dmean, data_0):
    """Each of n inputs gets the n-th part of the cotangent."""
    share = dmean / float(len(data_0))
    return [sum_to(share, x) for x in data_0]


@traced("ddata_0")
def max_vjp(dmax, data_0, max):
    """The inputs that equal the result share the cotangent evenly."""
    return _extremum(dmax, data_0, max)


@traced("ddata_0")
def min_vjp(dmin, data_0, min):
    """The inputs that equal the result share the cotangent evenly."""
    return _extremum(dmin, data_0, min)


def _extremum(ct, inputs, result):
    if len(inputs) == 1:
        return [op.Identity(ct)]
    tied = [mask(picked(x, result), result) for x in inputs]
    share = ct / _tree(tied)
    return [sum_to(share * t, x) for t, x in zip(tied, inputs, strict=True)]


def _tree(terms):
    """The sum by a balanced tree of Add, which is faster than an n-ary Sum."""
    while len(terms) > 1:
        terms = [op.Add(*terms[i : i + 2]) if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    return terms[0]
