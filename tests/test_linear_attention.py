"""Gradients of linear attention through the standard's body, which is a Scan."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import gradgen
from gradgen.differences import check_gradients
from gradgen.evaluate import Evaluator

SHAPES = {"q": (2, 4, 8), "k": (2, 4, 4), "v": (2, 4, 6), "past": (2, 2, 2, 3), "decay": (2, 4, 2), "beta": (2, 4, 1)}


def linear_attention(rule: str, dynamic: bool = False, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """A model of four query heads on two states, with what the update rule reads."""
    given = [n for n in SHAPES if not (n == "decay" and "gated" not in rule or n == "beta" and "delta" not in rule)]
    inputs = [
        helper.make_tensor_value_info(n, kind, [f"{n}{i}" for i in range(len(SHAPES[n]))] if dynamic else SHAPES[n])
        for n in given
    ]
    outputs = [
        helper.make_tensor_value_info("y", kind, [None] * 3),
        helper.make_tensor_value_info("s", kind, [None] * 4),
    ]
    names = [n if n in given else "" for n in SHAPES]
    node = helper.make_node("LinearAttention", names, ["y", "s"], q_num_heads=4, kv_num_heads=2, update_rule=rule)
    graph = helper.make_graph([node], "linear", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=10)


def content(model: onnx.ModelProto, kind: type = np.float32) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {i.name: (rng.standard_normal(SHAPES[i.name]) * 0.5).astype(kind) for i in model.graph.input}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule, dynamic):
    model = linear_attention(rule, dynamic)
    feeds = content(model)
    result = gradgen.vjp(model, wrt=list(feeds), of=["y", "s"])
    onnx.checker.check_model(result, full_check=True)
    Evaluator(result, strict=True)
    for record in check_gradients(model, result, feeds):
        assert record.verdict == "ok" and record.norm > 0, f"{record.name}: {record.verdict}, {record.reason}"


def test_linear_attention_to_second_order():
    model = linear_attention("gated_delta")
    feeds = content(model)
    first = gradgen.vjp(model, wrt=["q", "k", "decay"], of=["y", "s"])
    second = gradgen.vjp(first, wrt=list(SHAPES), of=["grad_q", "grad_k", "grad_decay"])
    rng = np.random.default_rng(2)
    for name, shape in (("grad_y", (2, 4, 12)), ("grad_s", (2, 2, 2, 3))):
        feeds[name] = rng.standard_normal(shape).astype(np.float32)
    names = ("grad_q", "grad_k", "grad_decay")
    cotangents = {n: rng.standard_normal(SHAPES[n.removeprefix("grad_")]).astype(np.float32) for n in names}
    records = check_gradients(first, second, feeds, cotangents, {n: f"grad2_{n}" for n in SHAPES})
    assert [r.verdict for r in records] == ["ok"] * len(SHAPES)
    assert all(r.norm > 0 for r in records)


def test_linear_attention_in_float16():
    model = linear_attention("gated_delta", kind=TensorProto.FLOAT16)
    half = content(model, np.float16)
    wide = linear_attention("gated_delta")
    found: dict[str, np.ndarray] = {}
    want: dict[str, np.ndarray] = {}
    for primal, feeds, results in (
        (model, half, found),
        (wide, {n: a.astype(np.float32) for n, a in half.items()}, want),
    ):
        result = gradgen.vjp(primal, wrt=list(feeds), of=["y"])
        ct = np.ones((2, 4, 12), feeds["q"].dtype)
        results.update(Evaluator(result, strict=True)({**feeds, "grad_y": ct}))
    for name in half:
        got = found[f"grad_{name}"]
        assert got.dtype == np.float16
        expected = want[f"grad_{name}"]
        np.testing.assert_allclose(got.astype(np.float32), expected, rtol=2e-2, atol=1e-2 * np.abs(expected).max())
