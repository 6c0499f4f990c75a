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
    free = place
    if kind == "linear" and padding == "border":  # each tap by itself is right: a maximum over taps reads them alone
        place = op.Max(op.Min(place, op.CastLike(size - 1, place)), 0.0)
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
        inside = op.And(op.Greater(free, 0.0), op.Less(free, op.CastLike(size - 1, free)))
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


@dataclass(frozen=True)
class Sampling:
    """A tensor [B, C, L] as it is read at P points, T taps for each.

    Index, weight and slopes broadcast to a shape of the caller's, of as many elements as `rows`: [B, T, P].
    """

    image: Any
    index: Any
    weight: Any
    slopes: list[Any]
    rows: Any

    @property
    def _places(self) -> Any:
        """Where each channel is read: int64 [B, C, T·P]."""
        total = op.ReduceProd(op.Slice(self.rows, [1], [3]), keepdims=1)
        each = op.Concat(op.Slice(self.rows, [0], [1]), [1], total, axis=0)
        flat = op.Reshape(self.index, each, allowzero=1)
        return op.Expand(flat, op.Concat(op.Shape(self.image, end=2), op.Slice(each, [2], [3]), axis=0))

    @property
    def weights(self) -> Any:
        """The weights [B, 1, T, P], in the tensor's type."""
        return op.CastLike(op.Unsqueeze(self.in_rows(self.weight), [1]), self.image)

    def in_rows(self, x: Any) -> Any:
        """What has the shape of the index, as [B, T, P]."""
        return op.Reshape(x, self.rows, allowzero=1)

    def read(self) -> Any:
        """The elements [B, C, T, P] that are read."""
        apart = op.Concat(op.Shape(self.image, end=2), op.Slice(self.rows, [1], [3]), axis=0)
        return op.Reshape(op.GatherElements(self.image, self._places, axis=2), apart, allowzero=1)

    def value(self) -> Any:
        """The sampled values [B, C, P]."""
        return op.ReduceSum(self.read() * self.weights, [2], keepdims=0)

    def spread(self, ct: Any) -> Any:
        """The cotangent of the tensor for ct [B, C, 1 or T, P]: weighted, and added up where it was read."""
        updates = op.Reshape(ct * self.weights, op.Shape(self._places), allowzero=1)
        return scatter(zeros_like(self.image), self._places, updates, 2, "add")

    def pull(self, ct: Any) -> Any:
        """The cotangent of the weights, summed over the channels, in the shape of the index."""
        over = op.ReduceSum(self.read() * ct, [1], keepdims=0)
        return op.CastLike(op.Reshape(over, op.Shape(self.index), allowzero=1), self.weight)


def sample(image: Any, place: Any, space: Any, kind: str, padding: str, aligned: bool = False) -> Sampling:
    """An image [B, C, L] of `space` sampled at places [B, dims, P], counted in elements, slowest axis first."""
    dims = space.shape[0]
    stacked = taps(place, op.Unsqueeze(space, [1]), kind, padding, aligned)
    others = [[1 + i for i in range(dims) if i != own] for own in range(dims)]
    axes = [
        stacked.map(lambda part, j=j: op.Unsqueeze(op.Gather(part, np.int64(j), axis=1), others[j]))
        if dims > 1
        else stacked.map(lambda part: op.Squeeze(part, [1]))
        for j in range(dims)
    ]
    index, weight, slopes = crossed(axes, [op.Gather(space, [j]) for j in range(dims)])
    each = len(KERNELS[kind][0]) ** dims
    rows = op.Concat(op.Shape(place, end=1), [each], op.Shape(place, start=2), axis=0)
    return Sampling(image, index, weight, slopes, rows)


def moved(sampling: Sampling, ct: Any, dims: int) -> list[Any]:
    """The cotangent [B, P] of the places along each axis."""
    pull, over = sampling.pull(ct), list(range(1, 1 + dims))
    return [op.ReduceSum(pull * slope, over, keepdims=0) for slope in sampling.slopes]


def flattened(x: Any, dims: int) -> Any:
    """x [B, C, *space] as [B, C, L]."""
    return x if dims == 1 else op.Reshape(x, op.Concat(op.Shape(x, end=2), count(x, 2), axis=0), allowzero=1)


def like(x: Any, source: Any) -> Any:
    """x with the shape and the type of `source`."""
    return op.CastLike(reshape_like(x, source), source)
