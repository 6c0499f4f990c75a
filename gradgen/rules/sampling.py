"""Rules of operators that read a tensor at computed places: GridSample, AffineGrid, RoiAlign, MaxRoiPool, DeformConv."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgen.rules.lang import op, traced
from gradgen.rules.library import reshape_like, zeros_like
from gradgen.rules.sampling_parts import (
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
