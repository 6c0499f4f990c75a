"""Tests of the passes of onnxruntime that a session leaves out: where channels are blocked, and where not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from text_models import model

import gradgen
from gradgen import session


def convolutions(feed: bool, folder: Path) -> list[str]:
    """The domains of the ops that onnxruntime makes of a small CNN's training step, weights fed or not."""
    rng = np.random.default_rng(0)
    weights = {"w": (16, 1, 3, 3), "v": (32, 16, 3, 3)}
    primal = model("""g (float[2,1,12,12] x) => (float[2,32,3,3] y) {
        c = Conv<pads=[1,1,1,1]>(x, w)\n r = Relu(c)\n p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
        d = Conv<pads=[1,1,1,1]>(p, v)\n s = Relu(d)\n y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(s) }""",
        **{n: rng.standard_normal(shape).astype(np.float32) for n, shape in weights.items()})  # fmt: skip
    gradient = gradgen.value_and_grad(primal, wrt=["w", "v"], reduce="sum")
    step = gradgen.compile(gradient, feed=list(weights) if feed else (), cache=folder)
    x = rng.standard_normal((2, 1, 12, 12)).astype(np.float32)
    found = step(x)
    plain = onnxruntime.InferenceSession(gradient.SerializeToString(), providers=["CPUExecutionProvider"])
    for name, value in zip(step.outputs, plain.run(step.outputs, {"x": x}), strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)
    [kept] = folder.glob("*.onnx")
    return [node.domain for node in onnx.load(kept).graph.node]


@pytest.mark.parametrize("feed", [False, True])
def test_channels_are_blocked_for_constant_weights_alone_where_few_places_read_them(feed, tmp_path):
    domains = convolutions(feed, tmp_path)
    if not feed and "com.microsoft.nchwc" not in domains:
        pytest.skip("onnxruntime has no blocked layout of channels on this processor")
    assert ("com.microsoft.nchwc" in domains) is not feed


CONV = "g (float[1,4,8,8] x, float[8,4,3,3] v, bool b) => (float[1,8,6,6] y) {"


@pytest.mark.parametrize(
    ("nodes", "blocked"),
    [
        ("y = Conv(x, w)", True),
        ("c = Identity(w)\n y = Conv(x, c)", True),
        ("s = Constant<value_float=0.1>()\n q = QuantizeLinear(w, s)\n d = DequantizeLinear(q, s)\n y = Conv(x, d)", True),
        ("y = Conv(x, v)", False),
        ("c = Mul(v, w)\n y = Conv(x, c)", False),
        ("a = Conv(x, v)\n c = Conv(x, w)\n y = Add(a, c)", True),
        ("y = If(b) <then_branch = t () => (float[1,8,6,6] u) { u = Conv(x, w) }, "
         "else_branch = e () => (float[1,8,6,6] o) { o = Conv(x, v) }>", True),
    ],
)  # fmt: skip
def test_a_weight_is_constant_where_nothing_that_is_fed_decides_on_it(nodes, blocked):
    proto = model(CONV + nodes + " }", w=np.ones((8, 4, 3, 3), np.float32))
    onnx.checker.check_model(proto, full_check=True)
    assert (session.disabled_optimisers(proto) == []) is blocked


def test_no_convolution_no_pass_left_out():
    assert (
        session.disabled_optimisers(model("g (float[2,3] x, float[3,2] w) => (float[2,2] y) { y = MatMul(x, w) }"))
        == []
    )
