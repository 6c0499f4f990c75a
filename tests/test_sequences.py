"""Gradients of sequence and optional types, on onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from loops import check, derive, model

import gradgen

RNG = np.random.default_rng(11)


def draw(*shape):
    return RNG.uniform(-1, 1, shape)


def test_construct_and_at():
    text = """
    g (double[2] a, double[2] b, int64 p) => (double[2] y, double[2] z) {
      s = SequenceConstruct(a, b, a)
      first = SequenceAt(s, p)
      one = Constant <value_int=1> ()
      second = SequenceAt(s, one)
      y = Mul(first, second)
      z = Sin(second)
    }"""
    for p in (0, 1, 2, -1, -3):
        check(model(text), {"a": draw(2), "b": draw(2), "p": np.int64(p)})


@pytest.mark.parametrize("position", [None, 0, 1, 2, -1, -2])
def test_insert_and_erase(position):
    given = "" if position is None else ", p"
    text = f"""
    g (double[2] a, double[2] b, double[2] c, int64 p, int64 q) => (double[2] y, double[2] z) {{
      s = SequenceConstruct(a, b)
      aa = Mul(a, a)
      t = SequenceInsert(s, aa{given})
      u = SequenceInsert(t, c, q)
      v = SequenceErase(u{given})
      zero = Constant <value_int=0> ()
      last = Constant <value_int=-1> ()
      first = SequenceAt(v, zero)
      end = SequenceAt(v, last)
      y = Mul(first, end)
      z = Sin(end)
    }}"""
    for q in (-2, 0, 3):
        feeds = {"a": draw(2), "b": draw(2), "c": draw(2), "p": np.int64(position or 0), "q": np.int64(q)}
        check(model(text), feeds)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_split_and_concatenate(axis):
    text = f"""
    g (double[3,4] x, int64[2] sizes) => (double[A,B] y) {{
      s = SplitToSequence <axis={axis}> (x, sizes)
      zero = Constant <value_int=0> ()
      first = SequenceAt(s, zero)
      squares = Mul(first, first)
      t = SequenceInsert(s, squares)
      y = ConcatFromSequence <axis={axis}> (t)
    }}"""
    sizes = [1, 2] if axis == 0 else [3, 1]
    check(model(text), {"x": draw(3, 4), "sizes": np.array(sizes)})


@pytest.mark.parametrize("keepdims", [0, 1])
def test_split_one_by_one(keepdims):
    text = f"""
    g (double[3,4] x) => (double[A,B] y, double[2,C] z) {{
      s = SplitToSequence <axis=1, keepdims={keepdims}> (x)
      one = Constant <value_int=1> ()
      t = SequenceErase(s, one)
      y = ConcatFromSequence <axis=-1, new_axis={1 - keepdims}> (t)
      a = SequenceAt(t, one)
      flat = Constant <value_ints=[-1]> ()
      b = Reshape(a, flat)
      u = SequenceConstruct(b, b)
      z = ConcatFromSequence <axis=0, new_axis=1> (u)
    }}"""
    check(model(text), {"x": draw(3, 4)})


def test_a_sequence_is_a_legal_wrt_and_of():
    text = """
    g (seq(double[N]) s, double[N] w) => (seq(double[N]) t, seq(double[N]) u) {
      one = Constant <value_int=1> ()
      a = SequenceAt(s, one)
      b = Mul(a, w)
      t = SequenceInsert(s, b)
      u = Identity(s)
    }"""
    proto = model(text)
    first = derive(proto, None)
    s, w = [draw(3), draw(3)], draw(3)
    dt, du = [draw(3) for _ in range(3)], [draw(3) for _ in range(2)]
    feeds = {"s": s, "w": w, "grad_t": dt, "grad_u": du}
    found = run(first, feeds)
    assert [o.name for o in first.graph.output] == ["t", "u", "grad_s", "grad_w"]
    np.testing.assert_allclose(found["grad_w"], dt[2] * s[1])
    np.testing.assert_allclose(found["grad_s"], [dt[0] + du[0], dt[1] + du[1] + dt[2] * w])
    second = derive(first, ["w", "grad_t"], ["grad_s"])
    names = [i.name for i in second.graph.input]
    weights = [draw(3), draw(3)]
    found = run(second, {**feeds, names[-1]: weights})
    np.testing.assert_allclose(found[second.graph.output[-2].name], weights[1] * dt[2])
    np.testing.assert_allclose(found[second.graph.output[-1].name], [weights[0], weights[1], weights[1] * w])


def test_a_sequence_that_has_no_influence_gets_zeros():
    text = """
    g (seq(double[N]) s, double[2] w) => (double[2] y, int64 n) {
      n = SequenceLength(s)
      y = Mul(w, w)
    }"""
    found = run(derive(model(text), ["s", "w"]), {"s": [draw(2), draw(3)], "w": draw(2), "grad_y": draw(2)})
    assert [v.tolist() for v in found["grad_s"]] == [[0, 0], [0, 0, 0]]


def test_optionals():
    text = """
    g (optional(double[2]) o, double[2] w) => (double[2] y, optional(double[2]) p) {
      a = OptionalGetElement(o)
      y = Mul(a, w)
      yy = Mul(y, a)
      p = Optional(yy)
    }"""
    o, w, dy, dp = (draw(2) for _ in range(4))
    first = derive(model(text), None)
    found = run(first, {"o": o, "w": w, "grad_y": dy, "grad_p": dp})
    np.testing.assert_allclose(found["grad_o"], dy * w + dp * 2 * o * w)
    np.testing.assert_allclose(found["grad_w"], dy * o + dp * o * o)


@pytest.mark.parametrize("present", [True, False])
def test_an_optional_that_may_be_absent(present):
    text = """
    g (optional(double[2]) o, double[2] w) => (double[2] y, optional(double[2]) p) {
      has = OptionalHasElement(o)
      y = If(has) <
        then_branch = yes () => (double[2] t) { a = OptionalGetElement(o) t = Mul(a, w) },
        else_branch = no () => (double[2] e) { e = Sin(w) }
      >
      p = Identity(o)
    }"""
    o, w, dy, dp = (draw(2) for _ in range(4))
    first = derive(model(text), None)
    found = run(first, {"o": o if present else None, "w": w, "grad_y": dy, "grad_p": dp if present else None})
    if present:
        np.testing.assert_allclose(found["grad_o"], dy * w + dp)
        np.testing.assert_allclose(found["grad_w"], dy * o)
    else:
        assert found["grad_o"] is None
        np.testing.assert_allclose(found["grad_w"], dy * np.cos(w))


def run(proto, feeds):
    """Outputs by name, on onnxruntime; lists are sequences, None is an absent optional."""
    import onnxruntime

    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def test_a_map_over_sequences():
    text = """
    g (double[3,2] x, double[2] w) => (double[3,2] y, double[A,B] z) {
      s = SplitToSequence <axis=0> (x)
      zero = Constant <value_int=0> ()
      t = SequenceErase(s, zero)
      rest = SequenceInsert(t, w1)
      u, v = SequenceMap <body = each (double[C,D] a, double[E,F] b, double[2] k) => (double[G,H] p, double[I,J] q) {
        m = Mul(a, b)
        p = Add(m, k)
        n = Mul(p, w)
        q = Sin(n)
      }> (s, rest, w)
      y = ConcatFromSequence <axis=0> (u)
      z = ConcatFromSequence <axis=1> (v)
    }""".replace(
        "      rest =", "      axes = Constant <value_ints=[0]> ()\n      w1 = Unsqueeze(w, axes)\n      rest ="
    )
    check(model(text), {"x": draw(3, 2), "w": draw(2)})


def test_a_map_that_is_not_differentiated_stays_right():
    text = """
    g (double[3,2] x, double[2] w) => (double[2] y, seq(double[A,B]) t) {
      s = SplitToSequence <axis=0> (x)
      t = SequenceMap <body = each (double[C,D] a) => (double[E,F] b) { b = Neg(a) }> (s)
      y = Mul(w, w)
    }"""
    x, w = draw(3, 2), draw(2)
    found = run(derive(model(text), ["w"], ["y"]), {"x": x, "w": w, "grad_y": w})
    np.testing.assert_array_equal(np.concatenate(found["t"]), -x)


def test_a_sequence_built_by_a_loop():
    text = """
    g (int64 m, double[2] x, double[2] w) => (double[A] y) {
      none = SequenceEmpty <dtype=11> ()
      first = SequenceInsert(none, x)
      s, h = Loop (m, , first, x) <body = step (int64 i, bool c, seq(double[2]) s, double[2] h)
             => (bool go, seq(double[2]) t, double[2] k) {
        go = Identity(c)
        a = Mul(h, w)
        k = Sin(a)
        t = SequenceInsert(s, k)
      }>
      y = ConcatFromSequence <axis=0> (s)
    }"""
    for trips in (0, 3):
        check(model(text), {"m": np.int64(trips), "x": draw(2), "w": draw(2)})


def test_a_sequence_through_a_branch():
    text = """
    g (bool c, double[2] x, double[2] w) => (double[A] y) {
      s = SequenceConstruct(x, w)
      t = If(c) <
        then_branch = a () => (seq(double[2]) t1) { m = Mul(x, w) t1 = SequenceInsert(s, m) },
        else_branch = b () => (seq(double[2]) t2) { zero = Constant <value_int=0> () t2 = SequenceErase(s, zero) }
      >
      y = ConcatFromSequence <axis=0> (t)
    }"""
    for c in (True, False):
        check(model(text), {"c": np.bool_(c), "x": draw(2), "w": draw(2)})


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("kind", ["tensor", "sequence"])
def test_an_optional_that_a_loop_carries(kind, present):
    """What the optional holds is squared in each iteration; where it holds nothing, the other value grows."""
    if kind == "tensor":
        held, change = "double[2]", "b = Mul(a, a)"
        total = "t = Add(h, b)"
    else:
        held = "seq(double[2])"
        change = "z = Constant <value_int=0> () e = SequenceAt(a, z) ee = Mul(e, e) b = SequenceInsert(a, ee, z)"
        total = "t = Add(h, ee)"
    text = f"""
    g (int64 m, optional({held}) o, double[2] w) => (double[2] y, optional({held}) p) {{
      y, p = Loop (m, , w, o) <body = step (int64 i, bool c, double[2] h, optional({held}) q)
             => (bool go, double[2] h1, optional({held}) q1) {{
        go = Identity(c)
        has = OptionalHasElement(q)
        h1, q1 = If(has) <
          then_branch = yes () => (double[2] t, optional({held}) r) {{
            a = OptionalGetElement(q) {change} {total} r = Optional(b)
          }},
          else_branch = no () => (double[2] u, optional({held}) s) {{ u = Mul(h, h) s = Identity(q) }}
        >
      }}>
    }}"""
    first = derive(model(text), None)
    o, w, dy, dp = (RNG.uniform(0.5, 1, 2) for _ in range(4))
    given = None if not present else (o if kind == "tensor" else [o])
    back = None if not present else (dp if kind == "tensor" else [dp, 0 * dp, 0 * dp])
    feeds = {"m": np.array(2), "o": given, "w": w, "grad_y": dy, "grad_p": back}
    found = run(first, feeds)
    if present:
        np.testing.assert_allclose(found["grad_w"], dy)
        want = dy * (2 * o + 4 * o**3) + dp * 4 * o**3
        np.testing.assert_allclose(found["grad_o"] if kind == "tensor" else found["grad_o"][0], want)
    else:
        assert found["grad_o"] is None
        np.testing.assert_allclose(found["grad_w"], dy * 4 * w**3)


@pytest.mark.parametrize(
    ("split", "keepdims"), [("", 1), ("", 0), (", sizes", 1), (", pair", 1)], ids=["ones", "squeezed", "sizes", "pairs"]
)
def test_parts_at_known_positions_need_no_sequence(split, keepdims):
    text = f"""
    g (double[2,5] x) => (double[2,A] y) {{
      sizes = Constant <value_ints=[1, 1, 3]> ()
      pair = Constant <value_int=2> ()
      s = SplitToSequence <axis=1, keepdims={keepdims}> (x{split})
      two = Constant <value_int=2> ()
      zero = Constant <value_int=0> ()
      a = SequenceAt(s, zero)
      b = SequenceAt(s, two)
      c = SequenceConstruct(a, b)
      last = Constant <value_int=-1> ()
      d = SequenceAt(c, last)
      shape = Constant <value_ints=[2, -1]> ()
      ar = Reshape(a, shape)
      dr = Reshape(d, shape)
      sine = Sin(ar)
      y = Concat <axis=1> (sine, dr)
    }}"""
    result = check(model(text), {"x": draw(2, 5)})
    assert "Loop" not in {n.op_type for n in result.graph.node}
    found = run(
        derive(model(text), ["s"], ["y"]),
        {"x": draw(2, 5), "grad_y": draw(2, 4 if "sizes" in split else (3 if "pair" in split else 2))},
    )
    assert isinstance(found["grad_s"], list)


def test_a_scan_that_reads_a_sequence_is_refused_by_name():
    text = """
    g (double[T,2] x, double[2] w) => (double[T,2] y) {
      s = SequenceConstruct(w, w)
      p = Constant <value_int=1> ()
      y = Scan <num_scan_inputs=1, body = step (double[2] v) => (double[2] u) { e = SequenceAt(s, p) u = Mul(e, v) }> (x)
    }"""
    check(model(text), {"x": draw(3, 2), "w": draw(2)}, wrt=["x"])
    with pytest.raises(gradgen.GradientError, match="'s'.*write a Loop"):
        derive(model(text), ["w"])


OPTIONAL_OR_HELD = {
    # As in onnx's own node test of a Loop that begins with an optional sequence.
    "a sequence leaves": """g (int64 n, double[2] x, double[2] w) => (double[A] y) {
        s = SequenceConstruct(x) o = Optional(s)
        r = Loop(n, , o) <body = b (int64 i, bool c, optional(seq(double[2])) a) => (bool g, seq(double[2]) e) {
            g = Identity(c) has = OptionalHasElement(a)
            h = If(has) < then_branch = t () => (seq(double[2]) p) { p = OptionalGetElement(a) },
                          else_branch = f () => (seq(double[2]) q) { q = SequenceConstruct(w) } >
            z = Constant <value_int = -1> () l = SequenceAt(h, z) m = Mul(l, w) e = SequenceInsert(h, m) }>
        y = ConcatFromSequence <axis = 0> (r) }""",
    "a sequence enters": """g (int64 n, double[2] x, double[2] w) => (double[A] y) {
        s = SequenceConstruct(x)
        r = Loop(n, , s) <body = b (int64 i, bool c, seq(double[2]) a) => (bool g, optional(seq(double[2])) e) {
            g = Identity(c) z = Constant <value_int = -1> () l = SequenceAt(a, z) m = Mul(l, w)
            k = SequenceInsert(a, m) e = Optional(k) }>
        h = OptionalGetElement(r) y = ConcatFromSequence <axis = 0> (h) }""",
    "a tensor enters": """g (int64 n, double[2] x, double[2] w) => (double[2] y, double[2] v) {
        v, r = Loop(n, , w, x) <body = b (int64 i, bool c, double[2] d, double[2] a)
                                => (bool g, double[2] d1, optional(double[2]) e) {
            g = Identity(c) m = Mul(a, w) d1 = Add(d, m) e = Optional(m) }>
        y = OptionalGetElement(r) }""",
}


@pytest.mark.parametrize("trips", [0, 1, 3])
@pytest.mark.parametrize("case", OPTIONAL_OR_HELD)
def test_a_loop_carries_an_optional_or_what_it_holds(case, trips):
    """What enters an iteration as one of them leaves it as the other: onnxruntime takes both for an optional."""
    text = OPTIONAL_OR_HELD[case]
    check(model(text), {"n": np.int64(trips), "x": draw(2), "w": draw(2)})


def test_a_loop_that_begins_with_nothing():
    """The optional is an input, and empty: the first iteration makes the sequence that the later ones extend."""
    text = OPTIONAL_OR_HELD["a sequence leaves"]
    text = text.replace("double[2] x,", "optional(seq(double[2])) o,").replace(
        "s = SequenceConstruct(x) o = Optional(s)", ""
    )
    first = derive(model(text), ["w"])
    w, ct = draw(2), draw(8)
    found = run(first, {"n": np.array(3), "o": None, "w": w, "grad_y": ct})
    np.testing.assert_allclose(found["y"], np.concatenate([w, w**2, w**3, w**4]))
    powers = np.arange(1, 5)[:, None] * w ** np.arange(4)[:, None]
    np.testing.assert_allclose(found["grad_w"], (ct.reshape(4, 2) * powers).sum(0))
