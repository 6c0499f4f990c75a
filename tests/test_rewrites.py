# Each rewrite: that it applies, that it leaves alone what it must, and that values stay.
"""Tests of the rewrites that span the rules of several nodes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from text_models import model

import gradgen
from gradgen.evaluate import Evaluator
from gradgen.rules import rewriting


def backward(proto: onnx.ModelProto, wrt: list[str]) -> tuple[list[str], onnx.ModelProto]:
    """Op types of the backward nodes, and the gradient model."""
    result = gradgen.vjp(proto, wrt=wrt)
    return [n.op_type for n in result.graph.node][len(proto.graph.node) :], result


def gradients(result: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    onnx.checker.check_model(result, full_check=True)
    session = ort.InferenceSession(result.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for i in session.get_inputs():
        if i.name not in feeds:
            feeds[i.name] = rng.standard_normal(i.shape).astype(np.float32)
    names = [o.name for o in session.get_outputs() if o.name.startswith("grad")]
    return session.run(names, feeds)


@pytest.fixture
def plain(monkeypatch):
    """Switch the rewrites off."""

    def switch():
        monkeypatch.setattr(rewriting, "PATTERNS", {})
        monkeypatch.setattr(rewriting, "LAST", {})

    return switch


CASES = {
    "adjacent_views": (
        """g (float[2,3,4] x) => (float[24] y) {
            a = Reshape(x, s)\n b = Unsqueeze(a, t)\n c = Flatten<axis=2>(b)\n d = Reshape(c, u)\n y = Mul(d, d) }""",
        {"s": np.array([6, 4]), "t": np.array([0]), "u": np.array([24])},
        ["Mul", "Add", "Reshape"],
    ),
    "cancelled_transposes": (
        "g (float[2,3,4] x) => (float[2,3,4] y)"
        "{ a = Transpose<perm=[1,2,0]>(x)\n b = Transpose<perm=[2,0,1]>(a)\n y = Mul(b, b) }",
        {},
        ["Mul", "Add"],
    ),
    "composed_transposes": (
        "g (float[2,3,4] x) => (float[4,3,2] y)"
        "{ a = Transpose<perm=[1,2,0]>(x)\n b = Transpose<perm=[1,0,2]>(a)\n y = Mul(b, b) }",
        {},
        ["Mul", "Add", "Transpose"],
    ),
    "transposed_product": (
        "g (float[3,4] x, float[5,4] w) => (float[3,5] y) { a = Transpose<perm=[1,0]>(w)\n y = MatMul(x, a) }",
        {},
        ["Gemm", "Gemm"],
    ),
    "mask_behind_pool": (
        """g (float[2,3,4,6] x) => (float[2,3,2,3] y) {
            a = Relu(x)\n y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a) }""",
        {},
        ["Greater", "Cast", "Mul", "MaxUnpool"],
    ),
    "pads_that_tile": (
        """g (float[6,4] x) => (float[2,4] y) {
            a = Slice(x, zero, two, zero)\n b = Slice(x, two, four, zero)\n c = Slice(x, four, six, zero)
            p = Mul(a, b)\n y = Mul(p, c) }""",
        {"zero": np.array([0]), "two": np.array([2]), "four": np.array([4]), "six": np.array([6])},
        ["Mul", "Mul", "Mul", "Mul", "Concat"],
    ),
    "interleaved_parts": (
        """g (float[5,4,48] x) => (float[5,4,16] y) {
            a = Reshape(x, s)\n b = Unsqueeze(a, zero)\n c = Transpose<perm=[3,1,2,0,4]>(b)\n d = Squeeze(c, three)
            q = Gather<axis=0>(d, i)\n k = Gather<axis=0>(d, j)\n v = Gather<axis=0>(d, l)
            p = Mul(q, k)\n y = Mul(p, v) }""",
        {"s": np.array([5, 4, 3, 16]), "zero": np.array([0]), "three": np.array([3]), "i": np.array(0),
         "j": np.array(1), "l": np.array(2)},
        ["Mul", "Mul", "Mul", "Mul", "Concat"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_pattern_applies_and_values_stay(name, plain):
    text, initializers, expected = CASES[name]
    proto = model(text, **initializers)
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    wrt = [i.name for i in proto.graph.input]
    kinds, result = backward(proto, wrt)
    assert kinds == expected
    found = gradients(result, {"x": x})
    plain()
    longer, reference = backward(proto, wrt)
    assert longer != kinds and len(longer) >= len(kinds)
    for one, other in zip(found, gradients(reference, {"x": x}), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("column", "width", "axis", "expected"),
    [
        ([[2], [-1]], 3, 0, ["Reshape", "Gather"]),
        ([[2], [0]], 2, 0, ["GatherElements"]),  # not the whole row
        ([[2, 1, 0]], 3, 0, ["GatherElements"]),  # no column
        ([[1], [0]], 3, 1, ["GatherElements"]),  # along the rows
    ],
)
def test_elements_that_are_whole_rows_are_gathered_as_rows(column, width, axis, expected):
    proto = model(
        f"g (float[2,{width}] x) => (float[4,3] y) "
        f'{{ j = Expand(i, s)\n y = ScatterElements<axis={axis}, reduction="add">(d, j, x) }}',
        i=np.array(column), s=np.array([2, width]), d=np.ones((4, 3), np.float32),
    )  # fmt: skip
    kinds, result = backward(proto, ["x"])
    assert kinds == expected
    ct = np.arange(12, dtype=np.float32).reshape(4, 3)
    (found,) = gradients(result, {"x": np.ones((2, width), np.float32), "grad_y": ct})
    places = np.broadcast_to(np.array(column), (2, width))
    np.testing.assert_array_equal(found, np.take_along_axis(ct[:, :width] if axis == 0 else ct[:2], places, axis))


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ((0, 2, 3, 6), "a gap"),
        ((0, 3, 2, 6), "an overlap"),
        ((1, 3, 3, 6), "nothing at the start"),
        ((0, 3, 3, 5), "nothing at the end"),
    ],
)
def test_parts_that_do_not_tile_are_summed(ends, why, plain):
    a, b, c, d = ends
    size = min(b - a, d - c)
    proto = model(
        f"g (float[6,4] x) => (float[{size},4] y)"
        "{ p = Slice(x, a, b, zero)\n q = Slice(x, c, d, zero)\n y = Mul(p, q) }",
        a=np.array([a]), b=np.array([a + size]), c=np.array([c]), d=np.array([c + size]), zero=np.array([0]),
    )  # fmt: skip
    kinds, result = backward(proto, ["x"])
    assert "Concat" not in kinds, why
    x = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    found = gradients(result, {"x": x})
    plain()
    np.testing.assert_allclose(found[0], gradients(backward(proto, ["x"])[1], {"x": x})[0], rtol=1e-6)


@pytest.mark.parametrize("text", [
    """g (float[3,4] x) => (float[1,2] a, float[3,2] b) {
        r = ReduceSum<keepdims = 1>(x, zero)\n a = Slice(r, zero, two, one)\n b = Slice(x, two, four, one) }""",
    """g (float[4] x, float[3,4] w) => (float[3,2] a, float[2] b) {
        p = Add(x, w)\n a = Slice(p, zero, two, one)\n b = Slice(x, two, four, zero) }""",
])  # fmt: skip
def test_a_part_that_is_broadcast_is_no_part_of_a_concat(text):
    proto = model(text, zero=np.array([0]), one=np.array([1]), two=np.array([2]), four=np.array([4]))
    result = gradgen.vjp(proto, wrt=["x"])
    onnx.checker.check_model(result, full_check=True)
    rng = np.random.default_rng(2)
    shapes = {"x": (3, 4) if "[3,4] x" in text else (4,), "w": (3, 4), "grad_a": (1, 2), "grad_b": (3, 2)}
    shapes |= {} if "[3,4] x" in text else {"grad_a": (3, 2), "grad_b": (2,)}
    feeds = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    run = Evaluator(result, strict=True)
    found = run({n: v for n, v in feeds.items() if n in run.input_names})["grad_x"]
    a, b = feeds["grad_a"], feeds["grad_b"]
    want = np.zeros(shapes["x"], np.float32)
    want[..., :2] += a if "[3,4] x" in text else a.sum(0)
    want[..., 2:] += b
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_a_view_with_another_reader_stays():
    proto = model(
        "g (float[2,3] x, float[6] w) => (float[6] y) { a = Reshape(x, s)\n b = Reshape(a, t)\n y = Mul(b, w) }",
        s=np.array([3, 2]), t=np.array([6]),
    )  # fmt: skip
    result = gradgen.vjp(proto, wrt=["x", "a"])
    x, w, ct = np.ones((2, 3), np.float32), np.arange(6, dtype=np.float32), np.ones(6, np.float32)
    found = gradients(result, {"x": x, "w": w, "grad_y": ct})
    np.testing.assert_array_equal(found[0], w.reshape(2, 3))
    np.testing.assert_array_equal(found[1], w.reshape(3, 2))


def test_forward_nodes_are_left_alone():
    proto = model(
        "g (float[2,3] x) => (float[2,3] y)"
        "{ a = Transpose<perm=[1,0]>(x)\n b = Transpose<perm=[1,0]>(a)\n y = Mul(b, b) }"
    )
    result = gradgen.vjp(proto)
    assert [n.op_type for n in result.graph.node][:3] == ["Transpose", "Transpose", "Mul"]


def test_a_mask_of_another_value_stays_in_front_of_the_pool():
    proto = model(
        """g (float[1,1,4,4] x, float[1,1,4,4] w) => (float[1,1,2,2] y) {
            a = Relu(x)\n b = Add(a, w)\n y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(b) }"""
    )
    kinds, _ = backward(proto, ["x"])
    assert kinds.index("MaxUnpool") < kinds.index("Greater")


def test_a_mask_behind_the_pool_at_ties_and_at_zero():
    """Of equal maxima the first gets the cotangent; a window of nothing but zeros gets none."""
    proto = model(
        """g (float[1,1,2,4] x) => (float[1,1,1,2] y) {
            a = Relu(x)\n y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a) }"""
    )
    x = np.array([[[[-1, 3, -1, 0], [3, 3, -2, -3]]]], np.float32)
    found = gradients(gradgen.vjp(proto), {"x": x, "grad_y": np.array([[[[5, 7]]]], np.float32)})
    np.testing.assert_array_equal(found[0], [[[[0, 5, 0, 0], [0, 0, 0, 0]]]])


def test_a_product_with_an_addend_is_not_turned():
    proto = model(
        "g (float[4,3] x, float[4,5] w, float[5] c) => (float[5,3] y)"
        "{ a = Gemm<transA=1>(x, w, c)\n y = Transpose<perm=[1,0]>(a) }"
    )
    assert [n.op_type for n in gradgen.vjp(proto).graph.node][:2] == ["Gemm", "Transpose"]


@pytest.mark.parametrize(("alpha", "flags"), [(1.0, (0, 0)), (0.5, (1, 0)), (2.0, (0, 1)), (1.5, (1, 1))])
def test_a_turned_product_has_the_same_value(alpha, flags):
    a, b = ([[3, 4], [4, 3]][flags[0]], [[4, 2], [2, 4]][flags[1]])
    proto = model(
        f"g (float{a} a, float{b} w, float[2,3] s) => (float[2,3] y)"
        f"{{ v = Transpose<perm=[1,0]>(w)\n t = Gemm<alpha={alpha}, transA={flags[0]}, transB={1 - flags[1]}>(a, v)\n"
        "u = Transpose<perm=[1,0]>(t)\n y = Mul(u, s) }"
    )
    rng = np.random.default_rng(5)
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in (("a", a), ("w", b), ("s", [2, 3]))}
    found = gradients(gradgen.vjp(proto, wrt=["a", "w"]), {**arrays, "grad_y": np.ones((2, 3), np.float32)})
    left = arrays["a"].T if flags[0] else arrays["a"]
    right = arrays["w"].T if flags[1] else arrays["w"]
    ct = arrays["s"].T
    to_left, to_right = alpha * ct @ right.T, alpha * left.T @ ct
    np.testing.assert_allclose(found[0], to_left.T if flags[0] else to_left, rtol=1e-5)
    np.testing.assert_allclose(found[1], to_right.T if flags[1] else to_right, rtol=1e-5)
