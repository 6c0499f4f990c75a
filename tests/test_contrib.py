"""Gradients of models that onnxruntime has optimised, against those of the models before; bodies without kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import gradgen
from gradgen.errors import GradientError, GradientWarning
from gradgen.evaluate import Evaluator

DATA = Path(__file__).parent / "data"


def optimised(model, folder, level="ORT_ENABLE_EXTENDED"):
    """The model as onnxruntime's optimiser writes it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "optimised.onnx")


def fed(model, seed=0):
    rng = np.random.default_rng(seed)
    kinds = {i.name: i.type.tensor_type for i in model.graph.input}
    return {
        n: rng.uniform(-1, 1, [d.dim_value or 2 for d in t.shape.dim]).astype(
            onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        )
        for n, t in kinds.items()
    }


def gradients(model, wrt, feeds):
    """The outputs of the gradient model; it has standard ops only."""
    derived = gradgen.vjp(model, wrt=wrt)
    assert {n.domain for n in derived.graph.node} == {""} and {o.domain for o in derived.opset_import} == {""}
    onnx.checker.check_model(derived, full_check=True)
    outputs = Evaluator(model, strict=True)(feeds)
    rng = np.random.default_rng(3)
    seeds = {f"grad_{n}": rng.uniform(0.5, 1, v.shape).astype(v.dtype) for n, v in sorted(outputs.items())}
    return outputs, Evaluator(derived, strict=True)({**feeds, **seeds})


FUSED = {
    "bias and Gelu": (
        "float[2, 3, 8] x, float[8] b) => (float[2, 3, 8] y",
        "s = Add(x, b) d = Div(s, root) e = Erf(d) p = Add(e, one) m = Mul(s, p) y = Mul(m, half)",
        "float root = {1.4142135}, float one = {1.0}, float half = {0.5}",
        ("com.microsoft", "BiasGelu"),
    ),
    "a sum and LayerNormalization": (
        "float[2, 3, 8] x, float[2, 3, 8] r, float[8] scale, float[8] b) => (float[2, 3, 8] y",
        "s = Add(x, r) y = LayerNormalization <axis: int = -1> (s, scale, b)",
        "",
        ("com.microsoft", "SkipLayerNormalization"),
    ),
    "a product by a transpose": (
        "float[2, 3, 4] a, float[2, 5, 4] b) => (float[2, 3, 5] y",
        "t = Transpose <perm: ints = [0, 2, 1]> (b) m = MatMul(a, t) y = Mul(m, two)",
        "float two = {2.0}",
        ("com.microsoft", "FusedMatMul"),
    ),
    "Gemm and Tanh": (
        "float[3, 4] a, float[4, 5] b, float[5] c) => (float[3, 5] y",
        "g = Gemm(a, b, c) y = LeakyRelu <alpha: float = 0.3> (g)",
        "",
        ("com.microsoft", "FusedGemm"),
    ),
    "root mean square": (
        "float[2, 3, 8] x, float[8] scale) => (float[2, 3, 8] y",
        "q = Pow(x, two) m = ReduceMean <axes: ints = [-1]> (q) e = Add(m, eps) r = Sqrt(e) d = Div(x, r) "
        "n = Mul(d, scale) y = Tanh(n)",
        "float two = {2.0}, float eps = {0.00001}",
        ("", "SimplifiedLayerNormalization"),
    ),
}


@pytest.mark.parametrize("case", FUSED)
def test_a_fused_model_has_the_gradients_of_the_model_before(case, tmp_path):
    signature, body, constants, (domain, op_type) = FUSED[case]
    held = f"<{constants}>" if constants else ""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> g ({signature}) {held} {{ {body} }}')
    fused = optimised(model, tmp_path)
    assert (domain, op_type) in {(n.domain, n.op_type) for n in fused.graph.node}
    feeds = fed(model)
    _, want = gradients(model, None, feeds)
    outputs, got = gradients(fused, None, feeds)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-5, atol=2e-6 * np.abs(value).max(), err_msg=name)
    np.testing.assert_allclose(got["y"], outputs["y"], rtol=4e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp_static", "cnn_static", "transformer_static", "transformer_dynamic"])
def test_an_optimised_network_has_the_gradients_of_the_network(name, tmp_path):
    model = onnx.load(DATA / f"{name}.onnx")
    fused = optimised(model, tmp_path)
    float_inputs = [i.name for i in model.graph.input if i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
    feeds = fed(model)
    assert {n.domain for n in fused.graph.node} - {"", "ai.onnx"}, "nothing was fused"
    _, want = gradients(model, float_inputs, feeds)
    _, got = gradients(fused, float_inputs, feeds)
    for name in float_inputs:
        value = want[f"grad_{name}"]
        np.testing.assert_allclose(got[f"grad_{name}"], value, rtol=1e-3, atol=1e-5 * np.abs(value).max(), err_msg=name)


def test_a_fused_node_off_the_path_is_kept():
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[3] x, float[3] z) => (float[3] y) { g = com.microsoft.QuickGelu (z) y = Mul(x, g) }""")
    derived = gradgen.vjp(model, wrt=["x"])
    assert [n.op_type for n in derived.graph.node if n.domain == "com.microsoft"] == ["QuickGelu"]
    derived = gradgen.vjp(model, wrt=["z"], inline=False)
    assert not [n for n in derived.graph.node if n.domain == "com.microsoft"]


def test_shapes_behind_a_fused_op_are_known():
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[4, 3] x, float[3] b) => (float[4, 3] y) { g = com.microsoft.QuickGelu (x) y = Add(g, b) }""")
    derived = gradgen.vjp(model)
    assert "Shape" not in {n.op_type for n in derived.graph.node}


def node_model(op_type, signature, call):
    return onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g ({signature}) {{ {call} }}""")


def softmax(x, axes):
    e = np.exp(x - x.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


def test_bodies_that_have_no_kernel_here():
    rng = np.random.default_rng(0)
    x, b, s = (rng.standard_normal(n).astype(np.float32) for n in ((2, 3, 4), (1, 3, 4), (2, 3, 4)))
    model = node_model(
        "BiasSoftmax",
        "float[2, 3, 4] x, float[1, 3, 4] b) => (float[2, 3, 4] y",
        "y = com.microsoft.BiasSoftmax <axis: int = 1, is_inner_broadcast: int = 0> (x, b)",
    )
    got = Evaluator(gradgen.vjp(model), strict=True)({"x": x, "b": b, "grad_y": s})
    want = softmax(x + b, (1, 2))
    np.testing.assert_allclose(got["y"], want, rtol=1e-5)
    np.testing.assert_allclose(got["grad_x"], want * (s - (s * want).sum((1, 2), keepdims=True)), rtol=1e-4, atol=1e-6)
    model = node_model(
        "BiasAdd",
        "float[2, 3, 4] x, float[4] b, float[2, 3, 4] s) => (float[2, 3, 4] y",
        "y = com.microsoft.BiasAdd (x, b, s)",
    )
    got = Evaluator(gradgen.vjp(model), strict=True)({"x": x, "b": b[0, 0], "s": s, "grad_y": s})
    np.testing.assert_allclose(got["y"], x + b[0, 0] + s, rtol=1e-6)
    np.testing.assert_allclose(got["grad_b"], s.sum((0, 1)), rtol=1e-5)


@pytest.mark.parametrize("parts", [3, 2])
def test_packed_heads(parts):
    rng = np.random.default_rng(1)
    packed = rng.standard_normal((2, 3, 2, parts, 4)).astype(np.float32)
    query = rng.standard_normal((2, 3, 8)).astype(np.float32)
    if parts == 3:
        signature, call = "float[2, 3, 2, 3, 4] p) => (float[2, 3, 8] y", "MultiHeadAttention <num_heads: int = 2> (p)"
    else:
        signature = "float[2, 3, 8] q, float[2, 3, 2, 2, 4] p) => (float[2, 3, 8] y"
        call = "MultiHeadAttention <num_heads: int = 2> (q, p)"
    model = node_model("MultiHeadAttention", signature, f"y = com.microsoft.{call}")
    feeds = {"p": packed, **({"q": query} if parts == 2 else {})}
    got = Evaluator(gradgen.vjp(model), strict=True)({**feeds, "grad_y": np.ones((2, 3, 8), np.float32)})
    q, k, v = np.moveaxis(packed, 3, 0) if parts == 3 else (query.reshape(2, 3, 2, 4), *np.moveaxis(packed, 3, 0))
    weights = softmax(np.einsum("bshd,bthd->bhst", q, k) / 2, (3,))
    np.testing.assert_allclose(
        got["y"], np.einsum("bhst,bthd->bshd", weights, v).reshape(2, 3, 8), rtol=1e-5, atol=1e-6
    )


def test_a_cache_is_refused_by_name():
    model = node_model(
        "MultiHeadAttention",
        "float[1, 1, 8] q, float[1, 2, 5, 4] k, float[1, 2, 5, 4] v) => (float[1, 1, 8] y",
        "y, pk, pv = com.microsoft.MultiHeadAttention <num_heads: int = 2> (q, q, q, , , , k, v)",
    )
    with pytest.raises(GradientError, match="MultiHeadAttention.*'past_key' is set"):
        gradgen.vjp(model)


def test_an_unknown_attribute_is_refused():
    model = node_model("Gelu", "float[3] x) => (float[3] y", "y = com.microsoft.Gelu <approximate: int = 1> (x)")
    with pytest.raises(GradientError, match="does not know the attribute 'approximate'"):
        gradgen.vjp(model)


def test_a_model_without_a_path_warns():
    model = node_model(
        "Gelu",
        "float[3] x, float[3] z) => (float[3] y",
        "s = Shape(x) e = ConstantOfShape(s) g = com.microsoft.Gelu (z) y = Mul(e, g)",
    )
    with pytest.warns(GradientWarning, match="'x' does not influence"):
        gradgen.vjp(model)


@pytest.mark.parametrize("last", [(3, 3), (2, 0), (1, 3)], ids=str)
@pytest.mark.parametrize("window", [-1, 1, 2])
@pytest.mark.parametrize("softcap", [0.0, 0.7])
def test_ragged_prompts_with_a_window_are_what_the_kernel_computes(softcap, window, last):
    """Rows behind the end of a prompt included, which two kernels of onnxruntime treat in two ways."""
    text = f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[2,4,16] q, float[2,4,8] k, float[2,4,8] v, int32[2] last, int32 total)
        => (float[2,4,16] y, float[2,1,4,8] p, float[2,1,4,8] w) {{
      y, p, w = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1, local_window_size = {window},
        softcap = {softcap}> (q, k, v, , , last, total)
    }}"""
    model = onnx.parser.parse_model(text)
    feeds = {**fed(model), "last": np.array(last, np.int32), "total": np.array(4, np.int32)}
    gradient = gradgen.vjp(model, wrt=["q", "k", "v"], of=["y"])
    kernel = Evaluator(model, strict=True)
    ct = np.random.default_rng(5).uniform(-1, 1, (2, 4, 16)).astype(np.float32)
    found = Evaluator(gradient, strict=True)({**feeds, "grad_y": ct})
    np.testing.assert_allclose(found["y"], kernel(feeds)["y"], atol=1e-6)
    for seed, name in enumerate("qkv"):
        direction = np.random.default_rng(seed).uniform(-1, 1, feeds[name].shape)
        ends = [kernel({**feeds, name: (feeds[name] + s * direction).astype(np.float32)})["y"] for s in (0.02, -0.02)]
        want = float(((ends[0].astype(np.float64) - ends[1]) * ct).sum()) / 0.04
        assert float((found[f"grad_{name}"] * direction).sum()) == pytest.approx(want, rel=5e-3, abs=5e-3), name
