"""Finite-difference tests of family shape. Do not edit: generated from gradgen/rules/shape.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

IDENTITY = [
    Sample("", "Identity", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Identity", 1, 1, {"input": []}, {}),
    Sample("", "Identity", 1, 2, {"input": [0, 3]}, {}),
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


@pytest.mark.parametrize("sample", IDENTITY, ids=str)
def test_identity_jvp(sample):
    check_jvp(sample)


CAST = [
    Sample("", "Cast", 1, 0, {"input": [3, 4], "to": 11}, {}),
    Sample("", "Cast", 1, 1, {"input": [], "to": 11}, {}),
    Sample("", "Cast", 1, 2, {"input": [0, 2], "to": 11}, {}),
]


@pytest.mark.parametrize("sample", CAST, ids=str)
def test_cast_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", CAST, ids=str)
def test_cast_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", CAST, ids=str)
def test_cast_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", CAST, ids=str)
def test_cast_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", CAST, ids=str)
def test_cast_jvp(sample):
    check_jvp(sample)


CASTLIKE = [
    Sample("", "CastLike", 1, 0, {"input": [3, 4], "target_type": [2]}, {}),
    Sample("", "CastLike", 1, 1, {"input": [2], "target_type": [], "@wrt": ["input"]}, {}),
    Sample("", "CastLike", 1, 2, {"input": [0, 3], "target_type": [1]}, {}),
]


@pytest.mark.parametrize("sample", CASTLIKE, ids=str)
def test_castlike_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", CASTLIKE, ids=str)
def test_castlike_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", CASTLIKE, ids=str)
def test_castlike_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", CASTLIKE, ids=str)
def test_castlike_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", CASTLIKE, ids=str)
def test_castlike_jvp(sample):
    check_jvp(sample)


RESHAPE = [
    Sample("", "Reshape", 1, 0, {"data": [2, 6], "shape": [3, 4]}, {}),
    Sample("", "Reshape", 1, 1, {"data": [2, 3, 4], "shape": [0, -1]}, {}),
    Sample("", "Reshape", 1, 2, {"data": [2, 3], "shape": [-1]}, {}),
    Sample("", "Reshape", 1, 3, {"data": [], "shape": [1, 1]}, {}),
    Sample("", "Reshape", 1, 4, {"data": [1], "shape": []}, {}),
    Sample("", "Reshape", 1, 5, {"data": [0, 3], "shape": [3, 0], "allowzero": 1}, {}),
    Sample("", "Reshape", 1, 6, {"data": [2, 0, 3], "shape": [0, 0, 1, 3]}, {}),
]


@pytest.mark.parametrize("sample", RESHAPE, ids=str)
def test_reshape_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", RESHAPE, ids=str)
def test_reshape_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", RESHAPE, ids=str)
def test_reshape_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", RESHAPE, ids=str)
def test_reshape_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", RESHAPE, ids=str)
def test_reshape_jvp(sample):
    check_jvp(sample)


FLATTEN = [
    Sample("", "Flatten", 1, 0, {"input": [2, 3, 4]}, {}),
    Sample("", "Flatten", 1, 1, {"input": [2, 3, 4], "axis": 0}, {}),
    Sample("", "Flatten", 1, 2, {"input": [2, 3, 4], "axis": -1}, {}),
    Sample("", "Flatten", 1, 3, {"input": [], "axis": 0}, {}),
    Sample("", "Flatten", 1, 4, {"input": [0, 3]}, {}),
]


@pytest.mark.parametrize("sample", FLATTEN, ids=str)
def test_flatten_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", FLATTEN, ids=str)
def test_flatten_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", FLATTEN, ids=str)
def test_flatten_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", FLATTEN, ids=str)
def test_flatten_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", FLATTEN, ids=str)
def test_flatten_jvp(sample):
    check_jvp(sample)


TRANSPOSE = [
    Sample("", "Transpose", 1, 0, {"data": [2, 3, 4]}, {}),
    Sample("", "Transpose", 1, 1, {"data": [2, 3, 4], "perm": [1, 2, 0]}, {}),
    Sample("", "Transpose", 1, 2, {"data": [2, 1, 3, 2], "perm": [0, 2, 1, 3]}, {}),
    Sample("", "Transpose", 1, 3, {"data": [3], "perm": [0]}, {}),
    Sample("", "Transpose", 1, 4, {"data": []}, {}),
    Sample("", "Transpose", 1, 5, {"data": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", TRANSPOSE, ids=str)
def test_transpose_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", TRANSPOSE, ids=str)
def test_transpose_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", TRANSPOSE, ids=str)
def test_transpose_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", TRANSPOSE, ids=str)
def test_transpose_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", TRANSPOSE, ids=str)
def test_transpose_jvp(sample):
    check_jvp(sample)


SQUEEZE = [
    Sample("", "Squeeze", 1, 0, {"data": [1, 3, 1, 2], "axes": [0, -2]}, {}),
    Sample("", "Squeeze", 1, 1, {"data": [1, 3, 1, 2], "axes": [2]}, {}),
    Sample("", "Squeeze", 1, 2, {"data": [1], "axes": [0]}, {}),
    Sample("", "Squeeze", 1, 3, {"data": [0, 1], "axes": [-1]}, {}),
]


@pytest.mark.parametrize("sample", SQUEEZE, ids=str)
def test_squeeze_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SQUEEZE, ids=str)
def test_squeeze_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SQUEEZE, ids=str)
def test_squeeze_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SQUEEZE, ids=str)
def test_squeeze_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SQUEEZE, ids=str)
def test_squeeze_jvp(sample):
    check_jvp(sample)


UNSQUEEZE = [
    Sample("", "Unsqueeze", 1, 0, {"data": [3, 2], "axes": [0, -1]}, {}),
    Sample("", "Unsqueeze", 1, 1, {"data": [3, 2], "axes": [2, 1]}, {}),
    Sample("", "Unsqueeze", 1, 2, {"data": [], "axes": [0]}, {}),
    Sample("", "Unsqueeze", 1, 3, {"data": [0, 2], "axes": [-3]}, {}),
]


@pytest.mark.parametrize("sample", UNSQUEEZE, ids=str)
def test_unsqueeze_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", UNSQUEEZE, ids=str)
def test_unsqueeze_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", UNSQUEEZE, ids=str)
def test_unsqueeze_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", UNSQUEEZE, ids=str)
def test_unsqueeze_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", UNSQUEEZE, ids=str)
def test_unsqueeze_jvp(sample):
    check_jvp(sample)


EXPAND = [
    Sample("", "Expand", 1, 0, {"input": [3, 1], "shape": [3, 4]}, {}),
    Sample("", "Expand", 1, 1, {"input": [3, 1], "shape": [2, 1, 4]}, {}),
    Sample("", "Expand", 1, 2, {"input": [3, 1], "shape": [1]}, {}),
    Sample("", "Expand", 1, 3, {"input": [], "shape": [2, 2]}, {}),
    Sample("", "Expand", 1, 4, {"input": [1, 2, 1], "shape": [2, 3]}, {}),
    Sample("", "Expand", 1, 5, {"input": [2, 3], "shape": [2, 3]}, {}),
    Sample("", "Expand", 1, 6, {"input": [1, 3], "shape": [0, 3]}, {}),
]


@pytest.mark.parametrize("sample", EXPAND, ids=str)
def test_expand_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", EXPAND, ids=str)
def test_expand_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", EXPAND, ids=str)
def test_expand_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", EXPAND, ids=str)
def test_expand_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", EXPAND, ids=str)
def test_expand_jvp(sample):
    check_jvp(sample)


REVERSESEQUENCE = [
    Sample("", "ReverseSequence", 1, 0, {"input": [4, 3], "sequence_lens": [4, 1, 2]}, {}),
    Sample(
        "", "ReverseSequence", 1, 1, {"input": [2, 4, 3], "sequence_lens": [3, 2], "batch_axis": 0, "time_axis": 1}, {}
    ),
    Sample("", "ReverseSequence", 1, 2, {"input": [0, 2], "sequence_lens": [0, 0]}, {}),
]


@pytest.mark.parametrize("sample", REVERSESEQUENCE, ids=str)
def test_reversesequence_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", REVERSESEQUENCE, ids=str)
def test_reversesequence_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", REVERSESEQUENCE, ids=str)
def test_reversesequence_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", REVERSESEQUENCE, ids=str)
def test_reversesequence_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", REVERSESEQUENCE, ids=str)
def test_reversesequence_jvp(sample):
    check_jvp(sample)


SPACETODEPTH = [
    Sample("", "SpaceToDepth", 1, 0, {"input": [2, 3, 4, 6], "blocksize": 2}, {}),
    Sample("", "SpaceToDepth", 1, 1, {"input": [1, 2, 3, 3], "blocksize": 3}, {}),
    Sample("", "SpaceToDepth", 1, 2, {"input": [0, 1, 4, 4], "blocksize": 2}, {}),
]


@pytest.mark.parametrize("sample", SPACETODEPTH, ids=str)
def test_spacetodepth_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SPACETODEPTH, ids=str)
def test_spacetodepth_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SPACETODEPTH, ids=str)
def test_spacetodepth_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SPACETODEPTH, ids=str)
def test_spacetodepth_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SPACETODEPTH, ids=str)
def test_spacetodepth_jvp(sample):
    check_jvp(sample)


SPACETODEPTH_28 = [
    Sample("", "SpaceToDepth", 28, 0, {"input": [1, 2, 2, 4], "blocksize": 2}, {}),
    Sample("", "SpaceToDepth", 28, 1, {"input": [1, 2, 2, 4], "blocksize": 2, "mode": "CRD"}, {}),
]


@pytest.mark.parametrize("sample", SPACETODEPTH_28, ids=str)
def test_spacetodepth_28_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SPACETODEPTH_28, ids=str)
def test_spacetodepth_28_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SPACETODEPTH_28, ids=str)
def test_spacetodepth_28_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SPACETODEPTH_28, ids=str)
def test_spacetodepth_28_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SPACETODEPTH_28, ids=str)
def test_spacetodepth_28_jvp(sample):
    check_jvp(sample)


DEPTHTOSPACE = [
    Sample("", "DepthToSpace", 1, 0, {"input": [2, 8, 2, 3], "blocksize": 2}, {}),
    Sample("", "DepthToSpace", 1, 1, {"input": [2, 8, 2, 3], "blocksize": 2, "mode": "DCR"}, {}),
    Sample("", "DepthToSpace", 1, 2, {"input": [2, 8, 2, 3], "blocksize": 2, "mode": "CRD"}, {}),
    Sample("", "DepthToSpace", 1, 3, {"input": [0, 4, 1, 2], "blocksize": 2, "mode": "CRD"}, {}),
]


@pytest.mark.parametrize("sample", DEPTHTOSPACE, ids=str)
def test_depthtospace_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", DEPTHTOSPACE, ids=str)
def test_depthtospace_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", DEPTHTOSPACE, ids=str)
def test_depthtospace_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", DEPTHTOSPACE, ids=str)
def test_depthtospace_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", DEPTHTOSPACE, ids=str)
def test_depthtospace_jvp(sample):
    check_jvp(sample)


RANGE = [
    Sample("", "Range", 1, 0, {"start": {"values": 0.3}, "limit": {"values": 3.05}, "delta": {"values": 0.5}}, {}),
    Sample(
        "",
        "Range",
        1,
        1,
        {"start": {"values": 2.0}, "limit": {"values": -1.2, "constant": True}, "delta": {"values": -0.9}},
        {},
    ),
    Sample("", "Range", 1, 2, {"start": {"values": 2.0}, "limit": {"values": 1.2}, "delta": {"values": 0.5}}, {}),
    Sample(
        "",
        "Range",
        1,
        3,
        {
            "start": {"values": 2.0, "constant": False},
            "limit": {"values": 1.0, "constant": False},
            "delta": {"values": 1.0, "constant": False},
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", RANGE, ids=str)
def test_range_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", RANGE, ids=str)
def test_range_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", RANGE, ids=str)
def test_range_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", RANGE, ids=str)
def test_range_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", RANGE, ids=str)
def test_range_jvp(sample):
    check_jvp(sample)
