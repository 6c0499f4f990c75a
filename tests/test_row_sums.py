"""Tests of sums over many rows: a product with a row of ones from a size on, ReduceSum below and where sizes are open."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import gradgen


def bias_gradient(shape: str, dtype: str = "float") -> onnx.ModelProto:
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({dtype}[{shape}] x, {dtype}[64] b) => ({dtype}[{shape}] y) '
        "{ y = Add(x, b) }"
    )
    return gradgen.vjp(model, wrt=["b"])


def ops(model: onnx.ModelProto) -> list[str]:
    return [n.op_type for n in model.graph.node if n.op_type != "Add"]


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ("512,64", "float", ["MatMul"]),
        ("512,64", "double", ["MatMul"]),
        ("4,128,64", "float", ["Flatten", "MatMul"]),
        ("8192,64", "float", ["Expand", "MatMul"]),
        ("32,64", "float", ["MatMul"]),
        ("16,64", "float", ["ReduceSum"]),
        ("4,16,64", "float", ["ReduceSum"]),
        ("N,64", "float", ["ReduceSum"]),
        ("512,64", "float16", ["ReduceSum"]),
    ],
)
def test_how_rows_are_summed(shape, dtype, expected):
    model = bias_gradient(shape, dtype)
    assert sorted(ops(model)) == sorted(expected)
    sizes = [3 if s == "N" else int(s) for s in shape.split(",")]
    x = np.random.default_rng(0).standard_normal(sizes).astype({"float": "f4", "double": "f8", "float16": "f2"}[dtype])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(["grad_b"], {"x": x, "b": np.zeros(64, x.dtype), "grad_y": x})
    wanted = x.astype(np.float64).reshape(-1, 64).sum(axis=0)
    np.testing.assert_allclose(found, wanted, atol=2e-7 * np.abs(x).sum() if dtype != "float16" else 0.5)


def test_a_matrix_of_ones_does_not_make_the_model_large():
    assert len(bias_gradient("100000,64").SerializeToString()) < 20_000
