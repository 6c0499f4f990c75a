"""Finite-difference tests of family sampling. Do not edit: generated from gradgen/rules/sampling.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

GRIDSAMPLE = [
    Sample(
        "",
        "GridSample",
        1,
        0,
        {"X": [2, 2, 4, 5], "grid": [2, 2, 3, 2]},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        1,
        {"X": [1, 2, 5, 4], "grid": [1, 2, 3, 2], "align_corners": 1},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        2,
        {"X": [1, 2, 4, 4], "grid": [1, 3, 3, 2], "padding_mode": "border"},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        3,
        {"X": [1, 1, 5, 5], "grid": [1, 3, 3, 2], "padding_mode": "border", "align_corners": 1},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        4,
        {"X": [1, 2, 4, 4], "grid": [1, 3, 3, 2], "padding_mode": "reflection"},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        5,
        {"X": [2, 1, 5, 5], "grid": [2, 3, 2, 2], "padding_mode": "reflection", "align_corners": 1},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        6,
        {"X": [1, 2, 4, 5], "grid": [1, 2, 3, 2], "mode": "nearest"},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        7,
        {"X": [1, 1, 4, 5], "grid": [1, 3, 3, 2], "mode": "nearest", "padding_mode": "reflection"},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        8,
        {"X": [1, 2, 5, 4], "grid": [1, 2, 3, 2], "mode": "cubic"},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        9,
        {"X": [1, 1, 4, 5], "grid": [1, 3, 2, 2], "mode": "cubic", "padding_mode": "border", "align_corners": 1},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        10,
        {"X": [1, 1, 4, 4], "grid": [1, 3, 2, 2], "mode": "cubic", "padding_mode": "reflection"},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        11,
        {"X": [1, 2, 4, 5, 4], "grid": [1, 2, 1, 2, 3]},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        12,
        {"X": [1, 1, 4, 4, 5], "grid": [1, 2, 2, 1, 3], "padding_mode": "border"},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        13,
        {"X": [1, 1, 5, 3, 5], "grid": [1, 2, 2, 1, 3], "padding_mode": "reflection", "align_corners": 1},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        14,
        {"X": [1, 1, 4, 2, 5], "grid": [1, 2, 2, 1, 3], "mode": "nearest", "padding_mode": "border"},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
    Sample(
        "",
        "GridSample",
        1,
        15,
        {"X": [1, 1, 3, 4], "grid": [1, 0, 3, 2]},
        {
            "range": {"grid": [-1.5, 1.5]},
            "avoid": {"grid": [-1.25, -1.0, -0.75, -0.6, -0.5, -0.2, -0.25, 0.0, 0.2, 0.25, 0.5, 0.6, 0.75, 1.0, 1.25]},
        },
    ),
]


@pytest.mark.parametrize("sample", GRIDSAMPLE, ids=str)
def test_gridsample_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", GRIDSAMPLE, ids=str)
def test_gridsample_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", GRIDSAMPLE, ids=str)
def test_gridsample_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", GRIDSAMPLE, ids=str)
def test_gridsample_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", GRIDSAMPLE, ids=str)
def test_gridsample_jvp(sample):
    check_jvp(sample)


AFFINEGRID = [
    Sample("", "AffineGrid", 1, 0, {"theta": [2, 2, 3], "size": [2, 3, 2, 3]}, {}),
    Sample("", "AffineGrid", 1, 1, {"theta": [1, 2, 3], "size": [1, 1, 3, 2], "align_corners": 1}, {}),
    Sample("", "AffineGrid", 1, 2, {"theta": [2, 3, 4], "size": [2, 1, 2, 3, 2]}, {}),
    Sample("", "AffineGrid", 1, 3, {"theta": [1, 3, 4], "size": [1, 1, 2, 2, 3], "align_corners": 1}, {}),
    Sample("", "AffineGrid", 1, 4, {"theta": [0, 2, 3], "size": [0, 1, 2, 3]}, {}),
]


@pytest.mark.parametrize("sample", AFFINEGRID, ids=str)
def test_affinegrid_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", AFFINEGRID, ids=str)
def test_affinegrid_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", AFFINEGRID, ids=str)
def test_affinegrid_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", AFFINEGRID, ids=str)
def test_affinegrid_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", AFFINEGRID, ids=str)
def test_affinegrid_jvp(sample):
    check_jvp(sample)


ROIALIGN = [
    Sample(
        "",
        "RoiAlign",
        1,
        0,
        {
            "X": [2, 2, 5, 6],
            "rois": {"values": [[0.3, 0.2, 3.37, 2.64], [-1.31, -1.42, 6.13, 7.24], [1.1, 1.2, 1.43, 1.54]]},
            "batch_indices": [0, 1, 1],
            "sampling_ratio": 2,
            "output_height": 2,
            "output_width": 3,
        },
        {},
    ),
    Sample(
        "",
        "RoiAlign",
        1,
        1,
        {
            "X": [1, 2, 5, 6],
            "rois": {"values": [[0.37, 0.21, 3.34, 2.67], [1.12, 0.94, 4.86, 4.42]]},
            "batch_indices": [0, 0],
            "output_height": 2,
            "output_width": 2,
        },
        {},
    ),
    Sample(
        "",
        "RoiAlign",
        1,
        2,
        {
            "X": [2, 1, 6, 5],
            "rois": {"values": [[0.8, 0.9, 7.1, 8.3], [1.13, 2.27, 1.46, 9.58]]},
            "batch_indices": [1, 0],
            "spatial_scale": 0.5,
            "coordinate_transformation_mode": "output_half_pixel",
            "sampling_ratio": 1,
            "output_height": 2,
            "output_width": 2,
        },
        {},
    ),
    Sample(
        "",
        "RoiAlign",
        1,
        3,
        {
            "X": [2, 1, 6, 5],
            "rois": {"values": [[0.83, 0.91, 7.13, 8.32], [1.13, 2.27, 1.46, 9.58]]},
            "batch_indices": [1, 1],
            "spatial_scale": 0.5,
            "coordinate_transformation_mode": "output_half_pixel",
            "output_height": 3,
        },
        {},
    ),
    Sample(
        "",
        "RoiAlign",
        1,
        4,
        {
            "X": [1, 2, 5, 6],
            "rois": {"values": [[0.37, 0.21, 3.34, 2.67], [1.12, 0.94, 4.86, 4.42]]},
            "batch_indices": [0, 0],
            "mode": "max",
            "sampling_ratio": 2,
            "output_height": 2,
            "output_width": 2,
        },
        {},
    ),
    Sample(
        "",
        "RoiAlign",
        1,
        5,
        {
            "X": [2, 2, 5, 6],
            "rois": {"values": [[0.37, 0.21, 3.34, 2.67], [0.62, 0.44, 4.86, 4.42]]},
            "batch_indices": [1, 0],
            "mode": "max",
            "output_width": 2,
        },
        {},
    ),
    Sample(
        "",
        "RoiAlign",
        1,
        6,
        {
            "X": [1, 2, 5, 6],
            "rois": {"values": [[-0.41, -0.32, 2.1, 1.9], [3.4, 2.6, 6.9, 5.8]]},
            "batch_indices": [0, 0],
            "mode": "max",
            "sampling_ratio": 2,
            "output_height": 2,
            "output_width": 2,
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", ROIALIGN, ids=str)
def test_roialign_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ROIALIGN, ids=str)
def test_roialign_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ROIALIGN, ids=str)
def test_roialign_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ROIALIGN, ids=str)
def test_roialign_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ROIALIGN, ids=str)
def test_roialign_jvp(sample):
    check_jvp(sample)


MAXROIPOOL = [
    Sample(
        "",
        "MaxRoiPool",
        1,
        0,
        {
            "X": [1, 2, 5, 6],
            "rois": {"values": [[0, 0, 0, 4, 3], [0, 2, 1, 5, 4]], "constant": True},
            "pooled_shape": [2, 2],
        },
        {},
    ),
    Sample(
        "",
        "MaxRoiPool",
        1,
        1,
        {
            "X": [2, 1, 7, 6],
            "rois": {"values": [[1, 1.6, 2.2, 13.1, 10.8], [0, 4, 9, 3, 8], [1, 8, -4, 15, 20]], "constant": True},
            "pooled_shape": [2, 3],
            "spatial_scale": 0.5,
        },
        {},
    ),
    Sample(
        "",
        "MaxRoiPool",
        1,
        2,
        {"X": [2, 1, 4, 5], "rois": {"values": [[0, -3, 1, 2, 3]], "constant": True}, "pooled_shape": [3, 1]},
        {},
    ),
]


@pytest.mark.parametrize("sample", MAXROIPOOL, ids=str)
def test_maxroipool_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MAXROIPOOL, ids=str)
def test_maxroipool_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MAXROIPOOL, ids=str)
def test_maxroipool_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MAXROIPOOL, ids=str)
def test_maxroipool_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MAXROIPOOL, ids=str)
def test_maxroipool_jvp(sample):
    check_jvp(sample)


DEFORMCONV = [
    Sample(
        "",
        "DeformConv",
        1,
        0,
        {"X": [1, 2, 4, 5], "W": [2, 2, 2, 2], "offset": [1, 8, 3, 4]},
        {"range": {"offset": [-1.6, 1.6]}, "avoid": {"offset": [-1.0, 0.0, 1.0]}},
    ),
    Sample(
        "",
        "DeformConv",
        1,
        1,
        {"X": [2, 2, 4, 4], "W": [3, 2, 2, 1], "offset": [2, 4, 3, 4], "B": [3], "mask": [2, 2, 3, 4]},
        {"range": {"offset": [-1.6, 1.6]}, "avoid": {"offset": [-1.0, 0.0, 1.0]}},
    ),
    Sample(
        "",
        "DeformConv",
        1,
        2,
        {
            "X": [1, 4, 5, 5],
            "W": [2, 2, 2, 2],
            "offset": [1, 16, 3, 3],
            "B": [2],
            "mask": [1, 8, 3, 3],
            "group": 2,
            "offset_group": 2,
            "strides": [2, 2],
            "pads": [1, 0, 1, 1],
            "kernel_shape": [2, 2],
        },
        {"range": {"offset": [-1.6, 1.6]}, "avoid": {"offset": [-1.0, 0.0, 1.0]}},
    ),
    Sample(
        "",
        "DeformConv",
        1,
        3,
        {"X": [1, 2, 5, 6], "W": [1, 2, 2, 2], "offset": [1, 8, 3, 4], "dilations": [2, 2]},
        {"range": {"offset": [-1.6, 1.6]}, "avoid": {"offset": [-1.0, 0.0, 1.0]}},
    ),
    Sample(
        "",
        "DeformConv",
        1,
        4,
        {"X": [1, 4, 3, 4], "W": [4, 2, 1, 2], "offset": [1, 4, 3, 3], "group": 2},
        {"range": {"offset": [-1.6, 1.6]}, "avoid": {"offset": [-1.0, 0.0, 1.0]}},
    ),
    Sample(
        "",
        "DeformConv",
        1,
        5,
        {
            "X": [1, 2, 3, 3],
            "W": [2, 2, 1, 1],
            "offset": [1, 4, 5, 5],
            "offset_group": 2,
            "pads": [1, 1, 1, 1],
            "mask": [1, 2, 5, 5],
        },
        {"range": {"offset": [-1.6, 1.6]}, "avoid": {"offset": [-1.0, 0.0, 1.0]}},
    ),
]


@pytest.mark.parametrize("sample", DEFORMCONV, ids=str)
def test_deformconv_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", DEFORMCONV, ids=str)
def test_deformconv_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", DEFORMCONV, ids=str)
def test_deformconv_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", DEFORMCONV, ids=str)
def test_deformconv_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", DEFORMCONV, ids=str)
def test_deformconv_jvp(sample):
    check_jvp(sample)
