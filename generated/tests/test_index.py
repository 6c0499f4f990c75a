"""Finite-difference tests of family index. Do not edit: generated from gradgen/rules/index.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

GATHER = [
    Sample("", "Gather", 1, 0, {"data": [4, 3], "indices": [[2, 0, 2], [1, -1, 0]]}, {}),
    Sample("", "Gather", 1, 1, {"data": [2, 4, 3], "indices": [3, -4, 1], "axis": 1}, {}),
    Sample("", "Gather", 1, 2, {"data": [2, 4], "indices": [0, 2, 2, 1], "axis": -1}, {}),
    Sample("", "Gather", 1, 3, {"data": [2, 4, 3], "indices": 1, "axis": -2}, {}),
    Sample("", "Gather", 1, 4, {"data": [5], "indices": -2}, {}),
    Sample("", "Gather", 1, 5, {"data": [2, 5, 2], "indices": [[1, 2], [3, 4]], "axis": 1}, {}),
    Sample("", "Gather", 1, 6, {"data": [4, 3], "indices": [-2, -1]}, {}),
    Sample("", "Gather", 1, 7, {"data": [4, 3], "indices": [-1, 0, 1]}, {}),
    Sample("", "Gather", 1, 8, {"data": [5], "indices": []}, {}),
    Sample("", "Gather", 1, 9, {"data": [0, 3], "indices": [], "axis": 0}, {}),
    Sample("", "Gather", 1, 10, {"data": [3, 0], "indices": [1, 1]}, {}),
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


@pytest.mark.parametrize("sample", GATHER, ids=str)
def test_gather_jvp(sample):
    check_jvp(sample)


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


@pytest.mark.parametrize("sample", GATHERELEMENTS, ids=str)
def test_gatherelements_jvp(sample):
    check_jvp(sample)


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


@pytest.mark.parametrize("sample", SCATTERELEMENTS, ids=str)
def test_scatterelements_jvp(sample):
    check_jvp(sample)


GATHERND = [
    Sample("", "GatherND", 1, 0, {"data": [3, 4], "indices": [[0, 1], [-1, 2], [0, 1]]}, {}),
    Sample("", "GatherND", 1, 1, {"data": [3, 4], "indices": [[2], [0], [-1]]}, {}),
    Sample("", "GatherND", 1, 2, {"data": [2, 3, 2], "indices": [[[0, 1]], [[1, -1]]]}, {}),
    Sample("", "GatherND", 1, 3, {"data": [2, 3, 2], "indices": [[[1], [1]], [[0], [2]]], "batch_dims": 1}, {}),
    Sample(
        "", "GatherND", 1, 4, {"data": [2, 3, 2], "indices": [[[1], [0], [-1]], [[0], [1], [1]]], "batch_dims": 2}, {}
    ),
    Sample("", "GatherND", 1, 5, {"data": [3, 2], "indices": {"values": [], "shape": [0, 1]}}, {}),
]


@pytest.mark.parametrize("sample", GATHERND, ids=str)
def test_gathernd_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", GATHERND, ids=str)
def test_gathernd_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", GATHERND, ids=str)
def test_gathernd_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", GATHERND, ids=str)
def test_gathernd_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", GATHERND, ids=str)
def test_gathernd_jvp(sample):
    check_jvp(sample)


SCATTERND = [
    Sample("", "ScatterND", 1, 0, {"data": [3, 4], "indices": [[0, 1], [-1, 2]], "updates": [2]}, {}),
    Sample("", "ScatterND", 1, 1, {"data": [4, 2], "indices": [[[3], [1]], [[0], [-2]]], "updates": [2, 2, 2]}, {}),
    Sample(
        "", "ScatterND", 1, 2, {"data": [4, 2], "indices": [[3], [1], [3]], "updates": [3, 2], "reduction": "add"}, {}
    ),
    Sample(
        "", "ScatterND", 1, 3, {"data": [4], "indices": [[1], [3], [1], [-1]], "updates": [4], "reduction": "mul"}, {}
    ),
    Sample(
        "", "ScatterND", 1, 4, {"data": [3, 2], "indices": [[0], [2], [0]], "updates": [3, 2], "reduction": "max"}, {}
    ),
    Sample(
        "",
        "ScatterND",
        1,
        5,
        {"data": [3, 2], "indices": [[0, 1], [2, 1], [-3, 1]], "updates": [3], "reduction": "min"},
        {},
    ),
    Sample("", "ScatterND", 1, 6, {"data": [3, 2], "indices": {"values": [], "shape": [0, 1]}, "updates": [0, 2]}, {}),
    Sample(
        "",
        "ScatterND",
        1,
        7,
        {
            "data": {"values": [0.0, 2.0, 0.0, 0.5]},
            "indices": [[0], [0], [1], [1], [2], [2]],
            "updates": {"values": [1.5, 0.0, 0.0, 3.0, 2.0, -1.0]},
            "reduction": "mul",
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", SCATTERND, ids=str)
def test_scatternd_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SCATTERND, ids=str)
def test_scatternd_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SCATTERND, ids=str)
def test_scatternd_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SCATTERND, ids=str)
def test_scatternd_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SCATTERND, ids=str)
def test_scatternd_jvp(sample):
    check_jvp(sample)


UNIQUE = [
    Sample("", "Unique", 1, 0, {"X": [2, 3]}, {}),
    Sample("", "Unique", 1, 1, {"X": [4], "sorted": 0}, {}),
    Sample("", "Unique", 1, 2, {"X": [3, 2], "axis": 0}, {}),
    Sample("", "Unique", 1, 3, {"X": [2, 3], "axis": -1}, {}),
    Sample("", "Unique", 1, 4, {"X": [0]}, {}),
    Sample("", "Unique", 1, 5, {"X": [0, 3], "axis": 0}, {}),
]


@pytest.mark.parametrize("sample", UNIQUE, ids=str)
def test_unique_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", UNIQUE, ids=str)
def test_unique_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", UNIQUE, ids=str)
def test_unique_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", UNIQUE, ids=str)
def test_unique_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", UNIQUE, ids=str)
def test_unique_jvp(sample):
    check_jvp(sample)


TENSORSCATTER_24 = [
    Sample(
        "", "TensorScatter", 24, 0, {"past_cache": [2, 2, 5, 3], "update": [2, 2, 2, 3], "write_indices": [1, 3]}, {}
    ),
    Sample(
        "",
        "TensorScatter",
        24,
        1,
        {"past_cache": [2, 4, 3], "update": [2, 3, 3], "write_indices": [3, 0], "mode": "circular"},
        {},
    ),
    Sample("", "TensorScatter", 24, 2, {"past_cache": [2, 4, 3], "update": [2, 2, 3], "axis": 1}, {}),
    Sample(
        "", "TensorScatter", 24, 3, {"past_cache": [1, 2, 4], "update": [1, 2, 2], "write_indices": [2], "axis": -1}, {}
    ),
]


@pytest.mark.parametrize("sample", TENSORSCATTER_24, ids=str)
def test_tensorscatter_24_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", TENSORSCATTER_24, ids=str)
def test_tensorscatter_24_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", TENSORSCATTER_24, ids=str)
def test_tensorscatter_24_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", TENSORSCATTER_24, ids=str)
def test_tensorscatter_24_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", TENSORSCATTER_24, ids=str)
def test_tensorscatter_24_jvp(sample):
    check_jvp(sample)
