# Ops of one's own by their forward function, and rules beside them.
"""Tests of gradgen.op, and of gradgen.vjp_rule beside it."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser
from onnxscript import opset18 as op18
from onnxscript import opset21 as op
from onnxscript import script
from onnxscript.values import OnnxFunction, Opset
from own_ops import MINE, swish2

import gradgen

RULES = Opset("my.rules", 1)


MODEL = """<ir_version: 10, opset_import: ["" : OPSET, "my.domain" : 2]>
g (float[DIM] x, float[DIM] w) => (float[DIM] y, float total) {
 h = my.domain.Swish2 <beta = 0.5> (x)
 y, total = my.domain.Pair (h, w) }"""
X, W, CT = (np.array(v, np.float32) for v in ([1.0, -2.0, 0.5], [0.3, 1.0, -1.0], [1.0, 0.5, -2.0]))


def model(opset: int = 21, dim: str = "3") -> onnx.ModelProto:
    return parser.parse_model(MODEL.replace("OPSET", str(opset)).replace("DIM", dim))


def run(proto: onnx.ModelProto, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def swish(x: np.ndarray, beta: float) -> np.ndarray:
    return x / (1 + np.exp(-beta * x))


def scalar(x: np.ndarray, w: np.ndarray) -> float:
    """What MODEL's outputs weigh against the cotangents CT and 2, in numpy alone."""
    h = swish(x, 0.5)
    return float(np.sum(CT * swish(h, 2.0)) + 2 * np.sum(h * w))


def differences(fn, point: np.ndarray) -> np.ndarray:
    point = point.astype(np.float64)
    steps = np.eye(point.size) * 1e-5
    return np.array([(fn(point + s) - fn(point - s)) / 2e-5 for s in steps])


@pytest.mark.parametrize("opset", [17, 21, 24])
@pytest.mark.parametrize("dim", ["3", "n"])
def test_a_model_with_the_op_is_differentiated_and_runs_anywhere(opset, dim):
    result = gradgen.vjp(model(opset, dim), registry=MINE)
    onnx.checker.check_model(result, full_check=True)
    assert {n.domain for n in result.graph.node} == {""} and not result.functions
    found = run(result, x=X, w=W, grad_y=CT, grad_total=np.array(2, np.float32))
    np.testing.assert_allclose(found["y"], swish(swish(X, 0.5), 2.0), rtol=1e-5)
    np.testing.assert_allclose(found["grad_x"], differences(lambda v: scalar(v, W), X), rtol=2e-4)
    np.testing.assert_allclose(found["grad_w"], differences(lambda v: scalar(X, v), W), rtol=2e-4)


def test_nodes_off_the_path_and_inside_subgraphs_run_too():
    text = """<ir_version: 10, opset_import: ["" : 21, "my.domain" : 1]>
    g (float[3] x, float[3] z, bool c) => (float[3] y) {
     off = my.domain.Swish2 (z)
     h = If (c) <then_branch = t () => (float[3] a) { a = my.domain.Swish2 <beta = 2.0> (x) },
                 else_branch = e () => (float[3] b) { b = Mul(x, off) }>
     y = Add(h, off) }"""
    result = gradgen.vjp(parser.parse_model(text), wrt=["x"], registry=MINE)
    onnx.checker.check_model(result, full_check=True)
    for taken in (True, False):
        found = run(result, x=X, z=W, c=np.array(taken), grad_y=np.ones(3, np.float32))
        want = differences(lambda v: swish(v, 2.0).sum(), X) if taken else swish(W, 1.0)
        np.testing.assert_allclose(found["grad_x"], want, rtol=2e-4)


def test_a_node_that_nothing_reads_is_left_out():
    unread = parser.parse_node("unread = my.domain.Swish2 <beta = 0.5> (w)")
    given = model()
    given.graph.node.insert(0, unread)
    result = gradgen.vjp(given, registry=MINE)
    assert {n.domain for n in result.graph.node} == {""}
    assert len(result.graph.node) == len(gradgen.vjp(model(), registry=MINE).graph.node)


def test_the_function_is_usable():
    assert isinstance(swish2, OnnxFunction)
    np.testing.assert_allclose(swish2(X), swish(X, 1.0), rtol=1e-6)
    np.testing.assert_allclose(swish2(X, beta=2.0), swish(X, 2.0), rtol=1e-5)
    proto = swish2.to_function_proto()
    assert (proto.domain, proto.name) == ("my.domain", "Swish2")


def test_a_model_that_carries_another_body_keeps_it():
    """What a model says of itself goes before what is registered under the same name."""
    text = """<ir_version: 10, opset_import: ["" : 21, "my.domain" : 1]>
    g (float[3] x) => (float[3] y) { y = my.domain.Swish2 (x) }
    <domain: "my.domain", opset_import: ["" : 21]>
    Swish2 (x) => (y) { y = Mul(x, x) }"""
    result = gradgen.vjp(parser.parse_model(text), registry=MINE)
    np.testing.assert_allclose(run(result, x=X, grad_y=CT)["grad_x"], 2 * X * CT)


def test_a_kernel_of_the_runtime_stays():
    registry = gradgen.Registry()
    gradgen.op("com.microsoft", "QuickGelu", kernel=True, registry=registry)(quick)
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[3] x, float[3] z) => (float[3] y) { a = com.microsoft.QuickGelu (z)  y = Mul (x, a) }"""
    result = gradgen.vjp(parser.parse_model(text), wrt=["x"], registry=registry)
    assert [n.op_type for n in result.graph.node if n.domain] == ["QuickGelu"]
    run(result, x=X, z=W, grad_y=CT)


def quick(X, alpha: float = 1.702):
    Y = X * op.Sigmoid(X * op.CastLike(alpha, X))
    return Y


def with_rule(rule, name: str = "Swish2", **options) -> gradgen.Registry:
    registry = gradgen.Registry(parent=MINE)
    gradgen.vjp_rule("my.domain", name, registry=registry, **options)(rule)
    return registry


@script(RULES, default_opset=op)
def straight_vjp(dy, x, beta: float = 1.0):
    """Not the derivative: it is to be seen which one is used."""
    dx = dy * op.CastLike(beta, x) * 10.0
    return dx


def plain_vjp(dy, x, beta: float = 1.0):
    b = op.CastLike(beta, x)
    s = op.Sigmoid(x * b)
    dx = dy * (s + x * b * s * (1.0 - s))
    return dx


def test_a_rule_beside_the_op_replaces_its_gradient_and_the_body_travels():
    registry = with_rule(straight_vjp)
    text = """<ir_version: 10, opset_import: ["" : 22, "my.domain" : 1]>
    g (float[3] x) => (float[3] y) { y = my.domain.Swish2 <beta = 2.0> (x) }"""
    result = gradgen.vjp(parser.parse_model(text), registry=registry)
    onnx.checker.check_model(result, full_check=True)
    assert [f.name for f in result.functions] == ["Swish2"]
    found = run(result, x=X, grad_y=CT)
    np.testing.assert_allclose(found["y"], swish(X, 2.0), rtol=1e-5)
    np.testing.assert_allclose(found["grad_x"], 20 * CT)
    again = gradgen.vjp(result, wrt=["grad_y"], of=["grad_x"], registry=registry)
    np.testing.assert_allclose(run(again, x=X, grad_y=CT, grad_grad_x=CT)["grad_grad_y"], 20 * CT)


def test_the_rule_holds_inside_other_ops_too():
    result = gradgen.vjp(model(), registry=with_rule(straight_vjp))
    found = run(result, x=X, w=W, grad_y=CT, grad_total=np.array(2, np.float32))
    np.testing.assert_allclose(found["grad_x"], 5 * (20 * CT + 2 * W), rtol=1e-5)
    assert "Shape" not in {n.op_type for n in result.graph.node}, "types are known behind the op"


def test_types_are_known_behind_an_op_that_a_rule_calls():
    registry = with_rule(straight_vjp)
    gradgen.op("my.domain", "Outer", registry=registry)(quick)

    def outer_vjp(dY, X):
        inner = swish2(X)
        dX = dY * inner
        return dX

    gradgen.vjp_rule("my.domain", "Outer", registry=registry)(outer_vjp)
    text = """<ir_version: 10, opset_import: ["" : 21, "my.domain" : 1]>
    g (float[2, 3] x) => (float[2, 3] y) { y = my.domain.Outer (x) }"""
    result = gradgen.vjp(parser.parse_model(text), registry=registry)
    (inner,) = [n.output[0] for n in result.graph.node if n.op_type == "Swish2"]
    assert sorted(f.name for f in result.functions) == ["Outer", "Swish2"]
    (info,) = [v for v in result.graph.value_info if v.name == inner]
    assert [d.dim_value for d in info.type.tensor_type.shape.dim] == [2, 3]


def test_a_rule_gets_the_defaults_of_the_op():
    from gradgen.rules.lang import traced

    @traced("dx")
    def given_vjp(dy, x, *, beta):
        return dy * beta

    def other_vjp(dy, x, beta: float = 5.0):
        dx = dy * op.CastLike(beta, x)
        return dx

    text = """<ir_version: 10, opset_import: ["" : 21, "my.domain" : 1]>
    g (float[3] x) => (float[3] y) { y = my.domain.Third (x) }"""
    for rule in (given_vjp, other_vjp):
        registry = gradgen.Registry()
        gradgen.op("my.domain", "Third", registry=registry)(third)
        gradgen.vjp_rule("my.domain", "Third", registry=registry)(rule)
        result = gradgen.vjp(parser.parse_model(text), registry=registry)
        np.testing.assert_allclose(run(result, x=X, grad_y=CT)["grad_x"], 3 * CT)


def third(x, beta: float = 3.0):
    return x * op.CastLike(beta, x)


def test_a_rule_before_its_op():
    registry = gradgen.Registry()
    gradgen.vjp_rule("my.domain", "Swish2", inputs=["x"], outputs=["y"], registry=registry)(straight_vjp)
    gradgen.op("my.domain", "Swish2", registry=registry)(swish2)
    result = gradgen.vjp(
        parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "my.domain" : 1]>
        g (float[3] x) => (float[3] y) { y = my.domain.Swish2 (x) }"""),
        registry=registry,
    )
    np.testing.assert_allclose(run(result, x=X, grad_y=CT)["grad_x"], 10 * CT)


def gamma_vjp(dy, x, gamma: float = 1.0):
    dx = dy * op.CastLike(gamma, x)
    return dx


def narrow_vjp(dy, x):
    dx = op.Cast(dy * x, to=1)
    return dx


def scalar_vjp(dy, x):
    dx = op.ReduceSum(dy * x, keepdims=0)
    return dx


def single_vjp(dy, x):
    dx = dy * op.Cast(x, to=1)
    return dx


def half_vjp(dscaled, dtotal, x, w):
    dx = dscaled + dtotal * w
    return dx


def stranger_vjp(dy, z):
    dx = dy * z
    return dx


@pytest.mark.parametrize(
    ("rule", "name", "version", "reason"),
    [
        (gamma_vjp, "Swish2", 1, r"takes \['gamma'\], which are no attribute of the op: \['beta'\]"),
        (narrow_vjp, "Swish2", 1, "'dx' is float32 where 'x' is float64"),
        (single_vjp, "Swish2", 1, "holds for float32 alone, not for float64"),
        (scalar_vjp, "Swish2", 1, r"'dx' has shape \[\] where 'x' has \[3\]"),
        (half_vjp, "Pair", 2, "returns no 'dw', though the op's body depends on 'w'"),
        (stranger_vjp, "Swish2", 1, r"reads \['z'\], which are no input \['x'\]"),
    ],
)
def test_a_rule_that_does_not_fit_the_body_is_refused(rule, name, version, reason):
    with pytest.raises(gradgen.GradientError, match=reason):
        with_rule(rule, name, version=version)
    if name == "Pair":
        return
    registry = gradgen.Registry()
    try:
        gradgen.vjp_rule("my.domain", name, registry=registry, linear=False)(rule)
    except gradgen.GradientError:
        return  # refused even without the body
    with pytest.raises(gradgen.GradientError, match=reason):
        gradgen.op("my.domain", name, registry=registry)(swish2)


def old(x):
    return op18.Relu(x)


def unannotated(x, k=2.0):
    return x * k


def typed_in():
    """A function without a file, as one typed at the prompt is."""
    names = {"op": op}
    exec("def typed(x):\n    return op.Relu(x)", names)
    return names["typed"]


@pytest.mark.parametrize(
    ("domain", "name", "function", "reason"),
    [
        ("my.domain", "Mine", unannotated, "'k' has a default, as attributes have: annotate it"),
        ("my.domain", "Mine", typed_in(), "put the function into a file"),
        ("", "Mine", swish2, "'ai.onnx' is a domain of the standard"),
        ("ai.onnx.ml", "Mine", swish2, "is a domain of the standard"),
        ("my.domain", "my op", swish2, "op_type is a name, not 'my op'"),
        ("my.domain", "Mine", script(RULES, default_opset=op18)(old), "written at opset 18"),
        ("my.domain", "Mine", 3, "not a int"),
    ],
)
def test_what_is_no_op_is_refused(domain, name, function, reason):
    with pytest.raises(gradgen.GradientError, match=reason):
        gradgen.op(domain, name, registry=gradgen.Registry())(function)


def test_a_second_one_is_refused_and_both_are_named():
    registry = with_rule(straight_vjp)
    with pytest.raises(
        gradgen.GradientError, match=r"'straight_vjp' \(test_authoring.py, line \d+\) and .*'plain_vjp'"
    ):
        gradgen.vjp_rule("my.domain", "Swish2", registry=registry)(plain_vjp)
    with pytest.raises(gradgen.GradientError, match=r"'swish2' \(.*\) and the op of 'quick'"):
        gradgen.op("my.domain", "Swish2", registry=MINE)(quick)


def test_every_transform_takes_the_ops():
    registry = with_rule(plain_vjp)
    text = """<ir_version: 10, opset_import: ["" : 17, "my.domain" : 1]>
    g (float[3] x) => (float[3] y) { h = Exp (x)  y = my.domain.Swish2 <beta = 2.0> (h) }"""
    proto = parser.parse_model(text)
    want = CT * differences(lambda v: swish(np.exp(v), 2.0).sum(), X)
    kept = gradgen.vjp(proto, registry=registry, inline=False)
    np.testing.assert_allclose(run(kept, x=X, grad_y=CT)["grad_x"], want, rtol=2e-4)
    pushed = gradgen.jvp(proto, registry=registry)
    np.testing.assert_allclose(run(pushed, x=X, tangent_x=CT)["tangent_y"], want, rtol=2e-4)
    forward, backward = gradgen.vjp_pair(proto, registry=registry)
    saved = {k: v for k, v in run(forward, x=X).items() if k in [i.name for i in backward.graph.input]}
    given = {"x": X} if "x" in [i.name for i in backward.graph.input] else {}
    np.testing.assert_allclose(run(backward, grad_y=CT, **given, **saved)["grad_x"], want, rtol=2e-4)
    (record,) = gradgen.verify(proto, registry=registry)
    assert record.verdict == "ok"
    (record,) = gradgen.verify(proto, registry=with_rule(straight_vjp))
    assert record.verdict == "wrong"


def test_a_circle_of_bodies_is_refused():
    registry = gradgen.Registry()

    def function(name: str, callee: str) -> onnx.FunctionProto:
        text = f'<domain: "my.domain", opset_import: ["" : 21, "my.domain" : 1]> {name} (x) => (y)'
        return parser.parse_function(f"{text} {{ y = my.domain.{callee} (x) }}")

    with pytest.raises(gradgen.GradientError, match="my.domain::One: its body calls itself"):
        gradgen.op("my.domain", "One", registry=registry)(function("One", "One"))
    gradgen.op("my.domain", "One", registry=registry)(function("One", "Two"))
    with pytest.raises(gradgen.GradientError, match="my.domain::Two: its body calls itself"):
        gradgen.op("my.domain", "Two", registry=registry)(function("Two", "One"))


def test_parameters_are_those_that_the_rules_of_the_registry_differentiate():
    """A rule that gives no gradient to an input leaves no parameter in it."""
    text = """<ir_version: 10, opset_import: ["" : 21, "my.domain" : 1]>
    g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = my.domain.Shift(x, w) }"""
    registry = gradgen.Registry()

    @script(RULES, default_opset=op)
    def shift_vjp(dy, x, w):
        dx = op.Identity(dy)
        return dx

    gradgen.register_vjp("my.domain", "Shift", shift_vjp, inputs=["x", "w"], registry=registry)
    assert gradgen.parameters(parser.parse_model(text)) == ["w"]
    assert gradgen.parameters(parser.parse_model(text), registry=registry) == []
