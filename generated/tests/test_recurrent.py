"""Finite-difference tests of family recurrent. Do not edit: generated from gradgen/rules/recurrent.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

RNN = [
    Sample(
        "",
        "RNN",
        1,
        0,
        {
            "X": [3, 2, 3],
            "W": [1, 2, 3],
            "R": [1, 2, 2],
            "B": [1, 4],
            "initial_h": [1, 2, 2],
            "hidden_size": 2,
            "@outputs": ["Y", "Y_h"],
        },
        {},
    ),
    Sample(
        "",
        "RNN",
        1,
        1,
        {
            "X": [3, 2, 3],
            "W": [1, 2, 3],
            "R": [1, 2, 2],
            "hidden_size": 2,
            "direction": "reverse",
            "activations": ["Sigmoid"],
        },
        {},
    ),
    Sample(
        "",
        "RNN",
        1,
        2,
        {
            "X": [4, 2, 3],
            "W": [2, 2, 3],
            "R": [2, 2, 2],
            "B": [2, 4],
            "sequence_lens": [4, 2],
            "initial_h": [2, 2, 2],
            "hidden_size": 2,
            "direction": "bidirectional",
            "activations": ["Softsign", "ScaledTanh"],
            "activation_alpha": [0.7],
            "activation_beta": [0.6],
            "@outputs": ["Y", "Y_h"],
        },
        {},
    ),
    Sample(
        "",
        "RNN",
        1,
        3,
        {
            "X": [3, 2, 3],
            "W": [1, 2, 3],
            "R": [1, 2, 2],
            "B": [1, 4],
            "hidden_size": 2,
            "clip": 1.5,
            "activations": ["Affine"],
            "activation_alpha": [0.5],
            "activation_beta": [0.1],
            "@outputs": ["", "Y_h"],
        },
        {},
    ),
    Sample(
        "",
        "RNN",
        1,
        4,
        {
            "X": [1, 2, 3],
            "W": [1, 2, 3],
            "R": [1, 2, 2],
            "initial_h": [1, 2, 2],
            "hidden_size": 2,
            "activations": ["Elu"],
            "@outputs": ["Y"],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", RNN, ids=str)
def test_rnn_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", RNN, ids=str)
def test_rnn_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", RNN, ids=str)
def test_rnn_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", RNN, ids=str)
def test_rnn_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", RNN, ids=str)
def test_rnn_jvp(sample):
    check_jvp(sample)


GRU = [
    Sample(
        "",
        "GRU",
        1,
        0,
        {
            "X": [3, 2, 3],
            "W": [1, 6, 3],
            "R": [1, 6, 2],
            "B": [1, 12],
            "initial_h": [1, 2, 2],
            "hidden_size": 2,
            "@outputs": ["Y", "Y_h"],
        },
        {},
    ),
    Sample(
        "",
        "GRU",
        1,
        1,
        {
            "X": [3, 2, 3],
            "W": [1, 6, 3],
            "R": [1, 6, 2],
            "hidden_size": 2,
            "direction": "reverse",
            "linear_before_reset": 1,
            "activations": ["HardSigmoid", "Softsign"],
        },
        {},
    ),
    Sample(
        "",
        "GRU",
        1,
        2,
        {
            "X": [4, 2, 3],
            "W": [2, 6, 3],
            "R": [2, 6, 2],
            "B": [2, 12],
            "sequence_lens": [2, 4],
            "initial_h": [2, 2, 2],
            "hidden_size": 2,
            "direction": "bidirectional",
            "activations": ["Sigmoid", "Elu", "Softsign", "LeakyRelu"],
            "activation_alpha": [0.7, 0.2],
            "@outputs": ["Y", "Y_h"],
        },
        {},
    ),
    Sample(
        "",
        "GRU",
        1,
        3,
        {
            "X": [4, 2, 3],
            "W": [2, 6, 3],
            "R": [2, 6, 2],
            "B": [2, 12],
            "sequence_lens": [3, 0],
            "initial_h": [2, 2, 2],
            "hidden_size": 2,
            "direction": "bidirectional",
            "linear_before_reset": 1,
            "@outputs": ["Y", "Y_h"],
        },
        {},
    ),
    Sample(
        "",
        "GRU",
        1,
        4,
        {
            "X": [3, 2, 3],
            "W": [1, 6, 3],
            "R": [1, 6, 2],
            "B": [1, 12],
            "hidden_size": 2,
            "clip": 1.5,
            "linear_before_reset": 1,
            "@outputs": ["", "Y_h"],
        },
        {},
    ),
    Sample(
        "",
        "GRU",
        1,
        5,
        {
            "X": [1, 2, 3],
            "W": [1, 6, 3],
            "R": [1, 6, 2],
            "B": [1, 12],
            "initial_h": [1, 2, 2],
            "hidden_size": 2,
            "clip": 1.0,
        },
        {},
    ),
    Sample(
        "",
        "GRU",
        1,
        6,
        {
            "X": [3, 1024, 3],
            "W": [1, 24, 3],
            "R": [1, 24, 8],
            "B": [1, 48],
            "initial_h": [1, 1024, 8],
            "hidden_size": 8,
            "@outputs": ["Y", "Y_h"],
        },
        {},
    ),
    Sample(
        "",
        "GRU",
        1,
        7,
        {
            "X": [2, 1024, 3],
            "W": [2, 24, 3],
            "R": [2, 24, 8],
            "hidden_size": 8,
            "linear_before_reset": 1,
            "direction": "bidirectional",
            "@outputs": ["", "Y_h"],
        },
        {},
    ),
    Sample(
        "",
        "GRU",
        1,
        8,
        {
            "X": [3, 1024, 3],
            "W": [1, 24, 3],
            "R": [1, 24, 8],
            "B": [1, 48],
            "hidden_size": 8,
            "linear_before_reset": 1,
            "direction": "reverse",
            "activations": ["Sigmoid", "Tanh"],
            "@outputs": ["Y"],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", GRU, ids=str)
def test_gru_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", GRU, ids=str)
def test_gru_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", GRU, ids=str)
def test_gru_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", GRU, ids=str)
def test_gru_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", GRU, ids=str)
def test_gru_jvp(sample):
    check_jvp(sample)


LSTM = [
    Sample(
        "",
        "LSTM",
        1,
        0,
        {
            "X": [3, 2, 3],
            "W": [1, 8, 3],
            "R": [1, 8, 2],
            "B": [1, 16],
            "initial_h": [1, 2, 2],
            "initial_c": [1, 2, 2],
            "hidden_size": 2,
            "@outputs": ["Y", "Y_h", "Y_c"],
        },
        {},
    ),
    Sample(
        "",
        "LSTM",
        1,
        1,
        {
            "X": [3, 2, 3],
            "W": [1, 8, 3],
            "R": [1, 8, 2],
            "B": [1, 16],
            "initial_h": [1, 2, 2],
            "initial_c": [1, 2, 2],
            "P": [1, 6],
            "hidden_size": 2,
            "direction": "reverse",
            "@outputs": ["Y", "Y_h", "Y_c"],
        },
        {},
    ),
    Sample(
        "",
        "LSTM",
        1,
        2,
        {
            "X": [4, 2, 3],
            "W": [2, 8, 3],
            "R": [2, 8, 2],
            "sequence_lens": [2, 4],
            "initial_c": [2, 2, 2],
            "P": [2, 6],
            "hidden_size": 2,
            "direction": "bidirectional",
            "activations": ["Sigmoid", "Elu", "Softsign", "HardSigmoid", "ScaledTanh", "Softplus"],
            "activation_alpha": [0.7, 0.2, 0.8],
            "activation_beta": [0.4, 0.6],
            "@outputs": ["Y", "Y_h", "Y_c"],
        },
        {},
    ),
    Sample(
        "",
        "LSTM",
        1,
        3,
        {
            "X": [4, 2, 3],
            "W": [1, 8, 3],
            "R": [1, 8, 2],
            "sequence_lens": [3, 0],
            "initial_h": [1, 2, 2],
            "hidden_size": 2,
            "@outputs": ["", "", "Y_c"],
        },
        {},
    ),
    Sample(
        "",
        "LSTM",
        1,
        4,
        {
            "X": [3, 2, 3],
            "W": [1, 8, 3],
            "R": [1, 8, 2],
            "B": [1, 16],
            "P": [1, 6],
            "hidden_size": 2,
            "input_forget": 1,
            "@outputs": ["Y"],
        },
        {},
    ),
    Sample(
        "",
        "LSTM",
        1,
        5,
        {
            "X": [3, 2, 3],
            "W": [1, 8, 3],
            "R": [1, 8, 2],
            "B": [1, 16],
            "P": [1, 6],
            "hidden_size": 2,
            "clip": 1.5,
            "input_forget": 1,
            "@outputs": ["", "Y_h"],
        },
        {},
    ),
    Sample(
        "",
        "LSTM",
        1,
        6,
        {
            "X": [1, 2, 3],
            "W": [1, 8, 3],
            "R": [1, 8, 2],
            "B": [1, 16],
            "P": [1, 6],
            "initial_h": [1, 2, 2],
            "initial_c": [1, 2, 2],
            "hidden_size": 2,
            "clip": 1.0,
            "@outputs": ["Y", "Y_h", "Y_c"],
        },
        {},
    ),
    Sample(
        "",
        "LSTM",
        1,
        7,
        {
            "X": [3, 1024, 3],
            "W": [1, 32, 3],
            "R": [1, 32, 8],
            "B": [1, 64],
            "initial_h": [1, 1024, 8],
            "initial_c": [1, 1024, 8],
            "P": [1, 24],
            "hidden_size": 8,
            "direction": "reverse",
            "@outputs": ["Y", "Y_h", "Y_c"],
        },
        {},
    ),
    Sample(
        "",
        "LSTM",
        1,
        8,
        {
            "X": [3, 1024, 3],
            "W": [1, 32, 3],
            "R": [1, 32, 8],
            "B": [1, 64],
            "initial_h": [1, 1024, 8],
            "initial_c": [1, 1024, 8],
            "hidden_size": 8,
            "direction": "reverse",
            "@outputs": ["Y", "Y_h", "Y_c"],
        },
        {},
    ),
    Sample(
        "",
        "LSTM",
        1,
        9,
        {
            "X": [2, 1024, 3],
            "W": [2, 32, 3],
            "R": [2, 32, 8],
            "initial_c": [2, 1024, 8],
            "hidden_size": 8,
            "direction": "bidirectional",
            "activations": ["Sigmoid", "Tanh", "Tanh", "Sigmoid", "Tanh", "Tanh"],
            "@outputs": ["", "", "Y_c"],
        },
        {},
    ),
    Sample(
        "",
        "LSTM",
        1,
        10,
        {
            "X": [3, 1024, 3],
            "W": [1, 32, 3],
            "R": [1, 32, 8],
            "B": [1, 64],
            "P": [1, 24],
            "hidden_size": 8,
            "input_forget": 1,
            "@outputs": ["Y"],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", LSTM, ids=str)
def test_lstm_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", LSTM, ids=str)
def test_lstm_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", LSTM, ids=str)
def test_lstm_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", LSTM, ids=str)
def test_lstm_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", LSTM, ids=str)
def test_lstm_jvp(sample):
    check_jvp(sample)
