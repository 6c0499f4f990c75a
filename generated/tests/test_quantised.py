"""Finite-difference tests of family quantised. Do not edit: generated from gradgen/rules/quantised.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_forward,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

DEQUANTIZELINEAR = [
    Sample(
        "",
        "DequantizeLinear",
        1,
        0,
        {
            "x": {"values": [[1, -2, 3], [4, 0, -6]], "dtype": "int8", "constant": True},
            "x_scale": {"shape": [], "constant": False},
            "x_zero_point": {"values": 2, "dtype": "int8", "constant": True},
            "@single": True,
        },
        {},
    ),
    Sample(
        "",
        "DequantizeLinear",
        1,
        1,
        {
            "x": {"values": [[1, -2, 3], [4, 0, -6]], "dtype": "int8", "constant": True},
            "x_scale": {"shape": [3], "constant": False},
            "axis": 1,
            "@single": True,
        },
        {},
    ),
    Sample(
        "",
        "DequantizeLinear",
        1,
        2,
        {
            "x": {"values": [[1, -2, 3], [4, 0, -6]], "dtype": "int8", "constant": True},
            "x_scale": {"shape": [2], "constant": False},
            "x_zero_point": {"values": [1, 2], "dtype": "int8", "constant": True},
            "axis": -2,
            "@single": True,
        },
        {},
    ),
    Sample(
        "",
        "DequantizeLinear",
        1,
        3,
        {
            "x": {"values": [[1, 2, 3, 7, 5], [4, 0, 6, 8, 9]], "dtype": "uint8", "constant": True},
            "x_scale": {"shape": [2, 3], "constant": False},
            "x_zero_point": {"values": [[1, 2, 3], [4, 5, 6]], "dtype": "uint8", "constant": True},
            "axis": 1,
            "block_size": 2,
            "@single": True,
        },
        {},
    ),
    Sample(
        "",
        "DequantizeLinear",
        1,
        4,
        {
            "x": {"values": [[1, 2, 3], [4, 0, 6], [1, 1, 0]], "dtype": "int32", "constant": True},
            "x_scale": {"shape": [2, 3], "constant": False},
            "axis": 0,
            "block_size": 2,
            "@single": True,
        },
        {},
    ),
    Sample(
        "",
        "DequantizeLinear",
        1,
        5,
        {
            "x": {"values": [[1, 2], [4, 0]], "dtype": "int8", "constant": True},
            "x_scale": {"shape": [1], "constant": False},
            "@single": True,
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", DEQUANTIZELINEAR, ids=str)
def test_dequantizelinear_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", DEQUANTIZELINEAR, ids=str)
def test_dequantizelinear_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", DEQUANTIZELINEAR, ids=str)
def test_dequantizelinear_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", DEQUANTIZELINEAR, ids=str)
def test_dequantizelinear_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", DEQUANTIZELINEAR, ids=str)
def test_dequantizelinear_jvp(sample):
    check_jvp(sample)


DYNAMICQUANTIZELINEAR = [
    Sample(
        "",
        "DynamicQuantizeLinear",
        1,
        0,
        {"x": {"shape": [3, 4], "constant": False}, "@outputs": ["y", "y_scale", "y_zero_point"]},
        {},
    ),
    Sample(
        "",
        "DynamicQuantizeLinear",
        1,
        1,
        {"x": {"shape": [5], "low": 0.5, "high": 2.0, "constant": False}, "@outputs": ["y", "y_scale", "y_zero_point"]},
        {},
    ),
    Sample(
        "",
        "DynamicQuantizeLinear",
        1,
        2,
        {
            "x": {"shape": [2, 2], "low": -2.0, "high": -0.5, "constant": False},
            "@outputs": ["y", "y_scale", "y_zero_point"],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", DYNAMICQUANTIZELINEAR, ids=str)
def test_dynamicquantizelinear_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", DYNAMICQUANTIZELINEAR, ids=str)
def test_dynamicquantizelinear_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", DYNAMICQUANTIZELINEAR, ids=str)
def test_dynamicquantizelinear_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", DYNAMICQUANTIZELINEAR, ids=str)
def test_dynamicquantizelinear_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", DYNAMICQUANTIZELINEAR, ids=str)
def test_dynamicquantizelinear_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", DYNAMICQUANTIZELINEAR, ids=str)
def test_dynamicquantizelinear_forward(sample):
    check_forward(sample)


MICROSOFT_DYNAMICQUANTIZEMATMUL = [
    Sample(
        "com.microsoft",
        "DynamicQuantizeMatMul",
        1,
        0,
        {
            "A": [3, 4],
            "B": {"values": [[1, -2], [3, 4], [0, -6], [7, 5]], "dtype": "int8", "constant": True},
            "b_scale": {"shape": [], "low": 0.1, "high": 0.5},
            "b_zero_point": {"values": 1, "dtype": "int8", "constant": True},
            "bias": [2],
            "@wrt": ["b_scale", "bias"],
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "DynamicQuantizeMatMul",
        1,
        1,
        {
            "A": [3, 4],
            "B": {"values": [[1, -2], [3, 4], [0, -6], [7, 5]], "dtype": "int8", "constant": True},
            "b_scale": {"shape": [2], "low": 0.1, "high": 0.5},
            "@wrt": ["b_scale"],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", MICROSOFT_DYNAMICQUANTIZEMATMUL, ids=str)
def test_microsoft_dynamicquantizematmul_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_DYNAMICQUANTIZEMATMUL, ids=str)
def test_microsoft_dynamicquantizematmul_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_DYNAMICQUANTIZEMATMUL, ids=str)
def test_microsoft_dynamicquantizematmul_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_DYNAMICQUANTIZEMATMUL, ids=str)
def test_microsoft_dynamicquantizematmul_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_DYNAMICQUANTIZEMATMUL, ids=str)
def test_microsoft_dynamicquantizematmul_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_DYNAMICQUANTIZEMATMUL, ids=str)
def test_microsoft_dynamicquantizematmul_forward(sample):
    check_forward(sample)


MICROSOFT_MATMULINTEGERTOFLOAT = [
    Sample(
        "com.microsoft",
        "MatMulIntegerToFloat",
        1,
        0,
        {
            "A": {"values": [[1, 2], [3, 4]], "dtype": "uint8", "constant": True},
            "B": {"values": [[1, -2], [3, 4]], "dtype": "int8", "constant": True},
            "a_scale": {"shape": [], "low": 0.1, "high": 0.5},
            "b_scale": {"shape": [], "low": 0.1, "high": 0.5},
            "a_zero_point": {"values": 1, "dtype": "uint8", "constant": True},
            "bias": [2],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", MICROSOFT_MATMULINTEGERTOFLOAT, ids=str)
def test_microsoft_matmulintegertofloat_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_MATMULINTEGERTOFLOAT, ids=str)
def test_microsoft_matmulintegertofloat_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_MATMULINTEGERTOFLOAT, ids=str)
def test_microsoft_matmulintegertofloat_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_MATMULINTEGERTOFLOAT, ids=str)
def test_microsoft_matmulintegertofloat_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_MATMULINTEGERTOFLOAT, ids=str)
def test_microsoft_matmulintegertofloat_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_MATMULINTEGERTOFLOAT, ids=str)
def test_microsoft_matmulintegertofloat_forward(sample):
    check_forward(sample)
