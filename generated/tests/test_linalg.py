"""Finite-difference tests of family linalg. Do not edit: generated from gradgen/rules/linalg.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

MATMUL = [
    Sample("", "MatMul", 1, 0, {"A": [3, 4], "B": [4, 2]}, {}),
    Sample("", "MatMul", 1, 1, {"A": [2, 3, 4], "B": [4, 2]}, {}),
    Sample("", "MatMul", 1, 2, {"A": [2, 2, 3, 4], "B": [4, 2]}, {}),
    Sample("", "MatMul", 1, 3, {"A": [3, 4], "B": [2, 4, 2]}, {}),
    Sample("", "MatMul", 1, 4, {"A": [2, 3, 4], "B": [2, 4, 2]}, {}),
    Sample("", "MatMul", 1, 5, {"A": [2, 1, 3, 2], "B": [3, 2, 4]}, {}),
    Sample("", "MatMul", 1, 6, {"A": [1, 2, 3], "B": [2, 3, 2]}, {}),
    Sample("", "MatMul", 1, 7, {"A": [4], "B": [4]}, {}),
    Sample("", "MatMul", 1, 8, {"A": [4], "B": [4, 3]}, {}),
    Sample("", "MatMul", 1, 9, {"A": [3, 4], "B": [4]}, {}),
    Sample("", "MatMul", 1, 10, {"A": [4], "B": [2, 4, 3]}, {}),
    Sample("", "MatMul", 1, 11, {"A": [2, 3, 4], "B": [4]}, {}),
    Sample("", "MatMul", 1, 12, {"A": [0, 4], "B": [4, 2]}, {}),
    Sample("", "MatMul", 1, 13, {"A": [3, 0], "B": [0, 2]}, {}),
    Sample("", "MatMul", 1, 14, {"A": [0, 3, 4], "B": [4, 2]}, {}),
]


@pytest.mark.parametrize("sample", MATMUL, ids=str)
def test_matmul_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MATMUL, ids=str)
def test_matmul_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MATMUL, ids=str)
def test_matmul_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MATMUL, ids=str)
def test_matmul_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MATMUL, ids=str)
def test_matmul_jvp(sample):
    check_jvp(sample)


GEMM = [
    Sample("", "Gemm", 1, 0, {"A": [3, 4], "B": [4, 2], "C": [2]}, {}),
    Sample("", "Gemm", 1, 1, {"A": [3, 4], "B": [4, 2]}, {}),
    Sample("", "Gemm", 1, 2, {"A": [3, 4], "B": [2, 4], "C": [3, 2], "transB": 1, "alpha": 0.5, "beta": 2.0}, {}),
    Sample("", "Gemm", 1, 3, {"A": [4, 3], "B": [4, 2], "C": [3, 1], "transA": 1, "beta": 0.25}, {}),
    Sample("", "Gemm", 1, 4, {"A": [4, 3], "B": [2, 4], "C": [], "transA": 1, "transB": 1, "alpha": 2.0}, {}),
    Sample("", "Gemm", 1, 5, {"A": [4, 3], "B": [2, 4], "C": [1, 2], "transA": 1, "transB": 1, "beta": 0.0}, {}),
    Sample("", "Gemm", 1, 6, {"A": [1, 4], "B": [4, 2], "C": [1, 1]}, {}),
    Sample("", "Gemm", 1, 7, {"A": [0, 4], "B": [4, 2], "C": [2]}, {}),
]


@pytest.mark.parametrize("sample", GEMM, ids=str)
def test_gemm_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", GEMM, ids=str)
def test_gemm_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", GEMM, ids=str)
def test_gemm_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", GEMM, ids=str)
def test_gemm_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", GEMM, ids=str)
def test_gemm_jvp(sample):
    check_jvp(sample)


EINSUM = [
    Sample("", "Einsum", 1, 0, {"Inputs": [[2, 3], [3, 4]], "equation": "ij,jk->ik"}, {}),
    Sample("", "Einsum", 1, 1, {"Inputs": [[2, 3], [3, 4]], "equation": "ij,jk"}, {}),
    Sample("", "Einsum", 1, 2, {"Inputs": [[2, 3, 4], [2, 5, 4]], "equation": "bij, bkj -> bik"}, {}),
    Sample("", "Einsum", 1, 3, {"Inputs": [[3], [4]], "equation": "i,j->ij"}, {}),
    Sample("", "Einsum", 1, 4, {"Inputs": [[3], [3]], "equation": "i,i->"}, {}),
    Sample("", "Einsum", 1, 5, {"Inputs": [[2, 3]], "equation": "ij->ji"}, {}),
    Sample("", "Einsum", 1, 6, {"Inputs": [[2, 3]], "equation": "ij->i"}, {}),
    Sample("", "Einsum", 1, 7, {"Inputs": [[2, 3]], "equation": "ij->"}, {}),
    Sample("", "Einsum", 1, 8, {"Inputs": [[3, 3]], "equation": "ii->i"}, {}),
    Sample("", "Einsum", 1, 9, {"Inputs": [[3, 3]], "equation": "ii"}, {}),
    Sample("", "Einsum", 1, 10, {"Inputs": [[2, 3, 3, 2], [3]], "equation": "aiia,i->a"}, {}),
    Sample("", "Einsum", 1, 11, {"Inputs": [[2, 2, 2]], "equation": "iii->i"}, {}),
    Sample("", "Einsum", 1, 12, {"Inputs": [[2, 3], [4, 5]], "equation": "ij,kl->jl"}, {}),
    Sample("", "Einsum", 1, 13, {"Inputs": [[2, 3], [3, 4], [4, 2]], "equation": "ij,jk,ki->"}, {}),
    Sample("", "Einsum", 1, 14, {"Inputs": [[2, 3, 4], [4, 2]], "equation": "...ij,jk->...ik"}, {}),
    Sample("", "Einsum", 1, 15, {"Inputs": [[2, 1, 3, 2], [1, 4, 2, 3]], "equation": "...ij,...jk->...ik"}, {}),
    Sample("", "Einsum", 1, 16, {"Inputs": [[2, 3, 4]], "equation": "i...->...i"}, {}),
    Sample("", "Einsum", 1, 17, {"Inputs": [[2, 3, 4], [3]], "equation": "i...j,...->i...j"}, {}),
    Sample("", "Einsum", 1, 18, {"Inputs": [[], [3]], "equation": ",i->i"}, {}),
    Sample("", "Einsum", 1, 19, {"Inputs": [[0, 3], [3, 2]], "equation": "ij,jk->ik"}, {}),
]


@pytest.mark.parametrize("sample", EINSUM, ids=str)
def test_einsum_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", EINSUM, ids=str)
def test_einsum_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", EINSUM, ids=str)
def test_einsum_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", EINSUM, ids=str)
def test_einsum_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", EINSUM, ids=str)
def test_einsum_jvp(sample):
    check_jvp(sample)


DET = [
    Sample("", "Det", 1, 0, {"X": [3, 3]}, {}),
    Sample("", "Det", 1, 1, {"X": [2, 2, 2]}, {}),
    Sample("", "Det", 1, 2, {"X": [2, 1, 4, 4]}, {}),
    Sample("", "Det", 1, 3, {"X": [1, 1]}, {}),
    Sample("", "Det", 1, 4, {"X": [0, 2, 2]}, {}),
    Sample("", "Det", 1, 5, {"X": {"values": [[1.0, 2.0], [2.0, 4.0]]}}, {}),
]


@pytest.mark.parametrize("sample", DET, ids=str)
def test_det_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", DET, ids=str)
def test_det_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", DET, ids=str)
def test_det_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", DET, ids=str)
def test_det_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", DET, ids=str)
def test_det_jvp(sample):
    check_jvp(sample)


TRILU = [
    Sample("", "Trilu", 1, 0, {"input": [3, 4]}, {}),
    Sample("", "Trilu", 1, 1, {"input": [3, 4], "upper": 0}, {}),
    Sample("", "Trilu", 1, 2, {"input": [2, 3, 3], "k": 1}, {}),
    Sample("", "Trilu", 1, 3, {"input": [4, 3], "k": -1, "upper": 0}, {}),
    Sample("", "Trilu", 1, 4, {"input": [2, 3, 3], "k": -2}, {}),
    Sample("", "Trilu", 1, 5, {"input": [0, 3]}, {}),
]


@pytest.mark.parametrize("sample", TRILU, ids=str)
def test_trilu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", TRILU, ids=str)
def test_trilu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", TRILU, ids=str)
def test_trilu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", TRILU, ids=str)
def test_trilu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", TRILU, ids=str)
def test_trilu_jvp(sample):
    check_jvp(sample)
