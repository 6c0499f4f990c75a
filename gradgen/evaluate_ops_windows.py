# Operators for onnx.reference that slide a window: convolutions and pools, vectorised, with every attribute resolved.
"""Replacements like those of `gradgen.evaluate_ops`, for convolutions, pools and what undoes them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from gradgen.evaluate_ops import Op, per_channel

# Columns of a convolution are built for so many elements at a time.
_BLOCK = 2**23


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
        geometry = _Windows(x.shape[2:], w.shape[2:], attributes)
        windows = geometry.over(x, 0)
        a_line = windows.size // max(geometry.out[0], 1)
        lines = max(1, _BLOCK // max(a_line, 1))
        blocks = [windows[:, :, i : i + lines] for i in range(0, geometry.out[0], lines)] or [windows]
        y = np.concatenate([self._block(block, w, group) for block in blocks], axis=2)
        return ((y if b is None else y + per_channel(y, b)).astype(x.dtype),)

    def _block(self, windows: np.ndarray, w: np.ndarray, group: int) -> np.ndarray:
        count, out = windows.shape[0], windows.shape[2 : w.ndim]
        rank = len(out)
        grouped = windows.reshape(count, group, w.shape[1], *out, *w.shape[2:])
        columns = grouped.transpose(0, 1, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
        columns = columns.reshape(count, group, math.prod(out), w[0].size)
        y = columns @ w.reshape(group, w.shape[0] // group, -1).swapaxes(1, 2)
        return y.swapaxes(2, 3).reshape(count, w.shape[0], *out)


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
        return ((y if b is None else y + per_channel(y, b)).astype(x.dtype),)


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


class MaxRoiPool(Op):
    def _run(self, x: Any, rois: Any, pooled_shape: Any = None, spatial_scale: float = 1.0) -> tuple:
        y = np.zeros((len(rois), x.shape[1], *pooled_shape), x.dtype)
        for r, (batch, *edges) in enumerate(rois):
            left, top, right, bottom = (math.copysign(math.floor(abs(e * spatial_scale) + 0.5), e) for e in edges)
            rows = self._bins(top, bottom, pooled_shape[0], x.shape[2])
            columns = self._bins(left, right, pooled_shape[1], x.shape[3])
            for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns)):
                cell = x[int(batch), :, row, column]
                y[r, :, i, j] = cell.max(axis=(1, 2)) if cell.size else 0
        return (y,)

    def _bins(self, first: float, last: float, count: int, size: int) -> list[slice]:
        width = max(last - first + 1, 1) / count
        edges = [(math.floor(i * width) + first, math.ceil((i + 1) * width) + first) for i in range(count)]
        return [slice(*(int(min(max(edge, 0), size)) for edge in pair)) for pair in edges]


REPLACEMENTS: tuple[type[OpRun], ...] = (
    AveragePool,
    Col2Im,
    Conv,
    ConvTranspose,
    GlobalLpPool,
    GlobalMaxPool,
    LpPool,
    MaxPool,
    MaxRoiPool,
    MaxUnpool,
)
