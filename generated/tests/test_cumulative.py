"""Finite-difference tests of family cumulative. Do not edit: generated from gradgen/rules/cumulative.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

CUMPROD = [
    Sample("", "CumProd", 1, 0, {"@opset": 26, "x": [5], "axis": 0}, {}),
    Sample("", "CumProd", 1, 1, {"@opset": 26, "x": [2, 4, 3], "axis": 1, "exclusive": 1}, {}),
    Sample("", "CumProd", 1, 2, {"@opset": 26, "x": [3, 3], "axis": -1, "reverse": 1}, {}),
    Sample("", "CumProd", 1, 3, {"@opset": 26, "x": {"values": [[2.0, 0.0, 3.0, 0.5, 0.0, 1.5]]}, "axis": 1}, {}),
    Sample(
        "",
        "CumProd",
        1,
        4,
        {"@opset": 26, "x": {"values": [0.0, 2.0, 0.0, 3.0]}, "axis": 0, "exclusive": 1, "reverse": 1},
        {},
    ),
    Sample("", "CumProd", 1, 5, {"@opset": 26, "x": [0, 3], "axis": 0}, {}),
    Sample("", "CumProd", 1, 6, {"@opset": 26, "x": [2, 1], "axis": 1}, {}),
]


@pytest.mark.parametrize("sample", CUMPROD, ids=str)
def test_cumprod_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", CUMPROD, ids=str)
def test_cumprod_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", CUMPROD, ids=str)
def test_cumprod_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", CUMPROD, ids=str)
def test_cumprod_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", CUMPROD, ids=str)
def test_cumprod_jvp(sample):
    check_jvp(sample)
