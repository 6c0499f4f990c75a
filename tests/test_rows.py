# Batches of rows as matrices: values of primal and gradients, what nodes are left, and what keeps its axes.
"""Tests of the rewriting of batches of rows into matrices, on what vjp writes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from text_models import model

import gradgen
from gradgen.evaluate import Evaluator


def checked(text: str, wrt: list[str], **sizes: int) -> Counter[str]:
    """Op types of the vjp of a model, whose outputs are the primal's and whose gradients are those of differences."""
    primal = model(text)
    result = gradgen.vjp(primal, wrt=wrt)
    onnx.checker.check_model(result, full_check=True)
    rng = np.random.default_rng(1)
    feeds = {}
    for value in primal.graph.input:
        tensor = value.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[value.name] = rng.uniform(0.1, 0.6, shape).astype(dtype)
    primary = Evaluator(primal)(feeds)
    cts = {n: rng.standard_normal(v.shape).astype(v.dtype) for n, v in primary.items()}
    found = Evaluator(result)({**feeds, **{f"grad_{n}": ct for n, ct in cts.items()}})
    for name, value in primary.items():
        assert found[name].shape == value.shape
        np.testing.assert_allclose(found[name], value, rtol=1e-13)
    for name in wrt:
        direction, step = rng.standard_normal(feeds[name].shape), 1e-5
        ends = [Evaluator(primal)({**feeds, name: feeds[name] + s * step * direction}) for s in (1, -1)]
        quotient = sum(float(np.vdot(cts[n], ends[0][n] - ends[1][n])) for n in cts) / (2 * step)
        assert found[f"grad_{name}"].shape == feeds[name].shape
        np.testing.assert_allclose(np.vdot(found[f"grad_{name}"], direction), quotient, rtol=1e-7)
    return Counter(n.op_type for n in result.graph.node)


@pytest.mark.parametrize(("batch", "sizes"), [("2,3", {}), ("N,3", {"N": 2}), ("2,N", {"N": 3}), ("2,1,3", {})])
def test_layers_have_one_view_for_each_input_and_output(batch, sizes):
    kinds = checked(
        f"g (double[{batch},4] x, double[4,5] w, double[5] b, double[5,4] v, double[4] s) => (double[{batch},4] y) "
        "{ p = MatMul(x, w)\n a = Add(p, b)\n t = Tanh(a)\n q = MatMul(t, v)\n r = Add(q, x)\n"
        " y = LayerNormalization<axis=-1>(r, s) }",
        ["x", "w", "b", "v", "s"], **sizes,
    )  # fmt: skip
    assert kinds["Flatten"] == 2 and kinds["Reshape"] == 2 and kinds["MatMul"] == 1, "x and ct, y and its gradient"


def test_an_open_number_of_rows_that_may_be_none():
    text = (
        "g (double[N,3,4] x, double[4,4] w) => (double[N,3,4] y) { p = MatMul(x, w)\n t = Exp(p)\n y = MatMul(t, w) }"
    )
    result = gradgen.vjp(model(text), wrt=["x", "w"])
    empty = np.zeros((0, 3, 4))
    found = Evaluator(result)({"x": empty, "w": np.eye(4), "grad_y": empty})
    assert found["y"].shape == found["grad_x"].shape == (0, 3, 4) and not found["grad_w"].any()


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Softmax<axis=2>(p)\n b = Mul(a, p)",
        "i = Constant<value_ints=[2]>()\n m = ReduceMean<keepdims=1>(p, i)\n b = Sub(p, m)",
        "i = Constant<value_ints=[-1]>()\n m = ReduceMax<keepdims=1>(p, i)\n e = Sub(p, m)\n b = Exp(e)",
        "l, r = Split<axis=2, num_outputs=2>(p)\n c = Concat<axis=-1>(r, l)\n b = Mul(c, p)",
        "k = LessOrEqual(p, x)\n b = Where(k, p, x)",
        "b = LpNormalization<axis=-1>(p)",
        "i = Constant<value_ints=[0, 1]>()\n m = ReduceSum<keepdims=0>(p, i)\n b = Mul(p, m)",
        "i = Constant<value_ints=[1, 0]>()\n m = ReduceMean<keepdims=0>(p, i)\n b = Mul(p, m)",
        "i = Constant<value_ints=[1]>()\n m = ReduceMean<keepdims=1>(p, i)\n b = Mul(p, m)",
        "i = Constant<value_ints=[0, 2, 2, 2]>()\n h = Reshape(p, i)\n t = Transpose<perm=[0, 2, 1, 3]>(h)\n"
        " e = Exp(t)\n j = Constant<value_ints=[0, -1, 4]>()\n f = Reshape(e, j)\n b = Mul(f, p)",
        "f = Flatten<axis=2>(p)\n e = Exp(f)\n i = Constant<value_ints=[2, 2, 4]>()\n b = Reshape(e, i)",
        "f = Flatten<axis=1>(p)\n e = Exp(f)\n i = Constant<value_ints=[2, 2, 4]>()\n b = Reshape(e, i)",
        "i = Constant<value_ints=[0]>()\n u = Unsqueeze(p, i)\n e = Exp(u)\n b = Squeeze(e, i)",
        "b = Mul(p, p)",
        "t = Transpose<perm=[1, 0, 2]>(p)\n e = Exp(t)\n b = Mul(e, p)",
    ],
)
def test_what_stands_between_two_products(nodes):
    checked(
        f"g (double[2,2,4] x, double[4,4] w) => (double[2,2,4] y) {{ p = MatMul(x, w)\n {nodes}\n y = MatMul(b, w) }}",
        ["x", "w"],
    )


@pytest.mark.parametrize("shape", ["1,4", "2,4", "2,2,4", "1,1,4", "2,1", "1", "2,2,1", "1,2,1"])
def test_what_is_broadcast_keeps_what_it_is_broadcast_along(shape):
    checked(
        f"g (double[2,2,4] x, double[4,4] w, double[{shape}] b) => (double[2,2,4] y) "
        "{ p = MatMul(x, w)\n a = Add(p, b)\n t = Tanh(a)\n q = MatMul(t, w)\n y = Mul(q, b) }",
        ["x", "w", "b"],
    )


def test_what_lies_between_can_be_an_output_too():
    kinds = checked(
        "g (double[2,3,4] x, double[4,5] w, double[5] b, double[5,4] v) => (double[2,3,5] p, double[2,3,5] a, "
        "double[2,3,5] t, double[2,3,4] y, double[6,5] f) "
        "{ p = MatMul(x, w)\n a = Add(p, b)\n t = Tanh(a)\n f = Flatten<axis=2>(t)\n y = MatMul(t, v) }",
        ["x", "w", "b", "v"],
    )  # fmt: skip
    assert kinds["Tanh"] == 1


def test_what_a_branch_captures_keeps_its_axes():
    checked(
        "g (double[2,3,4] x, double[4,4] w, bool c) => (double[2,3,4] y) { p = MatMul(x, w)\n t = Tanh(p)\n"
        " k = If (c) <then_branch = g1 () => (double[2,3,4] o) { o = Transpose<perm=[0,1,2]>(t) },"
        " else_branch = g2 () => (double[2,3,4] z) { z = Mul(t, t) }>\n q = MatMul(t, w)\n y = Add(q, k) }",
        ["x", "w"],
    )


def test_weights_that_are_stored_transposed_are_read_so():
    kinds = checked(
        "g (double[2,3,4] x, double[5,4] w, double[5] b) => (double[2,3,5] y) "
        "{ t = Transpose<perm=[1,0]>(w)\n p = MatMul(x, t)\n a = Add(b, p)\n y = Tanh(a) }",
        ["x", "w", "b"],
    )
    assert kinds["Transpose"] == 0 and kinds["MatMul"] == 0


def test_two_open_axes_stay():
    kinds = checked(
        "g (double[N,M,4] x, double[4,5] w, double[5] b) => (double[N,M,5] y) "
        "{ p = MatMul(x, w)\n a = Add(p, b)\n y = Tanh(a) }",
        ["x", "w", "b"], N=2, M=3,
    )  # fmt: skip
    assert kinds["Tanh"] == 1


def test_half_precision_keeps_the_product_apart():
    """A Gemm rounds the sum once, MatMul and Add twice."""
    text = ("g (float16[2,3,4] x, float16[4,5] w, float16[5] b) => (float16[2,3,5] y) "
            "{ p = MatMul(x, w)\n a = Add(p, b)\n y = Tanh(a) }")  # fmt: skip
    result = gradgen.vjp(model(text), wrt=["x", "w", "b"])
    assert "MatMul" in [n.op_type for n in result.graph.node]


def test_a_constant_is_stored_as_rows_and_no_node_views_it():
    text = ("g (double[2,3,4] x, double[4,5] w, double[5,4] v) => (double l) "
            "{ p = MatMul(x, w)\n t = Tanh(p)\n q = MatMul(t, v)\n l = ReduceMean<keepdims=0>(q) }")  # fmt: skip
    result = gradgen.grad(model(text), wrt=["w", "v"])
    assert [list(n.input) for n in result.graph.node if n.op_type == "Flatten"] == [["x"]]
    x, w, v = (np.random.default_rng(0).standard_normal(s) for s in ((2, 3, 4), (4, 5), (5, 4)))
    slope = (1 - np.tanh(x @ w) ** 2) * v.sum(1) / 24
    found = Evaluator(result)({"x": x, "w": w, "v": v})
    np.testing.assert_allclose(found["grad_w"], np.einsum("abi,abj->ij", x, slope), rtol=1e-11)
    np.testing.assert_allclose(found["grad_v"], np.tanh(x @ w).sum((0, 1))[:, None] / 24 + np.zeros(4), rtol=1e-11)


def test_names_of_values_that_stay_are_the_models_own():
    text = "g (double[2,3,4] x, double[4,5] w) => (double[2,3,5] y) { p = MatMul(x, w)\n y = Tanh(p) }"
    proto = model(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(1), "p/rows"))
    result = gradgen.vjp(proto, wrt=["x", "w"])
    names = [o for n in result.graph.node for o in n.output] + [t.name for t in result.graph.initializer]
    assert len(set(names)) == len(names)
    assert [o.name for o in result.graph.output] == ["y", "grad_x", "grad_w"]
