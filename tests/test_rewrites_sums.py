# Each rewrite of sums: that it applies, that values are those of numpy in float64, and that it leaves alone what it must.
"""Tests of the rewrites of sums, on what jvp and vjp write."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from text_models import model

import gradgen
from gradgen.evaluate import Evaluator


def pushed(proto: onnx.ModelProto, wrt: list[str]) -> tuple[list[str], onnx.ModelProto]:
    """Op types of the nodes behind the primal's, and the jvp."""
    result = gradgen.jvp(proto, wrt=wrt)
    onnx.checker.check_model(result, full_check=True)
    return [n.op_type for n in result.graph.node][len(proto.graph.node) :], result


def arrays(seed: int = 0, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n: rng.standard_normal(s) for n, s in shapes.items()}


def test_a_term_of_a_tangent_is_the_addend_of_a_gemm():
    proto = model("g (double[N,3] x, double[3,4] w, double[4] c) => (double[N,4] y) { y = Gemm<alpha=2.0>(x, w, c) }")
    kinds, result = pushed(proto, ["x", "w", "c"])
    assert kinds == ["Gemm", "Gemm"]
    p = arrays(x=(5, 3), w=(3, 4), c=(4,))
    t = arrays(1, x=(5, 3), w=(3, 4), c=(4,))
    found = Evaluator(result)({**p, **{f"tangent_{n}": v for n, v in t.items()}})["tangent_y"]
    np.testing.assert_allclose(found, 2 * (t["x"] @ p["w"] + p["x"] @ t["w"]) + t["c"], rtol=1e-12)


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ("double[2,3] x, double[3,4] w, double[2,4] c", ["Gemm"]),
        ("double[2,3] x, double[3,4] w, double[2,1] c", ["Gemm"]),
        ("double[1,3] x, double[3,4] w, double[2,4] c", ["Gemm", "Add"]),  # the product is broadcast
        ("double[2,3] x, double[3,4] w, double[5,2,4] c", ["Gemm", "Add"]),
        ("double[N,3] x, double[3,4] w, double[M,4] c", ["Gemm", "Add"]),  # nobody knows
    ],
)
def test_an_addend_must_spread_to_the_product(shapes, expected):
    proto = model(f"g ({shapes}) => (double y) {{ p = Gemm(x, w)\n y = Add(p, c) }}")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert pushed(proto, ["x", "c"])[0] == expected


def test_a_product_with_another_reader_keeps_its_addend_apart():
    proto = model("g (double[2,3] x, double[3,4] w, double[4] c) => (double[2,4] y, double[2,4] p) "
                  "{ p = Gemm(x, w)\n y = Add(p, c) }")  # fmt: skip
    assert pushed(proto, ["x", "c"])[0] == ["Gemm", "Add"]


def test_what_comes_from_a_negated_value_is_subtracted():
    proto = model("g (double[2,3] x) => (double[2,3] y) { y = Softmax(x) }")
    kinds, result = pushed(proto, ["x"])
    assert sorted(kinds) == ["Mul", "Mul", "ReduceSum", "Sub"]
    x, t = np.array([[0.1, -0.4, 0.7], [1, 0, -2]]), np.array([[1.0, 2, -3], [0.5, 0, 1]])
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    found = Evaluator(result)({"x": x, "tangent_x": t})["tangent_y"]
    np.testing.assert_allclose(found, p * (t - (p * t).sum(1, keepdims=True)), rtol=1e-12)


def test_a_negated_value_that_others_read_stays():
    """z = −x is read twice, so that its sign does not move into y."""
    proto = model("g (double[3] x, double[3] w) => (double[3] y, double[3] z) "
                  "{ n = Neg(x)\n z = Mul(n, n)\n m = Mul(n, w)\n y = Add(m, x) }")  # fmt: skip
    kinds, result = pushed(proto, ["x"])
    assert kinds.count("Neg") == 1 and "Sub" not in kinds
    x, w, t = np.array([1.0, 2, 3]), np.array([2.0, -1, 5]), np.array([1.0, -1, 2])
    found = Evaluator(result)({"x": x, "w": w, "tangent_x": t})
    np.testing.assert_allclose(found["tangent_y"], t - t * w)
    np.testing.assert_allclose(found["tangent_z"], 2 * x * t)


def test_both_terms_negated():
    proto = model("g (double[3] x, double[3] w) => (double[3] y) { n = Neg(x)\n m = Neg(w)\n y = Add(n, m) }")
    _, result = pushed(proto, ["x", "w"])
    one = {n: np.ones(3) for n in ("x", "w", "tangent_x")}
    found = Evaluator(result)({**one, "tangent_w": np.array([1.0, 2, 3])})["tangent_y"]
    np.testing.assert_array_equal(found, [-2, -3, -4])


NORM = "g (double[{n},4] x, double[4] s, double[4] b) => (double[{n},4] y) {{ y = LayerNormalization(x, s, b) }}"


@pytest.mark.parametrize("n", ["2", "N"])
def test_a_norm_takes_means_and_no_axes_of_size_one(n):
    proto = model(NORM.format(n=n))
    kinds, result = pushed(proto, ["x", "s", "b"])
    # Beside x − mean, the variance and its root, which float64 computes anew.
    assert kinds[-9:] == ["Mul", "Mul", "ReduceMean", "ReduceMean", "Mul", "Sub", "Sub", "Mul", "Sum"]
    assert not {"Unsqueeze", "ReduceSum", "Neg", "Expand"} & set(kinds)
    p, t = arrays(x=(2, 4), s=(4,), b=(4,)), arrays(1, x=(2, 4), s=(4,), b=(4,))
    found = Evaluator(result)({**p, **{f"tangent_{n}": v for n, v in t.items()}})["tangent_y"]

    def norm(x, s, b):
        centred = x - x.mean(1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * s + b

    h = 1e-5
    ends = [norm(*(p[k] + step * t[k] for k in "xsb")) for step in (h, -h)]
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-8)


def test_a_scalar_of_the_model_is_not_built_into_a_mean():
    """b reaches y through Σ x·b·c, and 1 / 4 is what c holds now: the gradient to b is differentiated in c all the same."""
    proto = model("g (double[4] x, double[1] b) => (double[4] y) { d = Mul(b, c)\n y = Mul(d, x) }", c=np.array(0.25))
    first = gradgen.vjp(proto, wrt=["b"])
    x, ct = np.array([1.0, 2, 3, 4]), np.array([1.0, -1, 0.5, 2])
    found = Evaluator(first)({"x": x, "b": np.array([2.0]), "grad_y": ct})
    np.testing.assert_allclose(found["grad_b"], [0.25 * x @ ct])
    second = Evaluator(gradgen.vjp(first, wrt=["c"], of=["grad_b"]))
    found = second({"x": x, "b": np.array([2.0]), "grad_y": ct, "grad_grad_b": np.array([3.0])})
    np.testing.assert_allclose(found["grad_c"], 3 * x @ ct)


@pytest.mark.parametrize(("kind", "dtype"), [("double", np.float64), ("float", np.float32)])
def test_the_mean_of_a_rule_is_one_node(kind, dtype):
    proto = model(f"g ({kind}[2,4] x) => ({kind}[2,1] y) {{ y = ReduceMean(x, a) }}", a=np.array([1]))
    second = gradgen.vjp(gradgen.vjp(proto, wrt=["x"]), wrt=["grad_y"], of=["grad_x"])
    assert {"ReduceMean"} == {n.op_type for n in second.graph.node if n.op_type.startswith("Reduce")}
    ct = np.arange(8, dtype=dtype).reshape(2, 4)
    found = Evaluator(second)({"x": ct, "grad_y": ct[:, :1], "grad_grad_x": ct})
    np.testing.assert_allclose(found["grad_grad_y"], [[1.5], [5.5]], rtol=1e-6)


SHARED = """g ({kind}[3] x, {kind}[3] p, {kind}[3] q) => ({kind}[3] y) {{
    a = Mul(x, p)\n b = Exp(x)\n c = Mul(x, q)\n d = Mul(a, b)\n y = Mul(d, c) }}"""


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("double", {"Sum": 1}), ("float", {"Sum": 1}), ("float16", {"Add": 2}), ("bfloat16", {"Add": 2})],
)
def test_what_three_terms_give_is_one_sum(kind, expected):
    proto = model(SHARED.format(kind=kind))
    kinds = [n.op_type for n in gradgen.vjp(proto, wrt=["x"]).graph.node]
    assert {k: kinds.count(k) for k in ("Sum", "Add") if k in kinds} == expected


@pytest.mark.parametrize(("shape", "summed"), [("3", True), ("256,127", True), ("256,128", False), ("n", False)])
def test_gradients_are_added_in_pairs_where_there_may_be_many_elements(shape, summed):
    """On several threads onnxruntime divides a large Add, and does not a Sum."""
    proto = model(SHARED.format(kind="float").replace("[3]", f"[{shape}]"))
    kinds = [n.op_type for n in gradgen.vjp(proto, wrt=["x"]).graph.node]
    assert (kinds.count("Sum"), kinds.count("Add")) == ((1, 0) if summed else (0, 2))


def test_a_sum_adds_in_the_order_of_its_adds():
    """(2⁶⁰ − 2⁶⁰) + 1 is 1 in float64, in another order 0."""
    proto = model("g (double[1] x) => (double[1] y) { a = Mul(x, p)\n b = Mul(x, q)\n c = Mul(x, r)\n"
                  "s = Add(a, b)\n y = Add(s, c) }",
                  p=np.array([2.0**60]), q=np.array([-(2.0**60)]), r=np.array([1.0]))  # fmt: skip
    kinds, result = pushed(proto, ["x"])
    assert kinds.count("Sum") == 1
    found = Evaluator(result)({"x": np.ones(1), "tangent_x": np.ones(1)})
    assert found["tangent_y"] == found["y"] == 1


@pytest.mark.parametrize(
    ("target", "axes", "width", "kept"),
    [("2,1,3", [0], "2,1,3", False), ("1,3", [0], "3", True), ("3,2", [1], "3,2", True)],
)
def test_axes_of_size_one_stay_where_broadcasting_does_not_give_them(target, axes, width, kept):
    """An operand that gets axes, beside one of higher and of lower rank; and axes that do not lead."""
    proto = model(f"g (double[3] x, double[{width}] w) => (double[{target}] y) {{ u = Unsqueeze(x, a)\n y = Mul(u, w) }}",
                  a=np.array(axes))  # fmt: skip
    kinds, result = pushed(proto, ["x"])
    assert ("Unsqueeze" in kinds) == kept
    p, t = arrays(x=(3,), w=tuple(map(int, width.split(",")))), arrays(1, x=(3,))["x"]
    found = Evaluator(result)({**p, "tangent_x": t})["tangent_y"]
    np.testing.assert_allclose(found, np.expand_dims(t, tuple(axes)) * p["w"])


REPEATED = """g (double[{batch},4] x, double[4,4] w, double[{batch},4] u) => (double y) {{
    s = Mul(x, u)\n p = {product}\n c = Add(s, p)\n y = ReduceMean<keepdims=0>(c, a) }}"""
SPREAD = ["Expand", "Flatten", "Gemm", "Mul", "Mul", "Reshape", "Unsqueeze"]


@pytest.mark.parametrize(
    ("batch", "product", "axes", "expected"),
    [
        ("2,3", "MatMul(s, w)", [1], SPREAD),  # what the product is of is its addend too
        ("N,3", "MatMul(s, w)", [1], ["Shape", *SPREAD]),
        ("2,3", "Mul(s, u)", [1], ["Add", "Mul", "Mul", "Mul", "Unsqueeze"]),  # nothing needs them
        ("2,3", "MatMul(s, w)", [0, 1], ["Add", *SPREAD]),  # one row
        ("2,3", "MatMul(s, w)", [2], ["Add", *SPREAD]),  # elements of a row
    ],
)
def test_repeated_rows_that_a_reader_needs_are_read_by_all(batch, product, axes, expected):
    proto = model(REPEATED.format(batch=batch, product=product), a=np.array(axes))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    result = gradgen.vjp(proto, wrt=["x"])
    onnx.checker.check_model(result, full_check=True)
    kinds = [n.op_type for n in result.graph.node if any(p.key == "gradgen.node" for p in n.metadata_props)]
    assert sorted(kinds) == sorted(expected)
    p = arrays(x=(2, 3, 4), w=(4, 4), u=(2, 3, 4))
    ct = arrays(1, ct=p["x"].mean(tuple(axes)).shape)["ct"]
    run = Evaluator(result, strict=True)
    found = run({n: v for n, v in {**p, "grad_y": ct}.items() if n in run.input_names})["grad_x"]
    each = np.broadcast_to(np.expand_dims(ct, tuple(axes)), (2, 3, 4)) * p["x"].mean(tuple(axes)).size / 24
    to_product = each @ p["w"].T if "MatMul" in product else each * p["u"]
    np.testing.assert_allclose(found, (each + to_product) * p["u"], rtol=1e-12)
