"""Gradients of GridSample, AffineGrid, RoiAlign, MaxRoiPool and DeformConv at edges, ties and in combinations."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from single_node import build, gradients, session

import gradgen
from gradgen.differences import jacobian_fd
from gradgen.evaluate import Evaluator

RNG = np.random.default_rng(11)


def uniform(*shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return RNG.uniform(low, high, shape)


def check_adjoint(op_type: str, inputs: dict[str, Any], linear: str, dynamic: bool = False, **attributes: Any) -> None:
    """⟨dx, v⟩ = ⟨dy, f(v)⟩ for an operator that is linear in one input, on onnxruntime in float32."""
    arrays = {
        n: np.asarray(a, np.float32) if np.asarray(a).dtype.kind == "f" else np.asarray(a) for n, a in inputs.items()
    }
    model = build(op_type, arrays, **attributes)
    forward = session(model)
    ct = RNG.standard_normal(forward.run(None, arrays)[0].shape).astype(np.float32)
    if dynamic:
        open_dimensions(model)
    gradient = gradgen.vjp(model, wrt=[linear])
    onnx.checker.check_model(gradient, full_check=True)
    found = session(gradient).run([f"grad_{linear}"], {**arrays, "grad_y0": ct})[0]
    for _ in range(3):
        v = RNG.standard_normal(arrays[linear].shape).astype(np.float32)
        y = forward.run(None, {**arrays, linear: v})[0]
        np.testing.assert_allclose(np.vdot(found, v), np.vdot(ct, y), rtol=1e-4, atol=1e-4 * np.abs(ct * y).sum())


def open_dimensions(model: onnx.ModelProto) -> None:
    del model.graph.value_info[:]
    for value in [*model.graph.input, *model.graph.output]:
        for i, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}_{i}"


# GridSample


def ticks(dims: int, *places: float) -> np.ndarray:
    """A grid of one row whose points lie at these x, and at 0.3 along the other axes."""
    points = [[x, *([0.3] * (dims - 1))] for x in places]
    return np.asarray(points).reshape(1, *(1,) * (dims - 1), len(places), dims)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("dynamic", [False, True])
def test_grid_sample_reads_where_the_runtime_reads(mode, padding, align, dynamic):
    settings = {"mode": mode, "padding_mode": padding, "align_corners": align, "linear": "X", "dynamic": dynamic}
    far = uniform(2, 5, 6, 2, low=-4, high=4)
    check_adjoint("GridSample", {"X": uniform(2, 3, 4, 7), "grid": far}, **settings)
    # On the elements, and halfway between them, where nearest rounds to even.
    ys, xs = np.meshgrid(np.arange(-3, 8) / 4 - 0.5, np.arange(-4, 8) / 4 - 0.5, indexing="ij")
    check_adjoint("GridSample", {"X": uniform(1, 1, 4, 8), "grid": np.stack([xs, ys], -1)[None]}, **settings)
    if mode != "cubic":
        far = uniform(2, 2, 3, 2, 3, low=-3, high=3)
        check_adjoint("GridSample", {"X": uniform(2, 2, 3, 2, 4), "grid": far}, **settings)
    check_adjoint("GridSample", {"X": uniform(1, 2, 1, 1), "grid": uniform(1, 2, 2, 2, low=-3, high=3)}, **settings)


def test_grid_sample_places_that_are_read_twice_add_up():
    grid = np.asarray([[0.1, -0.2], [0.1, -0.2]]).reshape(1, 1, 2, 2)
    x = np.zeros((1, 1, 3, 3))
    both, one = (gradients("GridSample", {"X": x, "grid": g}, wrt="X") for g in (grid, grid[:, :, :1]))
    np.testing.assert_allclose(both, 2 * one)


def test_grid_sample_slope_at_the_edges():
    x = np.broadcast_to(np.asarray([1.0, 3.0, 7.0, 20.0]), (1, 1, 2, 4))
    # With aligned corners a unit of the grid is 1.5 elements: -1, -1/3, 1/3, 1 lie on the elements.
    run = {"align_corners": 1, "wrt": "grid", "mode": "linear"}
    outside = ticks(2, -1.5, -1.0, 1.0, 1.5)
    border = gradients("GridSample", {"X": x, "grid": outside}, padding_mode="border", **run)
    assert not border[..., 0].any()
    mirrored = gradients("GridSample", {"X": x, "grid": outside}, padding_mode="reflection", **run)
    # Behind the edge the image runs backwards; on it, PyTorch's clip has no slope.
    np.testing.assert_allclose(mirrored[0, 0, :, 0], [-1.5 * 2, 0, 0, -1.5 * 13], rtol=1e-6)
    zeros = gradients("GridSample", {"X": x, "grid": ticks(2, -1.2, 0.0, 1.2, 3.0)}, padding_mode="zeros", **run)
    np.testing.assert_allclose(zeros[0, 0, :, 0], [1.5 * 1, 1.5 * 4, -1.5 * 20, 0], rtol=1e-6)


def test_grid_sample_nearest_has_no_slope():
    found = gradients("GridSample", {"X": uniform(1, 2, 3, 3), "grid": uniform(1, 2, 2, 2)}, wrt="grid", mode="nearest")
    assert not found.any()


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("mode", "dims"), [("cubic", 3), ("linear", 1), ("cubic", 1)])
def test_grid_sample_where_the_runtime_has_no_kernel(mode, padding, dims):
    x, grid = uniform(1, 2, *[4, 3, 5][:dims]), uniform(1, *[2, 1, 2][:dims], dims, low=-1.4, high=1.4)
    model = build("GridSample", {"X": x, "grid": grid}, mode=mode, padding_mode=padding)
    primal = Evaluator(model, prefer="reference", strict=True)
    feeds = {"X": x, "grid": grid}
    ct = RNG.standard_normal(primal(feeds)["y0"].shape)
    gradient = gradgen.vjp(model, wrt=["X", "grid"])
    backward = onnx.ModelProto()
    backward.CopyFrom(gradient)
    kept = [n for n in backward.graph.node if n.op_type != "GridSample"]
    del backward.graph.node[:], backward.graph.output[0]
    backward.graph.node.extend(kept)
    found = Evaluator(backward, strict=True)({**feeds, "grad_y0": ct})
    for name in feeds:
        want, _, kinks = jacobian_fd(primal, feeds, name, {"y0": ct})
        close = np.isclose(found[f"grad_{name}"], want, rtol=1e-6, atol=1e-6) | kinks.reshape(want.shape)
        assert close.all(), name


def test_grid_sample_half_precision():
    x, grid = uniform(1, 2, 4, 4), uniform(1, 3, 3, 2)
    narrow = gradients("GridSample", {"X": x, "grid": grid}, dtype=np.float16)
    x, grid = (a.astype(np.float16) for a in (x, grid))
    for a, b in zip(narrow, gradients("GridSample", {"X": x, "grid": grid}), strict=True):
        np.testing.assert_allclose(a, b, rtol=4e-3, atol=4e-3)


# AffineGrid


@pytest.mark.parametrize("size", [[2, 1, 3, 4], [1, 2, 1, 4], [2, 3, 2, 1, 3], [1, 1, 1, 1]], ids=str)
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("dynamic", [False, True])
def test_affine_grid(size, align, dynamic):
    dims = len(size) - 2
    inputs = {"theta": uniform(size[0], dims, dims + 1), "size": np.asarray(size)}
    check_adjoint("AffineGrid", inputs, "theta", dynamic, align_corners=align)


# RoiAlign and MaxRoiPool

BOXES = [[0.3, 0.2, 3.3, 2.6], [-2, -1.5, 6, 7.2], [1.1, 1.2, 1.4, 1.5], [3, 2, 2, 1], [40, 40, 50, 50], [0, 0, 0, 0]]


@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("dynamic", [False, True])
def test_roi_align_is_linear_in_the_image(coordinates, ratio, dynamic):
    inputs = {"X": uniform(2, 3, 5, 6), "rois": np.asarray(BOXES), "batch_indices": np.asarray([0, 1, 1, 0, 1, 0])}
    settings = {"coordinate_transformation_mode": coordinates, "sampling_ratio": ratio, "spatial_scale": 0.75}
    check_adjoint("RoiAlign", inputs, "X", dynamic, output_height=2, output_width=3, **settings)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align_without_regions(mode, ratio):
    inputs = {"X": uniform(1, 2, 4, 4), "rois": np.zeros((0, 4)), "batch_indices": np.zeros(0, np.int64)}
    dX, drois = gradients("RoiAlign", inputs, mode=mode, sampling_ratio=ratio, output_height=2)
    assert not dX.any() and drois.shape == (0, 4)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_outside_the_image_has_no_gradient(mode):
    inputs = {"X": uniform(1, 2, 4, 4), "rois": np.asarray([[50.0, 50, 60, 60]]), "batch_indices": np.asarray([0])}
    assert not any(g.any() for g in gradients("RoiAlign", inputs, mode=mode, output_height=2, output_width=2))


def test_roi_align_max_takes_the_tap_that_wins():
    # One sample in the middle of four elements: each has the weight 1/4, and 8 is the greatest.
    x = np.asarray([[1.0, 2.0], [8.0, 4.0]]).reshape(1, 1, 2, 2)
    inputs = {"X": x, "rois": np.asarray([[0.5, 0.5, 1.5, 1.5]]), "batch_indices": np.asarray([0])}
    dX, _ = gradients("RoiAlign", inputs, cotangent=3.0, mode="max", sampling_ratio=1)
    np.testing.assert_allclose(dX[0, 0], [[0, 0], [0.75, 0]])


def test_max_roi_pool_first_of_equals():
    x = np.ones((1, 1, 3, 3))
    found = gradients("MaxRoiPool", {"X": x, "rois": np.asarray([[0.0, 0, 0, 2, 2]])}, wrt="X", pooled_shape=[1, 1])
    want = np.zeros((3, 3))
    want[0, 0] = 1
    np.testing.assert_array_equal(found[0, 0], want)


@pytest.mark.parametrize(("scale", "shape"), itertools.product([1.0, 0.5, 0.3], [[1, 1], [2, 3], [4, 4]]))
def test_max_roi_pool_picks_what_the_runtime_picks(scale, shape):
    # x moved by small steps: the maxima stay where they are, so that the differences are those of what was picked.
    x = RNG.permutation(2 * 2 * 7 * 6).reshape(2, 2, 7, 6).astype(np.float32)
    edges = np.round(uniform(8, 4, low=-6, high=24) * 2) / 2
    inputs = {"X": x, "rois": np.concatenate([np.arange(8)[:, None] % 2, edges], 1).astype(np.float32)}
    forward = session(build("MaxRoiPool", inputs, pooled_shape=shape, spatial_scale=scale))
    y = forward.run(None, inputs)[0]
    ct = RNG.standard_normal(y.shape)
    found = gradients("MaxRoiPool", inputs, ct, wrt="X", pooled_shape=shape, spatial_scale=scale)
    step = uniform(*x.shape, low=0.0, high=0.25).astype(np.float32)
    moved = forward.run(None, {**inputs, "X": x + step})[0] - y
    np.testing.assert_allclose(np.vdot(found, step), np.vdot(ct, moved), rtol=1e-3, atol=1e-3)


# DeformConv


@pytest.mark.parametrize("linear", ["X", "W", "mask"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("group", "offset_group", "strides", "pads", "dilations"),
    [
        (1, 1, [1, 1], [0, 0, 0, 0], [1, 1]),
        (2, 1, [2, 1], [1, 0, 2, 1], [1, 2]),
        (1, 2, [1, 2], [0, 2, 0, 1], [2, 1]),
        (4, 4, [3, 2], [1, 1, 1, 1], [1, 1]),
    ],
)
def test_deform_conv(linear, dynamic, group, offset_group, strides, pads, dilations):
    kernel, size = [3, 2], [7, 8]
    out = [
        (n + pads[i] + pads[i + 2] - (k - 1) * dilations[i] - 1) // strides[i] + 1
        for i, (n, k) in enumerate(zip(size, kernel, strict=True))
    ]
    inputs = {
        "X": uniform(2, 4, *size), "W": uniform(4, 4 // group, *kernel),
        "offset": uniform(2, offset_group * 12, *out, low=-3, high=3), "B": np.zeros(4),
        "mask": uniform(2, offset_group * 6, *out),
    }  # fmt: skip
    settings = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    check_adjoint("DeformConv", inputs, linear, dynamic, offset_group=offset_group, **settings)


def test_deform_conv_without_offsets_is_a_convolution():
    inputs = {"X": uniform(2, 3, 5, 5), "W": uniform(2, 3, 2, 2)}
    ct = uniform(2, 2, 4, 4)
    deformed = gradients("DeformConv", {**inputs, "offset": np.zeros((2, 8, 4, 4))}, ct, wrt=["X", "W"])
    for a, b in zip(deformed, gradients("Conv", inputs, ct), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
