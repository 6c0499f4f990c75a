"""Gradients of Resize against its value at every unit vector on onnxruntime, for combinations of its modes."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import gradgen
from gradgen.evaluate import Evaluator


def resize_model(shape, dynamic=False, kind=np.float32, fed=(), roi=None, scales=None, sizes=None, **attributes):
    """A model of one Resize; the inputs named in `fed` are graph inputs, the others constants."""
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    given = {"roi": (roi, np.float32), "scales": (scales, np.float32), "sizes": (sizes, np.int64)}
    arrays = {k: np.asarray(v, t) for k, (v, t) in given.items() if v is not None}
    names = ["x", *(k if k in arrays else "" for k in given)]
    inputs = [helper.make_tensor_value_info("x", elem, [f"d{i}" for i in range(len(shape))] if dynamic else shape)]
    for name in fed:
        inputs.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(arrays[name].dtype), arrays[name].shape)
        )
    node = helper.make_node("Resize", names, ["y"], name="node", **attributes)
    y = helper.make_tensor_value_info("y", elem, [None] * len(shape))
    stored = [numpy_helper.from_array(a, k) for k, a in arrays.items() if k not in fed]
    graph = helper.make_graph([node], "resize", inputs, [y], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, {k: arrays[k] for k in fed}


def check(shape, rtol=1e-5, **settings):
    """Compare the gradient with the differences of the forward pass between unit vectors and zero."""
    model, feeds = resize_model(shape, **settings)
    kind = settings.get("kind", np.float32)
    run = Evaluator(model, strict=True)
    zero = np.zeros(shape, kind)
    origin = run({"x": zero, **feeds})["y"].astype(np.float64)
    ct = np.random.default_rng(1).standard_normal(origin.shape).astype(kind)
    want = np.zeros(shape)
    for index in np.ndindex(*shape):
        unit = zero.copy()
        unit[index] = 1
        want[index] = float((ct * (run({"x": unit, **feeds})["y"] - origin)).sum())
    result = gradgen.vjp(model, wrt=["x"], of=["y"])
    onnx.checker.check_model(result, full_check=True)
    found = Evaluator(result, strict=True)({"x": zero, "grad_y": ct, **feeds})["grad_x"]
    assert found.dtype == kind
    np.testing.assert_allclose(found, want, rtol=rtol, atol=10 * rtol * np.abs(want).max())


COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


@pytest.mark.parametrize(("coordinates", "rounding"), itertools.product(COORDINATES, ROUNDINGS))
@pytest.mark.parametrize("scales", [[1, 1, 2, 3], [1, 1, 1.7, 0.6], [1, 1, 4, 1]], ids=str)
def test_nearest(coordinates, rounding, scales):
    check((1, 1, 3, 4), scales=scales, coordinate_transformation_mode=coordinates, nearest_mode=rounding)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_interpolation(coordinates, mode, dynamic):
    settings = {"mode": mode, "coordinate_transformation_mode": coordinates, "dynamic": dynamic}
    check((1, 2, 4, 5), sizes=[1, 2, 7, 3], **settings)
    check((1, 1, 4, 5), scales=[1, 1, 0.7, 1.9], **settings)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
def test_antialias(mode, exclude):
    check((1, 1, 7, 6), scales=[1, 1, 0.4, 0.6], mode=mode, antialias=1, exclude_outside=exclude)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_crop_leaves_what_is_outside_without_gradient(mode, dynamic):
    check(
        (1, 1, 4, 5), roi=[0, 0, 0.3, -0.2, 1, 1, 0.9, 1.1], sizes=[1, 1, 5, 6], mode=mode, dynamic=dynamic,
        coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0,
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_aspect_ratio(policy, mode):
    check((1, 1, 4, 5), sizes=[6, 9], axes=[2, 3], mode=mode, keep_aspect_ratio_policy=policy)
    check((1, 1, 5, 7), sizes=[4, 3], axes=[3, 2], mode=mode, keep_aspect_ratio_policy=policy)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("fed", ["scales", "sizes"])
def test_settings_known_at_run_time_only(mode, fed):
    value = {"scales": [1, 1, 2, 1.5]} if fed == "scales" else {"sizes": [1, 2, 6, 6]}
    check((1, 2, 3, 4), fed=(fed,), dynamic=True, mode=mode, **value)


def test_every_rank():
    check((5,), scales=[1.7])
    check((3, 4), scales=[2, 0.6], mode="linear")
    check((2, 3, 4), scales=[2, 1, 3], coordinate_transformation_mode="asymmetric")
    check((1, 1, 2, 3, 2), scales=[1, 1, 2, 1.5, 3], mode="linear")
    check((2, 2, 2, 3, 2), scales=[2, 1, 1, 2, 2])


def test_half_precision():
    check((1, 1, 3, 4), kind=np.float16, scales=[1, 1, 2, 1.5], mode="linear", rtol=2e-3)


def test_sizes_that_are_the_input_s_own_are_left_alone():
    model, _ = resize_model((1, 2, 3, 4), sizes=[1, 2, 3, 4], mode="linear")
    result = gradgen.vjp(model, wrt=["x"], of=["y"])
    assert not [n for n in result.graph.node if n.op_type == "MatMul"]
