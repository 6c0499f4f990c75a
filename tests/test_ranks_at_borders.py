# Shapes that only a run decides: at the borders of a model, and where the branches of an If differ.
"""Tests of derivatives of values of unknown rank or size, against formulas and finite differences."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser
from onnxscript import opset21 as op

import gradgen
from gradgen.testing import check_vjp

LEVELS = [ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL]
X = np.random.default_rng(5).standard_normal((2, 3))
V = np.random.default_rng(6).standard_normal((2, 3))


def model(text: str, *rankless: str) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    for info in (*proto.graph.input, *proto.graph.output):
        if info.name in rankless:
            info.type.tensor_type.ClearField("shape")
    return proto


def run(proto: onnx.ModelProto, level=LEVELS[0], **feeds: np.ndarray) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


RESHAPED = """g (double[N,M] x, int64[K] to) => (double z, double[A] r) {
    r = Reshape (x, to)  a = Sin (r)  b = Mul (a, r)  z = ReduceSum <keepdims = 0> (b) }"""
TO = np.array([3, 1, 2])
SLOPE, BEND = np.cos(X) * X + np.sin(X), 2 * np.cos(X) - X * np.sin(X)


@pytest.mark.parametrize("level", LEVELS)
def test_an_output_of_unknown_rank_has_every_derivative(level):
    proto = model(RESHAPED, "r")
    feeds = {"x": X, "to": TO}
    found = run(gradgen.vjp(proto), level, **feeds, grad_z=np.array(2.0), grad_r=V.reshape(TO))
    np.testing.assert_allclose(found["grad_x"], 2 * SLOPE + V)
    found = run(gradgen.jvp(proto), level, **feeds, tangent_x=V)
    np.testing.assert_allclose(found["tangent_z"], (SLOPE * V).sum())
    np.testing.assert_allclose(found["tangent_r"], V.reshape(TO))
    found = run(gradgen.hvp(proto, reduce="sum"), level, **feeds, vector_x=V)
    np.testing.assert_allclose(found["hvp_x"], BEND * V)
    forward, backward = gradgen.vjp_pair(proto)
    held = {**feeds, **run(forward, level, **feeds), "grad_z": np.array(2.0), "grad_r": V.reshape(TO)}
    found = run(backward, level, **{i.name: held[i.name] for i in backward.graph.input})
    np.testing.assert_allclose(found["grad_x"], 2 * SLOPE + V)
    found = run(gradgen.jacobian(proto), level, **feeds)
    np.testing.assert_allclose(found["jacobian_r_x"], np.eye(6).reshape(3, 1, 2, 2, 3))


@pytest.mark.parametrize("level", LEVELS)
def test_an_intermediate_value_of_unknown_rank_can_be_differentiated_again(level):
    """The gradient of the gradient: what the first call wrote has an output without a rank, and is taken all the same."""
    proto = model(RESHAPED.replace(", double[A] r", ""))
    first = gradgen.vjp(proto, wrt=["r"], of=["z"])
    second = gradgen.jvp(first, wrt=["r"], of=["grad_r"])
    found = run(second, level, x=X, to=TO, grad_z=np.array(1.0), tangent_r=V.reshape(TO))
    np.testing.assert_allclose(found["tangent_grad_r"], (BEND * V).reshape(TO))


@pytest.mark.parametrize("level", LEVELS)
def test_an_input_of_unknown_rank(level):
    proto = model("g (double[N] x, double[M] w) => (double[A] y) { a = Mul(x, w)\n y = Sin(a) }", "x", "w", "y")
    w = np.array([[0.5], [2.0]])
    found = run(gradgen.vjp(proto), level, x=X, w=w, grad_y=V)
    np.testing.assert_allclose(found["grad_w"], (np.cos(X * w) * X * V).sum(1, keepdims=True))
    found = run(gradgen.jvp(proto, wrt=["w"]), level, x=X, w=w, tangent_w=w)
    np.testing.assert_allclose(found["tangent_y"], np.cos(X * w) * X * w)
    (record,) = gradgen.verify(proto, wrt=["x"], feeds={"x": X, "w": w})
    assert record.verdict == "ok"


# z is 3 Σ sin² of what the taken branch gives, a vector of six or its other branch's.
BRANCHES = """g (double[2,3] x, bool taken) => (double z) {{
    y = If (taken) <then_branch = t () => (double[6] a) {{ s = Constant <value_ints = [6]> ()  a = Reshape (x, s) }},
                    else_branch = e () => ({kind} b) {{ {other} }}>
    v = Sin (y)  w = Mul (v, v)  z = ReduceSum <keepdims = 0> (w) }}"""
RANKS = BRANCHES.format(kind="double[2,3]", other="b = Mul (x, x)")
SIZES = BRANCHES.format(
    kind="double[2]", other="s2 = Constant <value_ints = [1]> ()  r = ReduceSum <keepdims = 0> (x, s2)  b = Mul (r, r)"
)


def _values(text: str, taken: bool, x: np.ndarray) -> float:
    other = x * x if text is RANKS else x.sum(1) ** 2
    return float((np.sin(x if taken else other) ** 2).sum())


def _differences(text: str, taken: bool) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian by central differences."""
    steps = np.eye(6).reshape(6, 2, 3)
    at = [[_values(text, taken, X + h * s) for s in steps for h in (1e-5, -1e-5)]]
    slopes = np.array(at).reshape(6, 2) @ [1, -1] / 2e-5
    h = 1e-4
    bends = [
        [
            sum(i * j * _values(text, taken, X + h * (i * s + j * t)) for i in (1, -1) for j in (1, -1)) / (4 * h * h)
            for t in steps
        ]
        for s in steps
    ]
    return slopes.reshape(2, 3), np.array(bends)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("text", [RANKS, SIZES], ids=["ranks", "sizes"])
def test_branches_that_differ_in_shape(text, taken, level):
    """The cotangent of their result has the shape of the branch that is taken, and of no other."""
    proto, feeds = model(text), {"x": X, "taken": np.array(taken)}
    slopes, bends = _differences(text, taken)
    found = run(gradgen.grad(proto), level, **feeds)
    np.testing.assert_allclose(found["grad_x"], slopes, atol=1e-8)
    found = run(gradgen.jvp(proto), level, **feeds, tangent_x=V)
    np.testing.assert_allclose(found["tangent_z"], (slopes * V).sum(), atol=1e-8)
    found = run(gradgen.hvp(proto), level, **feeds, vector_x=V)
    np.testing.assert_allclose(found["hvp_x"], (bends @ V.reshape(-1)).reshape(2, 3), atol=1e-5)
    found = run(gradgen.hessian(proto), level, **feeds)
    np.testing.assert_allclose(found["hessian_x_x"].reshape(6, 6), bends, atol=1e-5)
    found = run(gradgen.jacobian(proto, mode="forward"), level, **feeds)
    np.testing.assert_allclose(found["jacobian_z_x"], slopes, atol=1e-8)


@pytest.mark.parametrize("level", LEVELS)
def test_a_step_of_a_scan_whose_branches_differ_in_shape(level):
    """z is the sum of x⁴ in the steps that square x, and of sin²x in the others."""
    proto = model("""g (double[T,6] x, bool[T] c) => (double z) {
        y = Scan <num_scan_inputs = 2, body = b (double[6] e, bool k) => (double[1] o) {
            r = If (k) <then_branch = t () => (double[6] a) { a = Mul (e, e) },
                        else_branch = f () => (double[2,3] d) {
                            to = Constant <value_ints = [2, 3]> ()  m = Reshape (e, to)  d = Sin (m) }>
            s = ReduceSumSquare <keepdims = 0> (r)  one = Constant <value_ints = [1]> ()  o = Reshape (s, one) }> (x, c)
        z = ReduceSum <keepdims = 0> (y) }""")
    x, c = np.random.default_rng(3).standard_normal((3, 6)), np.array([True, False, True])
    v = np.random.default_rng(4).standard_normal((3, 6))
    slope = np.where(c[:, None], 4 * x**3, np.sin(2 * x))
    bend = np.where(c[:, None], 12 * x**2, 2 * np.cos(2 * x))
    np.testing.assert_allclose(run(gradgen.grad(proto), level, x=x, c=c)["grad_x"], slope)
    found = run(gradgen.jvp(proto), level, x=x, c=c, tangent_x=v)
    np.testing.assert_allclose(found["tangent_z"], (slope * v).sum())
    np.testing.assert_allclose(run(gradgen.hvp(proto), level, x=x, c=c, vector_x=v)["hvp_x"], bend * v)


def test_an_op_whose_body_branches_can_be_checked():
    registry = gradgen.Registry()

    @gradgen.op("borders.test", "Bent", registry=registry)
    def bent(x):
        s = op.ReduceSum(x, keepdims=0)
        if op.Greater(s, op.CastLike(0.0, s)):
            y = x * x
        else:
            y = op.Sin(x)
        return y

    check_vjp("borders.test::Bent", [{"x": [3]}, {"x": [1, 2]}], registry=registry)
