"""Finite-difference tests of family signal. Do not edit: generated from gradgen/rules/signal.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

DFT = [
    Sample("", "DFT", 1, 0, {"input": [2, 5, 1]}, {}),
    Sample("", "DFT", 1, 1, {"input": [2, 6, 2], "axis": 1}, {}),
    Sample("", "DFT", 1, 2, {"input": [3, 4, 2, 1], "axis": 0, "dft_length": 5}, {}),
    Sample("", "DFT", 1, 3, {"input": [2, 7, 1], "axis": 1, "dft_length": 4, "onesided": 1}, {}),
    Sample("", "DFT", 1, 4, {"input": [2, 6, 1], "axis": -2, "onesided": 1}, {}),
    Sample("", "DFT", 1, 5, {"input": [2, 3, 1], "axis": 1, "dft_length": 8, "onesided": 1}, {}),
    Sample("", "DFT", 1, 6, {"input": [2, 5, 2], "axis": 1, "dft_length": 8}, {}),
    Sample("", "DFT", 1, 7, {"input": [2, 6, 2], "inverse": 1}, {}),
    Sample("", "DFT", 1, 8, {"input": [2, 5, 2], "axis": 1, "dft_length": 4, "inverse": 1}, {}),
    Sample("", "DFT", 1, 9, {"input": [2, 4, 1], "axis": 1, "dft_length": 7, "inverse": 1}, {}),
    Sample("", "DFT", 1, 10, {"input": [2, 4, 2], "axis": 1, "inverse": 1, "onesided": 1}, {}),
    Sample("", "DFT", 1, 11, {"input": [4, 2, 2], "axis": 0, "dft_length": 7, "inverse": 1, "onesided": 1}, {}),
    Sample("", "DFT", 1, 12, {"input": [0, 4, 1], "axis": 1}, {}),
]


@pytest.mark.parametrize("sample", DFT, ids=str)
def test_dft_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", DFT, ids=str)
def test_dft_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", DFT, ids=str)
def test_dft_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", DFT, ids=str)
def test_dft_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", DFT, ids=str)
def test_dft_jvp(sample):
    check_jvp(sample)


STFT = [
    Sample("", "STFT", 1, 0, {"signal": [2, 13, 1], "frame_step": 3, "window": [4], "frame_length": 4}, {}),
    Sample("", "STFT", 1, 1, {"signal": [1, 12, 1], "frame_step": 2, "window": [5]}, {}),
    Sample("", "STFT", 1, 2, {"signal": [2, 11, 1], "frame_step": 4, "frame_length": 4, "onesided": 0}, {}),
    Sample("", "STFT", 1, 3, {"signal": [1, 9, 2], "frame_step": 2, "window": [4], "onesided": 0}, {}),
    Sample("", "STFT", 1, 4, {"signal": [2, 9], "frame_step": 5, "window": [3]}, {}),
    Sample("", "STFT", 1, 5, {"signal": [1, 6, 1], "frame_step": 1, "window": [6]}, {}),
    Sample("", "STFT", 1, 6, {"signal": [0, 8, 1], "frame_step": 2, "frame_length": 4}, {}),
]


@pytest.mark.parametrize("sample", STFT, ids=str)
def test_stft_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", STFT, ids=str)
def test_stft_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", STFT, ids=str)
def test_stft_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", STFT, ids=str)
def test_stft_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", STFT, ids=str)
def test_stft_jvp(sample):
    check_jvp(sample)
