"""Small float64 models with control flow and recurrence, each with a point, for the tests of jvp and hvp."""

from __future__ import annotations

import numpy as np
import onnx
from loops import model
from onnx import TensorProto, helper

RNG = np.random.default_rng(5)
LOOP = """g (double[3] x, double[3] w, int64 n) => (double y) {
    go = Constant <value = bool {1}> ()
    h = Loop (n, go, x) <body = b (int64 i, bool c, double[3] before) => (bool again, double[3] after) {
        again = Identity (c)
        product = Mul (before, w)
        s = Sin (product)
        after = Add (s, x)
    }>
    y = ReduceSum <keepdims = 0> (h)
}"""
COLLECT = """g (double[2] x, double[2] w) => (double[4,2] y) {
    n = Constant <value = int64 {4}> ()
    last, y = Loop (n, , x) <body = b (int64 i, bool c, double[2] before) => (bool again, double[2] after, double[2] out) {
        again = Identity (c)
        square = Mul (before, before)
        after = Mul (square, w)
        out = Exp (after)
    }>
}"""
SCAN = """g (double[2] s, double[5,2] x) => (double[2] last, double[5,2] y) {
    last, y = Scan <num_scan_inputs = 1, body = b (double[2] before, double[2] v) => (double[2] after, double[2] out) {
        p = Mul (before, v)
        after = Tanh (p)
        out = Mul (after, after)
    }> (s, x)
}"""
BRANCH = """g (double[3] x, double[3] w) => (double[3] y) {
    total = ReduceSum <keepdims = 0> (x)
    zero = Constant <value = double {0.0}> ()
    positive = Greater (total, zero)
    y = If (positive) <
        then_branch = t () => (double[3] a) { p = Mul (x, w)  a = Exp (p) },
        else_branch = e () => (double[3] b) { q = Mul (x, x)  b = Mul (q, w) }
    >
}"""


def drawn(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {n: RNG.uniform(0.3, 0.9, s) for n, s in shapes.items()}


def lstm() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """An LSTM in float32, for to_float64; the sum of squares of its output."""
    shapes = {"X": (3, 2, 3), "W": (1, 8, 3), "R": (1, 8, 2), "B": (1, 16)}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    nodes = [
        helper.make_node("LSTM", [*shapes], ["Y", "", "Y_c"], hidden_size=2, name="lstm"),
        helper.make_node("Mul", ["Y", "Y"], ["squared"], name="square"),
        helper.make_node("ReduceSum", ["squared"], ["y"], keepdims=0, name="sum"),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])]
    graph = helper.make_graph(nodes, "lstm", inputs, outputs)
    feeds = {n: RNG.uniform(-0.9, 0.9, s).astype(np.float32) for n, s in shapes.items()}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), feeds


MODELS = {
    "loop": (model(LOOP), {**drawn(x=(3,), w=(3,)), "n": np.asarray(4)}),
    "collect": (model(COLLECT), drawn(x=(2,), w=(2,))),
    "scan": (model(SCAN), drawn(s=(2,), x=(5, 2))),
    "then": (model(BRANCH), drawn(x=(3,), w=(3,))),
    "else": (model(BRANCH), {"x": np.array([-0.4, 0.3, -0.8]), "w": np.array([0.5, 0.7, 0.9])}),
    "lstm": lstm(),
}
