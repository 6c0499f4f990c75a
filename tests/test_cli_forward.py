"""The commands `gradgen jvp` and `gradgen hvp`."""

import json
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from forward_mode import DATA

from gradgen.cli import cli


@pytest.mark.parametrize(("command", "stem", "given"), [("jvp", "tangent", "tangent"), ("hvp", "hvp", "vector")])
def test_writes_a_model_and_its_signature(command: str, stem: str, given: str, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    arguments = [command, str(DATA / "mlp_static.onnx"), "--wrt", "x", "-o", str(target), "--json"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    signature = json.loads(result.stdout)
    assert signature["inputs"][-1]["name"] == f"{given}_x"
    source = "loss" if command == "jvp" else "x"
    assert signature["outputs"][-1]["name"] == f"{stem}_{source}"
    onnx.checker.check_model(onnx.load(target), full_check=True)


def test_a_problem_is_one_line(tmp_path: Path) -> None:
    arguments = ["jvp", str(DATA / "mlp_static.onnx"), "--wrt", "label", "-o", str(tmp_path / "out.onnx")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2 and result.stderr.startswith("gradgen: wrt: 'label' is of int64")


def test_standard_input_and_output_and_reduce() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (float[3] y) {y = Exp(x)}'
    )
    arguments = ["hvp", "-", "-o", "-", "--reduce", "sum"]
    result = CliRunner().invoke(cli, arguments, input=model.SerializeToString())
    assert result.exit_code == 0, result.stderr
    written = onnx.load_model_from_string(result.stdout_bytes)
    assert [o.name for o in written.graph.output] == ["hvp_x"]


@pytest.mark.parametrize("command", ["jvp", "hvp"])
def test_forward_mode_has_no_calls_to_keep(command):
    """It goes through the bodies of the rules."""
    result = CliRunner().invoke(cli, [command, "--no-inline", str(DATA / "mlp_static.onnx"), "-o", "out.onnx"])
    assert result.exit_code == 2 and "--no-inline" in result.output
