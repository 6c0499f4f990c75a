"""Finite-difference tests of family window. Do not edit: generated from gradgen/rules/window.toml."""

import pytest

from gradgen.testing import Sample, check_dynamic, check_first_order, check_float32, check_second_order

CONCAT = [
    Sample("", "Concat", 1, 0, {"inputs": [[2, 3], [1, 3], [4, 3]], "axis": 0}, {}),
    Sample("", "Concat", 1, 1, {"inputs": [[2, 3, 1], [2, 3, 2]], "axis": -1}, {}),
    Sample("", "Concat", 1, 2, {"inputs": [[2, 1, 2], [2, 3, 2]], "axis": -2}, {}),
    Sample("", "Concat", 1, 3, {"inputs": [[2, 3], [2, 0], [2, 1]], "axis": 1}, {}),
    Sample("", "Concat", 1, 4, {"inputs": [[3]], "axis": 0}, {}),
    Sample("", "Concat", 1, 5, {"inputs": [[0], [0]], "axis": 0}, {}),
]


@pytest.mark.parametrize("sample", CONCAT, ids=str)
def test_concat_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", CONCAT, ids=str)
def test_concat_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", CONCAT, ids=str)
def test_concat_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", CONCAT, ids=str)
def test_concat_second_order(sample):
    check_second_order(sample)
