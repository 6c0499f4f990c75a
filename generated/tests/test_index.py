"""Finite-difference tests of family index. Do not edit: generated from gradgen/rules/index.toml."""

import pytest

from gradgen.testing import Sample, check_dynamic, check_first_order, check_float32, check_second_order

GATHER = [
    Sample("", "Gather", 1, 0, {"data": [4, 3], "indices": [[2, 0, 2], [1, -1, 0]]}, {}),
    Sample("", "Gather", 1, 1, {"data": [2, 4, 3], "indices": [3, -4, 1], "axis": 1}, {}),
    Sample("", "Gather", 1, 2, {"data": [2, 4], "indices": [0, 2, 2, 1], "axis": -1}, {}),
    Sample("", "Gather", 1, 3, {"data": [2, 4, 3], "indices": 1, "axis": -2}, {}),
    Sample("", "Gather", 1, 4, {"data": [5], "indices": -2}, {}),
    Sample("", "Gather", 1, 5, {"data": [5], "indices": []}, {}),
    Sample("", "Gather", 1, 6, {"data": [0, 3], "indices": [], "axis": 0}, {}),
    Sample("", "Gather", 1, 7, {"data": [3, 0], "indices": [1, 1]}, {}),
]


@pytest.mark.parametrize("sample", GATHER, ids=str)
def test_gather_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", GATHER, ids=str)
def test_gather_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", GATHER, ids=str)
def test_gather_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", GATHER, ids=str)
def test_gather_second_order(sample):
    check_second_order(sample)


GATHERELEMENTS = [
    Sample("", "GatherElements", 1, 0, {"data": [4, 3], "indices": [[2, 0, 2], [1, -1, 0]]}, {}),
    Sample("", "GatherElements", 1, 1, {"data": [2, 4], "indices": [[0, 0, 3], [-1, 1, -1]], "axis": 1}, {}),
    Sample("", "GatherElements", 1, 2, {"data": [2, 2, 2], "indices": [[[0, 1]]], "axis": -1}, {}),
    Sample("", "GatherElements", 1, 3, {"data": [3], "indices": [2, 2, -3, 0, 1]}, {}),
    Sample("", "GatherElements", 1, 4, {"data": [3], "indices": []}, {}),
]


@pytest.mark.parametrize("sample", GATHERELEMENTS, ids=str)
def test_gatherelements_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", GATHERELEMENTS, ids=str)
def test_gatherelements_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", GATHERELEMENTS, ids=str)
def test_gatherelements_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", GATHERELEMENTS, ids=str)
def test_gatherelements_second_order(sample):
    check_second_order(sample)


SCATTERELEMENTS = [
    Sample("", "ScatterElements", 1, 0, {"data": [4, 3], "indices": [[2, 0, 1], [1, -1, 0]], "updates": [2, 3]}, {}),
    Sample(
        "", "ScatterElements", 1, 1, {"data": [2, 4], "indices": [[0, 1], [-1, 0]], "updates": [2, 2], "axis": 1}, {}
    ),
    Sample("", "ScatterElements", 1, 2, {"data": [4], "indices": [1, 3, 1, -1], "updates": [4]}, {}),
    Sample(
        "",
        "ScatterElements",
        1,
        3,
        {"data": [2, 3], "indices": [[0, 0, 2], [-1, 1, -1]], "updates": [2, 3], "axis": -1, "reduction": "add"},
        {},
    ),
    Sample(
        "", "ScatterElements", 1, 4, {"data": [4], "indices": [1, 3, 1, -1], "updates": [4], "reduction": "mul"}, {}
    ),
    Sample(
        "",
        "ScatterElements",
        1,
        5,
        {"data": [2, 3], "indices": [[0, 0, -3], [-1, 1, 1]], "updates": [2, 3], "axis": -1, "reduction": "mul"},
        {},
    ),
    Sample(
        "", "ScatterElements", 1, 6, {"data": [4], "indices": [1, 3, 1, -1], "updates": [4], "reduction": "max"}, {}
    ),
    Sample(
        "",
        "ScatterElements",
        1,
        7,
        {"data": [2, 3], "indices": [[0, 0, 2], [-1, 1, -1]], "updates": [2, 3], "axis": 1, "reduction": "min"},
        {},
    ),
    Sample("", "ScatterElements", 1, 8, {"data": [3], "indices": [], "updates": [0], "reduction": "add"}, {}),
    Sample("", "ScatterElements", 1, 9, {"data": [3], "indices": [], "updates": [0]}, {}),
]


@pytest.mark.parametrize("sample", SCATTERELEMENTS, ids=str)
def test_scatterelements_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SCATTERELEMENTS, ids=str)
def test_scatterelements_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SCATTERELEMENTS, ids=str)
def test_scatterelements_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SCATTERELEMENTS, ids=str)
def test_scatterelements_second_order(sample):
    check_second_order(sample)
