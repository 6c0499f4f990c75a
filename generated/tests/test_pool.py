"""Finite-difference tests of family pool. Do not edit: generated from gradgen/rules/pool.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

MAXPOOL = [
    Sample("", "MaxPool", 1, 0, {"X": [2, 3, 4, 6], "kernel_shape": [2, 2], "strides": [2, 2]}, {}),
    Sample("", "MaxPool", 1, 1, {"X": [2, 3, 4, 6], "kernel_shape": [2, 3], "strides": [2, 3], "@portable": True}, {}),
    Sample("", "MaxPool", 1, 2, {"X": [2, 1, 6], "kernel_shape": [2], "strides": [2], "@portable": True}, {}),
    Sample(
        "",
        "MaxPool",
        1,
        3,
        {"X": [1, 2, 4, 2, 6], "kernel_shape": [2, 1, 3], "strides": [2, 1, 3], "@portable": True},
        {},
    ),
    Sample("", "MaxPool", 1, 4, {"X": [1, 2, 7], "kernel_shape": [3]}, {}),
    Sample("", "MaxPool", 1, 5, {"X": [1, 2, 8], "kernel_shape": [2], "strides": [2]}, {}),
    Sample(
        "", "MaxPool", 1, 6, {"X": [1, 2, 5, 7], "kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1]}, {}
    ),
    Sample(
        "", "MaxPool", 1, 7, {"X": [1, 1, 7, 7], "kernel_shape": [2, 3], "dilations": [2, 2], "strides": [2, 3]}, {}
    ),
    Sample("", "MaxPool", 1, 8, {"X": [1, 2, 6, 5], "kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, {}),
    Sample(
        "",
        "MaxPool",
        1,
        9,
        {"X": [2, 1, 3, 4, 5], "kernel_shape": [2, 2, 2], "storage_order": 1, "@outputs": ["Y", "Indices"]},
        {},
    ),
    Sample(
        "",
        "MaxPool",
        1,
        10,
        {
            "X": [1, 2, 4, 5],
            "kernel_shape": [2, 2],
            "storage_order": 1,
            "strides": [2, 2],
            "@outputs": ["Y", "Indices"],
        },
        {},
    ),
    Sample(
        "",
        "MaxPool",
        1,
        11,
        {"X": [1, 2, 5, 6], "kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {},
    ),
    Sample(
        "",
        "MaxPool",
        1,
        12,
        {"X": [1, 2, 5, 6], "kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {},
    ),
    Sample("", "MaxPool", 1, 13, {"X": [1, 1, 4, 2, 4], "kernel_shape": [2, 1, 2], "strides": [2, 1, 2]}, {}),
    Sample("", "MaxPool", 1, 14, {"X": [0, 2, 4, 4], "kernel_shape": [2, 2], "strides": [2, 2]}, {}),
]


@pytest.mark.parametrize("sample", MAXPOOL, ids=str)
def test_maxpool_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MAXPOOL, ids=str)
def test_maxpool_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MAXPOOL, ids=str)
def test_maxpool_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MAXPOOL, ids=str)
def test_maxpool_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MAXPOOL, ids=str)
def test_maxpool_jvp(sample):
    check_jvp(sample)


MAXUNPOOL = [
    Sample(
        "",
        "MaxUnpool",
        1,
        0,
        {"X": [1, 1, 2, 2], "I": [[[[5, 7], [13, 15]]]], "kernel_shape": [2, 2], "strides": [2, 2]},
        {},
    ),
    Sample(
        "",
        "MaxUnpool",
        1,
        1,
        {"X": [1, 1, 2, 2], "I": [[[[5, 5], [13, 5]]]], "kernel_shape": [2, 2], "strides": [2, 2]},
        {},
    ),
    Sample(
        "", "MaxUnpool", 1, 2, {"X": [1, 2, 3], "I": [[[0, 3, 4], [7, 9, 10]]], "kernel_shape": [2], "strides": [2]}, {}
    ),
    Sample("", "MaxUnpool", 1, 3, {"X": [2, 1, 2], "I": [[[1, 2]], [[4, 7]]], "kernel_shape": [2], "strides": [2]}, {}),
]


@pytest.mark.parametrize("sample", MAXUNPOOL, ids=str)
def test_maxunpool_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MAXUNPOOL, ids=str)
def test_maxunpool_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MAXUNPOOL, ids=str)
def test_maxunpool_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MAXUNPOOL, ids=str)
def test_maxunpool_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MAXUNPOOL, ids=str)
def test_maxunpool_jvp(sample):
    check_jvp(sample)


AVERAGEPOOL = [
    Sample("", "AveragePool", 1, 0, {"X": [2, 3, 4, 6], "kernel_shape": [2, 2], "strides": [2, 2]}, {}),
    Sample("", "AveragePool", 1, 1, {"X": [1, 2, 5, 7], "kernel_shape": [2, 3], "strides": [2, 3]}, {}),
    Sample("", "AveragePool", 1, 2, {"X": [1, 2, 7], "kernel_shape": [3]}, {}),
    Sample("", "AveragePool", 1, 3, {"X": [1, 2, 5, 6], "kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}, {}),
    Sample(
        "",
        "AveragePool",
        1,
        4,
        {"X": [1, 2, 5, 6], "kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1},
        {},
    ),
    Sample(
        "",
        "AveragePool",
        1,
        5,
        {"X": [1, 2, 6, 7], "kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 0]},
        {},
    ),
    Sample(
        "",
        "AveragePool",
        1,
        6,
        {
            "X": [1, 2, 6, 7],
            "kernel_shape": [3, 3],
            "strides": [2, 2],
            "ceil_mode": 1,
            "pads": [1, 1, 1, 0],
            "count_include_pad": 1,
        },
        {},
    ),
    Sample(
        "", "AveragePool", 1, 7, {"X": [1, 1, 7, 6], "kernel_shape": [2, 3], "strides": [2, 1], "dilations": [2, 2]}, {}
    ),
    Sample(
        "",
        "AveragePool",
        1,
        8,
        {"X": [1, 2, 3, 4, 5], "kernel_shape": [2, 2, 2], "strides": [1, 2, 2], "pads": [0, 1, 0, 1, 0, 1]},
        {},
    ),
    Sample(
        "",
        "AveragePool",
        1,
        9,
        {"X": [1, 2, 5, 6], "kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {},
    ),
    Sample(
        "",
        "AveragePool",
        1,
        10,
        {
            "X": [1, 2, 5, 6],
            "kernel_shape": [2, 3],
            "strides": [2, 2],
            "auto_pad": "SAME_LOWER",
            "count_include_pad": 1,
        },
        {},
    ),
    Sample("", "AveragePool", 1, 11, {"X": [1, 2, 5], "kernel_shape": [3], "auto_pad": "VALID"}, {}),
]


@pytest.mark.parametrize("sample", AVERAGEPOOL, ids=str)
def test_averagepool_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", AVERAGEPOOL, ids=str)
def test_averagepool_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", AVERAGEPOOL, ids=str)
def test_averagepool_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", AVERAGEPOOL, ids=str)
def test_averagepool_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", AVERAGEPOOL, ids=str)
def test_averagepool_jvp(sample):
    check_jvp(sample)


GLOBALAVERAGEPOOL = [
    Sample("", "GlobalAveragePool", 1, 0, {"X": [2, 3, 4, 5]}, {}),
    Sample("", "GlobalAveragePool", 1, 1, {"X": [2, 3, 4]}, {}),
    Sample("", "GlobalAveragePool", 1, 2, {"X": [1, 2, 2, 3, 2]}, {}),
]


@pytest.mark.parametrize("sample", GLOBALAVERAGEPOOL, ids=str)
def test_globalaveragepool_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", GLOBALAVERAGEPOOL, ids=str)
def test_globalaveragepool_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", GLOBALAVERAGEPOOL, ids=str)
def test_globalaveragepool_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", GLOBALAVERAGEPOOL, ids=str)
def test_globalaveragepool_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", GLOBALAVERAGEPOOL, ids=str)
def test_globalaveragepool_jvp(sample):
    check_jvp(sample)


GLOBALMAXPOOL = [
    Sample("", "GlobalMaxPool", 1, 0, {"X": [2, 3, 3, 4]}, {}),
    Sample("", "GlobalMaxPool", 1, 1, {"X": [2, 3, 4]}, {}),
    Sample("", "GlobalMaxPool", 1, 2, {"X": [1, 2, 2, 3, 2]}, {}),
]


@pytest.mark.parametrize("sample", GLOBALMAXPOOL, ids=str)
def test_globalmaxpool_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", GLOBALMAXPOOL, ids=str)
def test_globalmaxpool_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", GLOBALMAXPOOL, ids=str)
def test_globalmaxpool_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", GLOBALMAXPOOL, ids=str)
def test_globalmaxpool_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", GLOBALMAXPOOL, ids=str)
def test_globalmaxpool_jvp(sample):
    check_jvp(sample)


LPPOOL = [
    Sample("", "LpPool", 1, 0, {"X": [1, 2, 5, 6], "kernel_shape": [2, 3]}, {"avoid": {"X": [0.0]}}),
    Sample(
        "",
        "LpPool",
        1,
        1,
        {"X": [1, 2, 5, 6], "kernel_shape": [2, 2], "strides": [2, 2], "p": 1},
        {"avoid": {"X": [0.0]}},
    ),
    Sample(
        "",
        "LpPool",
        1,
        2,
        {"X": [1, 2, 7], "kernel_shape": [3], "strides": [2], "pads": [1, 1], "p": 3},
        {"avoid": {"X": [0.0]}},
    ),
    Sample(
        "",
        "LpPool",
        1,
        3,
        {"X": [1, 1, 6, 6], "kernel_shape": [2, 2], "dilations": [2, 1], "p": 4},
        {"avoid": {"X": [0.0]}},
    ),
    Sample(
        "",
        "LpPool",
        1,
        4,
        {"X": [1, 1, 6, 5], "kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1},
        {"avoid": {"X": [0.0]}},
    ),
    Sample("", "LpPool", 1, 5, {"X": [0, 1, 4, 4], "kernel_shape": [2, 2]}, {"avoid": {"X": [0.0]}}),
]


@pytest.mark.parametrize("sample", LPPOOL, ids=str)
def test_lppool_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", LPPOOL, ids=str)
def test_lppool_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", LPPOOL, ids=str)
def test_lppool_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", LPPOOL, ids=str)
def test_lppool_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", LPPOOL, ids=str)
def test_lppool_jvp(sample):
    check_jvp(sample)


GLOBALLPPOOL = [
    Sample("", "GlobalLpPool", 1, 0, {"X": [2, 3, 3, 2]}, {"avoid": {"X": [0.0]}}),
    Sample("", "GlobalLpPool", 1, 1, {"X": [2, 3, 4], "p": 1}, {"avoid": {"X": [0.0]}}),
    Sample("", "GlobalLpPool", 1, 2, {"X": [1, 2, 2, 2, 2], "p": 3}, {"avoid": {"X": [0.0]}}),
    Sample("", "GlobalLpPool", 1, 3, {"X": [0, 2, 3]}, {"avoid": {"X": [0.0]}}),
]


@pytest.mark.parametrize("sample", GLOBALLPPOOL, ids=str)
def test_globallppool_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", GLOBALLPPOOL, ids=str)
def test_globallppool_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", GLOBALLPPOOL, ids=str)
def test_globallppool_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", GLOBALLPPOOL, ids=str)
def test_globallppool_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", GLOBALLPPOOL, ids=str)
def test_globallppool_jvp(sample):
    check_jvp(sample)
