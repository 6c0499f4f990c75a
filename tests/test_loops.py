"""Gradients of Loop: trip counts, early exit, scan outputs, carried values that change shape, nesting, second order."""

from __future__ import annotations

import numpy as np
import pytest
from loops import check, model

RNG = np.random.default_rng(9)


def draw(*shape):
    return RNG.uniform(-1, 1, shape)


COUNTED = """
g (int64 m, double[3] x, double[3] w) => (double[3] s, double[T,3] y) {
  s, y = Loop (m, , x) <body = step (int64 i, bool c, double[3] h) => (bool go, double[3] next, double[3] out) {
    go = Identity(c)
    f = CastLike(i, h)
    a = Mul(h, w)
    b = Add(a, f)
    next = Sin(b)
    out = Mul(next, h)
  }>
}"""


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_trip_count_that_is_an_input(trips):
    check(model(COUNTED), {"m": np.int64(trips), "x": draw(3), "w": draw(3)})


@pytest.mark.parametrize(("start", "limit"), [(0.5, 4.0), (0.5, 0.1), (0.7, 40.0)])
@pytest.mark.parametrize("most", ["m", ""])
def test_an_exit_that_the_data_decides(start, limit, most):
    text = f"""
    g (int64 m, double limit, double x, double w) => (double s, int64 n, double[T] y) {{
      first = Less(x, limit)
      zero = Constant <value_int=0> ()
      s, n, y = Loop ({most}, first, x, zero) <body = step (int64 i, bool c, double h, int64 n)
                => (bool go, double next, int64 n1, double out) {{
        one = Constant <value_int=1> ()
        n1 = Add(n, one)
        a = Mul(h, w)
        next = Add(a, h)
        out = Mul(next, h)
        go = Less(next, limit)
      }}>
    }}"""
    feeds = {"m": np.int64(7), "limit": np.float64(limit), "x": np.float64(start), "w": np.float64(0.4)}
    check(model(text), feeds, wrt=["x", "w"])


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_a_carried_value_that_grows(trips):
    text = """
    g (int64 m, double[1,3] x, double[3] w) => (double[N,3] s, double[T,3] y) {
      s, y = Loop (m, , x) <body = step (int64 i, bool c, double[A,3] h) => (bool go, double[B,3] next, double[3] out) {
        go = Identity(c)
        a = Mul(h, w)
        axes = Constant <value_ints=[0]> ()
        row = ReduceSum <keepdims=1> (a, axes)
        r = Sin(row)
        next = Concat <axis=0> (a, r)
        out = Squeeze(r, axes)
      }>
    }"""
    feeds = {"m": np.int64(trips), "x": draw(1, 3), "w": draw(3)}
    check(model(text), feeds)
    check(model(text), feeds, of=["y"])


def test_no_carried_value_and_captured_rows():
    text = """
    g (int64 m, double[N,3] x, double[3] w) => (double[T,3] y) {
      always = Constant <value = bool {1}> ()
      y = Loop (m, always) <body = step (int64 i, bool c) => (bool go, double[3] out) {
        go = Identity(c)
        row = Gather(x, i)
        a = Mul(row, w)
        out = Mul(a, row)
      }>
    }"""
    check(model(text), {"m": np.int64(3), "x": draw(4, 3), "w": draw(3)})


def test_carried_values_of_other_types():
    """An integer, a bool and a float that the derivative does not pass are carried beside those that it does."""
    text = """
    g (int64 m, double[2] x, int64 k0, bool b0) => (double[2] s, int64 k, bool b, double[2] u) {
      s, k, b, u = Loop (m, , x, k0, b0, x) <body = step (int64 i, bool c, double[2] h, int64 k, bool b, double[2] u)
                => (bool go, double[2] next, int64 k1, bool b1, double[2] u1) {
        go = Identity(c)
        two = Constant <value_int=2> ()
        k1 = Mul(k, two)
        b1 = Not(b)
        f = CastLike(k, h)
        g = CastLike(b, h)
        hf = Mul(h, f)
        hh = Mul(hf, h)
        next = Add(hh, g)
        u1 = Floor(h)
      }>
    }"""
    feeds = {"m": np.int64(3), "x": draw(2), "k0": np.int64(1), "b0": np.bool_(True)}
    check(model(text), feeds)


def test_a_value_becomes_active_in_a_later_iteration():
    text = """
    g (int64 m, double[2] x, double[2] z) => (double[2] c) {
      a, b, c = Loop (m, , z, z, z) <body = step (int64 i, bool t, double[2] a, double[2] b, double[2] c)
                => (bool go, double[2] a1, double[2] b1, double[2] c1) {
        go = Identity(t)
        a1 = Add(a, x)
        b1 = Mul(a, a)
        c1 = Mul(b, c)
      }>
    }"""
    check(model(text), {"m": np.int64(3), "x": draw(2), "z": draw(2)}, wrt=["x"])


def test_nested_loops_scans_and_branches():
    text = """
    g (int64 m, double[2] x, double[2] w, double[T,2] v) => (double[2] s, double[N,2] y) {
      s, y = Loop (m, , x) <body = outer (int64 i, bool c, double[2] h) => (bool go, double[2] next, double[2] out) {
        go = Identity(c)
        inner = Loop (i, , h) <body = middle (int64 j, bool d, double[2] k) => (bool go2, double[2] k1) {
          go2 = Identity(d)
          kw = Mul(k, w)
          k1 = Add(kw, h)
        }>
        two = Constant <value_int=2> ()
        odd = Mod(i, two)
        yes = Cast <to=9> (odd)
        next = If(yes) <
          then_branch = a () => (double[2] t) {
            t = Scan <num_scan_inputs=1, body = walk (double[2] p, double[2] q) => (double[2] p1) {
              pq = Mul(p, q)
              p1 = Add(pq, w)
            }>(inner, v)
          },
          else_branch = b () => (double[2] e) { e = Sin(inner) }
        >
        out = Mul(next, h)
      }>
    }"""
    check(model(text), {"m": np.int64(4), "x": draw(2), "w": draw(2), "v": draw(3, 2)})


def test_shapes_that_a_body_does_not_state():
    """A carried value of unstated rank, which has the shape of its first in every iteration: saved as one tensor."""
    proto = model(COUNTED)
    body = next(a.g for a in proto.graph.node[0].attribute if a.name == "body")
    for value in [*body.input, *body.output][2:]:
        value.type.tensor_type.ClearField("shape")
    result = check(proto, {"m": np.int64(3), "x": draw(3), "w": draw(3)})
    assert not any(n.op_type.startswith("Sequence") for n in result.graph.node)


@pytest.mark.parametrize("known", [True, False])
def test_a_random_draw_of_an_iteration_is_saved(known):
    """Of known shape in one tensor, of a shape that grows in a sequence."""
    import onnxruntime

    import gradgen

    text = """
    g (int64 m, float[1,2] x, float[2] w) => (float[A,2] s, float[T,2] noise) {
      s, noise = Loop (m, , x) <body = step (int64 i, bool c, float[B,2] h)
                  => (bool go, float[C,2] next, float[2] row) {
        go = Identity(c)
        n = RandomNormalLike(h)
        a = Mul(h, n)
        b = Mul(a, w)
        axes = Constant <value_ints=[0]> ()
        row = ReduceSum <keepdims=0> (n, axes)
        next = Concat <axis=0> (b, b)
      }>
    }"""
    if known:
        text = text.replace("Concat <axis=0> (b, b)", "Identity(b)").replace("float[B,2] h", "float[1,2] h")
    result = gradgen.vjp(model(text), of=["s"])
    session = onnxruntime.InferenceSession(result.SerializeToString(), providers=["CPUExecutionProvider"])
    x, w = draw(1, 2).astype(np.float32), draw(2).astype(np.float32)
    ct = draw(1 if known else 8, 2).astype(np.float32)
    names = [o.name for o in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"m": np.array(3), "x": x, "w": w, "grad_s": ct}), strict=True))
    # s = x * factor, element by element, so that the gradients follow from the values of the same run.
    factor = found["s"] / x
    np.testing.assert_allclose(found["grad_x"], (ct * factor).sum(0, keepdims=True), rtol=1e-4)
    np.testing.assert_allclose(found["grad_w"], 3 * (ct * found["s"]).sum(0) / w, rtol=1e-4)


def test_rows_of_a_captured_value_are_added_once_after_the_loop():
    """Rows with repeated indices, of a value that is also read outside; the reverse Loop carries no sum of it."""
    text = """
    g (int64 m, double[N,3] x, int64[K] order, double[3] h0) => (double[3] s, double[N,3] y) {
      y = Sin(x)
      s = Loop (m, , h0) <body = step (int64 i, bool c, double[3] h) => (bool go, double[3] next) {
        go = Identity(c)
        k = Gather(order, i)
        row = Gather(x, k)
        other = Gather(x, i)
        a = Mul(row, h)
        b = Mul(other, other)
        next = Add(a, b)
      }>
    }"""
    for trips in (0, 4):
        feeds = {"m": np.int64(trips), "x": draw(5, 3), "order": np.array([2, 0, 2, -1]), "h0": draw(3)}
        result = check(model(text), feeds)
    backward = [n for n in result.graph.node if n.op_type == "Loop"][1]
    assert len(backward.input) == 3  # the trip count, the condition, the cotangent of h


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_carried_value_whose_next_does_not_depend_on_it(trips):
    """The first value counts in the first iteration alone, or is the last one where there is no iteration."""
    text = """
    g (int64 m, double[2] x, double[2] w) => (double[2] s, double[2] t) {
      zero = Sub(w, w)
      s, t = Loop (m, , x, zero) <body = step (int64 i, bool c, double[2] h, double[2] t)
             => (bool go, double[2] next, double[2] t1) {
        go = Identity(c)
        next = Ceil(h)
        a = Mul(h, w)
        t1 = Add(t, a)
      }>
    }"""
    feeds = {"m": np.int64(trips), "x": draw(2), "w": draw(2)}
    check(model(text), feeds)
    check(model(text), feeds, of=["s"], second=False)
    check(model(text.replace("double[2]", "double[N]")), feeds)
