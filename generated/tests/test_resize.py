"""Finite-difference tests of family resize. Do not edit: generated from gradgen/rules/resize.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

RESIZE = [
    Sample("", "Resize", 1, 0, {"X": [1, 2, 3, 4], "scales": {"values": [1, 1, 2, 3]}}, {}),
    Sample(
        "",
        "Resize",
        1,
        1,
        {
            "X": [1, 2, 3, 4],
            "scales": {"values": [1, 1, 2, 2]},
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        },
        {},
    ),
    Sample(
        "",
        "Resize",
        1,
        2,
        {
            "X": [1, 2, 4, 5],
            "sizes": [1, 2, 3, 7],
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "ceil",
        },
        {},
    ),
    Sample("", "Resize", 1, 3, {"X": [2, 5], "scales": {"values": [0.6, 1.7]}, "nearest_mode": "floor"}, {}),
    Sample("", "Resize", 1, 4, {"X": [1, 2, 3, 4], "scales": {"values": [1, 1, 2, 2]}, "mode": "linear"}, {}),
    Sample(
        "",
        "Resize",
        1,
        5,
        {"X": [1, 2, 3, 4], "sizes": [1, 2, 5, 7], "mode": "linear", "coordinate_transformation_mode": "align_corners"},
        {},
    ),
    Sample(
        "",
        "Resize",
        1,
        6,
        {
            "X": [1, 1, 4, 5],
            "sizes": [2, 8],
            "axes": [2, 3],
            "mode": "linear",
            "coordinate_transformation_mode": "pytorch_half_pixel",
        },
        {},
    ),
    Sample(
        "",
        "Resize",
        1,
        7,
        {
            "X": [1, 1, 5, 6],
            "scales": {"values": [0.6, 1.7]},
            "axes": [2, 3],
            "mode": "linear",
            "coordinate_transformation_mode": "half_pixel_symmetric",
        },
        {},
    ),
    Sample("", "Resize", 1, 8, {"X": [1, 1, 4, 5], "sizes": [1, 1, 7, 3], "mode": "cubic"}, {}),
    Sample(
        "",
        "Resize",
        1,
        9,
        {
            "X": [1, 1, 5, 4],
            "scales": {"values": [1, 1, 1.6, 0.7]},
            "mode": "cubic",
            "exclude_outside": 1,
            "cubic_coeff_a": -0.5,
            "coordinate_transformation_mode": "asymmetric",
        },
        {},
    ),
    Sample(
        "",
        "Resize",
        1,
        10,
        {"X": [1, 1, 7, 6], "scales": {"values": [1, 1, 0.5, 0.6]}, "mode": "linear", "antialias": 1},
        {},
    ),
    Sample("", "Resize", 1, 11, {"X": [1, 1, 7, 6], "sizes": [1, 1, 4, 3], "mode": "cubic", "antialias": 1}, {}),
    Sample(
        "",
        "Resize",
        1,
        12,
        {
            "X": [1, 2, 4, 5],
            "roi": {"values": [0.2, 0.1, 0.8, 1.2], "constant": True},
            "sizes": [3, 6],
            "axes": [2, 3],
            "mode": "linear",
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "extrapolation_value": 2.0,
        },
        {},
    ),
    Sample(
        "",
        "Resize",
        1,
        13,
        {
            "X": [1, 1, 4, 5],
            "sizes": [7, 8],
            "axes": [2, 3],
            "mode": "linear",
            "keep_aspect_ratio_policy": "not_larger",
        },
        {},
    ),
    Sample(
        "",
        "Resize",
        1,
        14,
        {"X": [1, 1, 4, 5], "sizes": [6, 9], "axes": [2, 3], "keep_aspect_ratio_policy": "not_smaller"},
        {},
    ),
    Sample("", "Resize", 1, 15, {"X": [1, 1, 2, 3, 3], "scales": {"values": [1, 1, 2, 1.5, 1]}, "mode": "linear"}, {}),
    Sample("", "Resize", 1, 16, {"X": [1, 2, 3], "scales": {"values": [1, 1, 2]}}, {}),
]


@pytest.mark.parametrize("sample", RESIZE, ids=str)
def test_resize_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", RESIZE, ids=str)
def test_resize_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", RESIZE, ids=str)
def test_resize_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", RESIZE, ids=str)
def test_resize_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", RESIZE, ids=str)
def test_resize_jvp(sample):
    check_jvp(sample)
