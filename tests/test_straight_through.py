# Quantisation inside bodies and in functions: what stops a gradient is said, and straight through it is what a loop over
# the steps by hand gives.
from __future__ import annotations

import re
import warnings

import numpy as np
import onnx
import pytest
from onnx import parser

import gradgen
from gradgen.evaluate import Evaluator
from gradgen.inlining import inline_functions

SCALE, ZERO = np.float32(0.05), 3
STORED = "<float s = {0.05}, int8 z = {3}>"
PAIR = "qx = QuantizeLinear(a, s, z) dx = DequantizeLinear(qx, s, z)"
STEP = f"{PAIR} a1 = Mul(dx, w) r = Sin(dx)"
LOOP = f"""g (int64 n, bool go, float[4] x, float[4] w) => (float[4] y, float[k,4] rows) {STORED} {{
    y, rows = Loop(n, go, x) < body = b (int64 i, bool on, float[4] a) => (bool on1, float[4] a1, float[4] r)
        {{ on1 = Identity(on) {STEP} }} > }}"""
SCAN = f"""g (float[4] x, float[3,4] u, float[4] w) => (float[4] y, float[3,4] rows) {STORED} {{
    y, rows = Scan(x, u) < num_scan_inputs = 1, scan_input_directions = [1],
        body = b (float[4] a0, float[4] v) => (float[4] a1, float[4] r) {{ a = Add(a0, v) {STEP} }} > }}"""
# The quantised value is made outside, and dequantised in the body of a Loop inside a Loop.
NESTED = f"""g (int64 n, bool go, float[4] x, float[4] w) => (float[4] y) {STORED} {{
    q = QuantizeLinear(x, s, z)
    y = Loop(n, go, w) < body = b (int64 i, bool on, float[4] a) => (bool on1, float[4] a1) {{
        on1 = Identity(on)
        a1 = Loop(n, go, a) < body = c (int64 j, bool in, float[4] e) => (bool in1, float[4] e1)
            {{ in1 = Identity(in) d = DequantizeLinear(q, s, z) e1 = Mul(e, d) }} > }} > }}"""
X = np.array([0.5, -0.3, 9, -9], np.float32)
W = np.array([1.5, -2, 0.5, 0.25], np.float32)
U = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
CT = np.random.default_rng(2).standard_normal((4, 4)).astype(np.float32)


def model_of(text):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> {text}')


def quietly(model, **options):
    """The gradient model, which warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return gradgen.vjp(model, straight_through=True, **options)


def quantised(x):
    return (np.clip(np.rint(x / SCALE) + ZERO, -128, 127) - ZERO) * SCALE


def inside(x):
    return (np.rint(x / SCALE) + ZERO >= -128) & (np.rint(x / SCALE) + ZERO <= 127)


def by_hand(added):
    """Gradients of x, w and what is added before each step, of Σ ct·y + Σ ct·rows, step by step."""
    states, state = [], X
    for v in added:
        states.append(state + v)
        state = quantised(states[-1]) * W
    ct, dw, dadded = CT[0], np.zeros(4), []
    for a, row in list(zip(states, CT[1:], strict=True))[::-1]:
        d = quantised(a)
        dw += ct * d
        ct = (ct * W + row * np.cos(d)) * inside(a)
        dadded.append(ct)
    return ct, dw, np.array(dadded[::-1])


def test_in_a_loop():
    feeds = {"n": np.int64(3), "go": np.bool_(True), "x": X, "w": W, "grad_y": CT[0], "grad_rows": CT[1:]}
    found = Evaluator(quietly(model_of(LOOP)), strict=True)(feeds)
    dx, dw, _ = by_hand(np.zeros((3, 4), np.float32))
    np.testing.assert_allclose(found["grad_x"], dx, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["grad_w"], dw, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_in_a_scan(reverse):
    text = SCAN.replace("[1]", "[1], scan_output_directions = [1]") if reverse else SCAN.replace("[1]", "[0]")
    order = -1 if reverse else 1
    feeds = {"x": X, "u": U, "w": W, "grad_y": CT[0], "grad_rows": CT[1:][::order]}
    found = Evaluator(quietly(model_of(text)), strict=True)(feeds)
    dx, dw, du = by_hand(U[::order])
    np.testing.assert_allclose(found["grad_x"], dx, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["grad_w"], dw, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["grad_u"], du[::order], rtol=1e-4, atol=1e-5)


def test_a_quantised_value_that_inner_bodies_capture():
    feeds = {"n": np.int64(2), "go": np.bool_(True), "x": X, "w": W, "grad_y": CT[0]}
    found = Evaluator(quietly(model_of(NESTED)), strict=True)(feeds)
    q = quantised(X)
    np.testing.assert_allclose(found["grad_w"], CT[0] * q**4, rtol=1e-4)
    np.testing.assert_allclose(found["grad_x"], CT[0] * W * 4 * q**3 * inside(X), rtol=1e-4, atol=1e-6)


BRANCHES = f"""g (bool c, float[4] x, float[4] w) => (float[4] y) {STORED} {{
    a = Mul(x, w)
    y = If(c) < then_branch = t () => (float[4] o) {{ {PAIR} o = Mul(dx, dx) }},
                else_branch = e () => (float[4] p) {{ p = Identity(w) }} > }}"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (LOOP, "'qx' = QuantizeLinear stops the gradient of 'x', 'w'"),
        (SCAN, "'qx' = QuantizeLinear stops the gradient of 'x', 'u', 'w'"),
        (BRANCHES, "'qx' = QuantizeLinear stops the gradient of 'x', 'w'"),
        (NESTED, "'q' = QuantizeLinear stops the gradient of 'x'"),
        # In the first step the state is a constant: that of the next one depends on w.
        (LOOP.replace("Loop(n, go, x)", "Loop(n, go, s)"), "'qx' = QuantizeLinear stops the gradient of 'w'"),
    ],
)
def test_what_stops_a_gradient_inside_a_body_is_said(text, line):
    with pytest.warns(gradgen.GradientWarning) as caught:
        gradgen.vjp(model_of(text))
    said = [str(w.message) for w in caught]
    assert f"{line}; straight_through=True passes it through quantisation" in said


def test_what_no_output_needs_stops_nothing():
    """The quantised value of a step is an output that nothing reads."""
    text = LOOP.replace("(float[4] y, float[k,4] rows)", "(float[4] y)").replace("a1 = Mul(dx, w)", "a1 = Mul(a, w)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradgen.vjp(model_of(text))


@pytest.mark.parametrize("straight", [False, True])
def test_a_quantised_state_stops_and_is_reported(straight):
    """There is no stand-in for what is carried from one step to the next in integers, nor for what leaves a branch."""
    carried = f"""g (int64 n, bool go, float[4] x) => (float[4] y) {STORED} {{
        q = QuantizeLinear(x, s, z)
        l = Loop(n, go, q) < body = b (int64 i, bool on, int8[4] a) => (bool on1, int8[4] e) {{
            on1 = Identity(on) d = DequantizeLinear(a, s, z) h = Mul(d, d) e = QuantizeLinear(h, s, z) }} >
        y = DequantizeLinear(l, s, z) }}"""
    left = f"""g (bool c, float[4] x) => (float[4] y) {STORED} {{
        l = If(c) < then_branch = t () => (int8[4] o) {{ o = QuantizeLinear(x, s, z) }},
                    else_branch = e () => (int8[4] p) {{ h = Neg(x) p = QuantizeLinear(h, s, z) }} >
        y = DequantizeLinear(l, s, z) }}"""
    for text in (carried, left):
        with pytest.warns(gradgen.GradientWarning, match=re.escape("stops the gradient of 'x'")):
            gradgen.vjp(model_of(text), straight_through=straight)


FAKE = ["QuantizeLinear(x, s, z)", "DequantizeLinear(q, s, z)", "Mul(d, w)", "Exp(m)"]
TYPES = {
    n: onnx.helper.make_tensor_type_proto(t, shape)
    for n, t, shape in [("x", 1, [4]), ("w", 1, [4]), ("s", 1, []), ("z", onnx.TensorProto.INT8, [])]
}


def piece():
    text = "g (float[4] x, float[4] w, float s, int8 z) => (float[4] y) { " + " ".join(
        f"{name} = {call}" for name, call in zip("qdmy", FAKE, strict=True)
    )
    return list(model_of(text + " }").graph.node)


def run_function(function, feeds):
    types = {n: onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in feeds.items()}
    inputs = [onnx.helper.make_tensor_value_info(n, types[n], feeds[n].shape) for n in function.input]
    outputs = [onnx.helper.make_empty_tensor_value_info(n) for n in function.output]
    node = onnx.helper.make_node(function.name, list(function.input), list(function.output), domain=function.domain)
    opsets = [*function.opset_import, onnx.helper.make_opsetid(function.domain, 1)]
    graph = onnx.helper.make_graph([node], "g", inputs, outputs)
    model = onnx.helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)
    return Evaluator(inline_functions(model), strict=True)({n: feeds[n] for n in function.input})


@pytest.mark.parametrize("supplied", [[], ["q"], ["d"], ["q", "d"], ["y"]])
def test_of_nodes(supplied):
    zs = ["s", "z", *supplied]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function = gradgen.gradient_of_nodes(piece(), ["x", "w"], "y", zs, types=TYPES, straight_through=True)
    assert list(function.input) == ["x", "w", *zs, "dy"]
    quantises = any(n.op_type == "QuantizeLinear" for n in function.node)
    assert quantises == {"q", "d"}.isdisjoint(supplied)  # what is supplied is not computed anew
    q = np.clip(np.rint(X / SCALE) + ZERO, -128, 127).astype(np.int8)
    d, small = quantised(X), np.array([0.5, -0.25, 0.125, 0.5], np.float32)
    y = np.exp(d * small)
    feeds = {
        "x": X,
        "w": small,
        "s": np.array(SCALE),
        "z": np.array(ZERO, np.int8),
        "q": q,
        "d": d,
        "y": y,
        "dy": CT[0],
    }
    found = run_function(function, feeds)
    np.testing.assert_allclose(found["grad_w"], CT[0] * y * d, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["grad_x"], CT[0] * y * small * inside(X), rtol=1e-4, atol=1e-5)


def test_of_nodes_that_stop():
    with pytest.warns(gradgen.GradientWarning, match="'q' = QuantizeLinear stops the gradient of 'x'"):
        function = gradgen.gradient_of_nodes(piece(), ["x", "w"], "y", ["s", "z"], types=TYPES)
    feeds = {"x": X, "w": W, "s": np.array(SCALE), "z": np.array(ZERO, np.int8), "dy": CT[0]}
    assert not run_function(function, feeds)["grad_x"].any()


def test_of_a_function_with_an_op_that_quantises():
    text = """g (float[5,4] x, int8[4,3] b, float s, int8 z) => (float[5,3] y)
        { y = com.microsoft.DynamicQuantizeMatMul(x, b, s, z) }"""
    model = model_of(text)
    types = {v.name: v.type for v in model.graph.input}
    body = onnx.helper.make_function("local", "f", ["x", "b", "s", "z"], ["y"], model.graph.node, model.opset_import)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)  # the scale of x is that of its ends
        function = gradgen.gradient_of_function(
            body, ["x"], "y", ["b", "s", "z"], types=types, straight_through=True
        )  # fmt: skip
    rng = np.random.default_rng(0)
    x, ct = rng.uniform(-1, 1, (5, 4)).astype("f"), rng.standard_normal((5, 3)).astype("f")
    b = rng.integers(-100, 100, (4, 3)).astype(np.int8)
    feeds = {"x": x, "b": b, "s": np.array(0.1, "f"), "z": np.array(2, np.int8), "dy": ct}
    found = run_function(function, feeds)["grad_x"]
    inner = np.abs(x - x.max()) * np.abs(x - x.min()) > 0  # the two ends also move the scale
    want = ct @ ((b.astype("f") - 2) * 0.1).T
    np.testing.assert_allclose(found[inner], want[inner], rtol=1e-4, atol=1e-4)
