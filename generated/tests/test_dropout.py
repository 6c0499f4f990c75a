"""Finite-difference tests of family dropout. Do not edit: generated from gradgen/rules/dropout.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

DROPOUT = [
    Sample("", "Dropout", 1, 0, {"data": [3, 4]}, {}),
    Sample("", "Dropout", 1, 1, {"data": [3, 4], "ratio": {"values": 0.3, "constant": True}}, {}),
    Sample(
        "", "Dropout", 1, 2, {"data": [3, 4], "ratio": {"values": 0.3, "constant": True}, "training_mode": False}, {}
    ),
    Sample(
        "", "Dropout", 1, 3, {"data": [2, 3, 2], "ratio": {"values": 0.0, "constant": True}, "training_mode": True}, {}
    ),
    Sample("", "Dropout", 1, 4, {"data": [], "training_mode": False}, {}),
    Sample(
        "", "Dropout", 1, 5, {"data": [0, 3], "ratio": {"values": 0.3, "constant": True}, "training_mode": True}, {}
    ),
]


@pytest.mark.parametrize("sample", DROPOUT, ids=str)
def test_dropout_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", DROPOUT, ids=str)
def test_dropout_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", DROPOUT, ids=str)
def test_dropout_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", DROPOUT, ids=str)
def test_dropout_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", DROPOUT, ids=str)
def test_dropout_jvp(sample):
    check_jvp(sample)
