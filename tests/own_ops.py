"""Two ops of one's own in a registry of their own, of which one calls the other: for tests of what is made of such ops."""

from __future__ import annotations

from onnxscript import opset21 as op

import gradgen

MINE = gradgen.Registry()


@gradgen.op("my.domain", "Swish2", registry=MINE)
def swish2(x, beta: float = 1.0):
    """y = x·σ(beta·x)."""
    return x * op.Sigmoid(x * op.CastLike(beta, x))


@gradgen.op("my.domain", "Pair", version=2, registry=MINE)
def pair(x, w, gain: float = 2.0):
    """Two outputs, one through another op of one's own."""
    scaled = swish2(x, beta=gain)
    total = op.ReduceSum(x * w, keepdims=0)
    return scaled, total
