"""Finite-difference tests of family arithmetic. Do not edit: generated from gradgen/rules/arithmetic.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

ADD = [
    Sample("", "Add", 1, 0, {"A": [3, 4], "B": [3, 4]}, {}),
    Sample("", "Add", 1, 1, {"A": [2, 1, 4], "B": [3, 1]}, {}),
    Sample("", "Add", 1, 2, {"A": [], "B": [2, 3]}, {}),
    Sample("", "Add", 1, 3, {"A": [0, 3], "B": [3]}, {}),
]


@pytest.mark.parametrize("sample", ADD, ids=str)
def test_add_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ADD, ids=str)
def test_add_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ADD, ids=str)
def test_add_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ADD, ids=str)
def test_add_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ADD, ids=str)
def test_add_jvp(sample):
    check_jvp(sample)


SUB = [
    Sample("", "Sub", 1, 0, {"A": [3, 4], "B": [3, 4]}, {}),
    Sample("", "Sub", 1, 1, {"A": [2, 1, 4], "B": [3, 1]}, {}),
    Sample("", "Sub", 1, 2, {"A": [], "B": [2, 3]}, {}),
    Sample("", "Sub", 1, 3, {"A": [0, 3], "B": [3]}, {}),
    Sample("", "Sub", 1, 4, {"A": [4], "B": []}, {}),
]


@pytest.mark.parametrize("sample", SUB, ids=str)
def test_sub_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SUB, ids=str)
def test_sub_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SUB, ids=str)
def test_sub_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SUB, ids=str)
def test_sub_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SUB, ids=str)
def test_sub_jvp(sample):
    check_jvp(sample)


MUL = [
    Sample("", "Mul", 1, 0, {"A": [3, 4], "B": [3, 4]}, {}),
    Sample("", "Mul", 1, 1, {"A": [2, 1, 4], "B": [3, 1]}, {}),
    Sample("", "Mul", 1, 2, {"A": [], "B": [2, 3]}, {}),
    Sample("", "Mul", 1, 3, {"A": [2, 3], "B": [1, 1, 1]}, {}),
    Sample("", "Mul", 1, 4, {"A": [0, 3], "B": [3]}, {}),
]


@pytest.mark.parametrize("sample", MUL, ids=str)
def test_mul_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MUL, ids=str)
def test_mul_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MUL, ids=str)
def test_mul_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MUL, ids=str)
def test_mul_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MUL, ids=str)
def test_mul_jvp(sample):
    check_jvp(sample)


DIV = [
    Sample("", "Div", 1, 0, {"A": [3, 4], "B": [3, 4]}, {"range": {"B": [0.4, 2.0]}, "avoid": {"B": [0.0]}}),
    Sample(
        "",
        "Div",
        1,
        1,
        {"A": [2, 1, 4], "B": {"shape": [3, 1], "low": -2.0, "high": -0.5}},
        {"range": {"B": [0.4, 2.0]}, "avoid": {"B": [0.0]}},
    ),
    Sample("", "Div", 1, 2, {"A": [], "B": [2, 3]}, {"range": {"B": [0.4, 2.0]}, "avoid": {"B": [0.0]}}),
    Sample("", "Div", 1, 3, {"A": [2, 3], "B": []}, {"range": {"B": [0.4, 2.0]}, "avoid": {"B": [0.0]}}),
    Sample("", "Div", 1, 4, {"A": [0, 3], "B": [3]}, {"range": {"B": [0.4, 2.0]}, "avoid": {"B": [0.0]}}),
    Sample(
        "",
        "Div",
        1,
        5,
        {"A": [2, 3], "B": {"values": [3.0], "constant": True}},
        {"range": {"B": [0.4, 2.0]}, "avoid": {"B": [0.0]}},
    ),
    Sample(
        "",
        "Div",
        1,
        6,
        {"A": [2, 3], "B": {"values": [[[-0.7]]], "constant": True}},
        {"range": {"B": [0.4, 2.0]}, "avoid": {"B": [0.0]}},
    ),
]


@pytest.mark.parametrize("sample", DIV, ids=str)
def test_div_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", DIV, ids=str)
def test_div_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", DIV, ids=str)
def test_div_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", DIV, ids=str)
def test_div_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", DIV, ids=str)
def test_div_jvp(sample):
    check_jvp(sample)


NEG = [
    Sample("", "Neg", 1, 0, {"X": [3, 4]}, {}),
    Sample("", "Neg", 1, 1, {"X": []}, {}),
    Sample("", "Neg", 1, 2, {"X": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", NEG, ids=str)
def test_neg_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", NEG, ids=str)
def test_neg_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", NEG, ids=str)
def test_neg_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", NEG, ids=str)
def test_neg_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", NEG, ids=str)
def test_neg_jvp(sample):
    check_jvp(sample)


ABS = [
    Sample("", "Abs", 1, 0, {"X": [3, 4]}, {"avoid": {"X": [0.0]}}),
    Sample("", "Abs", 1, 1, {"X": []}, {"avoid": {"X": [0.0]}}),
    Sample("", "Abs", 1, 2, {"X": [0, 2]}, {"avoid": {"X": [0.0]}}),
]


@pytest.mark.parametrize("sample", ABS, ids=str)
def test_abs_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ABS, ids=str)
def test_abs_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ABS, ids=str)
def test_abs_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ABS, ids=str)
def test_abs_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ABS, ids=str)
def test_abs_jvp(sample):
    check_jvp(sample)


EXP = [
    Sample("", "Exp", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Exp", 1, 1, {"input": []}, {}),
    Sample("", "Exp", 1, 2, {"input": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", EXP, ids=str)
def test_exp_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", EXP, ids=str)
def test_exp_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", EXP, ids=str)
def test_exp_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", EXP, ids=str)
def test_exp_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", EXP, ids=str)
def test_exp_jvp(sample):
    check_jvp(sample)


LOG = [
    Sample("", "Log", 1, 0, {"input": [3, 4]}, {"range": {"input": [0.3, 3.0]}}),
    Sample("", "Log", 1, 1, {"input": []}, {"range": {"input": [0.3, 3.0]}}),
    Sample("", "Log", 1, 2, {"input": [0, 2]}, {"range": {"input": [0.3, 3.0]}}),
]


@pytest.mark.parametrize("sample", LOG, ids=str)
def test_log_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", LOG, ids=str)
def test_log_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", LOG, ids=str)
def test_log_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", LOG, ids=str)
def test_log_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", LOG, ids=str)
def test_log_jvp(sample):
    check_jvp(sample)


SQRT = [
    Sample("", "Sqrt", 1, 0, {"X": [3, 4]}, {"range": {"X": [0.3, 3.0]}}),
    Sample("", "Sqrt", 1, 1, {"X": []}, {"range": {"X": [0.3, 3.0]}}),
    Sample("", "Sqrt", 1, 2, {"X": [0, 2]}, {"range": {"X": [0.3, 3.0]}}),
]


@pytest.mark.parametrize("sample", SQRT, ids=str)
def test_sqrt_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SQRT, ids=str)
def test_sqrt_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SQRT, ids=str)
def test_sqrt_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SQRT, ids=str)
def test_sqrt_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SQRT, ids=str)
def test_sqrt_jvp(sample):
    check_jvp(sample)


RECIPROCAL = [
    Sample("", "Reciprocal", 1, 0, {"X": [3, 4]}, {"range": {"X": [0.4, 2.0]}}),
    Sample("", "Reciprocal", 1, 1, {"X": {"shape": [3], "low": -2.0, "high": -0.5}}, {"range": {"X": [0.4, 2.0]}}),
    Sample("", "Reciprocal", 1, 2, {"X": []}, {"range": {"X": [0.4, 2.0]}}),
    Sample("", "Reciprocal", 1, 3, {"X": [0, 2]}, {"range": {"X": [0.4, 2.0]}}),
]


@pytest.mark.parametrize("sample", RECIPROCAL, ids=str)
def test_reciprocal_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", RECIPROCAL, ids=str)
def test_reciprocal_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", RECIPROCAL, ids=str)
def test_reciprocal_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", RECIPROCAL, ids=str)
def test_reciprocal_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", RECIPROCAL, ids=str)
def test_reciprocal_jvp(sample):
    check_jvp(sample)


POW = [
    Sample("", "Pow", 1, 0, {"X": [3, 4], "Y": [3, 4]}, {"range": {"X": [0.3, 2.0]}}),
    Sample("", "Pow", 1, 1, {"X": [2, 1, 4], "Y": [3, 1]}, {"range": {"X": [0.3, 2.0]}}),
    Sample("", "Pow", 1, 2, {"X": [], "Y": [2, 3]}, {"range": {"X": [0.3, 2.0]}}),
    Sample("", "Pow", 1, 3, {"X": [2, 3], "Y": []}, {"range": {"X": [0.3, 2.0]}}),
    Sample("", "Pow", 1, 4, {"X": [0, 3], "Y": [3]}, {"range": {"X": [0.3, 2.0]}}),
    Sample(
        "",
        "Pow",
        1,
        5,
        {
            "X": {"shape": [2, 3], "low": -2.0, "high": 2.0, "avoid": [0.0]},
            "Y": {"values": [1, 2, 3], "dtype": "int64", "constant": True},
        },
        {"range": {"X": [0.3, 2.0]}},
    ),
    Sample(
        "",
        "Pow",
        1,
        6,
        {
            "X": {"shape": [2, 2], "low": -2.0, "high": 2.0, "avoid": [0.0]},
            "Y": {"values": [3.0, -2.0], "constant": True},
        },
        {"range": {"X": [0.3, 2.0]}},
    ),
    Sample(
        "",
        "Pow",
        1,
        7,
        {"X": {"shape": [5], "low": -2.0, "high": 2.0}, "Y": {"values": 1.0, "constant": True}},
        {"range": {"X": [0.3, 2.0]}},
    ),
    Sample(
        "",
        "Pow",
        1,
        8,
        {"X": {"shape": [5], "low": -2.0, "high": 2.0}, "Y": {"values": 2, "dtype": "int32", "constant": True}},
        {"range": {"X": [0.3, 2.0]}},
    ),
    Sample(
        "",
        "Pow",
        1,
        9,
        {"X": {"shape": [2, 3], "low": -2.0, "high": 2.0}, "Y": {"values": [[[3.0]]], "constant": True}},
        {"range": {"X": [0.3, 2.0]}},
    ),
    Sample("", "Pow", 1, 10, {"X": [2, 3], "Y": {"values": [0.5], "constant": True}}, {"range": {"X": [0.3, 2.0]}}),
    Sample(
        "",
        "Pow",
        1,
        11,
        {"X": {"shape": [2, 3], "low": -2.0, "high": -0.4}, "Y": {"values": [-1.0], "constant": True}},
        {"range": {"X": [0.3, 2.0]}},
    ),
    Sample(
        "",
        "Pow",
        1,
        12,
        {"X": {"shape": [2, 3], "low": -2.0, "high": 2.0}, "Y": {"values": 5.0, "constant": True}},
        {"range": {"X": [0.3, 2.0]}},
    ),
    Sample("", "Pow", 1, 13, {"X": [2, 3], "Y": {"values": 1.7, "constant": True}}, {"range": {"X": [0.3, 2.0]}}),
    Sample("", "Pow", 1, 14, {"X": [2, 3], "Y": {"values": 0.0, "constant": True}}, {"range": {"X": [0.3, 2.0]}}),
]


@pytest.mark.parametrize("sample", POW, ids=str)
def test_pow_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", POW, ids=str)
def test_pow_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", POW, ids=str)
def test_pow_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", POW, ids=str)
def test_pow_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", POW, ids=str)
def test_pow_jvp(sample):
    check_jvp(sample)


MOD = [
    Sample(
        "",
        "Mod",
        1,
        0,
        {"A": {"values": [[-3.3, 2.4], [5.1, -0.6]]}, "B": {"values": [[1.2, -0.9], [2.0, 1.0]]}, "fmod": 1},
        {},
    ),
    Sample("", "Mod", 1, 1, {"A": {"values": [2.5, -4.6, 7.3]}, "B": {"values": 1.1}, "fmod": 1}, {}),
    Sample("", "Mod", 1, 2, {"A": {"values": 2.5}, "B": {"values": [[0.7], [-1.6]]}, "fmod": 1}, {}),
    Sample("", "Mod", 1, 3, {"A": [0, 3], "B": [3], "fmod": 1}, {}),
    Sample(
        "", "Mod", 1, 4, {"A": {"values": [[-3.3, 2.4], [5.1, -0.6]]}, "B": {"values": [1.2, -0.9]}, "@opset": 28}, {}
    ),
]


@pytest.mark.parametrize("sample", MOD, ids=str)
def test_mod_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MOD, ids=str)
def test_mod_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MOD, ids=str)
def test_mod_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MOD, ids=str)
def test_mod_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MOD, ids=str)
def test_mod_jvp(sample):
    check_jvp(sample)


WHERE = [
    Sample("", "Where", 1, 0, {"condition": [[True, False, True], [False, False, True]], "X": [2, 3], "Y": [2, 3]}, {}),
    Sample("", "Where", 1, 1, {"condition": [True, False, True], "X": [2, 1], "Y": []}, {}),
    Sample("", "Where", 1, 2, {"condition": [[True], [False]], "X": [3], "Y": [2, 2, 1]}, {}),
    Sample("", "Where", 1, 3, {"condition": True, "X": [2], "Y": [2]}, {}),
    Sample("", "Where", 1, 4, {"condition": False, "X": [], "Y": [2, 1]}, {}),
    Sample("", "Where", 1, 5, {"condition": [True, False], "X": [0, 2], "Y": [2]}, {}),
]


@pytest.mark.parametrize("sample", WHERE, ids=str)
def test_where_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", WHERE, ids=str)
def test_where_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", WHERE, ids=str)
def test_where_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", WHERE, ids=str)
def test_where_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", WHERE, ids=str)
def test_where_jvp(sample):
    check_jvp(sample)


SUM = [
    Sample("", "Sum", 1, 0, {"data_0": [[3, 4], [3, 4]]}, {}),
    Sample("", "Sum", 1, 1, {"data_0": [[2, 1, 4], [3, 1], []]}, {}),
    Sample("", "Sum", 1, 2, {"data_0": [[2, 3]]}, {}),
    Sample("", "Sum", 1, 3, {"data_0": [[0, 3], [3]]}, {}),
]


@pytest.mark.parametrize("sample", SUM, ids=str)
def test_sum_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SUM, ids=str)
def test_sum_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SUM, ids=str)
def test_sum_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SUM, ids=str)
def test_sum_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SUM, ids=str)
def test_sum_jvp(sample):
    check_jvp(sample)


MEAN = [
    Sample("", "Mean", 1, 0, {"data_0": [[3, 4], [3, 4]]}, {}),
    Sample("", "Mean", 1, 1, {"data_0": [[2, 1, 4], [3, 1], []]}, {}),
    Sample("", "Mean", 1, 2, {"data_0": [[2, 3]]}, {}),
    Sample("", "Mean", 1, 3, {"data_0": [[0, 3], [3]]}, {}),
]


@pytest.mark.parametrize("sample", MEAN, ids=str)
def test_mean_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MEAN, ids=str)
def test_mean_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MEAN, ids=str)
def test_mean_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MEAN, ids=str)
def test_mean_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MEAN, ids=str)
def test_mean_jvp(sample):
    check_jvp(sample)


MAX = [
    Sample(
        "", "Max", 1, 0, {"data_0": [{"values": [[0.3, -1.2], [2.0, 0.7]]}, {"values": [[0.9, -1.5], [1.1, 0.2]]}]}, {}
    ),
    Sample(
        "", "Max", 1, 1, {"data_0": [{"values": [[0.3], [2.0]]}, {"values": [0.9, -1.5, 2.5]}, {"values": 0.5}]}, {}
    ),
    Sample("", "Max", 1, 2, {"data_0": [[2, 3]]}, {}),
    Sample("", "Max", 1, 3, {"data_0": [[0, 3], [3]]}, {}),
]


@pytest.mark.parametrize("sample", MAX, ids=str)
def test_max_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MAX, ids=str)
def test_max_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MAX, ids=str)
def test_max_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MAX, ids=str)
def test_max_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MAX, ids=str)
def test_max_jvp(sample):
    check_jvp(sample)


MIN = [
    Sample(
        "", "Min", 1, 0, {"data_0": [{"values": [[0.3, -1.2], [2.0, 0.7]]}, {"values": [[0.9, -1.5], [1.1, 0.2]]}]}, {}
    ),
    Sample(
        "", "Min", 1, 1, {"data_0": [{"values": [[0.3], [2.0]]}, {"values": [0.9, -1.5, 2.5]}, {"values": 0.5}]}, {}
    ),
    Sample("", "Min", 1, 2, {"data_0": [[2, 3]]}, {}),
    Sample("", "Min", 1, 3, {"data_0": [[0, 3], [3]]}, {}),
]


@pytest.mark.parametrize("sample", MIN, ids=str)
def test_min_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MIN, ids=str)
def test_min_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MIN, ids=str)
def test_min_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MIN, ids=str)
def test_min_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MIN, ids=str)
def test_min_jvp(sample):
    check_jvp(sample)
