"""Finite-difference tests of family activation. Do not edit: generated from gradgen/rules/activation.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

RELU = [
    Sample("", "Relu", 1, 0, {"X": [3, 4]}, {"avoid": {"X": [0.0]}}),
    Sample("", "Relu", 1, 1, {"X": []}, {"avoid": {"X": [0.0]}}),
    Sample("", "Relu", 1, 2, {"X": [0, 3]}, {"avoid": {"X": [0.0]}}),
    Sample("", "Relu", 1, 3, {"X": [2, 3, 2, 2]}, {"avoid": {"X": [0.0]}}),
]


@pytest.mark.parametrize("sample", RELU, ids=str)
def test_relu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", RELU, ids=str)
def test_relu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", RELU, ids=str)
def test_relu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", RELU, ids=str)
def test_relu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", RELU, ids=str)
def test_relu_jvp(sample):
    check_jvp(sample)


LEAKYRELU = [
    Sample("", "LeakyRelu", 1, 0, {"X": [3, 4]}, {"avoid": {"X": [0.0]}}),
    Sample("", "LeakyRelu", 1, 1, {"X": [3, 4], "alpha": 0.2}, {"avoid": {"X": [0.0]}}),
    Sample("", "LeakyRelu", 1, 2, {"X": [6], "alpha": 0.0}, {"avoid": {"X": [0.0]}}),
    Sample("", "LeakyRelu", 1, 3, {"X": [6], "alpha": 1.5}, {"avoid": {"X": [0.0]}}),
    Sample("", "LeakyRelu", 1, 4, {"X": [2, 3], "alpha": -0.3}, {"avoid": {"X": [0.0]}}),
    Sample("", "LeakyRelu", 1, 5, {"X": []}, {"avoid": {"X": [0.0]}}),
    Sample("", "LeakyRelu", 1, 6, {"X": [0, 3]}, {"avoid": {"X": [0.0]}}),
]


@pytest.mark.parametrize("sample", LEAKYRELU, ids=str)
def test_leakyrelu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", LEAKYRELU, ids=str)
def test_leakyrelu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", LEAKYRELU, ids=str)
def test_leakyrelu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", LEAKYRELU, ids=str)
def test_leakyrelu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", LEAKYRELU, ids=str)
def test_leakyrelu_jvp(sample):
    check_jvp(sample)


PRELU = [
    Sample("", "PRelu", 1, 0, {"X": [3, 4], "slope": [3, 4]}, {"avoid": {"X": [0.0]}}),
    Sample("", "PRelu", 1, 1, {"X": [2, 3, 2, 2], "slope": [3, 1, 1]}, {"avoid": {"X": [0.0]}}),
    Sample("", "PRelu", 1, 2, {"X": [2, 3, 4], "slope": [1]}, {"avoid": {"X": [0.0]}}),
    Sample("", "PRelu", 1, 3, {"X": [2, 3, 4], "slope": []}, {"avoid": {"X": [0.0]}}),
    Sample("", "PRelu", 1, 4, {"X": [2, 3, 4], "slope": [2, 1, 4]}, {"avoid": {"X": [0.0]}}),
    Sample("", "PRelu", 1, 5, {"X": [], "slope": []}, {"avoid": {"X": [0.0]}}),
    Sample("", "PRelu", 1, 6, {"X": [0, 3], "slope": [3]}, {"avoid": {"X": [0.0]}}),
]


@pytest.mark.parametrize("sample", PRELU, ids=str)
def test_prelu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", PRELU, ids=str)
def test_prelu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", PRELU, ids=str)
def test_prelu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", PRELU, ids=str)
def test_prelu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", PRELU, ids=str)
def test_prelu_jvp(sample):
    check_jvp(sample)


ELU = [
    Sample("", "Elu", 1, 0, {"X": [3, 4]}, {"avoid": {"X": [0.0]}}),
    Sample("", "Elu", 1, 1, {"X": [3, 4], "alpha": 0.3}, {"avoid": {"X": [0.0]}}),
    Sample("", "Elu", 1, 2, {"X": [6], "alpha": 2.0}, {"avoid": {"X": [0.0]}}),
    Sample("", "Elu", 1, 3, {"X": []}, {"avoid": {"X": [0.0]}}),
    Sample("", "Elu", 1, 4, {"X": [0, 3]}, {"avoid": {"X": [0.0]}}),
]


@pytest.mark.parametrize("sample", ELU, ids=str)
def test_elu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ELU, ids=str)
def test_elu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ELU, ids=str)
def test_elu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ELU, ids=str)
def test_elu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ELU, ids=str)
def test_elu_jvp(sample):
    check_jvp(sample)


SELU = [
    Sample("", "Selu", 1, 0, {"X": [3, 4]}, {"avoid": {"X": [0.0]}}),
    Sample("", "Selu", 1, 1, {"X": [3, 4], "alpha": 0.3, "gamma": 2.1}, {"avoid": {"X": [0.0]}}),
    Sample("", "Selu", 1, 2, {"X": []}, {"avoid": {"X": [0.0]}}),
    Sample("", "Selu", 1, 3, {"X": [0, 3]}, {"avoid": {"X": [0.0]}}),
]


@pytest.mark.parametrize("sample", SELU, ids=str)
def test_selu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SELU, ids=str)
def test_selu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SELU, ids=str)
def test_selu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SELU, ids=str)
def test_selu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SELU, ids=str)
def test_selu_jvp(sample):
    check_jvp(sample)


CELU = [
    Sample(
        "",
        "Celu",
        1,
        0,
        {"X": {"shape": [3, 4], "dtype": "float64", "constant": False}, "@opset": 28},
        {"avoid": {"X": [0.0]}},
    ),
    Sample(
        "",
        "Celu",
        1,
        1,
        {"X": {"shape": [3, 4], "dtype": "float64", "constant": False}, "alpha": 0.4, "@opset": 28},
        {"avoid": {"X": [0.0]}},
    ),
    Sample(
        "",
        "Celu",
        1,
        2,
        {"X": {"shape": [2, 3], "dtype": "float64", "constant": False}, "alpha": -2.0, "@opset": 28},
        {"avoid": {"X": [0.0]}},
    ),
    Sample(
        "",
        "Celu",
        1,
        3,
        {"X": {"shape": [], "dtype": "float64", "constant": False}, "@opset": 28},
        {"avoid": {"X": [0.0]}},
    ),
    Sample(
        "",
        "Celu",
        1,
        4,
        {"X": {"shape": [0, 3], "dtype": "float64", "constant": False}, "@opset": 28},
        {"avoid": {"X": [0.0]}},
    ),
]


@pytest.mark.parametrize("sample", CELU, ids=str)
def test_celu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", CELU, ids=str)
def test_celu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", CELU, ids=str)
def test_celu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", CELU, ids=str)
def test_celu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", CELU, ids=str)
def test_celu_jvp(sample):
    check_jvp(sample)


SOFTPLUS = [
    Sample("", "Softplus", 1, 0, {"X": [3, 4]}, {}),
    Sample("", "Softplus", 1, 1, {"X": []}, {}),
    Sample("", "Softplus", 1, 2, {"X": [0, 3]}, {}),
    Sample("", "Softplus", 1, 3, {"X": {"shape": [9], "low": -30.0, "high": 30.0}}, {}),
]


@pytest.mark.parametrize("sample", SOFTPLUS, ids=str)
def test_softplus_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SOFTPLUS, ids=str)
def test_softplus_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SOFTPLUS, ids=str)
def test_softplus_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SOFTPLUS, ids=str)
def test_softplus_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SOFTPLUS, ids=str)
def test_softplus_jvp(sample):
    check_jvp(sample)


SOFTSIGN = [
    Sample("", "Softsign", 1, 0, {"input": [3, 4]}, {"avoid": {"input": [0.0]}}),
    Sample("", "Softsign", 1, 1, {"input": []}, {"avoid": {"input": [0.0]}}),
    Sample("", "Softsign", 1, 2, {"input": [0, 3]}, {"avoid": {"input": [0.0]}}),
    Sample("", "Softsign", 1, 3, {"input": {"shape": [9], "low": -50.0, "high": 50.0}}, {"avoid": {"input": [0.0]}}),
]


@pytest.mark.parametrize("sample", SOFTSIGN, ids=str)
def test_softsign_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SOFTSIGN, ids=str)
def test_softsign_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SOFTSIGN, ids=str)
def test_softsign_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SOFTSIGN, ids=str)
def test_softsign_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SOFTSIGN, ids=str)
def test_softsign_jvp(sample):
    check_jvp(sample)


HARDSIGMOID = [
    Sample("", "HardSigmoid", 1, 0, {"X": {"shape": [3, 4], "avoid": [-2.5, 2.5]}}, {"range": {"X": [-4.0, 4.0]}}),
    Sample(
        "",
        "HardSigmoid",
        1,
        1,
        {"X": {"shape": [3, 4], "avoid": [-1.0, 1.5]}, "alpha": 0.4, "beta": 0.4},
        {"range": {"X": [-4.0, 4.0]}},
    ),
    Sample(
        "",
        "HardSigmoid",
        1,
        2,
        {"X": {"shape": [5], "avoid": [1.0, -1.0]}, "alpha": -0.5},
        {"range": {"X": [-4.0, 4.0]}},
    ),
    Sample("", "HardSigmoid", 1, 3, {"X": []}, {"range": {"X": [-4.0, 4.0]}}),
    Sample("", "HardSigmoid", 1, 4, {"X": [0, 3]}, {"range": {"X": [-4.0, 4.0]}}),
]


@pytest.mark.parametrize("sample", HARDSIGMOID, ids=str)
def test_hardsigmoid_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", HARDSIGMOID, ids=str)
def test_hardsigmoid_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", HARDSIGMOID, ids=str)
def test_hardsigmoid_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", HARDSIGMOID, ids=str)
def test_hardsigmoid_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", HARDSIGMOID, ids=str)
def test_hardsigmoid_jvp(sample):
    check_jvp(sample)


HARDSWISH = [
    Sample("", "HardSwish", 1, 0, {"X": [3, 4]}, {"range": {"X": [-5.0, 5.0]}, "avoid": {"X": [-3.0, 3.0]}}),
    Sample("", "HardSwish", 1, 1, {"X": [2, 3, 2]}, {"range": {"X": [-5.0, 5.0]}, "avoid": {"X": [-3.0, 3.0]}}),
    Sample("", "HardSwish", 1, 2, {"X": []}, {"range": {"X": [-5.0, 5.0]}, "avoid": {"X": [-3.0, 3.0]}}),
    Sample("", "HardSwish", 1, 3, {"X": [0, 3]}, {"range": {"X": [-5.0, 5.0]}, "avoid": {"X": [-3.0, 3.0]}}),
]


@pytest.mark.parametrize("sample", HARDSWISH, ids=str)
def test_hardswish_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", HARDSWISH, ids=str)
def test_hardswish_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", HARDSWISH, ids=str)
def test_hardswish_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", HARDSWISH, ids=str)
def test_hardswish_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", HARDSWISH, ids=str)
def test_hardswish_jvp(sample):
    check_jvp(sample)


MISH = [
    Sample("", "Mish", 1, 0, {"X": [3, 4]}, {}),
    Sample("", "Mish", 1, 1, {"X": []}, {}),
    Sample("", "Mish", 1, 2, {"X": [0, 3]}, {}),
    Sample("", "Mish", 1, 3, {"X": {"shape": [9], "low": -30.0, "high": 30.0}}, {}),
]


@pytest.mark.parametrize("sample", MISH, ids=str)
def test_mish_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MISH, ids=str)
def test_mish_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MISH, ids=str)
def test_mish_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MISH, ids=str)
def test_mish_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MISH, ids=str)
def test_mish_jvp(sample):
    check_jvp(sample)


GELU = [
    Sample("", "Gelu", 1, 0, {"X": [3, 4]}, {}),
    Sample("", "Gelu", 1, 1, {"X": [3, 4], "approximate": "tanh"}, {}),
    Sample("", "Gelu", 1, 2, {"X": []}, {}),
    Sample("", "Gelu", 1, 3, {"X": [0, 3], "approximate": "tanh"}, {}),
    Sample("", "Gelu", 1, 4, {"X": {"shape": [9], "low": -6.0, "high": 6.0}}, {}),
    Sample("", "Gelu", 1, 5, {"X": {"shape": [9], "low": -8.0, "high": 8.0}, "approximate": "tanh"}, {}),
]


@pytest.mark.parametrize("sample", GELU, ids=str)
def test_gelu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", GELU, ids=str)
def test_gelu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", GELU, ids=str)
def test_gelu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", GELU, ids=str)
def test_gelu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", GELU, ids=str)
def test_gelu_jvp(sample):
    check_jvp(sample)


SIGMOID = [
    Sample("", "Sigmoid", 1, 0, {"X": [3, 4]}, {}),
    Sample("", "Sigmoid", 1, 1, {"X": []}, {}),
    Sample("", "Sigmoid", 1, 2, {"X": [0, 3]}, {}),
    Sample("", "Sigmoid", 1, 3, {"X": {"shape": [9], "low": -12.0, "high": 12.0}}, {}),
]


@pytest.mark.parametrize("sample", SIGMOID, ids=str)
def test_sigmoid_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SIGMOID, ids=str)
def test_sigmoid_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SIGMOID, ids=str)
def test_sigmoid_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SIGMOID, ids=str)
def test_sigmoid_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SIGMOID, ids=str)
def test_sigmoid_jvp(sample):
    check_jvp(sample)


SWISH = [
    Sample("", "Swish", 1, 0, {"X": [3, 4], "@opset": 24}, {}),
    Sample("", "Swish", 1, 1, {"X": [3, 4], "alpha": 1.7, "@opset": 24}, {}),
    Sample("", "Swish", 1, 2, {"X": [], "alpha": -0.5, "@opset": 24}, {}),
    Sample("", "Swish", 1, 3, {"X": [0, 3], "@opset": 24}, {}),
]


@pytest.mark.parametrize("sample", SWISH, ids=str)
def test_swish_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SWISH, ids=str)
def test_swish_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SWISH, ids=str)
def test_swish_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SWISH, ids=str)
def test_swish_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SWISH, ids=str)
def test_swish_jvp(sample):
    check_jvp(sample)


THRESHOLDEDRELU = [
    Sample("", "ThresholdedRelu", 1, 0, {"X": {"shape": [3, 4], "avoid": [1.0]}}, {}),
    Sample("", "ThresholdedRelu", 1, 1, {"X": {"shape": [3, 4], "avoid": [0.25]}, "alpha": 0.25}, {}),
    Sample("", "ThresholdedRelu", 1, 2, {"X": {"shape": [5], "avoid": [-0.5]}, "alpha": -0.5}, {}),
    Sample("", "ThresholdedRelu", 1, 3, {"X": {"shape": [], "avoid": [1.0]}}, {}),
    Sample("", "ThresholdedRelu", 1, 4, {"X": [0, 3]}, {}),
]


@pytest.mark.parametrize("sample", THRESHOLDEDRELU, ids=str)
def test_thresholdedrelu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", THRESHOLDEDRELU, ids=str)
def test_thresholdedrelu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", THRESHOLDEDRELU, ids=str)
def test_thresholdedrelu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", THRESHOLDEDRELU, ids=str)
def test_thresholdedrelu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", THRESHOLDEDRELU, ids=str)
def test_thresholdedrelu_jvp(sample):
    check_jvp(sample)


SHRINK = [
    Sample("", "Shrink", 1, 0, {"input": {"shape": [3, 4], "avoid": [-0.5, 0.5]}}, {}),
    Sample("", "Shrink", 1, 1, {"input": {"shape": [3, 4], "avoid": [-1.0, 1.0]}, "lambd": 1.0, "bias": 0.3}, {}),
    Sample("", "Shrink", 1, 2, {"input": {"shape": [], "avoid": [-0.5, 0.5]}}, {}),
    Sample("", "Shrink", 1, 3, {"input": [0, 3]}, {}),
]


@pytest.mark.parametrize("sample", SHRINK, ids=str)
def test_shrink_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SHRINK, ids=str)
def test_shrink_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SHRINK, ids=str)
def test_shrink_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SHRINK, ids=str)
def test_shrink_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SHRINK, ids=str)
def test_shrink_jvp(sample):
    check_jvp(sample)


CLIP = [
    Sample(
        "",
        "Clip",
        1,
        0,
        {"input": {"shape": [3, 4], "avoid": [-0.7, 0.9]}, "min": {"values": -0.7}, "max": {"values": 0.9}},
        {},
    ),
    Sample(
        "",
        "Clip",
        1,
        1,
        {
            "input": {"shape": [3, 4], "avoid": [-0.7, 0.9]},
            "min": {"values": -0.7, "constant": True},
            "max": {"values": 0.9, "constant": True},
        },
        {},
    ),
    Sample("", "Clip", 1, 2, {"input": {"shape": [2, 3], "avoid": [0.5]}, "min": {"values": 0.5}}, {}),
    Sample("", "Clip", 1, 3, {"input": {"shape": [2, 3], "avoid": [0.5]}, "max": {"values": 0.5}}, {}),
    Sample("", "Clip", 1, 4, {"input": [2, 3]}, {}),
    Sample(
        "",
        "Clip",
        1,
        5,
        {"input": {"shape": [2, 3, 2], "avoid": [-0.5, 0.5]}, "min": {"values": 0.5}, "max": {"values": -0.5}},
        {},
    ),
    Sample(
        "",
        "Clip",
        1,
        6,
        {
            "input": {"shape": [6], "avoid": [-0.5, 0.5]},
            "min": {"values": 0.5, "constant": True},
            "max": {"values": -0.5, "constant": True},
        },
        {},
    ),
    Sample("", "Clip", 1, 7, {"input": {"shape": [], "low": 0.6}, "min": {"values": -0.5}, "max": {"values": 0.5}}, {}),
    Sample("", "Clip", 1, 8, {"input": [0, 3], "min": {"values": -0.5}, "max": {"values": 0.5}}, {}),
]


@pytest.mark.parametrize("sample", CLIP, ids=str)
def test_clip_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", CLIP, ids=str)
def test_clip_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", CLIP, ids=str)
def test_clip_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", CLIP, ids=str)
def test_clip_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", CLIP, ids=str)
def test_clip_jvp(sample):
    check_jvp(sample)


SOFTMAX = [
    Sample("", "Softmax", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Softmax", 1, 1, {"input": [2, 3, 4], "axis": 1}, {}),
    Sample("", "Softmax", 1, 2, {"input": [2, 3, 4], "axis": 0}, {}),
    Sample("", "Softmax", 1, 3, {"input": [2, 3, 4], "axis": -2}, {}),
    Sample("", "Softmax", 1, 4, {"input": [5]}, {}),
    Sample("", "Softmax", 1, 5, {"input": [3, 1]}, {}),
    Sample("", "Softmax", 1, 6, {"input": [0, 3]}, {}),
    Sample("", "Softmax", 1, 7, {"input": [3, 4], "@selected": True}, {}),
]


@pytest.mark.parametrize("sample", SOFTMAX, ids=str)
def test_softmax_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SOFTMAX, ids=str)
def test_softmax_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SOFTMAX, ids=str)
def test_softmax_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SOFTMAX, ids=str)
def test_softmax_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SOFTMAX, ids=str)
def test_softmax_jvp(sample):
    check_jvp(sample)


LOGSOFTMAX = [
    Sample("", "LogSoftmax", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "LogSoftmax", 1, 1, {"input": [2, 3, 4], "axis": 1}, {}),
    Sample("", "LogSoftmax", 1, 2, {"input": [2, 3, 4], "axis": 0}, {}),
    Sample("", "LogSoftmax", 1, 3, {"input": [2, 3, 4], "axis": -2}, {}),
    Sample("", "LogSoftmax", 1, 4, {"input": [5]}, {}),
    Sample("", "LogSoftmax", 1, 5, {"input": [3, 1]}, {}),
    Sample("", "LogSoftmax", 1, 6, {"input": [0, 3]}, {}),
    Sample("", "LogSoftmax", 1, 7, {"input": [3, 4], "@selected": True}, {}),
]


@pytest.mark.parametrize("sample", LOGSOFTMAX, ids=str)
def test_logsoftmax_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", LOGSOFTMAX, ids=str)
def test_logsoftmax_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", LOGSOFTMAX, ids=str)
def test_logsoftmax_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", LOGSOFTMAX, ids=str)
def test_logsoftmax_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", LOGSOFTMAX, ids=str)
def test_logsoftmax_jvp(sample):
    check_jvp(sample)
