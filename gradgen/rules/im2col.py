"""Patches of images, and the cotangent of a convolution's kernel by products with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradgen.rules.lang import op
from gradgen.rules.library import many_rows, reshape_like, sum_rows

# The one-hot kernel of im2col is a constant up to this many elements, and tiled at run time beyond.
KERNEL_LIMIT = 16384


def im2col(x: Any, kernel: list[int] | None, kernel_sizes: Any, windows: dict[str, Any]) -> Any:
    """im2col: x [N, C, …] to [N, C·kk, …] (or [N·C, kk, …] where C is unknown), by a Conv with a one-hot kernel."""
    if kernel is None:
        taps = op.ReduceProd(kernel_sizes, keepdims=0)
        steps = op.Range(0, taps, 1)
        eye = op.CastLike(op.Equal(op.Unsqueeze(steps, [1]), steps), x)
        one_hot = op.Reshape(eye, op.Concat(np.asarray([-1, 1]), kernel_sizes, axis=0))
    else:
        count = math.prod(kernel)
        one_hot = op.CastLike(np.eye(count, dtype=np.float32).reshape(count, 1, *kernel), x)
    channels = x.shape[1]
    if not isinstance(channels, int):
        x = op.Reshape(x, op.Concat(np.asarray([-1, 1]), op.Shape(x, start=2), axis=0))
        channels = 1
    if channels > 1:
        one_hot = tiled(one_hot, channels)
    patches = op.Conv(x, one_hot, group=channels, kernel_shape=kernel, **windows)
    patches.shape = patches.shape or (x.shape[0], *[None] * (x.rank - 1))
    return patches


def tiled(one_hot: Any, channels: int) -> Any:
    repeats = np.asarray([channels] + [1] * (one_hot.rank - 1))
    if one_hot.const is not None and one_hot.const.size * channels <= KERNEL_LIMIT:
        return op.Identity(np.tile(one_hot.const, repeats))
    return op.Tile(one_hot, repeats)


def kernel_cotangent(places: Any, patches: Any, X: Any, W: Any, group: int) -> Any:
    """Σ_n places·patchesᵀ in each group: places [N, K, …] and patches [N, C·kk, …] to W [K, C/group, …]."""
    if patches.shape is None:  # where the size of the kernel is not known
        patches.shape = (None,) * W.rank
    rows, columns = W.shape[0], _product(W, 1)
    rows = [rows // group] if isinstance(rows, int) else op.Div(op.Shape(W, end=1), group)
    length, number = _product(patches, 2), op.Shape(X, end=1)
    groups = [[group]] if group > 1 else []
    left = op.Reshape(places, _joined(number, *groups, rows, length), allowzero=1)
    right = op.Reshape(patches, _joined(number, *groups, columns, length), allowzero=1)
    # The patches are the larger matrix: as the left factor they are read as they lie, as the right one copied first.
    return reshape_like(swap(sum_over_batch(op.MatMul(right, swap(left)))), W)


def sum_over_batch(x: Any) -> Any:
    """The sum over the first axis; of a large value by a product with ones, which is faster than ReduceSum."""
    if many_rows(x):
        return op.Reshape(sum_rows(op.Reshape(x, [x.shape[0], -1])), x.shape[1:])
    return op.ReduceSum(x, [0], keepdims=0)


def swap(x: Any) -> Any:
    return op.Transpose(x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _product(x: Any, start: int) -> Any:
    """The number of elements of the axes from `start` on, as a one-element list or tensor."""
    dims = x.shape[start:]
    if all(isinstance(d, int) for d in dims):
        return [math.prod(dims)]
    return op.ReduceProd(op.Shape(x, start=start), keepdims=1) if len(dims) > 1 else op.Shape(x, start=start)


def _joined(*parts: Any) -> Any:
    return op.Concat(*(np.asarray(p, np.int64) if isinstance(p, list) else p for p in parts), axis=0)


def channel_sum(dY: Any, X: Any) -> Any:
    return op.ReduceSum(dY, [0, *range(2, X.rank)], keepdims=0)
