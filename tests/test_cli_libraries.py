"""Rules of one's own on the command line: `gradgen generate`, and `--library` of the commands that look rules up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from command_line import run, save_text

import gradgen

MINE = """from gradgen.rules.lang import op, vjp


@vjp
def softplus_vjp(dY, X):
    \"\"\"dX = dY / (1 + exp(-X)).\"\"\"
    dX = dY * op.Sigmoid(X) * FACTOR
    return dX
"""


def generated(folder: Path, factor: float) -> list[str]:
    """Generate a library with one rule, right for the factor 1; returns the command."""
    rules, table = folder / "mine.py", folder / "mine.toml"
    rules.write_text(MINE.replace("FACTOR", str(factor)))
    table.write_text('[Softplus]\nvjp = "softplus_vjp"\nsamples = [{ X = [3, 4] }]\n')
    options = ["--rules", str(rules), "--table", str(table), "--out", str(folder / "out")]
    command = [sys.executable, "-m", "gradgen", "generate", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return command


def test_generate_a_library_of_ones_own(tmp_path):
    command = generated(tmp_path, 2.0)
    out = tmp_path / "out"
    assert {p.name for p in out.iterdir()} == {"__init__.py", "COVERAGE.md", "registry.py", "mine.onnxtxt", "tests"}
    text = "g (float[3] x) => (float[3] y) { y = Softplus(x) }"
    model = gradgen.grad(save_text(tmp_path / "m.onnx", text), reduce="sum", registry=gradgen.Registry.load(out))
    x = np.array([-1, 0, 1], np.float32)
    (found,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(found, 2 / (1 + np.exp(-x)), rtol=1e-6)
    request = ("grad", tmp_path / "m.onnx", "--reduce", "sum", "-o", tmp_path / "g.onnx", "--check")
    assert run(*request).exit_code == 0
    result = run(*request, "--library", out)  # its rule is wrong by the factor, and the one that ships is not
    assert result.exit_code == 1 and "wrong" in result.stdout
    table = tmp_path / "mine.toml"
    assert "there is no op 'Softminus'" in _generate_error(command, table, "[Softminus]\n")
    assert "no samples" in _generate_error(command, table, '[Softplus]\nvjp = "softplus_vjp"\n')
    with pytest.raises(gradgen.GradientError, match="no generated library"):
        gradgen.Registry.load(tmp_path)


def test_a_library_does_not_hide_the_module_of_its_traced_rules(tmp_path):
    rules, table = tmp_path / "mine.py", tmp_path / "mine.toml"
    traced = (
        MINE.replace("FACTOR", "1.0").replace("import op, vjp", "import op, traced").replace("@vjp", '@traced("dX")')
    )
    rules.write_text(traced)
    table.write_text('[Softplus]\nvjp = "softplus_vjp"\nsamples = [{ X = [3, 4] }]\n')
    options = ["--rules", str(rules), "--table", str(table), "--out"]
    command = [sys.executable, "-m", "gradgen", "generate", *options]
    done = subprocess.run([*command, str(tmp_path / "mine")], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "would hide mine.py" in done.stderr and not (tmp_path / "mine").exists()
    done = subprocess.run([*command, str(tmp_path / "lib")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_the_tests_of_such_a_library_test_its_rules(tmp_path, factor):
    generated(tmp_path, factor)
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path / "out")]
    done = subprocess.run(tests, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == (0 if factor == 1 else 1), done.stdout
    assert ("test_softplus_first_order" in done.stdout) == (factor != 1)


def _generate_error(command: list[str], table: Path, text: str) -> str:
    table.write_text(text)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    return done.stderr


SMOOTH = Path(__file__).parent.parent / "examples" / "plugin_package" / "smooth_ops" / "library"
SHIFT = """<ir_version: 10, opset_import: ["" : 21, "smooth.ops" : 1, "ai.onnx.preview.training" : 1]>
g (float[3] x) => (float[3] dx) <float[3] w = {1, 2, 3}> {
    h = Mul(x, w)  y = smooth.ops.LogCosh(h)
    dx = ai.onnx.preview.training.Gradient<xs=["x"], y="y">(x)
}"""


def test_every_command_that_looks_rules_up_takes_a_library(tmp_path):
    path, target = tmp_path / "m.onnxtxt", tmp_path / "lowered.onnx"
    path.write_text(SHIFT)
    assert run("lower", path, "-o", target).exit_code == 2  # there is no rule for the op
    result = run("lower", path, "-o", target, "--library", SMOOTH)
    assert result.exit_code == 0, result.output
    x, w = np.array([-1, 0, 2], np.float32), np.array([1, 2, 3], np.float32)
    (found,) = ort.InferenceSession(target).run(None, {"x": x})
    np.testing.assert_allclose(found, np.tanh(x * w) * w, rtol=1e-5)  # log cosh has the slope tanh
    assert run("parameters", path, "--library", SMOOTH).stdout.split() == ["w"]
    listed = ("library", "--op", "smooth.ops::LogCosh", "--list")
    assert run(*listed).exit_code == 2
    result = run(*listed, "--library", SMOOTH)
    assert result.exit_code == 0 and "log_cosh_vjp" in result.stdout
