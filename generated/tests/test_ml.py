"""Finite-difference tests of family ml. Do not edit: generated from gradgen/rules/ml.toml."""

import pytest

from gradgen.testing import (
    Sample,
    check_dynamic,
    check_first_order,
    check_float32,
    check_forward,
    check_second_order,
)
from gradgen.testing_forward import check_jvp

ML_SCALER = [
    Sample(
        "ai.onnx.ml", "Scaler", 1, 0, {"X": [3, 4], "scale": [0.5, 2.0, 1.5, -1.0], "offset": [0.1, -0.2, 0.3, 0.5]}, {}
    ),
    Sample("ai.onnx.ml", "Scaler", 1, 1, {"X": [3, 4], "scale": [0.5], "offset": [1.0]}, {}),
    Sample("ai.onnx.ml", "Scaler", 1, 2, {"X": [0, 2], "scale": [0.5, 2.0], "offset": [0.5, 0.5]}, {}),
]


@pytest.mark.parametrize("sample", ML_SCALER, ids=str)
def test_ml_scaler_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ML_SCALER, ids=str)
def test_ml_scaler_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ML_SCALER, ids=str)
def test_ml_scaler_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ML_SCALER, ids=str)
def test_ml_scaler_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ML_SCALER, ids=str)
def test_ml_scaler_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", ML_SCALER, ids=str)
def test_ml_scaler_forward(sample):
    check_forward(sample)


ML_NORMALIZER = [
    Sample("ai.onnx.ml", "Normalizer", 1, 0, {"X": [3, 4]}, {"avoid": {"X": [0.0]}, "kernel": False}),
    Sample("ai.onnx.ml", "Normalizer", 1, 1, {"X": [3, 4], "norm": "L1"}, {"avoid": {"X": [0.0]}, "kernel": False}),
    Sample("ai.onnx.ml", "Normalizer", 1, 2, {"X": [3, 4], "norm": "L2"}, {"avoid": {"X": [0.0]}, "kernel": False}),
    Sample("ai.onnx.ml", "Normalizer", 1, 3, {"X": [5], "norm": "MAX"}, {"avoid": {"X": [0.0]}, "kernel": False}),
    Sample("ai.onnx.ml", "Normalizer", 1, 4, {"X": [5], "norm": "L1"}, {"avoid": {"X": [0.0]}, "kernel": False}),
    Sample("ai.onnx.ml", "Normalizer", 1, 5, {"X": [5], "norm": "L2"}, {"avoid": {"X": [0.0]}, "kernel": False}),
]


@pytest.mark.parametrize("sample", ML_NORMALIZER, ids=str)
def test_ml_normalizer_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ML_NORMALIZER, ids=str)
def test_ml_normalizer_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ML_NORMALIZER, ids=str)
def test_ml_normalizer_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ML_NORMALIZER, ids=str)
def test_ml_normalizer_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ML_NORMALIZER, ids=str)
def test_ml_normalizer_jvp(sample):
    check_jvp(sample)


ML_LINEARREGRESSOR = [
    Sample("ai.onnx.ml", "LinearRegressor", 1, 0, {"X": [3, 4], "coefficients": [0.3, -0.5, 0.7, 1.2]}, {}),
    Sample(
        "ai.onnx.ml",
        "LinearRegressor",
        1,
        1,
        {"X": [3, 2], "coefficients": [0.3, -0.5, 0.7, 1.2], "targets": 2, "intercepts": [0.4, -0.6]},
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "LinearRegressor",
        1,
        2,
        {"X": [3, 2], "coefficients": [0.3, -0.5, 0.7, 1.2], "targets": 2, "post_transform": "SOFTMAX"},
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "LinearRegressor",
        1,
        3,
        {"X": [3, 2], "coefficients": [0.3, -0.5, 0.7, 1.2], "targets": 2, "post_transform": "SOFTMAX_ZERO"},
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "LinearRegressor",
        1,
        4,
        {"X": [3, 2], "coefficients": [0.3, -0.5, 0.7, 1.2], "targets": 2, "post_transform": "LOGISTIC"},
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "LinearRegressor",
        1,
        5,
        {
            "X": {"shape": [3, 2], "low": 0.1, "high": 0.4},
            "coefficients": [0.3, 0.5, 0.7, 1.2],
            "targets": 2,
            "post_transform": "PROBIT",
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", ML_LINEARREGRESSOR, ids=str)
def test_ml_linearregressor_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ML_LINEARREGRESSOR, ids=str)
def test_ml_linearregressor_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ML_LINEARREGRESSOR, ids=str)
def test_ml_linearregressor_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ML_LINEARREGRESSOR, ids=str)
def test_ml_linearregressor_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ML_LINEARREGRESSOR, ids=str)
def test_ml_linearregressor_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", ML_LINEARREGRESSOR, ids=str)
def test_ml_linearregressor_forward(sample):
    check_forward(sample)


ML_LINEARCLASSIFIER = [
    Sample(
        "ai.onnx.ml",
        "LinearClassifier",
        1,
        0,
        {"X": [3, 4], "coefficients": [0.3, -0.5, 0.7, 1.2], "intercepts": [0.2], "classlabels_ints": [0, 1]},
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "LinearClassifier",
        1,
        1,
        {
            "X": [3, 4],
            "coefficients": [0.3, -0.5, 0.7, 1.2],
            "intercepts": [0.2],
            "classlabels_ints": [0, 1],
            "post_transform": "LOGISTIC",
        },
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "LinearClassifier",
        1,
        2,
        {
            "X": [3, 2],
            "coefficients": [0.3, -0.5, 0.7, 1.2],
            "intercepts": [0.2, 0.1],
            "classlabels_ints": [4, 7],
            "post_transform": "SOFTMAX",
        },
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "LinearClassifier",
        1,
        3,
        {
            "X": [3, 2],
            "coefficients": [0.3, -0.5, 0.7, 1.2, 0.1, 0.9],
            "intercepts": [0.2, 0.1, -0.4],
            "classlabels_ints": [4, 7, 9],
        },
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "LinearClassifier",
        1,
        4,
        {
            "X": [3, 2],
            "coefficients": [0.3, -0.5, 0.7, 1.2, 0.1, 0.9],
            "intercepts": [0.2, 0.1, -0.4],
            "classlabels_ints": [4, 7, 9],
            "post_transform": "LOGISTIC",
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", ML_LINEARCLASSIFIER, ids=str)
def test_ml_linearclassifier_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ML_LINEARCLASSIFIER, ids=str)
def test_ml_linearclassifier_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ML_LINEARCLASSIFIER, ids=str)
def test_ml_linearclassifier_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ML_LINEARCLASSIFIER, ids=str)
def test_ml_linearclassifier_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ML_LINEARCLASSIFIER, ids=str)
def test_ml_linearclassifier_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", ML_LINEARCLASSIFIER, ids=str)
def test_ml_linearclassifier_forward(sample):
    check_forward(sample)


ML_SVMREGRESSOR = [
    Sample(
        "ai.onnx.ml",
        "SVMRegressor",
        1,
        0,
        {
            "X": [4, 3],
            "coefficients": [0.5, -0.3],
            "support_vectors": [1.0, 0.5, -0.5, 0.1, 0.2, 0.3],
            "n_supports": 2,
            "kernel_type": "RBF",
            "kernel_params": [0.4, 0.0, 3.0],
            "rho": [0.1],
        },
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "SVMRegressor",
        1,
        1,
        {
            "X": [4, 3],
            "coefficients": [0.5, -0.3],
            "support_vectors": [1.0, 0.5, -0.5, 0.1, 0.2, 0.3],
            "n_supports": 2,
            "kernel_type": "POLY",
            "kernel_params": [0.4, 0.3, 3.0],
            "rho": [0.1],
        },
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "SVMRegressor",
        1,
        2,
        {
            "X": [4, 3],
            "coefficients": [0.5, -0.3],
            "support_vectors": [1.0, 0.5, -0.5, 0.1, 0.2, 0.3],
            "n_supports": 2,
            "kernel_type": "SIGMOID",
            "kernel_params": [0.4, 0.3, 3.0],
            "rho": [0.1],
        },
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "SVMRegressor",
        1,
        3,
        {
            "X": [4, 3],
            "coefficients": [0.5, -0.3],
            "support_vectors": [1.0, 0.5, -0.5, 0.1, 0.2, 0.3],
            "n_supports": 2,
            "kernel_type": "LINEAR",
            "kernel_params": [0.4, 0.0, 3.0],
            "rho": [0.1],
        },
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "SVMRegressor",
        1,
        4,
        {"X": [4, 3], "coefficients": [0.5, -0.3, 0.7], "kernel_params": [0.0, 0.0, 0.0], "rho": [0.1]},
        {},
    ),
]


@pytest.mark.parametrize("sample", ML_SVMREGRESSOR, ids=str)
def test_ml_svmregressor_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ML_SVMREGRESSOR, ids=str)
def test_ml_svmregressor_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ML_SVMREGRESSOR, ids=str)
def test_ml_svmregressor_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ML_SVMREGRESSOR, ids=str)
def test_ml_svmregressor_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ML_SVMREGRESSOR, ids=str)
def test_ml_svmregressor_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", ML_SVMREGRESSOR, ids=str)
def test_ml_svmregressor_forward(sample):
    check_forward(sample)


ML_SVMCLASSIFIER = [
    Sample(
        "ai.onnx.ml",
        "SVMClassifier",
        1,
        0,
        {
            "X": [4, 3],
            "coefficients": [0.5, -0.3],
            "support_vectors": [1.0, 0.5, -0.5, 0.1, 0.2, 0.3],
            "vectors_per_class": [1, 1],
            "kernel_type": "RBF",
            "kernel_params": [0.4, 0.0, 3.0],
            "rho": [0.1],
            "classlabels_ints": [0, 1],
            "@outputs": ["Y", "Z"],
            "@of": ["Z"],
        },
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "SVMClassifier",
        1,
        1,
        {
            "X": [4, 3],
            "coefficients": [0.5, -0.3],
            "support_vectors": [1.0, 0.5, -0.5, 0.1, 0.2, 0.3],
            "vectors_per_class": [1, 1],
            "kernel_type": "LINEAR",
            "kernel_params": [0.4, 0.0, 3.0],
            "rho": [0.1],
            "classlabels_ints": [0, 1],
            "post_transform": "LOGISTIC",
            "@outputs": ["Y", "Z"],
            "@of": ["Z"],
        },
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "SVMClassifier",
        1,
        2,
        {
            "X": [4, 3],
            "coefficients": [0.5, -0.3],
            "support_vectors": [1.0, 0.5, -0.5, 0.1, 0.2, 0.3],
            "vectors_per_class": [1, 1],
            "kernel_type": "POLY",
            "kernel_params": [0.4, 0.2, 2.0],
            "rho": [0.1],
            "classlabels_ints": [0, 1],
            "post_transform": "SOFTMAX",
            "@outputs": ["Y", "Z"],
            "@of": ["Z"],
        },
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "SVMClassifier",
        1,
        3,
        {
            "X": [4, 2],
            "coefficients": [0.5, -0.3, 0.2, 0.7, 0.1, 0.9, -0.4, 0.8],
            "support_vectors": [1.0, 0.5, -0.5, 0.1, 0.2, 0.3, 0.9, -1.0],
            "vectors_per_class": [1, 2, 1],
            "kernel_type": "RBF",
            "kernel_params": [0.4, 0.0, 3.0],
            "rho": [0.1, 0.2, 0.3],
            "classlabels_ints": [0, 1, 5],
            "@outputs": ["Y", "Z"],
            "@of": ["Z"],
        },
        {},
    ),
    Sample(
        "ai.onnx.ml",
        "SVMClassifier",
        1,
        4,
        {
            "X": [4, 2],
            "coefficients": [0.5, -0.3, 0.2, 0.7, 0.1, 0.9],
            "kernel_params": [0.0, 0.0, 0.0],
            "rho": [0.1],
            "classlabels_ints": [0, 1, 5],
            "post_transform": "SOFTMAX",
            "@outputs": ["Y", "Z"],
            "@of": ["Z"],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", ML_SVMCLASSIFIER, ids=str)
def test_ml_svmclassifier_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ML_SVMCLASSIFIER, ids=str)
def test_ml_svmclassifier_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ML_SVMCLASSIFIER, ids=str)
def test_ml_svmclassifier_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ML_SVMCLASSIFIER, ids=str)
def test_ml_svmclassifier_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ML_SVMCLASSIFIER, ids=str)
def test_ml_svmclassifier_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", ML_SVMCLASSIFIER, ids=str)
def test_ml_svmclassifier_forward(sample):
    check_forward(sample)


ML_IMPUTER = [
    Sample(
        "ai.onnx.ml",
        "Imputer",
        1,
        0,
        {"X": [3, 2], "imputed_value_floats": [0.25, 0.75], "replaced_value_float": -9.0},
        {},
    ),
]


@pytest.mark.parametrize("sample", ML_IMPUTER, ids=str)
def test_ml_imputer_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ML_IMPUTER, ids=str)
def test_ml_imputer_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ML_IMPUTER, ids=str)
def test_ml_imputer_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ML_IMPUTER, ids=str)
def test_ml_imputer_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ML_IMPUTER, ids=str)
def test_ml_imputer_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", ML_IMPUTER, ids=str)
def test_ml_imputer_forward(sample):
    check_forward(sample)


ML_FEATUREVECTORIZER = [
    Sample("ai.onnx.ml", "FeatureVectorizer", 1, 0, {"X": [[3, 2], [3, 4]], "inputdimensions": [2, 4]}, {}),
    Sample("ai.onnx.ml", "FeatureVectorizer", 1, 1, {"X": [[3, 3], [3, 2]], "inputdimensions": [2, 3]}, {}),
    Sample("ai.onnx.ml", "FeatureVectorizer", 1, 2, {"X": [[3, 3]], "inputdimensions": [3]}, {}),
]


@pytest.mark.parametrize("sample", ML_FEATUREVECTORIZER, ids=str)
def test_ml_featurevectorizer_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ML_FEATUREVECTORIZER, ids=str)
def test_ml_featurevectorizer_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ML_FEATUREVECTORIZER, ids=str)
def test_ml_featurevectorizer_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ML_FEATUREVECTORIZER, ids=str)
def test_ml_featurevectorizer_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ML_FEATUREVECTORIZER, ids=str)
def test_ml_featurevectorizer_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", ML_FEATUREVECTORIZER, ids=str)
def test_ml_featurevectorizer_forward(sample):
    check_forward(sample)


ML_ARRAYFEATUREEXTRACTOR = [
    Sample("ai.onnx.ml", "ArrayFeatureExtractor", 1, 0, {"X": [3, 4], "Y": [2, 0, 2]}, {}),
    Sample("ai.onnx.ml", "ArrayFeatureExtractor", 1, 1, {"X": [5], "Y": [1, 3]}, {}),
    Sample("ai.onnx.ml", "ArrayFeatureExtractor", 1, 2, {"X": [2, 3, 4], "Y": [3]}, {}),
]


@pytest.mark.parametrize("sample", ML_ARRAYFEATUREEXTRACTOR, ids=str)
def test_ml_arrayfeatureextractor_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ML_ARRAYFEATUREEXTRACTOR, ids=str)
def test_ml_arrayfeatureextractor_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ML_ARRAYFEATUREEXTRACTOR, ids=str)
def test_ml_arrayfeatureextractor_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ML_ARRAYFEATUREEXTRACTOR, ids=str)
def test_ml_arrayfeatureextractor_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ML_ARRAYFEATUREEXTRACTOR, ids=str)
def test_ml_arrayfeatureextractor_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", ML_ARRAYFEATUREEXTRACTOR, ids=str)
def test_ml_arrayfeatureextractor_forward(sample):
    check_forward(sample)
