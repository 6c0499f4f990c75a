"""Quantised models under onnxruntime's optimiser, its own quantised products, and straight-through inside branches."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import gradgen
from gradgen.evaluate import Evaluator

RNG = np.random.default_rng(6)


def optimised(model, feeds):
    """The outputs under onnxruntime's default optimisation."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def quantised(values, zero, low, high):
    return (np.clip(np.rint(values / 0.05) + zero, low, high) - zero) * 0.05


@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize(("kind", "zero", "low", "high"), [("int8", 3, -128, 127), ("uint8", 130, 0, 255)])
def test_what_moves_dequantised_weights_loads(kind, zero, low, high, straight):
    """The optimiser carries quantisation through the Transpose of the weights, and gets it wrong for int8."""
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,4,3,3] x, float[2,4,1,1] w) => (float[1,2,3,3] y) <float s = {{0.05}}, {kind} z = {{{zero}}}> {{
            qx = QuantizeLinear(x, s, z) dx = DequantizeLinear(qx, s, z)
            qw = QuantizeLinear(w, s, z) dw = DequantizeLinear(qw, s, z)
            y = Conv(dx, dw) }}""")
    x, w = RNG.uniform(-1, 1, (1, 4, 3, 3)).astype("f"), RNG.uniform(-1, 1, (2, 4, 1, 1)).astype("f")
    ct = RNG.standard_normal((1, 2, 3, 3)).astype("f")
    inner = {} if straight else {"wrt": ["dx", "dw"]}
    found = optimised(gradgen.vjp(model, straight_through=straight, **inner), {"x": x, "w": w, "grad_y": ct})
    dx, dw = (found[f"grad_{n}"] for n in (("x", "w") if straight else ("dx", "dw")))
    weights, image = (quantised(v, zero, low, high) for v in (w, x))
    np.testing.assert_allclose(dx, np.einsum("nohw,oi->nihw", ct, weights[:, :, 0, 0]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dw[:, :, 0, 0], np.einsum("nohw,nihw->oi", ct, image), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("depth", [1, 2])
def test_straight_through_inside_branches(taken, depth):
    body = "qx = QuantizeLinear(x, s, z) dx = DequantizeLinear(qx, s, z) a = Mul(dx, w)"
    if depth == 2:
        body = f"""a = If(c) < then_branch = i () => (float[4] a2) {{ {body.replace("a =", "h =")} a2 = Identity(h) }},
                              else_branch = j () => (float[4] b2) {{ b2 = Neg(x) }} >"""
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (bool c, float[4] x, float[4] w) => (float[4] y) <float s = {{0.05}}, int8 z = {{3}}> {{
            y = If(c) < then_branch = t () => (float[4] a1) {{ {body} a1 = Identity(a) }},
                        else_branch = e () => (float[4] b1) {{ b1 = Mul(x, x) }} > }}""")
    x, w, ct = np.array([0.5, -0.3, 9, -9], "f"), RNG.standard_normal(4).astype("f"), RNG.standard_normal(4).astype("f")
    derived = gradgen.vjp(model, wrt=["x", "w"], straight_through=True)
    found = Evaluator(derived, strict=True)({"c": np.bool_(taken), "x": x, "w": w, "grad_y": ct})
    np.testing.assert_allclose(found["grad_x"], ct * w * [1, 1, 0, 0] if taken else 2 * x * ct, rtol=1e-5)
    want = ct * quantised(x, 3, -128, 127) if taken else np.zeros(4)
    np.testing.assert_allclose(found["grad_w"], want, rtol=1e-4, atol=1e-6)


PRODUCT = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[5,4] x) => (float[5,3] y) <int8[4,3] b = {1,-2,3,40,0,-6,7,8,90,1,1,-100}, float s = {0.1}, int8 z = {2}> {
        y = com.microsoft.DynamicQuantizeMatMul(x, b, s, z) }"""


def test_a_product_that_quantises_stops_and_is_reported():
    with pytest.warns(gradgen.GradientWarning, match="stops the gradient of 'x'"):
        derived = gradgen.vjp(parser.parse_model(PRODUCT))
    x = RNG.uniform(-1, 1, (5, 4)).astype("f")
    outputs = Evaluator(derived, strict=True)({"x": x, "grad_y": np.ones((5, 3), "f")})
    assert np.isfinite(outputs["grad_x"]).all()


def test_a_product_that_quantises_straight_through():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        derived = gradgen.vjp(parser.parse_model(PRODUCT), straight_through=True)
    x, ct = RNG.uniform(-1, 1, (5, 4)).astype("f"), RNG.standard_normal((5, 3)).astype("f")
    found = Evaluator(derived, strict=True)({"x": x, "grad_y": ct})["grad_x"]
    b = np.array([1, -2, 3, 40, 0, -6, 7, 8, 90, 1, 1, -100]).reshape(4, 3)
    want = ct @ ((b - 2) * 0.1).T
    inner = np.abs(x - x.max()) * np.abs(x - x.min()) > 0  # the two ends also move the scale
    np.testing.assert_allclose(found[inner], want[inner], rtol=1e-4, atol=1e-5)


def test_a_product_that_quantises_and_that_nothing_reads():
    model = parser.parse_model(PRODUCT.replace("y = com", "u = com").replace("DynamicQuantizeMatMul(x, b, s, z) }",
                               "DynamicQuantizeMatMul(x, b, s, z) p = Exp(x) c = Constant <value_ints = [0, 1, 2]> () "
                               "y = Gather <axis = 1> (p, c) }"))  # fmt: skip
    x = RNG.uniform(-1, 1, (5, 4)).astype("f")
    found = Evaluator(gradgen.vjp(model), strict=True)({"x": x, "grad_y": np.ones((5, 3), "f")})["grad_x"]
    np.testing.assert_allclose(found[:, :3], np.exp(x[:, :3]), rtol=1e-5)
