"""Finite-difference tests of family conv. Do not edit: generated from gradgen/rules/conv.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

CONV = [
    Sample("", "Conv", 1, 0, {"X": [2, 3, 5, 4], "W": [4, 3, 3, 2], "B": [4]}, {}),
    Sample("", "Conv", 1, 1, {"X": [2, 2, 7], "W": [3, 2, 3], "strides": [2], "pads": [1, 2], "dilations": [2]}, {}),
    Sample(
        "",
        "Conv",
        1,
        2,
        {"X": [1, 2, 4, 5, 3], "W": [2, 2, 2, 3, 1], "B": [2], "strides": [2, 1, 2], "pads": [1, 0, 0, 0, 1, 0]},
        {},
    ),
    Sample(
        "",
        "Conv",
        1,
        3,
        {"X": [2, 4, 5, 5], "W": [6, 2, 2, 2], "B": [6], "group": 2, "pads": [1, 1, 1, 1], "strides": [2, 2]},
        {},
    ),
    Sample("", "Conv", 1, 4, {"X": [1, 3, 5, 4], "W": [3, 1, 3, 3], "group": 3, "pads": [1, 1, 1, 1]}, {}),
    Sample("", "Conv", 1, 5, {"X": [1, 2, 6, 5], "W": [4, 1, 2, 2], "group": 2, "strides": [3, 2]}, {}),
    Sample("", "Conv", 1, 6, {"X": [2, 3, 4, 3], "W": [4, 3, 1, 1], "B": [4]}, {}),
    Sample("", "Conv", 1, 7, {"X": [2, 3, 5, 4], "W": [2, 3, 1, 1], "strides": [2, 3]}, {}),
    Sample("", "Conv", 1, 8, {"X": [2, 3, 4], "W": [2, 3, 1], "pads": [1, 1], "kernel_shape": [1]}, {}),
    Sample("", "Conv", 1, 9, {"X": [1, 2, 5, 6], "W": [2, 2, 3, 2], "auto_pad": "SAME_UPPER"}, {}),
    Sample(
        "",
        "Conv",
        1,
        10,
        {"X": [1, 2, 5, 6], "W": [2, 2, 3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2], "kernel_shape": [3, 2]},
        {},
    ),
    Sample("", "Conv", 1, 11, {"X": [1, 2, 7, 6], "W": [2, 2, 2, 1], "auto_pad": "SAME_UPPER", "strides": [3, 2]}, {}),
    Sample("", "Conv", 1, 12, {"X": [1, 2, 6, 6], "W": [2, 2, 3, 2], "auto_pad": "VALID", "strides": [2, 3]}, {}),
    Sample("", "Conv", 1, 13, {"X": [0, 2, 4, 4], "W": [3, 2, 2, 2], "B": [3]}, {}),
    Sample("", "Conv", 1, 14, {"X": [2, 2, 24, 5], "W": [1, 2, 3, 3], "B": [1], "pads": [1, 1, 1, 1]}, {}),
    Sample(
        "",
        "Conv",
        1,
        15,
        {"X": [1, 2, 24, 7], "W": [1, 2, 4, 2], "pads": [3, 0, 2, 1], "strides": [1, 2], "dilations": [2, 3]},
        {},
    ),
    Sample("", "Conv", 1, 16, {"X": [1, 4, 6], "W": [2, 4, 3], "pads": [1, 2], "dilations": [2]}, {}),
    Sample("", "Conv", 1, 17, {"X": [1, 2, 4, 3], "W": [1, 2, 2, 1], "pads": [1, 0, 2, 0]}, {}),
    Sample(
        "",
        "Conv",
        1,
        18,
        {
            "X": [2, 3, 6, 5],
            "W": [3, 1, 3, 2],
            "B": [3],
            "group": 3,
            "strides": [2, 3],
            "dilations": [1, 2],
            "pads": [1, 0, 0, 2],
        },
        {},
    ),
    Sample("", "Conv", 1, 19, {"X": [1, 2, 8, 4], "W": [2, 1, 2, 2], "group": 2, "strides": [3, 3]}, {}),
    Sample("", "Conv", 1, 20, {"X": [1, 32, 4, 5], "W": [64, 32, 3, 3], "B": [64], "pads": [1, 1, 1, 0]}, {}),
]


@pytest.mark.parametrize("sample", CONV, ids=str)
def test_conv_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", CONV, ids=str)
def test_conv_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", CONV, ids=str)
def test_conv_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", CONV, ids=str)
def test_conv_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", CONV, ids=str)
def test_conv_jvp(sample):
    check_jvp(sample)


CONVTRANSPOSE = [
    Sample("", "ConvTranspose", 1, 0, {"X": [2, 3, 3, 4], "W": [3, 2, 2, 3], "B": [2]}, {}),
    Sample(
        "",
        "ConvTranspose",
        1,
        1,
        {"X": [2, 2, 4], "W": [2, 3, 3], "strides": [2], "pads": [1, 2], "output_padding": [1]},
        {},
    ),
    Sample("", "ConvTranspose", 1, 2, {"X": [2, 2, 4], "W": [2, 3, 3], "strides": [3], "output_padding": [2]}, {}),
    Sample(
        "",
        "ConvTranspose",
        1,
        3,
        {"X": [1, 2, 3, 2, 2], "W": [2, 2, 2, 3, 1], "strides": [1, 2, 2], "pads": [0, 1, 0, 1, 0, 0], "B": [2]},
        {},
    ),
    Sample(
        "", "ConvTranspose", 1, 4, {"X": [1, 4, 3, 3], "W": [4, 3, 2, 2], "group": 2, "B": [6], "strides": [2, 1]}, {}
    ),
    Sample("", "ConvTranspose", 1, 5, {"X": [1, 3, 4, 3], "W": [3, 1, 3, 3], "group": 3, "pads": [1, 1, 1, 1]}, {}),
    Sample("", "ConvTranspose", 1, 6, {"X": [1, 2, 4, 3], "W": [2, 2, 3, 2], "dilations": [2, 3]}, {}),
    Sample(
        "",
        "ConvTranspose",
        1,
        7,
        {"X": [1, 2, 4, 3], "W": [2, 2, 3, 4], "auto_pad": "SAME_UPPER", "strides": [2, 3]},
        {},
    ),
    Sample(
        "",
        "ConvTranspose",
        1,
        8,
        {"X": [1, 2, 4, 3], "W": [2, 2, 3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 1], "kernel_shape": [3, 2]},
        {},
    ),
    Sample(
        "", "ConvTranspose", 1, 9, {"X": [1, 2, 4, 3], "W": [2, 2, 3, 3], "auto_pad": "VALID", "strides": [2, 1]}, {}
    ),
    Sample(
        "",
        "ConvTranspose",
        1,
        10,
        {"X": [1, 2, 4, 3], "W": [2, 2, 3, 3], "output_shape": [8, 4], "strides": [2, 1]},
        {},
    ),
    Sample(
        "",
        "ConvTranspose",
        1,
        11,
        {"X": [1, 2, 4], "W": [2, 2, 4], "output_shape": [9], "strides": [2], "auto_pad": "SAME_UPPER"},
        {},
    ),
    Sample("", "ConvTranspose", 1, 12, {"X": [0, 2, 4], "W": [2, 3, 3]}, {}),
]


@pytest.mark.parametrize("sample", CONVTRANSPOSE, ids=str)
def test_convtranspose_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", CONVTRANSPOSE, ids=str)
def test_convtranspose_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", CONVTRANSPOSE, ids=str)
def test_convtranspose_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", CONVTRANSPOSE, ids=str)
def test_convtranspose_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", CONVTRANSPOSE, ids=str)
def test_convtranspose_jvp(sample):
    check_jvp(sample)


COL2IM = [
    Sample("", "Col2Im", 1, 0, {"input": [1, 8, 12], "image_shape": [4, 5], "block_shape": [2, 2]}, {}),
    Sample(
        "",
        "Col2Im",
        1,
        1,
        {"input": [2, 6, 4], "image_shape": [5, 4], "block_shape": [3, 2], "strides": [2, 2], "pads": [0, 0, 1, 0]},
        {},
    ),
    Sample(
        "",
        "Col2Im",
        1,
        2,
        {"input": [2, 3, 3], "image_shape": [7], "block_shape": [3], "dilations": [2], "strides": [1]},
        {},
    ),
    Sample("", "Col2Im", 1, 3, {"input": [1, 8, 4], "image_shape": [3, 3, 2], "block_shape": [2, 2, 2]}, {}),
    Sample("", "Col2Im", 1, 4, {"input": [0, 4, 9], "image_shape": [4, 4], "block_shape": [2, 2]}, {}),
]


@pytest.mark.parametrize("sample", COL2IM, ids=str)
def test_col2im_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", COL2IM, ids=str)
def test_col2im_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", COL2IM, ids=str)
def test_col2im_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", COL2IM, ids=str)
def test_col2im_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", COL2IM, ids=str)
def test_col2im_jvp(sample):
    check_jvp(sample)
