"""The commands `gradgen jacobian` and `hessian`, `vjp --seeds`, and gradients of a chosen element."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from matrices import at_level, drawn, model

from gradgen.cli import cli

TEXT = "(float[4,3] x, float[3] w) => (float[4,3] y) { p = Mul(x, w) y = Tanh(p) }"
FEEDS = {"x": drawn(4, 3), "w": drawn(3)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model, to work in."""
    monkeypatch.chdir(tmp_path)
    onnx.save(model(TEXT), "model.onnx")
    return tmp_path


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def test_jacobian(folder):
    done = run("jacobian", "model.onnx", "--wrt", "w", "-o", "jacobian.onnx")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("jacobian.onnx: ")
    y, found = at_level(onnx.load("jacobian.onnx"), FEEDS)
    np.testing.assert_allclose(np.einsum("ijj->ij", found), (1 - y**2) * FEEDS["x"], rtol=1e-5)


def test_jacobian_of_each_sample_as_json(folder):
    done = run("jacobian", "model.onnx", "--wrt", "x", "--per-sample", "--mode", "reverse", "-o", "j.onnx", "--json")
    said = json.loads(done.stdout)
    assert said["outputs"][1] == {"name": "jacobian_y_x", "dtype": "float", "shape": [4, 3, 3]}
    assert said["nodes"] == len(onnx.load("j.onnx").graph.node)


def test_hessian_from_a_stream(folder):
    content = (folder / "model.onnx").read_bytes()
    done = run("hessian", "-", "--wrt", "w", "--reduce", "sum", "-o", "-", stdin=content)
    assert done.exit_code == 0, done.stderr
    built = onnx.load_model_from_string(done.stdout_bytes)
    assert [o.name for o in built.graph.output] == ["y", "hessian_w_w"]
    assert "standard output" in done.stderr


def test_several_cotangents(folder):
    for seeds, dim in (("3", 3), ("K", "K")):
        done = run("vjp", "model.onnx", "--seeds", seeds, "-o", "vjp.onnx", "--json")
        assert json.loads(done.stdout)["inputs"][-1] == {"name": "grad_y", "dtype": "float", "shape": [dim, 4, 3]}


@pytest.mark.parametrize("given", [[], ["--json"]])
def test_a_chosen_element_is_checked(folder, given):
    done = run("grad", "model.onnx", "--reduce", "element", "-o", "grad.onnx", "--check", *given)
    assert done.exit_code == 0, done.output
    if given:
        said = json.loads(done.stdout)
        assert said["inputs"][-1]["name"] == "index_y"
        assert [r["verdict"] for r in said["check"]] == ["ok", "ok"]
    else:
        assert done.stdout.count(" ok ") == 2


def test_what_is_refused(folder):
    for arguments, message in (
        (
            ["hessian", "model.onnx", "-o", "h.onnx"],
            "pass --reduce sum for the Hessian of its sum, or --reduce element",
        ),
        (["jacobian", "model.onnx", "--per-sample", "-o", "j.onnx"], "4 in 'y', 3 in 'w'"),
        (["vjp", "model.onnx", "--seeds", "0", "-o", "v.onnx"], "seeds is a number of cotangents from 1 on"),
        (["vjp", "model.onnx", "--seeds", "2", "--check", "-o", "v.onnx"], "--check takes one cotangent"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2 and message in done.stderr, done.output
        assert not (folder / arguments[-1]).exists()
