# DFT, STFT, DeformConv and Unique of the float64 oracle against onnxruntime in float32, on the samples of the tables.
"""Tests of gradgen.evaluate_ops_signal."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from random_graph_samples import table

from gradgen.evaluate import Evaluator, to_float64
from gradgen.samples import build

SAMPLES = [s for op in ("DFT", "STFT", "DeformConv", "Unique") for s in table()[op]]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: f"{s.op_type}-{s}")
def test_as_onnxruntime(sample):
    built = build(sample, np.float32)
    want = Evaluator(built.model, strict=True)(built.feeds)
    wide = {name: array.astype(np.float64) for name, array in built.feeds.items()}
    found = Evaluator(to_float64(built.model), prefer="reference", strict=True)(wide)
    for name in want:
        assert found[name].dtype == np.float64
        np.testing.assert_allclose(found[name], want[name], rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("axis", ["", ", axis = 0"])
@pytest.mark.parametrize("settled", [0, 1])
@pytest.mark.parametrize("names", ["y", "y, i, j, c"])
def test_unique_with_repeats(settled, names, axis):
    types = {"y": "float[?]" if not axis else "float[?,2]", "i": "int64[?]", "j": "int64[?]", "c": "int64[?]"}
    outputs = ", ".join(f"{types[n]} {n}" for n in names.split(", "))
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[4,2] x) => ({outputs}) '
        f"{{ {names} = Unique <sorted = {settled}{axis}> (x) }}"
    )
    x = np.array([[3, 1], [2, 3], [3, 1], [0, 1]], np.float32)
    want = Evaluator(model, strict=True)({"x": x})
    found = Evaluator(model, prefer="reference", strict=True)({"x": x})
    for name in want:
        np.testing.assert_array_equal(found[name], want[name])


@pytest.mark.parametrize("values", [[0.3, -1.2, 2.5], [0.2, 1.7, 3.1], [-0.4, -2.0, -0.1], [0.0, 0.0, 0.0]])
def test_dynamic_quantisation(values):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (uint8[3] y, float s, uint8 z) '
        "{ y, s, z = DynamicQuantizeLinear (x) }"
    )
    x = np.array(values, np.float32)
    want = Evaluator(model, strict=True)({"x": x})
    found = Evaluator(to_float64(model), prefer="reference", strict=True)({"x": x.astype(np.float64)})
    np.testing.assert_array_equal(found["y"], want["y"])
    np.testing.assert_array_equal(found["z"], want["z"])
    np.testing.assert_allclose(found["s"], want["s"], rtol=1e-6)
