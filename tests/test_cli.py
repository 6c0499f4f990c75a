# The command line: what each command writes and prints, and one line with exit code 2 for what it cannot do.
"""Tests of `gradgen grad`, `vjp`, `parameters`, `coverage` and `generate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from click.testing import CliRunner
from command_line import DIGITS, SAMPLE, refused, run, save_text

import gradgen
from gradgen.cli import COMMANDS, cli
from gradgen.commands.common import counted
from gradgen.coverage import coverage_rows

SINE = "g (float[3] x) => (float[3] y) { y = Sin(x) }"
CUSTOM = "g (float[3] x) => (float y) { a = c.Foo(x)\n b = c.Bar(a)\n y = ReduceSum<keepdims=0>(b) }"


def external(folder: Path) -> Path:
    """The digits model with its weights in a file of their own."""
    path = folder / "external.onnx"
    onnx.save(onnx.load(DIGITS), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def outputs(path: Path) -> list[str]:
    return [o.name for o in onnx.load(path, load_external_data=False).graph.output]


def test_grad_writes_a_model_that_onnxruntime_runs(tmp_path):
    target = tmp_path / "g.onnx"
    result = run("grad", DIGITS, "--of", "loss", "--wrt", "initializers", "-o", target)
    assert result.exit_code == 0, result.output
    assert str(target) in result.stdout and f"{len(onnx.load(target).graph.node)} nodes" in result.stdout
    assert outputs(target) == [f"grad_{n}" for n in gradgen.parameters(DIGITS)]
    feeds = dict(np.load(SAMPLE))
    found = ort.InferenceSession(target, providers=["CPUExecutionProvider"]).run(None, feeds)
    assert found[0].shape == (8, 1, 3, 3) and np.abs(found[0]).max() > 0
    assert list(tmp_path.iterdir()) == [target]


def test_vjp_takes_cotangents_and_keeps_the_outputs(tmp_path):
    target = tmp_path / "v.onnx"
    result = run("vjp", DIGITS, "--of", "logits", "-o", target, "--check")
    assert result.exit_code == 0, result.output
    assert [i.name for i in onnx.load(target).graph.input] == ["image", "label", "grad_logits"]
    assert outputs(target) == ["logits", "loss", "grad_image"]


def test_the_options_of_grad(tmp_path):
    target = tmp_path / "g.onnx"
    result = run(
        "grad", DIGITS, "--reduce", "sum", "--value", "--no-inline", "--wrt", "inputs", "-o", target, "--check"
    )
    assert result.exit_code == 0, result.output
    assert outputs(target) == ["logits", "loss", "grad_image"]
    assert onnx.load(target).functions


def test_a_gradient_that_is_zero_is_noted(tmp_path):
    path = save_text(tmp_path / "m.onnx", "g (float[3] x, float[3] z) => (float y) { y = ReduceSum<keepdims=0>(x) }")
    result = run("grad", path, "-o", tmp_path / "g.onnx")
    assert result.exit_code == 0
    assert result.stderr.startswith("gradgen: note: 'z' does not influence")


def test_parameters_lists_names():
    result = run("parameters", DIGITS)
    assert result.stdout.split() == ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc.weight", "fc.bias"]


def test_coverage_narrows_and_tells_dispositions():
    result = run("coverage", "Resize")
    assert result.exit_code == 0
    assert "resize_vjp" in result.stdout and "sizes: not float" in result.stdout
    assert "no row for 'Nope'" in refused(run("coverage", "Relu", "Nope"))
    assert "no row for 'relu' (near matches: Relu" in refused(run("coverage", "relu"))
    assert "'SwiGLU' (it has a body in the standard, through which" in refused(run("coverage", "SwiGLU"))
    assert refused(run("coverage", "ai.onnx.ml::Relu")).startswith("no row for 'ai.onnx.ml::Relu'")


@pytest.mark.parametrize(
    ("op", "first", "inputs"),
    [
        ("Relu", 7, "X: rule"),  # it began with opset 1: what older models than 7 would need is moot
        ("Swish", 24, "X: rule"),
        ("ai.onnx::Gelu", 20, "X: rule"),
        ("If", 7, "cond: not float"),
        ("Loop", 7, "M: not float; cond: not float; v_initial: rule"),
        ("com.microsoft::Gelu", 1, "X: body"),
    ],
)
def test_coverage_tells_from_when_on_and_of_which_inputs(op, first, inputs):
    ((_, version, _, said),) = coverage_rows([op])
    assert (int(version), said) == (first, inputs)
    if op != "If":  # the table in words says the same
        lines = (Path(__file__).parent.parent / "generated" / "COVERAGE.md").read_text().splitlines()
        (line,) = [cells for cells in lines if f"| {op.removeprefix('ai.onnx::')} | {first} |" in cells]
        assert line.endswith(f"| {inputs} |")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--of", "los"], "of: there is no value 'los'; near matches: 'loss'"),
        (["--of", "loss", "--wrt", "labl"], "wrt: there is no value 'labl'; near matches: 'label'"),
        (["--of", "loss", "--wrt", "label"], "'label' is of int64, and only float tensors have a gradient"),
        (["--of", ""], "of: there is no value ''"),
        (["--of", "logits"], "pass --reduce sum"),
        (["--wrt", "initalizers"], "did you mean the keyword --wrt initializers?"),
        (["--wrt", "fc.bias,conv1.bias"], "repeat the option: --wrt fc.bias --wrt conv1.bias"),
        (["--wrt", "fc.bias conv1.bias"], "repeat the option: --wrt fc.bias --wrt conv1.bias"),
        (
            ["--wrt", "fc.*,conv?.*"],
            "nothing matches 'fc.*,conv?.*'; for several names repeat the option: --wrt fc.* --",
        ),
        (["--wrt", "parameters"], "there is no value 'parameters'; did you mean the keyword --wrt initializers?"),
        (
            ["--of", "logits"],
            "'logits' has shape ['N', 10], and a gradient is that of one element: pass --reduce sum for the "
            "gradient of its sum, or --reduce element for that of an element which an input chooses, or use vjp",
        ),
        (["--of", "loss, logits"], "repeat the option: --of loss --of logits"),
        (["--library", DIGITS.parent], "holds no generated library"),
        (["--of", "loss", "--inputs", SAMPLE], "add --check"),
    ],
)
def test_a_request_that_cannot_be_met(tmp_path, options, message):
    assert message in refused(run("grad", DIGITS, "-o", tmp_path / "g.onnx", *options))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"hello" * 99, "is not an ONNX model"),
        (b"", "no graph"),
        (DIGITS, "is not an ONNX model"),
    ],
    ids=["missing", "text", "empty", "cut short"],
)
@pytest.mark.parametrize("command", ["grad", "vjp", "parameters"])
def test_a_file_that_is_no_model(tmp_path, command, content, message):
    path, target = tmp_path / "m.onnx", tmp_path / "g.onnx"
    if content is not None:
        path.write_bytes(content.read_bytes()[:3000] if isinstance(content, Path) else content)
    assert message in refused(run(command, path, *([] if command == "parameters" else ["-o", target])))
    assert not target.exists()


@pytest.mark.parametrize("seeds", ["--5", "-5", "0", "²", "5.0", "", "-", "9" * 5000])
def test_seeds_that_are_neither_a_number_nor_a_name(tmp_path, seeds):
    for command, more in (("vjp", ()), ("pair", ("--backward", tmp_path / "b.onnx"))):
        result = run(command, DIGITS, "--of", "loss", f"--seeds={seeds}", "-o", tmp_path / "g.onnx", *more)
        assert "seeds is a number of cotangents from 1 on, or the name of a dimension" in refused(result)


def test_a_target_that_cannot_be_written(tmp_path):
    assert "there is no folder" in refused(run("grad", DIGITS, "--of", "loss", "-o", tmp_path / "nowhere" / "g.onnx"))
    assert "it is a folder" in refused(run("grad", DIGITS, "--of", "loss", "-o", tmp_path))
    assert "-o is empty" in refused(run("grad", DIGITS, "--of", "loss", "-o", ""))
    assert "is a folder" in refused(run("grad", tmp_path, "-o", tmp_path / "g.onnx"))
    assert "is a folder" in refused(run("parameters", tmp_path))
    assert "the name of the model is empty" in refused(run("grad", "", "-o", tmp_path / "g.onnx"))
    model = tmp_path / "m.onnx"
    model.write_bytes(DIGITS.read_bytes())
    assert "is the model itself" in refused(run("grad", model, "--of", "loss", "-o", model))
    assert model.read_bytes() == DIGITS.read_bytes()


def test_ops_without_a_rule_are_all_listed(tmp_path):
    path = save_text(tmp_path / "m.onnx", CUSTOM)
    message = refused(run("grad", path, "-o", tmp_path / "g.onnx"))
    assert "c::Foo" in message and "c::Bar" in message and "register_vjp" in message
    assert list(tmp_path.iterdir()) == [path]


def test_external_data(tmp_path):
    path, inside, outside = external(tmp_path), tmp_path / "g.onnx", tmp_path / "sub" / "g.onnx"
    outside.parent.mkdir()
    for target in (inside, outside):
        result = run("grad", path, "--of", "loss", "--wrt", "initializers", "-o", target, "--check")
        assert result.exit_code == 0, result.output
        ort.InferenceSession(target, providers=["CPUExecutionProvider"])
    assert sorted(p.name for p in outside.parent.iterdir()) == ["g.onnx", "g.onnx.data"]
    assert not inside.with_name("g.onnx.data").exists()


def test_external_data_that_is_short_or_missing(tmp_path):
    path, target = external(tmp_path), tmp_path / "g.onnx"
    os.truncate(tmp_path / "weights.bin", 100)
    request = ("grad", path, "--of", "loss", "--wrt", "initializers", "-o", target)
    assert "too short" in refused(run(*request))
    assert "too short" in refused(run(*request, "--check"))
    (tmp_path / "weights.bin").unlink()
    assert "refers to external data that is not there: weights.bin" in refused(run(*request))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["external.onnx"]


def test_standard_input_and_output(tmp_path):
    command = [sys.executable, "-m", "gradgen", "vjp", "-", "--of", "logits", "-o", "-"]
    done = subprocess.run(command, input=DIGITS.read_bytes(), capture_output=True, check=True)
    target = tmp_path / "v.onnx"
    assert run("vjp", DIGITS, "--of", "logits", "-o", target).exit_code == 0
    assert done.stdout == target.read_bytes()
    assert done.stderr.decode().startswith("standard output: ")
    broken = subprocess.run(command, input=b"hello" * 99, capture_output=True, check=False)
    assert broken.returncode == 2 and broken.stdout == b""
    assert broken.stderr.decode().startswith("gradgen: standard input is not an ONNX model, binary or text: ")


@pytest.mark.parametrize("start", ["", "\n", "# a comment\n"])
def test_standard_input_may_be_text(tmp_path, start):
    text = f'{start}<ir_version: 10, opset_import: ["" : 21]> {SINE}'
    found = CliRunner().invoke(cli, ["vjp", "-", "-o", str(tmp_path / "g.onnx")], input=text)
    assert found.exit_code == 0, found.output
    session = ort.InferenceSession(tmp_path / "g.onnx", providers=["CPUExecutionProvider"])
    x, dy = np.array([0.5, 1, 2], np.float32), np.array([1, -2, 3], np.float32)
    np.testing.assert_allclose(session.run(["grad_x"], {"x": x, "grad_y": dy})[0], dy * np.cos(x), rtol=1e-6)


def test_a_mistake_in_a_text_model_is_said_in_words(tmp_path):
    text = f'<ir_version: 10, opset_import: ["" : 21]> {SINE.replace("Sin(x)", "Sin(x")}'
    path = tmp_path / "m.onnxtxt"
    path.write_text(text)
    command = ["vjp", "-o", str(tmp_path / "g.onnx")]
    for message in (refused(run(*command, path)), refused(CliRunner().invoke(cli, [*command, "-"], input=text))):
        assert "[ParseError at position (line: 1 column: " in message and "Expected character ) not found." in message
        assert "b'" not in message and "\\n" not in message
    assert "can't decode byte 0xff" in refused(CliRunner().invoke(cli, [*command, "-"], input=b"<\xff"))


def test_json_holds_the_signature_and_the_verdicts(tmp_path):
    target = tmp_path / "g.onnx"
    result = run("grad", DIGITS, "--of", "loss", "--wrt", "fc.*", "-o", target, "--check", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["inputs"][0] == {"name": "image", "dtype": "float", "shape": ["N", 1, 8, 8]}
    assert [o["name"] for o in said["outputs"]] == ["grad_fc.weight", "grad_fc.bias"]
    assert said["nodes"] == len(onnx.load(target).graph.node)
    assert [(r["name"], r["verdict"]) for r in said["check"]] == [("fc.weight", "ok"), ("fc.bias", "ok")]
    assert json.loads(run("parameters", DIGITS, "--json").stdout) == gradgen.parameters(DIGITS)
    (row,) = json.loads(run("coverage", "Swish", "--json").stdout)
    assert row["inputs"] == "X: rule"


def test_one_of_a_thing_is_no_plural(tmp_path):
    path = save_text(tmp_path / "m.onnx", "g (float[3] x) => (float[3] y) { y = Neg(x) }")
    result = run("vjp", path, "--no-inline", "-o", tmp_path / "g.onnx")
    assert result.stdout.rstrip().endswith(": 2 nodes")
    assert counted(1, "node") == "1 node"


@pytest.mark.parametrize("hidden", ["jinja2", "onnx"])
def test_help_needs_nothing_that_a_command_needs(monkeypatch, hidden):
    monkeypatch.setitem(sys.modules, hidden, None)
    result = run("--help")
    assert result.exit_code == 0 and "generate" in result.stdout


def test_generate_without_jinja2_says_what_to_install(monkeypatch):
    for name in [n for n in sys.modules if n.startswith(("jinja2", "gradgen.generator"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = run("generate", "--check")
    assert result.exit_code == 1 and "needs jinja2" in result.stderr
    assert 'pip install -e ".[generate]"' in result.stderr


def test_import_is_light():
    """`import gradgen` loads nothing heavy, and neither does the help of the command line."""
    script = (
        "import json, sys\nimport gradgen\nfrom click.testing import CliRunner\nfrom gradgen.cli import cli\n"
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0\nprint(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"onnx", "onnx_ir", "onnxscript", "onnxruntime", "numpy", "jinja2", "rich"}
    assert not heavy & set(json.loads(done.stdout))


def test_the_summaries_of_the_commands_are_whole():
    shown = CliRunner().invoke(cli, ["--help"], terminal_width=80)
    listed = shown.output.partition("Commands:\n")[2].splitlines()
    assert len(listed) == len(COMMANDS) and all(line.endswith(".") and "..." not in line for line in listed)
