"""Values read between the elements of a tensor: taps and weights along each axis, their products, and the way back."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.rules.index import HALVES, scatter
from gradgen.rules.lang import op
from gradgen.rules.library import expand_like, reshape_like, zeros_like

INT64 = int(ir.DataType.INT64)
CUBIC = -0.75

# For each kind of interpolation the elements that a place reads, counted from the one below it, and the weight of each
# as a polynomial of the place's distance from that one: coefficients of 1, t, t², t³.
KERNELS: dict[str, tuple[list[int], list[list[float]]]] = {
    "nearest": ([0], [[1]]),
    "linear": ([0, 1], [[1, -1], [0, 1]]),
    "cubic": (
        [-1, 0, 1, 2],
        [
            [0, CUBIC, -2 * CUBIC, CUBIC],
            [1, 0, -CUBIC - 3, CUBIC + 2],
            [0, -CUBIC, 2 * CUBIC + 3, -CUBIC - 2],
            [0, 0, CUBIC, -CUBIC],
        ],
    ),
}


@dataclass(frozen=True)
class Taps:
    """The elements that places read: their int64 index, their weight, and the weight's derivative to the place."""

    index: Any
    weight: Any
    slope: Any

    def map(self, fn: Any) -> Taps:
        """The taps with a change of layout applied to each part."""
        return Taps(fn(self.index), fn(self.weight), fn(self.slope))


def wide(x: Any) -> Any:
    """x, in float32 where it is of a half type: places need more digits, and a scatter needs a kernel."""
    return op.Cast(x, to=int(ir.DataType.FLOAT)) if x is not None and x.dtype in HALVES else x


def count(x: Any, start: int | None = None, end: int | None = None) -> Any:
    """The product of a stretch of dimensions as a one-element tensor."""
    return op.ReduceProd(op.Shape(x, start=start, end=end), keepdims=1)


def taps(place: Any, size: Any, kind: str, padding: str, aligned: bool = False) -> Taps:
    """The taps of places [..., P] along axes of `size` elements (int64 [..., 1]), each part [..., K, P].

    Padding: `zeros` weighs what lies outside by 0, `border` reads the nearest element, `reflection` mirrors at the
    outer elements (`aligned`) or half an element beyond. The slope is 0 where a linear place is clipped, edge included.
    """
    offsets, powers = KERNELS[kind]
    place, size = op.Unsqueeze(place, [-2]), op.Unsqueeze(size, [-2])
    sign = None
    if kind == "linear" and padding == "reflection":
        place, sign = _mirrored(place, op.CastLike(size, place), aligned)
    below = op.Round(place) if kind == "nearest" else op.Floor(place)
    reached = op.Cast(below, to=INT64) + np.asarray(offsets, np.int64)[:, None]
    if padding == "reflection" and kind != "linear":
        reached = _mirrored_index(reached, size, aligned)
    index = op.Min(op.Max(reached, 0), size - 1)
    weight = _polynomial(place - below, np.asarray(powers, np.float32))
    if len(offsets) == 1:
        weight = op.CastLike(expand_like(weight, index), place)
    rising = np.asarray(powers, np.float32)[:, 1:] * np.arange(1, len(powers[0]), dtype=np.float32)
    slope = _polynomial(place - below, rising) if rising.size else zeros_like(weight)
    if padding == "zeros":
        inside = op.CastLike(op.Equal(reached, index), place)
        return Taps(index, weight * inside, slope * inside)
    if kind == "linear":
        inside = op.And(op.Greater(place, 0.0), op.Less(place, op.CastLike(size - 1, place)))
        moves = op.CastLike(inside, place)
        slope = slope * (moves if sign is None else moves * sign)
    return Taps(index, weight, slope)


def _polynomial(t: Any, coefficients: np.ndarray) -> Any:
    """A polynomial of t [..., 1, P] for each row of coefficients, by Horner's rule: [..., K, P]."""
    columns = [op.CastLike(c[:, None], t) for c in coefficients.T]
    return functools.reduce(lambda total, c: total * t + c, reversed(columns[:-1]), columns[-1])


def _mirrored(place: Any, size: Any, aligned: bool) -> tuple[Any, Any]:
    """A place reflected into the axis, and the sign of its derivative."""
    low = 0.0 if aligned else -0.5
    span = op.Max(size - 1.0, 1.0) if aligned else size
    beyond = place if aligned else place - low
    turns = op.Floor(beyond / span)
    odd = turns - op.Floor(turns * 0.5) * 2.0
    sign = 1.0 - odd * 2.0
    inner = sign * (beyond - (turns + odd) * span)
    return (inner if aligned else inner + low), sign


def _mirrored_index(index: Any, size: Any, aligned: bool) -> Any:
    """An index reflected into the axis."""
    period = op.Max((size - 1) * 2, 1) if aligned else size * 2
    forth = op.Mod(index, period)
    back = period - forth
    return op.Min(forth, back if aligned else back - 1)


def crossed(axes: list[Taps], sizes: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Products over the axes, slowest first, whose parts broadcast: flat index, weight, and a slope for each axis."""
    index = axes[0].index
    for axis, size in zip(axes[1:], sizes[1:], strict=True):
        index = index * size + axis.index
    weights = [a.weight for a in axes]
    weight = functools.reduce(operator.mul, weights)
    slopes = [
        functools.reduce(operator.mul, [axes[j].slope, *weights[:j], *weights[j + 1 :]]) for j in range(len(axes))
    ]
    return index, weight, slopes


def crossed_rows(stacked: Taps, space: Any, dims: int) -> tuple[Any, Any, list[Any]]:
    """`crossed` for taps of all axes in one tensor [B, dims, K, P], slowest first: parts [B, K, …, K, P]."""
    others = [[1 + i for i in range(dims) if i != own] for own in range(dims)]
    axes = [
        stacked.map(lambda part, j=j: op.Unsqueeze(op.Gather(part, np.int64(j), axis=1), others[j]))
        if dims > 1
        else stacked.map(lambda part: op.Squeeze(part, [1]))
        for j in range(dims)
    ]
    return crossed(axes, [op.Gather(space, [j]) for j in range(dims)])


def points(index: Any, like: Any) -> Any:
    """Indices [B, T, P] as [B, C, T·P], one set for each of the C channels of a tensor [B, C, L]."""
    flat = op.Reshape(index, op.Concat(op.Shape(index, end=1), [1], count(index, 1), axis=0), allowzero=1)
    return op.Expand(flat, op.Concat(op.Shape(like, end=2), op.Shape(flat, start=2), axis=0))


def read(x: Any, places: Any, index: Any) -> Any:
    """The elements [B, C, T, P] of x [B, C, L] at places [B, C, T·P] that come from indices [B, T, P]."""
    values = op.GatherElements(x, places, axis=2)
    return op.Reshape(values, op.Concat(op.Shape(x, end=2), op.Shape(index, start=1), axis=0), allowzero=1)


def spread(ct: Any, weight: Any, places: Any, like: Any) -> Any:
    """The cotangent of x [B, C, L] for ct [B, C, 1 or T, P]: weighted, and added up where it was read."""
    updates = op.Reshape(ct * op.CastLike(op.Unsqueeze(weight, [1]), ct), op.Shape(places), allowzero=1)
    return scatter(zeros_like(like), places, updates, 2, "add")


def flattened(x: Any, dims: int) -> Any:
    """x [B, C, *space] as [B, C, L]."""
    return x if dims == 1 else op.Reshape(x, op.Concat(op.Shape(x, end=2), count(x, 2), axis=0), allowzero=1)


def like(x: Any, source: Any) -> Any:
    """x with the shape and the type of `source`."""
    return op.CastLike(reshape_like(x, source), source)
