"""Rules of pools: max, average and Lp pools over windows and over the whole image, and MaxUnpool."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gradgen.rules.lang import op, traced, vjp
from gradgen.rules.library import expand_like, mask, reshape_like, zeros_like

FLOAT, INT64, DOUBLE = 1, 7, 11
MATRIX_LIMIT = 1 << 18
# So many numbers are a constant; more are made at run time, or when onnxruntime loads the model.
NUMBERS_CONSTANT = 1 << 12


def pool_defaults(attributes: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Strides, dilations and pads of a pool, auto_pad resolved where the sizes that it needs are known."""
    kernel = attributes["kernel_shape"]
    rank = len(kernel)
    strides = attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    auto_pad = attributes.get("auto_pad") or "NOTSET"
    pads = attributes.get("pads") or [0] * 2 * rank
    if auto_pad == "VALID":
        auto_pad, pads = "NOTSET", [0] * 2 * rank
    elif auto_pad != "NOTSET":
        shape = getattr(values.get("X"), "shape", None)
        sizes = shape[2:] if shape is not None else [None] * rank
        found = [_same(*a, auto_pad) for a in zip(sizes, kernel, strides, dilations, strict=True)]
        if None not in found:
            auto_pad, pads = "NOTSET", [f[0] for f in found if f] + [f[1] for f in found if f]
    return {**attributes, "strides": strides, "dilations": dilations, "auto_pad": auto_pad, "pads": pads}


def _same(size: Any, kernel: int, stride: int, dilation: int, auto_pad: str) -> tuple[int, int] | None:
    """The padding of one axis for SAME_UPPER and SAME_LOWER, or None where it depends on an unknown size."""
    extent = (kernel - 1) * dilation + 1
    if isinstance(size, int):
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
    elif stride == 1:
        total = extent - 1
    else:
        return None
    small, large = total // 2, total - total // 2
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)


def _half(x: Any) -> bool:
    """Whether scatter-add and sums want float32 in place of the value's own type."""
    return x.dtype is not None and int(x.dtype) not in (FLOAT, DOUBLE)


@traced("dX")
def max_pool_vjp(dY, X, Indices, *, storage_order=0):
    """dX[i] = Σ dY[o] over the windows o whose maximum is at i; indices count over the whole of X."""
    flat = [-1]
    ct = op.Reshape(op.Cast(dY, to=FLOAT) if _half(X) else dY, flat)
    zeros = op.Expand(op.CastLike(0.0, ct), op.Reshape(op.Size(X), flat))
    summed = op.ScatterElements(zeros, op.Reshape(Indices, flat), ct, axis=0, reduction="add")
    if storage_order and X.rank > 3:
        # The indices of a column-major image: its spatial axes in reverse order.
        space = [op.Shape(X, start=i, end=i + 1) for i in reversed(range(2, X.rank))]
        image = op.Reshape(summed, op.Concat(op.Shape(X, end=2), *space, axis=0), allowzero=1)
        dX = op.Transpose(image, perm=[0, 1, *reversed(range(2, X.rank))])
    else:
        dX = reshape_like(summed, X)
    return op.CastLike(dX, X) if _half(X) else dX


@vjp
def max_pool_vjp__unpool(dY, X, Indices, kernel_shape: list[int], strides: list[int]):
    """dX = MaxUnpool(dY, Indices), for windows that tile X: every element is in one window."""
    dX = op.MaxUnpool(dY, Indices, op.Shape(X), kernel_shape=kernel_shape, strides=strides)
    return dX


@traced("dX")
def max_pool_vjp__tiles(dY, X, *, kernel_shape):
    """dX = dY at the first maximum of each window, for windows that tile X: found again, without Indices.

    Engines differ in what Indices count over.
    """
    rank, taps = len(kernel_shape), prod(kernel_shape)
    outs = [size // width for size, width in zip(X.shape[2:], kernel_shape, strict=True)]
    pairs = [n for pair in zip(outs, kernel_shape, strict=True) for n in pair]
    apart = [0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2)]
    windows = op.Reshape(op.Transpose(op.Reshape(X, [-1, *pairs]), perm=apart), [-1, *outs, taps])
    chosen = op.Equal(op.ArgMax(windows, axis=-1, keepdims=1), np.arange(taps))
    spread = mask(chosen, dY) * op.Reshape(dY, [-1, *outs, 1])
    together = op.Transpose(op.Reshape(spread, [-1, *outs, *kernel_shape]), perm=[int(k) for k in np.argsort(apart)])
    return reshape_like(together, X)


@traced("dX")
def max_pool_vjp__codes(dY, X, Y, *, kernel_shape):
    """As the unpool form; the indices are found from X and Y: onnxruntime takes long to find them while it pools.

    The elements that equal their window's maximum are numbered, from the last of the image on, and the first of a
    window has the highest number. No number is 0 but that of the last one, so that every index is inside the image.
    """
    planes, sizes = X.shape[:2], X.shape[2:]
    count = prod(sizes)
    numbers = _arithmetic(count - 1, -1, sizes)
    spread = op.Resize(Y, None, np.asarray([1, 1, *kernel_shape], np.float32), mode="nearest",
                       coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    highest = op.MaxPool(mask(op.Equal(X, spread), X) * numbers, kernel_shape=kernel_shape, strides=kernel_shape)
    lasts = _arithmetic(count - 1, count, (*planes, *[1] * len(sizes)))
    indices = op.Cast(op.Sub(lasts, highest), to=INT64)
    return op.MaxUnpool(dY, indices, np.asarray(X.shape, np.int64), kernel_shape=kernel_shape, strides=kernel_shape)


def _arithmetic(start: int, step: int, shape: tuple[int, ...]) -> Any:
    """The numbers start, start + step, … in float32; few of them are a constant."""
    count = prod(shape)
    if count <= NUMBERS_CONSTANT:
        return (start + step * np.arange(count)).astype(np.float32).reshape(shape)
    bounds = [np.float32(v) for v in (start, start + step * count, step)]
    return op.Reshape(op.Range(*bounds, _fold=False), np.asarray(shape, np.int64))


@traced("dX")
def max_unpool_vjp(doutput, X, I, output):  # noqa: E741
    """dX = doutput[I], 0 where a later element of X went to the same place; indices count over the whole output."""
    flat = [-1]
    places = op.Reshape(I, flat)
    order = op.Range(np.int64(0), op.Size(I), np.int64(1))
    kept = op.ScatterElements(op.Expand(np.int64(0), op.Reshape(op.Size(output), flat)), places, order, axis=0)
    last = mask(op.Equal(op.Gather(kept, places), order), doutput)
    return reshape_like(op.Gather(op.Reshape(doutput, flat), places) * last, X)


def _out(size: int, kernel: int, stride: int, dilation: int, begin: int, end: int, ceil_mode: int) -> int:
    """The number of windows: with ceil_mode a last one counts where it starts in the image or the padding before it.

    onnx's shape inference counts it also where it would lie behind the image, which onnxruntime leaves out.
    """
    room = size + begin + end - (kernel - 1) * dilation - 1
    steps = room // stride + 1
    return steps + int(bool(ceil_mode) and room % stride > 0 and steps * stride < size + begin)


def averaging_matrix(size, out, kernel, stride, dilation, begin, end, include):
    """The weights [size, out] with which one axis of the input enters the averages, as onnxruntime counts them.

    A window's divisor is the number of its taps inside the image, with count_include_pad inside the padded image.
    """
    taps = np.arange(out)[None, :, None] * stride - begin + np.arange(kernel) * dilation
    low, high = (-begin, size + end) if include else (0, size)
    counts = ((taps >= low) & (taps < high)).sum(axis=-1)
    return tap_matrix(size, out, kernel, stride, dilation, begin) / np.maximum(counts, 1)


def tap_matrix(size, out, kernel, stride, dilation, begin):
    """The matrix [size, out] that is 1 where a window reads an element."""
    taps = np.arange(out)[None, :, None] * stride - begin + np.arange(kernel) * dilation
    return (taps == np.arange(size)[:, None, None]).sum(axis=-1).astype(np.float64)


def _window(i: int, attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a pool along spatial axis i alone."""
    rank = len(attributes["kernel_shape"])
    own = {k: [attributes[k][i]] for k in ("kernel_shape", "strides", "dilations")}
    own |= {k: v for k, v in attributes.items() if k not in own and k not in ("pads", "auto_pad")}
    if attributes["auto_pad"] == "NOTSET":
        own["pads"] = [attributes["pads"][i], attributes["pads"][rank + i]]
    else:
        own["auto_pad"] = attributes["auto_pad"]
    return own


def _pooled_identity(op_type: str, X: Any, i: int, attributes: dict[str, Any]) -> Any:
    """The matrix [size, out] of a pool along one spatial axis: the pool of an identity matrix."""
    size = op.Shape(X, start=2 + i, end=3 + i)
    plane = op.Expand(np.zeros((1, 1), np.float32), op.Concat(size, size, axis=0))
    identity = op.EyeLike(plane, dtype=FLOAT if _half(X) else int(X.dtype))
    pooled = getattr(op, op_type)(op.Unsqueeze(identity, [0]), _fold=False, **_window(i, attributes))
    return op.Squeeze(pooled, [0])


def apply_along(ct: Any, matrix: Any, axis: int, rank: int) -> Any:
    """The matrix [size, out] times one axis of ct."""
    if axis == rank - 1:
        perm = [1, 0]
        return op.MatMul(ct, op.Transpose(matrix, perm=perm) if not isinstance(matrix, np.ndarray) else matrix.T)
    if axis == rank - 2:
        return op.MatMul(matrix, ct)
    perm = list(range(rank))
    perm[axis], perm[rank - 2] = perm[rank - 2], perm[axis]
    return op.Transpose(op.MatMul(matrix, op.Transpose(ct, perm=perm)), perm=perm)


def _spread(op_type: str, ct: Any, X: Any, dY: Any, matrix: Any, attributes: dict[str, Any]) -> Any:
    """Sends the cotangent of every window back to its taps, one spatial axis after the other.

    Where sizes are known the matrix [size, out] of an axis is computed here by `matrix`, else it is the pool of an
    identity matrix.
    """
    rank = X.rank
    if _half(X):
        ct = op.Cast(ct, to=FLOAT)
    for i in reversed(range(rank - 2)):
        size = X.shape[2 + i]
        kernel, stride, dilation = (attributes[k][i] for k in ("kernel_shape", "strides", "dilations"))
        begin, end = attributes["pads"][i], attributes["pads"][rank - 2 + i]
        out = _out(size, kernel, stride, dilation, begin, end, attributes["ceil_mode"]) if isinstance(size, int) else 0
        if out and attributes["auto_pad"] == "NOTSET" and size * out <= MATRIX_LIMIT:
            if dY.shape is not None and dY.shape[2 + i] != out:
                # For inference alone: at run time there are no more windows than these.
                ct = op.Slice(ct, [0], [out], [2 + i])
            weights = matrix(size, out, kernel, stride, dilation, begin, end)
            weights = weights.astype(np.float32 if _half(X) else X.dtype.numpy())
        else:
            weights = _pooled_identity(op_type, X, i, attributes)
        ct = apply_along(ct, weights, 2 + i, rank)
    return op.CastLike(ct, X) if _half(X) else ct


@traced("dX")
def average_pool_vjp(
    dY, X, *, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode=0, count_include_pad=0
):  # fmt: skip
    """dX = A₁ᵀ·dY·A₂ with one averaging matrix for each spatial axis: the divisors are products too."""
    attributes = {
        "kernel_shape": kernel_shape, "strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad,
        "ceil_mode": ceil_mode, "count_include_pad": count_include_pad,
    }  # fmt: skip

    def matrix(size, out, kernel, stride, dilation, begin, end):
        return averaging_matrix(size, out, kernel, stride, dilation, begin, end, count_include_pad)

    return _spread("AveragePool", dY, X, dY, matrix, attributes)


@traced("dX")
def average_pool_vjp__tiles(dY, X, *, kernel_shape):
    """dX = dY/k, each element repeated over its window, for windows that tile X; what no window covers gets 0."""
    scales = np.asarray([1, 1, *kernel_shape], np.float32)
    mean = dY * (1 / prod(kernel_shape))
    tiled = op.Resize(mean, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric",
                      nearest_mode="floor")  # fmt: skip
    rest = [d % k if isinstance(d, int) else None for d, k in zip(X.shape[2:], kernel_shape, strict=True)]
    if not any(r != 0 for r in rest):
        return tiled
    missing = op.Sub(op.Shape(X), op.Mul(op.Shape(dY), np.asarray([1, 1, *kernel_shape], np.int64)))
    return op.Pad(tiled, op.Concat(np.zeros(X.rank, np.int64), missing, axis=0))


@traced("dX")
def average_pool_vjp__dense(dY, X, *, kernel_shape, pads, count_include_pad=0):
    """dX = the average pool of dY, for stride 1: windows are symmetric to the elements that they cover."""
    rank = len(kernel_shape)
    attributes = {"kernel_shape": kernel_shape, "count_include_pad": 1}
    if not count_include_pad and any(pads):
        if all(isinstance(d, int) for d in X.shape[2:]):
            axes = [
                averaging_matrix(X.shape[2 + i], X.shape[2 + i] + pads[i] + pads[rank + i] - k + 1, k, 1, 1, pads[i],
                                 pads[rank + i], True).sum(axis=0)
                for i, k in enumerate(kernel_shape)
            ]  # fmt: skip
            shares: Any = axes[0]
            for other in axes[1:]:
                shares = shares[..., None] * other
            dY = dY * (1 / shares).astype(X.dtype.numpy())
        else:
            ones = op.Expand(op.CastLike(1.0, X), op.Concat(np.ones(2, np.int64), op.Shape(X, start=2), axis=0))
            dY = dY / op.AveragePool(ones, pads=pads, **attributes)
    turned = [k - 1 - p for k, p in zip(kernel_shape * 2, pads, strict=True)]
    return op.AveragePool(dY, pads=turned, **attributes)


@vjp
def global_average_pool_vjp(dY, X):
    """dX = dY ÷ the number of elements of the image, at each of them."""
    image = op.Shape(X, start=2)
    count = op.Cast(op.ReduceProd(image, keepdims=0), to=11)
    share = op.CastLike(op.Reciprocal(count), dY)
    dX = dY * op.Expand(share, image)
    return dX


@vjp
def global_max_pool_vjp(dY, X, Y):
    """dX = dY at the first element of each image that is its maximum; at the first NaN where that is NaN."""
    lead = op.Shape(X, end=2)
    one = op.Constant(value_ints=[1])
    flat = op.Concat(lead, op.ReduceProd(op.Shape(X, start=2), keepdims=1), axis=0)
    single = op.Concat(lead, one, axis=0)
    image = op.Reshape(X, flat, allowzero=1)
    largest = op.Reshape(Y, single, allowzero=1)
    # Not the ArgMax of the image: a NaN that the forward pass has passed over is no maximum.
    same = op.Or(op.Equal(image, largest), op.And(op.IsNaN(image), op.IsNaN(largest)))
    first = op.ArgMax(op.Cast(same, to=FLOAT), axis=2, keepdims=1)
    placed = op.ScatterElements(zeros_like(image), first, op.Reshape(dY, single, allowzero=1), axis=2)
    dX = reshape_like(placed, X)
    return dX


def _lp_slope(ct: Any, x: Any, norm: Any, p: int) -> tuple[Any, Any]:
    """The factors of ct·sign(x)·(|x|/norm)^(p−1): one with the shape of norm, one with that of x; 0 at norm 0."""
    if p == 1:
        return ct, op.Sign(x)
    empty = mask(op.Equal(norm, 0.0), norm)
    safe = norm + empty
    share = ct * (1.0 - empty) / (safe if p == 2 else op.Pow(safe, float(p - 1)))
    if p == 2:
        return share, x
    return share, op.Pow(x, float(p - 1)) if p % 2 == 0 else op.Pow(op.Abs(x), float(p - 1)) * op.Sign(x)


@traced("dX")
def lp_pool_vjp(dY, X, Y, *, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode=0, p=2):
    """dX = sign(x)·|x|^(p−1)·Σ dY·Y^(1−p) over the windows that hold x; 0 at an empty norm."""
    attributes = {
        "kernel_shape": kernel_shape, "strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad,
        "ceil_mode": ceil_mode, "p": p,
    }  # fmt: skip
    share, slope = _lp_slope(dY, X, Y, p)
    return slope * _spread("LpPool", share, X, dY, lambda *axis: tap_matrix(*axis[:-1]), attributes)


@traced("dX")
def global_lp_pool_vjp(dY, X, Y, *, p=2):
    """dX = dY·sign(x)·(|x|/Y)^(p−1), 0 where Y is 0."""
    share, slope = _lp_slope(dY, X, Y, p)
    return expand_like(share * slope, X)
