"""Finite-difference tests of family norm. Do not edit: generated from gradgen/rules/norm.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

BATCHNORMALIZATION = [
    Sample(
        "",
        "BatchNormalization",
        1,
        0,
        {"X": [2, 3, 2, 3], "scale": [3], "B": [3], "input_mean": [3], "input_var": [3]},
        {"range": {"input_var": [0.3, 2.0], "scale": [0.5, 2.0]}},
    ),
    Sample(
        "",
        "BatchNormalization",
        1,
        1,
        {"X": [4, 3], "scale": [3], "B": [3], "input_mean": [3], "input_var": [3], "epsilon": 0.01},
        {"range": {"input_var": [0.3, 2.0], "scale": [0.5, 2.0]}},
    ),
    Sample(
        "",
        "BatchNormalization",
        1,
        2,
        {"X": [2, 2, 3, 1, 2], "scale": [2], "B": [2], "input_mean": [2], "input_var": [2]},
        {"range": {"input_var": [0.3, 2.0], "scale": [0.5, 2.0]}},
    ),
    Sample(
        "",
        "BatchNormalization",
        1,
        3,
        {
            "X": [3, 2, 4],
            "scale": [2],
            "B": [2],
            "input_mean": [2],
            "input_var": [2],
            "training_mode": 1,
            "@outputs": ["Y", "running_mean", "running_var"],
            "@of": ["Y"],
        },
        {"range": {"input_var": [0.3, 2.0], "scale": [0.5, 2.0]}},
    ),
    Sample(
        "",
        "BatchNormalization",
        1,
        4,
        {
            "X": [2, 3, 2, 3],
            "scale": [3],
            "B": [3],
            "input_mean": [3],
            "input_var": [3],
            "training_mode": 1,
            "momentum": 0.7,
            "@outputs": ["Y", "running_mean", "running_var"],
        },
        {"range": {"input_var": [0.3, 2.0], "scale": [0.5, 2.0]}},
    ),
    Sample(
        "",
        "BatchNormalization",
        1,
        5,
        {
            "X": [5, 2],
            "scale": [2],
            "B": [2],
            "input_mean": [2],
            "input_var": [2],
            "training_mode": 1,
            "@outputs": ["Y", "running_mean", "running_var"],
            "@of": ["Y", "running_var"],
        },
        {"range": {"input_var": [0.3, 2.0], "scale": [0.5, 2.0]}},
    ),
    Sample(
        "",
        "BatchNormalization",
        1,
        6,
        {
            "X": [0, 2, 3],
            "scale": [2],
            "B": [2],
            "input_mean": [2],
            "input_var": {"shape": [2], "low": 0.5, "high": 2.0},
        },
        {"range": {"input_var": [0.3, 2.0], "scale": [0.5, 2.0]}},
    ),
]


@pytest.mark.parametrize("sample", BATCHNORMALIZATION, ids=str)
def test_batchnormalization_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", BATCHNORMALIZATION, ids=str)
def test_batchnormalization_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", BATCHNORMALIZATION, ids=str)
def test_batchnormalization_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", BATCHNORMALIZATION, ids=str)
def test_batchnormalization_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", BATCHNORMALIZATION, ids=str)
def test_batchnormalization_jvp(sample):
    check_jvp(sample)


LAYERNORMALIZATION = [
    Sample("", "LayerNormalization", 1, 0, {"X": [3, 5], "Scale": [5], "B": [5]}, {"range": {"Scale": [0.5, 2.0]}}),
    Sample("", "LayerNormalization", 1, 1, {"X": [2, 3, 4], "Scale": [4]}, {"range": {"Scale": [0.5, 2.0]}}),
    Sample(
        "",
        "LayerNormalization",
        1,
        2,
        {"X": [2, 3, 4], "Scale": [3, 4], "B": [3, 4], "axis": 1, "epsilon": 0.1},
        {"range": {"Scale": [0.5, 2.0]}},
    ),
    Sample(
        "", "LayerNormalization", 1, 3, {"X": [2, 3, 4], "Scale": [3, 4], "axis": -2}, {"range": {"Scale": [0.5, 2.0]}}
    ),
    Sample(
        "",
        "LayerNormalization",
        1,
        4,
        {"X": [2, 3, 4], "Scale": [2, 3, 4], "B": [2, 3, 4], "axis": 0},
        {"range": {"Scale": [0.5, 2.0]}},
    ),
    Sample("", "LayerNormalization", 1, 5, {"X": [0, 4], "Scale": [4], "B": [4]}, {"range": {"Scale": [0.5, 2.0]}}),
]


@pytest.mark.parametrize("sample", LAYERNORMALIZATION, ids=str)
def test_layernormalization_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", LAYERNORMALIZATION, ids=str)
def test_layernormalization_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", LAYERNORMALIZATION, ids=str)
def test_layernormalization_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", LAYERNORMALIZATION, ids=str)
def test_layernormalization_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", LAYERNORMALIZATION, ids=str)
def test_layernormalization_jvp(sample):
    check_jvp(sample)


GROUPNORMALIZATION = [
    Sample("", "GroupNormalization", 1, 0, {"X": [2, 4, 3, 2], "scale": [4], "bias": [4], "num_groups": 2}, {}),
    Sample(
        "", "GroupNormalization", 1, 1, {"X": [2, 3, 4], "scale": [3], "bias": [3], "num_groups": 3, "epsilon": 0.1}, {}
    ),
    Sample("", "GroupNormalization", 1, 2, {"X": [1, 4, 2, 1, 3], "scale": [4], "bias": [4], "num_groups": 1}, {}),
]


@pytest.mark.parametrize("sample", GROUPNORMALIZATION, ids=str)
def test_groupnormalization_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", GROUPNORMALIZATION, ids=str)
def test_groupnormalization_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", GROUPNORMALIZATION, ids=str)
def test_groupnormalization_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", GROUPNORMALIZATION, ids=str)
def test_groupnormalization_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", GROUPNORMALIZATION, ids=str)
def test_groupnormalization_jvp(sample):
    check_jvp(sample)


INSTANCENORMALIZATION = [
    Sample("", "InstanceNormalization", 1, 0, {"input": [2, 3, 4, 2], "scale": [3], "B": [3]}, {}),
    Sample("", "InstanceNormalization", 1, 1, {"input": [2, 3, 4], "scale": [3], "B": [3], "epsilon": 0.1}, {}),
    Sample("", "InstanceNormalization", 1, 2, {"input": [1, 2, 2, 3, 2], "scale": [2], "B": [2]}, {}),
    Sample("", "InstanceNormalization", 1, 3, {"input": [0, 2, 3], "scale": [2], "B": [2]}, {}),
]


@pytest.mark.parametrize("sample", INSTANCENORMALIZATION, ids=str)
def test_instancenormalization_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", INSTANCENORMALIZATION, ids=str)
def test_instancenormalization_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", INSTANCENORMALIZATION, ids=str)
def test_instancenormalization_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", INSTANCENORMALIZATION, ids=str)
def test_instancenormalization_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", INSTANCENORMALIZATION, ids=str)
def test_instancenormalization_jvp(sample):
    check_jvp(sample)


RMSNORMALIZATION = [
    Sample("", "RMSNormalization", 1, 0, {"@opset": 23, "X": [3, 5], "scale": [5]}, {}),
    Sample(
        "", "RMSNormalization", 1, 1, {"@opset": 23, "X": [2, 3, 4], "scale": [3, 4], "axis": 1, "epsilon": 0.1}, {}
    ),
    Sample("", "RMSNormalization", 1, 2, {"@opset": 23, "X": [2, 3, 4], "scale": [4], "axis": -1}, {}),
    Sample("", "RMSNormalization", 1, 3, {"X": [0, 4], "scale": [4], "@opset": 23}, {}),
]


@pytest.mark.parametrize("sample", RMSNORMALIZATION, ids=str)
def test_rmsnormalization_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", RMSNORMALIZATION, ids=str)
def test_rmsnormalization_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", RMSNORMALIZATION, ids=str)
def test_rmsnormalization_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", RMSNORMALIZATION, ids=str)
def test_rmsnormalization_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", RMSNORMALIZATION, ids=str)
def test_rmsnormalization_jvp(sample):
    check_jvp(sample)


LPNORMALIZATION = [
    Sample("", "LpNormalization", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "LpNormalization", 1, 1, {"input": [2, 3, 4], "axis": 1}, {}),
    Sample("", "LpNormalization", 1, 2, {"input": [3, 4], "p": 1}, {}),
    Sample("", "LpNormalization", 1, 3, {"input": [2, 3, 2], "axis": 0, "p": 1}, {}),
    Sample("", "LpNormalization", 1, 4, {"input": [0, 3]}, {}),
]


@pytest.mark.parametrize("sample", LPNORMALIZATION, ids=str)
def test_lpnormalization_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", LPNORMALIZATION, ids=str)
def test_lpnormalization_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", LPNORMALIZATION, ids=str)
def test_lpnormalization_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", LPNORMALIZATION, ids=str)
def test_lpnormalization_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", LPNORMALIZATION, ids=str)
def test_lpnormalization_jvp(sample):
    check_jvp(sample)


LRN = [
    Sample("", "LRN", 1, 0, {"X": [2, 5, 2, 3], "size": 3}, {}),
    Sample("", "LRN", 1, 1, {"X": [1, 6, 2, 2], "size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0}, {}),
    Sample("", "LRN", 1, 2, {"X": [1, 3, 3, 2], "size": 5, "alpha": 0.8}, {}),
    Sample("", "LRN", 1, 3, {"X": [0, 3, 2, 2], "size": 3}, {}),
]


@pytest.mark.parametrize("sample", LRN, ids=str)
def test_lrn_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", LRN, ids=str)
def test_lrn_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", LRN, ids=str)
def test_lrn_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", LRN, ids=str)
def test_lrn_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", LRN, ids=str)
def test_lrn_jvp(sample):
    check_jvp(sample)
