# Models that a call has been at before: what their metadata says must not be taken for what the next call did.
"""Tests of calls on gradient models: names, seeds, and metadata that speak of an earlier call."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from click.testing import CliRunner
from onnx import parser

import gradgen
from gradgen.cli import cli
from gradgen.interop import scipy_objective
from gradgen.interop.functions import Function
from gradgen.request import roles_of

TWO = """<ir_version: 10, opset_import: ["" : 21]>
g (double[3] x, double[3] w) => (double y, double z) {
    a = Mul (x, w)  s = Sin (a)  y = ReduceSum <keepdims = 0> (s)  e = Exp (x)  z = ReduceSum <keepdims = 0> (e) }"""
X, W = np.array([0.3, -1.0, 2.0]), np.array([1.5, 0.5, -0.25])


def two() -> onnx.ModelProto:
    return parser.parse_model(TWO)


def run(proto: onnx.ModelProto, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {i.name: feeds[i.name] for i in session.get_inputs()}), strict=True))


def names_of(values) -> list[str]:
    return [v.name for v in values]


@pytest.mark.parametrize("of", [["y"], ["z"], ["y", "z"]])
def test_an_objective_of_a_gradient_model(of):
    """Value and gradient are those of what this call names, whatever an earlier one has seeded."""
    values = {"y": np.sin(X * W).sum(), "z": np.exp(X).sum()}
    slopes = {"y": np.cos(X * W) * W, "z": np.exp(X)}
    for first in (two(), gradgen.value_and_grad(two(), of=["y"]), gradgen.vjp(two(), of=["y"])):
        given = {"grad_y": np.array(1.0)} if "grad_y" in names_of(first.graph.input) else {}
        f = scipy_objective(first, wrt=["x"], of=of, fixed={"w": W, **given})
        value, gradient = f(X)
        assert value == pytest.approx(sum(values[n] for n in of))
        np.testing.assert_allclose(gradient, sum(slopes[n] for n in of))


def test_an_objective_of_a_gradient():
    f = scipy_objective(gradgen.value_and_grad(two(), of=["y"]), wrt=["x"], of=["grad_x"], fixed={"w": W}, reduce="sum")
    value, gradient = f(X)
    assert value == pytest.approx((np.cos(X * W) * W).sum())
    np.testing.assert_allclose(gradient, -np.sin(X * W) * W * W)


def test_metadata_of_what_is_no_longer_there_is_not_believed():
    """A model that was cut out of a gradient model keeps its metadata, as onnx's own tools do."""
    proto = two()
    onnx.helper.set_model_props(proto, {p.key: p.value for p in gradgen.vjp(two()).metadata_props})
    forward, backward = gradgen.vjp_pair(proto, of=["y"])
    assert names_of(forward.graph.output)[:2] == ["y", "z"]
    assert names_of(backward.graph.output) == ["grad_x", "grad_w"]
    held = {"x": X, "w": W, "grad_y": np.array(2.0)}
    np.testing.assert_allclose(run(backward, **held, **run(forward, **held))["grad_x"], 2 * np.cos(X * W) * W)
    function = Function(proto, None, None)
    assert function.wrt == ["x", "w"] and function.of == ["y", "z"]
    assert scipy_objective(proto, wrt=["x"], of=["z"], fixed={"w": W})(X)[0] == pytest.approx(np.exp(X).sum())


def test_seeds_are_those_of_the_last_call_that_seeded():
    first = gradgen.value_and_grad(two(), of=["y"])
    seeded = {n for n, r in roles_of(gradgen.grad(first, of=["z"])).items() if r["role"] == "seeded with 1"}
    assert seeded == {"z"}
    seeded = {n for n, r in roles_of(gradgen.vjp(first, of=["z"])).items() if r["role"] == "seeded with 1"}
    assert seeded == {"y"}  # no other call has taken its place


@pytest.mark.parametrize(
    "request_", [("grad", "--of", "z"), ("vjp", "--of", "z"), ("grad", "--of", "z", "--value")], ids=" ".join
)
def test_a_check_on_the_command_line_seeds_what_this_call_has_seeded(tmp_path, request_):
    onnx.save(gradgen.value_and_grad(two(), of=["y"]), tmp_path / "first.onnx")
    call, *options = request_
    command = [call, str(tmp_path / "first.onnx"), "--wrt", "x", *options, "-o", str(tmp_path / "second.onnx")]
    result = CliRunner().invoke(cli, [*command, "--check", "--json"])
    assert result.exit_code == 0, result.output
    assert [r["verdict"] for r in json.loads(result.stdout)["check"]] == ["ok"]


def test_one_prefix_holds_for_a_whole_call():
    """What is taken is a cotangent's name alone, and the gradients' go with it."""
    proto = parser.parse_model(TWO.replace("double[3] w)", "double[3] w, double[3] grad_y, double[3] tangent_x)"))
    result = gradgen.vjp(proto, ["x"], ["y"])
    assert names_of(result.graph.input)[-1] == "grad2_y" and names_of(result.graph.output)[-1] == "grad2_x"
    result = gradgen.vjp(proto, ["x"], ["y"], seeds=2)
    assert names_of(result.graph.input)[-1] == "grad2_y" and names_of(result.graph.output)[-1] == "grad2_x"
    result = gradgen.jvp(proto, ["x"], ["y"])
    assert names_of(result.graph.input)[-1] == "tangent2_x" and names_of(result.graph.output)[-1] == "tangent2_y"
    _, backward = gradgen.vjp_pair(proto, ["x"], ["y"])
    assert names_of(backward.graph.input)[-1] == "grad2_y" and names_of(backward.graph.output) == ["grad2_x"]
