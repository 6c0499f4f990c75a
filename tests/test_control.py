"""Gradients of If: branches, constant conditions, shapes that differ, recurrent layers inside, second order."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from loops import check, model
from onnx import parser

import gradgen

RNG = np.random.default_rng(5)


def draw(*shape):
    return RNG.uniform(-1, 1, shape)


@pytest.mark.parametrize("c", [True, False])
def test_branches_with_several_outputs(c):
    text = """
    g (bool c, double[3] x, double[3] w) => (double[3] y, double[N] z, int64 n) {
      h = Mul(x, w)
      y, z, n = If(c) <
        then_branch = a () => (double[3] y1, double[3] z1, int64 n1) {
          s = Mul(h, h) y1 = Sin(s) z1 = Mul(x, s) n1 = Constant <value_int=1> ()
        },
        else_branch = b () => (double[3] y2, double[2] z2, int64 n2) {
          y2 = Identity(w) n2 = Constant <value_int=2> ()
          k = Constant <value_ints=[0, 2]> ()
          z2 = Gather(h, k)
        }
      >
    }"""
    check(model(text), {"c": np.bool_(c), "x": draw(3), "w": draw(3)})
    check(model(text), {"c": np.bool_(c), "x": draw(3), "w": draw(3)}, of=["z"])


@pytest.mark.parametrize("kept", ["b = Identity(h)", "k = Constant <value_int=1> () n = Cast <to=9> (k)\n"
    "b = If(n) < then_branch = i () => (double[p, q] p1) { p1 = Sin(h) }, "
    "else_branch = j () => (double[q] q1) { q1 = Squeeze(h) } >"])  # fmt: skip
def test_branches_of_other_ranks_before_what_fits_one_of_them(kept):
    """Exported recurrent layers squeeze where there is no batch; what reads the result is written for a batch."""
    text = f"""
    g (bool c, double[1,3] x, double[3,2] w) => (double[1,2] y) {{
      h = Mul(x, x)
      s = If(c) < then_branch = t () => (double[] a) {{ a = Squeeze(h) }},
                  else_branch = e () => (double[] b) {{ {kept} }} >
      y = Gemm(s, w)
    }}"""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    check(proto, {"c": np.bool_(False), "x": draw(1, 3), "w": draw(3, 2)})


BRANCHES_THAT_DIFFER = {
    "matmul": (
        "a = MatMul(x, w)",
        "k = Constant <value_ints=[0]> () b = ReduceSum <keepdims=0> (x, k)",
        "q = MatMul(z, w) u = ReduceMean <keepdims=0> (q) v = Mul(q, u) y = ReduceSum <keepdims=0> (v)",
    ),
    "square": (
        "a = MatMul(x, w)",
        "k = Constant <value_ints=[0]> () b = ReduceSum <keepdims=0> (x, k)",
        "q = Mul(z, z) y = ReduceSum <keepdims=0> (q)",
    ),
    "broadcast": ("a = Exp(x)", "b = ReduceMean <keepdims=0> (w)", "q = Mul(z, x) y = ReduceSum <keepdims=0> (q)"),
    "sizes": (
        "a = MatMul(x, w)",
        "k = Constant <value_ints=[0]> () b = ReduceSum (x, k)",
        "q = Mul(z, z) y = ReduceSum <keepdims=0> (q)",
    ),
}


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("case", BRANCHES_THAT_DIFFER)
def test_branches_of_other_shapes_say_nothing_of_the_cotangent_outside(case, taken):
    then, otherwise, after = BRANCHES_THAT_DIFFER[case]
    ranks = {"matmul": "q", "square": "q", "broadcast": "", "sizes": "1,3"}[case]
    text = f"""
    g (bool c, double[2,3] x, double[3,3] w) => (double y) {{
      z = If(c) < then_branch = t () => (double[2,3] a) {{ {then} }},
                  else_branch = e () => (double[{ranks}] b) {{ {otherwise} }} >
      {after}
    }}"""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    check(proto, {"c": np.bool_(taken), "x": draw(2, 3), "w": draw(3, 3)})


def test_a_branch_that_no_cotangent_reaches_gives_zeros():
    text = """
    g (bool c, double[3] x, double[3] w) => (double[3] y) {
      y = If(c) < then_branch = a () => (double[3] t) { t = Floor(w) },
                  else_branch = b () => (double[3] e) { e = Mul(x, w) } >
    }"""
    for c in (True, False):
        check(model(text), {"c": np.bool_(c), "x": draw(3), "w": draw(3)}, second=not c)


def test_a_constant_decides():
    """The branch takes the place of the node; the other one may hold what has no gradient."""
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
        g (double[N,2] x, double[2] w) => (double[M] y) <int64 rate = {16000}> {
            known = Constant <value_int=16000> ()
            same = Equal(rate, known)
            shape = Shape(x)
            y = If(same) <
                then_branch = t () => (double[K] a) {
                    rank = Size(shape)
                    two = Constant <value_int=2> ()
                    flat = Equal(rank, two)
                    a = If(flat) <
                        then_branch = tt () => (double[K] c) {
                            axes = Constant <value_ints=[1]> ()
                            m = Mul(x, w)
                            c = ReduceSum <keepdims=0> (m, axes)
                        },
                        else_branch = te () => (double[K] d) { d = my.Inner(x) }
                    >
                },
                else_branch = e () => (double[K] b) { b = my.Other(x) }
            >
        }"""
    )
    result = gradgen.vjp(proto, wrt=["x", "w"])
    assert "If" not in {n.op_type for n in result.graph.node}
    del proto.opset_import[1]
    text = """
    g (double[N,2] x, double[2] w) => (double[M] y) {
        axes = Constant <value_ints=[1]> ()
        m = Mul(x, w)
        y = ReduceSum <keepdims=0> (m, axes)
    }"""
    check(model(text), {"x": draw(3, 2), "w": draw(2)})


@pytest.mark.parametrize("c", [True, False])
def test_what_training_changes_decides_nothing(c):
    """A condition on a float initializer is left to the run."""
    text = """
    g (double[2] x) => (double[2] y) <double limit = {0.5}, double[2] w = {0.3, 0.6}> {
      k = ReduceSum <keepdims=0> (w)
      c = Less(k, limit)
      y = If(c) < then_branch = a () => (double[2] t) { t = Mul(x, w) },
                  else_branch = b () => (double[2] e) { e = Sin(x) } >
    }"""
    result = check(model(text), {"x": draw(2)})
    assert "If" in {n.op_type for n in result.graph.node}


def test_initializers_of_a_branch_are_shared():
    proto = model(
        """
        g (bool c, double[2] x) => (double[2] y) {
          y = If(c) <
            then_branch = a () => (double[2] t) <double[2] w = {1.5, 2.0}> { s = Mul(x, w) t = Mul(s, x) },
            else_branch = b () => (double[2] e) <double[2] w = {0.5, 3.0}> { e = Mul(x, w) }
          >
        }"""
    )
    for c in (True, False):
        result = check(proto, {"c": np.bool_(c), "x": draw(2)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(gradgen.parameters(proto)) == 2
    inner = [g.g for n in result.graph.node for g in n.attribute if g.name == "then_branch"]
    assert not any(g.initializer for g in inner)


def run(proto, feeds):
    """Outputs by name, of one run on onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(
        zip(
            [o.name for o in session.get_outputs()],
            session.run(None, {k: np.asarray(v) for k, v in feeds.items()}),
            strict=True,
        )
    )


def draws(graph):
    """How many nodes of a graph draw, those of subgraphs included."""
    inner = [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return sum(n.op_type.startswith("Random") or n.op_type == "Dropout" for n in graph.node) + sum(map(draws, inner))


@pytest.mark.parametrize("c", [True, False])
def test_a_random_draw_of_a_branch_is_saved(c):
    text = """
    g (bool c, float[4] x, float[4] w) => (float[4] y, float[4] n) {
      y, n = If(c) <
        then_branch = a () => (float[4] y1, float[4] n1) {
          n1 = RandomNormalLike(x) m = Mul(x, n1) y1 = Mul(m, w)
        },
        else_branch = b () => (float[4] y2, float[4] n2) { y2 = Mul(x, w) n2 = Identity(x) }
      >
    }"""
    result = gradgen.vjp(model(text), wrt=["x", "w"], of=["y"])
    assert draws(result.graph) == 1
    x, w, ct = (draw(4).astype(np.float32) for _ in range(3))
    found = run(result, {"c": np.bool_(c), "x": x, "w": w, "grad_y": ct})
    n = found["n"] if c else 1
    np.testing.assert_allclose(found["grad_x"], ct * n * w, rtol=1e-6)
    np.testing.assert_allclose(found["grad_w"], ct * n * x, rtol=1e-6)


def test_dropout_in_a_branch_keeps_its_mask():
    text = """
    g (bool c, float[50] x) => (float[50] y) <float ratio = {0.5}, bool training = {1}> {
      y = If(c) <
        then_branch = a () => (float[50] t) { d = Dropout(x, ratio, training) t = Mul(d, x) },
        else_branch = b () => (float[50] e) { e = Identity(x) }
      >
    }"""
    result = gradgen.vjp(model(text))
    assert draws(result.graph) == 1
    x, ct = (RNG.uniform(1, 2, 50).astype(np.float32) for _ in range(2))
    found = run(result, {"c": np.bool_(True), "x": x, "grad_y": ct})
    kept = found["y"] != 0
    assert 5 < kept.sum() < 45
    np.testing.assert_allclose(found["grad_x"], np.where(kept, 2 * x * ct * 2, 0), rtol=1e-5)


def test_draws_of_nested_bodies_are_saved():
    """A Loop over a Scan over a branch: each draw is an output of every node around it."""
    text = """
    g (int64 m, float[2] x, float[3,2] v, bool c) => (float[2] y, float[T,3,2] noise) {
      y, noise = Loop (m, , x) <body = outer (int64 i, bool go, float[2] h) => (bool go1, float[2] h1, float[3,2] ns) {
        go1 = Identity(go)
        h1, ns = Scan <num_scan_inputs=1, body = inner (float[2] k, float[2] u) => (float[2] k1, float[2] n) {
          k1, n = If(c) <
            then_branch = a () => (float[2] t, float[2] n1) {
              n1 = RandomUniformLike <low=0.5, high=1.5> (k) kn = Mul(k, n1) t = Mul(kn, u)
            },
            else_branch = b () => (float[2] e, float[2] n2) { e = Mul(k, u) n2 = Identity(u) }
          >
        }>(h, v)
      }>
    }"""
    result = gradgen.vjp(model(text), wrt=["x", "v"], of=["y"])
    assert draws(result.graph) == 1
    x, v, ct = draw(2), draw(3, 2), draw(2)
    feeds = {"m": np.int64(2), "x": x, "v": v, "c": np.bool_(True), "grad_y": ct}
    found = run(result, {k: f.astype(np.float32) if f.dtype == np.float64 else f for k, f in feeds.items()})
    noise = found["noise"].astype(np.float64)
    assert len(np.unique(noise)) == 12
    factor = noise.prod((0, 1)) * v.prod(0) ** 2
    np.testing.assert_allclose(found["y"], x * factor, rtol=1e-5)
    np.testing.assert_allclose(found["grad_x"], ct * factor, rtol=1e-5)
    np.testing.assert_allclose(found["grad_v"], 2 * ct * x * factor / v, rtol=1e-5)


@pytest.mark.parametrize("op", ["GRU", "LSTM", "RNN"])
def test_a_recurrent_layer_inside_bodies(op):
    """In a branch inside a Loop, with weights that are captured and carried states."""
    from gradgen.differences import check_gradients

    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op]
    text = f"""
    g (bool c, int64 m, float[3,1,2] x, float[1,{2 * gates},2] w, float[1,{2 * gates},2] r) => (float[3,1,2] y) {{
      axes = Constant <value_ints=[1]> ()
      y = Loop (m, , x) <body = step (int64 i, bool go, float[3,1,2] h) => (bool go1, float[3,1,2] h1) {{
        go1 = Identity(go)
        h1 = If(c) <
          then_branch = a () => (float[3,1,2] t) {{ s = {op} <hidden_size=2> (h, w, r) t = Squeeze(s, axes) }},
          else_branch = b () => (float[3,1,2] e) {{ e = Tanh(h) }}
        >
      }}>
    }}"""
    proto = model(text)
    feeds = {
        "c": np.bool_(True), "m": np.int64(2), "x": draw(3, 1, 2),
        "w": draw(1, 2 * gates, 2), "r": draw(1, 2 * gates, 2),
    }  # fmt: skip
    feeds = {k: np.asarray(v, np.float32) if np.asarray(v).dtype == np.float64 else v for k, v in feeds.items()}
    result = gradgen.vjp(proto, wrt=["x", "w", "r"])
    assert [r.verdict for r in check_gradients(proto, result, feeds)] == ["ok"] * 3


def test_calls_for_reading_give_the_same():
    text = """
    g (bool c, int64 m, double[2] x, double[2] w) => (double[2] y) {
      y = Loop (m, , x) <body = step (int64 i, bool go, double[2] h) => (bool go1, double[2] h1) {
        go1 = Identity(go)
        h1 = If(c) < then_branch = a () => (double[2] t) { t = Mul(h, w) },
                     else_branch = b () => (double[2] e) { e = Tanh(h) } >
      }>
    }"""
    proto = model(text)
    feeds = {"c": np.bool_(True), "m": np.int64(2), "x": draw(2), "w": draw(2), "grad_y": draw(2)}
    want, found = (run_wide(gradgen.vjp(proto, inline=inline), feeds) for inline in (True, False))
    for name in want:
        np.testing.assert_allclose(found[name], want[name])


def run_wide(proto, feeds):
    from gradgen.evaluate import Evaluator

    return Evaluator(proto)(feeds)


def test_the_gradient_of_a_function_with_bodies():
    """A Loop, a Scan and a decided If inside a function, with a constant that a body holds as an initializer."""
    function = parser.parse_function(
        """<domain: "my", opset_import: ["" : 21]>
        f (x, w) => (y) {
          m = Constant <value_int=2> ()
          always = Constant <value = bool {1}> ()
          h = Loop (m, always, x) <body = step (int64 i, bool go, double[2] a) => (bool go1, double[2] b)
              <double[2] k = {0.5, 2.0}> {
            go1 = Identity(go) aw = Mul(a, w) b = Mul(aw, k)
          }>
          z = Sub(h, h)
          s, u = Scan <num_scan_inputs=1, body = walk (double[2] p, double q) => (double[2] p1, double[2] r) {
            pq = Mul(p, q) p1 = Add(pq, w) r = Sin(p)
          }> (z, h)
          y = If (always) <
            then_branch = yes () => (double[2] t) { us = ReduceSum <keepdims=0> (u) t = Add(s, us) },
            else_branch = no () => (double[2] e) { e = Identity(s) }
          >
        }"""
    )
    import onnx

    types = {
        n: onnx.helper.make_tensor_type_proto(onnx.TensorProto.DOUBLE, [2]) for n in ("x", "w", "h", "z", "s", "y")
    }
    types["u"] = onnx.helper.make_tensor_type_proto(onnx.TensorProto.DOUBLE, [2, 2])
    gradient = gradgen.gradient_of_function(function, ["x", "w"], "y", types=types)
    infos = [onnx.helper.make_value_info(n, types["x"]) for n in ("x", "w")]
    call = onnx.helper.make_node("f", ["x", "w"], ["y"], domain="my")
    back = onnx.helper.make_node(gradient.name, list(gradient.input), list(gradient.output), domain=gradient.domain)
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in (("", 21), ("my", 1))]

    def wrapped(node, inputs, outputs, body):
        graph = onnx.helper.make_graph(
            [node], "g", inputs, [onnx.helper.make_value_info(n, types["x"]) for n in outputs]
        )
        return onnx.helper.make_model(graph, opset_imports=opsets, functions=[body], ir_version=10)

    dy = onnx.helper.make_value_info("dy", types["y"])
    assert gradient.input[-1] == "dy"
    primal = run_wide(wrapped(call, infos, ["y"], function), feeds := {"x": draw(2), "w": draw(2)})
    ct, direction = draw(2), {"x": draw(2), "w": draw(2)}
    found = run_wide(wrapped(back, [*infos, dy], list(gradient.output), gradient), {**feeds, "dy": ct})
    moved = [
        run_wide(wrapped(call, infos, ["y"], function), {k: v + h * direction[k] for k, v in feeds.items()})["y"]
        for h in (1e-5, -1e-5)
    ]
    want = float((ct * (moved[0] - moved[1])).sum()) / 2e-5
    got = sum(float((found[f"grad_{k}"] * direction[k]).sum()) for k in feeds)
    assert primal["y"].shape == (2,)
    assert abs(want - got) < 1e-6 * max(1, abs(want))


def test_constants_decide_nested_branches():
    """A branch that is decided against goes with the nodes inside it, which are decided as well."""
    text = """
    g (double[3] x) => (double[3] y) <bool yes = {1}, bool no = {0}> {
      y = If(yes) <
        then_branch = a () => (double[3] t) {
          t = If(no) < then_branch = c () => (double[3] p) { p = Cos(x) },
                       else_branch = d () => (double[3] q) { q = Sin(x) } >
        },
        else_branch = b () => (double[3] e) {
          e = If(yes) < then_branch = f () => (double[3] r) { r = Exp(x) },
                        else_branch = h () => (double[3] s) { s = Neg(x) } >
        }
      >
    }"""
    check(model(text), {"x": draw(3)})
