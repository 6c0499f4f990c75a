"""Finite-difference tests of family trig. Do not edit: generated from gradgen/rules/trig.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

SIN = [
    Sample("", "Sin", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Sin", 1, 1, {"input": [2, 1, 3]}, {}),
    Sample("", "Sin", 1, 2, {"input": []}, {}),
    Sample("", "Sin", 1, 3, {"input": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", SIN, ids=str)
def test_sin_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SIN, ids=str)
def test_sin_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SIN, ids=str)
def test_sin_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SIN, ids=str)
def test_sin_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SIN, ids=str)
def test_sin_jvp(sample):
    check_jvp(sample)


COS = [
    Sample("", "Cos", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Cos", 1, 1, {"input": [2, 1, 3]}, {}),
    Sample("", "Cos", 1, 2, {"input": []}, {}),
    Sample("", "Cos", 1, 3, {"input": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", COS, ids=str)
def test_cos_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", COS, ids=str)
def test_cos_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", COS, ids=str)
def test_cos_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", COS, ids=str)
def test_cos_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", COS, ids=str)
def test_cos_jvp(sample):
    check_jvp(sample)


TAN = [
    Sample("", "Tan", 1, 0, {"input": [3, 4]}, {"range": {"input": [-1.2, 1.2]}}),
    Sample("", "Tan", 1, 1, {"input": [2, 1, 3]}, {"range": {"input": [-1.2, 1.2]}}),
    Sample("", "Tan", 1, 2, {"input": []}, {"range": {"input": [-1.2, 1.2]}}),
    Sample("", "Tan", 1, 3, {"input": [0, 2]}, {"range": {"input": [-1.2, 1.2]}}),
]


@pytest.mark.parametrize("sample", TAN, ids=str)
def test_tan_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", TAN, ids=str)
def test_tan_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", TAN, ids=str)
def test_tan_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", TAN, ids=str)
def test_tan_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", TAN, ids=str)
def test_tan_jvp(sample):
    check_jvp(sample)


ASIN = [
    Sample("", "Asin", 1, 0, {"input": [3, 4]}, {"range": {"input": [-0.9, 0.9]}}),
    Sample("", "Asin", 1, 1, {"input": [2, 1, 3]}, {"range": {"input": [-0.9, 0.9]}}),
    Sample("", "Asin", 1, 2, {"input": []}, {"range": {"input": [-0.9, 0.9]}}),
    Sample("", "Asin", 1, 3, {"input": [0, 2]}, {"range": {"input": [-0.9, 0.9]}}),
]


@pytest.mark.parametrize("sample", ASIN, ids=str)
def test_asin_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ASIN, ids=str)
def test_asin_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ASIN, ids=str)
def test_asin_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ASIN, ids=str)
def test_asin_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ASIN, ids=str)
def test_asin_jvp(sample):
    check_jvp(sample)


ACOS = [
    Sample("", "Acos", 1, 0, {"input": [3, 4]}, {"range": {"input": [-0.9, 0.9]}}),
    Sample("", "Acos", 1, 1, {"input": [2, 1, 3]}, {"range": {"input": [-0.9, 0.9]}}),
    Sample("", "Acos", 1, 2, {"input": []}, {"range": {"input": [-0.9, 0.9]}}),
    Sample("", "Acos", 1, 3, {"input": [0, 2]}, {"range": {"input": [-0.9, 0.9]}}),
]


@pytest.mark.parametrize("sample", ACOS, ids=str)
def test_acos_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ACOS, ids=str)
def test_acos_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ACOS, ids=str)
def test_acos_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ACOS, ids=str)
def test_acos_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ACOS, ids=str)
def test_acos_jvp(sample):
    check_jvp(sample)


ATAN = [
    Sample("", "Atan", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Atan", 1, 1, {"input": [2, 1, 3]}, {}),
    Sample("", "Atan", 1, 2, {"input": []}, {}),
    Sample("", "Atan", 1, 3, {"input": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", ATAN, ids=str)
def test_atan_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ATAN, ids=str)
def test_atan_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ATAN, ids=str)
def test_atan_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ATAN, ids=str)
def test_atan_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ATAN, ids=str)
def test_atan_jvp(sample):
    check_jvp(sample)


SINH = [
    Sample("", "Sinh", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Sinh", 1, 1, {"input": [2, 1, 3]}, {}),
    Sample("", "Sinh", 1, 2, {"input": []}, {}),
    Sample("", "Sinh", 1, 3, {"input": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", SINH, ids=str)
def test_sinh_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SINH, ids=str)
def test_sinh_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SINH, ids=str)
def test_sinh_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SINH, ids=str)
def test_sinh_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SINH, ids=str)
def test_sinh_jvp(sample):
    check_jvp(sample)


COSH = [
    Sample("", "Cosh", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Cosh", 1, 1, {"input": [2, 1, 3]}, {}),
    Sample("", "Cosh", 1, 2, {"input": []}, {}),
    Sample("", "Cosh", 1, 3, {"input": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", COSH, ids=str)
def test_cosh_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", COSH, ids=str)
def test_cosh_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", COSH, ids=str)
def test_cosh_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", COSH, ids=str)
def test_cosh_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", COSH, ids=str)
def test_cosh_jvp(sample):
    check_jvp(sample)


TANH = [
    Sample("", "Tanh", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Tanh", 1, 1, {"input": [2, 1, 3]}, {}),
    Sample("", "Tanh", 1, 2, {"input": []}, {}),
    Sample("", "Tanh", 1, 3, {"input": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", TANH, ids=str)
def test_tanh_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", TANH, ids=str)
def test_tanh_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", TANH, ids=str)
def test_tanh_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", TANH, ids=str)
def test_tanh_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", TANH, ids=str)
def test_tanh_jvp(sample):
    check_jvp(sample)


ASINH = [
    Sample("", "Asinh", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Asinh", 1, 1, {"input": [2, 1, 3]}, {}),
    Sample("", "Asinh", 1, 2, {"input": []}, {}),
    Sample("", "Asinh", 1, 3, {"input": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", ASINH, ids=str)
def test_asinh_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ASINH, ids=str)
def test_asinh_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ASINH, ids=str)
def test_asinh_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ASINH, ids=str)
def test_asinh_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ASINH, ids=str)
def test_asinh_jvp(sample):
    check_jvp(sample)


ACOSH = [
    Sample("", "Acosh", 1, 0, {"input": [3, 4]}, {"range": {"input": [1.2, 3.0]}}),
    Sample("", "Acosh", 1, 1, {"input": [2, 1, 3]}, {"range": {"input": [1.2, 3.0]}}),
    Sample("", "Acosh", 1, 2, {"input": []}, {"range": {"input": [1.2, 3.0]}}),
    Sample("", "Acosh", 1, 3, {"input": [0, 2]}, {"range": {"input": [1.2, 3.0]}}),
]


@pytest.mark.parametrize("sample", ACOSH, ids=str)
def test_acosh_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ACOSH, ids=str)
def test_acosh_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ACOSH, ids=str)
def test_acosh_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ACOSH, ids=str)
def test_acosh_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ACOSH, ids=str)
def test_acosh_jvp(sample):
    check_jvp(sample)


ATANH = [
    Sample("", "Atanh", 1, 0, {"input": [3, 4]}, {"range": {"input": [-0.8, 0.8]}}),
    Sample("", "Atanh", 1, 1, {"input": [2, 1, 3]}, {"range": {"input": [-0.8, 0.8]}}),
    Sample("", "Atanh", 1, 2, {"input": []}, {"range": {"input": [-0.8, 0.8]}}),
    Sample("", "Atanh", 1, 3, {"input": [0, 2]}, {"range": {"input": [-0.8, 0.8]}}),
]


@pytest.mark.parametrize("sample", ATANH, ids=str)
def test_atanh_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ATANH, ids=str)
def test_atanh_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ATANH, ids=str)
def test_atanh_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ATANH, ids=str)
def test_atanh_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ATANH, ids=str)
def test_atanh_jvp(sample):
    check_jvp(sample)


ERF = [
    Sample("", "Erf", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Erf", 1, 1, {"input": [2, 1, 3]}, {}),
    Sample("", "Erf", 1, 2, {"input": []}, {}),
    Sample("", "Erf", 1, 3, {"input": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", ERF, ids=str)
def test_erf_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ERF, ids=str)
def test_erf_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ERF, ids=str)
def test_erf_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ERF, ids=str)
def test_erf_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ERF, ids=str)
def test_erf_jvp(sample):
    check_jvp(sample)
