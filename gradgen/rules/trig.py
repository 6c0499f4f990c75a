"""Rules of trigonometric and hyperbolic functions, and of erf."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from gradgen.rules.lang import op, vjp
from gradgen.rules.library import divide_inside, finite_positive

TWO_OVER_ROOT_PI = numpy_helper.from_array(np.array(2 / np.sqrt(np.pi)))


@vjp
def sin_vjp(doutput, input):
    """dx = dy·cos x."""
    dinput = doutput * op.Cos(input)
    return dinput


@vjp
def cos_vjp(doutput, input):
    """dx = −dy·sin x."""
    dinput = op.Neg(doutput * op.Sin(input))
    return dinput


@vjp
def tan_vjp(doutput, output):
    """dx = dy·(1 + y²)."""
    dinput = doutput * (output * output + 1.0)
    return dinput


@vjp
def asin_vjp(doutput, input):
    """dx = dy/√(1 − x²); at ±1 an infinity, and there and beyond 0 for a zero dy."""
    dinput = divide_inside(doutput, op.Sqrt((1.0 - input) * (input + 1.0)))
    return dinput


@vjp
def acos_vjp(doutput, input):
    """dx = −dy/√(1 − x²); at ±1 an infinity, and there and beyond 0 for a zero dy."""
    dinput = op.Neg(divide_inside(doutput, op.Sqrt((1.0 - input) * (input + 1.0))))
    return dinput


@vjp
def atan_vjp(doutput, input):
    """dx = dy/(1 + x²)."""
    dinput = doutput / (input * input + 1.0)
    return dinput


@vjp
def sinh_vjp(doutput, input):
    """dx = dy·cosh x; where that overflows a zero dy stays zero."""
    dinput = doutput * finite_positive(op.Cosh(input))
    return dinput


@vjp
def cosh_vjp(doutput, input):
    """dx = dy·sinh x, by its sign and size; where it overflows a zero dy stays zero."""
    slope = op.Sinh(input)
    dinput = doutput * op.Sign(slope) * finite_positive(op.Abs(slope))
    return dinput


@vjp
def tanh_vjp(doutput, output):
    """dx = dy·(1 − y²)."""
    dinput = doutput * (1.0 - output * output)
    return dinput


@vjp
def asinh_vjp(doutput, input):
    """dx = dy/√(1 + x²)."""
    dinput = doutput / op.Sqrt(input * input + 1.0)
    return dinput


@vjp
def acosh_vjp(doutput, input):
    """dx = dy/√(x² − 1), by two roots that do not overflow; at 1 an infinity, and there and below 0 for a zero dy."""
    dinput = divide_inside(doutput, op.Sqrt(input - 1.0) * op.Sqrt(input + 1.0))
    return dinput


@vjp
def atanh_vjp(doutput, input):
    """dx = dy/(1 − x²); at ±1 an infinity, and there and beyond 0 for a zero dy."""
    dinput = divide_inside(doutput, (1.0 - input) * (input + 1.0))
    return dinput


@vjp
def erf_vjp(doutput, input):
    """dx = dy·2/√π·exp(−x²)."""
    factor = op.CastLike(op.Constant(value=TWO_OVER_ROOT_PI), input)
    dinput = doutput * (op.Exp(op.Neg(input * input)) * factor)
    return dinput
