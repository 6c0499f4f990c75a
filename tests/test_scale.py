# Large models: weights of more than 2 GB stay in their file, and what is removed from a graph costs the same in any size.
"""Tests of gradient models of large models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import gradgen
from gradgen.engine import external
from gradgen.errors import GradientError

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

import scale
import scale_models

GIGABYTE = 10**9
STATUS = Path("/proc/self/status")

# Runs in a process of its own. VmHWM is the most that was resident at once: memory of the process's own, and pages of
# files that it has mapped.
SCRIPT = """
import sys, warnings
import gradgen
source, target, *wrt = sys.argv[1:]
result = gradgen.value_and_grad(source, wrt=wrt, of=["loss"])
gradgen.save(result, target)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
"""


def large(folder: Path, matrices: int, side: int) -> Path:
    """Products of x [1, side] with so many matrices [side, side] in `weights.bin`, a sparse file that is one hole."""
    size = side * side * 4
    folder.mkdir(exist_ok=True)
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(matrices * size)
    if (folder / "weights.bin").stat().st_blocks * 512 > size:
        pytest.skip("this file system has no sparse files: the weights would take 2 GB of disk")
    weights = []
    for i in range(matrices):
        tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[side, side])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "weights.bin", "offset": i * size, "length": size}.items():
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
    nodes = [helper.make_node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}"]) for i in range(matrices)]
    nodes.append(helper.make_node("ReduceSum", [f"h{matrices}"], ["loss"], keepdims=0))
    graph = helper.make_graph(
        nodes, "large", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, side])],
        [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])], weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def peak(*arguments: object) -> int:
    """The peak memory of a process that differentiates a model and writes the result, interpreter and imports included."""
    if not STATUS.is_file():
        pytest.skip("the peak memory of a process is read from /proc")
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def places(path: Path) -> dict[str, dict[str, str]]:
    """Where the tensors of a model lie that are not in it."""
    stored = onnx.load(path, load_external_data=False).graph.initializer
    return {
        t.name: {e.key: e.value for e in t.external_data} for t in stored if t.data_location == TensorProto.EXTERNAL
    }


def test_weights_of_two_gigabytes_stay_in_their_file(tmp_path):
    model = large(tmp_path, 33, 4096)
    assert (tmp_path / "weights.bin").stat().st_size > 2.2 * GIGABYTE
    assert peak(model, tmp_path / "gradient.onnx", "x", "w0", "w32") < 0.5 * GIGABYTE
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gradient.onnx", "model.onnx", "weights.bin"]
    assert places(tmp_path / "gradient.onnx") == places(model)
    assert (tmp_path / "gradient.onnx").stat().st_size < 100_000


def test_weights_beside_another_output_are_streamed_and_load_there(tmp_path):
    side = 2048
    few, many = large(tmp_path / "few", 1, side), large(tmp_path / "many", 5, side)
    weights = np.memmap(many.with_name("weights.bin"), np.float32, "r+", shape=(5, side, side))
    for i, weight in enumerate(weights):
        np.fill_diagonal(weight[:8, :8], i + 1)
    weights.flush()
    (tmp_path / "other").mkdir()
    targets = [tmp_path / "other" / name for name in ("few.onnx", "many.onnx")]
    peaks = [peak(source, target, "x") for source, target in zip((few, many), targets, strict=True)]
    assert peaks[1] - peaks[0] < 16 * 2**20  # one matrix takes 16 MB
    many.with_name("weights.bin").unlink()
    session = ort.InferenceSession(targets[1], providers=["CPUExecutionProvider"])
    found = session.run(["loss", "grad_x"], {"x": np.ones((1, side), np.float32)})
    assert found[0] == 8 * 120
    np.testing.assert_array_equal(found[1], np.where(np.arange(side) < 8, 120, 0)[None])


def test_a_model_that_no_message_holds_is_refused_in_words(monkeypatch):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }'
    )
    monkeypatch.setattr(external, "PROTO_LIMIT", 7)
    for form in (model, ir.from_proto(model)):
        with pytest.raises(
            GradientError, match=r"more than the 2 GB that an ONNX file can hold: keep its weights in ext"
        ):
            gradgen.vjp(form)


def test_removing_nodes_does_not_look_at_every_output(monkeypatch):
    """onnx_ir's Graph.remove makes a set of all outputs each time: with a gradient for each weight that is quadratic."""
    calls = []
    plain = ir.Graph.remove
    monkeypatch.setattr(ir.Graph, "remove", lambda self, *a, **k: (calls.append(1), plain(self, *a, **k))[1])
    model = scale_models.transformer(3)
    gradgen.value_and_grad(model, wrt=gradgen.parameters(model))
    assert not calls


def test_the_models_of_the_script_have_the_sizes_that_it_states():
    nodes = {name: [len(make(size).graph.node) for size in (1, 2)] for name, (make, _, _) in scale.CASES.items()}
    assert {name: b - a for name, (a, b) in nodes.items()} == {"chain": 3, "transformer": 50, "fan": 1_002}
    for name, (_, _, sizes) in scale.CASES.items():
        first, step = nodes[name][0], nodes[name][1] - nodes[name][0]
        assert [round(first + (size - 1) * step, -3) for size in sizes] == [5_000, 10_000]
