# Hostile models: a GradientError that says what is wrong, or a result, within 10 seconds and 1 GB; never anything else.
"""Runs each group of models of tests/hostile_models.py and tests/hostile_fields.py in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import hostile_fields
import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import gradgen
from gradgen.cli import cli

SCRIPT = Path(hostile_fields.__file__)


@pytest.mark.skipif(sys.platform != "linux", reason="the limits are those of Linux")
@pytest.mark.parametrize("group", hostile_fields.GROUPS)
def test_hostile_models_get_a_word_or_a_result(group):
    done = subprocess.run([sys.executable, str(SCRIPT), group], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"{lines[-1] if lines else 'it'} ended the process: {done.stderr[-1000:]}"
    found = dict(zip(lines[::2], lines[1::2], strict=True))
    assert list(found) == list(hostile_fields.GROUPS[group])
    for name, (message, seconds) in found.items():
        expected = hostile_fields.GROUPS[group][name][1]
        assert re.search(expected, message), f"{name}: {message}"
        assert len(message) < 2000 and all(c.isprintable() or c == "\n" for c in message), name
        assert seconds < hostile_fields.SECONDS, name


@pytest.mark.parametrize("command", ["vjp", "verify"])
@pytest.mark.parametrize(
    ("group", "name"), [("text", "truncated"), ("text", "NAMENAME is no UTF-8"), ("tensors", "too short, stored"),
                        ("functions", "one that calls itself"), ("sizes", "rank 10,000")],
)  # fmt: skip
def test_the_command_line_says_it_in_a_line(tmp_path, command, group, name):
    content = hostile_fields.GROUPS[group][name][0]()
    path = tmp_path / "m.onnx"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    output = ["-o", str(tmp_path / "g.onnx")] if command == "vjp" else []
    result = CliRunner().invoke(cli, [command, str(path), *output])
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert result.stderr.startswith("gradgen: ") and len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_a_model_names_itself_is_not_read(tmp_path):
    """What gradgen notes of a model's folder is only believed where this process has noted it."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "w.data").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    proto = hostile_fields.stored(onnx.TensorProto(data_type=1, dims=[3], data_location=1))
    proto.graph.initializer[0].external_data.add(key="location", value="w.data")
    proto.metadata_props.add(key="gradgen.external_data_folder", value=str(secret))
    for call in (gradgen.vjp, gradgen.verify, gradgen.parameters, gradgen.compile):
        with pytest.raises(gradgen.GradientError):
            call(proto)


def test_a_long_vector_keeps_its_size():
    """onnx would make a dimension of each of its elements, where operators that compute shapes read it."""
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (float[3000000] x, float[3,2] z)
        => (float[?] y, float[?] v) { h = Mul(x, x)\n y = Add(h, x)\n s = Shape<end = 1>(z)\n t = Shape<start = 1>(z)
        u = Mul(s, t)\n w = Reshape(z, u)\n v = Concat<axis = 0>(w, w) }""")
    result = gradgen.vjp(proto)
    shapes = {o.name: [d.dim_value for d in o.type.tensor_type.shape.dim] for o in result.graph.output}
    assert shapes == {"y": [3_000_000], "v": [12], "grad_x": [3_000_000], "grad_z": [3, 2]}
    assert {n.domain for n in result.graph.node} == {""} and [o.domain for o in result.opset_import] == [""]
