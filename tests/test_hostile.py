# Models that are wrong, careless or malicious: one clear error, or the right value, never a raw exception.
"""Tests of hostile input: external data, sparse tensors, wrong declarations, contents that inference trips over."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import gradgen

W = np.arange(1, 4, dtype=np.float32)


def model(text: str, opset: int = 21, more: str = "") -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}{more}]> {text}')


def run(proto: onnx.ModelProto, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    onnx.checker.check_model(proto, full_check=True)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def external(name: str, location: str | None = "w.data", **entries: object) -> TensorProto:
    """A float[3] tensor in a file; None leaves the location out."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def product(tensor: TensorProto) -> onnx.ModelProto:
    """y = x·w."""
    proto = model("g (float[3] x) => (float[3] y) { y = Mul(x, w) }")
    proto.graph.initializer.append(tensor)
    return proto


def saved(folder: Path, proto: onnx.ModelProto) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (external("w", "../w.data"), "outside the model's folder: ../w.data"),
        (external("w", "/w.data"), "outside the model's folder: /w.data"),
        (external("w", "link.data"), "outside the model's folder: link.data"),
        (external("w", "hard.data"), "several hard links"),
        (external("w", "none.data"), "is not there: none.data"),
        (external("w", "."), "is not there: ."),
        (external("w", "a\0b"), "is not there: a"),
        (external("w", None), "has no location: that of 'w'"),
        (external("w", offset="abc"), "has no valid offset, length or type: that of 'w' in w.data"),
        (external("w", offset="-4"), "has no valid offset"),
        (external("w", length="1e3"), "has no valid offset"),
        (external("w", offset=4), r"too short: w.data \('w' takes 12 bytes and ends at byte 16\)"),
        (external("w", length=4), "too short"),
    ],
    ids=lambda v: None if isinstance(v, TensorProto) else v[:20],
)
@pytest.mark.parametrize("place", ["initializer", "constant", "branch"])
def test_external_data_that_must_not_be_read(tmp_path, tensor, message, place):
    (tmp_path / "w.data").write_bytes(W.tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.data").write_bytes(W.tobytes())
    (folder / "other.data").write_bytes(W.tobytes())
    os.link(folder / "other.data", folder / "hard.data")
    os.symlink(tmp_path / "w.data", folder / "link.data")
    path = saved(folder, PLACES[place](tensor))
    with pytest.raises(gradgen.GradientError, match=f"m.onnx' refers to external data that .*{message}"):
        gradgen.vjp(path, wrt=["x"])


def in_constant(tensor: TensorProto) -> onnx.ModelProto:
    proto = product(tensor)
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    del proto.graph.initializer[:]
    return proto


def in_branch(tensor: TensorProto) -> onnx.ModelProto:
    proto = model("""g (float[3] x, bool c) => (float[3] y) { y = If(c) <
        then_branch = t () => (float[3] a) { a = Mul(x, w) }, else_branch = e () => (float[3] b) { b = Identity(x) }
    > }""")
    proto.graph.node[0].attribute[0].g.initializer.append(tensor)
    return proto


PLACES = {"initializer": product, "constant": in_constant, "branch": in_branch}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("source", ["path", "ir", "proto"])
def test_external_data_is_used_wherever_it_is(tmp_path, monkeypatch, place, source):
    folder = tmp_path / "model"
    path = saved(folder, PLACES[place](external("w", offset=4)))
    (folder / "w.data").write_bytes(b"\0\0\0\0" + W.tobytes())
    if source == "proto":
        monkeypatch.chdir(folder)
    given = {"path": path, "ir": ir.load(path), "proto": onnx.load(path, load_external_data=False)}[source]
    result = gradgen.vjp(given, wrt=["x"])
    monkeypatch.chdir(tmp_path)
    gradgen.save(result, tmp_path / "g.onnx")
    feeds = {"x": W, "grad_y": np.ones(3, np.float32), **({"c": np.array(True)} if place == "branch" else {})}
    found = ort.InferenceSession(tmp_path / "g.onnx", providers=["CPUExecutionProvider"]).run(["grad_x"], feeds)
    np.testing.assert_array_equal(found[0], W)


def test_external_data_of_a_proto_that_does_not_say_where(tmp_path):
    proto = product(external("w", "nowhere.data"))
    with pytest.raises(gradgen.GradientError, match="is not there: nowhere.data; pass the path of the model"):
        gradgen.vjp(proto)
    with pytest.raises(gradgen.GradientError, match="is not there: nowhere.data"):
        gradgen.save(proto, tmp_path / "g.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_a_graph_is_named(tmp_path):
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(gradgen.GradientError, match=r"empty.onnx' is not an ONNX model: it has no graph"):
        gradgen.vjp(tmp_path / "empty.onnx")


def sparse(values: list[float], indices: list, dims: list[int], name: str = "w") -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), name), numpy_helper.from_array(np.array(indices)), dims
    )


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]], ids=["flat", "by axis"])
@pytest.mark.parametrize("place", ["initializer", "constant"])
def test_sparse_tensors_are_what_their_dense_form_is(indices, place):
    proto = model("g (float[2,3] x) => (float[2,3] y) { y = Mul(x, w) }")
    if place == "initializer":
        proto.graph.sparse_initializer.append(sparse([2, 3], indices, [2, 3]))
    else:
        node = helper.make_node("Constant", [], ["w"], sparse_value=sparse([2, 3], indices, [2, 3]))
        proto.graph.node.insert(0, node)
    x = np.ones((2, 3), np.float32)
    found = run(gradgen.vjp(proto, wrt=["x"]), x=x, grad_y=x)
    np.testing.assert_array_equal(found["grad_x"], [[0, 2, 0], [0, 0, 3]])
    np.testing.assert_array_equal(found["y"], [[0, 2, 0], [0, 0, 3]])


def test_a_sparse_tensor_that_is_huge_is_refused():
    proto = model("g (float[3] x) => (float[3] y) { s = ReduceSum<keepdims=0>(w)\n y = Mul(x, s) }")
    proto.graph.sparse_initializer.append(sparse([2], [7], [1 << 40]))
    with pytest.raises(gradgen.GradientError, match="sparse tensor 'w' of shape .* is too large"):
        gradgen.vjp(proto)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g (double[2] x) => (float[2] y) { y = Mul(x, x) }", r"'y' is declared float\[2\] and is double\[2\]"),
        ("g (float[2,3] x) => (float[4,4] y) { y = Mul(x, x) }", r"'y' is declared float\[4,4\] and is float\[2,3\]"),
        ("g (float[2,3] x) => (float[6] y) { y = Mul(x, x) }", r"'y' is declared float\[6\] and is float\[2,3\]"),
        (
            "g (float[2,3] x) => (float[2,3] y) <float[3,3] h> { h = Mul(x, x)\n y = Mul(h, h) }",
            r"'h' is declared float\[3,3\] and is float\[2,3\]",
        ),
        ("g (double[2] x, float[2] u) => (double[2] y) { y = Mul(x, u) }", "B has inconsistent type"),
        (
            """g (double[2] x, bool c) => (double[2] y) { y = If(c) <
            then_branch = t () => (double[2] a) <float[2] h> { h = Mul(x, x)\n a = Mul(h, h) },
            else_branch = e () => (double[2] b) { b = Identity(x) }> }""",
            r"'h' is declared float\[2\] and is double\[2\]",
        ),
    ],
)
def test_declarations_that_the_nodes_contradict(text, message):
    with pytest.raises(gradgen.GradientError, match=message):
        gradgen.vjp(model(text), wrt=["x"])


def test_declarations_that_say_less_or_more_than_inference_are_taken():
    for declared in ("float[N,3]", "float[2,M]", "float[?,?]"):
        proto = model(f"g (float[2,3] x) => ({declared} y) {{ y = Mul(x, x) }}")
        x = np.ones((2, 3), np.float32)
        np.testing.assert_array_equal(run(gradgen.vjp(proto), x=x, grad_y=x)["grad_x"], 2 * x)
    proto = model("g (float[N,3] x) => (float[2,3] y) { y = Mul(x, x) }")
    assert gradgen.vjp(proto).graph.output[0].name == "y"


def test_an_output_that_is_listed_twice_is_seeded_once():
    proto = model("g (float[3] x) => (float[3] y, float[3] y) { y = Mul(x, x) }")
    result = gradgen.vjp(proto)
    assert [i.name for i in result.graph.input] == ["x", "grad_y"]
    assert [o.name for o in result.graph.output] == ["y", "y", "grad_x"]


@pytest.mark.parametrize(
    "node",
    [
        's = Constant<value = string[2] {"a", "b"}>()',
        "t = Constant<value = int64 {5}>()\n d = Shape(x)\n s = Gather(d, t)",
        "t = Constant<value = int64 {-3}>()\n d = Shape(x)\n s = Gather(d, t)",
        "t = Constant<value = int64[0] {}>()\n d = Shape(x)\n s = Slice(d, t, t)",
        "t = Constant<value = int64[1] {0}>()\n d = Shape(x)\n s = Slice(d, t, t, t, t)",
    ],
    ids=["strings", "gather past the end", "gather before the start", "no bounds", "step 0"],
)
def test_what_is_off_the_path_is_no_obstacle(node):
    proto = model(f"g (float[3] x) => (float[3] y) {{ {node}\n y = Mul(x, x) }}")
    del proto.graph.output[1:]
    result = gradgen.vjp(proto)
    assert [o.name for o in result.graph.output] == ["y", "grad_x"]


def test_string_constants_that_differ_stay_apart():
    proto = model("""g (float[3] x) => (float[3] y, string[1] a, string[1] b) {
        s = Constant<value = string[1] {"a"}>()\n t = Constant<value = string[1] {"b"}>()
        a = Identity(s)\n b = Identity(t)\n y = Mul(x, x) }""")
    found = run(gradgen.vjp(proto), x=W, grad_y=np.ones(3, np.float32))
    assert (found["a"].tolist(), found["b"].tolist()) == (["a"], ["b"])


def test_group_normalization_of_opset_18_is_raised():
    proto = model(
        "g (float[1,4,2] x, float[2] s, float[2] b) => (float[1,4,2] y) { y = GroupNormalization<num_groups=2>(x,s,b) }",
        18,
    )
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 4, 2)).astype(np.float32), "b": np.zeros(2, np.float32)}
    ct = np.random.default_rng(1).standard_normal((1, 4, 2)).astype(np.float32)
    found = run(gradgen.vjp(proto, wrt=["s", "b"]), s=np.ones(2, np.float32), grad_y=ct, **feeds)
    rows = feeds["x"].reshape(2, 4).astype(np.float64)
    normal = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found["grad_s"], (normal * ct.reshape(2, 4)).sum(1), rtol=1e-4)
    np.testing.assert_allclose(found["grad_b"], ct.reshape(2, 4).sum(1), rtol=1e-5)


def test_a_model_that_imports_the_standard_domain_by_its_name():
    proto = model("g (float[3] x) => (float[3] y) { y = Mul(x, x) }")
    proto.opset_import[0].domain = proto.graph.node[0].domain = "ai.onnx"
    found = run(gradgen.vjp(proto), x=W, grad_y=np.ones(3, np.float32))
    np.testing.assert_array_equal(found["grad_x"], 2 * W)


def test_a_library_that_cannot_be_written(tmp_path):
    import subprocess
    import sys

    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "gradgen", "generate", "--out", str(tmp_path / "file" / "out")]
    rules, table = tmp_path / "mine.py", tmp_path / "mine.toml"
    rules.write_text("from gradgen.rules.lang import vjp\n\n\n@vjp\ndef neg_vjp(dY):\n    dX = -dY\n    return dX\n")
    table.write_text('[Neg]\nvjp = "neg_vjp"\nsamples = [{ X = [3] }]\n')
    done = subprocess.run([*command, "--rules", str(rules), "--table", str(table)], capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.startswith("gradgen: ") and len(done.stderr.splitlines()) == 1
