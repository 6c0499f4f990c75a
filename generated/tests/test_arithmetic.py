"""Finite-difference tests of family arithmetic. Do not edit: generated from gradgen/rules/arithmetic.toml."""

import pytest

from gradgen.testing import Sample, check_dynamic, check_first_order, check_float32, check_second_order

ADD = [
    Sample("", "Add", 1, 0, {"A": [3, 4], "B": [3, 4]}, {}),
    Sample("", "Add", 1, 1, {"A": [2, 1, 4], "B": [3, 1]}, {}),
]


@pytest.mark.parametrize("sample", ADD, ids=str)
def test_add_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ADD, ids=str)
def test_add_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ADD, ids=str)
def test_add_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ADD, ids=str)
def test_add_second_order(sample):
    check_second_order(sample)


MUL = [
    Sample("", "Mul", 1, 0, {"A": [3, 4], "B": [3, 4]}, {}),
    Sample("", "Mul", 1, 1, {"A": [2, 1, 4], "B": [3, 1]}, {}),
    Sample("", "Mul", 1, 2, {"A": [], "B": [2, 3]}, {}),
]


@pytest.mark.parametrize("sample", MUL, ids=str)
def test_mul_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MUL, ids=str)
def test_mul_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MUL, ids=str)
def test_mul_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MUL, ids=str)
def test_mul_second_order(sample):
    check_second_order(sample)
