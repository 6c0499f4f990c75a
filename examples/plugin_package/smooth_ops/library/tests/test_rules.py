"""Finite-difference tests of family rules. Do not edit: generated from rules.toml."""

from pathlib import Path

import pytest

from gradgen import Registry
from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

RULES = Registry.load(Path(__file__).parent.parent)

OPS_SMOOTHABS = [
    Sample("smooth.ops", "SmoothAbs", 1, 0, {"x": [3, 4]}, {"kernel": False}),
    Sample("smooth.ops", "SmoothAbs", 1, 1, {"x": [5], "width": 0.5}, {"kernel": False}),
    Sample("smooth.ops", "SmoothAbs", 1, 2, {"x": []}, {"kernel": False}),
    Sample("smooth.ops", "SmoothAbs", 1, 3, {"x": [0, 3]}, {"kernel": False}),
]


@pytest.mark.parametrize("sample", OPS_SMOOTHABS, ids=str)
def test_ops_smoothabs_first_order(sample):
    check_first_order(sample, RULES)


@pytest.mark.parametrize("sample", OPS_SMOOTHABS, ids=str)
def test_ops_smoothabs_float32(sample):
    check_float32(sample, RULES)


@pytest.mark.parametrize("sample", OPS_SMOOTHABS, ids=str)
def test_ops_smoothabs_dynamic(sample):
    check_dynamic(sample, RULES)


@pytest.mark.parametrize("sample", OPS_SMOOTHABS, ids=str)
def test_ops_smoothabs_second_order(sample):
    check_second_order(sample, RULES)


@pytest.mark.parametrize("sample", OPS_SMOOTHABS, ids=str)
def test_ops_smoothabs_jvp(sample):
    check_jvp(sample, RULES)


OPS_LOGCOSH = [
    Sample("smooth.ops", "LogCosh", 1, 0, {"x": [3, 4]}, {"avoid": {"x": [0.0]}, "kernel": False}),
    Sample("smooth.ops", "LogCosh", 1, 1, {"x": []}, {"avoid": {"x": [0.0]}, "kernel": False}),
    Sample("smooth.ops", "LogCosh", 1, 2, {"x": [0, 3]}, {"avoid": {"x": [0.0]}, "kernel": False}),
]


@pytest.mark.parametrize("sample", OPS_LOGCOSH, ids=str)
def test_ops_logcosh_first_order(sample):
    check_first_order(sample, RULES)


@pytest.mark.parametrize("sample", OPS_LOGCOSH, ids=str)
def test_ops_logcosh_float32(sample):
    check_float32(sample, RULES)


@pytest.mark.parametrize("sample", OPS_LOGCOSH, ids=str)
def test_ops_logcosh_dynamic(sample):
    check_dynamic(sample, RULES)


@pytest.mark.parametrize("sample", OPS_LOGCOSH, ids=str)
def test_ops_logcosh_second_order(sample):
    check_second_order(sample, RULES)


@pytest.mark.parametrize("sample", OPS_LOGCOSH, ids=str)
def test_ops_logcosh_jvp(sample):
    check_jvp(sample, RULES)


OPS_LOGMEANEXP = [
    Sample("smooth.ops", "LogMeanExp", 1, 0, {"x": [3, 4]}, {"kernel": False}),
    Sample("smooth.ops", "LogMeanExp", 1, 1, {"x": [2, 3, 4], "axis": 1}, {"kernel": False}),
    Sample("smooth.ops", "LogMeanExp", 1, 2, {"x": [5], "axis": 0}, {"kernel": False}),
]


@pytest.mark.parametrize("sample", OPS_LOGMEANEXP, ids=str)
def test_ops_logmeanexp_first_order(sample):
    check_first_order(sample, RULES)


@pytest.mark.parametrize("sample", OPS_LOGMEANEXP, ids=str)
def test_ops_logmeanexp_float32(sample):
    check_float32(sample, RULES)


@pytest.mark.parametrize("sample", OPS_LOGMEANEXP, ids=str)
def test_ops_logmeanexp_dynamic(sample):
    check_dynamic(sample, RULES)


@pytest.mark.parametrize("sample", OPS_LOGMEANEXP, ids=str)
def test_ops_logmeanexp_second_order(sample):
    check_second_order(sample, RULES)


@pytest.mark.parametrize("sample", OPS_LOGMEANEXP, ids=str)
def test_ops_logmeanexp_jvp(sample):
    check_jvp(sample, RULES)
