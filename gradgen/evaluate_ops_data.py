# Operators for onnx.reference that move data or draw numbers: where its own are wrong, slow, or not repeatable.
"""Replacements like those of `gradgen.evaluate_ops`, for padding, indexing, resizing and random operators."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.reference.op_run import OpRun

from gradgen.evaluate_ops import Op


class Pad(Op):
    """Negative pads crop, before the positive ones are filled."""

    def _run(self, x: Any, pads: Any = None, value: Any = None, axes: Any = None, **attributes: Any) -> tuple:
        if self.version < 11:  # attributes, before
            pads, value = attributes.get("paddings") or attributes.get("pads") or pads, attributes.get("value")
        where = range(x.ndim) if axes is None else [int(a) % x.ndim for a in axes]
        count = len(pads) // 2
        widths = [(0, 0)] * x.ndim
        for i, axis in enumerate(where):
            widths[axis] = int(pads[i]), int(pads[count + i])
        mode: Any = attributes.get("mode") or "constant"
        crop = tuple(slice(max(-b, 0), n - max(-e, 0)) for (b, e), n in zip(widths, x.shape, strict=True))
        grow = [(max(b, 0), max(e, 0)) for b, e in widths]
        if mode == "constant":
            fill = 0 if value is None else np.asarray(value).reshape(-1)[0]
            return (np.pad(x[crop], grow, constant_values=fill),)
        return (np.pad(x[crop], grow, mode=mode),)


class Slice(Op):
    """Slice whose bounds are clamped as ONNX states it: a start in front of the axis is its first element."""

    def _run(self, data: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> tuple:
        axes = range(len(starts)) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        cut = [slice(None)] * data.ndim
        for bounds in zip(axes, starts, ends, steps, strict=True):
            axis, start, end, step = map(int, bounds)
            cut[axis] = slice(max(start, -data.shape[axis]), end, step)
        return (data[tuple(cut)],)


def _along(indices: np.ndarray, axis: int, size: int) -> tuple[np.ndarray, ...]:
    """An index tuple that reads or writes at `indices` on `axis` and in place on the others."""
    grid = list(np.ogrid[tuple(slice(0, n) for n in indices.shape)])
    grid[axis] = np.where(indices < 0, indices + size, indices)
    return tuple(grid)


_COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scatter(data: np.ndarray, where: tuple, updates: np.ndarray, reduction: str | None) -> np.ndarray:
    result = data.copy()
    if reduction in (None, "none"):
        result[where] = updates  # of repeated indices the last one stays
    else:
        _COMBINE[str(reduction)].at(result, where, updates)
    return result


class GatherElements(Op):
    def _run(self, data: Any, indices: Any, axis: int = 0) -> tuple:
        return (data[_along(indices, axis, data.shape[axis])],)


class ScatterElements(Op):
    def _run(self, data: Any, indices: Any, updates: Any, axis: int = 0, reduction: str | None = None) -> tuple:
        return (_scatter(data, _along(indices, axis, data.shape[axis]), updates, reduction),)


class Scatter(ScatterElements):
    """The name of ScatterElements before version 11."""


class ScatterND(Op):
    def _run(self, data: Any, indices: Any, updates: Any, reduction: str | None = None) -> tuple:
        return (_scatter(data, tuple(np.moveaxis(indices, -1, 0)), updates, reduction),)


# Resize: one matrix for each axis


def _source(out: int, size: int, scale: np.floating, mode: str, roi: tuple[float, float]) -> np.ndarray:
    """The coordinate in the input, along one axis, of each of `out` output elements, in the dtype of `scale`."""
    x = np.arange(out).astype(scale.dtype)
    if mode == "align_corners":
        return x * (size - 1) / (out - 1) if out > 1 else x * 0
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = roi[0] * (size - 1), roi[1] * (size - 1)
        return start + x * (end - start) / (out - 1) if out > 1 else x + (start + end) / 2
    if mode == "pytorch_half_pixel" and out == 1:
        return x
    offset = scale * 0
    if mode == "half_pixel_symmetric":  # keeps the centre where the output size was rounded
        offset = size / 2 * (1 - out / (scale * size))
    return offset + (x + 0.5) / scale - 0.5


def _kernel(distance: np.ndarray, mode: str, cubic: float) -> np.ndarray:
    d = np.abs(distance)
    if mode == "linear":
        return np.clip(1 - d, 0, None)
    near = ((cubic + 2) * d - (cubic + 3)) * d * d + 1
    far = ((cubic * d - 5 * cubic) * d + 8 * cubic) * d - 4 * cubic
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


_NEAREST: dict[str, Any] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _axis_matrix(out: int, size: int, scale: float, roi: tuple[float, float], options: dict[str, Any]) -> np.ndarray:
    """The matrix [out, size] that resizes one axis; a row of NaN marks a value outside the region of interest."""
    transform = options.get("coordinate_transformation_mode") or "half_pixel"
    mode = options.get("mode") or "nearest"
    # Which neighbour is nearest hangs on the last bit: runtimes find it in float32, whatever the data's dtype.
    x = _source(out, size, (np.float32 if mode == "nearest" else np.float64)(scale), transform, roi)
    matrix = np.zeros((out, size))
    rows = np.arange(out)
    if mode == "nearest":
        chosen = options.get("nearest_mode") or "round_prefer_floor"
        rule = _NEAREST[("ceil" if scale < 1 else "floor") if chosen == "by scale" else chosen]
        matrix[rows, np.clip(rule(x), 0, size - 1).astype(np.int64)] = 1
    else:
        reach = 1 if mode == "linear" else 2
        shrink = min(scale, 1.0) if options.get("antialias") else 1.0
        radius = int(np.ceil(reach / shrink)) + 1
        cubic = options.get("cubic_coeff_a", -0.75)
        for tap in range(-radius, radius + 1):
            place = np.floor(x) + tap
            weight = _kernel((x - place) * shrink, mode, cubic)
            outside = (place < 0) | (place > size - 1)
            if options.get("exclude_outside"):
                weight = np.where(outside, 0, weight)
            np.add.at(matrix, (rows, np.clip(place, 0, size - 1).astype(np.int64)), weight)
        if options.get("exclude_outside") or options.get("antialias"):
            matrix /= matrix.sum(axis=1, keepdims=True)
    if transform == "tf_crop_and_resize":
        matrix[(x < 0) | (x > size - 1)] = np.nan
    return matrix


class Resize(Op):
    def _run(self, x: Any, *inputs: Any, **options: Any) -> tuple:
        if self.version == 10:  # X, scales; no coordinate attribute yet
            roi, scales, sizes = None, inputs[0], None
            options["coordinate_transformation_mode"] = "asymmetric"
            options["nearest_mode"] = "by scale"  # what runtimes did before there was an attribute for it
        else:
            roi, scales, sizes = (list(inputs) + [None] * 3)[:3]
        axes = [int(a) % x.ndim for a in options.get("axes") or range(x.ndim)]
        if sizes is not None and len(sizes):
            factors = [int(n) / x.shape[a] for n, a in zip(sizes, axes, strict=True)]
            policy = options.get("keep_aspect_ratio_policy") or "stretch"
            if policy != "stretch":
                factor = min(factors) if policy == "not_larger" else max(factors)
                factors = [factor] * len(axes)
                wanted = [int(np.floor(factor * x.shape[a] + 0.5)) for a in axes]
            else:
                wanted = [int(n) for n in sizes]
        else:
            factors = [float(f) for f in scales]
            wanted = [int(np.floor(f * np.float32(x.shape[a]))) for f, a in zip(scales, axes, strict=True)]
        return (_resized(x.astype(np.float64), axes, wanted, factors, roi, options).astype(x.dtype),)


def _resized(x: Any, axes: Any, wanted: Any, factors: Any, roi: Any, options: dict[str, Any]) -> np.ndarray:
    outside = None
    cropping = options.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    for i, axis in enumerate(axes):
        if wanted[i] == x.shape[axis] and factors[i] == 1 and not cropping:
            continue
        span = (float(roi[i]), float(roi[len(axes) + i])) if cropping else (0.0, 1.0)
        matrix = _axis_matrix(wanted[i], x.shape[axis], factors[i], span, options)
        missing = np.isnan(matrix).any(axis=1)
        x = np.moveaxis(np.tensordot(np.where(np.isnan(matrix), 0, matrix), x, axes=(1, axis)), 0, axis)
        shape = [1] * x.ndim
        shape[axis] = -1
        outside = missing.reshape(shape) if outside is None else outside | missing.reshape(shape)
    if cropping and outside is not None:
        x = np.where(outside, options.get("extrapolation_value", 0.0), x)
    return x


class Upsample(Op):
    def _run(self, x: Any, scales: Any = None, mode: str = "nearest") -> tuple:
        factors = [float(f) for f in scales]
        wanted = [int(np.floor(f * n)) for f, n in zip(factors, x.shape, strict=True)]
        options = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return (_resized(x.astype(np.float64), range(x.ndim), wanted, factors, None, options).astype(x.dtype),)


# Sampling at computed places


def _taps(place: np.ndarray, mode: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """The neighbours of each place along one axis, with their weights."""
    if mode == "nearest":
        return [(np.rint(place).astype(np.int64), np.ones_like(place))]
    kind, reach = ("linear", (0, 1)) if mode in ("linear", "bilinear") else ("cubic", (-1, 0, 1, 2))
    below = np.floor(place)
    return [((below + k).astype(np.int64), _kernel(place - (below + k), kind, -0.75)) for k in reach]


def _padded_index(index: np.ndarray, size: int, padding: str, aligned: bool) -> np.ndarray:
    """Where an index that may lie outside is read; what zero padding replaces is clipped too."""
    if padding != "reflection":
        return np.clip(index, 0, size - 1)
    period = max(2 * (size - 1), 1) if aligned else 2 * size
    index = np.mod(index, period)
    return np.where(index >= size, period - index - (0 if aligned else 1), index)


class GridSample(Op):
    def _run(
        self, x: Any, grid: Any, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0
    ) -> tuple:
        sizes, rank = x.shape[2:], x.ndim - 2
        axes = []
        for axis, size in enumerate(sizes):
            place = (grid[..., rank - 1 - axis].astype(np.float64) + 1) / 2
            place = place * (size - 1) if align_corners else place * size - 0.5
            if padding_mode == "border" and "cubic" not in mode:
                place = np.clip(place, 0, size - 1)
            axes.append(_taps(place, mode))
        batch = np.arange(x.shape[0]).reshape(-1, *(1,) * rank)
        y = np.zeros((*grid.shape[:-1], x.shape[1]))
        for neighbours in itertools.product(*axes):
            weight = np.prod([w for _, w in neighbours], axis=0)
            if padding_mode == "zeros":
                inside = [(i >= 0) & (i < n) for (i, _), n in zip(neighbours, sizes, strict=True)]
                weight = np.where(np.all(inside, axis=0), weight, 0)
            read = [
                _padded_index(i, n, padding_mode, bool(align_corners))
                for (i, _), n in zip(neighbours, sizes, strict=True)
            ]
            index: tuple[Any, ...] = (batch, slice(None), *read)
            y += weight[..., None] * x[index]
        return (np.moveaxis(y, -1, 1).astype(x.dtype),)


class AffineGrid(Op):
    def _run(self, theta: Any, size: Any, align_corners: int = 0) -> tuple:
        spatial = [int(n) for n in size[2:]]
        lines = [np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / n - 1 for n in spatial]
        points = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(spatial)], axis=-1)
        return (np.einsum("...j,nij->n...i", points, theta).astype(theta.dtype),)


class CumSum(Op):
    def _run(self, x: Any, axis: Any, exclusive: int = 0, reverse: int = 0) -> tuple:
        where = int(np.asarray(axis).reshape(()))  # runtimes take an axis of shape [1] too
        data = np.flip(x, where) if reverse else x
        total = np.cumsum(data, axis=where, dtype=x.dtype)
        total = total - data if exclusive else total
        return (np.flip(total, where) if reverse else total,)


# Random operators: the same draw in every run, and for every node of one shape and seed. A derivative is compared with
# differences of the primal, which runs in another model, so that both must see the same draw.


def _generator(seed: Any) -> np.random.Generator:
    return np.random.default_rng(0 if seed is None or np.isnan(seed) else abs(int(seed)))


def _dtype(like: np.ndarray | None, dtype: int | None) -> np.dtype:
    return like.dtype if like is not None and not dtype else np.dtype(tensor_dtype_to_np_dtype(dtype or 1))


class Dropout(Op):
    def _run(self, x: Any, ratio: Any = None, training: Any = None, seed: Any = None, **attributes: Any) -> tuple:
        ratio = 0.5 if ratio is None else float(np.asarray(ratio).reshape(()))
        mask = np.ones(x.shape, dtype=bool)
        if self.version >= 12 and training is not None and bool(np.asarray(training).reshape(())):
            mask = _generator(seed).random(x.shape) >= ratio
            x = np.where(mask, x / (1 - ratio) if ratio < 1 else 0, 0).astype(x.dtype)
        return (x, mask if self.version >= 10 else mask.astype(x.dtype)) if self.wanted == 2 else (x,)


class RandomNormal(Op):
    def _run(self, mean: float = 0.0, scale: float = 1.0, seed: Any = None, dtype: int = 1, shape: Any = ()) -> tuple:
        return ((mean + scale * _generator(seed).standard_normal(tuple(shape))).astype(_dtype(None, dtype)),)


class RandomNormalLike(Op):
    def _run(self, x: Any, mean: float = 0.0, scale: float = 1.0, seed: Any = None, dtype: int | None = None) -> tuple:
        return ((mean + scale * _generator(seed).standard_normal(x.shape)).astype(_dtype(x, dtype)),)


class RandomUniform(Op):
    def _run(self, low: float = 0.0, high: float = 1.0, seed: Any = None, dtype: int = 1, shape: Any = ()) -> tuple:
        return ((low + (high - low) * _generator(seed).random(tuple(shape))).astype(_dtype(None, dtype)),)


class RandomUniformLike(Op):
    def _run(self, x: Any, low: float = 0.0, high: float = 1.0, seed: Any = None, dtype: int | None = None) -> tuple:
        return ((low + (high - low) * _generator(seed).random(x.shape)).astype(_dtype(x, dtype)),)


class Bernoulli(Op):
    def _run(self, x: Any, seed: Any = None, dtype: int | None = None) -> tuple:
        return ((_generator(seed).random(x.shape) < x).astype(_dtype(x, dtype)),)


REPLACEMENTS: tuple[type[OpRun], ...] = (
    AffineGrid,
    Bernoulli,
    CumSum,
    Dropout,
    GatherElements,
    GridSample,
    Pad,
    RandomNormal,
    RandomNormalLike,
    RandomUniform,
    RandomUniformLike,
    Resize,
    Scatter,
    ScatterElements,
    ScatterND,
    Slice,
    Upsample,
)
