# Each rewrite of matrix products: that it applies, that values are those of numpy in float64, what it must leave alone.
"""Tests of the rewrites of products with a matrix, on what vjp writes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from text_models import model

import gradgen
from gradgen.evaluate import Evaluator
from gradgen.rules import rewrites_linear, rewriting


def pulled(proto: onnx.ModelProto, wrt: list[str]) -> tuple[list[str], onnx.ModelProto]:
    """Op types of the nodes that are not the primal's, sorted, and the vjp."""
    result = gradgen.vjp(proto, wrt=wrt)
    onnx.checker.check_model(result, full_check=True)
    added = [n for n in result.graph.node if any(p.key == "gradgen.node" for p in n.metadata_props)]
    return sorted(n.op_type for n in added), result


def arrays(seed: int = 0, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n: rng.standard_normal(s) for n, s in shapes.items()}


def rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, x.shape[-1])


RESIDUAL = """g (double[{batch}] x, double[4,4] w, double[4,4] v) => (double[{batch}] y) {{
    p = MatMul(x, w)\n q = MatMul(x, v)\n s = Add(p, q)\n y = Add(s, x) }}"""


@pytest.mark.parametrize("batch", ["2,3,4", "N,3,4", "2,N,4", "2,3,5,4"])
def test_the_products_of_one_input_and_what_bypasses_them_are_one_sum(batch):
    kinds, result = pulled(model(RESIDUAL.format(batch=batch)), ["x", "w", "v"])
    assert kinds == ["Flatten", "Flatten", "Gemm", "Gemm", "Gemm", "Gemm", "Reshape"]
    shape = tuple(int(d) if d.isdigit() else 3 for d in batch.split(","))
    f = arrays(x=shape, w=(4, 4), v=(4, 4), grad_y=shape)
    found, ct = Evaluator(result)(f), f["grad_y"]
    np.testing.assert_allclose(found["grad_x"], ct + ct @ f["w"].T + ct @ f["v"].T, rtol=1e-12)
    np.testing.assert_allclose(found["grad_w"], rows(f["x"]).T @ rows(ct), rtol=1e-12)
    np.testing.assert_allclose(found["grad_v"], rows(f["x"]).T @ rows(ct), rtol=1e-12)


@pytest.mark.parametrize("batch", ["N,M,4", "0,3,4"])
def test_batches_that_no_constant_shape_restores_stay(batch):
    kinds, result = pulled(model(RESIDUAL.format(batch=batch)), ["x"])
    assert kinds.count("MatMul") == 2 and "Reshape" not in kinds
    shape = tuple(int(d) if d.isdigit() else 3 for d in batch.split(","))
    f = arrays(x=shape, w=(4, 4), v=(4, 4), grad_y=shape)
    ct = f["grad_y"]
    np.testing.assert_allclose(Evaluator(result)(f)["grad_x"], ct + ct @ f["w"].T + ct @ f["v"].T, rtol=1e-12)


def test_no_rows_at_run_time():
    _, result = pulled(model(RESIDUAL.format(batch="N,3,4")), ["x", "w", "v"])
    found = Evaluator(result)(arrays(x=(0, 3, 4), w=(4, 4), v=(4, 4), grad_y=(0, 3, 4)))
    assert found["grad_x"].shape == (0, 3, 4) and not found["grad_w"].any()


@pytest.mark.parametrize("batch", ["3", "2,3"])
def test_what_comes_after_a_product_is_not_its_addend(batch):
    """exp(x) is pulled back behind the product, which would have to wait for it."""
    proto = model(f"g (double[{batch},4] x, double[4,4] w) => (double[{batch},4] y) "
                  "{ e = Exp(x)\n p = MatMul(x, w)\n y = Add(p, e) }")  # fmt: skip
    kinds, result = pulled(proto, ["x"])
    assert kinds.count("Add") == 1
    gemm = next(n for n in result.graph.node if n.op_type == "Gemm")
    assert len(gemm.input) == 2
    shape = (*map(int, batch.split(",")), 4)
    f = arrays(x=shape, w=(4, 4), grad_y=shape)
    expected = f["grad_y"] * np.exp(f["x"]) + f["grad_y"] @ f["w"].T
    np.testing.assert_allclose(Evaluator(result)(f)["grad_x"], expected, rtol=1e-12)


def test_the_gradients_of_a_shared_weight_add_up_from_layer_to_layer():
    proto = model("g (double[3,4] x, double[4,4] w) => (double[3,4] y) "
                  "{ a = MatMul(x, w)\n b = MatMul(a, w)\n c = MatMul(b, w)\n y = MatMul(c, w) }")  # fmt: skip
    kinds, result = pulled(proto, ["w"])
    assert kinds == ["Gemm"] * 7
    f = arrays(x=(3, 4), w=(4, 4), grad_y=(3, 4))
    x, w, ct = f["x"], f["w"], f["grad_y"]
    expected, primal = np.zeros((4, 4)), [x]
    for _ in range(3):
        primal.append(primal[-1] @ w)
    for value in reversed(primal):
        expected += value.T @ ct
        ct = ct @ w.T
    np.testing.assert_allclose(Evaluator(result)(f)["grad_w"], expected, rtol=1e-11)


def test_the_factor_of_an_addend_that_was_not_there_is_not_that_of_another():
    """The tangent of the product has its β, and no addend until that of x is one."""
    proto = model("g (double[3,4] x, double[4,4] w, double[4] c) => (double[3,4] y) "
                  "{ p = Gemm<beta=3.0>(x, w, c)\n y = Add(p, x) }")  # fmt: skip
    result = gradgen.jvp(proto, wrt=["x"])
    assert "Add" not in [n.op_type for n in result.graph.node][2:]
    f = arrays(x=(3, 4), w=(4, 4), c=(4,), tangent_x=(3, 4))
    found = Evaluator(result)(f)["tangent_y"]
    np.testing.assert_allclose(found, f["tangent_x"] + f["tangent_x"] @ f["w"], rtol=1e-12)


def test_a_bias_for_each_position_is_summed_over_the_batch_alone():
    proto = model("g (double[2,3,4] x, double[4,5] w, double[3,5] b) => (double[2,3,5] y) "
                  "{ p = MatMul(x, w)\n y = Add(p, b) }")  # fmt: skip
    _, result = pulled(proto, ["w", "b"])
    f = arrays(x=(2, 3, 4), w=(4, 5), b=(3, 5), grad_y=(2, 3, 5))
    found = Evaluator(result)(f)
    np.testing.assert_allclose(found["grad_b"], f["grad_y"].sum(0), rtol=1e-12)
    np.testing.assert_allclose(found["grad_w"], rows(f["x"]).T @ rows(f["grad_y"]), rtol=1e-12)


LAYERS = """g (double[{n},3,4] x, double[4,5] w, double[5] b, double[5,4] v) => (double[{n},3,4] y) {{
    p = MatMul(x, w)\n a = Add(p, b)\n r = {activation}(a)\n y = MatMul(r, v) }}"""


@pytest.mark.parametrize("n", ["2", "N"])
@pytest.mark.parametrize("activation", ["Tanh", "Relu"])
def test_rows_stay_a_matrix_from_layer_to_layer(activation, n):
    """One Flatten for each input, one Reshape for each output."""
    kinds, result = pulled(model(LAYERS.format(n=n, activation=activation)), ["x", "w", "b", "v"])
    assert kinds.count("Reshape") == 2 and kinds.count("Flatten") == 2
    f = arrays(x=(2, 3, 4), w=(4, 5), b=(5,), v=(5, 4), grad_y=(2, 3, 4))
    found, ct = Evaluator(result)(f), f["grad_y"]
    before = f["x"] @ f["w"] + f["b"]
    after = np.tanh(before) if activation == "Tanh" else np.maximum(before, 0)
    slope = 1 - after**2 if activation == "Tanh" else (before > 0).astype(float)
    inner = ct @ f["v"].T * slope
    np.testing.assert_allclose(found["grad_v"], rows(after).T @ rows(ct), rtol=1e-11)
    np.testing.assert_allclose(found["grad_b"], inner.sum((0, 1)), rtol=1e-11)
    np.testing.assert_allclose(found["grad_w"], rows(f["x"]).T @ rows(inner), rtol=1e-11)
    np.testing.assert_allclose(found["grad_x"], inner @ f["w"].T, rtol=1e-11)


def test_masks_of_two_ops_between_layers():
    proto = model("g (double[2,3,4] x, double[4,5] w, double[2,3,5] m, double[5,4] v) => (double[2,3,4] y) "
                  "{ p = MatMul(x, w)\n d = Mul(p, m)\n r = Exp(d)\n y = MatMul(r, v) }")  # fmt: skip
    kinds, result = pulled(proto, ["x", "w"])
    assert kinds.count("Reshape") == 1
    f = arrays(x=(2, 3, 4), w=(4, 5), m=(2, 3, 5), v=(5, 4), grad_y=(2, 3, 4))
    inner = f["grad_y"] @ f["v"].T * np.exp(f["x"] @ f["w"] * f["m"]) * f["m"]
    found = Evaluator(result)(f)
    np.testing.assert_allclose(found["grad_w"], rows(f["x"]).T @ rows(inner), rtol=1e-11)
    np.testing.assert_allclose(found["grad_x"], inner @ f["w"].T, rtol=1e-11)


def test_a_factor_that_is_broadcast_keeps_the_batch_axes():
    """m has one row for each position of the sequence, so that it is no matrix of all rows."""
    proto = model("g (double[2,3,4] x, double[4,5] w, double[3,5] m, double[5,4] v) => (double[2,3,4] y) "
                  "{ p = MatMul(x, w)\n d = Mul(p, m)\n y = MatMul(d, v) }")  # fmt: skip
    _, result = pulled(proto, ["w"])
    f = arrays(x=(2, 3, 4), w=(4, 5), m=(3, 5), v=(5, 4), grad_y=(2, 3, 4))
    inner = f["grad_y"] @ f["v"].T * f["m"]
    np.testing.assert_allclose(Evaluator(result)(f)["grad_w"], rows(f["x"]).T @ rows(inner), rtol=1e-11)


@pytest.mark.parametrize("perm", ["<perm=[1,0]>", ""])
def test_a_transposed_weight_is_read_as_it_is_stored(perm):
    proto = model(
        f"g (double[3,4] x, double[5,4] w) => (double[3,5] y) {{ t = Transpose{perm}(w)\n y = MatMul(x, t) }}"
    )
    kinds, result = pulled(proto, ["x", "w"])
    assert kinds == ["Gemm", "Gemm"]
    assert not any("t" in n.input for n in result.graph.node if n.op_type == "Gemm")
    f = arrays(x=(3, 4), w=(5, 4), grad_y=(3, 5))
    found = Evaluator(result)(f)
    np.testing.assert_allclose(found["grad_x"], f["grad_y"] @ f["w"], rtol=1e-12)
    np.testing.assert_allclose(found["grad_w"], f["grad_y"].T @ f["x"], rtol=1e-12)


def test_the_keys_of_scores_are_transposed_once():
    """dk = (qᵀ·ds)ᵀ is dsᵀ·q."""
    proto = model("g (double[2,3,4] q, double[2,5,4] k) => (double[2,3,5] y) "
                  "{ t = Transpose<perm=[0,2,1]>(k)\n y = MatMul(q, t) }")  # fmt: skip
    kinds, result = pulled(proto, ["q", "k"])
    assert kinds == ["MatMul", "MatMul", "Transpose"]
    f = arrays(q=(2, 3, 4), k=(2, 5, 4), grad_y=(2, 3, 5))
    found = Evaluator(result)(f)
    np.testing.assert_allclose(found["grad_q"], f["grad_y"] @ f["k"], rtol=1e-12)
    np.testing.assert_allclose(found["grad_k"], f["grad_y"].transpose(0, 2, 1) @ f["q"], rtol=1e-12)


def tangent(proto: onnx.ModelProto, wrt: list[str], feeds: dict[str, np.ndarray]) -> np.ndarray:
    """The tangent of y, by onnxruntime, which looks at the shapes of addends; so does numpy for itself."""
    result = gradgen.jvp(proto, wrt=wrt)
    onnx.checker.check_model(result, full_check=True)
    found = ort.InferenceSession(result.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        ["tangent_y"], feeds
    )
    return found[0]


def test_an_addend_is_not_multiplied_by_the_factor_of_another():
    """β of the outer product belongs to the inner one: x does not go in there."""
    proto = model("g (double[3,4] x, double[4,4] w, double[4,4] v, double[3,4] a) => (double[3,4] y) "
                  "{ q = Gemm(x, w)\n p = Gemm<beta=3.0>(a, v, q)\n y = Add(p, x) }")  # fmt: skip
    f = arrays(x=(3, 4), w=(4, 4), v=(4, 4), a=(3, 4), tangent_x=(3, 4), tangent_a=(3, 4))
    expected = f["tangent_a"] @ f["v"] + 3 * f["tangent_x"] @ f["w"] + f["tangent_x"]
    np.testing.assert_allclose(tangent(proto, ["x", "a"], f), expected, rtol=1e-11)


def test_an_addend_is_not_added_to_a_product_that_is_broadcast():
    proto = model("g (double[1,4] x, double[4,4] w, double[4,4] v, double[3,4] a) => (double[3,4] y) "
                  "{ q = Gemm(x, w)\n p = Gemm(a, v, q)\n y = Add(p, a) }")  # fmt: skip
    f = arrays(x=(1, 4), w=(4, 4), v=(4, 4), a=(3, 4), tangent_x=(1, 4), tangent_a=(3, 4))
    expected = f["tangent_a"] @ f["v"] + f["tangent_x"] @ f["w"] + f["tangent_a"]
    np.testing.assert_allclose(tangent(proto, ["x", "a"], f), expected, rtol=1e-11)


BRANCH = """z = If(b) <then_branch = t () => (double[2,3,4] u) { u = MatMul(m, k) },
                      else_branch = s () => (double[2,3,4] o) { l = Neg(m)\n o = MatMul(l, k) }>"""
BODY = """z = Loop(n, , q) <body = t (int64 i, bool d, double[2,3,4] h) => (bool e, double[2,3,4] u)
                              { e = Identity(d)\n a = MatMul(m, k)\n u = Add(a, h) }>"""


@pytest.mark.parametrize("inner", [BRANCH, BODY], ids=["If", "Loop"])
def test_a_matrix_that_a_subgraph_makes_is_not_there_outside(inner):
    proto = model("g (bool b, double[2,3,4] x, double[4,5] w, double[2,3,5] m, double[5,4] v, double[5,4] k) "
                  "=> (double[2,3,4] y) { p = MatMul(x, w)\n d = Mul(p, m)\n r = Exp(d)\n q = MatMul(r, v)\n "
                  + inner + "\n y = Add(q, z) }", n=np.array(2))  # fmt: skip
    _, result = pulled(proto, ["x", "w", "v", "k"])
    f = arrays(x=(2, 3, 4), w=(4, 5), m=(2, 3, 5), v=(5, 4), k=(5, 4), grad_y=(2, 3, 4))
    found, ct = Evaluator(result)({**f, "b": np.array(True)}), f["grad_y"]
    if inner is BODY:  # y = q + (q + 2·m·k)
        ct = 2 * ct
    after = np.exp(f["x"] @ f["w"] * f["m"])
    slope = ct @ f["v"].T * after * f["m"]
    np.testing.assert_allclose(found["grad_x"], slope @ f["w"].T, rtol=1e-11)
    np.testing.assert_allclose(found["grad_w"], rows(f["x"]).T @ rows(slope), rtol=1e-11)
    np.testing.assert_allclose(found["grad_v"], rows(after).T @ rows(ct), rtol=1e-11)
    np.testing.assert_allclose(found["grad_k"], rows(f["m"]).T @ rows(ct), rtol=1e-11)


def test_long_sums_are_not_walked_again_for_each_of_their_terms(monkeypatch):
    """The tangents of products of one x, added from the last to the first: each sum reads a longer one."""
    calls = []
    monkeypatch.setattr(
        rewrites_linear, "own_producer", lambda *given: calls.append(1) or rewriting.own_producer(*given)
    )

    def count(terms: int) -> int:
        weights = {f"w{i}": np.eye(4) for i in range(terms)}
        products = "\n".join(f"p{i} = Gemm(x, w{i})" for i in range(terms))
        sums = "\n".join(f"s{i} = Add(s{i + 1}, p{i})" for i in reversed(range(terms - 1)))
        proto = model(f"g (double[3,4] x) => (double[3,4] s0) {{ {products}\n s{terms - 1} = Identity(p{terms - 1})\n {sums} }}",
                      **weights)  # fmt: skip
        calls.clear()
        gradgen.jvp(proto, wrt=["x"])
        return len(calls)

    assert count(200) <= 2.2 * count(100)


# The cotangent of m, and a factor 1 / n for that of x.
POOLED = """g ({kind}[2,{n},3] x, {kind}[3,4] w, {kind}[2,3] u) => ({kind}[2,4] y{more}) {{
    m = ReduceMean<keepdims=0>(x, a)\n y = Gemm<alpha={alpha}>(m, w)\n {also} }}"""
ADDED = {"more": ", {kind}[2,3] z", "also": "z = Mul(m, u)"}


@pytest.mark.parametrize(
    ("kind", "n", "alpha", "folded"),
    [
        ("double", 4, "1.0", True),
        ("double", 4, "0.1", True),  # the nearest float32, over 4
        ("double", 3, "1.0", False),  # 1 / 3 has more bits in float64
        ("float", 3, "1.0", True),
        ("float", 3, "0.1", True),
        ("float", 4, "2e-38", False),  # so small that bits are lost
        ("float16", 4, "1.0", True),
        ("bfloat16", 4, "1.0", False),
    ],
)
@pytest.mark.parametrize("added", [False, True])
def test_a_product_times_a_constant_is_one_gemm(kind, n, alpha, folded, added):
    parts = {k: v.format(kind=kind) for k, v in ADDED.items()} if added else {"more": "", "also": ""}
    proto = model(POOLED.format(kind=kind, n=n, alpha=alpha, **parts), a=np.array([1]))
    kinds, result = pulled(proto, ["x"])
    assert kinds == sorted(["Expand", "Gemm", "Unsqueeze", *["Mul"] * (added + (not folded))])
    if kind == "bfloat16":
        return
    dtype = {"double": np.float64, "float": np.float32, "float16": np.float16}[kind]
    f = {k: v.astype(dtype) for k, v in arrays(x=(2, n, 3), w=(3, 4), u=(2, 3), grad_y=(2, 4), grad_z=(2, 3)).items()}
    run = Evaluator(result, strict=True)
    found = run({k: v for k, v in f.items() if k in run.input_names})["grad_x"]
    wide = {k: v.astype(np.float64) for k, v in f.items()}
    pooled = float(np.float32(alpha)) * wide["grad_y"] @ wide["w"].T + (wide["grad_z"] * wide["u"] if added else 0)
    rtol = {"double": 1e-12, "float": 1e-5, "float16": 1e-2}[kind]
    expected = np.repeat(pooled[:, None] / n, n, 1)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def test_a_scalar_of_the_model_is_not_built_into_a_product():
    """As c may be: the gradient to x is differentiated in it all the same."""
    proto = model(
        "g (double[2,3] x, double[3,4] w) => (double[2,4] y) { m = Mul(x, c)\n y = Gemm(m, w) }", c=np.array(0.25)
    )
    kinds, first = pulled(proto, ["x"])
    assert kinds == ["Gemm", "Mul"]
    f = arrays(x=(2, 3), w=(3, 4), grad_y=(2, 4), grad_grad_x=(2, 3))
    found = Evaluator(gradgen.vjp(first, wrt=["c"], of=["grad_x"]))(f)["grad_c"]
    np.testing.assert_allclose(found, np.sum(f["grad_y"] @ f["w"].T * f["grad_grad_x"]), rtol=1e-12)


def test_a_product_that_is_an_output_or_portable_is_not_multiplied():
    proto = model(POOLED.format(kind="float", n=4, alpha=1.0, more="", also=""), a=np.array([1]))
    assert pulled(proto, ["x", "m"])[0].count("Mul") == 1
    portable = gradgen.vjp(proto, wrt=["x"], portable=True)
    assert "Mul" in [n.op_type for n in portable.graph.node]
