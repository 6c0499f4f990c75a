# Operators for onnx.reference where its own are wrong, compute in float32, or loop over elements.
"""Replacements handed to `onnx.reference.ReferenceEvaluator(new_ops=...)`, in plain numpy, in the dtype of the input.

The reference evaluator picks a replacement by operator name alone, so a class serves every version of its operator:
where versions differ, it looks at `self.version`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

_erf = np.vectorize(math.erf, otypes=[np.float64])


class Op(OpRun):
    """Base of the replacements."""

    op_domain = ""

    @property
    def version(self) -> int:
        """The opset version that the graph imports."""
        return self.run_params["opsets"][""]

    @property
    def wanted(self) -> int:
        """How many outputs the node names."""
        return len([name for name in self.onnx_node.output if name])


# Elementwise


class Erf(Op):
    def _run(self, x: Any) -> tuple:
        return (_erf(x).astype(x.dtype),)


class Gelu(Op):
    def _run(self, x: Any, approximate: str = "none") -> tuple:
        wide = x.astype(np.float64)
        if approximate == "tanh":
            y = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
        else:
            y = 0.5 * wide * (1 + _erf(wide / np.sqrt(2)))
        return (y.astype(x.dtype),)


class Mean(Op):
    def _run(self, *inputs: Any) -> tuple:
        return ((sum(inputs) / len(inputs)).astype(inputs[0].dtype),)


class Celu(Op):
    def _run(self, x: Any, alpha: float = 1.0) -> tuple:
        y = np.maximum(0, x) + np.minimum(0, alpha * np.expm1(np.minimum(x, 0) / alpha))
        return (y.astype(x.dtype),)


# Softmax and its losses. Before opset 13 everything from `axis` on is one dimension.


def _log_softmax(x: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    shifted = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


class _Softmax(Op):
    def _axes(self, x: np.ndarray, axis: int | None) -> int | tuple[int, ...]:
        if self.version >= 13:
            return -1 if axis is None else axis
        return tuple(range((1 if axis is None else axis) % x.ndim, x.ndim))


class Softmax(_Softmax):
    def _run(self, x: Any, axis: int | None = None) -> tuple:
        return (np.exp(_log_softmax(x, self._axes(x, axis))).astype(x.dtype),)


class LogSoftmax(_Softmax):
    def _run(self, x: Any, axis: int | None = None) -> tuple:
        return (_log_softmax(x, self._axes(x, axis)).astype(x.dtype),)


class Hardmax(_Softmax):
    def _run(self, x: Any, axis: int | None = None) -> tuple:
        axes = np.atleast_1d(self._axes(x, axis)) % x.ndim
        moved = np.moveaxis(x, axes, range(-len(axes), 0))
        flat = moved.reshape(*moved.shape[: x.ndim - len(axes)], -1)
        first = np.arange(flat.shape[-1]) == flat.argmax(axis=-1)[..., None]
        return (np.moveaxis(first.reshape(moved.shape), range(-len(axes), 0), axes).astype(x.dtype),)


def _nll(logp: np.ndarray, target: np.ndarray, weight: Any, ignore_index: int | None, reduction: str) -> np.ndarray:
    kept = np.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    label = np.where(kept, target, 0).astype(np.int64)
    factor = kept.astype(logp.dtype) * (1 if weight is None else np.asarray(weight)[label])
    picked = np.take_along_axis(logp, np.expand_dims(label, 1), 1).squeeze(1)
    loss = np.where(kept, -picked * factor, 0)
    if reduction == "mean":
        loss = loss.sum() / factor.sum()
    elif reduction == "sum":
        loss = loss.sum()
    return np.asarray(loss, dtype=logp.dtype)


class NegativeLogLikelihoodLoss(Op):
    def _run(self, x: Any, target: Any, weight: Any = None, ignore_index: Any = None, reduction: str = "mean") -> tuple:
        return (_nll(x, target, weight, ignore_index, reduction),)


class SoftmaxCrossEntropyLoss(Op):
    def _run(self, x: Any, target: Any, weight: Any = None, ignore_index: Any = None, reduction: str = "mean") -> tuple:
        logp = _log_softmax(x, 1)
        loss = _nll(logp, target, weight, ignore_index, reduction)
        return (loss, logp) if len(self.onnx_node.output) == 2 else (loss,)


# Normalization: the standard's bodies stash in float32, these do not


def _per_channel(x: np.ndarray, value: np.ndarray) -> np.ndarray:
    return value.reshape(-1, *(1,) * (x.ndim - 2))


class BatchNormalization(Op):
    def _run(self, x: Any, scale: Any, b: Any, mean: Any, var: Any, **attributes: Any) -> tuple:
        epsilon, momentum = attributes.get("epsilon", 1e-5), attributes.get("momentum", 0.9)
        if self.version >= 14:
            training = bool(attributes.get("training_mode"))
        else:  # several outputs mean training mode, from version 7 on
            training = len(self.onnx_node.output) > 1 and not attributes.get("is_test")
        if attributes.get("spatial", 1) == 0:  # up to version 8: statistics for each element of a channel too
            axes: tuple[int, ...] = (0,)
            expand = lambda value: value.reshape(1, *x.shape[1:])  # noqa: E731
        else:
            axes = (0, *range(2, x.ndim))
            expand = lambda value: _per_channel(x, value)  # noqa: E731
        used_mean, used_var = (x.mean(axis=axes), x.var(axis=axes)) if training else (mean, var)
        y = expand(scale) * (x - expand(used_mean)) / np.sqrt(expand(used_var) + epsilon) + expand(b)
        if not training:
            return (y.astype(x.dtype),)
        running = [mean * momentum + used_mean * (1 - momentum), var * momentum + used_var * (1 - momentum)]
        outputs = [y, *running] if self.version >= 14 else [y, *running, used_mean, used_var]
        return tuple(value.astype(x.dtype) for value in outputs[: len(self.onnx_node.output)])


class GroupNormalization(Op):
    def _run(self, x: Any, scale: Any, bias: Any, epsilon: float = 1e-5, num_groups: int = 1, **_: Any) -> tuple:
        grouped = x.reshape(x.shape[0], num_groups, -1)
        centred = grouped - grouped.mean(axis=2, keepdims=True)
        y = centred / np.sqrt(np.square(centred).mean(axis=2, keepdims=True) + epsilon)
        if self.version < 21:  # one scale a group, not a channel
            repeats = x.shape[1] // num_groups
            scale, bias = np.repeat(scale, repeats), np.repeat(bias, repeats)
        return ((y.reshape(x.shape) * _per_channel(x, scale) + _per_channel(x, bias)).astype(x.dtype),)


class MeanVarianceNormalization(Op):
    def _run(self, x: Any, axes: Any = (0, 2, 3)) -> tuple:
        axes = (0, 2, 3) if axes is None else tuple(axes)
        centred = x - x.mean(axis=axes, keepdims=True)
        deviation = np.sqrt(np.square(x).mean(axis=axes, keepdims=True) - x.mean(axis=axes, keepdims=True) ** 2)
        return ((centred / (deviation + 1e-9)).astype(x.dtype),)


class LpNormalization(Op):
    def _run(self, x: Any, axis: int = -1, p: int = 2) -> tuple:
        norm = np.linalg.norm(x, ord=p, axis=axis, keepdims=True)
        return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0),)


class LRN(Op):
    def _run(self, x: Any, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1) -> tuple:
        before, after = (size - 1) // 2, size // 2
        squares = np.pad(np.square(x), [(0, 0), (before, after)] + [(0, 0)] * (x.ndim - 2))
        total = sum(squares[:, k : k + x.shape[1]] for k in range(size))
        return ((x / (bias + alpha / size * total) ** beta).astype(x.dtype),)


# Windows: convolutions and pools


class _Windows:
    """The geometry of a sliding window over the spatial dimensions, all attributes resolved."""

    def __init__(self, spatial: tuple[int, ...], kernel: Any, attributes: dict[str, Any]) -> None:
        rank = len(spatial)
        self.spatial, self.kernel = spatial, tuple(int(k) for k in kernel)
        self.strides = tuple(attributes.get("strides") or (1,) * rank)
        self.dilations = tuple(attributes.get("dilations") or (1,) * rank)
        self.extent = tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))
        auto_pad = attributes.get("auto_pad") or "NOTSET"
        pads = list(attributes.get("pads") or [0] * 2 * rank) if auto_pad == "NOTSET" else [0] * 2 * rank
        self.begin, self.end, self.out = pads[:rank], pads[rank:], [0] * rank
        for i in range(rank):
            if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
                self.out[i] = -(-spatial[i] // self.strides[i])
                total = max((self.out[i] - 1) * self.strides[i] + self.extent[i] - spatial[i], 0)
                small, large = total // 2, total - total // 2
                self.begin[i], self.end[i] = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
                continue
            room = spatial[i] + self.begin[i] + self.end[i] - self.extent[i]
            self.out[i] = room // self.strides[i] + 1
            if attributes.get("ceil_mode") and room % self.strides[i]:
                # A window that would start in the padding at the end does not count.
                self.out[i] += (room // self.strides[i] + 1) * self.strides[i] < spatial[i] + self.begin[i]

    def over(self, x: np.ndarray, fill: Any, pad_fill: Any = None) -> np.ndarray:
        """Windows of x [N, C, *spatial] as [N, C, *out, *kernel], `fill` where they reach outside.

        `pad_fill` is what the declared padding holds, where that differs from what lies beyond it (ceil_mode).
        """
        lead = [(0, 0)] * (x.ndim - len(self.spatial))
        inner = list(zip(self.begin, self.end, strict=True))
        x = np.pad(x, lead + inner, constant_values=fill if pad_fill is None else pad_fill)
        need = [(o - 1) * s + e for o, s, e in zip(self.out, self.strides, self.extent, strict=True)]
        extra = [max(n - size, 0) for n, size in zip(need, x.shape[len(lead) :], strict=True)]
        x = np.pad(x, lead + [(0, e) for e in extra], constant_values=fill)
        axes = tuple(range(len(lead), x.ndim))
        windows = np.lib.stride_tricks.sliding_window_view(x, self.extent, axis=axes)
        picks = [slice(None, o * s, s) for o, s in zip(self.out, self.strides, strict=True)]
        taps = [slice(None, None, d) for d in self.dilations]
        index: tuple[Any, ...] = (..., *picks, *taps)
        return windows[index]


def _spatial(x: np.ndarray, where: list[Any]) -> np.ndarray:
    """The part of x [N, C, *spatial] at `where`, as a view."""
    index: tuple[Any, ...] = (slice(None), slice(None), *where)
    return x[index]


def _fold(columns: np.ndarray, size: list[int], strides: Any, dilations: Any) -> np.ndarray:
    """The transpose of taking windows: columns [N, C, *kernel, *out] summed into [N, C, *size]."""
    rank = len(size)
    kernel, out = columns.shape[2 : 2 + rank], columns.shape[2 + rank :]
    image = np.zeros((*columns.shape[:2], *size), dtype=columns.dtype)
    for tap in itertools.product(*map(range, kernel)):
        where = [
            slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilations, out, strides, strict=True)
        ]
        _spatial(image, where)[...] += _spatial(columns, list(tap))
    return image


class Conv(Op):
    def _run(self, x: Any, w: Any, b: Any = None, group: int = 1, **attributes: Any) -> tuple:
        rank = x.ndim - 2
        geometry = _Windows(x.shape[2:], w.shape[2:], attributes)
        per_group = x.shape[1] // group
        windows = geometry.over(x, 0).reshape(x.shape[0], group, per_group, *geometry.out, *w.shape[2:])
        out_axes, tap_axes = range(3, 3 + rank), range(3 + rank, 3 + 2 * rank)
        columns = windows.transpose(0, 1, *out_axes, 2, *tap_axes).reshape(
            x.shape[0], group, math.prod(geometry.out), per_group * math.prod(w.shape[2:])
        )
        y = columns @ w.reshape(group, w.shape[0] // group, -1).swapaxes(1, 2)
        y = y.swapaxes(2, 3).reshape(x.shape[0], w.shape[0], *geometry.out)
        return ((y if b is None else y + _per_channel(y, b)).astype(x.dtype),)


class ConvTranspose(Op):
    def _run(self, x: Any, w: Any, b: Any = None, group: int = 1, **attributes: Any) -> tuple:
        rank, kernel = x.ndim - 2, w.shape[2:]
        strides = attributes.get("strides") or [1] * rank
        dilations = attributes.get("dilations") or [1] * rank
        extra = attributes.get("output_padding") or [0] * rank
        pads = list(attributes.get("pads") or [0] * 2 * rank)
        auto_pad, shape = attributes.get("auto_pad") or "NOTSET", attributes.get("output_shape")
        spatial = x.shape[2:]
        full = [s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(strides, spatial, kernel, dilations, strict=True)]
        if shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            wanted = list(shape)[-rank:] if shape else [n * s for n, s in zip(spatial, strides, strict=True)]
            for i in range(rank):
                total = max(full[i] + extra[i] - wanted[i], 0)
                small, large = total // 2, total - total // 2
                pads[i], pads[rank + i] = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        else:
            if auto_pad == "VALID":
                pads = [0] * 2 * rank
            wanted = [full[i] + extra[i] - pads[i] - pads[rank + i] for i in range(rank)]
        grouped = x.reshape(x.shape[0], group, x.shape[1] // group, math.prod(spatial))
        columns = w.reshape(group, x.shape[1] // group, -1).swapaxes(1, 2) @ grouped
        columns = columns.reshape(x.shape[0], group * w.shape[1], *kernel, *spatial)
        image = _fold(columns, full, strides, dilations)
        y = np.zeros((*image.shape[:2], *wanted), dtype=x.dtype)
        taken = [min(f - p, n) for f, p, n in zip(full, pads[:rank], wanted, strict=True)]
        inner = [slice(p, p + t) for p, t in zip(pads[:rank], taken, strict=True)]
        _spatial(y, [slice(0, t) for t in taken])[...] = _spatial(image, inner)
        return ((y if b is None else y + _per_channel(y, b)).astype(x.dtype),)


class Col2Im(Op):
    def _run(self, x: Any, image_shape: Any, block_shape: Any, **attributes: Any) -> tuple:
        image, block = [int(i) for i in image_shape], [int(i) for i in block_shape]
        geometry = _Windows(tuple(image), block, attributes)
        columns = x.reshape(x.shape[0], x.shape[1] // math.prod(block), *block, *geometry.out)
        size = [i + b + e for i, b, e in zip(image, geometry.begin, geometry.end, strict=True)]
        padded = _fold(columns, size, geometry.strides, geometry.dilations)
        return (_spatial(padded, [slice(b, b + i) for b, i in zip(geometry.begin, image, strict=True)]),)


class MaxPool(Op):
    def _run(self, x: Any, kernel_shape: Any = None, storage_order: int = 0, **attributes: Any) -> tuple:
        spatial, rank = x.shape[2:], x.ndim - 2
        geometry = _Windows(spatial, kernel_shape, attributes)
        lowest = -np.inf if np.issubdtype(x.dtype, np.floating) else np.iinfo(x.dtype).min
        windows = geometry.over(x, lowest).reshape(*x.shape[:2], *geometry.out, -1)
        # The index comes from the position inside the image, so padding, although it may tie at -inf, is never picked.
        order: Any = "F" if storage_order else "C"
        places = np.arange(math.prod(spatial)).reshape(spatial, order=order)[None, None]
        places = geometry.over(places, -1).reshape(1, 1, *geometry.out, -1)
        best = np.where((windows == windows.max(axis=-1, keepdims=True)) & (places >= 0), 1, 0).argmax(axis=-1)[
            ..., None
        ]
        y = np.take_along_axis(windows, best, -1)[..., 0]
        if self.wanted < 2:
            return (y,)
        flat = np.take_along_axis(np.broadcast_to(places, windows.shape), best, -1)[..., 0]
        planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * rank)
        return y, (flat + planes * math.prod(spatial)).astype(np.int64)


class AveragePool(Op):
    def _run(self, x: Any, kernel_shape: Any = None, count_include_pad: int = 0, **attributes: Any) -> tuple:
        geometry = _Windows(x.shape[2:], kernel_shape, attributes)
        axes = tuple(range(-len(geometry.spatial), 0))
        counted = geometry.over(np.ones((1, 1, *geometry.spatial), x.dtype), 0, 1 if count_include_pad else 0)
        return ((geometry.over(x, 0).sum(axis=axes) / counted.sum(axis=axes)).astype(x.dtype),)


class LpPool(Op):
    def _run(self, x: Any, kernel_shape: Any = None, p: int = 2, **attributes: Any) -> tuple:
        geometry = _Windows(x.shape[2:], kernel_shape, attributes)
        axes = tuple(range(-len(geometry.spatial), 0))
        return (((np.abs(geometry.over(x, 0)) ** p).sum(axis=axes) ** (1 / p)).astype(x.dtype),)


class GlobalMaxPool(Op):
    def _run(self, x: Any) -> tuple:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class GlobalLpPool(Op):
    def _run(self, x: Any, p: int = 2) -> tuple:
        total = (np.abs(x) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        return ((total ** (1 / p)).astype(x.dtype),)


class MaxUnpool(Op):
    def _run(
        self, x: Any, indices: Any, output_shape: Any = None, kernel_shape: Any = None, **attributes: Any
    ) -> tuple:
        rank = x.ndim - 2
        strides, pads = attributes.get("strides") or [1] * rank, attributes.get("pads") or [0] * 2 * rank
        inferred = [(x.shape[2 + i] - 1) * strides[i] + kernel_shape[i] - pads[i] - pads[rank + i] for i in range(rank)]
        y = np.zeros((*x.shape[:2], *inferred), dtype=x.dtype)
        y.reshape(-1)[indices.ravel()] = x.ravel()
        if output_shape is None:
            return (y,)
        larger = np.zeros([int(s) for s in output_shape], dtype=x.dtype)
        larger[tuple(slice(0, s) for s in y.shape)] = y
        return (larger,)


REPLACEMENTS: tuple[type[OpRun], ...] = (
    AveragePool,
    BatchNormalization,
    Celu,
    Col2Im,
    Conv,
    ConvTranspose,
    Erf,
    Gelu,
    GlobalMaxPool,
    GlobalLpPool,
    GroupNormalization,
    Hardmax,
    LRN,
    LogSoftmax,
    LpNormalization,
    LpPool,
    MaxPool,
    MaxUnpool,
    Mean,
    MeanVarianceNormalization,
    NegativeLogLikelihoodLoss,
    Softmax,
    SoftmaxCrossEntropyLoss,
)
