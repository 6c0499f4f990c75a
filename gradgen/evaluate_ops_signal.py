# Operators for onnx.reference that transform signals, sample at offsets, quantise, or find unique elements.
"""Replacements like those of `gradgen.evaluate_ops`, for DFT, STFT, DeformConv, DynamicQuantizeLinear and Unique."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from gradgen.evaluate_ops import Op, per_channel


def _complex(x: np.ndarray) -> np.ndarray:
    """A last axis of one (real) or two (real, imaginary) elements as complex numbers."""
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0].astype(np.complex128)


def _pairs(z: np.ndarray) -> np.ndarray:
    return np.stack([z.real, z.imag], axis=-1)


class DFT(Op):
    # `axis` is an attribute up to version 17, and an input from 20 on.
    def _run(self, x: Any, length: Any = None, axis: Any = None, **attributes: Any) -> tuple:
        axis = (-2 if self.version >= 20 else 1) if axis is None else int(np.asarray(axis).item())
        length = attributes.get("dft_length") if length is None else length
        axis, z = axis % x.ndim, _complex(x)
        onesided, inverse = attributes.get("onesided"), attributes.get("inverse")
        count = None if length is None else int(np.asarray(length).item())
        if not inverse:
            y = np.fft.fft(z, n=count, axis=axis)
            y = np.take(y, range(y.shape[axis] // 2 + 1), axis) if onesided else y
        elif onesided:
            return (np.fft.irfft(z, n=count, axis=axis)[..., None].astype(x.dtype),)
        else:
            y = np.fft.ifft(z, n=count, axis=axis)
        return (_pairs(y).astype(x.dtype),)


class STFT(Op):
    def _run(
        self, signal: Any, frame_step: Any, window: Any = None, frame_length: Any = None, onesided: Any = 1
    ) -> tuple:
        step = int(np.asarray(frame_step).item())
        z = _complex(signal) if signal.ndim == 3 else signal.astype(np.complex128)
        given = frame_length if frame_length is not None else z.shape[1] if window is None else window.shape[0]
        length = int(np.asarray(given).item())
        starts = range(0, z.shape[1] - length + 1, step)
        frames = np.stack([z[:, s : s + length] for s in starts], axis=1)
        y = np.fft.fft(frames if window is None else frames * window, axis=2)
        return (_pairs(y[:, :, : length // 2 + 1] if onesided else y).astype(signal.dtype),)


class DeformConv(Op):
    def _run(
        self, x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None, group: int = 1, offset_group: int = 1,
        **attributes: Any,
    ) -> tuple:  # fmt: skip
        (count, channels, *size), kernel, out = x.shape, w.shape[2:], offset.shape[2:]
        strides = attributes.get("strides") or [1, 1]
        dilations, pads = attributes.get("dilations") or [1, 1], attributes.get("pads") or [0] * 4
        each = channels // (offset_group or 1)
        moved = offset.reshape(count, offset_group or 1, math.prod(kernel), 2, *out).repeat(each, axis=1)
        taps = np.indices(kernel).reshape(2, -1)
        axes = []
        for a in range(2):
            steps = np.arange(out[a]) * strides[a] - pads[a]
            place = (steps if a else steps[:, None]) + (taps[a] * dilations[a])[:, None, None] + moved[:, :, :, a]
            below = np.floor(place)
            axes.append([(below + k, 1 - np.abs(place - below - k)) for k in (0, 1)])
        where = np.arange(count)[:, None, None, None, None], np.arange(channels)[:, None, None, None]
        columns = np.zeros((count, channels, taps.shape[1], *out))
        for (row, v), (column, h) in itertools.product(*axes):
            inside = (row >= 0) & (row < size[0]) & (column >= 0) & (column < size[1])
            at = (np.clip(p, 0, n - 1).astype(np.int64) for p, n in zip((row, column), size, strict=True))
            columns += np.where(inside, v * h * x[(*where, *at)], 0)
        if mask is not None:
            columns *= mask.reshape(count, offset_group or 1, taps.shape[1], *out).repeat(each, axis=1)
        grouped = columns.reshape(count, group or 1, -1, math.prod(out))
        y = w.reshape(group or 1, w.shape[0] // (group or 1), -1) @ grouped
        y = y.reshape(count, w.shape[0], *out)
        return ((y if b is None else y + per_channel(y, b)).astype(x.dtype),)


class DynamicQuantizeLinear(Op):
    def _run(self, x: Any) -> tuple:
        low, high = min(x.min(initial=0), 0), max(x.max(initial=0), 0)
        scale = (high - low) / 255 or x.dtype.type(1)
        zero = np.rint(np.clip(-low / scale, 0, 255))
        y = np.clip(np.rint(x / scale) + zero, 0, 255)
        return y.astype(np.uint8), np.asarray(scale, x.dtype), np.asarray(zero, np.uint8)


class Unique(Op):
    def _run(self, x: Any, axis: Any = None, sorted: Any = 1) -> tuple:
        values, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        order = np.arange(len(first)) if sorted in (None, 1) else np.argsort(first)
        rank = np.argsort(order)
        found = (np.take(values, order, axis or 0), first[order], rank[inverse.reshape(-1)], counts[order])
        return tuple(
            f if i == 0 else f.astype(np.int64) for i, f in enumerate(found[: max(len(self.onnx_node.output), 1)])
        )


REPLACEMENTS: tuple[type[OpRun], ...] = (DFT, STFT, DeformConv, DynamicQuantizeLinear, Unique)
