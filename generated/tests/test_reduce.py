"""Finite-difference tests of family reduce. Do not edit: generated from gradgen/rules/reduce.toml."""

import pytest

from gradgen.testing import Sample, check_dynamic, check_first_order, check_float32, check_second_order

REDUCESUM = [
    Sample("", "ReduceSum", 1, 0, {"data": [3, 4], "axes": [1]}, {}),
    Sample("", "ReduceSum", 1, 1, {"data": [2, 3, 4], "axes": [0, -1], "keepdims": 0}, {}),
    Sample("", "ReduceSum", 1, 2, {"data": [2, 3]}, {}),
    Sample("", "ReduceSum", 1, 3, {"data": [2, 3], "keepdims": 0}, {}),
    Sample("", "ReduceSum", 1, 4, {"data": [2, 3], "axes": [], "keepdims": 0}, {}),
    Sample("", "ReduceSum", 1, 5, {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1}, {}),
    Sample("", "ReduceSum", 1, 6, {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0}, {}),
    Sample("", "ReduceSum", 1, 7, {"data": [], "keepdims": 0}, {}),
    Sample("", "ReduceSum", 1, 8, {"data": [0, 3], "axes": [0]}, {}),
    Sample("", "ReduceSum", 1, 9, {"data": [0, 3], "axes": [1], "keepdims": 0}, {}),
]


@pytest.mark.parametrize("sample", REDUCESUM, ids=str)
def test_reducesum_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCESUM, ids=str)
def test_reducesum_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCESUM, ids=str)
def test_reducesum_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCESUM, ids=str)
def test_reducesum_second_order(sample):
    check_second_order(sample)


REDUCEMEAN = [
    Sample("", "ReduceMean", 1, 0, {"data": [3, 4], "axes": [1]}, {}),
    Sample("", "ReduceMean", 1, 1, {"data": [2, 3, 4], "axes": [0, -1], "keepdims": 0}, {}),
    Sample("", "ReduceMean", 1, 2, {"data": [2, 3]}, {}),
    Sample("", "ReduceMean", 1, 3, {"data": [2, 3], "axes": [], "keepdims": 0}, {}),
    Sample("", "ReduceMean", 1, 4, {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1}, {}),
    Sample("", "ReduceMean", 1, 5, {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0}, {}),
    Sample("", "ReduceMean", 1, 6, {"data": [], "keepdims": 0}, {}),
    Sample("", "ReduceMean", 1, 7, {"data": [0, 3], "axes": [1], "keepdims": 0}, {}),
]


@pytest.mark.parametrize("sample", REDUCEMEAN, ids=str)
def test_reducemean_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCEMEAN, ids=str)
def test_reducemean_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCEMEAN, ids=str)
def test_reducemean_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCEMEAN, ids=str)
def test_reducemean_second_order(sample):
    check_second_order(sample)
