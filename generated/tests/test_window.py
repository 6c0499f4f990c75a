"""Finite-difference tests of family window. Do not edit: generated from gradgen/rules/window.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

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


@pytest.mark.parametrize("sample", CONCAT, ids=str)
def test_concat_jvp(sample):
    check_jvp(sample)


SPLIT = [
    Sample("", "Split", 1, 0, {"input": [6, 2], "@outputs": ["a", "b", "c"], "num_outputs": 3}, {}),
    Sample("", "Split", 1, 1, {"input": [2, 7], "axis": 1, "@outputs": ["a", "b", "c"], "num_outputs": 3}, {}),
    Sample("", "Split", 1, 2, {"input": [2, 7], "axis": -1, "split": [3, 0, 4], "@outputs": ["a", "b", "c"]}, {}),
    Sample(
        "",
        "Split",
        1,
        3,
        {"input": [2, 7, 2], "axis": -2, "split": [2, 1, 4], "@outputs": ["a", "b", "c"], "@of": ["b"]},
        {},
    ),
    Sample(
        "", "Split", 1, 4, {"input": [7], "@outputs": ["a", "b", "c", "d"], "num_outputs": 4, "@of": ["a", "c"]}, {}
    ),
    Sample("", "Split", 1, 5, {"input": [4, 3], "split": [1, 3], "@outputs": ["a", "b"], "@of": ["b"]}, {}),
    Sample("", "Split", 1, 6, {"input": [4, 3], "split": [4], "@outputs": ["a"]}, {}),
    Sample("", "Split", 1, 7, {"input": [0, 3], "split": [0, 0], "@outputs": ["a", "b"], "@of": ["a"]}, {}),
]


@pytest.mark.parametrize("sample", SPLIT, ids=str)
def test_split_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SPLIT, ids=str)
def test_split_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SPLIT, ids=str)
def test_split_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SPLIT, ids=str)
def test_split_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SPLIT, ids=str)
def test_split_jvp(sample):
    check_jvp(sample)


SLICE = [
    Sample("", "Slice", 1, 0, {"data": [5, 4], "starts": [1], "ends": [4]}, {}),
    Sample("", "Slice", 1, 1, {"data": [5, 4], "starts": [-3, 0], "ends": [-1, 2147483647], "axes": [0, -1]}, {}),
    Sample("", "Slice", 1, 2, {"data": [5, 4], "starts": [0, 1], "ends": [100, -1]}, {}),
    Sample(
        "",
        "Slice",
        1,
        3,
        {"data": [2, 7, 3], "starts": [1], "ends": [9223372036854775807], "axes": [1], "steps": [2]},
        {},
    ),
    Sample(
        "",
        "Slice",
        1,
        4,
        {"data": [2, 7], "starts": [-1], "ends": [-9223372036854775807], "axes": [1], "steps": [-1]},
        {},
    ),
    Sample(
        "", "Slice", 1, 5, {"data": [5, 8], "starts": [3, 6], "ends": [0, -100], "axes": [0, 1], "steps": [-1, -3]}, {}
    ),
    Sample("", "Slice", 1, 6, {"data": [7, 6], "starts": [1, 0], "ends": [100, 6], "steps": [3, 2]}, {}),
    Sample("", "Slice", 1, 7, {"data": [5, 3], "starts": [4], "ends": [2]}, {}),
    Sample("", "Slice", 1, 8, {"data": [5, 3], "starts": [-10], "ends": [3], "axes": [0], "steps": [4]}, {}),
    Sample("", "Slice", 1, 9, {"data": [0, 3], "starts": [0], "ends": [2], "axes": [1]}, {}),
    Sample("", "Slice", 1, 10, {"data": [4], "starts": [-100], "ends": [100], "steps": [1], "axes": [0]}, {}),
]


@pytest.mark.parametrize("sample", SLICE, ids=str)
def test_slice_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SLICE, ids=str)
def test_slice_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SLICE, ids=str)
def test_slice_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SLICE, ids=str)
def test_slice_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SLICE, ids=str)
def test_slice_jvp(sample):
    check_jvp(sample)


TILE = [
    Sample("", "Tile", 1, 0, {"input": [2, 3], "repeats": [2, 2]}, {}),
    Sample("", "Tile", 1, 1, {"input": [2, 1, 3], "repeats": [1, 4, 1]}, {}),
    Sample("", "Tile", 1, 2, {"input": [2, 1, 3], "repeats": [2, 3, 1]}, {}),
    Sample("", "Tile", 1, 3, {"input": [2, 3], "repeats": [1, 1]}, {}),
    Sample("", "Tile", 1, 4, {"input": [3], "repeats": [3]}, {}),
    Sample("", "Tile", 1, 5, {"input": [2, 3], "repeats": [0, 2]}, {}),
    Sample("", "Tile", 1, 6, {"input": [0, 3], "repeats": [2, 2]}, {}),
]


@pytest.mark.parametrize("sample", TILE, ids=str)
def test_tile_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", TILE, ids=str)
def test_tile_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", TILE, ids=str)
def test_tile_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", TILE, ids=str)
def test_tile_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", TILE, ids=str)
def test_tile_jvp(sample):
    check_jvp(sample)


COMPRESS = [
    Sample("", "Compress", 1, 0, {"input": [3, 4], "condition": [True, False, True], "axis": 0}, {}),
    Sample("", "Compress", 1, 1, {"input": [3, 4], "condition": [False, True, True], "axis": -1}, {}),
    Sample("", "Compress", 1, 2, {"input": [3, 4], "condition": [True, False, False, True, False, True]}, {}),
    Sample("", "Compress", 1, 3, {"input": [2, 2], "condition": [False, False], "axis": 0}, {}),
    Sample("", "Compress", 1, 4, {"input": [3, 2], "condition": [False, False, False], "axis": 0}, {}),
    Sample("", "Compress", 1, 5, {"input": [0, 2], "condition": [True], "axis": 1}, {}),
]


@pytest.mark.parametrize("sample", COMPRESS, ids=str)
def test_compress_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", COMPRESS, ids=str)
def test_compress_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", COMPRESS, ids=str)
def test_compress_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", COMPRESS, ids=str)
def test_compress_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", COMPRESS, ids=str)
def test_compress_jvp(sample):
    check_jvp(sample)
