"""Finite-difference tests of family attention. Do not edit: generated from gradgen/rules/attention.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

ATTENTION = [
    Sample("", "Attention", 1, 0, {"@opset": 23, "Q": [2, 2, 3, 4], "K": [2, 2, 5, 4], "V": [2, 2, 5, 2]}, {}),
    Sample(
        "",
        "Attention",
        1,
        1,
        {"@opset": 23, "Q": [1, 4, 3, 2], "K": [1, 2, 4, 2], "V": [1, 2, 4, 3], "is_causal": 1, "scale": 0.4},
        {},
    ),
    Sample(
        "",
        "Attention",
        1,
        2,
        {
            "@opset": 23,
            "Q": [2, 3, 8],
            "K": [2, 4, 4],
            "V": [2, 4, 6],
            "attn_mask": [3, 4],
            "q_num_heads": 4,
            "kv_num_heads": 2,
            "softcap": 2.0,
        },
        {},
    ),
    Sample(
        "",
        "Attention",
        1,
        3,
        {
            "@opset": 23,
            "Q": [1, 2, 2, 3],
            "K": [1, 2, 3, 3],
            "V": [1, 2, 3, 2],
            "attn_mask": [2, 2, 5],
            "past_key": [1, 2, 2, 3],
            "past_value": [1, 2, 2, 2],
            "is_causal": 1,
            "@outputs": ["Y", "present_key", "present_value"],
        },
        {},
    ),
    Sample(
        "",
        "Attention",
        1,
        4,
        {
            "@opset": 24,
            "Q": [2, 3, 4],
            "K": [2, 2, 2],
            "V": [2, 2, 2],
            "past_key": [2, 1, 3, 2],
            "past_value": [2, 1, 3, 2],
            "q_num_heads": 2,
            "kv_num_heads": 1,
            "softcap": 1.5,
            "@outputs": ["Y", "present_key", "present_value", "qk_matmul_output"],
        },
        {},
    ),
    Sample(
        "",
        "Attention",
        1,
        5,
        {
            "@opset": 24,
            "Q": [2, 1, 3, 2],
            "K": [2, 1, 4, 2],
            "V": [2, 1, 4, 2],
            "nonpad_kv_seqlen": [4, 2],
            "is_causal": 1,
        },
        {},
    ),
    Sample(
        "",
        "Attention",
        1,
        6,
        {
            "@opset": 24,
            "Q": [1, 2, 3, 2],
            "K": [1, 2, 4, 2],
            "V": [1, 2, 4, 2],
            "attn_mask": [1, 2, 3, 4],
            "qk_matmul_output_mode": 2,
            "softcap": 3.0,
            "@outputs": ["Y", "", "", "qk_matmul_output"],
        },
        {},
    ),
    Sample(
        "",
        "Attention",
        1,
        7,
        {
            "@opset": 24,
            "Q": [1, 2, 3, 2],
            "K": [1, 2, 4, 2],
            "V": [1, 2, 4, 2],
            "qk_matmul_output_mode": 1,
            "softcap": 1.0,
            "@outputs": ["Y", "", "", "qk_matmul_output"],
        },
        {},
    ),
    Sample(
        "",
        "Attention",
        1,
        8,
        {
            "@opset": 25,
            "Q": [1, 2, 4, 2],
            "K": [1, 1, 4, 2],
            "V": [1, 1, 4, 2],
            "left_window_size": 1,
            "right_window_size": 2,
            "softmax_precision": 11,
            "qk_matmul_output_mode": 3,
            "@outputs": ["Y", "", "", "qk_matmul_output"],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", ATTENTION, ids=str)
def test_attention_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ATTENTION, ids=str)
def test_attention_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ATTENTION, ids=str)
def test_attention_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ATTENTION, ids=str)
def test_attention_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ATTENTION, ids=str)
def test_attention_jvp(sample):
    check_jvp(sample)
