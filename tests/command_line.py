"""What the tests of the command line share: running a command, and models to run it on."""

from __future__ import annotations

from pathlib import Path

import onnx
from click.testing import CliRunner, Result
from onnx import parser

from gradgen.cli import cli

DIGITS = Path(__file__).parent.parent / "examples" / "digits_cnn.onnx"
SAMPLE = DIGITS.with_name("digits_sample.npz")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def refused(result: Result) -> str:
    """The message of a command that must have failed as it should: a line of gradgen's own, exit code 2."""
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert result.stderr.startswith("gradgen: ")
    return result.stderr.removeprefix("gradgen: ").rstrip("\n")


def save_text(path: Path, text: str) -> Path:
    onnx.save(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "c" : 1]> {text}'), path)
    return path
