"""Finite-difference tests of family loss. Do not edit: generated from gradgen/rules/loss.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

SOFTMAXCROSSENTROPYLOSS = [
    Sample("", "SoftmaxCrossEntropyLoss", 1, 0, {"scores": [4, 3], "labels": [0, 2, 1, 2]}, {}),
    Sample(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        1,
        {"scores": [4, 3], "labels": [0, 2, 1, 2], "reduction": "sum", "@outputs": ["output", "log_prob"]},
        {},
    ),
    Sample(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        2,
        {
            "scores": [4, 3],
            "labels": [0, 2, 1, 2],
            "reduction": "none",
            "weights": {"shape": [3], "low": 0.2, "high": 2.0},
        },
        {},
    ),
    Sample(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        3,
        {"scores": [3, 4], "labels": [0, -1, 3], "ignore_index": -1, "@outputs": ["output", "log_prob"]},
        {},
    ),
    Sample(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        4,
        {"scores": [3, 4], "labels": [0, 2, 3], "ignore_index": 2, "weights": {"shape": [4], "low": 0.2, "high": 2.0}},
        {},
    ),
    Sample(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        5,
        {
            "scores": [2, 3, 2],
            "labels": [[0, 2], [1, 5]],
            "ignore_index": 5,
            "weights": {"shape": [3], "low": 0.2, "high": 2.0},
            "reduction": "sum",
        },
        {},
    ),
    Sample(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        6,
        {"scores": [2, 3, 2, 1], "labels": [[[0], [2]], [[1], [-100]]], "ignore_index": -100, "reduction": "none"},
        {},
    ),
    Sample(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        7,
        {
            "scores": [1, 3, 2, 1, 2],
            "labels": [[[[0, 1]], [[2, 2]]]],
            "weights": {"shape": [3], "low": 0.2, "high": 2.0},
        },
        {},
    ),
    Sample(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        8,
        {"scores": [4, 3], "labels": [0, 2, 1, 2], "@outputs": ["output", "log_prob"], "@of": ["log_prob"]},
        {},
    ),
    Sample(
        "", "SoftmaxCrossEntropyLoss", 1, 9, {"scores": [4, 3], "labels": [0, -100, 1, 2], "ignore_index": -100}, {}
    ),
    Sample(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        10,
        {
            "scores": [4, 3],
            "labels": [0, 7, 1, 7],
            "ignore_index": 7,
            "reduction": "sum",
            "@outputs": ["output", "log_prob"],
        },
        {},
    ),
    Sample(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        11,
        {"scores": [3, 4], "labels": [-7, 2, 3], "ignore_index": -7, "reduction": "none"},
        {},
    ),
    Sample(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        12,
        {"scores": [3, 2], "labels": [2, 2, 2], "ignore_index": 2, "reduction": "sum"},
        {},
    ),
]


@pytest.mark.parametrize("sample", SOFTMAXCROSSENTROPYLOSS, ids=str)
def test_softmaxcrossentropyloss_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", SOFTMAXCROSSENTROPYLOSS, ids=str)
def test_softmaxcrossentropyloss_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", SOFTMAXCROSSENTROPYLOSS, ids=str)
def test_softmaxcrossentropyloss_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", SOFTMAXCROSSENTROPYLOSS, ids=str)
def test_softmaxcrossentropyloss_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", SOFTMAXCROSSENTROPYLOSS, ids=str)
def test_softmaxcrossentropyloss_jvp(sample):
    check_jvp(sample)


NEGATIVELOGLIKELIHOODLOSS = [
    Sample("", "NegativeLogLikelihoodLoss", 1, 0, {"input": [4, 3], "target": [0, 2, 1, 2]}, {}),
    Sample("", "NegativeLogLikelihoodLoss", 1, 1, {"input": [4, 3], "target": [0, 2, 1, 2], "reduction": "sum"}, {}),
    Sample(
        "",
        "NegativeLogLikelihoodLoss",
        1,
        2,
        {
            "input": [4, 3],
            "target": [0, 2, 1, 2],
            "reduction": "none",
            "weight": {"shape": [3], "low": 0.2, "high": 2.0},
        },
        {},
    ),
    Sample("", "NegativeLogLikelihoodLoss", 1, 3, {"input": [3, 4], "target": [0, -1, 3], "ignore_index": -1}, {}),
    Sample(
        "",
        "NegativeLogLikelihoodLoss",
        1,
        4,
        {"input": [3, 4], "target": [0, 2, 3], "ignore_index": 2, "weight": {"shape": [4], "low": 0.2, "high": 2.0}},
        {},
    ),
    Sample(
        "",
        "NegativeLogLikelihoodLoss",
        1,
        5,
        {
            "input": [2, 3, 2],
            "target": [[0, 2], [1, 5]],
            "ignore_index": 5,
            "weight": {"shape": [3], "low": 0.2, "high": 2.0},
            "reduction": "sum",
        },
        {},
    ),
    Sample(
        "",
        "NegativeLogLikelihoodLoss",
        1,
        6,
        {"input": [2, 3, 2, 1], "target": [[[0], [2]], [[1], [-100]]], "ignore_index": -100, "reduction": "none"},
        {},
    ),
    Sample(
        "",
        "NegativeLogLikelihoodLoss",
        1,
        7,
        {"input": [1, 3, 2, 1, 2], "target": [[[[0, 1]], [[2, 2]]]], "weight": {"shape": [3], "low": 0.2, "high": 2.0}},
        {},
    ),
    Sample(
        "", "NegativeLogLikelihoodLoss", 1, 8, {"input": [4, 3], "target": [0, -100, 1, 2], "ignore_index": -100}, {}
    ),
    Sample(
        "",
        "NegativeLogLikelihoodLoss",
        1,
        9,
        {"input": [4, 3], "target": [0, 7, 1, 7], "ignore_index": 7, "reduction": "sum"},
        {},
    ),
    Sample(
        "",
        "NegativeLogLikelihoodLoss",
        1,
        10,
        {"input": [3, 4], "target": [-7, 2, 3], "ignore_index": -7, "reduction": "none"},
        {},
    ),
    Sample(
        "",
        "NegativeLogLikelihoodLoss",
        1,
        11,
        {"input": [3, 2], "target": [2, 2, 2], "ignore_index": 2, "reduction": "sum"},
        {},
    ),
]


@pytest.mark.parametrize("sample", NEGATIVELOGLIKELIHOODLOSS, ids=str)
def test_negativeloglikelihoodloss_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", NEGATIVELOGLIKELIHOODLOSS, ids=str)
def test_negativeloglikelihoodloss_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", NEGATIVELOGLIKELIHOODLOSS, ids=str)
def test_negativeloglikelihoodloss_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", NEGATIVELOGLIKELIHOODLOSS, ids=str)
def test_negativeloglikelihoodloss_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", NEGATIVELOGLIKELIHOODLOSS, ids=str)
def test_negativeloglikelihoodloss_jvp(sample):
    check_jvp(sample)
