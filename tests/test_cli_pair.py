"""The command `gradgen pair`: two models that together give what one vjp model gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from command_line import DIGITS, SAMPLE, refused, run

import gradgen


def evaluate(path: Path, held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {i.name: held[i.name] for i in session.get_inputs()}), strict=True))


@pytest.mark.parametrize("options", [[], ["--closed"]])
def test_the_two_models_give_what_one_gives(tmp_path, options):
    forward, backward = tmp_path / "f.onnx", tmp_path / "b.onnx"
    command = ("pair", DIGITS, "--of", "loss", "--wrt", "fc.*", "-o", forward, "--backward", backward)
    result = run(*command, *options, "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    read = {i["name"] for i in said["backward"]["inputs"]}
    assert "grad_loss" in read and ("image" in read or "label" in read) == (not options)
    held = {**np.load(SAMPLE), "grad_loss": np.ones((), np.float32)}
    held |= evaluate(forward, held)
    whole = tmp_path / "v.onnx"
    gradgen.save(gradgen.vjp(DIGITS, wrt=["fc.*"], of=["loss"]), whole)
    want = evaluate(whole, held)
    for name, found in evaluate(backward, held).items():
        np.testing.assert_allclose(found, want[name], rtol=1e-5, atol=1e-6)


def test_one_of_the_two_may_go_to_standard_output(tmp_path):
    result = run("pair", DIGITS, "--of", "loss", "-o", tmp_path / "f.onnx", "--backward", "-")
    assert result.exit_code == 0, result.stderr
    found = onnx.load_model_from_string(result.stdout_bytes)
    assert [o.name for o in found.graph.output] == ["grad_image"]
    assert result.stderr.splitlines()[-1].startswith("standard output: ")


@pytest.mark.parametrize("names", [("-", "-"), ("x.onnx", "./x.onnx")])
def test_two_models_want_two_places(tmp_path, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    message = refused(run("pair", DIGITS, "-o", names[0], "--backward", names[1]))
    assert message.startswith("-o and --backward are both")
    assert not list(tmp_path.iterdir())
