# Verification: each verdict falls where it should, random draws are held fixed, and the command says it all.
"""Tests of `gradgen.verify` and `gradgen verify`."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from onnx import parser

import gradgen
from gradgen.cli import cli
from gradgen.engine import registry
from gradgen.pinning import draw, number_draws, pin
from gradgen.rules.lang import traced

DIGITS = Path(__file__).parent.parent / "examples" / "digits_cnn.onnx"
HEAD = '<ir_version: 10, opset_import: ["" : 21]> '


def model(text: str) -> onnx.ModelProto:
    parsed = parser.parse_model(HEAD + text)
    onnx.checker.check_model(parsed, full_check=True)
    return parsed


def verdicts(found: list[gradgen.verification.Verification]) -> dict[str, str]:
    return {r.name: r.verdict for r in found}


def with_rule(op_type: str, rule) -> gradgen.Registry:
    rules = gradgen.Registry(parent=registry.registered())
    gradgen.vjp_rule("", op_type, registry=rules)(rule)
    return rules


@pytest.mark.parametrize("kind", ["path", "text", "proto", "ir"])
def test_each_value_gets_a_record(kind):
    source = {"path": DIGITS, "text": str(DIGITS), "proto": onnx.load(DIGITS), "ir": ir.load(DIGITS)}[kind]
    found = gradgen.verify(source, ["fc.*", "image"], "loss")
    assert [(r.name, r.shape, r.verdict, r.reason) for r in found] == [
        ("fc.weight", (10, 64), "ok", ""),
        ("fc.bias", (10,), "ok", ""),
        ("image", (2, 1, 8, 8), "ok", ""),
    ]
    assert all(r.error_float64 < 1e-8 and r.error_float32 < 1e-4 for r in found)


def test_weights_in_a_file_of_their_own(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(onnx.load(DIGITS), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert verdicts(gradgen.verify(path, "fc.bias", "loss")) == {"fc.bias": "ok"}


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_onnxruntime_has_fused(tmp_path, seed):
    """FusedConv has no float64 kernel; in float32 steps across kinks made a right gradient look wrong."""
    options, path = onnxruntime.SessionOptions(), tmp_path / "opt.onnx"
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(DIGITS, options, providers=["CPUExecutionProvider"])
    assert "FusedConv" in {n.op_type for n in onnx.load(path).graph.node}
    found = gradgen.verify(path, "conv*", "loss", seed=seed)
    assert {(r.verdict, r.reason) for r in found} == {("ok", "")} and all(r.error_float64 < 1e-8 for r in found)


def test_intermediate_values_on_both_sides():
    proto = model("g (float[3] x) => (float[3] y) { h = Sin(x)\n k = Exp(h)\n y = Mul(k, k) }")
    assert verdicts(gradgen.verify(proto, ["x", "h"], ["k", "y"])) == {"x": "ok", "h": "ok"}


def test_a_wrong_rule_is_wrong():
    @traced("dX")
    def relu_vjp(dY, Y):
        from gradgen.rules.lang import op

        return op.Mul(dY, np.asarray(1.01, np.float32))

    found = gradgen.verify(DIGITS, ["conv1.bias", "fc.bias"], "loss", registry=with_rule("Relu", relu_vjp))
    assert verdicts(found) == {"conv1.bias": "wrong", "fc.bias": "ok"}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_wrong_rule_of_an_op_that_ignores_the_size_of_its_input_is_wrong(seed):
    """Along the point itself its derivative is zero, whatever it is multiplied by: made-up values must differ."""

    @traced("dinput")
    def lpnormalization_vjp(doutput, input):
        from gradgen.rules.lang import op

        norm = op.ReduceL2(input, [-1], keepdims=1)
        y = input / norm
        return (doutput - y * op.ReduceSum(doutput * y, [-1], keepdims=1)) / norm * 5.0

    wrong = with_rule("LpNormalization", lpnormalization_vjp)
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[2,8] x) => (float[2,8] y) { y = LpNormalization(x) }'
    proto = parser.parse_model(text)
    assert verdicts(gradgen.verify(proto, seed=seed)) == {"x": "ok"}
    assert verdicts(gradgen.verify(proto, seed=seed, registry=wrong)) == {"x": "wrong"}


@pytest.mark.parametrize(("x", "verdict"), [([0, 1, -1], "kink"), ([0.1, 1, -1], "ok"), ([np.nan, 1, 2], "unresolved")])
def test_a_kink_is_said(x, verdict):
    proto = model("g (float[3] x) => (float[3] y) { r = Relu(x)\n y = Exp(r) }")
    (found,) = gradgen.verify(proto, feeds={"x": np.array(x, np.float32)})
    assert found.verdict == verdict
    assert ("one-sided" in found.reason) == (verdict == "kink")


def test_a_kink_at_which_the_central_difference_agrees_is_said_too():
    (found,) = gradgen.verify(model("g (float[1] x) => (float[1] y) { y = Abs(x) }"), feeds={"x": np.zeros(1, "f4")})
    assert found.verdict == "ok" and "at a kink" in found.reason


def test_what_float32_loses_is_wrong():
    """At x = 1 both products are exact; times a cotangent they are rounded by as much as they differ."""
    proto = model("""g (float[2] x) => (float[2] y) <float a = {16777216}, float b = {16777215}> {
        m = Mul(x, a)\n n = Mul(x, b)\n y = Sub(m, n) }""")
    (found,) = gradgen.verify(proto, feeds={"x": np.ones(2, np.float32)}, seed=9)  # cotangents that are rounded much
    assert found.verdict == "wrong" and found.error_float64 < 1e-6 and found.error_float32 > 0.1
    assert "right in float64, and off by" in found.reason


DRAWS = {
    "dropout": """g (float[40] x) => (float[40] y) <float r = {0.3}, bool t = {1}> {
        s = Sin(x)\n d = Dropout(s, r, t)\n y = Mul(d, d) }""",
    "mask": """g (float[40] x) => (float[40] y) <float r = {0.3}, bool t = {1}> {
        s = Sin(x)\n d, m = Dropout(s, r, t)\n w = Where(m, d, x)\n y = Mul(w, w) }""",
    "two": """g (float[40] x) => (float[40] y) <float r = {0.5}, bool t = {1}> {
        d = Dropout<seed = 3>(x, r, t)\n e = Dropout<seed = 3>(x, r, t)\n y = Mul(d, e) }""",
    "inference": """g (float[40] x) => (float[40] y) <float r = {0.3}, bool t = {0}> {
        d = Dropout(x, r, t)\n y = Mul(d, d) }""",
    "default ratio": """g (float[40] x, bool t) => (float[40] y) { d = Dropout(x, , t)\n y = Mul(d, x) }""",
    "normal": """g (float[40] x, float[40] s) => (float[40] y) {
        n = RandomNormalLike(x)\n a = Mul(n, s)\n b = Add(a, x)\n y = Tanh(b) }""",
    "uniform": """g (float[2,3] x) => (float[2,3] y) { n = RandomUniform<shape = [2, 3]>()\n y = Mul(n, x) }""",
    "bernoulli": """g (float[40] x) => (float[40] y) { p = Sigmoid(x)\n b = Bernoulli(p)\n y = Mul(b, x) }""",
    "multinomial": """g (float[2,5] x) => (float[2,5] y) {
        i = Multinomial<sample_size = 5>(x)\n f = Cast<to = 1>(i)\n y = Mul(f, x) }""",
    "branch": """g (float[40] x, bool c) => (float[40] y) <float r = {0.3}, bool t = {1}> { z = If(c) <
        then_branch = a () => (float[40] u) { u = Dropout(x, r, t) },
        else_branch = b () => (float[40] v) { v = Neg(x) }>\n y = Mul(z, x) }""",
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_draws_are_held_fixed(name):
    found = gradgen.verify(model(DRAWS[name]))
    assert {r.verdict for r in found} == {"ok"}, found
    if name == "branch":
        assert all(math.isnan(r.error_float32) and "on the reference evaluator alone" in r.reason for r in found)
    else:
        assert all(r.error_float32 < 1e-4 for r in found), found


def test_draws_in_a_function_are_one_for_each_call():
    text = """<ir_version: 10, opset_import: ["" : 21, "m" : 1]> g (float[40] x) => (float[40] y) {
        a = m.Drop(x)\n b = m.Drop(x)\n y = Mul(a, b) }
    <domain: "m", opset_import: ["" : 21]> Drop (x) => (y) {
        r = Constant<value_float = 0.5>()\n t = Constant<value = bool {1}>()\n y = Dropout(x, r, t) }"""
    (found,) = gradgen.verify(parser.parse_model(text))
    assert found.verdict == "ok" and found.error_float32 < 1e-4


def test_what_is_pinned_is_what_was_drawn():
    proto = number_draws(model(DRAWS["two"]))
    x = np.random.default_rng(0).standard_normal(40).astype(np.float32)
    drawn = draw(proto, {"x": x})
    one, two = (drawn[seed].content for seed in (1.0, 2.0))
    assert 5 < one.sum() < 35 and (one != two).any()
    from gradgen.evaluate import Evaluator

    run = Evaluator(pin(proto, drawn))
    np.testing.assert_allclose(run({"x": x})["y"], 4 * x * x * one * two, rtol=1e-6)
    assert run.engine == "onnxruntime"


def test_a_dropout_rule_that_forgets_the_mask_is_wrong():
    @traced("ddata")
    def dropout_vjp(doutput):
        from gradgen.rules.lang import op

        return op.Identity(doutput)

    (found,) = gradgen.verify(model(DRAWS["dropout"]), registry=with_rule("Dropout", dropout_vjp))
    assert found.verdict == "wrong"


def test_straight_through_is_an_estimate():
    proto = model("""g (float[4] x) => (float[4] y) <float s = {0.1}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z)\n d = DequantizeLinear(q, s, z)\n y = Mul(d, d) }""")
    with pytest.warns(gradgen.GradientWarning):
        (found,) = gradgen.verify(proto, "x", feeds={"x": np.array([0.12, 0.33, -0.41, 0.77], np.float32)})
    assert found.verdict == "ok"
    with pytest.warns(gradgen.GradientWarning):
        (found,) = gradgen.verify(
            proto, "x", straight_through=True, feeds={"x": np.array([0.12, 0.33, -0.41, 0.77], np.float32)}
        )
    assert found.verdict == "unresolved" and "an estimate" in found.reason


def test_progress_and_seed():
    seen = []
    found = gradgen.verify(DIGITS, "fc.*", "loss", seed=3, each=lambda record, count: seen.append((record, count)))
    assert seen == [(r, 2) for r in found]
    other = gradgen.verify(DIGITS, "fc.*", "loss", seed=4)
    assert [r.error_float32 for r in found] != [r.error_float32 for r in other]
    assert found == gradgen.verify(DIGITS, "fc.*", "loss", seed=3)


@pytest.mark.parametrize(
    ("text", "feeds", "message"),
    [
        ("g (float x) => (float y) { y = Neg(x) }", {"z": np.zeros(())}, "the feeds hold z; the model's inputs are x"),
        ("g (float[2] x) => (float[2] y) { y = Neg(x) }", {"x": np.zeros(3)}, r"shape \[2\], and the stored array \[3\]"),
        ("g (float[4611686018427387904] x) => (float y) { y = ReduceSum<keepdims=0>(x) }", None, "too large to be made"),
        ("g (seq(float[2]) x) => (float[2] y) <int64 i = {0}> { y = SequenceAt(x, i) }", None, "'x' is no tensor"),
        (
            "g (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct(x) }", None, "'y' is of type sequence",
        ),
        ("g (float[2] x, int64[1] s) => (float y) { r = Reshape(x, s)\n y = ReduceSum<keepdims=0>(r) }",
         {"s": np.array([7])}, "does not run at this point"),
    ],
)  # fmt: skip
def test_what_cannot_be_verified_is_said(text, feeds, message):
    with pytest.raises(gradgen.GradientError, match=message):
        gradgen.verify(model(text), feeds=feeds)


@pytest.mark.parametrize("seed", ["a", -1, 1.5, None, True])
def test_a_seed_that_is_none_is_said(seed):
    with pytest.raises(gradgen.GradientError, match="^seed is a whole number from 0 on, not "):
        gradgen.verify(DIGITS, "fc.bias", "loss", seed=seed)
    assert verdicts(gradgen.verify(DIGITS, "fc.bias", "loss", seed=np.int64(1))) == {"fc.bias": "ok"}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["verify", *map(str, arguments)])


def test_the_command_prints_a_row_for_each_value():
    result = run(DIGITS, "--of", "loss", "--wrt", "fc.*")
    assert result.exit_code == 0, result.output
    rows = [line for line in result.stdout.splitlines() if "fc." in line]
    assert len(rows) == 2 and "10×64" in rows[0] and "ok" in rows[0]


def test_the_command_reads_standard_input_and_writes_json():
    command = [sys.executable, "-m", "gradgen", "verify", "-", "--of", "loss", "--wrt", "fc.bias", "--json"]
    done = subprocess.run(command, input=DIGITS.read_bytes(), capture_output=True, check=True)
    (record,) = json.loads(done.stdout)
    assert (record["name"], record["shape"], record["verdict"], record["reason"]) == ("fc.bias", [10], "ok", "")
    assert 0 <= record["error_float64"] < 1e-8 and 0 < record["error_float32"] < 1e-4


@pytest.mark.parametrize(
    ("x", "said", "code"),
    [([1, 2, 3], "ok", 0), ([0, 1, 2], "kink: there is no derivative", 1), ([np.inf, 1, 2], "unresolved: the", 1)],
)
def test_exit_codes(tmp_path, x, said, code):
    path, stored = tmp_path / "m.onnx", tmp_path / "in.npz"
    onnx.save(model("g (float[3] x) => (float y) { r = Relu(x)\n y = ReduceSum<keepdims=0>(r) }"), path)
    np.savez(stored, x=np.array(x, np.float32))
    result = run(path, "--inputs", stored)
    assert result.exit_code == code and said in result.stdout
    assert ("no gradient could be verified" in result.stdout) == (code == 1)
    assert run(path, "--inputs", stored, "--json").exit_code == code


def test_what_the_command_cannot_do_is_one_line(tmp_path):
    for arguments in (
        (tmp_path / "none.onnx",),
        (tmp_path,),
        (DIGITS, "--wrt", "nope"),
        (DIGITS, "--inputs", "no.npz"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2 and result.stdout == ""
        assert result.stderr.startswith("gradgen: ") and len(result.stderr.splitlines()) == 1


def test_an_intermediate_value_that_is_differentiated_too():
    proto = model("g (float[3] x) => (float[3] y) { h = Exp(x)  h__produced = Sin(h)  y = Mul(h__produced, h) }")
    found = gradgen.verify(proto, wrt=["h", "x"], of=["y", "h"])
    assert [(r.name, r.verdict) for r in found] == [("h", "ok"), ("x", "ok")]


def test_feeds_take_the_place_of_stored_inputs():
    """At the stored point w = 0 the gradient to x is zero; at the given one it is not."""
    proto = parser.parse_model(
        HEAD + "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {0.0, 0.0}> { y = Mul(x, w) }"
    )
    stored, given = (gradgen.verify(proto, wrt=["x"], feeds=f)[0] for f in ({}, {"w": np.array([5, 6], np.float32)}))
    assert stored.verdict == given.verdict == "ok"
    assert stored.reason == "zero to within rounding" and not given.reason
    assert {t.name for t in proto.graph.initializer} == {"w"}
