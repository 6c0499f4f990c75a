"""Finite-difference tests of family contrib. Do not edit: generated from gradgen/rules/contrib.toml."""

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

MICROSOFT_GELU = [
    Sample("com.microsoft", "Gelu", 1, 0, {"X": [3, 4]}, {}),
    Sample("com.microsoft", "Gelu", 1, 1, {"X": []}, {}),
    Sample("com.microsoft", "Gelu", 1, 2, {"X": [0, 2]}, {}),
]


@pytest.mark.parametrize("sample", MICROSOFT_GELU, ids=str)
def test_microsoft_gelu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_GELU, ids=str)
def test_microsoft_gelu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_GELU, ids=str)
def test_microsoft_gelu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_GELU, ids=str)
def test_microsoft_gelu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_GELU, ids=str)
def test_microsoft_gelu_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_GELU, ids=str)
def test_microsoft_gelu_forward(sample):
    check_forward(sample)


MICROSOFT_FASTGELU = [
    Sample("com.microsoft", "FastGelu", 1, 0, {"X": [3, 4]}, {}),
    Sample("com.microsoft", "FastGelu", 1, 1, {"X": [2, 3, 4], "bias": [4]}, {}),
]


@pytest.mark.parametrize("sample", MICROSOFT_FASTGELU, ids=str)
def test_microsoft_fastgelu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FASTGELU, ids=str)
def test_microsoft_fastgelu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FASTGELU, ids=str)
def test_microsoft_fastgelu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FASTGELU, ids=str)
def test_microsoft_fastgelu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FASTGELU, ids=str)
def test_microsoft_fastgelu_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FASTGELU, ids=str)
def test_microsoft_fastgelu_forward(sample):
    check_forward(sample)


MICROSOFT_QUICKGELU = [
    Sample("com.microsoft", "QuickGelu", 1, 0, {"X": [3, 4]}, {}),
    Sample("com.microsoft", "QuickGelu", 1, 1, {"X": [5], "alpha": 0.7}, {}),
]


@pytest.mark.parametrize("sample", MICROSOFT_QUICKGELU, ids=str)
def test_microsoft_quickgelu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_QUICKGELU, ids=str)
def test_microsoft_quickgelu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_QUICKGELU, ids=str)
def test_microsoft_quickgelu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_QUICKGELU, ids=str)
def test_microsoft_quickgelu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_QUICKGELU, ids=str)
def test_microsoft_quickgelu_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_QUICKGELU, ids=str)
def test_microsoft_quickgelu_forward(sample):
    check_forward(sample)


MICROSOFT_BIASGELU = [
    Sample("com.microsoft", "BiasGelu", 1, 0, {"A": [2, 3, 4], "B": [4]}, {}),
    Sample("com.microsoft", "BiasGelu", 1, 1, {"A": [3, 4], "B": [4]}, {}),
]


@pytest.mark.parametrize("sample", MICROSOFT_BIASGELU, ids=str)
def test_microsoft_biasgelu_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASGELU, ids=str)
def test_microsoft_biasgelu_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASGELU, ids=str)
def test_microsoft_biasgelu_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASGELU, ids=str)
def test_microsoft_biasgelu_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASGELU, ids=str)
def test_microsoft_biasgelu_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASGELU, ids=str)
def test_microsoft_biasgelu_forward(sample):
    check_forward(sample)


MICROSOFT_FUSEDMATMUL = [
    Sample("com.microsoft", "FusedMatMul", 1, 0, {"A": [3, 4], "B": [4, 2]}, {}),
    Sample(
        "com.microsoft", "FusedMatMul", 1, 1, {"A": [4, 3], "B": [2, 4], "transA": 1, "transB": 1, "alpha": 0.5}, {}
    ),
    Sample("com.microsoft", "FusedMatMul", 1, 2, {"A": [2, 3, 4], "B": [2, 5, 4], "transB": 1, "alpha": 2.0}, {}),
    Sample("com.microsoft", "FusedMatMul", 1, 3, {"A": [2, 1, 4, 3], "B": [3, 4, 2], "transA": 1}, {}),
    Sample("com.microsoft", "FusedMatMul", 1, 4, {"A": [3, 2, 4], "B": [2, 4, 5], "transBatchA": 1}, {}),
    Sample("com.microsoft", "FusedMatMul", 1, 5, {"A": [4], "B": [4, 2], "alpha": 0.25}, {}),
]


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDMATMUL, ids=str)
def test_microsoft_fusedmatmul_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDMATMUL, ids=str)
def test_microsoft_fusedmatmul_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDMATMUL, ids=str)
def test_microsoft_fusedmatmul_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDMATMUL, ids=str)
def test_microsoft_fusedmatmul_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDMATMUL, ids=str)
def test_microsoft_fusedmatmul_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDMATMUL, ids=str)
def test_microsoft_fusedmatmul_forward(sample):
    check_forward(sample)


MICROSOFT_FUSEDGEMM = [
    Sample("com.microsoft", "FusedGemm", 1, 0, {"A": [3, 4], "B": [4, 2], "C": [2], "activation": "Relu"}, {}),
    Sample(
        "com.microsoft",
        "FusedGemm",
        1,
        1,
        {
            "A": [4, 3],
            "B": [2, 4],
            "transA": 1,
            "transB": 1,
            "alpha": 0.5,
            "beta": 2.0,
            "C": [3, 2],
            "activation": "LeakyRelu",
            "activation_alpha": 0.3,
        },
        {},
    ),
    Sample("com.microsoft", "FusedGemm", 1, 2, {"A": [3, 4], "B": [4, 2], "activation": "Tanh"}, {}),
]


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDGEMM, ids=str)
def test_microsoft_fusedgemm_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDGEMM, ids=str)
def test_microsoft_fusedgemm_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDGEMM, ids=str)
def test_microsoft_fusedgemm_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDGEMM, ids=str)
def test_microsoft_fusedgemm_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDGEMM, ids=str)
def test_microsoft_fusedgemm_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDGEMM, ids=str)
def test_microsoft_fusedgemm_forward(sample):
    check_forward(sample)


MICROSOFT_FUSEDCONV = [
    Sample(
        "com.microsoft",
        "FusedConv",
        1,
        0,
        {"X": [1, 2, 5, 5], "W": [3, 2, 3, 3], "B": [3], "activation": "Relu", "kernel_shape": [3, 3]},
        {},
    ),
    Sample(
        "com.microsoft",
        "FusedConv",
        1,
        1,
        {
            "X": [1, 2, 5, 5],
            "W": [3, 2, 3, 3],
            "pads": [1, 0, 1, 2],
            "strides": [2, 1],
            "activation": "LeakyRelu",
            "activation_params": [0.2],
        },
        {},
    ),
    Sample(
        "com.microsoft", "FusedConv", 1, 2, {"X": [2, 2, 6], "W": [2, 1, 3], "group": 2, "activation": "Sigmoid"}, {}
    ),
    Sample(
        "com.microsoft",
        "FusedConv",
        1,
        3,
        {"X": [1, 2, 4, 4], "W": [3, 2, 3, 3], "B": [3], "Z": [1, 3, 2, 2], "activation": "Relu"},
        {},
    ),
]


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDCONV, ids=str)
def test_microsoft_fusedconv_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDCONV, ids=str)
def test_microsoft_fusedconv_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDCONV, ids=str)
def test_microsoft_fusedconv_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDCONV, ids=str)
def test_microsoft_fusedconv_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDCONV, ids=str)
def test_microsoft_fusedconv_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_FUSEDCONV, ids=str)
def test_microsoft_fusedconv_forward(sample):
    check_forward(sample)


MICROSOFT_SKIPLAYERNORMALIZATION = [
    Sample(
        "com.microsoft",
        "SkipLayerNormalization",
        1,
        0,
        {"input": [2, 3, 8], "skip": [2, 3, 8], "gamma": [8], "beta": [8], "bias": [8], "epsilon": 1e-05},
        {},
    ),
    Sample(
        "com.microsoft",
        "SkipLayerNormalization",
        1,
        1,
        {"input": [2, 3, 8], "skip": [2, 3, 8], "gamma": [8], "epsilon": 1e-05},
        {},
    ),
    Sample(
        "com.microsoft",
        "SkipLayerNormalization",
        1,
        2,
        {
            "input": [2, 3, 8],
            "skip": [1, 3, 8],
            "gamma": [8],
            "beta": [8],
            "epsilon": 1e-05,
            "@outputs": ["output", "", "", "input_skip_bias_sum"],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", MICROSOFT_SKIPLAYERNORMALIZATION, ids=str)
def test_microsoft_skiplayernormalization_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_SKIPLAYERNORMALIZATION, ids=str)
def test_microsoft_skiplayernormalization_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_SKIPLAYERNORMALIZATION, ids=str)
def test_microsoft_skiplayernormalization_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_SKIPLAYERNORMALIZATION, ids=str)
def test_microsoft_skiplayernormalization_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_SKIPLAYERNORMALIZATION, ids=str)
def test_microsoft_skiplayernormalization_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_SKIPLAYERNORMALIZATION, ids=str)
def test_microsoft_skiplayernormalization_forward(sample):
    check_forward(sample)


MICROSOFT_SKIPSIMPLIFIEDLAYERNORMALIZATION = [
    Sample(
        "com.microsoft",
        "SkipSimplifiedLayerNormalization",
        1,
        0,
        {"input": [2, 3, 8], "skip": [2, 3, 8], "gamma": [8], "bias": [8], "epsilon": 1e-05},
        {},
    ),
    Sample(
        "com.microsoft",
        "SkipSimplifiedLayerNormalization",
        1,
        1,
        {
            "input": [2, 3, 8],
            "skip": [2, 3, 8],
            "gamma": [8],
            "epsilon": 1e-05,
            "@outputs": ["output", "", "", "input_skip_bias_sum"],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", MICROSOFT_SKIPSIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_microsoft_skipsimplifiedlayernormalization_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_SKIPSIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_microsoft_skipsimplifiedlayernormalization_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_SKIPSIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_microsoft_skipsimplifiedlayernormalization_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_SKIPSIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_microsoft_skipsimplifiedlayernormalization_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_SKIPSIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_microsoft_skipsimplifiedlayernormalization_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_SKIPSIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_microsoft_skipsimplifiedlayernormalization_forward(sample):
    check_forward(sample)


MICROSOFT_ROTARYEMBEDDING = [
    Sample(
        "com.microsoft",
        "RotaryEmbedding",
        1,
        0,
        {
            "input": [2, 3, 8],
            "position_ids": {"values": [[0, 1, 2], [2, 3, 4]], "dtype": "int64", "constant": True},
            "cos_cache": [6, 2],
            "sin_cache": [6, 2],
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "RotaryEmbedding",
        1,
        1,
        {
            "input": [2, 2, 3, 4],
            "position_ids": {"values": [1], "dtype": "int64", "constant": True},
            "cos_cache": [6, 2],
            "sin_cache": [6, 2],
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "RotaryEmbedding",
        1,
        2,
        {
            "input": [1, 3, 8],
            "position_ids": {"values": [0], "dtype": "int64", "constant": True},
            "cos_cache": [6, 2],
            "sin_cache": [6, 2],
            "interleaved": 1,
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "RotaryEmbedding",
        1,
        3,
        {
            "input": [1, 3, 12],
            "position_ids": {"values": [0], "dtype": "int64", "constant": True},
            "cos_cache": [6, 2],
            "sin_cache": [6, 2],
            "num_heads": 2,
            "rotary_embedding_dim": 4,
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", MICROSOFT_ROTARYEMBEDDING, ids=str)
def test_microsoft_rotaryembedding_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_ROTARYEMBEDDING, ids=str)
def test_microsoft_rotaryembedding_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_ROTARYEMBEDDING, ids=str)
def test_microsoft_rotaryembedding_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_ROTARYEMBEDDING, ids=str)
def test_microsoft_rotaryembedding_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_ROTARYEMBEDDING, ids=str)
def test_microsoft_rotaryembedding_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_ROTARYEMBEDDING, ids=str)
def test_microsoft_rotaryembedding_forward(sample):
    check_forward(sample)


MICROSOFT_ATTENTION = [
    Sample(
        "com.microsoft", "Attention", 1, 0, {"input": [2, 3, 4], "weights": [4, 12], "bias": [12], "num_heads": 2}, {}
    ),
    Sample(
        "com.microsoft",
        "Attention",
        1,
        1,
        {"input": [2, 3, 4], "weights": [4, 12], "bias": [12], "num_heads": 2, "unidirectional": 1, "scale": 0.3},
        {},
    ),
    Sample(
        "com.microsoft",
        "Attention",
        1,
        2,
        {
            "input": [2, 3, 4],
            "weights": [4, 12],
            "bias": [12],
            "mask_index": {"values": [2, 3], "dtype": "int32", "constant": True},
            "num_heads": 2,
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "Attention",
        1,
        3,
        {
            "input": [2, 3, 4],
            "weights": [4, 12],
            "bias": [12],
            "mask_index": {"values": [2, 3, 1, 0], "dtype": "int32", "constant": True},
            "num_heads": 2,
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "Attention",
        1,
        4,
        {
            "input": [2, 3, 4],
            "weights": [4, 12],
            "bias": [12],
            "mask_index": {"values": [[1, 1, 0], [1, 0, 1]], "dtype": "int32", "constant": True},
            "num_heads": 2,
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "Attention",
        1,
        5,
        {"input": [1, 3, 4], "weights": [4, 14], "bias": [14], "qkv_hidden_sizes": [4, 4, 6], "num_heads": 2},
        {},
    ),
    Sample(
        "com.microsoft",
        "Attention",
        1,
        6,
        {"input": [2, 3, 4], "weights": [4, 12], "bias": [12], "attention_bias": [1, 2, 3, 3], "num_heads": 2},
        {},
    ),
]


@pytest.mark.parametrize("sample", MICROSOFT_ATTENTION, ids=str)
def test_microsoft_attention_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_ATTENTION, ids=str)
def test_microsoft_attention_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_ATTENTION, ids=str)
def test_microsoft_attention_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_ATTENTION, ids=str)
def test_microsoft_attention_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_ATTENTION, ids=str)
def test_microsoft_attention_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_ATTENTION, ids=str)
def test_microsoft_attention_forward(sample):
    check_forward(sample)


MICROSOFT_MULTIHEADATTENTION = [
    Sample(
        "com.microsoft",
        "MultiHeadAttention",
        1,
        0,
        {"query": [2, 3, 8], "key": [2, 4, 8], "value": [2, 4, 8], "num_heads": 2},
        {},
    ),
    Sample(
        "com.microsoft",
        "MultiHeadAttention",
        1,
        1,
        {"query": [2, 3, 8], "key": [2, 4, 8], "value": [2, 4, 6], "bias": [22], "num_heads": 2, "scale": 0.4},
        {},
    ),
    Sample(
        "com.microsoft",
        "MultiHeadAttention",
        1,
        2,
        {"query": [2, 3, 8], "key": [2, 3, 8], "value": [2, 3, 8], "num_heads": 2, "unidirectional": 1},
        {},
    ),
    Sample(
        "com.microsoft",
        "MultiHeadAttention",
        1,
        3,
        {
            "query": [2, 3, 8],
            "key": [2, 4, 8],
            "value": [2, 4, 8],
            "key_padding_mask": {"values": [[1, 1, 0, 1], [1, 1, 1, 1]], "dtype": "int32", "constant": True},
            "attention_bias": [1, 1, 3, 4],
            "num_heads": 2,
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "MultiHeadAttention",
        1,
        4,
        {"query": [2, 3, 8], "key": [2, 2, 4, 4], "value": [2, 2, 4, 4], "num_heads": 2},
        {},
    ),
]


@pytest.mark.parametrize("sample", MICROSOFT_MULTIHEADATTENTION, ids=str)
def test_microsoft_multiheadattention_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_MULTIHEADATTENTION, ids=str)
def test_microsoft_multiheadattention_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_MULTIHEADATTENTION, ids=str)
def test_microsoft_multiheadattention_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_MULTIHEADATTENTION, ids=str)
def test_microsoft_multiheadattention_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_MULTIHEADATTENTION, ids=str)
def test_microsoft_multiheadattention_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_MULTIHEADATTENTION, ids=str)
def test_microsoft_multiheadattention_forward(sample):
    check_forward(sample)


MICROSOFT_GROUPQUERYATTENTION = [
    Sample(
        "com.microsoft",
        "GroupQueryAttention",
        1,
        0,
        {
            "query": [2, 3, 32],
            "key": [2, 3, 16],
            "value": [2, 3, 16],
            "seqlens_k": {"values": [2, 2], "dtype": "int32", "constant": True},
            "total_sequence_length": {"values": 3, "dtype": "int32", "constant": True},
            "num_heads": 4,
            "kv_num_heads": 2,
            "@outputs": ["output", "present_key", "present_value"],
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "GroupQueryAttention",
        1,
        1,
        {
            "query": [2, 3, 32],
            "key": [2, 3, 16],
            "value": [2, 3, 16],
            "seqlens_k": {"values": [2, 2], "dtype": "int32", "constant": True},
            "total_sequence_length": {"values": 3, "dtype": "int32", "constant": True},
            "num_heads": 4,
            "kv_num_heads": 2,
            "softcap": 2.0,
            "scale": 0.5,
            "local_window_size": 2,
            "@outputs": ["output", "present_key", "present_value"],
            "@of": ["output"],
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "GroupQueryAttention",
        1,
        2,
        {
            "query": [1, 3, 64],
            "key": [1, 3, 32],
            "value": [1, 3, 32],
            "seqlens_k": {"values": [2], "dtype": "int32", "constant": True},
            "total_sequence_length": {"values": 3, "dtype": "int32", "constant": True},
            "cos_cache": {"shape": [4, 8], "constant": True},
            "sin_cache": {"shape": [4, 8], "constant": True},
            "do_rotary": 1,
            "num_heads": 4,
            "kv_num_heads": 2,
            "@outputs": ["output", "present_key", "present_value"],
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "GroupQueryAttention",
        1,
        3,
        {
            "query": [1, 3, 64],
            "seqlens_k": {"values": [2], "dtype": "int32", "constant": True},
            "total_sequence_length": {"values": 3, "dtype": "int32", "constant": True},
            "num_heads": 4,
            "kv_num_heads": 2,
            "@outputs": ["output", "present_key", "present_value"],
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "GroupQueryAttention",
        1,
        4,
        {
            "query": [2, 4, 32],
            "key": [2, 4, 16],
            "value": [2, 4, 16],
            "seqlens_k": {"values": [3, 1], "dtype": "int32", "constant": True},
            "total_sequence_length": {"values": 4, "dtype": "int32", "constant": True},
            "num_heads": 4,
            "kv_num_heads": 2,
            "@outputs": ["output", "present_key", "present_value"],
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "GroupQueryAttention",
        1,
        5,
        {
            "query": [2, 4, 16],
            "key": [2, 4, 8],
            "value": [2, 4, 8],
            "seqlens_k": {"values": [2, 0], "dtype": "int32", "constant": True},
            "total_sequence_length": {"values": 4, "dtype": "int32", "constant": True},
            "num_heads": 2,
            "kv_num_heads": 1,
            "local_window_size": 1,
            "@outputs": ["output", "present_key", "present_value"],
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "GroupQueryAttention",
        1,
        6,
        {
            "query": [2, 4, 16],
            "key": [2, 4, 8],
            "value": [2, 4, 8],
            "seqlens_k": {"values": [2, 0], "dtype": "int32", "constant": True},
            "total_sequence_length": {"values": 4, "dtype": "int32", "constant": True},
            "num_heads": 2,
            "kv_num_heads": 1,
            "local_window_size": 2,
            "softcap": 1.5,
            "@outputs": ["output", "present_key", "present_value"],
        },
        {},
    ),
    Sample(
        "com.microsoft",
        "GroupQueryAttention",
        1,
        7,
        {
            "query": [2, 4, 64],
            "key": [2, 4, 32],
            "value": [2, 4, 32],
            "seqlens_k": {"values": [2, 3], "dtype": "int32", "constant": False},
            "total_sequence_length": {"values": 4, "dtype": "int32", "constant": True},
            "cos_cache": {"shape": [4, 8], "constant": True},
            "sin_cache": {"shape": [4, 8], "constant": True},
            "do_rotary": 1,
            "attention_bias": [1, 1, 4, 4],
            "softcap": 1.5,
            "num_heads": 4,
            "kv_num_heads": 2,
            "@wrt": ["query", "key", "value", "attention_bias"],
            "@outputs": ["output", "present_key", "present_value"],
        },
        {},
    ),
]


@pytest.mark.parametrize("sample", MICROSOFT_GROUPQUERYATTENTION, ids=str)
def test_microsoft_groupqueryattention_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_GROUPQUERYATTENTION, ids=str)
def test_microsoft_groupqueryattention_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_GROUPQUERYATTENTION, ids=str)
def test_microsoft_groupqueryattention_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_GROUPQUERYATTENTION, ids=str)
def test_microsoft_groupqueryattention_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_GROUPQUERYATTENTION, ids=str)
def test_microsoft_groupqueryattention_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_GROUPQUERYATTENTION, ids=str)
def test_microsoft_groupqueryattention_forward(sample):
    check_forward(sample)


MICROSOFT_BIASADD = [
    Sample(
        "com.microsoft",
        "BiasAdd",
        1,
        0,
        {"X": [2, 3, 4], "bias": [4], "skip": [2, 3, 4]},
        {"kernel": "onnxruntime has none for the CPU"},
    ),
]


@pytest.mark.parametrize("sample", MICROSOFT_BIASADD, ids=str)
def test_microsoft_biasadd_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASADD, ids=str)
def test_microsoft_biasadd_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASADD, ids=str)
def test_microsoft_biasadd_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASADD, ids=str)
def test_microsoft_biasadd_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASADD, ids=str)
def test_microsoft_biasadd_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASADD, ids=str)
def test_microsoft_biasadd_forward(sample):
    check_forward(sample)


MICROSOFT_BIASSOFTMAX = [
    Sample(
        "com.microsoft",
        "BiasSoftmax",
        1,
        0,
        {"data": [2, 3, 4], "bias": [2, 1, 4], "axis": 2, "is_inner_broadcast": 1},
        {"kernel": "onnxruntime has none for the CPU"},
    ),
    Sample(
        "com.microsoft",
        "BiasSoftmax",
        1,
        1,
        {"data": [2, 3, 4], "bias": [1, 3, 4], "axis": 1, "is_inner_broadcast": 0},
        {"kernel": "onnxruntime has none for the CPU"},
    ),
]


@pytest.mark.parametrize("sample", MICROSOFT_BIASSOFTMAX, ids=str)
def test_microsoft_biassoftmax_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASSOFTMAX, ids=str)
def test_microsoft_biassoftmax_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASSOFTMAX, ids=str)
def test_microsoft_biassoftmax_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASSOFTMAX, ids=str)
def test_microsoft_biassoftmax_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASSOFTMAX, ids=str)
def test_microsoft_biassoftmax_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", MICROSOFT_BIASSOFTMAX, ids=str)
def test_microsoft_biassoftmax_forward(sample):
    check_forward(sample)


ONNXRUNTIME_LAYERNORMALIZATION = [
    Sample("onnxruntime", "LayerNormalization", 1, 0, {"X": [2, 3, 4], "Scale": [4], "B": [4]}, {}),
]


@pytest.mark.parametrize("sample", ONNXRUNTIME_LAYERNORMALIZATION, ids=str)
def test_onnxruntime_layernormalization_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ONNXRUNTIME_LAYERNORMALIZATION, ids=str)
def test_onnxruntime_layernormalization_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ONNXRUNTIME_LAYERNORMALIZATION, ids=str)
def test_onnxruntime_layernormalization_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ONNXRUNTIME_LAYERNORMALIZATION, ids=str)
def test_onnxruntime_layernormalization_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ONNXRUNTIME_LAYERNORMALIZATION, ids=str)
def test_onnxruntime_layernormalization_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", ONNXRUNTIME_LAYERNORMALIZATION, ids=str)
def test_onnxruntime_layernormalization_forward(sample):
    check_forward(sample)


ONNXRUNTIME_SIMPLIFIEDLAYERNORMALIZATION = [
    Sample("onnxruntime", "SimplifiedLayerNormalization", 1, 0, {"X": [2, 3, 4], "scale": [4]}, {}),
    Sample("onnxruntime", "SimplifiedLayerNormalization", 1, 1, {"X": [2, 3, 4], "scale": [3, 4], "axis": 1}, {}),
]


@pytest.mark.parametrize("sample", ONNXRUNTIME_SIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_onnxruntime_simplifiedlayernormalization_first_order(sample):
    check_first_order(sample)


@pytest.mark.parametrize("sample", ONNXRUNTIME_SIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_onnxruntime_simplifiedlayernormalization_float32(sample):
    check_float32(sample)


@pytest.mark.parametrize("sample", ONNXRUNTIME_SIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_onnxruntime_simplifiedlayernormalization_dynamic(sample):
    check_dynamic(sample)


@pytest.mark.parametrize("sample", ONNXRUNTIME_SIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_onnxruntime_simplifiedlayernormalization_second_order(sample):
    check_second_order(sample)


@pytest.mark.parametrize("sample", ONNXRUNTIME_SIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_onnxruntime_simplifiedlayernormalization_jvp(sample):
    check_jvp(sample)


@pytest.mark.parametrize("sample", ONNXRUNTIME_SIMPLIFIEDLAYERNORMALIZATION, ids=str)
def test_onnxruntime_simplifiedlayernormalization_forward(sample):
    check_forward(sample)
