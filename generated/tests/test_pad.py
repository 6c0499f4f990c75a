"""Finite-difference tests of family pad. Do not edit: generated from gradgen/rules/pad.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

PAD = [
    Sample("", "Pad", 1, 0, {"data": [2, 3], "pads": [1, 0, 0, 2]}, {}),
    Sample("", "Pad", 1, 1, {"data": [2, 3], "pads": [1, 0, 0, 2], "constant_value": [], "mode": "constant"}, {}),
    Sample("", "Pad", 1, 2, {"data": [2, 5, 3], "pads": [2, 1], "constant_value": [], "axes": [-2]}, {}),
    Sample("", "Pad", 1, 3, {"data": [4, 5], "pads": [1, -2, -1, 3], "constant_value": []}, {}),
    Sample("", "Pad", 1, 4, {"data": [4, 5], "pads": [-1, -2, -1, 0]}, {}),
    Sample("", "Pad", 1, 5, {"data": [3, 4], "pads": [0, 0, 0, 0]}, {}),
    Sample("", "Pad", 1, 6, {"data": [0, 2], "pads": [1, 0, 2, 1], "constant_value": []}, {}),
    Sample("", "Pad", 1, 7, {"data": [3, 4], "pads": [2, 1, 0, 3], "mode": "edge"}, {}),
    Sample("", "Pad", 1, 8, {"data": [2, 4, 3], "pads": [2, 1, 1, 2], "axes": [1, -1], "mode": "reflect"}, {}),
    Sample("", "Pad", 1, 9, {"data": [3, 4], "pads": [2, 3, 1, 4], "mode": "wrap"}, {}),
    Sample("", "Pad", 1, 10, {"data": [3, 6], "pads": [-1, 2, 2, -2], "mode": "edge"}, {}),
    Sample("", "Pad", 1, 11, {"data": [5], "pads": [-1, 2], "mode": "reflect"}, {}),
    Sample("", "Pad", 1, 12, {"data": [1, 3], "pads": [2, 1, 1, 7], "mode": "wrap"}, {}),
]


@pytest.mark.parametrize("sample", PAD, ids=str)
def test_pad_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", PAD, ids=str)
def test_pad_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", PAD, ids=str)
def test_pad_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", PAD, ids=str)
def test_pad_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", PAD, ids=str)
def test_pad_jvp(sample):
    check_jvp(sample)
