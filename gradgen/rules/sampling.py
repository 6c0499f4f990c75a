"""Rules of operators that read a tensor at any place: GridSample, AffineGrid, RoiAlign, MaxRoiPool, DeformConv."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgen.rules.lang import op, traced
from gradgen.rules.library import zeros_like
from gradgen.rules.ranks import of_rank, windowed
from gradgen.rules.sampling_parts import Sampling, count, flattened, like, moved, sample, wide
from gradgen.rules.sampling_regions import (
    as_one_image,
    as_one_row,
    cells,
    cross_bins,
    from_one_image,
    rounded,
    samples,
    strongest,
    to_region,
)


@traced("dX", "dgrid")
@of_rank("dY", "X", "grid", ranks=(3, 4, 5))
def grid_sample_vjp(dY, X, grid, *, mode="linear", padding_mode="zeros", align_corners=0):
    """Y = Σ w(p)·X[i(p)] over the taps of p: dX = w·dY added up at i; dp = Σ w'·(dY·X[i]), and dgrid = dp·∂p/∂grid."""
    dims, space = X.rank - 2, op.Shape(X, start=2)
    # The last axis of the grid names x first; here the slowest axis comes first.
    rows = op.Concat(op.Shape(grid, end=1), count(grid, 1, -1), [dims], axis=0)
    places = op.Reshape(op.Gather(wide(grid), list(range(dims))[::-1], axis=-1), rows, allowzero=1)
    pixels, rate = _pixels(op.Transpose(places, perm=[0, 2, 1]), op.Unsqueeze(space, [1]), align_corners)
    taken = sample(flattened(wide(X), dims), pixels, space, mode, padding_mode, bool(align_corners))
    ct = op.Unsqueeze(flattened(wide(dY), dims), [2])
    dX = like(taken.spread(ct), X)
    if mode == "nearest":
        return dX, zeros_like(grid)
    columns = [op.Unsqueeze(m * op.Gather(rate, [j]), [2]) for j, m in enumerate(moved(taken, ct, dims))]
    return dX, like(op.Concat(*reversed(columns), axis=2), grid)


def _pixels(places: Any, sizes: Any, aligned: int) -> tuple[Any, Any]:
    """Where normalised places lie in elements, rounded as the runtime does it, and the derivative."""
    sizes = op.CastLike(sizes, places)
    if aligned:
        return (places + 1.0) * 0.5 * (sizes - 1.0), (sizes - 1.0) * 0.5
    return ((places + 1.0) * sizes - 1.0) * 0.5, sizes * 0.5


@traced("dtheta")
@of_rank("dgrid", ranks=(4, 5), known=lambda given: (given["size"].shape or [None])[0])
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


@traced("dX", "drois")
def roi_align_vjp(
    dY, X, rois, batch_indices, *, coordinate_transformation_mode="half_pixel", mode="avg", output_height=1,
    output_width=1, sampling_ratio=0, spatial_scale=1.0,
):  # fmt: skip
    """dX = dY·w added up at the taps of every sample (max: of the tap that is picked); drois = Σ dp·∂p/∂rois."""
    half_pixel = coordinate_transformation_mode == "half_pixel"
    boxes = wide(rois) * float(spatial_scale)
    boxes = boxes - 0.5 if half_pixel else boxes
    settings = (sampling_ratio, half_pixel, mode)
    vertical = samples(boxes, 1, op.Shape(X, start=2, end=3), output_height, *settings)
    horizontal = samples(boxes, 0, op.Shape(X, start=3), output_width, *settings)
    taken, counted = cross_bins(as_one_image(wide(X)), vertical, horizontal, op.Shape(X, start=2), batch_indices)
    ct = as_one_row(wide(dY))
    if mode == "max":
        ct = ct * strongest(taken, taken.read() * taken.weights, counted)
    pull = taken.pull(ct)
    across = to_region(op.ReduceSum(pull * taken.slopes[1], [0, 3], keepdims=0), horizontal)
    down = to_region(op.ReduceSum(pull * taken.slopes[0], [1, 4], keepdims=0), vertical)
    edges = op.Concat(across[0], down[0], across[1], down[1], axis=1)
    return from_one_image(taken.spread(ct), X), like(edges * float(spatial_scale), rois)


@traced("dX")
def max_roi_pool_vjp(dY, X, rois, *, pooled_shape, spatial_scale=1.0):
    """dX = dY added up at the first of the greatest elements of each bin."""
    space, boxes = op.Shape(X, start=2), wide(rois)
    batch = op.Squeeze(op.Slice(boxes, [0], [1], [1]), [1])
    edges = rounded(boxes * float(spatial_scale))
    vertical = cells(edges, 2, op.Gather(space, [0]), pooled_shape[0])
    horizontal = cells(edges, 1, op.Gather(space, [1]), pooled_shape[1])
    taken, counted = cross_bins(as_one_image(wide(X)), vertical, horizontal, space, batch)
    ct = as_one_row(wide(dY)) * strongest(taken, taken.read(), counted)
    return from_one_image(taken.spread(ct), X)


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
@of_rank("dY", "X", "W", "offset", "mask", ranks=(3, 4, 5), known=windowed)
def deform_conv_vjp(
    dY, X, W, offset, B, mask, *, strides=None, dilations=None, pads=None, group=1, offset_group=1
):  # fmt: skip
    """Y = W·(m·S) + B, where S = Σ w(p)·X[i(p)] is X sampled at p = base + offset, a place for each kernel element."""
    dims, ct = X.rank - 2, wide(dY)
    strides, dilations, pads = strides or [1] * dims, dilations or [1] * dims, pads or [0] * 2 * dims
    base = _window_places(op.Shape(W, start=2), op.Shape(offset, start=2), dims, strides, dilations, pads)
    taken, apart = _deformed(wide(X), wide(offset), base, count(W, 2), dims, offset_group)
    sampled = taken.value()
    shares = 1.0
    if mask is not None:
        shares = op.Reshape(wide(mask), op.Concat(op.Shape(sampled, end=1), [1], op.Shape(sampled, start=2), axis=0))
    dcolumns, dW = _products(ct, wide(W), sampled * shares, op.Shape(X, end=1), group)
    dB = None if B is None else op.CastLike(op.ReduceSum(ct, [0, *range(2, 2 + dims)], keepdims=0), B)
    dmask = None if mask is None else like(op.ReduceSum(dcolumns * sampled, [1], keepdims=0), mask)
    dsampled = op.Unsqueeze(dcolumns * shares, [2])
    steps = op.Concat(*[op.Unsqueeze(step, [1]) for step in moved(taken, dsampled, dims)], axis=1)
    doffset = op.Transpose(op.Reshape(steps, apart, allowzero=1), perm=[0, 2, 1, 3])
    return like(taken.spread(dsampled), X), like(dW, W), like(doffset, offset), dB, dmask


def _deformed(X: Any, offset: Any, base: Any, taps: Any, dims: int, offset_group: int) -> tuple[Sampling, Any]:
    """X as it is sampled: a row for each batch entry and offset group, whose channels share [taps · out] places.

    Also the shape [row, dims, taps, out] of the cotangent of these places.
    """
    rows = op.Shape(X, end=1) * np.asarray([offset_group], np.int64)
    channels = op.Div(op.Shape(X, start=1, end=2), np.asarray([offset_group], np.int64))
    image = op.Reshape(X, op.Concat(rows, channels, count(X, 2), axis=0), allowzero=1)
    out = count(offset, 2)
    shift = op.Reshape(offset, op.Concat(rows, taps, [dims], out, axis=0), allowzero=1)
    shift = op.Transpose(shift, perm=[0, 2, 1, 3]) + op.CastLike(
        op.Reshape(base, op.Concat([dims], taps, out, axis=0), allowzero=1), offset
    )
    place = op.Reshape(shift, op.Concat(rows, [dims], taps * out, axis=0), allowzero=1)
    taken = sample(image, place, op.Shape(X, start=2), "linear", "zeros")
    return taken, op.Concat(rows, [dims], taps, out, axis=0)


def _products(ct: Any, W: Any, columns: Any, batch: Any, group: int) -> tuple[Any, Any]:
    """Cotangents of the columns and of the weights (a matrix for each group) of Y = W·columns."""
    groups = np.asarray([group], np.int64)
    inner = op.Shape(W, start=1, end=2) * count(W, 2)
    outer, out = op.Div(op.Shape(W, end=1), groups), count(ct, 2)
    rows = op.Reshape(ct, op.Concat(batch, groups, outer, out, axis=0), allowzero=1)
    matrix = op.Reshape(W, op.Concat(groups, outer, inner, axis=0), allowzero=1)
    read = op.Reshape(columns, op.Concat(batch, groups, inner, out, axis=0), allowzero=1)
    dcolumns = op.Reshape(op.MatMul(op.Transpose(matrix, perm=[0, 2, 1]), rows), op.Shape(columns), allowzero=1)
    return dcolumns, op.ReduceSum(op.MatMul(rows, op.Transpose(read, perm=[0, 1, 3, 2])), [0], keepdims=0)


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
