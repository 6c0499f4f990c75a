# Finite differences: their accuracy on known derivatives, and the verdicts, each seen to fall as it should.
from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from torch_cases import load_cases

from gradgen.differences import check_gradients, directional, jacobian_fd
from gradgen.engine.registry import Registry
from gradgen.evaluate import evaluator, to_float64
from gradgen.promote import cut_values, promote_initializers

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'


def model(text):
    parsed = onnx.parser.parse_model(HEAD + text)
    onnx.checker.check_model(parsed, full_check=True)
    return parsed


PRIMAL = """net (float[3, 4] x) => (float[3, 2] y) <float[4, 2] w = {1, -2, 3, 0.5, -1, 2, 0.25, 1}> {
    h = MatMul(x, w)
    y = Tanh(h)
}"""
GRADIENT = """net (float[3, 4] x, float[3, 2] grad_y)
=> (float[3, 2] y, float[3, 4] grad_x, float[4, 2] grad_w, float[3, 2] grad_h)
<float[4, 2] w = {1, -2, 3, 0.5, -1, 2, 0.25, 1}, float one = {1}> {
    h = MatMul(x, w)
    y = Tanh(h)
    yy = Mul(y, y)
    slope = Sub(one, yy)
    grad_h = Mul(grad_y, slope)
    wt = Transpose <perm = [1, 0]> (w)
    xt = Transpose <perm = [1, 0]> (x)
    grad_x = MatMul(grad_h, wt)
    grad_w = MatMul(xt, grad_h)
}"""


@pytest.fixture
def feeds():
    return {"x": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32) / 4}


def test_directional_matches_a_closed_form():
    x = np.array([0.3, -1.2, 2.0])
    d = np.array([1.0, 0.5, -2.0])
    found = directional(lambda f: {"y": np.exp(np.sin(f["x"]))}, {"x": x}, {"x": d}, {"y": np.array([1.0, -2.0, 3.0])})
    expected = float((np.array([1.0, -2.0, 3.0]) * np.exp(np.sin(x)) * np.cos(x) * d).sum())
    assert found.finite and not found.kink
    assert abs(found.value - expected) < 1e-10
    assert abs(found.value - expected) <= found.error < 1e-8


@pytest.mark.parametrize("offset", [1e-3, 1e-5])
def test_a_kink_beside_the_point_does_not_disturb(offset):
    found = directional(
        lambda f: {"y": np.abs(f["x"]) * f["x"] ** 2 + np.abs(f["x"] - offset)},
        {"x": np.zeros(())},
        {"x": np.ones(())},
        {"y": np.ones(())},
    )
    assert not found.kink
    assert abs(found.value + 1) < 1e-8


def test_a_kink_at_the_point_is_seen():
    found = directional(
        lambda f: {"y": np.abs(f["x"]) + f["x"]}, {"x": np.zeros(2)}, {"x": np.ones(2)}, {"y": np.ones(2)}
    )
    assert found.kink
    assert abs(found.jump - 4) < 1e-9


def test_the_edge_of_a_domain_is_not_finite():
    with np.errstate(invalid="ignore", divide="ignore"):
        edge = directional(
            lambda f: {"y": np.sqrt(f["x"])}, {"x": np.zeros(())}, {"x": np.ones(())}, {"y": np.ones(())}
        )
        pole = directional(lambda f: {"y": np.log(f["x"])}, {"x": np.zeros(())}, {"x": np.ones(())}, {"y": np.ones(())})
    assert not edge.finite and not pole.finite


def test_jacobian_by_elements():
    x = np.array([[0.5, 0.0], [-2.0, 1.5]])
    weights = np.array([[1.0, 2.0], [3.0, 4.0]])
    gradient, errors, kinks = jacobian_fd(
        lambda f: {"y": np.maximum(f["x"], 0) ** 2 + np.abs(f["x"])}, {"x": x}, "x", {"y": weights}
    )
    assert kinks.tolist() == [[False, True], [False, False]]
    expected = weights * (2 * np.maximum(x, 0) + np.sign(x))
    np.testing.assert_allclose(gradient[~kinks], expected[~kinks], rtol=1e-9)
    assert (errors[~kinks] < 1e-8).all()


def test_a_right_gradient_is_ok(feeds):
    records = check_gradients(model(PRIMAL), model(GRADIENT), feeds)
    assert [(r.name, r.shape, r.verdict, r.precision) for r in records] == [
        ("x", (3, 4), "ok", "float64"),
        ("w", (4, 2), "ok", "float64"),
        ("h", (3, 2), "ok", "float64"),
    ]
    assert all(r.error < 1e-8 for r in records[:2])
    assert records[2].error < 1e-6  # the intermediate value itself is only known to float32
    assert all(r.norm > 0 and r.reason == "" for r in records)


@pytest.mark.parametrize(
    ("fault", "repair", "wrong"),
    [
        ("yy = Mul(y, y)", "yy = Mul(y, h)", {"x", "w", "h"}),
        ("grad_x = MatMul(grad_h, wt)", "t = MatMul(grad_h, wt) grad_x = Add(t, tiny)", {"x"}),
        ("grad_w = MatMul(xt, grad_h)", "t = MatMul(xt, grad_h) grad_w = Neg(t)", {"w"}),
        ("grad_w = MatMul(xt, grad_h)", "t = MatMul(xt, grad_h) z = Sub(t, t) grad_w = Div(t, z)", {"w"}),
        ("grad_w = MatMul(xt, grad_h)", "t = MatMul(xt, grad_h) grad_w = Sub(t, t)", {"w"}),
    ],
)
def test_a_planted_fault_is_wrong(feeds, fault, repair, wrong):
    text = GRADIENT.replace(fault, repair).replace("one = {1}", "one = {1}, float tiny = {0.0001}")
    assert text != GRADIENT
    records = check_gradients(model(PRIMAL), model(text), feeds)
    assert {r.name for r in records if r.verdict == "wrong"} == wrong
    assert all(r.reason for r in records if r.verdict == "wrong")
    assert {r.verdict for r in records if r.name not in wrong} <= {"ok"}


def test_a_wrong_shape_is_wrong(feeds):
    primal = model(PRIMAL)
    gradient = model(
        GRADIENT.replace("grad_w = MatMul(xt, grad_h)", "t = MatMul(xt, grad_h) grad_w = Transpose(t)").replace(
            "float[4, 2] grad_w", "float[2, 4] grad_w"
        )
    )
    record = next(r for r in check_gradients(primal, gradient, feeds) if r.name == "w")
    assert record.verdict == "wrong" and "shape [2, 4]" in record.reason


RELU = "net (float[4] x) => (float[4] y) { y = Relu(x) }"
RELU_GRADIENT = """net (float[4] x, float[4] grad_y) => (float[4] grad_x) <float zero = {0}> {
    mask = Greater(x, zero)
    factor = Cast <to = 1> (mask)
    grad_x = Mul(grad_y, factor)
}"""


def test_a_gradient_that_vanishes_is_ok():
    """Softmax does not see a shift, so the gradient to it is rounding, on both sides."""
    primal = model("net (float[3, 4] x, float[3, 1] s) => (float[3, 4] y) { z = Add(x, s) y = Softmax(z) }")
    gradient = model("""net (float[3, 4] x, float[3, 1] s, float[3, 4] grad_y) => (float[3, 1] grad_s)
    <int64[1] axis = {1}> {
        z = Add(x, s) y = Softmax(z) t = Mul(y, grad_y) total = ReduceSum(t, axis) u = Mul(y, total)
        d = Sub(t, u) grad_s = ReduceSum(d, axis)
    }""")
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(3, 4)).astype(np.float32), "s": rng.normal(size=(3, 1)).astype(np.float32)}
    record = check_gradients(primal, gradient, feeds)[0]
    assert (record.verdict, record.error, record.reason) == ("ok", 0.0, "zero to within rounding")


def test_a_kink_is_said():
    at = check_gradients(model(RELU), model(RELU_GRADIENT), {"x": np.array([0, 1, -1, 2], np.float32)})
    beside = check_gradients(model(RELU), model(RELU_GRADIENT), {"x": np.array([0.1, 1, -1, 2], np.float32)})
    assert at[0].verdict == "kink" and "one-sided" in at[0].reason
    assert beside[0].verdict == "ok"


def test_a_primal_that_is_not_finite_is_unresolved():
    primal = model("net (float[2] x) => (float[2] y) { y = Log(x) }")
    gradient = model("net (float[2] x, float[2] grad_y) => (float[2] grad_x) { grad_x = Div(grad_y, x) }")
    record = check_gradients(primal, gradient, {"x": np.array([0, 1], np.float32)})[0]
    assert record.verdict == "unresolved" and "not finite" in record.reason


@pytest.mark.parametrize("registry", [None, Registry(parent=None)], ids=["body", "no body"])
def test_a_contrib_op_that_no_engine_has_in_float64(registry):
    """BiasGelu, gelu(x + b), is one that onnxruntime has in float32 alone: its body is differentiated, where it has one.

    Differences in float32 confirm a gradient, and never condemn one.
    """
    text = HEAD.replace('"" : 21', '"" : 21, "com.microsoft" : 1')
    text += "net (float[3, 4] x, float[4] b) => (float[3, 4] y) { y = com.microsoft.BiasGelu(x, b) }"
    primal = onnx.parser.parse_model(text)
    body = """net (float[3, 4] x, float[4] b, float[3, 4] grad_y) => (float[3, 4] grad_x)
    <float half = {0.5}, float root = {0.70710678}, float density = {0.39894228}> {
        z = Add(x, b) u = Mul(z, root) e = Erf(u) he = Mul(e, half) cdf = Add(he, half)
        uu = Mul(u, u) nuu = Neg(uu) g = Exp(nuu) pdf = Mul(g, density) zp = Mul(z, pdf)
        slope = Add(cdf, zp) grad_x = Mul(grad_y, slope)
    }"""
    rng = np.random.default_rng(1)
    feeds = {"x": rng.normal(size=(3, 4)).astype(np.float32), "b": rng.normal(size=4).astype(np.float32)}
    sources = [body, body.replace("Add(cdf, zp)", "Sub(cdf, zp)")]
    right, wrong = (check_gradients(primal, model(s), feeds, registry=registry)[0] for s in sources)
    lacking = "differences in float32: no engine has com.microsoft::BiasGelu in float64"
    assert (right.verdict, right.reason) == ("ok", "" if registry is None else lacking)
    assert (right.precision, wrong.verdict) == (("float64", "wrong") if registry is None else ("float32", "unresolved"))
    assert registry is None or wrong.reason.endswith(lacking)


def test_given_cotangents_and_gradients_that_seed_themselves(feeds):
    primal = model("net (float[3, 4] x) => (float y) { y = ReduceSumSquare <keepdims = 0> (x) }")
    gradient = model("net (float[3, 4] x) => (float[3, 4] grad_x) { grad_x = Add(x, x) }")
    assert check_gradients(primal, gradient, feeds, {"y": np.float32(1)})[0].verdict == "ok"
    assert check_gradients(primal, gradient, feeds, {"y": np.float32(2)})[0].verdict == "wrong"
    with pytest.raises(ValueError, match="cotangents"):
        check_gradients(primal, gradient, feeds)
    with pytest.raises(ValueError, match="nowhere"):
        check_gradients(primal, gradient, feeds, {"nowhere": np.float32(1)})


def test_promoted_initializers_can_be_fed(feeds):
    promoted = promote_initializers(model(PRIMAL), ["w"])
    onnx.checker.check_model(promoted)
    run = evaluator(promoted)
    stored = run(feeds)["y"]
    zero = run({**feeds, "w": np.zeros((4, 2), np.float32)})["y"]
    assert np.abs(stored).max() > 0.1 and (zero == 0).all()
    with pytest.raises(ValueError, match="'v'"):
        promote_initializers(model(PRIMAL), ["v"])


def test_cut_values_can_be_fed():
    for name, expected in (("h", np.tanh(0.5)), ("y", 0.5)):
        cut = cut_values(model(PRIMAL), [name])
        onnx.checker.check_model(cut, full_check=True)
        got = evaluator(cut)({"x": np.zeros((3, 4), np.float32), name: np.full((3, 2), 0.5, np.float32)})["y"]
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def _rounds_to_half(graph):
    return any(n.op_type == "Cast" and n.attribute[0].i == onnx.TensorProto.FLOAT16 for n in graph.node)


@pytest.mark.parametrize("case", [c for c in load_cases() if not c.has_kink], ids=lambda case: case.name)
def test_differences_agree_with_pytorch(case):
    """The oracle against an independent one: outputs and gradients that PyTorch computed in float64."""
    stored = onnx.load(case.path)
    if _rounds_to_half(stored.graph):
        pytest.skip("a double copy does not round to float16, so it is another function")
    own = {t.name: onnx.numpy_helper.to_array(t) for t in stored.graph.initializer if t.name in case.gradients}
    feeds = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in {**case.inputs, **own}.items()}
    run = evaluator(to_float64(promote_initializers(stored, list(own))), prefer="reference", strict=True)
    outputs = run(feeds)
    for name, expected in case.outputs.items():
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max(initial=1))
    rng = np.random.default_rng(0)
    for name, gradient in case.gradients.items():
        direction = rng.standard_normal(gradient.shape)
        found = directional(run, feeds, {name: direction}, case.cotangents)
        expected = float((gradient * direction).sum())
        assert abs(found.value - expected) <= 1e-6 * max(1e-3, abs(expected), float(np.linalg.norm(gradient)))
