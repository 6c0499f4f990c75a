"""Rules of operators that read a tensor at computed places: GridSample, AffineGrid, RoiAlign, MaxRoiPool, DeformConv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgen.rules.lang import op, traced
from gradgen.rules.library import zeros_like
from gradgen.rules.sampling_parts import (
    INT64,
    Taps,
    count,
    crossed,
    crossed_rows,
    flattened,
    like,
    points,
    read,
    spread,
    taps,
    wide,
)


@traced("dX", "dgrid")
def grid_sample_vjp(dY, X, grid, *, mode="linear", padding_mode="zeros", align_corners=0):
    """Y = Σ w(p)·X[i(p)] over the taps of p: dX = w·dY added up at i; dp = Σ w'·(dY·X[i]), and dgrid = dp·∂p/∂grid."""
    dims = X.rank - 2
    ct, image, coordinates = wide(dY), flattened(wide(X), dims), wide(grid)
    space = op.Shape(X, start=2)
    # The last axis of the grid names x first; here the slowest axis comes first.
    rows = op.Concat(op.Shape(grid, end=1), count(grid, 1, -1), [dims], axis=0)
    places = op.Reshape(op.Gather(coordinates, list(range(dims))[::-1], axis=-1), rows, allowzero=1)
    places = op.Transpose(places, perm=[0, 2, 1])
    sizes = op.Unsqueeze(space, [1])
    pixel, rate = _pixels(places, op.CastLike(sizes, places), align_corners)
    stacked = taps(pixel, sizes, mode, padding_mode, bool(align_corners))
    index, weight, slopes = crossed_rows(stacked, space, dims)
    merged = op.Concat(op.Shape(index, end=1), [len_taps(stacked, dims)], op.Shape(index, start=-1), axis=0)
    index_rows, weight_rows = (op.Reshape(v, merged, allowzero=1) for v in (index, weight))
    ct = op.Unsqueeze(flattened(ct, dims), [2])
    where = points(index_rows, image)
    dX = like(spread(ct, weight_rows, where, image), X)
    if mode == "nearest":
        return dX, zeros_like(grid)
    pull = op.ReduceSum(read(image, where, index_rows) * ct, [1], keepdims=0)
    return dX, like(_to_grid(pull, index, slopes, rate, dims), grid)


def len_taps(stacked: Taps, dims: int) -> int:
    """How many elements a point reads."""
    return stacked.index.shape[-2] ** dims


def _pixels(places: Any, sizes: Any, aligned: Any) -> tuple[Any, Any]:
    """Where normalised places lie in elements, rounded as the runtime does it, and the derivative."""
    if aligned:
        return (places + 1.0) * 0.5 * (sizes - 1.0), (sizes - 1.0) * 0.5
    return ((places + 1.0) * sizes - 1.0) * 0.5, sizes * 0.5


def _to_grid(pull: Any, index: Any, slopes: list[Any], rate: Any, dims: int) -> Any:
    """The cotangent [N, P, dims] of a grid, x first, from that of the weights."""
    pull = op.Reshape(pull, op.Shape(index), allowzero=1)
    over = list(range(1, 1 + dims))
    moved = [op.ReduceSum(op.CastLike(pull, s) * s, over, keepdims=0) for s in slopes]
    columns = [op.Unsqueeze(m * op.Gather(rate, [j]), [2]) for j, m in enumerate(moved)]
    return op.Concat(*reversed(columns), axis=2) if dims > 1 else columns[0]


@traced("dtheta")
def affine_grid_vjp(dgrid, theta, size, *, align_corners=0):
    """dθ = dgridᵀ·[base, 1], where the base is the grid of the identity."""
    dims = dgrid.rank - 2
    identity = np.eye(dims, dims + 1, dtype=np.float32)[None]
    kind = wide(theta)
    one = op.Concat([1], op.Slice(size, [1], [dims + 2]), axis=0)
    # The runtime decides where an axis of one element lies, so the base is not computed here.
    base = op.AffineGrid(op.CastLike(identity, kind), one, align_corners=align_corners, _fold=False)
    total = op.ReduceProd(op.Slice(size, [2], [dims + 2]), keepdims=1)
    rows = op.Reshape(op.CastLike(base, theta), op.Concat(total, [dims], axis=0), allowzero=1)
    rows = op.Pad(rows, [0, 1], op.CastLike(np.float32(1), theta), [1])
    ct = op.Reshape(dgrid, op.Concat(op.Shape(theta, end=1), total, [dims], axis=0), allowzero=1)
    return op.MatMul(op.Transpose(ct, perm=[0, 2, 1]), rows)


# Regions of interest


@dataclass(frozen=True)
class Bins:
    """One axis of regions that are divided into bins: taps [T, R, P], which of them count, and the way to the region.

    `share` [G, R or 1, P] is how far into the region a sample lies; `grows` [R, 1] tells where its extent is its own.
    """

    taps: Taps
    counted: Any
    share: Any = None
    grows: Any = None


@traced("dX", "drois")
def roi_align_vjp(
    dY, X, rois, batch_indices, *, coordinate_transformation_mode="half_pixel", mode="avg", output_height=1,
    output_width=1, sampling_ratio=0, spatial_scale=1.0,
):  # fmt: skip
    """dX = dY·w added up at the taps of every sample (max: of the tap that is picked); drois = Σ dp·∂p/∂rois."""
    image, ct = _as_one_image(wide(X)), _as_one_row(wide(dY))
    boxes = wide(rois) * float(spatial_scale)
    half_pixel = coordinate_transformation_mode == "half_pixel"
    boxes = boxes - 0.5 if half_pixel else boxes
    settings = (sampling_ratio, half_pixel, mode)
    vertical = _samples(boxes, 1, op.Shape(X, start=2, end=3), output_height, *settings)
    horizontal = _samples(boxes, 0, op.Shape(X, start=3), output_width, *settings)
    index, weight, slopes, counted = _cross_bins(vertical, horizontal, op.Shape(X, start=2), batch_indices)
    index_rows, weight_rows = _rows(index, index), _rows(weight, index)
    where = points(index_rows, image)
    if mode == "max":
        values = read(image, where, index_rows) * op.CastLike(op.Unsqueeze(weight_rows, [1]), image)
        ct = ct * _strongest(values, None if counted is None else _rows(op.Expand(counted, op.Shape(index)), index))
    dX = _from_one_image(spread(ct, weight_rows, where, image), X)
    pull = op.ReduceSum(read(image, where, index_rows) * ct, [1], keepdims=0)
    pull = op.CastLike(op.Reshape(pull, op.Shape(index), allowzero=1), boxes)
    first, last = zip(
        _to_region(op.ReduceSum(pull * slopes[1], [0, 3], keepdims=0), horizontal),
        _to_region(op.ReduceSum(pull * slopes[0], [1, 4], keepdims=0), vertical),
        strict=True,
    )
    return dX, like(op.Concat(*first, *last, axis=1) * float(spatial_scale), rois)


def _samples(boxes: Any, column: int, size: Any, bins: int, ratio: int, half_pixel: bool, mode: str) -> Bins:
    """Where the samples of every bin lie along one axis, K taps for each of G samples: T = K·G."""
    start, end = (op.Slice(boxes, [c], [c + 1], [1]) for c in (column, column + 2))
    own = end - start
    extent = own if half_pixel else op.Max(own, 1.0)
    width = extent / float(bins)
    numbers = np.arange(bins, dtype=np.float32)
    if ratio > 0:
        most: Any = np.asarray([ratio], np.int64)
        samples = op.CastLike(np.float32(ratio), boxes)
        order = op.CastLike(np.arange(ratio, dtype=np.float32)[:, None], boxes)
        counted = None
    else:
        samples = op.Unsqueeze(op.Ceil(width), [2])
        most = op.ReduceMax(op.Concat(op.Reshape(samples, [-1]), op.CastLike(np.ones(1, np.float32), boxes), axis=0))
        most = op.Cast(op.Reshape(most, [1]), to=INT64)
        order = op.Unsqueeze(op.Range(np.int64(0), op.Squeeze(most, [0]), np.int64(1)), [1])
        order = op.CastLike(order, boxes)
        counted = op.Less(order, samples)
        samples = op.Max(samples, 1.0)
    middle, step = order + 0.5, op.CastLike(numbers, boxes)
    start, width = op.Unsqueeze(start, [2]), op.Unsqueeze(width, [2])
    place = start + step * width + middle * width / samples
    inside = op.And(op.GreaterOrEqual(place, -1.0), op.LessOrEqual(place, op.CastLike(size, place)))
    inside = inside if counted is None else op.And(inside, counted)
    flat = op.Concat(op.Shape(boxes, end=1), most * bins, axis=0)
    found = taps(op.Reshape(place, flat, allowzero=1), size, "linear", "border")
    factor = op.CastLike(inside, place) / samples if mode == "avg" else op.CastLike(inside, place)
    factor = op.Unsqueeze(op.Reshape(factor, flat, allowzero=1), [1])
    rows = op.Concat(op.Shape(boxes, end=1), most * 2, [bins], axis=0)

    def tap_first(x: Any) -> Any:
        return op.Transpose(op.Reshape(x, rows, allowzero=1), perm=[1, 0, 2])

    if counted is not None:
        counted = op.Transpose(op.Concat(counted, counted, axis=1), perm=[1, 0, 2])
    share = (step + middle / samples) / float(bins)
    share = op.Transpose(share, perm=[1, 0, 2]) if share.rank == 3 else op.Unsqueeze(share, [1])
    grows = None if half_pixel else op.CastLike(op.Greater(own, 1.0), own)
    return Bins(Taps(found.index, found.weight * factor, found.slope * factor).map(tap_first), counted, share, grows)


def _cross_bins(vertical: Bins, horizontal: Bins, space: Any, batch: Any) -> tuple[Any, Any, list[Any], Any]:
    """Flat index, weight and slopes [Ty, Tx, R, PH, PW] of regions in an image of all batch entries; what counts."""
    axes = [
        vertical.taps.map(lambda x: op.Unsqueeze(x, [1, 4])),
        horizontal.taps.map(lambda x: op.Unsqueeze(x, [0, 3])),
    ]
    height, width = op.Gather(space, [0]), op.Gather(space, [1])
    index, weight, slopes = crossed(axes, [height, width])
    index = index + op.Unsqueeze(op.Cast(batch, to=INT64), [1, 2]) * (height * width)
    if vertical.counted is None:
        return index, weight, slopes, None
    counted = op.And(op.Unsqueeze(vertical.counted, [1, 4]), op.Unsqueeze(horizontal.counted, [0, 3]))
    return index, weight, slopes, counted


def _rows(x: Any, index: Any) -> Any:
    """[Ty, Tx, R, PH, PW] as [1, T, P]."""
    flat = op.Concat([1], count(index, 0, 2), count(index, 2), axis=0)
    return op.Reshape(x, flat, allowzero=1)


def _strongest(values: Any, counted: Any) -> Any:
    """1 at the first of the greatest of values [1, C, T, P] that count, 0 elsewhere."""
    if counted is not None:
        values = op.Where(op.Unsqueeze(counted, [1]), values, op.CastLike(np.float32(-np.inf), values))
    pick = op.ArgMax(values, axis=2, keepdims=1)
    order = op.Range(np.int64(0), op.Squeeze(op.Shape(values, start=2, end=3), [0]), np.int64(1))
    return op.CastLike(op.Equal(op.Unsqueeze(order, [1]), pick), values)


def _as_one_image(X: Any) -> Any:
    """X [N, C, H, W] as [1, C, N·H·W]."""
    flat = op.Concat([1], op.Shape(X, start=1, end=2), op.Shape(X, end=1) * count(X, 2), axis=0)
    swapped = X if X.shape is not None and X.shape[0] == 1 else op.Transpose(X, perm=[1, 0, 2, 3])
    return op.Reshape(swapped, flat, allowzero=1)


def _from_one_image(ct: Any, X: Any) -> Any:
    """The way back from `_as_one_image`, in X's type."""
    if X.shape is not None and X.shape[0] == 1:
        return like(ct, X)
    apart = op.Concat(op.Shape(X, start=1, end=2), op.Shape(X, end=1), op.Shape(X, start=2), axis=0)
    return op.CastLike(op.Transpose(op.Reshape(ct, apart, allowzero=1), perm=[1, 0, 2, 3]), X)


def _as_one_row(dY: Any) -> Any:
    """dY [R, C, PH, PW] as [1, C, 1, R·PH·PW]."""
    flat = op.Concat([1], op.Shape(dY, start=1, end=2), [1], op.Shape(dY, end=1) * count(dY, 2), axis=0)
    return op.Reshape(op.Transpose(dY, perm=[1, 0, 2, 3]), flat, allowzero=1)


def _to_region(moved: Any, bins: Bins) -> tuple[Any, Any]:
    """The cotangents [R, 1] of a region's first and last edge from those [T, R, P] of its taps: p = a + share·(b − a)."""
    samples = op.Shape(bins.share, end=1)
    moved = op.Reshape(moved, op.Concat([2], samples, op.Shape(moved, start=1), axis=0), allowzero=1)
    total, stretch = op.ReduceSum(moved, [0, 1, 3], keepdims=0), op.ReduceSum(moved * bins.share, [0, 1, 3], keepdims=0)
    total, stretch = op.Unsqueeze(total, [1]), op.Unsqueeze(stretch, [1])
    stretch = stretch if bins.grows is None else stretch * bins.grows
    return total - stretch, stretch


@traced("dX")
def max_roi_pool_vjp(dY, X, rois, *, pooled_shape, spatial_scale=1.0):
    """dX = dY added up at the first of the greatest elements of each bin."""
    image, ct = _as_one_image(wide(X)), _as_one_row(wide(dY))
    space, boxes = op.Shape(X, start=2), wide(rois)
    batch = op.Squeeze(op.Slice(boxes, [0], [1], [1]), [1])
    edges = _rounded(boxes * float(spatial_scale))
    vertical, horizontal = (_cells(edges, c, op.Gather(space, [1 - k]), pooled_shape[1 - k]) for k, c in ((1, 2), (0, 1)))
    index, weight, _, counted = _cross_bins(vertical, horizontal, space, batch)
    index_rows = _rows(index, index)
    where = points(index_rows, image)
    ct = ct * _strongest(read(image, where, index_rows), _rows(counted, index))
    return _from_one_image(spread(ct, _rows(weight, index), where, image), X)


def _rounded(x: Any) -> Any:
    """x rounded, halves away from zero."""
    return op.Sign(x) * op.Floor(op.Abs(x) + 0.5)


def _cells(edges: Any, column: int, size: Any, bins: int) -> Bins:
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


# Deformable convolution


def deform_conv_defaults(attributes: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Strides, dilations and pads, by the rank of whichever input's is known."""
    ranks = [len(values[n].shape) for n in ("X", "W", "offset") if n in values and values[n].shape is not None]
    if not ranks:
        return {}
    ones, zeros = [1] * (ranks[0] - 2), [0] * 2 * (ranks[0] - 2)
    return {
        "strides": attributes.get("strides") or ones,
        "dilations": attributes.get("dilations") or ones,
        "pads": attributes.get("pads") or zeros,
    }


@traced("dX", "dW", "doffset", "dB", "dmask")
def deform_conv_vjp(
    dY, X, W, offset, B, mask, *, strides, dilations, pads, group=1, offset_group=1,
):  # fmt: skip
    """Y = W·(m·S) + B, where S = Σ w(p)·X[i(p)] is X sampled at p = base + offset, one place for each kernel element."""
    dims = X.rank - 2
    ct, weights, moved = wide(dY), wide(W), wide(offset)
    # One row for each batch entry and offset group, which share their places.
    kernel, out = op.Shape(W, start=2), op.Shape(offset, start=2)
    taken, made = count(W, 2), count(offset, 2)
    rows = op.Shape(X, end=1) * np.asarray([offset_group], np.int64)
    channels = op.Div(op.Shape(X, start=1, end=2), np.asarray([offset_group], np.int64))
    spots = taken * made
    image = op.Reshape(wide(X), op.Concat(rows, channels, count(X, 2), axis=0), allowzero=1)
    apart = op.Concat(rows, taken, [dims], made, axis=0)
    merged = op.Concat(rows, [dims], spots, axis=0)
    base = op.CastLike(_window_places(kernel, out, dims, strides, dilations, pads), moved)
    shift = op.Transpose(op.Reshape(moved, apart, allowzero=1), perm=[0, 2, 1, 3])
    place = op.Reshape(shift, merged, allowzero=1) + op.Reshape(base, op.Concat([dims], spots, axis=0), allowzero=1)
    space = op.Shape(X, start=2)
    stacked = taps(place, op.Unsqueeze(space, [1]), "linear", "zeros")
    index, weight, slopes = crossed_rows(stacked, space, dims)
    flat = op.Concat(rows, [2**dims], spots, axis=0)
    index_rows, weight_rows = (op.Reshape(v, flat, allowzero=1) for v in (index, weight))
    where = points(index_rows, image)
    values = read(image, where, index_rows)
    sampled = op.ReduceSum(values * op.CastLike(op.Unsqueeze(weight_rows, [1]), values), [2], keepdims=0)
    shares = None if mask is None else op.Reshape(wide(mask), op.Concat(rows, [1], spots, axis=0), allowzero=1)
    columns = sampled if shares is None else sampled * shares
    # The convolution itself: one product for each group.
    groups = np.asarray([group], np.int64)
    inner = op.Shape(W, start=1, end=2) * taken
    outer = op.Div(op.Shape(W, end=1), groups)
    ct_rows = op.Reshape(ct, op.Concat(op.Shape(X, end=1), groups, outer, made, axis=0), allowzero=1)
    matrix = op.Reshape(weights, op.Concat(groups, outer, inner, axis=0), allowzero=1)
    column_rows = op.Reshape(columns, op.Concat(op.Shape(X, end=1), groups, inner, made, axis=0), allowzero=1)
    products = op.MatMul(ct_rows, op.Transpose(column_rows, perm=[0, 1, 3, 2]))
    dW = like(op.ReduceSum(products, [0], keepdims=0), W)
    pulled = op.Reshape(op.MatMul(op.Transpose(matrix, perm=[0, 2, 1]), ct_rows), op.Shape(columns), allowzero=1)
    dB = None if B is None else op.CastLike(op.ReduceSum(ct, [0, *range(2, 2 + dims)], keepdims=0), B)
    dmask = None if mask is None else like(op.ReduceSum(pulled * sampled, [1], keepdims=0), mask)
    pulled = op.Unsqueeze(pulled if shares is None else pulled * shares, [2])
    dX = like(spread(pulled, weight_rows, where, image), X)
    pull = op.CastLike(op.Reshape(op.ReduceSum(values * pulled, [1], keepdims=0), op.Shape(index), allowzero=1), place)
    over = list(range(1, 1 + dims))
    steps = [op.Unsqueeze(op.ReduceSum(pull * s, over, keepdims=0), [1]) for s in slopes]
    back = op.Concat(rows, [dims], taken, made, axis=0)
    doffset = op.Transpose(op.Reshape(op.Concat(*steps, axis=1), back, allowzero=1), perm=[0, 2, 1, 3])
    return dX, dW, like(doffset, offset), dB, dmask


def _window_places(kernel: Any, out: Any, dims: int, strides: Any, dilations: Any, pads: Any) -> Any:
    """Where every kernel element of every window lies, int64 [dims, *kernel, *out]."""
    shape = op.Concat(kernel, out, axis=0)
    axes = []
    for j in range(dims):
        tap, window = (
            op.Range(np.int64(0), op.Gather(sizes, np.int64(j)), np.int64(1)) * step
            for sizes, step in ((kernel, dilations[j]), (out, strides[j]))
        )
        tap = op.Unsqueeze(tap - pads[j], [i for i in range(2 * dims) if i != j])
        window = op.Unsqueeze(window, [i for i in range(2 * dims) if i != dims + j])
        axes.append(op.Unsqueeze(op.Expand(tap + window, shape), [0]))
    return op.Concat(*axes, axis=0)
