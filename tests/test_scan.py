"""Gradients of Scan: axes, directions, several states, captured values, nesting, second order."""

from __future__ import annotations

import numpy as np
import pytest
from loops import check, model

RNG = np.random.default_rng(4)


def draw(*shape):
    return RNG.uniform(-1, 1, shape)


RECURRENT = """
g (double[T,3] x, double[2] s0, double[3,2] w, double[2,2] r) => (double[2] s, double[T,2] y) {
  s, y = Scan <num_scan_inputs=1, body = step (double[2] h, double[3] v) => (double[2] next, double[2] out) {
    a = MatMul(v, w)
    b = MatMul(h, r)
    c = Add(a, b)
    next = Tanh(c)
    out = Mul(next, h)
  }>(s0, x)
}"""


def test_a_recurrence_with_captured_weights():
    feeds = {"x": draw(4, 3), "s0": draw(2), "w": draw(3, 2), "r": draw(2, 2)}
    result = check(model(RECURRENT), feeds)
    scans = [n for n in result.graph.node if n.op_type == "Scan"]
    assert len(scans) == 2
    backward = scans[1]
    widths = [next(a.i for a in backward.attribute if a.name == "num_scan_inputs")]
    # The weights' cotangents are states, not one per step: the scan outputs are those of x alone.
    assert widths and len(backward.output) == 4


@pytest.mark.parametrize("shape", ["static", "dynamic"])
@pytest.mark.parametrize("direction", [0, 1])
def test_axes_and_directions(direction, shape):
    """Two scan inputs and two outputs, each with an axis and a direction of its own."""
    text = f"""
    g (double[2,T] x, double[T,3,2] z, double[2] s0) => (double[2] s, double[2,T] y, double[T,3] u) {{
      s, y, u = Scan <num_scan_inputs=2, scan_input_axes=[-1, 0], scan_input_directions=[{direction}, 1],
                      scan_output_axes=[1, 0], scan_output_directions=[{direction}, 0],
                      body = step (double[2] h, double[2] a, double[3,2] b)
                      => (double[2] next, double[2] y, double[3] u) {{
        m = Mul(h, a)
        next = Sin(m)
        y = Add(m, a)
        bn = MatMul(b, next)
        u = Mul(bn, bn)
      }}>(s0, x, z)
    }}"""
    if shape == "static":
        text = text.replace("T", "4")
    check(model(text), {"x": draw(2, 4), "z": draw(4, 3, 2), "s0": draw(2)})


def test_several_states_of_which_one_counts():
    text = """
    g (double[T] x, double a0, double b0, int64 n0) => (double a, double b, int64 n, double[T] y) {
      a, b, n, y = Scan <num_scan_inputs=1, body = step (double a, double b, int64 n, double v)
                         => (double a1, double b1, int64 n1, double y) {
        one = Constant <value_int=1> ()
        n1 = Add(n, one)
        f = CastLike(n, v)
        a1 = Mul(b, v)
        fa = Mul(f, a)
        b1 = Add(fa, v)
        y = Mul(a1, b1)
      }>(a0, b0, n0, x)
    }"""
    check(model(text), {"x": draw(5), "a0": draw(), "b0": draw(), "n0": np.int64(2)})


def test_a_state_becomes_active_in_a_later_step():
    """The second state gets its dependence on x from the first, one step late."""
    text = """
    g (double[2] x, double[T] k) => (double[2] b) {
      zero = Sub(x, x)
      fixed = Constant <value_floats=[1.0, 2.0]> ()
      start = CastLike(fixed, x)
      a, b = Scan <num_scan_inputs=1, body = step (double[2] a, double[2] b, double v) => (double[2] a1, double[2] b1) {
        a1 = Mul(x, v)
        b1 = Mul(a, b)
      }>(zero, start, k)
    }"""
    check(model(text), {"x": draw(2), "k": draw(3)}, wrt=["x"])
    check(model(text), {"x": draw(2), "k": draw(3)}, wrt=["k"])


def test_no_state_and_an_unused_output():
    text = """
    g (double[T,3] x, double[3] w) => (double[T] y) {
      y, z = Scan <num_scan_inputs=1, body = step (double[3] v) => (double y, double[3] z) {
        m = Mul(v, w)
        axes = Constant <value_ints=[0]> ()
        y = ReduceSum <keepdims=0> (m, axes)
        z = Exp(m)
      }>(x)
    }"""
    check(model(text), {"x": draw(4, 3), "w": draw(3)})


def test_an_output_that_passes_its_state_on():
    text = """
    g (double[T,2] x, double[2] s0) => (double[2] s, double[T,2] y) {
      s, y = Scan <num_scan_inputs=1, body = step (double[2] h, double[2] v) => (double[2] next, double[2] out) {
        next = Identity(h)
        out = Mul(h, v)
      }>(s0, x)
    }"""
    check(model(text), {"x": draw(3, 2), "s0": draw(2)})


def test_only_a_final_state_is_differentiated():
    proto = model(RECURRENT)
    feeds = {"x": draw(4, 3), "s0": draw(2), "w": draw(3, 2), "r": draw(2, 2)}
    check(proto, feeds, of=["s"])
    check(proto, feeds, of=["y"], wrt=["w"])


def test_nested_scans_and_a_branch():
    text = """
    g (double[T,2,3] x, double[3] s0, double[3] w, bool c) => (double[3] s, double[T,2,3] y) {
      s, y = Scan <num_scan_inputs=1, body = outer (double[3] h, double[2,3] rows)
             => (double[3] next, double[2,3] out) {
        next, out = Scan <num_scan_inputs=1, body = inner (double[3] g, double[3] v) => (double[3] after, double[3] o) {
          gw = Mul(g, w)
          after = If(c) <
            then_branch = yes () => (double[3] t) { t0 = Add(gw, v) t = Sin(t0) },
            else_branch = no () => (double[3] e) { e = Mul(gw, v) }
          >
          hg = Mul(h, g)
          o = Add(hg, after)
        }>(h, rows)
      }>(s0, x)
    }"""
    for c in (True, False):
        check(model(text), {"x": draw(3, 2, 3), "s0": draw(3), "w": draw(3), "c": np.bool_(c)})


def test_the_third_order():
    text = """
    g (double[T] x, double s0) => (double s) {
      s = Scan <num_scan_inputs=1, body = step (double h, double v) => (double next) {
        m = Mul(h, v)
        next = Sin(m)
      }>(s0, x)
    }"""
    feeds = {"x": draw(3), "s0": np.float64(0.7), "grad_s": np.float64(1.3)}
    from loops import check_again, derive

    first = derive(model(text), ["x"])
    second = derive(first, ["s0"], ["grad_x"])
    name = second.graph.input[-1].name
    fed = {**feeds, name: draw(3)}
    check_again(second, fed, ["x", "s0"], [second.graph.output[-1].name], 1e-6)


def test_unsupported_nodes_of_a_body_are_listed():
    from onnx import parser

    import gradgen

    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
        g (double[T] x, double s0) => (double s) {
          [outer] s = Scan <num_scan_inputs=1, body = step (double h, double v) => (double next) {
            [a] m = my.Late(h)
            [b] k = my.Never(v)
            n = my.Side(v)
            next = Add(m, k)
          }>(s0, x)
        }"""
    )
    with pytest.raises(gradgen.GradientError) as error:
        gradgen.vjp(proto, wrt=["s0"])
    assert "my::Late" in str(error.value) and "outer" in str(error.value) and "my::Never" not in str(error.value)
    with pytest.raises(gradgen.GradientError) as error:
        gradgen.vjp(proto, wrt=["x"])  # the state depends on x from the second step on
    assert "my::Late" in str(error.value) and "my::Never" in str(error.value) and "my::Side" not in str(error.value)


def test_a_state_whose_next_does_not_depend_on_it():
    text = """
    g (double[2] x, double[T] k) => (double[2] s, double[T,2] y) {
      s, y = Scan <num_scan_inputs=1, body = step (double[2] h, double v) => (double[2] next, double[2] out) {
        next = Ceil(h)
        out = Mul(h, v)
      }>(x, k)
    }"""
    check(model(text), {"x": draw(2), "k": draw(3)})
    check(model(text.replace("double[2]", "double[N]").replace("[T,2]", "[T,N]")), {"x": draw(2), "k": draw(3)})


def test_a_step_that_reads_nothing_on_the_way_back():
    text = """
    g (double[2] x, double[2] w, double[T] k) => (double[2] s) {
      s = Scan <num_scan_inputs=1, body = step (double[2] h, double v) => (double[2] next) { next = Add(h, w) }>(x, k)
    }"""
    check(model(text), {"x": draw(2), "w": draw(2), "k": draw(3)}, wrt=["x", "w"])
