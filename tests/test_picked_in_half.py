# Ops that return one of their inputs, in float16 behind ops that onnxruntime computes in float32 and does not round.
from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

import gradgen

X = np.array([0.1234, 0.777, 0.3331, 1.5], np.float16)
B = np.array([0.3011, 0.3007, 0.3003, 0.3007], np.float16)
CT = np.array([1.0, 2.0, 3.0, 4.0], np.float16)
IN_FRONT = {
    "Add(x, b)": lambda x: np.ones_like(x),
    "Mul(x, b)": lambda x: B.astype(x.dtype),
    "Exp(x)": np.exp,
    "Sigmoid(x)": lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2,
}
OPS = [
    "Clip(v, low, high)",
    "Max(v, low)",
    "Min(high, v)",
    "Max(v, lows)",
    'ScatterElements<reduction = "max">(lows, places, v)',
    'ScatterElements<reduction = "min">(highs, places, v)',
    "ReduceMax<keepdims = 1>(w, last)",
]


def run(model: onnx.ModelProto, optimise: bool) -> np.ndarray:
    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {
        "x": X, "b": B, "low": np.array(0, np.float16), "high": np.array(6, np.float16), "lows": np.zeros(4, np.float16),
        "highs": np.full(4, 6, np.float16), "places": np.arange(4), "last": np.array([1]),
        "grad_y": CT[:, None] if "ReduceMax" in {n.op_type for n in model.graph.node} else CT,
    }  # fmt: skip
    return session.run(["grad_x"], {i.name: feeds[i.name] for i in session.get_inputs()})[0]


@pytest.mark.parametrize("optimise", [True, False])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("front", IN_FRONT)
def test_all_of_the_cotangent_goes_to_what_is_picked(front, op, optimise):
    """Nothing is cut, nothing ties: the gradient is that of the op in front."""
    wide = "w = Unsqueeze(v, last)" if "ReduceMax" in op else ""
    rank = "4,1" if wide else "4"
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float16[4] x, float16[4] b, float16 low, float16 high, float16[4] lows, float16[4] highs, int64[4] places,
           int64[1] last) => (float16[{rank}] y) {{ v = {front} {wide} y = {op} }}""")
    found = run(gradgen.vjp(model, wrt=["x"], of=["y"]), optimise)
    np.testing.assert_allclose(found, CT * IN_FRONT[front](X.astype(np.float64)), rtol=4e-3)


@pytest.mark.parametrize(("other", "share"), [(1.0, 0.5), (1.0009765625, 0.0), (0.99951171875, 1.0)])
def test_neighbours_in_float16_do_not_tie(other, share):
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float16[1] x, float16[1] b) => (float16[1] y) { y = Max(x, b) }'
    )
    session = ort.InferenceSession(gradgen.vjp(model, wrt=["x"], of=["y"]).SerializeToString())
    feeds = {"x": 1.0, "b": other, "grad_y": 1.0}
    (found,) = session.run(["grad_x"], {n: np.array([v], np.float16) for n, v in feeds.items()})
    assert found == [share]
