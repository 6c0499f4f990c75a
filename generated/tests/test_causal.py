"""Finite-difference tests of family causal. Do not edit: generated from gradgen/rules/causal.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

CAUSALCONVWITHSTATE = [
    Sample(
        "",
        "CausalConvWithState",
        1,
        0,
        {
            "@opset": 27,
            "input": {"shape": [2, 3, 4], "constant": False},
            "weight": {"shape": [3, 1, 3], "constant": False},
            "bias": {"shape": [3], "constant": False},
            "past_state": {"shape": [2, 3, 2], "constant": False},
            "activation": "silu",
            "@outputs": ["output", "present_state"],
        },
        {},
    ),
    Sample(
        "",
        "CausalConvWithState",
        1,
        1,
        {
            "@opset": 27,
            "input": {"shape": [1, 2, 5], "constant": False},
            "weight": {"shape": [2, 1, 4], "constant": False},
        },
        {},
    ),
    Sample(
        "",
        "CausalConvWithState",
        1,
        2,
        {
            "@opset": 27,
            "input": {"shape": [2, 2, 3], "constant": False},
            "weight": {"shape": [2, 1, 1], "constant": False},
            "bias": {"shape": [2], "constant": False},
            "activation": "swish",
        },
        {},
    ),
    Sample(
        "",
        "CausalConvWithState",
        1,
        3,
        {
            "@opset": 27,
            "input": {"shape": [1, 2, 1], "constant": False},
            "weight": {"shape": [2, 1, 3], "constant": False},
            "past_state": {"shape": [1, 2, 2], "constant": False},
            "@outputs": ["output", "present_state"],
            "@of": ["present_state"],
            "@wrt": ["input", "past_state"],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", CAUSALCONVWITHSTATE, ids=str)
def test_causalconvwithstate_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", CAUSALCONVWITHSTATE, ids=str)
def test_causalconvwithstate_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", CAUSALCONVWITHSTATE, ids=str)
def test_causalconvwithstate_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", CAUSALCONVWITHSTATE, ids=str)
def test_causalconvwithstate_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", CAUSALCONVWITHSTATE, ids=str)
def test_causalconvwithstate_jvp(sample):
    check_jvp(sample)
