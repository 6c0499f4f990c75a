"""Rules of running products."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgen.rules.lang import op, traced
from gradgen.rules.library import recurrence, reshape_like


def _lines(x: Any, axis: Any) -> Any:
    """The shape [before the axis, along it, behind it] of x, for an axis that need not be known."""
    shape = op.Shape(x)
    place = op.Reshape(axis, [1])
    place = op.Mod(op.Cast(place, to=7), op.Shape(shape))
    along = op.Gather(shape, place)
    before = op.ReduceProd(op.Slice(shape, [0], place), [0], keepdims=1)
    behind = op.ReduceProd(op.Slice(shape, op.Add(place, [1]), [np.iinfo(np.int64).max]), [0], keepdims=1)
    return op.Concat(before, along, behind, axis=0)


def _shift(x: Any, by: int, fill: float) -> Any:
    """x moved along its axis 1 by one place, filled with a number where nothing comes in."""
    return op.Pad(x, [0, by, 0, 0, -by, 0], op.CastLike(fill, x))


@traced("dx")
def cum_prod_vjp(dy, x, axis, y, *, exclusive=0, reverse=0):
    """dxᵢ = eᵢ·bᵢ, with e the products of what comes before i, and bᵢ = dyᵢ + xᵢ₊₁·bᵢ₊₁: exact with zeros."""
    shape = _lines(x, axis)
    ct, factors, products = (op.Reshape(v, shape, allowzero=1) for v in (dy, x, y))
    onward = 1 if reverse else -1
    if exclusive:
        ct = _shift(ct, onward, 0.0)
    else:
        products = _shift(products, -onward, 1.0)
    tail = recurrence(_shift(factors, onward, 0.0), ct, backward=1 - reverse)
    return reshape_like(products * tail, x)
