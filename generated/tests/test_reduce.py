"""Finite-difference tests of family reduce. Do not edit: generated from gradgen/rules/reduce.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

REDUCESUM = [
    Sample("", "ReduceSum", 1, 0, {"data": [3, 4], "axes": [1]}, {}),
    Sample("", "ReduceSum", 1, 1, {"data": [2, 3, 2], "axes": [0, -1], "keepdims": 0}, {}),
    Sample("", "ReduceSum", 1, 2, {"data": [2, 3]}, {}),
    Sample("", "ReduceSum", 1, 3, {"data": [2, 3], "axes": [], "keepdims": 0}, {}),
    Sample("", "ReduceSum", 1, 4, {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1}, {}),
    Sample("", "ReduceSum", 1, 5, {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0}, {}),
    Sample("", "ReduceSum", 1, 6, {"data": [], "keepdims": 0}, {}),
    Sample("", "ReduceSum", 1, 7, {"data": [0, 3], "axes": [1], "keepdims": 0}, {}),
    Sample("", "ReduceSum", 1, 8, {"data": [0, 3], "axes": [0]}, {}),
]


@pytest.mark.parametrize("sample", REDUCESUM, ids=str)
def test_reducesum_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCESUM, ids=str)
def test_reducesum_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCESUM, ids=str)
def test_reducesum_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCESUM, ids=str)
def test_reducesum_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", REDUCESUM, ids=str)
def test_reducesum_jvp(sample):
    check_jvp(sample)


REDUCEMEAN = [
    Sample("", "ReduceMean", 1, 0, {"data": [3, 4], "axes": [1]}, {}),
    Sample("", "ReduceMean", 1, 1, {"data": [2, 3, 2], "axes": [0, -1], "keepdims": 0}, {}),
    Sample("", "ReduceMean", 1, 2, {"data": [2, 3]}, {}),
    Sample("", "ReduceMean", 1, 3, {"data": [2, 3], "axes": [], "keepdims": 0}, {}),
    Sample("", "ReduceMean", 1, 4, {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1}, {}),
    Sample("", "ReduceMean", 1, 5, {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0}, {}),
    Sample("", "ReduceMean", 1, 6, {"data": [], "keepdims": 0}, {}),
    Sample("", "ReduceMean", 1, 7, {"data": [0, 3], "axes": [1], "keepdims": 0}, {}),
]


@pytest.mark.parametrize("sample", REDUCEMEAN, ids=str)
def test_reducemean_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCEMEAN, ids=str)
def test_reducemean_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCEMEAN, ids=str)
def test_reducemean_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCEMEAN, ids=str)
def test_reducemean_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", REDUCEMEAN, ids=str)
def test_reducemean_jvp(sample):
    check_jvp(sample)


REDUCEMAX = [
    Sample("", "ReduceMax", 1, 0, {"data": [3, 4], "axes": [1]}, {}),
    Sample("", "ReduceMax", 1, 1, {"data": [2, 3, 2], "axes": [0, -1], "keepdims": 0}, {}),
    Sample("", "ReduceMax", 1, 2, {"data": [2, 3]}, {}),
    Sample("", "ReduceMax", 1, 3, {"data": [2, 3], "axes": [], "keepdims": 0}, {}),
    Sample("", "ReduceMax", 1, 4, {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1}, {}),
    Sample("", "ReduceMax", 1, 5, {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0}, {}),
    Sample("", "ReduceMax", 1, 6, {"data": [], "keepdims": 0}, {}),
    Sample("", "ReduceMax", 1, 7, {"data": [0, 3], "axes": [1], "keepdims": 0}, {}),
]


@pytest.mark.parametrize("sample", REDUCEMAX, ids=str)
def test_reducemax_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCEMAX, ids=str)
def test_reducemax_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCEMAX, ids=str)
def test_reducemax_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCEMAX, ids=str)
def test_reducemax_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", REDUCEMAX, ids=str)
def test_reducemax_jvp(sample):
    check_jvp(sample)


REDUCEMIN = [
    Sample("", "ReduceMin", 1, 0, {"data": [3, 4], "axes": [1]}, {}),
    Sample("", "ReduceMin", 1, 1, {"data": [2, 3, 2], "axes": [0, -1], "keepdims": 0}, {}),
    Sample("", "ReduceMin", 1, 2, {"data": [2, 3]}, {}),
    Sample("", "ReduceMin", 1, 3, {"data": [2, 3], "axes": [], "keepdims": 0}, {}),
    Sample("", "ReduceMin", 1, 4, {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1}, {}),
    Sample("", "ReduceMin", 1, 5, {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0}, {}),
    Sample("", "ReduceMin", 1, 6, {"data": [], "keepdims": 0}, {}),
    Sample("", "ReduceMin", 1, 7, {"data": [0, 3], "axes": [1], "keepdims": 0}, {}),
]


@pytest.mark.parametrize("sample", REDUCEMIN, ids=str)
def test_reducemin_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCEMIN, ids=str)
def test_reducemin_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCEMIN, ids=str)
def test_reducemin_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCEMIN, ids=str)
def test_reducemin_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", REDUCEMIN, ids=str)
def test_reducemin_jvp(sample):
    check_jvp(sample)


REDUCEPROD = [
    Sample("", "ReduceProd", 1, 0, {"data": [3, 4], "axes": [1]}, {}),
    Sample("", "ReduceProd", 1, 1, {"data": [2, 3, 2], "axes": [0, -1], "keepdims": 0}, {}),
    Sample("", "ReduceProd", 1, 2, {"data": [2, 3]}, {}),
    Sample("", "ReduceProd", 1, 3, {"data": [2, 3], "axes": [], "keepdims": 0}, {}),
    Sample("", "ReduceProd", 1, 4, {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1}, {}),
    Sample("", "ReduceProd", 1, 5, {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0}, {}),
    Sample("", "ReduceProd", 1, 6, {"data": [], "keepdims": 0}, {}),
    Sample("", "ReduceProd", 1, 7, {"data": [0, 3], "axes": [1], "keepdims": 0}, {}),
    Sample(
        "",
        "ReduceProd",
        1,
        8,
        {"data": {"values": [[2.0, 0.0, 3.0], [0.0, 0.0, 1.5], [1.0, -2.0, 0.5]]}, "axes": [-1]},
        {},
    ),
    Sample("", "ReduceProd", 1, 9, {"data": {"values": [0.0, 2.0, -1.5, 3.0]}, "keepdims": 0}, {}),
    Sample("", "ReduceProd", 1, 10, {"data": [3, 2, 5], "axes": [1, -1], "keepdims": 0}, {}),
    Sample("", "ReduceProd", 1, 11, {"data": [5, 3, 1], "axes": [0]}, {}),
]


@pytest.mark.parametrize("sample", REDUCEPROD, ids=str)
def test_reduceprod_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCEPROD, ids=str)
def test_reduceprod_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCEPROD, ids=str)
def test_reduceprod_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCEPROD, ids=str)
def test_reduceprod_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", REDUCEPROD, ids=str)
def test_reduceprod_jvp(sample):
    check_jvp(sample)


REDUCEL1 = [
    Sample("", "ReduceL1", 1, 0, {"data": [3, 4], "axes": [1]}, {"avoid": {"data": [0.0]}}),
    Sample("", "ReduceL1", 1, 1, {"data": [2, 3, 2], "axes": [0, -1], "keepdims": 0}, {"avoid": {"data": [0.0]}}),
    Sample("", "ReduceL1", 1, 2, {"data": [2, 3]}, {"avoid": {"data": [0.0]}}),
    Sample("", "ReduceL1", 1, 3, {"data": [2, 3], "axes": [], "keepdims": 0}, {"avoid": {"data": [0.0]}}),
    Sample("", "ReduceL1", 1, 4, {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1}, {"avoid": {"data": [0.0]}}),
    Sample(
        "", "ReduceL1", 1, 5, {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0}, {"avoid": {"data": [0.0]}}
    ),
    Sample("", "ReduceL1", 1, 6, {"data": [], "keepdims": 0}, {"avoid": {"data": [0.0]}}),
    Sample("", "ReduceL1", 1, 7, {"data": [0, 3], "axes": [1], "keepdims": 0}, {"avoid": {"data": [0.0]}}),
]


@pytest.mark.parametrize("sample", REDUCEL1, ids=str)
def test_reducel1_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCEL1, ids=str)
def test_reducel1_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCEL1, ids=str)
def test_reducel1_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCEL1, ids=str)
def test_reducel1_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", REDUCEL1, ids=str)
def test_reducel1_jvp(sample):
    check_jvp(sample)


REDUCEL2 = [
    Sample("", "ReduceL2", 1, 0, {"data": [3, 4], "axes": [1]}, {"avoid": {"data": [0.0]}}),
    Sample("", "ReduceL2", 1, 1, {"data": [2, 3, 2], "axes": [0, -1], "keepdims": 0}, {"avoid": {"data": [0.0]}}),
    Sample("", "ReduceL2", 1, 2, {"data": [2, 3]}, {"avoid": {"data": [0.0]}}),
    Sample("", "ReduceL2", 1, 3, {"data": [2, 3], "axes": [], "keepdims": 0}, {"avoid": {"data": [0.0]}}),
    Sample("", "ReduceL2", 1, 4, {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1}, {"avoid": {"data": [0.0]}}),
    Sample(
        "", "ReduceL2", 1, 5, {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0}, {"avoid": {"data": [0.0]}}
    ),
    Sample("", "ReduceL2", 1, 6, {"data": [], "keepdims": 0}, {"avoid": {"data": [0.0]}}),
    Sample("", "ReduceL2", 1, 7, {"data": [0, 3], "axes": [1], "keepdims": 0}, {"avoid": {"data": [0.0]}}),
]


@pytest.mark.parametrize("sample", REDUCEL2, ids=str)
def test_reducel2_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCEL2, ids=str)
def test_reducel2_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCEL2, ids=str)
def test_reducel2_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCEL2, ids=str)
def test_reducel2_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", REDUCEL2, ids=str)
def test_reducel2_jvp(sample):
    check_jvp(sample)


REDUCELOGSUM = [
    Sample("", "ReduceLogSum", 1, 0, {"data": [3, 4], "axes": [1]}, {"range": {"data": [0.2, 2.0]}}),
    Sample(
        "", "ReduceLogSum", 1, 1, {"data": [2, 3, 2], "axes": [0, -1], "keepdims": 0}, {"range": {"data": [0.2, 2.0]}}
    ),
    Sample("", "ReduceLogSum", 1, 2, {"data": [2, 3]}, {"range": {"data": [0.2, 2.0]}}),
    Sample("", "ReduceLogSum", 1, 3, {"data": [2, 3], "axes": [], "keepdims": 0}, {"range": {"data": [0.2, 2.0]}}),
    Sample(
        "",
        "ReduceLogSum",
        1,
        4,
        {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1},
        {"range": {"data": [0.2, 2.0]}},
    ),
    Sample(
        "",
        "ReduceLogSum",
        1,
        5,
        {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0},
        {"range": {"data": [0.2, 2.0]}},
    ),
    Sample("", "ReduceLogSum", 1, 6, {"data": [], "keepdims": 0}, {"range": {"data": [0.2, 2.0]}}),
    Sample("", "ReduceLogSum", 1, 7, {"data": [0, 3], "axes": [1], "keepdims": 0}, {"range": {"data": [0.2, 2.0]}}),
]


@pytest.mark.parametrize("sample", REDUCELOGSUM, ids=str)
def test_reducelogsum_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCELOGSUM, ids=str)
def test_reducelogsum_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCELOGSUM, ids=str)
def test_reducelogsum_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCELOGSUM, ids=str)
def test_reducelogsum_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", REDUCELOGSUM, ids=str)
def test_reducelogsum_jvp(sample):
    check_jvp(sample)


REDUCELOGSUMEXP = [
    Sample("", "ReduceLogSumExp", 1, 0, {"data": [3, 4], "axes": [1]}, {}),
    Sample("", "ReduceLogSumExp", 1, 1, {"data": [2, 3, 2], "axes": [0, -1], "keepdims": 0}, {}),
    Sample("", "ReduceLogSumExp", 1, 2, {"data": [2, 3]}, {}),
    Sample("", "ReduceLogSumExp", 1, 3, {"data": [2, 3], "axes": [], "keepdims": 0}, {}),
    Sample("", "ReduceLogSumExp", 1, 4, {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1}, {}),
    Sample("", "ReduceLogSumExp", 1, 5, {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0}, {}),
    Sample("", "ReduceLogSumExp", 1, 6, {"data": [], "keepdims": 0}, {}),
    Sample("", "ReduceLogSumExp", 1, 7, {"data": [0, 3], "axes": [1], "keepdims": 0}, {}),
    Sample("", "ReduceLogSumExp", 1, 8, {"data": {"values": [[90.0, 91.5], [-200.0, -201.0]]}, "axes": [1]}, {}),
]


@pytest.mark.parametrize("sample", REDUCELOGSUMEXP, ids=str)
def test_reducelogsumexp_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCELOGSUMEXP, ids=str)
def test_reducelogsumexp_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCELOGSUMEXP, ids=str)
def test_reducelogsumexp_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCELOGSUMEXP, ids=str)
def test_reducelogsumexp_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", REDUCELOGSUMEXP, ids=str)
def test_reducelogsumexp_jvp(sample):
    check_jvp(sample)


REDUCESUMSQUARE = [
    Sample("", "ReduceSumSquare", 1, 0, {"data": [3, 4], "axes": [1]}, {}),
    Sample("", "ReduceSumSquare", 1, 1, {"data": [2, 3, 2], "axes": [0, -1], "keepdims": 0}, {}),
    Sample("", "ReduceSumSquare", 1, 2, {"data": [2, 3]}, {}),
    Sample("", "ReduceSumSquare", 1, 3, {"data": [2, 3], "axes": [], "keepdims": 0}, {}),
    Sample("", "ReduceSumSquare", 1, 4, {"data": [2, 3], "axes": [], "noop_with_empty_axes": 1}, {}),
    Sample("", "ReduceSumSquare", 1, 5, {"data": [2, 3], "noop_with_empty_axes": 1, "keepdims": 0}, {}),
    Sample("", "ReduceSumSquare", 1, 6, {"data": [], "keepdims": 0}, {}),
    Sample("", "ReduceSumSquare", 1, 7, {"data": [0, 3], "axes": [1], "keepdims": 0}, {}),
]


@pytest.mark.parametrize("sample", REDUCESUMSQUARE, ids=str)
def test_reducesumsquare_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REDUCESUMSQUARE, ids=str)
def test_reducesumsquare_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REDUCESUMSQUARE, ids=str)
def test_reducesumsquare_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REDUCESUMSQUARE, ids=str)
def test_reducesumsquare_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", REDUCESUMSQUARE, ids=str)
def test_reducesumsquare_jvp(sample):
    check_jvp(sample)


CUMSUM = [
    Sample("", "CumSum", 1, 0, {"x": [4], "axis": 0}, {}),
    Sample("", "CumSum", 1, 1, {"x": [2, 3], "axis": 1, "exclusive": 1}, {}),
    Sample("", "CumSum", 1, 2, {"x": [2, 3], "axis": -2, "reverse": 1}, {}),
    Sample("", "CumSum", 1, 3, {"x": [2, 3, 2], "axis": 1, "exclusive": 1, "reverse": 1}, {}),
    Sample("", "CumSum", 1, 4, {"x": [0, 3], "axis": 0}, {}),
]


@pytest.mark.parametrize("sample", CUMSUM, ids=str)
def test_cumsum_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", CUMSUM, ids=str)
def test_cumsum_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", CUMSUM, ids=str)
def test_cumsum_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", CUMSUM, ids=str)
def test_cumsum_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", CUMSUM, ids=str)
def test_cumsum_jvp(sample):
    check_jvp(sample)


TOPK = [
    Sample("", "TopK", 1, 0, {"X": [3, 4], "K": [2]}, {}),
    Sample("", "TopK", 1, 1, {"X": [4, 3], "K": [3], "axis": 0, "largest": 0}, {}),
    Sample("", "TopK", 1, 2, {"X": [2, 4, 2], "K": [1], "axis": -2}, {}),
    Sample("", "TopK", 1, 3, {"X": [5], "K": [0]}, {}),
    Sample("", "TopK", 1, 4, {"X": [0, 3], "K": [2]}, {}),
]


@pytest.mark.parametrize("sample", TOPK, ids=str)
def test_topk_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", TOPK, ids=str)
def test_topk_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", TOPK, ids=str)
def test_topk_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", TOPK, ids=str)
def test_topk_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", TOPK, ids=str)
def test_topk_jvp(sample):
    check_jvp(sample)


ONEHOT = [
    Sample(
        "",
        "OneHot",
        1,
        0,
        {
            "indices": {"values": [0, 2, -1], "dtype": "int64", "constant": True},
            "depth": {"values": 4, "dtype": "int64", "constant": True},
            "values": [2],
        },
        {},
    ),
    Sample(
        "",
        "OneHot",
        1,
        1,
        {
            "indices": {"values": [[1, 5], [0, 1]], "dtype": "int64", "constant": True},
            "depth": {"values": 3, "dtype": "int64", "constant": True},
            "values": [2],
            "axis": 0,
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", ONEHOT, ids=str)
def test_onehot_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ONEHOT, ids=str)
def test_onehot_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ONEHOT, ids=str)
def test_onehot_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ONEHOT, ids=str)
def test_onehot_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ONEHOT, ids=str)
def test_onehot_jvp(sample):
    check_jvp(sample)
