"""Finite-difference tests of family rotary. Do not edit: generated from gradgen/rules/rotary.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

ROTARYEMBEDDING = [
    Sample(
        "",
        "RotaryEmbedding",
        1,
        0,
        {
            "@opset": 23,
            "X": {"shape": [1, 2, 3, 4], "constant": False},
            "cos_cache": {"shape": [1, 3, 2], "constant": False},
            "sin_cache": {"shape": [1, 3, 2], "constant": False},
        },
        {},
    ),
    Sample(
        "",
        "RotaryEmbedding",
        1,
        1,
        {
            "@opset": 23,
            "X": {"shape": [2, 2, 3, 4], "constant": False},
            "cos_cache": {"shape": [5, 2], "constant": False},
            "sin_cache": {"shape": [5, 2], "constant": False},
            "position_ids": [[0, 4, 1], [4, 4, 2]],
            "interleaved": 1,
        },
        {},
    ),
    Sample(
        "",
        "RotaryEmbedding",
        1,
        2,
        {
            "@opset": 23,
            "X": {"shape": [2, 3, 8], "constant": False},
            "cos_cache": {"shape": [2, 3, 2], "constant": False},
            "sin_cache": {"shape": [2, 3, 2], "constant": False},
            "num_heads": 2,
        },
        {},
    ),
    Sample(
        "",
        "RotaryEmbedding",
        1,
        3,
        {
            "@opset": 23,
            "X": {"shape": [1, 2, 12], "constant": False},
            "cos_cache": {"shape": [4, 2], "constant": False},
            "sin_cache": {"shape": [4, 2], "constant": False},
            "position_ids": [[1, 3]],
            "num_heads": 2,
            "rotary_embedding_dim": 4,
        },
        {},
    ),
    Sample(
        "",
        "RotaryEmbedding",
        1,
        4,
        {
            "@opset": 23,
            "X": {"shape": [1, 1, 2, 6], "constant": False},
            "cos_cache": {"shape": [1, 2, 1], "constant": False},
            "sin_cache": {"shape": [1, 2, 1], "constant": False},
            "interleaved": 1,
            "rotary_embedding_dim": 2,
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", ROTARYEMBEDDING, ids=str)
def test_rotaryembedding_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ROTARYEMBEDDING, ids=str)
def test_rotaryembedding_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ROTARYEMBEDDING, ids=str)
def test_rotaryembedding_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ROTARYEMBEDDING, ids=str)
def test_rotaryembedding_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ROTARYEMBEDDING, ids=str)
def test_rotaryembedding_jvp(sample):
    check_jvp(sample)
