"""Rules of arithmetic with broadcasting."""

from __future__ import annotations

from gradgen.rules.lang import vjp
from gradgen.rules.library import sum_to


@vjp
def add_vjp(dC, A, B):
    """dA = dC, dB = dC, each summed over the axes along which it was broadcast."""
    dA = sum_to(dC, A)
    dB = sum_to(dC, B)
    return dA, dB


@vjp
def mul_vjp(dC, A, B):
    """dA = dC·B, dB = dC·A."""
    dA = sum_to(dC * B, A)
    dB = sum_to(dC * A, B)
    return dA, dB
