"""The option `--check` of `gradgen grad` and `vjp`: its table, its exit codes, and the inputs that it takes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from command_line import DIGITS, SAMPLE, refused, run, save_text

import gradgen
from gradgen.engine import registry
from gradgen.rules.lang import traced


def test_check_prints_one_row_for_each_value(tmp_path):
    result = run(
        "grad", DIGITS, "--of", "loss", "--wrt", "fc.*", "-o", tmp_path / "g.onnx", "--check", "--inputs", SAMPLE
    )
    assert result.exit_code == 0, result.output
    rows = [line for line in result.stdout.splitlines() if "fc." in line]
    assert [("fc.weight" in rows[0], "10×64" in rows[0], "ok" in rows[0])] == [(True, True, True)]
    assert len(rows) == 2


def test_check_of_a_wrong_gradient_says_so_and_exits_with_1(tmp_path, monkeypatch):
    wrong = gradgen.Registry(parent=registry.registered())

    @gradgen.vjp_rule("", "Relu", registry=wrong)
    @traced("dX")
    def relu_vjp(dY, Y):
        from gradgen.rules.lang import op

        return op.Mul(dY, np.asarray(1.5, np.float32))

    monkeypatch.setattr("gradgen.api.registry_of", lambda given: wrong)
    result = run("grad", DIGITS, "--of", "loss", "--wrt", "conv1.bias", "-o", tmp_path / "g.onnx", "--check")
    assert result.exit_code == 1
    assert "wrong" in result.stdout


@pytest.mark.parametrize("command", ["verify", "grad"])
def test_what_runs_in_float32_is_said_once_below_the_table(tmp_path, command):
    """com.microsoft's Unique is there in float32 alone, and has no body."""
    path, target = tmp_path / "m.onnx", tmp_path / "g.onnx"
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[3] x, float[3] w, float[3] b) => (float y) { u, i, c = com.microsoft.Unique(b)
            s = ReduceSum<keepdims = 0>(u)\n p = Mul(x, w)\n q = Mul(p, s)\n y = ReduceSum<keepdims = 0>(q) }"""
    )
    onnx.save(proto, path)
    rest = [] if command == "verify" else ["-o", target, "--check"]
    result = run(command, path, "--wrt", "x", "--wrt", "w", *rest)
    note = f"{(path if command == 'verify' else target).name}: differences in float32: "
    assert result.exit_code == 0 and result.stdout.count("float32: ") == 1
    assert note in result.stdout.splitlines()[-1]


IMAGE, LABEL = np.zeros((3, 1, 8, 8), np.float32), np.zeros(3, np.int64)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (None, "there is no such file"),
        (b"x", "broken"),
        ({"image": np.zeros((2, 3), np.float32)}, "input 'image' has shape"),
        ({"image": IMAGE, "label": LABEL[:2]}, "dimension 'N' is 3 and 2"),
        ({"image": IMAGE.astype(str)}, "input 'image' is of float32"),
        ({"picture": IMAGE}, "holds picture; the model's inputs are image, label"),
    ],
    ids=["missing", "broken", "shape", "sizes", "type", "name"],
)
def test_inputs_that_do_not_fit(tmp_path, arrays, message):
    stored, target = tmp_path / "in.npz", tmp_path / "g.onnx"
    if isinstance(arrays, bytes):
        stored.write_bytes(arrays)
    elif arrays is not None:
        np.savez(stored, **arrays)
    assert message in refused(run("grad", DIGITS, "--of", "loss", "-o", target, "--check", "--inputs", stored))
    assert not target.exists()


def test_an_npz_that_is_cut_short(tmp_path):
    stored = tmp_path / "in.npz"
    stored.write_bytes(SAMPLE.read_bytes()[:-50])
    command = ("grad", DIGITS, "--of", "loss", "-o", tmp_path / "g.onnx", "--check", "--inputs", stored)
    assert "broken" in refused(run(*command))


def test_inputs_that_the_runtime_refuses(tmp_path):
    stored, target = tmp_path / "in.npz", tmp_path / "g.onnx"
    np.savez(stored, image=IMAGE, label=LABEL + 99)
    result = run("grad", DIGITS, "--of", "loss", "-o", target, "--check", "--inputs", stored)
    assert result.exit_code == 2 and result.stderr.startswith(
        f"gradgen: '{target}' is written, but the check could not"
    )
    assert "Out of range value in index tensor" in result.stderr  # what onnxruntime says last
    onnx.checker.check_model(target, full_check=True)


@pytest.mark.parametrize(
    ("x", "verdict", "code"),
    [
        ([1, 2, 3], "ok", 0),
        ([0, 1, 2], "kink: there is no derivative", 1),
        ([np.inf, 1, 2], "unresolved: the finite", 1),
    ],
)
def test_a_check_that_verifies_nothing_says_so(tmp_path, x, verdict, code):
    stored, target = tmp_path / "in.npz", tmp_path / "g.onnx"
    path = save_text(tmp_path / "m.onnx", "g (float[3] x) => (float y) { r = Relu(x)\n y = ReduceSum<keepdims=0>(r) }")
    np.savez(stored, x=np.array(x, np.float32))
    result = run("grad", path, "-o", target, "--check", "--inputs", stored)
    assert result.exit_code == code and verdict in result.stdout
    assert ("no gradient could be verified" in result.stdout) == (code == 1)
