# Verification of tangents: verdicts fall where they should, beside those of gradients, and the command says them all.
"""Tests of `mode=` of `gradgen.verify` and `--mode` of `gradgen verify`."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import onnx
import pytest
from command_line import DIGITS, refused, run, save_text
from onnx import parser

import gradgen
from gradgen import verification
from gradgen.differences import check_gradients
from gradgen.engine import registry
from gradgen.rules.lang import op, traced
from gradgen.tangents import check_tangents
from gradgen.transforms.forward_mode import jvp


def model(text: str) -> onnx.ModelProto:
    parsed = parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> ' + text)
    onnx.checker.check_model(parsed, full_check=True)
    return parsed


def judged(found: list[verification.Verification]) -> dict[tuple[str, str], str]:
    return {(r.mode, r.name): r.verdict for r in found}


def with_rule(op_type: str, rule, **options) -> gradgen.Registry:
    rules = gradgen.Registry(parent=registry.registered())
    gradgen.vjp_rule("", op_type, registry=rules, **options)(rule)
    return rules


def test_tangents_of_each_value():
    found = gradgen.verify(DIGITS, ["fc.*", "image", "conv1.bias"], "loss", mode="jvp")
    assert [(r.name, r.shape, r.verdict, r.reason, r.mode) for r in found] == [
        ("fc.weight", (10, 64), "ok", "", "jvp"),
        ("fc.bias", (10,), "ok", "", "jvp"),
        ("image", (2, 1, 8, 8), "ok", "", "jvp"),
        ("conv1.bias", (8,), "ok", "", "jvp"),
    ]
    assert all(r.error_float64 < 1e-8 and 0 < r.error_float32 < 1e-4 for r in found)


def test_both_are_measured_in_the_same_directions():
    seen = []
    both = gradgen.verify(DIGITS, "fc.*", mode="both", seed=2, each=lambda record, count: seen.append((record, count)))
    assert seen == [(r, 4) for r in both]
    assert both[:2] == gradgen.verify(DIGITS, "fc.*", seed=2)
    assert both[2:] == gradgen.verify(DIGITS, "fc.*", seed=2, mode="jvp")
    proto = model("g (float[3] x, float[3] u) => (float[3] y, float[3] z) { h = Exp(x) y = Mul(h, u) z = Sin(h) }")
    feeds = {n: np.linspace(0.3, 1.1, 3, dtype=np.float32) for n in ("x", "u")}
    gradients = check_gradients(proto, gradgen.vjp(proto), feeds, seed=5)
    tangents = check_tangents(proto, gradgen.jvp(proto), feeds, seed=5)
    assert [r.numeric for r in gradients] == [r.numeric for r in tangents]
    for one, other in zip(gradients, tangents, strict=True):  # <Jᵀu, v> = <u, Jv>
        assert one.analytic == pytest.approx(other.analytic, rel=1e-13)


@pytest.mark.parametrize("elements", ["float", "double", "float16"])
def test_several_outputs_intermediate_values_and_element_types(elements):
    proto = model(f"""g ({elements}[3] x, {elements}[3] u) => ({elements}[3] y, {elements} z) {{
        h = Sin(x) k = Mul(h, u) y = Tanh(k) z = ReduceSum<keepdims=0>(k) }}""")
    found = gradgen.verify(proto, ["x", "h", "u"], ["k", "y", "z", "h"], mode="jvp")
    assert judged(found) == {("jvp", n): "ok" for n in ("x", "h", "u")}
    # h is what float16 has rounded, and the float64 model of tangents computes it anew
    assert all(r.error_float64 < (1e-5 if elements == "float16" else 1e-9) for r in found), found
    assert all(r.error_float32 < (1e-2 if elements == "float16" else 1e-5) for r in found)


def test_an_output_that_does_not_move_has_a_tangent_of_zeros():
    proto = model("g (float[3] x, float[2] u) => (float[3] y, float[2] z) { y = Sin(x) z = Exp(u) }")
    with pytest.warns(gradgen.GradientWarning, match="'z' does not depend on what is varied"):
        found = gradgen.verify(proto, "x", mode="jvp")
    assert judged(found) == {("jvp", "x"): "ok"}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_wrong_rule_is_wrong_both_ways(seed):
    @traced("dX")
    def relu_vjp(dY, Y):
        return op.Mul(dY, np.asarray(1.01, np.float32))

    wrong = with_rule("Relu", relu_vjp)
    found = gradgen.verify(DIGITS, ["conv1.bias", "fc.bias"], "loss", mode="both", registry=wrong, seed=seed)
    assert judged(found) == {
        ("vjp", "conv1.bias"): "wrong", ("vjp", "fc.bias"): "ok", ("jvp", "conv1.bias"): "wrong", ("jvp", "fc.bias"): "ok"
    }  # fmt: skip


def planted(monkeypatch, change):
    """Let `jvp` of verify give a model that is changed."""

    def faulty(*arguments, **options):
        result = jvp(*arguments, **options)
        change(result)
        return result

    kind = dataclasses.replace(verification.KINDS["jvp"], transform=faulty)
    monkeypatch.setitem(verification.KINDS, "jvp", kind)


PRODUCT = "g (float[3] x, float[3] u) => (float[3] y) { h = Exp(x) y = Mul(h, u) }"


def test_a_fault_of_jvp_alone_is_found(monkeypatch):
    """The summand of x is left out of the tangent: the gradients are right, and so is the tangent as u moves."""

    def drop(result):
        (total,) = (n for n in result.graph.node if n.op_type in ("Add", "Sum"))
        producers = {o: n for n in result.graph.node for o in n.output}
        (kept,) = (v for v in total.input if "tangent_u" in producers[v].input)
        total.op_type = "Identity"
        del total.input[:]
        total.input.append(kept)

    planted(monkeypatch, drop)
    found = gradgen.verify(model(PRODUCT), mode="both")
    assert judged(found) == {("vjp", "x"): "ok", ("vjp", "u"): "ok", ("jvp", "x"): "wrong", ("jvp", "u"): "ok"}


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ("ReduceSum<keepdims=1>(tangent)", "the tangent of 'y' has shape [1]"),
        ("Div(tangent, zero)", "the tangent is not finite where the primal is"),
    ],
)
def test_tangents_that_are_no_such_are_said(monkeypatch, tail, reason):
    def spoil(result):
        (last,) = (n for n in result.graph.node if "tangent_y" in n.output)
        last.output[0] = "tangent"
        more = model(
            f"g (float[3] tangent) => (float[N] tangent_y) {{ zero = Sub(tangent, tangent) tangent_y = {tail} }}"
        )
        result.graph.node.extend(more.graph.node)
        del result.graph.output[-1].type.tensor_type.shape.dim[:]
        result.graph.output[-1].type.CopyFrom(more.graph.output[0].type)

    planted(monkeypatch, spoil)
    (found,) = gradgen.verify(model(PRODUCT), "x", mode="jvp")
    assert (found.verdict, found.reason) == ("wrong", reason)


@pytest.mark.parametrize(("x", "verdict"), [([0, 1, -1], "kink"), ([0.1, 1, -1], "ok"), ([np.nan, 1, 2], "unresolved")])
def test_a_kink_is_said(x, verdict):
    proto = model("g (float[3] x) => (float[3] y) { r = Relu(x) y = Exp(r) }")
    (found,) = gradgen.verify(proto, feeds={"x": np.array(x, np.float32)}, mode="jvp")
    assert found.verdict == verdict
    assert ("one-sided" in found.reason) == (verdict == "kink")


DRAWS = {
    "dropout": """g (float[40] x) => (float[40] y) <float r = {0.3}, bool t = {1}> {
        s = Sin(x) d = Dropout(s, r, t) y = Mul(d, d) }""",
    "two": """g (float[40] x) => (float[40] y) <float r = {0.5}, bool t = {1}> {
        d = Dropout<seed = 3>(x, r, t) e = Dropout<seed = 3>(x, r, t) y = Mul(d, e) }""",
    "normal": """g (float[40] x, float[40] s) => (float[40] y) {
        n = RandomNormalLike(x) a = Mul(n, s) b = Add(a, x) y = Tanh(b) }""",
    "branch": """g (float[40] x, bool c) => (float[40] y) <float r = {0.3}, bool t = {1}> { z = If(c) <
        then_branch = a () => (float[40] u) { u = Dropout(x, r, t) },
        else_branch = b () => (float[40] v) { v = Neg(x) }> y = Mul(z, x) }""",
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_draws_are_held_fixed(name):
    found = gradgen.verify(model(DRAWS[name]), mode="both")
    assert {r.verdict for r in found} == {"ok"}, found
    if name == "branch":
        assert all(math.isnan(r.error_float32) and "on the reference evaluator alone" in r.reason for r in found)
    else:
        assert all(r.error_float32 < 1e-4 for r in found), found


def test_what_float32_loses_is_wrong():
    """Both products are exact, and times a tangent they are rounded by as much as they differ."""
    proto = model("""g (float[2] x) => (float[2] y) <float a = {16777216}, float b = {16777215}> {
        m = Mul(x, a) n = Mul(x, b) y = Sub(m, n) }""")
    (found,) = gradgen.verify(proto, feeds={"x": np.ones(2, np.float32)}, mode="jvp")
    assert found.verdict == "wrong" and found.error_float64 < 1e-6 and found.error_float32 > 0.1
    assert "right in float64, and off by" in found.reason


def test_straight_through_is_an_estimate():
    proto = model("""g (float[4] x) => (float[4] y) <float s = {0.1}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Mul(d, d) }""")
    feeds = {"x": np.array([0.12, 0.33, -0.41, 0.77], np.float32)}
    with pytest.warns(gradgen.GradientWarning):
        found = gradgen.verify(proto, "x", mode="both", straight_through=True, feeds=feeds)
    assert [(r.mode, r.verdict) for r in found] == [("vjp", "unresolved"), ("jvp", "unresolved")]
    assert all("an estimate" in r.reason for r in found)


def test_the_jvp_of_a_derivative():
    """Names and metadata of the first derivative are not taken for those of the second."""
    for first in (gradgen.jvp(model(PRODUCT), "x"), gradgen.vjp(model(PRODUCT), "x")):
        extra = first.graph.input[-1].name
        found = gradgen.verify(first, ["x", extra], mode="both")
        assert judged(found) == {(m, n): "ok" for m in ("vjp", "jvp") for n in ("x", extra)}


@traced("dX")
def gated_relu_vjp(dY, Y):
    return op.Where(op.Greater(Y, np.asarray(0, np.float32)), dY, np.asarray(0, np.float32))


def test_a_model_without_a_jvp_is_said():
    """The rule is right, and is declared to be no derivative: its gradients are verified, and nothing else can be."""
    rules = with_rule("Relu", gated_relu_vjp, linear=False)
    seen = []
    found = gradgen.verify(DIGITS, ["conv1.bias", "fc.bias"], "loss", mode="both", registry=rules,
                           each=lambda record, count: seen.append((record, count)))  # fmt: skip
    assert [(r.mode, r.name, r.shape, r.verdict) for r in found] == [
        ("vjp", "conv1.bias", (8,), "ok"), ("vjp", "fc.bias", (10,), "ok"),
        ("jvp", "conv1.bias", (8,), "refused"), ("jvp", "fc.bias", (10,), "refused"),
    ]  # fmt: skip
    assert seen == [(r, 4) for r in found]
    assert all("declared linear=False" in r.reason and "Relu" in r.reason for r in found[2:])
    assert all(math.isnan(r.error_float64) and "\n" not in r.reason for r in found[2:])
    with pytest.raises(gradgen.GradientError, match="declared linear=False"):
        gradgen.verify(DIGITS, "conv1.bias", "loss", mode="jvp", registry=rules)
    assert judged(gradgen.verify(DIGITS, "fc.bias", "loss", mode="jvp", registry=rules)) == {("jvp", "fc.bias"): "ok"}


@pytest.mark.parametrize("mode", ["", "grad", None, ["vjp"]])
def test_a_mode_that_is_none_is_said(mode):
    with pytest.raises(gradgen.GradientError, match="^mode is 'vjp', 'jvp' or 'both', not "):
        gradgen.verify(DIGITS, "fc.bias", "loss", mode=mode)


def test_what_is_no_tensor_is_said():
    proto = model("g (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct(x) }")
    with pytest.raises(gradgen.GradientError, match="'y' is of type sequence: only tensors can be verified"):
        gradgen.verify(proto, mode="jvp")


def test_the_command_prints_a_row_for_each_value_and_mode():
    result = run("verify", DIGITS, "--of", "loss", "--wrt", "fc.*", "--mode", "both")
    assert result.exit_code == 0, result.output
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if "fc." in line]
    assert [(row[0].strip(), row[2].strip(), row[-1].strip()) for row in rows] == [
        ("fc.weight", "vjp", "ok"), ("fc.bias", "vjp", "ok"), ("fc.weight", "jvp", "ok"), ("fc.bias", "jvp", "ok")
    ]  # fmt: skip
    assert "mode" not in run("verify", DIGITS, "--of", "loss", "--wrt", "fc.bias").stdout


def test_the_command_prints_json():
    for mode in ("vjp", "jvp", "both"):
        result = run("verify", DIGITS, "--of", "loss", "--wrt", "fc.bias", "--mode", mode, "--json")
        assert result.exit_code == 0, result.output
        records = json.loads(result.stdout)
        assert [r["mode"] for r in records] == (["vjp", "jvp"] if mode == "both" else [mode])
        assert {r["verdict"] for r in records} == {"ok"} and all(0 <= r["error_float64"] < 1e-8 for r in records)


def test_exit_codes(tmp_path, monkeypatch):
    path = save_text(tmp_path / "m.onnx", PRODUCT)
    planted(monkeypatch, lambda result: result.graph.node.extend(_doubled(result)))
    assert run("verify", path, "--mode", "vjp").exit_code == 0
    for mode in ("jvp", "both"):
        result = run("verify", path, "--mode", mode)
        assert result.exit_code == 1 and "wrong: the derivative differs by more" in result.stdout


def _doubled(result: onnx.ModelProto) -> list[onnx.NodeProto]:
    (last,) = (n for n in result.graph.node if "tangent_y" in n.output)
    last.output[0] = "once"
    return [onnx.helper.make_node("Add", ["once", "once"], ["tangent_y"])]


def test_the_command_says_that_there_is_no_jvp(monkeypatch):
    rules = with_rule("Relu", gated_relu_vjp, linear=False)
    for module in ("gradgen.api", "gradgen.transforms.forward_mode", "gradgen.verification"):
        monkeypatch.setattr(f"{module}.registry_of", lambda given: rules)
    arguments = ("verify", DIGITS, "--of", "loss", "--wrt", "conv1.bias")
    result = run(*arguments, "--mode", "both")
    assert result.exit_code == 1
    assert "refused: the model has a gradient, and no jvp" in result.stdout
    assert "no tangent could be verified at this point" in result.stdout and "no gradient could" not in result.stdout
    assert result.stdout.count("declared linear=False") == 1
    (gradient, tangent) = json.loads(run(*arguments, "--mode", "both", "--json").stdout)
    assert gradient["verdict"] == "ok" and tangent["verdict"] == "refused"
    assert tangent["error_float64"] is None and "declared linear=False" in tangent["reason"]
    assert "declared linear=False" in refused(run(*arguments, "--mode", "jvp"))
