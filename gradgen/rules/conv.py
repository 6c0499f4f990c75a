"""Rules of convolutions: Conv, ConvTranspose, Col2Im, and the geometry of their windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgen.errors import GradientError
from gradgen.rules.im2col import channel_sum, im2col, kernel_cotangent, sum_over_batch, swap, tiled
from gradgen.rules.lang import op, traced
from gradgen.rules.library import reshape_like
from gradgen.rules.ranks import in_branch, of_rank, stated, windowed
from gradgen.rules.winograd import Tiles

# The channels from which on the tiles' products are so much fewer that dX gains what the tiles themselves cost.
MANY_CHANNELS = 128
NONE = np.zeros(2, np.int64)  # the pads of the batch and the channels


def conv_defaults(attributes: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Strides, dilations and kernel_shape; pads too, as far as auto_pad and the sizes say them.

    Where auto_pad is resolved it becomes NOTSET; SAME with a size that is known at run time alone keeps it.
    """
    _check(attributes, values.get("X"), values.get("W"), own=1)
    sizes, kernel = _spatial(values.get("X")), _kernel(attributes, values)
    if kernel is None:
        return {}
    rank = len(kernel)
    strides, dilations = _windows(attributes, rank)
    resolved = {"strides": strides, "dilations": dilations}
    if None not in kernel:
        resolved["kernel_shape"] = kernel
    pads = attributes.get("pads") or [0] * 2 * rank
    if attributes.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            _same_total(n, k, s, d)
            for n, k, s, d in zip(sizes or [None] * rank, kernel, strides, dilations, strict=True)
        ]
        if None in totals:
            return resolved
        pads = _distribute(totals, attributes["auto_pad"] == "SAME_UPPER")
    elif attributes.get("auto_pad") == "VALID":
        pads = [0] * 2 * rank
    return {**resolved, "pads": pads, "auto_pad": "NOTSET"}


def conv_transpose_defaults(attributes: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Strides, dilations, kernel_shape, output_padding; pads where auto_pad, output_shape and the sizes say them.

    Resolved pads make auto_pad NOTSET. They cut at the end what the windows reach, so output_padding is taken in.
    """
    _check(attributes, values.get("X"), values.get("W"), own=0)
    sizes, kernel = _spatial(values.get("X")), _kernel(attributes, values)
    if kernel is None:
        return {}
    rank = len(kernel)
    strides, dilations = _windows(attributes, rank)
    extra = attributes.get("output_padding") or [0] * rank
    resolved = {"strides": strides, "dilations": dilations, "output_padding": extra}
    if None not in kernel:
        resolved["kernel_shape"] = kernel
    shape, auto_pad = attributes.get("output_shape"), attributes.get("auto_pad", "NOTSET")
    if shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        if None in kernel or (shape and (sizes is None or not all(isinstance(n, int) for n in sizes))):
            return resolved
        totals = []
        for i, (k, s, d, e) in enumerate(zip(kernel, strides, dilations, extra, strict=True)):
            # Without output_shape the result has s elements for each of the input's, whatever its size.
            reached = s * (sizes[i] - 1 if shape and sizes else -1) + (k - 1) * d + 1
            totals.append(max(reached + e - (list(shape)[-rank:][i] if shape else 0), 0))
        pads = _distribute(totals, auto_pad == "SAME_UPPER")
    else:
        pads = [0] * 2 * rank if auto_pad == "VALID" else attributes.get("pads") or [0] * 2 * rank
    return {**resolved, "pads": pads, "auto_pad": "NOTSET"}


def col2im_defaults(attributes: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Strides, dilations and pads, by the number of dimensions of the image."""
    shapes = [values[n].shape for n in ("image_shape", "block_shape") if n in values and values[n].shape]
    known = [s[0] for s in shapes if isinstance(s[0], int)]
    if not known:
        return {}
    strides, dilations = _windows(attributes, known[0])
    return {"strides": strides, "dilations": dilations, "pads": attributes.get("pads") or [0] * 2 * known[0]}


def _check(attributes: dict[str, Any], x: Any, w: Any, own: int) -> None:
    """Refuse windows and channels that no convolution has; axis `own` of the kernel holds the channels of one group.

    onnx's inference passes over both.
    """
    group = attributes.get("group", 1)
    for name in ("strides", "dilations", "kernel_shape"):
        if any(n < 1 for n in attributes.get(name) or ()):
            raise GradientError(f"{name}={list(attributes[name])} holds a number below 1")
    if group < 1:
        raise GradientError(f"group={group} is below 1")
    given, taken = (None if v is None or v.shape is None else v.shape for v in (x, w))
    if given is None or taken is None or len(given) != len(taken):
        return
    channels = taken[own] * group if own and isinstance(taken[own], int) else taken[own]
    if isinstance(given[1], int) and isinstance(channels, int) and given[1] != channels:
        raise GradientError(f"the operand has {given[1]} channels, and the kernel takes {channels}")


def _spatial(x: Any) -> list[Any] | None:
    return None if x is None or x.shape is None else list(x.shape[2:])


def _kernel(attributes: dict[str, Any], values: dict[str, Any]) -> list[Any] | None:
    """The kernel's sizes, None for one that is unknown; None where not even their number is known."""
    if attributes.get("kernel_shape"):
        return list(attributes["kernel_shape"])
    kernel = _spatial(values.get("W"))
    if kernel is None:
        return [None] * rank if (rank := _spatial_rank(attributes, values)) else None
    return [k if isinstance(k, int) else None for k in kernel]


def _spatial_rank(attributes: dict[str, Any], values: dict[str, Any]) -> int | None:
    """How many spatial axes there are, as the image, the result or an attribute says."""
    known = [len(sizes) for name in ("X", "Y") if (sizes := _spatial(values.get(name))) is not None]
    known += [len(attributes[name]) for name in ("strides", "dilations", "output_padding") if attributes.get(name)]
    known += [len(attributes["pads"]) // 2] if attributes.get("pads") else []
    return known[0] if known else None


def _windows(attributes: dict[str, Any], rank: int) -> tuple[list[int], list[int]]:
    return attributes.get("strides") or [1] * rank, attributes.get("dilations") or [1] * rank


def _same_total(size: Any, kernel: int | None, stride: int, dilation: int) -> int | None:
    """The padding of both ends together under SAME: with stride 1 it does not depend on the size."""
    if kernel is None or (stride != 1 and not isinstance(size, int)):
        return None
    before = 0 if stride == 1 else (-(-size // stride) - 1) * stride + 1 - size
    return max(before + (kernel - 1) * dilation, 0)


def _distribute(totals: list[Any], upper: bool) -> list[int]:
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return small + large if upper else large + small


@traced("dX", "dW", "dB")
@of_rank("dY", "X", "W", ranks=(3, 4, 5), known=windowed)
def conv_vjp(dY, X, W, *, kernel_shape=None, strides=None, pads=None, dilations=None, group=1, auto_pad="NOTSET"):
    """dX = ConvTranspose(dY, W), dW = Σ_n dY·im2col(X)ᵀ, dB = Σ dY over all but the channels."""
    if strides is None:
        return in_branch(conv_vjp, conv_defaults, dY, X, W, kernel_shape=kernel_shape, pads=pads, dilations=dilations,
                          group=group, auto_pad=auto_pad)  # fmt: skip
    windows = {"strides": strides, "dilations": dilations}
    _rank_all(strides, dY, X, W)
    if pads is None:
        dX = _fit(op.ConvTranspose(dY, W, group=group, **windows), X, _same_begin(X, W, windows, auto_pad))
        patches = im2col(X, kernel_shape, op.Shape(W, start=2), {**windows, "auto_pad": auto_pad})
    else:
        dX = _scatter(dY, X, W, kernel_shape, {**windows, "pads": pads}, group)
        patches = im2col(X, kernel_shape, op.Shape(W, start=2), {**windows, "pads": pads})
    return dX, kernel_cotangent(dY, patches, X, W, group), channel_sum(dY, X)


@traced("dX", "dW", "dB")
def conv_vjp__pointwise(dY, X, W, *, strides, group=1):
    """The kernel has one element and visits each place once: dX = Conv(dY, Wᵀ), dW = Σ_n dY·Xᵀ."""
    _rank_all(strides, dY, X, W)
    flipped = op.Transpose(W, perm=[1, 0, *range(2, W.rank)])
    return op.Conv(dY, flipped), kernel_cotangent(dY, X, X, W, 1), channel_sum(dY, X)


@traced("dX", "dW", "dB")
def conv_vjp__separable(dY, X, W, *, kernel_shape, strides, pads, dilations):
    """As `conv_vjp`; dW = Σ_n A·Bᵀ, where A holds dY once for each row of the kernel, moved down to the padded rows that
    this row reads, and B holds X once for each column: fewer copies than im2col's one for each tap.
    """
    (rows, columns), (step, spread), count = kernel_shape, dilations, W.shape[0]
    tall, across = X.shape[2] + pads[0] + pads[2], X.shape[3]

    def flattened(x: Any, channels: int, height: int) -> Any:
        """x with one axis of places; Reshape finds no size in a batch of none, so it is told what is known."""
        if not isinstance(across, int):
            return op.Reshape(x, [0, channels, -1])
        return op.Reshape(
            x, [-1, channels, height * ((across + pads[1] + pads[3] - (columns - 1) * spread - 1) // strides[1] + 1)]
        )

    # What is behind one copy and what is in front of the next add up to the same number of zeros everywhere.
    size = op.Concat(op.Shape(dY, end=2), np.asarray([rows * step]), op.Shape(dY, start=3), axis=0)
    gap = op.Expand(op.CastLike(0.0, X), size, _fold=False)
    A = flattened(op.Concat(dY, *[gap, dY] * (rows - 1), axis=2), count * rows, tall)
    beside = np.eye(columns, dtype=np.float32).reshape(columns, 1, 1, columns)
    B = op.Conv(X, tiled(op.CastLike(beside, X), X.shape[1]), group=X.shape[1], kernel_shape=[1, columns],
                strides=[1, strides[1]], pads=pads, dilations=[1, spread])  # fmt: skip
    product = sum_over_batch(op.MatMul(flattened(B, B.shape[1], tall), swap(A)))
    dW = op.Transpose(op.Reshape(product, [-1, columns, count, rows]), perm=[2, 0, 3, 1])
    windows = {"strides": strides, "dilations": dilations, "pads": pads}
    return _scatter(dY, X, W, kernel_shape, windows, 1), dW, channel_sum(dY, X)


@traced("dX", "dW", "dB")
def conv_vjp__winograd(dY, X, W, *, kernel_shape, strides, pads, dilations):
    """As `conv_vjp`; dW, and dX where there are many channels, by tiles: four products along an axis for six."""
    tiles = Tiles(X, W, pads)
    results = tiles.of_result(dY)
    if min(W.shape[:2]) >= MANY_CHANNELS:
        dX = tiles.image_cotangent(results)
    else:
        dX = _scatter(dY, X, W, kernel_shape, {"strides": strides, "dilations": dilations, "pads": pads}, 1)
    return dX, tiles.kernel_cotangent(results, tiles.of_image()), channel_sum(dY, X)


@traced("dX", "dW", "dB")
def conv_vjp__depthwise(dY, X, W, *, kernel_shape, strides, pads, dilations, group):
    """Each channel alone: dW is X convolved with dY as the kernel, whose strides and dilations change places.

    All images are channels of one; their results are summed.
    """
    rank = len(kernel_shape)
    windows = {"strides": strides, "dilations": dilations, "pads": pads}
    counts, reach = [], []
    for i, (n, k, s, d) in enumerate(zip(X.shape[2:], kernel_shape, strides, dilations, strict=True)):
        counts.append((n + pads[i] + pads[rank + i] - (k - 1) * d - 1) // s + 1)
        reach.append((k - 1) * d + s * (counts[-1] - 1) + 1 - n - pads[i])
    channels = X.shape[0] * group
    kernel = op.Reshape(dY, [channels, 1, *counts])
    ends = [max(r, 0) for r in reach]  # below 0 where the last rows of the image are in no window
    each = op.Conv(op.Reshape(X, [1, channels, *X.shape[2:]]), kernel, group=channels, kernel_shape=counts,
                   strides=dilations, dilations=strides, pads=[*pads[:rank], *ends])  # fmt: skip
    if min(reach) < 0:
        each = op.Slice(each, [0] * rank, kernel_shape, np.arange(2, rank + 2))
    dW = op.Reshape(sum_over_batch(op.Reshape(each, [X.shape[0], -1])), W.shape)
    return _scatter(dY, X, W, kernel_shape, windows, group), dW, channel_sum(dY, X)


def _rank_all(spatial: list[int], *values: Any) -> None:
    """Give those of unknown rank the rank that all operands of a convolution have: inference loses it here and there.

    `spatial` has an element for each spatial axis.
    """
    rank = len(spatial) + 2
    for value in values:
        if len(stated(value, rank).shape) != rank:
            # onnx infers so for an output_shape that cuts off what the windows reach, and onnxruntime relies on it.
            raise GradientError(
                f"onnx's shape inference gives an operand or the result {len(value.shape)} dimensions where there are "
                f"{rank}; if the node states output_shape, state the pads that it stands for in its place"
            )


def _flips(W: Any, kernel: list[int] | None, windows: dict[str, Any], group: int) -> bool:
    """Whether dX is faster as a convolution than as a transposed one: dY has far fewer channels to copy than X.

    That convolution's pads may not be negative.
    """
    counts, rank = W.shape[:2], len(windows["strides"])
    if kernel is None or group != 1 or any(s != 1 for s in windows["strides"]):
        return False
    if not all(isinstance(c, int) for c in counts) or 2 * counts[0] > counts[1]:
        return False
    return all(p <= (kernel[i % rank] - 1) * windows["dilations"][i % rank] for i, p in enumerate(windows["pads"]))


def _flipped(dY: Any, W: Any, kernel: list[int], windows: dict[str, Any]) -> Any:
    """Conv(dY, W turned around in space), for stride 1."""
    rank = len(kernel)
    back = np.full(rank, -1)
    turned = op.Slice(W, back, np.full(rank, np.iinfo(np.int64).min), np.arange(2, rank + 2), back)
    pads = [(kernel[i % rank] - 1) * windows["dilations"][i % rank] - p for i, p in enumerate(windows["pads"])]
    turned = op.Transpose(turned, perm=[1, 0, *range(2, rank + 2)])
    return op.Conv(dY, turned, kernel_shape=kernel, pads=pads, dilations=windows["dilations"])


def _scatter(dY: Any, X: Any, W: Any, kernel: list[int] | None, windows: dict[str, Any], group: int) -> Any:
    """ConvTranspose of dY to the size of X; the rows at the end that no window reaches get zeros."""
    if kernel is not None and _flips(W, kernel, windows, group):
        return _flipped(dY, W, kernel, windows)
    sizes, strides = _spatial(X) or [], windows["strides"]
    if kernel is not None and all(isinstance(n, int) or s == 1 for n, s in zip(sizes, strides, strict=True)):
        rank = len(sizes)
        ends = zip(sizes, kernel, strides, windows["dilations"], windows["pads"], windows["pads"][rank:], strict=False)
        rest = [0 if s == 1 else (n + p + q - (k - 1) * d - 1) % s for n, k, s, d, p, q in ends]
        result = op.ConvTranspose(
            dY, W, group=group, output_padding=rest if any(rest) else None, kernel_shape=kernel, **windows
        )
        result.shape = X.shape
        return result
    begin = np.asarray(windows["pads"][: len(sizes)])
    return _fit(op.ConvTranspose(dY, W, group=group, **{**windows, "pads": None}), X, begin)


def _fit(whole: Any, like: Any, begin: Any) -> Any:
    """The part of `whole` from `begin` on that has the spatial size of `like`, with zeros where it ends before."""
    end = op.Add(op.Sub(op.Shape(like, start=2), op.Shape(whole, start=2)), begin)
    fitted = op.Pad(whole, op.Concat(NONE, op.Neg(begin), NONE, end, axis=0))
    fitted.shape = like.shape
    return fitted


def _same_begin(X: Any, W: Any, windows: dict[str, Any], auto_pad: str) -> Any:
    """The padding in front under SAME, where sizes are known at run time alone."""
    sizes, strides = op.Shape(X, start=2), np.asarray(windows["strides"], np.int64)
    steps = op.Sub(op.Div(op.Add(sizes, strides - 1), strides), 1)
    reach = op.Mul(op.Sub(op.Shape(W, start=2), 1), np.asarray(windows["dilations"], np.int64))
    total = op.Max(op.Sub(op.Add(op.Add(op.Mul(steps, strides), reach), 1), sizes), np.zeros(1, np.int64))
    return op.Div(total if auto_pad == "SAME_UPPER" else op.Add(total, 1), 2)


@traced("dX", "dW", "dB")
@of_rank("dY", "X", "W", ranks=(3, 4, 5), known=windowed)
def conv_transpose_vjp(
    dY, X, W, *, kernel_shape=None, strides=None, pads=None, dilations=None, group=1, auto_pad="NOTSET",
    output_padding=None, output_shape=None,
):  # fmt: skip
    """dX = Conv(dY, W), dW = Σ_n X·im2col(dY)ᵀ, dB = Σ dY over all but the channels."""
    if strides is None:
        return in_branch(conv_transpose_vjp, conv_transpose_defaults, dY, X, W, kernel_shape=kernel_shape, pads=pads,
                          dilations=dilations, group=group, auto_pad=auto_pad, output_padding=output_padding,
                          output_shape=output_shape)  # fmt: skip
    windows = {"strides": strides, "dilations": dilations}
    _rank_all(strides, dY, X, W)
    if pads is None:
        begin, end = _transpose_pads(X, W, windows, output_padding, output_shape, auto_pad)
        image, pads = op.Pad(dY, op.Concat(NONE, begin, NONE, end, axis=0)), [0] * len(strides) * 2
    else:
        image, pads = _reached(dY, X, kernel_shape, windows, pads, output_padding)
    dX = op.Conv(image, W, group=group, pads=pads, **windows)
    dX.shape = X.shape
    patches = im2col(image, kernel_shape, op.Shape(W, start=2), {**windows, "pads": pads})
    return dX, kernel_cotangent(X, patches, X, W, group), channel_sum(dY, X)


def _reached(dY: Any, X: Any, kernel: list[int] | None, windows: dict, pads: list[int], extra: list[int]) -> Any:
    """dY and the pads with which a Conv has as many windows as X has places.

    What output_padding or output_shape add beyond the last window is cut off where another window would fit there.
    """
    rank, strides = len(extra), windows["strides"]
    beyond = [e - p for e, p in zip(extra, pads[rank:], strict=True)]
    sizes, results = _spatial(X) or [], (_spatial(dY) or [])
    for i, (n, m) in enumerate(zip(sizes, results, strict=False)):
        if kernel is not None and isinstance(n, int) and isinstance(m, int):
            beyond[i] = m + pads[i] - (n - 1) * strides[i] - (kernel[i] - 1) * windows["dilations"][i] - 1
    begin = pads[:rank]
    if all(b < s for b, s in zip(beyond, strides, strict=True)):
        return dY, begin + [max(-b, 0) for b in beyond]
    return op.Pad(dY, np.asarray(begin + [-b for b in beyond]), None, np.arange(2, rank + 2)), [0] * 2 * rank


def _transpose_pads(X: Any, W: Any, windows: dict, extra: list[int], shape: list[int] | None, auto_pad: str) -> Any:
    """What dY lacks, in front and at the end, of all that the windows reach; sizes are known at run time alone."""
    strides, added = np.asarray(windows["strides"]), np.asarray(extra)
    reach = op.Add(op.Mul(op.Sub(op.Shape(W, start=2), 1), np.asarray(windows["dilations"])), 1)
    nothing = np.zeros(1, np.int64)
    if shape:
        result = np.asarray(shape[-len(extra) :])
        reached = op.Add(op.Mul(op.Sub(op.Shape(X, start=2), 1), strides), reach)
        total = op.Max(op.Sub(reached, result - added), nothing)
        lacking = op.Sub(reached, result)
    else:
        total = op.Max(op.Sub(reach, strides - added), nothing)
        lacking = op.Sub(total, added)
    begin = op.Div(total if auto_pad == "SAME_UPPER" else op.Add(total, 1), 2)
    return begin, op.Sub(lacking, begin)


@traced("dinput")
def col2im_vjp(doutput, input, block_shape, *, strides=None, pads=None, dilations=None):
    """dinput = im2col(doutput)."""
    kernel = None if block_shape.const is None else [int(k) for k in block_shape.const]
    patches = im2col(doutput, kernel, block_shape, {"strides": strides, "pads": pads, "dilations": dilations})
    return reshape_like(patches, input)
