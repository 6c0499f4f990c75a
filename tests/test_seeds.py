"""Several cotangents at once, and gradients of an element that is chosen at run time."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from matrices import at_level, body_of, check_shape, drawn, model, near, opened, run_all

import gradgen
from gradgen.errors import GradientError

TEXT = """(float[4,3] x, float[3,2] w) => (float[4,2] y, float z) {
  h = MatMul(x, w) t = Tanh(h) y = Mul(t, t) z = ReduceSum<keepdims=0>(t) }"""
FEEDS = {"x": drawn(4, 3), "w": drawn(3, 2)}
CNN = """(float[2,1,6,6] x, float[2,1,3,3] w) => (float[2,2,3,3] y) {
  c = Conv<pads=[1,1,1,1]>(x, w) p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c) y = Tanh(p) }"""
LSTM = "(float[3,2,2] x, float[1,12,2] w, float[1,12,3] r) => (float[3,1,2,3] y) { y = LSTM<hidden_size=3>(x, w, r) }"
LOOP = """(int64 m, float[3] x, float[3] w) => (float[3] s) {
  s = Loop (m, , x) <body = step (int64 i, bool c, float[3] h) => (bool go, float[3] next) {
    go = Identity(c) a = Mul(h, w) next = Sin(a) }> }"""
GROWING = """(int64 m, float[1,3] x, float[3] w) => (float[N,3] s) {
  s = Loop (m, , x) <body = step (int64 i, bool c, float[A,3] h) => (bool go, float[B,3] next) {
    go = Identity(c) a = Mul(h, w) axes = Constant <value_ints=[0]> () row = ReduceSum <keepdims=1> (a, axes)
    r = Sin(row) next = Concat <axis=0> (a, r) }> }"""
IF = """(bool c, float[3] x) => (float[3] y) {
  h = Mul(x, x) y = If (c) <then_branch = t () => (float[3] a) { a = Sin(h) },
                            else_branch = e () => (float[3] b) { b = Mul(h, x) }> }"""
CASES = {
    "dense": (TEXT, FEEDS, ["x", "w"]),
    "cnn": (CNN, {"x": drawn(2, 1, 6, 6), "w": drawn(2, 1, 3, 3)}, ["x", "w"]),
    "lstm": (LSTM, {"x": drawn(3, 2, 2), "w": drawn(1, 12, 2), "r": drawn(1, 12, 3)}, ["x", "w", "r"]),
    "loop": (LOOP, {"m": np.asarray(3), "x": drawn(3), "w": drawn(3, seed=1)}, ["x", "w"]),
    "growing": (GROWING, {"m": np.asarray(2), "x": drawn(1, 3), "w": drawn(3, seed=1)}, ["x", "w"]),
    "if": (IF, {"c": np.asarray(True), "x": drawn(3)}, ["x"]),
}


@pytest.mark.parametrize("seeds", [1, 3, "K"])
@pytest.mark.parametrize("name", CASES)
def test_each_cotangent_is_pulled_back(name, seeds):
    """Against the model of one cotangent, which other tests compare with differences."""
    text, feeds, wrt = CASES[name]
    built, single = gradgen.vjp(model(text), wrt=wrt, seeds=seeds), gradgen.vjp(model(text), wrt=wrt)
    assert [v.name for v in built.graph.input] == [v.name for v in single.graph.input]
    assert [v.name for v in built.graph.output] == [v.name for v in single.graph.output]
    outputs = dict(zip([o.name for o in model(text).graph.output], at_level(model(text), feeds), strict=True))
    for count in (1, 3) if seeds == "K" else (seeds,):
        cts = {f"grad_{n}": drawn(count, *v.shape, seed=7) for n, v in outputs.items()}
        found = run_all(built, {**feeds, **cts})
        for k in range(count):
            want = run_all(single, {**feeds, **{n: ct[k] for n, ct in cts.items()}})
            for x in wrt:
                near(found[f"grad_{x}"][k], want[f"grad_{x}"], 1e-9)


def test_no_cotangent_where_their_number_is_open():
    built = gradgen.vjp(model(TEXT), wrt=["x", "w"], seeds="K")
    feeds = {**FEEDS, "grad_y": drawn(0, 4, 2), "grad_z": drawn(0)}
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        _, _, dx, dw = at_level(built, feeds, level)
        assert dx.shape == (0, 4, 3) and dw.shape == (0, 3, 2)


def test_shapes_are_declared():
    built = gradgen.vjp(opened(model(TEXT), {"x": ("N", 3)}), of=["y"], seeds="K")
    dims = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in [*built.graph.input, *built.graph.output]
    }
    assert dims["grad_y"] == ["K", "N", 2] and dims["grad_x"] == ["K", "N", 3] and dims["grad_w"] == ["K", 3, 2]
    for name, value in zip(dims, at_level(built, {**FEEDS, "grad_y": drawn(2, 4, 2)}), strict=False):
        assert name or check_shape(built, name, value)


def test_the_forward_pass_runs_once():
    built, single = gradgen.vjp(model(CNN), seeds=5), gradgen.vjp(model(CNN))
    body = body_of(built)
    assert len(built.graph.node) - 1 + len(body.node) == len(single.graph.node)
    reached = {body.input[0].name}
    for node in body.node:
        assert reached & set(node.input), f"{node.name} does not depend on the cotangents"
        reached |= set(node.output)


def test_random_nodes_draw_once():
    text = "(float[40] x) => (float[40] y) { n = RandomNormalLike(x) y = Mul(n, x) }"
    y, found = at_level(gradgen.vjp(model(text), seeds=3), {"x": drawn(40), "grad_y": np.ones((3, 40), np.float32)})
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[2] * drawn(40), y, rtol=1e-6)


def test_a_gradient_that_no_cotangent_reaches():
    text = "(float[2] x, float[2] z) => (float[2] y) { y = Sin(x) u = Mul(x, z) }"
    with pytest.warns(gradgen.GradientWarning, match="'z' does not influence"):
        built = gradgen.vjp(model(text), wrt=["x", "z"], seeds=2)
    found = run_all(built, {"x": drawn(2), "z": drawn(2), "grad_y": drawn(2, 2)})
    assert found["grad_z"].shape == (2, 2) and not found["grad_z"].any()


def test_straight_through_quantisation():
    text = """(float[3] x) => (float[3] y) { s = Constant<value_float=0.1>() z = Constant<value=uint8 {128}>()
      q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"""
    built = gradgen.vjp(model(text), straight_through=True, seeds=2)
    cts = drawn(2, 3)
    y, found = at_level(built, {"x": drawn(3), "grad_y": cts})
    np.testing.assert_allclose(found, cts, rtol=1e-6)
    assert y.shape == (3,)


def test_compositions():
    """A vjp model, differentiated for several cotangents; such a model, differentiated again through its Scan."""
    first = gradgen.vjp(model(TEXT), of=["y"], wrt=["w"], seeds=2)
    feeds = {**FEEDS, "grad_y": drawn(2, 4, 2)}
    again = gradgen.vjp(first, wrt=["x", "grad_y"], of=["grad_w"], seeds=3)
    assert [v.name for v in again.graph.input] == ["x", "w", "grad_y", "grad_grad_w"]
    plain = gradgen.vjp(gradgen.vjp(model(TEXT), of=["y"], wrt=["w"]), wrt=["x", "grad_y"], of=["grad_w"])
    cts = drawn(3, 2, 3, 2)
    found = run_all(again, {**feeds, "grad_grad_w": cts})
    for k in range(3):
        parts = [run_all(plain, {**feeds, "grad_y": feeds["grad_y"][j], "grad_grad_w": cts[k, j]}) for j in range(2)]
        near(found["grad_x"][k], sum(p["grad_x"] for p in parts), 1e-9)
        near(found["grad_grad_y"][k], np.stack([p["grad_grad_y"] for p in parts]), 1e-9)


def test_refusals():
    for seeds in (0, -1, 2.0, True, "", "a b"):
        with pytest.raises(GradientError, match="seeds is a number of cotangents from 1 on, or the name"):
            gradgen.vjp(model(TEXT), seeds=seeds)
    sequence = model("(float[3] x) => (seq(float[3]) y) { y = SequenceConstruct(x, x) }")
    with pytest.raises(GradientError, match="'y' is not a tensor of known rank"):
        gradgen.vjp(sequence, of=["y"], seeds=2)


@pytest.mark.parametrize(
    ("text", "name", "holder"),
    [
        ("(float[N,3] x) => (float[N,3] y) { y = Sin(x) }", "N", "x"),
        (GROWING, "N", "s"),
        (GROWING, "A", "h"),
        (GROWING, "B", "next"),
    ],
)
def test_the_name_of_the_batch_is_not_that_of_another_dimension(text, name, holder):
    with pytest.raises(GradientError, match=f"seeds: '{name}' is the name of a dimension of '{holder}' already"):
        gradgen.vjp(model(text), seeds=name)
    gradgen.vjp(model(text), seeds=f"{name}2")
    within = opened(model("(float[4] x) => (float[4] y) { y = Sin(x) }"), {"x": (f"2*{name} - 2",)})
    with pytest.raises(GradientError, match=f"seeds: '{name}' is the name of a dimension of 'x' already"):
        gradgen.vjp(within, seeds=name)


# One element, chosen at run time


@pytest.mark.parametrize("index", [(0, 0), (3, 1), (-1, -2), (2, -1)])
def test_a_chosen_element(index):
    built = gradgen.value_and_grad(model(TEXT), wrt=["x", "w"], of="y", reduce="element")
    info = built.graph.input[-1]
    assert info.name == "index_y" and info.type.tensor_type.elem_type == onnx.TensorProto.INT64
    assert [d.dim_value for d in info.type.tensor_type.shape.dim] == [2]
    found = run_all(built, {**FEEDS, "index_y": np.asarray(index)})
    assert list(found) == ["y", "z", "grad_x", "grad_w"]
    ct = np.zeros((4, 2), np.float32)
    ct[index] = 1
    want = run_all(gradgen.vjp(model(TEXT), of=["y"]), {**FEEDS, "grad_y": ct})
    near(found["grad_x"], want["grad_x"], 1e-9)
    near(found["grad_w"], want["grad_w"], 1e-9)


def test_chosen_elements_of_several_outputs_are_added_and_a_scalar_needs_no_index():
    built = gradgen.grad(model(TEXT), wrt=["w"], of=["y", "z"], reduce="element")
    assert [i.name for i in built.graph.input] == ["x", "w", "index_y"]
    ct = np.zeros((4, 2), np.float32)
    ct[1, 0] = 1
    want = run_all(gradgen.vjp(model(TEXT), wrt=["w"]), {**FEEDS, "grad_y": ct, "grad_z": np.float32(1)})
    near(run_all(built, {**FEEDS, "index_y": np.array([1, 0])})["grad_w"], want["grad_w"], 1e-9)


def test_a_chosen_element_where_sizes_are_open():
    built = gradgen.grad(opened(model(TEXT), {"x": ("N", "K"), "w": ("K", "M")}), of="y", reduce="element")
    (dx, _) = at_level(built, {**FEEDS, "index_y": np.array([-1, 0])})
    assert dx[-1].any() and not dx[:-1].any()


def test_an_index_outside_is_refused_when_the_model_runs():
    built = gradgen.grad(model(TEXT), of="y", reduce="element")
    for index in ([4, 0], [0, 2], [-5, 0]):
        with pytest.raises(Exception, match="(?i)ind"):
            at_level(built, {**FEEDS, "index_y": np.array(index)})


def test_the_names_of_indices():
    text = "(float[2] x, int64 index_y) => (float[2] y) { y = Sin(x) }"
    built = gradgen.grad(model(text), reduce="element")
    assert [i.name for i in built.graph.input] == ["x", "index_y", "index2_y"]
    (names,) = [p.value for p in built.metadata_props if p.key == "gradgen.names"]
    assert '"index2_y": {"role": "index", "source": "y"}' in names


def test_a_hessian_vector_product_of_a_chosen_element():
    text = "(float[3] x) => (float[3] y) { y = Sin(x) }"
    built = gradgen.hvp(model(text), reduce="element")
    found = run_all(built, {"x": drawn(3), "index_y": np.array([-1]), "vector_x": np.ones(3, np.float32)})["hvp_x"]
    near(found, np.array([0, 0, -np.sin(drawn(3).astype(np.float64)[2])]), 1e-7)


def test_how_an_output_may_be_reduced():
    with pytest.raises(GradientError, match="reduce is None, 'sum' or 'element', not 'mean'"):
        gradgen.grad(model(TEXT), of="y", reduce="mean")
    with pytest.raises(GradientError, match=r'reduce="element" for that of an element which an input chooses'):
        gradgen.grad(model(TEXT), of="y")
