# The rewrites of stacked values: that they apply, that values are those of numpy in float64, what they must leave alone.
"""Tests of the rewrites of what is stacked on an axis of its own, as the cotangents of parts taken apart are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from text_models import model

import gradgen
from gradgen.evaluate import Evaluator

# y is the product of the three parts along an axis of x, which has been given a shape and then maybe been turned.
PARTS = """g (double[{x}] x) => (double y) {{
    a = Reshape<allowzero=1>(x, s)\n {turn}
    u, v, w = Split<axis={axis}, num_outputs=3>(b)\n p = Squeeze(u, k)\n q = Squeeze(v, k)\n r = Squeeze(w, k)
    m = Mul(p, q)\n y = Mul(m, r) }}"""
CASES = {
    # x, its shape before it is turned, how, the axis of the parts, what the backward pass has beside products.
    "turned": ("6,24", (2, 3, 3, 2, 4), (2, 0, 3, 1, 4), 0, ["Concat", "Transpose", "Reshape"]),
    "turned, of an open size": ("N,3,24", (-1, 3, 3, 2, 4), (2, 0, 3, 1, 4), 0, ["Concat", "Transpose", "Reshape"]),
    "turned in full": ("4,24", (2, 4, 3, 4), (2, 3, 1, 0), 0, ["Concat", "Transpose", "Reshape"]),
    "turned, and nothing else merged": ("2,3,6,4", (2, 3, 3, 2, 4), (2, 0, 3, 1, 4), 0, ["Concat", "Transpose"]),
    "moved alone": ("6,12", (2, 3, 3, 4), (2, 0, 1, 3), 0, ["Concat", "Reshape"]),
    "moved alone, and merged": ("2,3,12", (2, 3, 3, 4), (2, 0, 1, 3), 0, ["Concat"]),
    "not turned": ("6,4", (2, 3, 4), None, 1, ["Concat", "Reshape"]),
    "not turned, and merged": ("2,12", (2, 3, 4), None, 1, ["Concat"]),
    "only stacked": ("3,2,4", (3, 2, 4), None, 0, ["Concat", "Reshape"]),
    "only stacked, of an open size": ("3,2,N", (3, 2, -1), None, 0, ["Concat", "Reshape"]),
    "the last axis": ("2,4,3", (2, 4, 3), None, 2, ["Concat", *3 * ["Unsqueeze"]]),
    "turned to be the last": ("24", (2, 4, 3), (2, 0, 1), 0, ["Concat", "Reshape", "Reshape", "Transpose"]),
    "empty": ("0,24", (0, 3, 3, 2, 4), (2, 0, 3, 1, 4), 0, ["Concat", "Reshape", "Transpose", *3 * ["Unsqueeze"]]),
    "two open sizes": ("N,M,3,4", None, None, 2, ["Concat", *3 * ["Unsqueeze"]]),
}  # fmt: skip


def parts_model(x: str, shape: tuple[int, ...] | None, perm: tuple[int, ...] | None, axis: int) -> onnx.ModelProto:
    turn = "b = Identity(a)" if perm is None else f"b = Transpose<perm={list(perm)}>(a)"
    text = PARTS.format(x=x, turn=turn, axis=axis)
    constants = {"k": np.array([axis]), "s": np.array(shape if shape is not None else [0])}
    if shape is None:
        text = text.replace("Reshape<allowzero=1>(x, s)", "Identity(x)")
        constants.pop("s")
    proto = model(text, **constants)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


def added(result: onnx.ModelProto, *without: str) -> list[str]:
    """The types of the nodes that are not the primal's, sorted."""
    onnx.checker.check_model(result, full_check=True)
    nodes = [n for n in result.graph.node if any(p.key == "gradgen.node" for p in n.metadata_props)]
    return sorted(n.op_type for n in nodes if n.op_type not in without)


def gradient(x: np.ndarray, shape, perm, axis: int, ct: np.ndarray) -> np.ndarray:
    """What x gets, each part from the two others."""
    viewed = x if shape is None else x.reshape(shape)
    turned = viewed if perm is None else viewed.transpose(perm)
    p, q, r = np.moveaxis(turned, axis, 0)
    stacked = np.stack([ct * q * r, ct * p * r, ct * p * q], axis)
    return (stacked if perm is None else stacked.transpose(np.argsort(perm))).reshape(x.shape)


@pytest.mark.parametrize("name", CASES)
def test_what_is_stacked_is_joined(name):
    x, shape, perm, axis, expected = CASES[name]
    result = gradgen.vjp(parts_model(x, shape, perm, axis), wrt=["x"])
    assert added(result, "Mul") == sorted(expected)
    sizes = tuple(int(d) if d.isdigit() else 5 for d in x.split(","))
    rng = np.random.default_rng(1)
    point = rng.standard_normal(sizes)
    run = Evaluator(result, strict=True)
    forward = Evaluator(parts_model(x, shape, perm, axis))({"x": point})["y"]
    ct = rng.standard_normal(forward.shape)
    found = run({"x": point, "grad_y": ct})["grad_x"]
    np.testing.assert_allclose(found, gradient(point, shape, perm, axis, ct), rtol=1e-12)


@pytest.mark.parametrize("of", ["u", "b"])
def test_what_others_read_stays_stacked(of):
    """The cotangent of a part with its axis, or of all of them before they are turned back, is an output itself."""
    x, shape, perm, axis, _ = CASES["turned"]
    result = gradgen.vjp(parts_model(x, shape, perm, axis), wrt=["x", of])
    expected = {
        "u": ["Concat", "Reshape", "Transpose", *3 * ["Unsqueeze"]],
        "b": [*2 * ["Reshape"], "Concat", "Transpose"],
    }
    assert added(result, "Mul") == sorted(expected[of])
    rng = np.random.default_rng(2)
    point, ct = rng.standard_normal((6, 24)), rng.standard_normal((2, 2, 3, 4))
    found = Evaluator(result)({"x": point, "grad_y": ct})
    np.testing.assert_allclose(found["grad_x"], gradient(point, shape, perm, axis, ct), rtol=1e-12)
    turned = point.reshape(shape).transpose(perm)
    each = np.stack([ct * turned[1] * turned[2], ct * turned[0] * turned[2], ct * turned[0] * turned[1]])
    np.testing.assert_allclose(found[f"grad_{of}"], each if of == "b" else each[:1], rtol=1e-12)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_tangents_of_a_stack_are_joined_and_its_own_nodes_stay(axis):
    proto = model(
        "g (double[2,4] x, double[2,4] w) => (double y) "
        f"{{ a = Unsqueeze(x, k)\n b = Unsqueeze(w, k)\n y = Concat<axis={axis}>(a, b) }}",
        k=np.array([axis]),
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")  # fmt: skip
    result = gradgen.jvp(proto, wrt=["x", "w"])
    assert [n.op_type for n in result.graph.node][:3] == ["Unsqueeze", "Unsqueeze", "Concat"]
    assert added(result) == (["Concat", "Reshape"] if axis < 2 else ["Concat", "Unsqueeze", "Unsqueeze"])
    rng = np.random.default_rng(3)
    feeds = {n: rng.standard_normal((2, 4)) for n in ("x", "w", "tangent_x", "tangent_w")}
    found = Evaluator(result, strict=True)(feeds)
    np.testing.assert_array_equal(found["tangent_y"], np.stack([feeds["tangent_x"], feeds["tangent_w"]], axis))
    np.testing.assert_array_equal(found["y"], np.stack([feeds["x"], feeds["w"]], axis))


# What the product gets from the sum is repeated, and then read as a matrix.
REPEATED = """g ({kind}[{batch},4] x, {kind}[4,{width}] w) => ({kind} y) {{
    p = MatMul(x, w)\n y = ReduceSum<keepdims={kept}>(p, a) }}"""
REPEATS = {
    # The type, the batch of x, the width of what is repeated, along which axis, whether that is kept; what spreads it.
    "tokens": ("double", "2,5", 32, 1, 0, ["Tile", "Reshape"]),
    "tokens of an open batch": ("double", "N,5", 32, 1, 0, ["Tile", "Reshape"]),
    "as many as there are others": ("double", "5,5", 32, 1, 0, ["Tile", "Reshape"]),
    "the batch": ("double", "2,5", 7, 0, 0, ["Tile"]),
    "groups": ("double", "2,3,2", 16, 1, 0, ["Tile", "Reshape"]),
    "in float32": ("float", "2,5", 32, 1, 0, ["Tile", "Reshape"]),
    "in half precision": ("float16", "2,5", 32, 1, 0, ["Unsqueeze", "Expand", "Flatten"]),
    "small ones": ("double", "2,5", 31, 1, 0, ["Unsqueeze", "Expand", "Flatten"]),
    "of an open size": ("double", "2,N", 32, 1, 0, ["Shape", "Unsqueeze", "Expand", "Flatten"]),
    "elements": ("double", "2,5", 32, 2, 0, ["Reshape", "Expand"]),
    "no axis is added": ("double", "2,5", 32, 1, 1, ["Expand", "Flatten"]),
}


@pytest.mark.parametrize("name", REPEATS)
def test_what_is_repeated_along_an_axis_of_its_own_is_tiled(name):
    kind, batch, width, axis, kept, expected = REPEATS[name]
    proto = model(REPEATED.format(kind=kind, batch=batch, width=width, kept=kept), a=np.array([axis]))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    result = gradgen.vjp(proto, wrt=["x"])
    # Then it is multiplied by w turned, and the rows of the product get their batch back.
    assert added(result) == sorted([*expected, "Gemm", "Reshape"])
    sizes = tuple(int(d) if d.isdigit() else 5 for d in batch.split(","))
    dtype = {"double": np.float64, "float": np.float32, "float16": np.float16}[kind]
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((*sizes, 4)).astype(dtype), rng.standard_normal((4, width)).astype(dtype)
    ct = rng.standard_normal((x @ w).sum(axis, keepdims=bool(kept)).shape).astype(dtype)
    run = Evaluator(result, strict=True)
    found = run({n: v for n, v in {"x": x, "w": w, "grad_y": ct}.items() if n in run.input_names})["grad_x"]
    spread = np.broadcast_to(ct if kept else np.expand_dims(ct, axis), (*sizes, width)).astype(np.float64)
    want = spread @ w.T.astype(np.float64)
    rtol = {"double": 1e-12, "float": 1e-5, "float16": 1e-2}[kind]
    np.testing.assert_allclose(found, want, rtol=rtol, atol=rtol * np.abs(want).max())


def test_what_is_repeated_for_others_too_and_in_portable_models_is_expanded():
    """The cotangent of p is an output."""
    proto = model(REPEATED.format(kind="double", batch="2,5", width=32, kept=0), a=np.array([1]))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert "Tile" not in added(gradgen.vjp(proto, wrt=["x", "p"]))
    assert "Tile" not in added(gradgen.vjp(proto, wrt=["x"], portable=True))


def test_a_gradient_that_tiles_is_differentiated_again():
    proto = model(REPEATED.format(kind="double", batch="2,5", width=32, kept=0), a=np.array([1]))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    first = gradgen.vjp(proto, wrt=["x"])
    second = gradgen.vjp(first, wrt=["grad_y", "w"], of=["grad_x"])
    assert "Tile" in [n.op_type for n in first.graph.node]
    rng = np.random.default_rng(5)
    w, ct, back = rng.standard_normal((4, 32)), rng.standard_normal((2, 32)), rng.standard_normal((2, 5, 4))
    run = Evaluator(second, strict=True)
    feeds = {"x": np.zeros((2, 5, 4)), "w": w, "grad_y": ct, "grad_grad_x": back}
    found = run({n: v for n, v in feeds.items() if n in run.input_names})
    np.testing.assert_allclose(found["grad_grad_y"], (back @ w).sum(1), rtol=1e-12)
    np.testing.assert_allclose(found["grad_w"], np.einsum("btx,bw->xw", back, ct), rtol=1e-12)
