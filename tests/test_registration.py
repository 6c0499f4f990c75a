# Rules of one's own: registered ones, registries for one call, the checks at registration, forms and pairs.
"""Tests of register_vjp, vjp_rule, registries, forms and pairs."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser
from onnxscript import opset21 as op21
from onnxscript import script
from onnxscript.values import Opset

import gradgen
from gradgen.engine.conditions import UNKNOWN, holds
from gradgen.engine.registry import Registry, registered
from gradgen.engine.rows import Form, Row
from gradgen.rules.lang import op, traced

MINE = Opset("mine", 1)


@script(MINE, default_opset=op21)
def cube_vjp(dy, x):
    """dx = 3·x²·dy."""
    three = op21.CastLike(3, x)
    dx = dy * three * x * x
    return dx


@script(MINE, default_opset=op21)
def clipped_vjp(dy, x):
    """A gradient that is cut off: not linear."""
    dx = op21.Relu(dy) * x
    return dx


@script(MINE, default_opset=op21)
def misnamed_vjp(dy, x):
    result = dy * x
    return result


CUBE = """<ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
g (float[3] x) => (float[3] y) { y = mine.Cube(x) }
<domain: "mine", opset_import: ["" : 21]>
Cube (x) => (y) { a = Mul(x, x)
 y = Mul(a, x) }"""


def fresh() -> Registry:
    return Registry(parent=registered())


def run(proto: onnx.ModelProto, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def test_a_registry_for_one_call():
    registry = fresh()
    gradgen.register_vjp("mine", "Cube", cube_vjp, registry=registry)
    result = gradgen.vjp(parser.parse_model(CUBE), registry=registry)
    assert "Cube" in [n.op_type for n in result.graph.node], "a function with a rule of its own is not inlined"
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(run(result, x=x, grad_y=np.ones(3, np.float32))["grad_x"], 3 * x * x)
    without = gradgen.vjp(parser.parse_model(CUBE))
    assert "Cube" not in [n.op_type for n in without.graph.node]
    np.testing.assert_array_equal(run(without, x=x, grad_y=np.ones(3, np.float32))["grad_x"], 3 * x * x)


def test_a_registry_falls_back_to_the_registered_rules():
    registry = gradgen.Registry()
    gradgen.register_vjp("mine", "Cube", cube_vjp, registry=registry)
    text = CUBE.replace("y = mine.Cube(x) }", "c = mine.Cube(x)\n y = Mul(c, x) }", 1)
    x = np.array([1, 2, 3], np.float32)
    result = gradgen.vjp(parser.parse_model(text), registry=registry)
    np.testing.assert_array_equal(run(result, x=x, grad_y=np.ones(3, np.float32))["grad_x"], 4 * x**3)
    with pytest.raises(gradgen.GradientError, match="ai.onnx::Mul"):
        gradgen.vjp(parser.parse_model(text), registry=gradgen.Registry(parent=None))


def test_a_traced_rule_and_the_decorator():
    registry = fresh()

    @gradgen.vjp_rule("mine", "Cube", inputs=["x"], outputs=["y"], registry=registry)
    @traced("dx")
    def cube(dy, x):
        return dy * op.Mul(x, x) * 3

    x = np.array([1, 2, 3], np.float32)
    result = gradgen.vjp(parser.parse_model(CUBE), registry=registry)
    np.testing.assert_array_equal(run(result, x=x, grad_y=np.ones(3, np.float32))["grad_x"], 3 * x * x)


def test_a_standard_op_can_be_given_another_rule_for_one_call():
    registry = fresh()

    @gradgen.vjp_rule("", "Relu", linear=False, registry=registry)
    @traced("dX")
    def guided_vjp(dY, Y):
        return op.Relu(dY) * op.Cast(op.Greater(Y, 0), to=1)

    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { y = Relu(x) }'
    )
    x, ct = np.array([1, 2, -3], np.float32), np.array([1, -1, 1], np.float32)
    np.testing.assert_array_equal(run(gradgen.vjp(proto, registry=registry), x=x, grad_y=ct)["grad_x"], [1, 0, 0])
    np.testing.assert_array_equal(run(gradgen.vjp(proto), x=x, grad_y=ct)["grad_x"], [1, -1, 0])


def test_what_is_not_linear_must_say_so():
    with pytest.raises(gradgen.GradientError, match=r"not linear in \['dy'\]; declare it with linear=False"):
        gradgen.register_vjp("mine", "Cube", clipped_vjp, registry=fresh())
    gradgen.register_vjp("mine", "Cube", clipped_vjp, linear=False, registry=fresh())


@script(MINE, default_opset=op21)
def affine_vjp(dy, x):
    dx = op21.Add(dy, x)
    return dx


@script(MINE, default_opset=op21)
def ignoring_vjp(dy, x):
    dx = op21.Exp(x)
    return dx


@script(MINE, default_opset=op21)
def sign_vjp(dy, x):
    dx = op21.Sign(dy)
    return dx


@script(MINE, default_opset=op21)
def floor_vjp(dy, x, scale: float):
    """The attribute has no default."""
    dx = op21.Floor(dy) * x * op21.CastLike(scale, x)
    return dx


@traced("dx")
def traced_vjp(dy, x):
    return op.Mul(op.Round(dy), x)


@traced("dinputs")
def variadic_vjp(doutput, inputs):
    return [op.Mul(doutput, x) + x for x in inputs]


@pytest.mark.parametrize("rule", [affine_vjp, ignoring_vjp, sign_vjp, floor_vjp, traced_vjp])
def test_what_numbers_show_not_to_be_linear(rule):
    with pytest.raises(gradgen.GradientError, match=r"'dx' is not linear in \['dy'\]"):
        gradgen.register_vjp("mine", "Cube", rule, inputs=["x"], outputs=["y"], registry=fresh())
    gradgen.register_vjp("mine", "Cube", rule, inputs=["x"], outputs=["y"], linear=False, registry=fresh())


def test_a_variadic_rule_is_probed_too():
    options = {"inputs": ["inputs*"], "outputs": ["output"], "registry": fresh()}
    with pytest.raises(gradgen.GradientError, match="'dinputs' is not linear"):
        gradgen.register_vjp("mine", "Many", variadic_vjp, **options)


def test_the_rules_that_gradgen_ships_are_linear_on_numbers_or_do_not_run():
    from gradgen.engine.registry import builtin
    from gradgen.linearity import nonlinear_results

    rows = [row for row in builtin().rows() if row.forms and row.forms[-1].kind != "structural"]
    assert len(rows) > 100
    bare = [Row(r.domain, r.op_type, r.since, r.inputs, r.outputs, r.forms[-1:], zero=r.zero) for r in rows]
    assert not [row.op_type for row in bare if nonlinear_results(row, registered())]


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        (misnamed_vjp, {}, r"returns \['result'\]"),
        (cube_vjp, {"inputs": ["a"], "outputs": ["y"]}, r"reads \['x'\]"),
        (cube_vjp, {"inputs": ["x"], "outputs": ["z"]}, "takes no cotangent"),
        (lambda dy: dy, {}, "a traced rule, not a function"),
    ],
)
def test_names_and_kinds_are_checked(rule, options, message):
    with pytest.raises(gradgen.GradientError, match=message):
        gradgen.register_vjp("mine", "Cube", rule, registry=fresh(), **options)


def test_a_second_rule_in_one_registry_is_refused():
    registry = fresh()
    gradgen.register_vjp("mine", "Cube", cube_vjp, registry=registry)
    with pytest.raises(gradgen.GradientError, match="has a rule for version 1 already"):
        gradgen.register_vjp("mine", "Cube", cube_vjp, registry=registry)


def exp_row(*forms: Form) -> Registry:
    return Registry([Row("", "Exp", 1, ("input",), ("output",), forms)], parent=registered())


@traced("dinput")
def general(doutput, input):
    return doutput * op.Exp(input)


@traced("dinput")
def special(doutput, output):
    return op.Identity(doutput) * output


def form(function, reads, when=None) -> Form:
    return Form(function.name, "traced", __name__, reads, ("dinput",), when=when, function=function)


EXP = '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { y = Exp(x) }'


@pytest.mark.parametrize(
    ("when", "nodes"),
    [
        ("rank(input) == 1", 2),
        ("dim(input, 0) == 3", 2),
        ("rank(input) == 2", 3),
        ("const(input) == 0", 3),
        ("not given(input)", 3),
    ],
)
def test_the_first_form_whose_condition_is_known_to_hold_is_taken(when, nodes):
    registry = exp_row(form(special, ("doutput", "output"), when), form(general, ("doutput", "input")))
    result = gradgen.vjp(parser.parse_model(EXP), registry=registry)
    # The general form computes Exp again, which merges with the forward node's: count before merging by rule name.
    rules = {p.value for n in result.graph.node for p in n.metadata_props if p.key == "gradgen.rule"}
    assert rules == ({"special"} if nodes == 2 else {"general"})
    x = np.array([0, 1, 2], np.float32)
    np.testing.assert_allclose(run(result, x=x, grad_y=np.ones(3, np.float32))["grad_x"], np.exp(x), rtol=1e-6)


def test_a_condition_may_ask_whether_an_attribute_is_there():
    assert holds("given(clip)", {"X": None}, {"clip": 0.0}) and not holds("given(clip) or given(X)", {"X": None}, {})
    assert holds("not given(clip)", {"X": None}, {}) and not holds("not given(clip)", {"X": None}, {"clip": 0.0})
    for text in ("given(clip)", "not given(clip)", "clip == 1", "not clip == 1"):
        assert not holds(text, {"X": None}, {"clip": UNKNOWN}), "a reference, of which nobody knows whether it is there"


def test_a_pair_stands_in_for_the_node_on_differentiated_paths_alone():
    import sys

    @traced("output", "half")
    def exp_fwd(input):
        half = op.Exp(input * 0.5)
        return half * half, half

    @traced("dinput")
    def exp_vjp__pair(doutput, half):
        return doutput * half * half

    module = sys.modules[__name__]
    module.exp_fwd = exp_fwd
    pair = Form("exp_vjp__pair", "traced", __name__, ("doutput", "half"), ("dinput",), fwd="exp_fwd",
                fwd_reads=("input",),
                fwd_returns=("output", "half"), function=exp_vjp__pair)  # fmt: skip
    registry = exp_row(pair, form(general, ("doutput", "input")))
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x, float[3] u) => (float[3] y, float[3] v)'
        "{ y = Exp(x)\n v = Exp(u) }"
    )
    result = gradgen.vjp(proto, wrt=["x"], of=["y"], registry=registry)
    kinds = [n.op_type for n in result.graph.node]
    assert kinds.count("Exp") == 2, "one for v, which is left alone, and the pair's"
    x = np.array([0, 1, 2], np.float32)
    found = run(result, x=x, u=x, grad_y=np.ones(3, np.float32))
    for name in ("y", "v", "grad_x"):
        np.testing.assert_allclose(found[name], np.exp(x), rtol=1e-6)
    assert [o.name for o in result.graph.output] == ["y", "v", "grad_x"]


def test_a_later_row_holds_from_its_version_on():
    rows = [Row("", "Exp", since, ("input",), ("output",), (form(general, ("doutput", "input")),)) for since in (1, 23)]
    registry = Registry(rows, parent=None)
    assert registry.find("", "Exp", 22).since == 1
    assert registry.find("ai.onnx", "Exp", 25).since == 23
    assert registry.find("other", "Exp", 25) is None
    assert registry.find("", "Log", 21) is None


def test_models_beyond_21_keep_their_opset():
    proto = parser.parse_model(EXP.replace("21]", "25]"))
    result = gradgen.vjp(proto)
    assert {o.domain: o.version for o in result.opset_import} == {"": 25}
    onnx.checker.check_model(result, full_check=True)


TWO_DOMAINS = """<ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
g (float[3] x, float[3] u) => (float[3] y, float[3] v) { y = mine.Relu(x)\n v = Relu(u) }
<domain: "mine", opset_import: ["" : 21]>
Relu (X) => (Y) { Y = Mul(X, X) }"""


@pytest.mark.parametrize("wrt", [["x", "u"], ["u", "x"]])
def test_two_ops_of_one_name_keep_their_rules(wrt):
    registry = fresh()

    @gradgen.vjp_rule("mine", "Relu", inputs=["X"], outputs=["Y"], registry=registry)
    @traced("dX")
    def relu_vjp(dY, X, Y):
        return dY * X * 2.0

    result = gradgen.vjp(parser.parse_model(TWO_DOMAINS), wrt=wrt, registry=registry)
    x, ct = np.array([-1, 2, -3], np.float32), np.ones(3, np.float32)
    found = run(result, x=x, u=x, grad_y=ct, grad_v=ct)
    np.testing.assert_array_equal(found["grad_x"], 2 * x)
    np.testing.assert_array_equal(found["grad_u"], [0, 1, 0])


def test_a_rule_called_as_one_of_the_library_does_not_replace_it():
    @script(MINE, default_opset=op21)
    def sin_vjp(dy, x):
        """Not the derivative of Sin."""
        dx = dy * x * op21.CastLike(7, x)
        return dx

    registry = fresh()
    gradgen.register_vjp("mine", "Fancy", sin_vjp, registry=registry)
    proto = parser.parse_model(EXP.replace("Exp", "Sin"))
    x = np.array([0, 1, 2], np.float32)
    found = run(gradgen.vjp(proto, registry=registry), x=x, grad_y=np.ones(3, np.float32))["grad_x"]
    np.testing.assert_allclose(found, np.cos(x), rtol=1e-6)


def test_a_pair_in_front_of_a_branch_passes_its_cotangent():
    import sys

    @traced("output", "half")
    def exp_fwd(input):
        half = op.Exp(input * 0.5)
        return half * half, half

    @traced("dinput")
    def exp_vjp__pair(doutput, half):
        return doutput * half * half

    sys.modules[__name__].exp_fwd = exp_fwd
    pair = Form("exp_vjp__pair", "traced", __name__, ("doutput", "half"), ("dinput",), fwd="exp_fwd", fwd_reads=("input",),
                fwd_returns=("output", "half"), function=exp_vjp__pair)  # fmt: skip
    registry = exp_row(pair, form(general, ("doutput", "input")))
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x, bool c) => (float[3] y) {
            h = Exp(x)
            y = If(c) <then_branch = t () => (float[3] a) { a = Mul(h, h) }, else_branch = e () => (float[3] b) { b = Neg(h) }>
        }"""
    )
    x = np.array([0, 1, -1], np.float32)
    result = gradgen.vjp(proto, registry=registry)
    found = run(result, x=x, c=np.array(True), grad_y=np.ones(3, np.float32))["grad_x"]
    np.testing.assert_allclose(found, 2 * np.exp(2 * x), rtol=1e-5)


def test_a_declared_shape_that_the_op_does_not_give_is_a_cause_that_is_named():
    registry = fresh()
    gradgen.register_vjp("mine", "Cube", cube_vjp, registry=registry)
    with pytest.raises(
        gradgen.GradientError, match=r"Cube 'y' reads float\[3\] 'x': .*; the model declares float\[2, 3\] for 'y'"
    ):
        gradgen.vjp(parser.parse_model(CUBE.replace("float[3] y", "float[2,3] y")), registry=registry)
