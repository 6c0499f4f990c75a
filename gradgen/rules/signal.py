"""Rules of Fourier transforms: DFT and STFT, which are linear, so that each is undone by its conjugate transform."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.rules.index import scatter
from gradgen.rules.lang import op, traced
from gradgen.rules.library import reshape_like, zeros_like
from gradgen.rules.ranks import leading

CONJUGATE = np.asarray([1, -1], np.float32)


def _one(x: Any) -> Any:
    """An integer of any integer type as an int64 tensor of one element."""
    return op.Reshape(op.Cast(x, to=ir.DataType.INT64), [1])


def _transform(x: Any, length: Any, axis: Any, **attributes: Any) -> Any:
    """The DFT of x [1-element axis] at a length that may show at run time alone.

    onnx's inference, and onnxruntime's plan of buffers with it, then takes the result to be as long as x: x is cut or
    filled to the length before.
    """
    if length.const is not None:
        return op.DFT(x, op.Squeeze(length, [0]), op.Squeeze(axis, [0]), **attributes)
    missing = length - op.Gather(op.Shape(x), axis)
    return op.DFT(op.Pad(x, op.Concat([0], missing, axis=0), None, axis), None, op.Squeeze(axis, [0]), **attributes)


def _adjoint(ct: Any, length: Any, axis: Any, source: Any) -> Any:
    """conj(Σ conj(ct)·e^(−2πikn/L)), n = 0 … L−1: the way back through a transform of length L, as long as itself.

    Of a real `source` ([…, 1]) only the real part is wanted. A one-sided ct is filled up with zeros.
    """
    whole = _transform(ct * op.CastLike(CONJUGATE, ct), length, axis)
    if source.shape is not None and source.shape[-1] == 2:
        return whole * op.CastLike(CONJUGATE, ct)
    part = op.Slice(whole, [0], op.Shape(source, start=-1), [-1])
    if source.shape is not None and source.shape[-1] == 1:
        return part
    return part * op.CastLike(op.Slice(CONJUGATE, [0], op.Shape(source, start=-1)), ct)


@traced("dinput")
def dft_vjp(doutput, input, dft_length, axis, *, inverse=0, onesided=0):
    """dx = the conjugate transform of dy, cut or filled to the length of x; a one-sided inverse reads a bin twice."""
    axis = np.asarray(-2, np.int64) if axis is None else op.Cast(axis, to=ir.DataType.INT64)
    place = op.Reshape(axis, [1])
    own = op.Gather(op.Shape(input), place)
    length = (own - 1) * 2 if inverse and onesided else own
    length = length if dft_length is None else _one(dft_length)
    if not inverse:
        result, reached = _adjoint(doutput, length, place, input), length
    else:
        result = _transform(doutput, length, place, onesided=onesided)
        result = op.Slice(result, [0], op.Shape(input, start=-1), [-1]) / op.CastLike(length, input)
        reached = length / 2 + 1 if onesided else length
        if onesided:
            shape = op.ScatterElements(op.Expand(np.int64(1), op.Shape(op.Shape(input))), place, reached, axis=0)
            result = result * op.Reshape(op.CastLike(_times(length, reached), input), shape)
    if dft_length is None:
        return result
    missing = own - reached
    fits = missing.const is not None and not missing.const.any()
    return result if fits else op.Pad(result, op.Concat([0], missing, axis=0), None, place)


def _times(length: Any, bins: Any) -> Any:
    """How often a one-sided inverse reads each bin: once the first and the last of an even length, twice the others."""
    number = op.Range(np.int64(0), op.Squeeze(bins, [0]), np.int64(1))
    mirrored = op.Equal(op.Mod(number * 2, length), 0)
    return op.Where(mirrored, np.int64(1), np.int64(2))


@traced("dsignal", "dwindow")
def stft_vjp(doutput, signal, frame_step, window, frame_length, *, onesided=1):
    """With f the frames and z the conjugate transform of dy: dsignal = Σ z·w over the frames; dw = Σ z·f."""
    # A real signal may leave out its last axis, of one element.
    samples = signal if signal.shape is not None and signal.rank == 3 else leading(signal, 2)
    whole = op.Shape(signal, start=1, end=2)
    length = whole if frame_length is None else _one(frame_length)
    length = length if window is None else op.Shape(window)
    step = _one(frame_step)
    frames = (whole - length) / step + 1
    back = _adjoint(doutput, length, np.asarray([2], np.int64), samples)
    starts, within = (
        op.Range(np.int64(0), op.Squeeze(n, [0]), np.int64(1)) * s for n, s in ((frames, step), (length, 1))
    )
    places = op.Unsqueeze(starts, [1]) + within
    weighted = back if window is None else back * op.Unsqueeze(window, [1])
    flat = op.Concat(op.Shape(samples, end=1), frames * length, op.Shape(samples, start=2), axis=0)
    index = op.Expand(op.Reshape(places, op.Concat([1], frames * length, [1], axis=0), allowzero=1), flat)
    dsignal = scatter(zeros_like(samples), index, op.Reshape(weighted, flat, allowzero=1), 1, "add")
    if window is None:
        return reshape_like(dsignal, signal), None
    return reshape_like(dsignal, signal), op.ReduceSum(back * op.Gather(samples, places, axis=1), [0, 1, 3], keepdims=0)
