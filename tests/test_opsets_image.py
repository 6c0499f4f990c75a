"""Raising operators on images, and normalisations, to opset 21: onnxruntime's results must stay."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import helper
from opset_runs import IMAGE, RNG, check, make, raised, run

STATISTICS = {name: np.abs(RNG.standard_normal(6)).astype(np.float32) for name in "sbmv"}


@pytest.mark.parametrize("opset", [7, 9, 14])
def test_batch_normalization(opset):
    assert check("BatchNormalization", opset, {"x": IMAGE}, STATISTICS, epsilon=1e-3) == ["BatchNormalization"]


@pytest.mark.parametrize("opset", [7, 9, 13])
def test_batch_normalization_training(opset):
    ops = check("BatchNormalization", opset, {"x": IMAGE}, STATISTICS, outputs=["y", "m2", "v2", "", ""], momentum=0.8)
    assert ops == ["BatchNormalization"]
    ops = check("BatchNormalization", opset, {"x": IMAGE}, STATISTICS, outputs=5, momentum=0.8, ulp=2)
    assert ops[-1] == "BatchNormalization" or ops[-1] == "Reciprocal"


def test_batch_normalization_14_training():
    check("BatchNormalization", 14, {"x": IMAGE}, STATISTICS, outputs=3, training_mode=1)


def test_batch_normalization_that_trains_without_its_statistics():
    """onnxruntime crashes on the old form; version 14 with all outputs is the independent source."""
    node = helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y", "", "", "", ""])
    new = raised(make([node], 9, {"x": IMAGE}, ["y"], STATISTICS))
    node = helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y", "m2", "v2"], training_mode=1)
    trained = make([node], 14, {"x": IMAGE}, ["y"], STATISTICS)
    np.testing.assert_array_equal(run(new, {"x": IMAGE})[0], run(trained, {"x": IMAGE})[0])


@pytest.mark.parametrize("dims", [None, ["n", 6, 5, 4], ["n", "c", "h", "w"]])
def test_batch_normalization_per_feature(dims):
    draw = np.random.default_rng(3)
    statistics = {name: np.abs(draw.standard_normal((6, 5, 4))).astype(np.float32) for name in "sbmv"}
    check("BatchNormalization", 7, {"x": IMAGE}, statistics, dims={"x": dims}, spatial=0, ulp=2)


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [[1, 1, 2, 2], [1, 1, 1.5, 2.7], [1, 1, 1, 3], [1, 1, 1.1, 1.2]])
def test_upsample(opset, mode, scales):
    if opset == 7:
        ops = check("Upsample", 7, {"x": IMAGE}, mode=mode, scales=[float(scale) for scale in scales])
    else:
        ops = check("Upsample", 9, {"x": IMAGE}, {"s": np.array(scales, np.float32)}, mode=mode)
        check("Upsample", 9, {"x": IMAGE, "s": np.array(scales, np.float32)}, mode=mode)
    assert ops == ["Resize"]


RESIZE_SCALES = [
    (2, 2),
    (0.5, 0.5),
    (1.5, 1.7),
    (0.6, 0.7),
    (2, 0.5),
    (0.3, 3),
    (0.9, 1.1),
    (1, 0.5),
    (2.3, 0.41),
    (1, 1),
]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", RESIZE_SCALES)
def test_resize_10(mode, scales):
    array = np.array([1, 1, *scales], np.float32)
    ops = check("Resize", 10, {"x": IMAGE}, {"s": array}, mode=mode)
    assert ops == ["Resize"] or (min(scales) < 1 < max(scales) and ops == ["Gather", "Gather"])
    if scales != (0.9, 1.1):  # onnxruntime copies where no size changes
        check("Resize", 10, {"x": IMAGE, "s": array}, mode=mode)
        check("Resize", 10, {"x": IMAGE}, {"s": array}, dims={"x": ["n", 6, "h", "w"]}, mode=mode)


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("scales", [(2, 2), (0.6, 0.7), (1.5, 0.4)])
def test_resize_with_coordinates(opset, scales):
    modes = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    roundings = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]
    empty, sizes = np.zeros(0, np.float32), np.array([2, 6, int(5 * scales[0]), int(4 * scales[1])], np.int64)
    given = [{"r": empty, "s": np.array([1, 1, *scales], np.float32)}, {"r": empty, "s": empty, "z": sizes}]
    for (mode, rounding), coordinates in itertools.product(
        [("nearest", rounding) for rounding in roundings] + [("linear", "floor"), ("cubic", "floor")], modes
    ):
        for inits in given:
            attrs = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
            assert check("Resize", opset, {"x": IMAGE}, inits, **attrs) == ["Resize"]


@pytest.mark.parametrize("scales", RESIZE_SCALES)
@pytest.mark.parametrize("rounding", ["floor", "round_prefer_floor"])
def test_resize_tf_half_pixel(scales, rounding):
    inits = {"r": np.zeros(0, np.float32), "s": np.array([1, 1, *scales], np.float32)}
    attrs = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": rounding}
    check("Resize", 11, {"x": IMAGE}, inits, **attrs)


def test_resize_crop():
    inits = {"r": np.array([0, 0, 0.2, 0.1, 1, 1, 0.7, 0.9], np.float32), "s": np.array([1, 1, 2, 2], np.float32)}
    attrs = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0}
    check("Resize", 11, {"x": IMAGE}, inits, **attrs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("dims", [None, ["n", "c", "h", "w"]])
def test_group_normalization(dtype, dims):
    inits = {"s": np.array([1.5, 0.5], dtype), "b": np.array([0.25, -1], dtype)}
    x = IMAGE
    if dtype == np.float16:  # mean 0 and an exact variance: onnxruntime keeps some float16 results in float32
        half = RNG.integers(-3, 4, (2, 4, 4, 2))
        x = np.concatenate([half, -half], axis=3)
    for opset in (18, 20):
        check("GroupNormalization", opset, {"x": x.astype(dtype)}, inits, dims={"x": dims}, num_groups=2, ulp=2)


@pytest.mark.parametrize("opset", [10, 15, 16])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(opset, mode):
    rois = {"r": np.array([[0, 0, 3, 3], [0.4, 0.3, 2.2, 3.7]], np.float32)}
    attrs = {"output_height": 2, "output_width": 3, "mode": mode, "spatial_scale": 0.9}
    for ratio in (0, 2):
        inits = {"b": np.array([0, 1], np.int64)}
        check("RoiAlign", opset, {"x": IMAGE, **rois}, inits, sampling_ratio=ratio, **attrs)


@pytest.mark.parametrize("mode", [None, "bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(mode, padding):
    grid = (RNG.random((2, 3, 3, 2)) * 2.4 - 1.2).astype(np.float32)
    attrs = {"mode": mode} if mode else {}
    for corners in (0, 1):
        check("GridSample", 16, {"x": IMAGE, "g": grid}, padding_mode=padding, align_corners=corners, **attrs)


POOLS = [
    (op, opset, attrs)
    for op, opsets in {"AveragePool": (7, 10, 11, 18), "MaxPool": (7, 8, 10, 11), "LpPool": (7, 11, 17)}.items()
    for opset in opsets
    for attrs in (
        {},
        {"pads": [1, 0, 1, 1]},
        {"auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER"},
        {"auto_pad": "VALID"},
    )
]


@pytest.mark.parametrize(("op", "opset", "attrs"), POOLS)
def test_pools(op, opset, attrs):
    x = RNG.integers(1, 999, (1, 2, 7, 8)).astype(np.float32)  # exact sums: the kernels add in different orders
    for kernel, stride in itertools.product((2, 3), (1, 2)):
        base = {"kernel_shape": [kernel, kernel], "strides": [stride, stride], **attrs}
        ceil = [0, 1] if opset >= 10 and op != "LpPool" else [None]
        count = [0, 1] if op == "AveragePool" else [None]
        for ceil_mode, counts in itertools.product(ceil, count):
            more = {"ceil_mode": ceil_mode, "count_include_pad": counts}
            more = {name: value for name, value in more.items() if value is not None}
            outputs = 2 if op == "MaxPool" and opset >= 8 else 1
            assert check(op, opset, {"x": x}, outputs=outputs, ulp=2, **base, **more) == [op]


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
def test_convolutions(pad):
    w = RNG.standard_normal((6, 2, 3, 2)).astype(np.float32)
    for stride in (1, 2, 3):
        check("Conv", 7, {"x": IMAGE}, {"w": w}, auto_pad=pad, strides=[stride] * 2, group=3)
        check("ConvTranspose", 7, {"x": IMAGE}, {"w": w}, auto_pad=pad, strides=[stride] * 2)
    shape = {"output_shape": [16, 11], "strides": [3, 3]}
    check("ConvTranspose", 7, {"x": IMAGE}, {"w": w}, auto_pad=pad, **shape)
