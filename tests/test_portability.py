# Gradient models of the usual kinds on engines beside onnxruntime, and the forms that portable=True emits.
from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from portable_engines import ENGINES, error, feeds_for, gradient, primals

import gradgen
from gradgen.evaluate import evaluator
from gradgen.rules.portable import FORMS

PACKAGES = {"OpenVINO": "openvino", "IREE": "iree"}


def _missing(engine: str) -> str | None:
    """Why an engine cannot be tried here, or None."""
    if engine in PACKAGES:
        return None if importlib.util.find_spec(PACKAGES[engine]) else f"{PACKAGES[engine]} is not installed"
    if shutil.which("node") is None:
        return "there is no node"
    found = subprocess.run(["node", "-e", "require.resolve('onnxruntime-web')"], capture_output=True, check=False)
    return "npm install onnxruntime-web, here or in NODE_PATH" if found.returncode else None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["mlp", "cnn", "encoder", "lstm"])
def test_an_engine_gives_what_onnxruntime_gives(engine, name):
    if reason := _missing(engine):
        pytest.skip(reason)
    model = gradient(primals()[name], portable=True)
    feeds = feeds_for(model)
    assert error(ENGINES[engine](model, feeds), model, feeds) <= 1e-5


@pytest.mark.parametrize("name", ["mlp", "cnn", "encoder", "lstm"])
def test_the_portable_form_has_the_same_values(name):
    primal = primals()[name]
    plain, portable = gradient(primal, False), gradient(primal, True)
    onnx.checker.check_model(portable, full_check=True)
    feeds = feeds_for(plain)
    assert error(evaluator(portable, strict=True)(feeds), plain, feeds) <= 1e-6


SCAN = """<ir_version: 10, opset_import: ["" : 21]> g (float[3] s, float[4, 3] x, float[3] w) => (float[3] r, float[3, 4] y) {
    q = Mul(w, w)
    r, y = Scan<num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1], scan_output_axes = [1],
        body = b (float[3] h, float[3] t) => (float[3] k, float[3] o) { a = Mul(h, q) k = Add(a, t) o = Tanh(k) }>(s, x)
}"""


def test_a_portable_scan_runs_forward_and_captures_nothing():
    model = gradgen.vjp(parser.parse_model(SCAN), portable=True)
    onnx.checker.check_model(model, full_check=True)
    scans = [n for n in model.graph.node if n.op_type == "Scan"]
    assert len(scans) == 2
    for node in scans:
        given = {a.name: a for a in node.attribute}
        assert not any(name.endswith("_directions") for name in given)
        body = given["body"].g
        inside = {v.name for v in body.input} | {o for n in body.node for o in n.output}
        fixed = {t.name for t in model.graph.initializer}
        assert {i for n in body.node for i in n.input if i} <= inside | fixed
    rng = np.random.default_rng(0)
    plain = gradgen.vjp(parser.parse_model(SCAN))
    feeds = {i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
             for i in plain.graph.input}  # fmt: skip
    want, found = evaluator(plain, strict=True)(feeds), evaluator(model, strict=True)(feeds)
    for name, value in want.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def test_a_square_weight_is_on_the_left_of_a_portable_product():
    text = (
        """<ir_version: 10, opset_import: ["" : 21]> g (float[2, 3, 5] x) => (float[2, 3, 5] y) { y = MatMul(x, W) }"""
    )
    model = parser.parse_model(text)
    weight = np.random.default_rng(0).standard_normal((5, 5)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "W"))
    found = gradgen.vjp(model, portable=True)
    (back,) = [n for n in found.graph.node if n.op_type == "MatMul" and "y" not in n.output]
    assert back.input[0] == "W"
    x, ct = np.random.default_rng(1).standard_normal((2, 2, 3, 5)).astype(np.float32)
    got = evaluator(found, strict=True)({"x": x, "grad_y": ct})["grad_x"]
    np.testing.assert_allclose(got, ct @ weight.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", "encoder", "lstm"])
def test_no_portable_product_of_a_gradient_has_a_square_weight_on_its_right(name):
    """Those with an addend are Gemm nodes: the test with OpenVINO runs where it is installed alone."""
    graph = gradient(primals()[name], portable=True).graph
    square = {t.name for t in graph.initializer if len(t.dims) == 2 and t.dims[0] == t.dims[1] > 1}
    square |= {n.output[0] for n in graph.node if n.op_type == "Transpose" and n.input[0] in square}
    products = [n for n in graph.node if n.op_type in ("MatMul", "Gemm") and "_vjp" in n.name]
    assert products and not [n.name for n in products if n.input[1] in square]


@pytest.mark.parametrize("transform", [gradgen.jvp, gradgen.hvp])
def test_forward_mode_has_portable_forms_too(transform):
    options = {"reduce": "sum"} if transform is gradgen.hvp else {}
    plain = transform(parser.parse_model(SCAN), wrt=["x"], of=["y"], **options)
    model = transform(parser.parse_model(SCAN), wrt=["x"], of=["y"], portable=True, **options)
    onnx.checker.check_model(model, full_check=True)
    directions = [
        [a for n in m.graph.node for a in n.attribute if a.name.endswith("_directions")] for m in (plain, model)
    ]
    assert directions[0] and not directions[1]
    feeds = feeds_for(plain)
    assert error(evaluator(model, strict=True)(feeds), plain, feeds) <= 1e-6


POOL = """<ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1]>
g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] dx) {
    y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
    dx = ai.onnx.preview.training.Gradient<xs = ["x"], y = "y">(x)
}"""


def test_lowered_nodes_have_portable_forms_too():
    kinds = [
        {n.op_type for n in gradgen.lower_gradient_ops(parser.parse_model(POOL), portable=p).graph.node}
        for p in (False, True)
    ]
    assert "MaxUnpool" in kinds[0] and "MaxUnpool" not in kinds[1]
    x = np.random.default_rng(0).permutation(16).astype(np.float32).reshape(1, 1, 4, 4)
    got = evaluator(gradgen.lower_gradient_ops(parser.parse_model(POOL), portable=True), strict=True)({"x": x})["dx"]
    tiles = x.reshape(2, 2, 2, 2).max((1, 3), keepdims=True)
    assert (got == (x.reshape(2, 2, 2, 2) == tiles).reshape(x.shape)).all()


def test_verify_judges_the_portable_form(monkeypatch):
    def wrong(node, linker):
        node.op_type = "Sin"

    monkeypatch.setitem(FORMS, "Cos", wrong)
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { y = Sin(x) }"""
    )
    verdicts = [gradgen.verify(model, portable=p)[0].verdict for p in (False, True)]
    assert verdicts == ["ok", "wrong"]


OPENVINO = """FrontEnd API failed with OpConversionFailure:
Model wasn't fully converted. Failed operations detailed log:
-- ReduceSum-21 with a message:
While validating ONNX node '<Node(ReduceSum): g>':
Unsupported input type dynamic

-- Scan-21 with a message:
Number of Scan node inputs (6) is less than required (7)

Summary:
-- No conversion rule found for operations: MaxUnpool-21, Foo-1
-- Conversion is failed for: ReduceSum-21, Scan-21
"""


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (OPENVINO, "MaxUnpool, Foo, Scan"),
        ('error: failed to legalize operation "torch.onnx.MaxUnpool" that was', "MaxUnpool"),
        ("no engine\nat all", "no engine"),
    ],
)
def test_what_an_engine_refused_is_told_by_operators(message, said, monkeypatch):
    """An operator that fails since another one is missing is not among them."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "tools")
    assert importlib.import_module("portability").reason(message) == said
