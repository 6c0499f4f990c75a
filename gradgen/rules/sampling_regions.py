"""Regions of interest that are divided into bins: what every bin reads, and the way back to image and region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgen.rules.lang import op
from gradgen.rules.sampling_parts import INT64, Sampling, Taps, count, crossed, like, taps


@dataclass(frozen=True)
class Bins:
    """One axis of regions that are divided into bins: taps [T, R, P], which of them count, and the way to the region.

    `share` [G, R or 1, P] is how far into the region a sample lies; `grows` [R, 1] tells where its extent is its own.
    """

    taps: Taps
    counted: Any
    share: Any = None
    grows: Any = None


def samples(boxes: Any, column: int, size: Any, bins: int, ratio: int, half_pixel: bool, mode: str) -> Bins:
    """Where the samples of every bin lie along one axis, K taps for each of G samples: T = K·G."""
    start, end = (op.Slice(boxes, [c], [c + 1], [1]) for c in (column, column + 2))
    own = end - start
    width = op.Unsqueeze((own if half_pixel else op.Max(own, 1.0)) / float(bins), [2])
    order, each, most, counted = _divided(width, ratio)
    step = op.CastLike(np.arange(bins, dtype=np.float32), boxes)
    place = op.Unsqueeze(start, [2]) + step * width + (order + 0.5) * width / each
    inside = op.And(op.GreaterOrEqual(place, -1.0), op.LessOrEqual(place, op.CastLike(size, place)))
    factor = op.CastLike(inside if counted is None else op.And(inside, counted), place)
    factor = factor / each if mode == "avg" else factor
    found = _tap_first(place, factor, size, most, bins)
    if counted is not None:
        counted = op.Transpose(op.Concat(counted, counted, axis=1), perm=[1, 0, 2])
    share = (step + (order + 0.5) / each) / float(bins)
    share = op.Transpose(share, perm=[1, 0, 2]) if ratio <= 0 else op.Unsqueeze(share, [1])
    return Bins(found, counted, share, None if half_pixel else op.CastLike(op.Greater(own, 1.0), own))


def _divided(width: Any, ratio: int) -> tuple[Any, Any, Any, Any]:
    """The samples of bins of a width [R, 1, 1]: their numbers [G, 1], how many a bin has, the most of all, which count.

    Without a ratio a bin has one sample for each element that it begins to cover.
    """
    if ratio > 0:
        order = op.CastLike(np.arange(ratio, dtype=np.float32)[:, None], width)
        return order, op.CastLike(np.float32(ratio), width), np.asarray([ratio], np.int64), None
    each = op.Ceil(width)
    most = op.ReduceMax(op.Concat(op.Reshape(each, [-1]), op.CastLike(np.ones(1, np.float32), width), axis=0))
    most = op.Cast(op.Reshape(most, [1]), to=INT64)
    numbers = op.Range(np.int64(0), op.Squeeze(most, [0]), np.int64(1))
    order = op.CastLike(op.Unsqueeze(numbers, [1]), width)
    return order, op.Max(each, 1.0), most, op.Less(order, each)


def _tap_first(place: Any, factor: Any, size: Any, most: Any, bins: int) -> Taps:
    """The two taps of places [R, G, P], as [2·G, R, P], their weights times a factor."""
    flat = op.Concat(op.Shape(place, end=1), most * bins, axis=0)
    found = taps(op.Reshape(place, flat, allowzero=1), size, "linear", "border")
    factor = op.Unsqueeze(op.Reshape(factor, flat, allowzero=1), [1])
    rows = op.Concat(op.Shape(place, end=1), most * 2, [bins], axis=0)
    scaled = Taps(found.index, found.weight * factor, found.slope * factor)
    return scaled.map(lambda part: op.Transpose(op.Reshape(part, rows, allowzero=1), perm=[1, 0, 2]))


def cells(edges: Any, column: int, size: Any, bins: int) -> Bins:
    """The elements of every bin along one axis, G for the largest, as taps of weight 1 where they are of the bin."""
    start, end = (op.Slice(edges, [c], [c + 1], [1]) for c in (column, column + 2))
    width = op.Max(end - start + 1.0, 1.0) / float(bins)
    number = op.CastLike(np.arange(bins, dtype=np.float32), edges)
    last = op.CastLike(size, edges)
    first, past = (
        op.Cast(op.Min(op.Max(edge + start, 0.0), last), to=INT64)
        for edge in (op.Floor(number * width), op.Ceil((number + 1.0) * width))
    )
    most = op.ReduceMax(op.Concat(op.Reshape(past - first, [-1]), np.ones(1, np.int64), axis=0), keepdims=0)
    order = op.Unsqueeze(op.Range(np.int64(0), most, np.int64(1)), [1, 2])
    reached = first + order
    counted = op.Less(reached, past)
    weight = op.CastLike(counted, edges)
    return Bins(Taps(op.Max(op.Min(reached, size - 1), 0), weight, weight), counted)


def rounded(x: Any) -> Any:
    """x rounded, halves away from zero."""
    return op.Sign(x) * op.Floor(op.Abs(x) + 0.5)


def cross_bins(image: Any, vertical: Bins, horizontal: Bins, space: Any, batch: Any) -> tuple[Sampling, Any]:
    """What regions read [Ty, Tx, R, PH, PW] of an image of all batch entries, and which of it counts (None: all)."""
    axes = [
        vertical.taps.map(lambda x: op.Unsqueeze(x, [1, 4])),
        horizontal.taps.map(lambda x: op.Unsqueeze(x, [0, 3])),
    ]
    height, width = op.Gather(space, [0]), op.Gather(space, [1])
    index, weight, slopes = crossed(axes, [height, width])
    index = index + op.Unsqueeze(op.Cast(batch, to=INT64), [1, 2]) * (height * width)
    rows = op.Concat([1], count(index, 0, 2), count(index, 2), axis=0)
    taken = Sampling(image, index, weight, slopes, rows)
    if vertical.counted is None:
        return taken, None
    counted = op.And(op.Unsqueeze(vertical.counted, [1, 4]), op.Unsqueeze(horizontal.counted, [0, 3]))
    return taken, op.Expand(counted, op.Shape(index))


def strongest(taken: Sampling, values: Any, counted: Any) -> Any:
    """1 at the first of the greatest of values [1, C, T, P] that count, 0 elsewhere."""
    if counted is not None:
        values = op.Where(op.Unsqueeze(taken.in_rows(counted), [1]), values, op.CastLike(np.float32(-np.inf), values))
    pick = op.ArgMax(values, axis=2, keepdims=1)
    order = op.Range(np.int64(0), op.Squeeze(op.Shape(values, start=2, end=3), [0]), np.int64(1))
    return op.CastLike(op.Equal(op.Unsqueeze(order, [1]), pick), values)


def to_region(moved: Any, bins: Bins) -> tuple[Any, Any]:
    """The cotangents [R, 1] of a region's first and last edge from those [T, R, P] of taps: p = a + share·(b − a)."""
    samples = op.Shape(bins.share, end=1)
    moved = op.Reshape(moved, op.Concat([2], samples, op.Shape(moved, start=1), axis=0), allowzero=1)
    total, stretch = op.ReduceSum(moved, [0, 1, 3], keepdims=0), op.ReduceSum(moved * bins.share, [0, 1, 3], keepdims=0)
    total, stretch = op.Unsqueeze(total, [1]), op.Unsqueeze(stretch, [1])
    stretch = stretch if bins.grows is None else stretch * bins.grows
    return total - stretch, stretch


def as_one_image(X: Any) -> Any:
    """X [N, C, H, W] as [1, C, N·H·W]."""
    flat = op.Concat([1], op.Shape(X, start=1, end=2), op.Shape(X, end=1) * count(X, 2), axis=0)
    swapped = X if X.shape is not None and X.shape[0] == 1 else op.Transpose(X, perm=[1, 0, 2, 3])
    return op.Reshape(swapped, flat, allowzero=1)


def from_one_image(ct: Any, X: Any) -> Any:
    """The way back from `as_one_image`, in X's type."""
    if X.shape is not None and X.shape[0] == 1:
        return like(ct, X)
    apart = op.Concat(op.Shape(X, start=1, end=2), op.Shape(X, end=1), op.Shape(X, start=2), axis=0)
    return op.CastLike(op.Transpose(op.Reshape(ct, apart, allowzero=1), perm=[1, 0, 2, 3]), X)


def as_one_row(dY: Any) -> Any:
    """dY [R, C, PH, PW] as [1, C, 1, R·PH·PW]."""
    flat = op.Concat([1], op.Shape(dY, start=1, end=2), [1], op.Shape(dY, end=1) * count(dY, 2), axis=0)
    return op.Reshape(op.Transpose(dY, perm=[1, 0, 2, 3]), flat, allowzero=1)
