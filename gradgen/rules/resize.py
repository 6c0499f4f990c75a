"""Rules of Resize: it is linear and separable, so the matrix of each axis is the Resize of an identity matrix."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gradgen.rules.lang import op, same_dim, traced
from gradgen.rules.ranks import of_rank

FLOAT, DOUBLE = 1, 11
CORNER = ("asymmetric", "floor")


def _half(x: Any) -> bool:
    """Whether products want float32 in place of the value's own type."""
    return x.dtype is not None and int(x.dtype) not in (FLOAT, DOUBLE)


def _given(x: Any) -> bool:
    """Whether an optional input is there and not empty, as exporters leave it."""
    return x is not None and x.shape != (0,)


def _rank(given: dict[str, Any]) -> int | None:
    """The rank where scales or sizes have an element for each axis."""
    entries = [given[n].shape[0] for n in ("scales", "sizes") if _given(given[n]) and given[n].shape]
    return entries[0] if entries and isinstance(entries[0], int) and not given.get("axes") else None


@traced("dX")
@of_rank("dY", "X", ranks=(1, 2, 3, 4, 5), known=_rank)
def resize_vjp(
    dY, X, roi, scales, sizes, *, antialias=0, axes=None, coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0, keep_aspect_ratio_policy="stretch",
    mode="nearest", nearest_mode="round_prefer_floor",
):  # fmt: skip
    """dX = A₁ᵀ·dY·A₂, where Aᵢ are the weights of an axis: the Resize of an identity matrix, by the same attributes."""
    rank = X.rank
    axes = [a % rank for a in axes] if axes else list(range(rank))
    settings = {
        "antialias": antialias, "coordinate_transformation_mode": coordinate_transformation_mode,
        "cubic_coeff_a": cubic_coeff_a, "exclude_outside": exclude_outside, "mode": mode, "nearest_mode": nearest_mode,
    }  # fmt: skip
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    joint = _given(sizes) and keep_aspect_ratio_policy != "stretch" and len(axes) > 1
    scaled = _given(scales)
    factors: list[Any] = [_factor(X, dY, a, j, scales if scaled else None, joint) for j, a in enumerate(axes)]
    if not crop and _repeats(factors, axes, rank, coordinate_transformation_mode, nearest_mode, mode):
        return _sum_blocks(dY, dict(zip(axes, factors, strict=True)), rank)
    ct = op.Cast(dY, to=FLOAT) if _half(X) else dY
    for j, a in reversed(list(enumerate(axes))):
        if factors[j] == 1 and not crop:
            continue
        if joint:
            left = _joint_weights(X, a, axes, sizes, {**settings, "keep_aspect_ratio_policy": keep_aspect_ratio_policy})
        elif crop:
            left = _cropped_weights(X, a, j, roi, scales if scaled else None, sizes, settings)
        else:
            left = None
        ct = _along(ct, X, a, j, left, scales if scaled else None, sizes, settings)
    return op.CastLike(ct, X) if _half(X) else ct


def _factor(X: Any, dY: Any, axis: int, j: int, scales: Any, joint: bool) -> float | None:
    """The known factor of an axis; 1 means that the axis stays as it is."""
    if scales is not None:
        return None if scales.const is None else float(scales.const[j])
    size, out = X.shape[axis], None if dY.shape is None else dY.shape[axis]
    if joint:
        return None
    if same_dim(size, out):
        return 1.0
    return out / size if isinstance(size, int) and isinstance(out, int) and size else None


def _repeats(factors: list[Any], axes: list[int], rank: int, coordinates: str, nearest: str, mode: str) -> bool:
    """Whether Resize repeats every element a whole number of times along spatial axes."""
    centred = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
    aligned = nearest.startswith("round") if coordinates in centred else (coordinates, nearest) == CORNER
    if mode != "nearest" or rank not in (3, 4, 5) or not aligned or None in factors:
        return False
    return all(f >= 1 and f == int(f) and (f == 1 or a > 1) for f, a in zip(factors, axes, strict=True))


def _sum_blocks(dY: Any, factors: dict[int, float], rank: int) -> Any:
    """The sums over blocks, as averages that are scaled."""
    block = [int(factors.get(a, 1)) for a in range(2, rank)]
    if prod(block) == 1:
        return op.Identity(dY)
    return op.AveragePool(dY, kernel_shape=block, strides=block) * float(prod(block))


def _identity(X: Any, axis: int) -> tuple[Any, Any]:
    """An identity matrix of an axis' size, and that size."""
    size = op.Shape(X, start=axis, end=axis + 1)
    square = op.Expand(np.zeros((1, 1), np.float32), op.Concat(size, size, axis=0))
    return op.EyeLike(square, dtype=FLOAT if _half(X) else int(X.dtype)), size


def _entry(vector: Any, j: int) -> Any:
    return op.Slice(vector, [j], [j + 1], [0])


def _along(ct: Any, X: Any, axis: int, j: int, left: Any, scales: Any, sizes: Any, settings: dict[str, Any]) -> Any:
    """One axis of ct times its weights: [size, out] from the left, or [out, size] from the right."""
    rank = X.rank
    last = axis == rank - 1
    if left is None:
        identity, size = _identity(X, axis)
        # The resized axis is put where the product needs it, so that nothing is transposed.
        wanted = np.ones(1, np.float32) if scales is not None else size
        own = _entry(scales if scales is not None else sizes, j)
        target = op.Concat(*((own, wanted) if last else (wanted, own)), axis=0)
        given = (None, target) if scales is not None else (None, None, target)
        weights = op.Resize(identity, *given, _fold=False, **settings)
    else:
        weights = op.Transpose(left, perm=[1, 0]) if last else left
    if last:
        return op.MatMul(ct, weights)
    if axis == rank - 2:
        return op.MatMul(weights, ct)
    perm = list(range(rank))
    perm[axis], perm[rank - 2] = perm[rank - 2], perm[axis]
    return op.Transpose(op.MatMul(weights, op.Transpose(ct, perm=perm)), perm=perm)


def _cropped_weights(X: Any, axis: int, j: int, roi: Any, scales: Any, sizes: Any, settings: dict[str, Any]) -> Any:
    """The weights [size, out] of a cropped axis: as an image of height 1, whose own region is exact."""
    identity, size = _identity(X, axis)
    count = op.Div(op.Size(roi), np.int64(2))
    end = op.Gather(roi, op.Reshape(op.Add(count, np.int64(j)), [-1]))
    region = op.Concat(op.CastLike(np.zeros(3, np.float32), roi), _entry(roi, j),
                       op.CastLike(np.ones(3, np.float32), roi), end, axis=0)  # fmt: skip
    image = op.Unsqueeze(identity, [0, 2])
    given: tuple[Any, ...]
    if scales is not None:
        given = (region, op.Concat(np.ones(3, np.float32), _entry(scales, j), axis=0))
    else:
        given = (region, None, op.Concat([1], size, [1], _entry(sizes, j), axis=0))
    return op.Squeeze(op.Resize(image, *given, _fold=False, **settings), [0, 2])


def _joint_weights(X: Any, axis: int, axes: list[int], sizes: Any, settings: dict[str, Any]) -> Any:
    """The weights [size, out] of an axis whose scale depends on the others' too: an image constant along them."""
    identity, size = _identity(X, axis)
    shape = [op.Shape(X, start=a, end=a + 1) for a in axes]
    own = axes.index(axis)
    plane = op.Unsqueeze(identity, [0, *(2 + i for i in range(len(axes)) if i != own)])
    image = op.Expand(plane, op.Concat([1], size, *shape, axis=0))
    resized = op.Resize(image, None, None, sizes, axes=list(range(2, 2 + len(axes))), _fold=False, **settings)
    others = [2 + i for i in range(len(axes)) if i != own]
    first = op.Slice(resized, [0] * len(others), [1] * len(others), others)
    return op.Squeeze(first, [0, *others])
