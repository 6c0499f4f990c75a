"""Finite-difference tests of family shape. Do not edit: generated from gradgen/rules/shape.toml."""

import pytest

from gradgen.testing import Sample, check_dynamic, check_first_order, check_float32, check_second_order

IDENTITY = [
    Sample("", "Identity", 1, 0, {"input": [3, 4]}, {}),
]


@pytest.mark.parametrize("sample", IDENTITY, ids=str)
def test_identity_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", IDENTITY, ids=str)
def test_identity_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", IDENTITY, ids=str)
def test_identity_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", IDENTITY, ids=str)
def test_identity_second_order(sample):
    check_second_order(sample)
