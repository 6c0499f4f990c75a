"""Hessians against float64 differences of the gradient: dense and recurrent layers, pools, attention, loops."""

from __future__ import annotations

import numpy as np
import pytest
from forward_mode import model_of
from matrices import at_level, body_of, check_hessian, drawn, model, near, opened, run_all

import gradgen
from gradgen.engine.registry import Registry, registered
from gradgen.errors import GradientError
from gradgen.rules.lang import op, traced

MLP = """(float[4,3] x, float[3,2] w, float[2] b) => (float loss) {
  h = MatMul(x, w) s = Add(h, b) t = Tanh(s) q = Mul(t, t) loss = ReduceSum<keepdims=0>(q) }"""
FEEDS = {"x": drawn(4, 3), "w": drawn(3, 2), "b": drawn(2)}
LSTM = """(float[3,2,2] x, float[1,8,2] w, float[1,8,2] r, float[1,16] b) => (float loss) {
  y, h = LSTM<hidden_size=2>(x, w, r, b) q = Mul(h, y) loss = ReduceSum<keepdims=0>(q) }"""
CNN = """(float[2,1,6,6] x, float[2,1,3,3] w, float[18,2] v) => (float loss) {
  c = Conv<pads=[1,1,1,1]>(x, w) p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c) t = Tanh(p) f = Flatten(t)
  g = MatMul(f, v) l = LogSoftmax(g) m = Mul(l, g) loss = ReduceMean<keepdims=0>(m) }"""
BLOCK = """(float[1,3,4] x, float[4,4] q, float[4,4] k, float[4,4] v, float[4,8] a, float[8,4] b, float[4] s)
  => (float loss) {
  n = LayerNormalization(x, s) xq = MatMul(n, q) xk = MatMul(n, k) xv = MatMul(n, v) kt = Transpose<perm=[0,2,1]>(xk)
  scores = MatMul(xq, kt) p = Softmax(scores) o = MatMul(p, xv) r = Add(x, o) u = MatMul(r, a) g = Gelu(u)
  d = MatMul(g, b) e = Add(r, d) z = Mul(e, e) loss = ReduceMean<keepdims=0>(z) }"""
LOOP = """(int64 m, float[3] x, float[3] w) => (float loss) {
  s, y = Loop (m, , x) <body = step (int64 i, bool c, float[3] h) => (bool go, float[3] next, float[3] out) {
    go = Identity(c) a = Mul(h, w) b = Add(a, x) next = Sin(b) out = Mul(next, h) }>
  p = ReduceSum<keepdims=0>(y) r = ReduceSum<keepdims=0>(s) loss = Mul(p, r) }"""
CASES = {
    "mlp": (MLP, FEEDS, ["x", "w", "b"]),
    "lstm": (LSTM, {"x": drawn(3, 2, 2), "w": drawn(1, 8, 2), "r": drawn(1, 8, 2), "b": drawn(1, 16)}, ["w", "r", "x"]),
    "cnn": (CNN, {"x": drawn(2, 1, 6, 6), "w": drawn(2, 1, 3, 3), "v": drawn(18, 2)}, ["w", "v"]),
    "transformer": (
        BLOCK,
        {"x": drawn(1, 3, 4), **{n: drawn(4, 4, seed=k) for k, n in enumerate("qkv")},
         "a": drawn(4, 8), "b": drawn(8, 4), "s": drawn(4, low=0.5)},
        ["q", "v", "s"],
    ),
    "loop": (LOOP, {"m": np.asarray(3), "x": drawn(3), "w": drawn(3, seed=1)}, ["x", "w"]),
}  # fmt: skip
OPEN = {
    "mlp": {"x": ("N", "K"), "w": ("K", "M"), "b": ("M",)},
    "lstm": {"x": ("T", "N", 2)},
    "cnn": {"x": ("N", 1, 6, 6)},
    "transformer": {"x": ("N", "T", 4)},
    "loop": {"x": ("K",), "w": ("K",)},
}


@pytest.mark.parametrize("name", CASES)
def test_static_shapes(name):
    text, feeds, wrt = CASES[name]
    check_hessian(model(text), feeds, wrt)


@pytest.mark.parametrize("name", CASES)
def test_open_shapes(name):
    text, feeds, wrt = CASES[name]
    check_hessian(opened(model(text), OPEN[name]), feeds, wrt)


@pytest.mark.parametrize("name", ["mlp_static", "cnn_dynamic", "transformer_dynamic"])
def test_whole_models_by_their_biases(name):
    """Models of some dozens of nodes, with respect to a small parameter."""
    proto, feeds, wrt = model_of(name, batch=2)
    small = [n for n in wrt if 1 < feeds[n].size <= 16][-1:]
    assert small
    check_hessian(proto, feeds, small)


def test_a_hessian_is_symmetric_and_the_forward_pass_runs_once():
    built = gradgen.hessian(model(MLP), wrt=["x", "w"])
    found = run_all(built, FEEDS)
    near(found["hessian_x_w"], np.moveaxis(found["hessian_w_x"], (0, 1), (2, 3)), 1e-12)
    assert [n.op_type for n in built.graph.node].count("Tanh") == 1
    assert "Tanh" not in {n.op_type for n in body_of(built).node}


def test_the_sum_of_elements_and_one_that_an_input_chooses():
    text = "(float[3] x) => (float[3] y) { a = Sin(x) y = Mul(a, x) }"
    check_hessian(model(text), {"x": drawn(3)}, ["x"], reduce="sum")
    chosen = gradgen.hessian(model(text), reduce="element")
    x = drawn(3).astype(np.float64)
    for index in (0, 2, -1):
        found = run_all(chosen, {"x": drawn(3), "index_y": np.array([index])})["hessian_x_x"]
        want = np.zeros((3, 3))
        want[index, index] = 2 * np.cos(x[index]) - x[index] * np.sin(x[index])
        near(found, want, 1e-6)
    with pytest.raises(GradientError, match="'y' has shape"):
        gradgen.hessian(model(text))


def test_what_is_linear_has_a_hessian_of_zeros():
    text = (
        "(float[3] x, float[3] z) => (float y) { p = Mul(x, c) q = Sin(z) s = Add(p, q) y = ReduceSum<keepdims=0>(s) }"
    )
    built = gradgen.hessian(model(text, c=drawn(3)), wrt=["x", "z"])
    found = run_all(built, {"x": drawn(3), "z": drawn(3)})
    assert not any(found[f"hessian_{a}_{b}"].any() for a, b in ("xx", "xz", "zx"))
    near(found["hessian_z_z"], -np.diag(np.sin(drawn(3).astype(np.float64))), 1e-7)


def test_a_gradient_that_several_values_share():
    text = "(float[3] x, float[3] z) => (float y) { s = Add(x, z) t = Sin(s) y = ReduceSum<keepdims=0>(t) }"
    check_hessian(model(text), {"x": drawn(3), "z": drawn(3, seed=1)}, ["x", "z"])


def test_a_gradient_that_is_another_value():
    text = "(float[3] x, float[3] z) => (float y) { p = Mul(x, z) y = ReduceSum<keepdims=0>(p) }"
    check_hessian(model(text), {"x": drawn(3), "z": drawn(3, seed=1)}, ["x", "z"])


def test_scalars_and_nothing():
    check_hessian(model("(float x) => (float y) { s = Sin(x) y = Mul(s, x) }"), {"x": drawn()}, ["x"])
    text = "(float[N] x, float z) => (float y) { s = Sin(x) p = Mul(s, z) q = ReduceSum<keepdims=0>(p) y = Add(q, z) }"
    built = gradgen.hessian(model(text), wrt=["x"])
    assert run_all(built, {"x": drawn(0), "z": drawn()})["hessian_x_x"].shape == (0, 0)


def test_names_and_outputs():
    built = gradgen.hessian(model(MLP), wrt=["w", "b"])
    names = ["loss", "hessian_w_w", "hessian_w_b", "hessian_b_w", "hessian_b_b"]
    assert [o.name for o in built.graph.output] == names
    assert [i.name for i in built.graph.input] == ["x", "w", "b"]
    again = gradgen.hessian(built, wrt=["b"], of=["loss"])
    assert [o.name for o in again.graph.output] == [*names, "hessian2_b_b"]
    with_gradient = gradgen.hessian(gradgen.value_and_grad(model(MLP), wrt=["b"]), wrt=["b"], of=["loss"])
    assert [o.name for o in with_gradient.graph.output] == ["loss", "grad_b", "hessian_b_b"]


def test_an_intermediate_value():
    proto = model(MLP)
    found = run_all(gradgen.hessian(proto, wrt=["s"]), FEEDS)["hessian_s_s"]
    s = FEEDS["x"].astype(np.float64) @ FEEDS["w"] + FEEDS["b"]
    t = np.tanh(s)
    near(found.reshape(8, 8), np.diag(((1 - t**2) * (2 - 6 * t**2)).reshape(-1)), 1e-6)


def test_the_gradient_of_a_hessian():
    """The trace's gradient, through the Scan: a third derivative."""
    text = "(float[3] x) => (float y) { a = Sin(x) b = Mul(a, x) y = ReduceSum<keepdims=0>(b) }"
    third = gradgen.grad(gradgen.hessian(model(text)), of=["hessian_x_x"], reduce="sum")
    x = drawn(3).astype(np.float64)
    near(run_all(third, {"x": drawn(3)})["grad_x"], -3 * np.sin(x) - x * np.cos(x), 1e-6)


def test_random_nodes_draw_once():
    text = """(float[50] x) => (float y) { n = RandomNormalLike(x) p = Mul(n, x) q = Mul(p, p) h = Constant<value_float=0.5>()
      r = Mul(q, h) y = ReduceSum<keepdims=0>(r) }"""
    built = gradgen.hessian(model(text))
    assert [n.op_type for n in built.graph.node].count("RandomNormalLike") == 1
    x = drawn(50)
    y, found = at_level(built, {"x": x})
    np.testing.assert_allclose(x @ found @ x / 2, y, rtol=1e-3)
    assert np.diag(found).std() > 0.5


def test_calls_into_the_function_library():
    built = gradgen.hessian(model(MLP), wrt=["b"], inline=False)
    assert built.functions
    for got, want in zip(at_level(built, FEEDS), at_level(gradgen.hessian(model(MLP), wrt=["b"]), FEEDS), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_rule_that_is_not_linear_is_refused():
    registry = Registry(parent=registered())

    @traced("dinput", linear=False)
    def clipped_vjp(doutput, output):
        return op.Clip(doutput * output, -1.0, 1.0)

    gradgen.register_vjp("", "Tanh", clipped_vjp, linear=False, registry=registry)
    for call, options in ((gradgen.hessian, {}), (gradgen.jacobian, {"mode": "forward"})):
        with pytest.raises(GradientError, match="linear=False"):
            call(model(MLP), wrt=["x"], registry=registry, **options)


def test_initializers():
    inside = gradgen.hessian(model(MLP.replace(", float[2] b", ""), b=drawn(2)), wrt=["b"])
    outside = gradgen.hessian(model(MLP), wrt=["b"])
    near(run_all(inside, FEEDS)["hessian_b_b"], run_all(outside, FEEDS)["hessian_b_b"], 1e-6)
