"""What functions of other libraries have in common with `vjp`: its options, and random draws that are not repeated."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from onnxscript import opset21 as op
from onnxscript import script
from onnxscript.values import Opset

import gradgen
from gradgen import interop
from gradgen.interop.functions import Function

QUANTISED = parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]>
    g (float[3] x) => (float[3] y) <float scale = {0.5}> {
    q = QuantizeLinear(x, scale)
    d = DequantizeLinear(q, scale)
    y = Relu(d) }"""
)
AT = np.array([1.1, -2.2, 0.6], np.float32)


def doubled_relu() -> gradgen.Registry:
    """Rules in which Relu has twice its gradient."""
    registry = gradgen.Registry()

    @gradgen.vjp_rule("", "Relu", registry=registry)
    @script(Opset("my.rules", 1), default_opset=op)
    def relu_vjp(dY, Y):
        dX = dY * op.Cast(op.CastLike(0.0, Y) < Y, to=1) * 2.0
        return dX

    return registry


OPTIONS = [({}, 0), ({"straight_through": True}, 1), ({"straight_through": True, "registry": doubled_relu()}, 2)]


@pytest.mark.filterwarnings("ignore::gradgen.GradientWarning")
@pytest.mark.parametrize(("options", "slope"), OPTIONS, ids=["plain", "through", "registry"])
class TestOptionsOfVjp:
    """Every library's functions take what `vjp` takes: rules of one's own, and straight through quantisation."""

    def test_scipy(self, options, slope):
        f = interop.scipy_objective(QUANTISED, reduce="sum", **options)
        np.testing.assert_array_equal(f(AT)[1], slope * (AT > 0))

    def test_torch(self, options, slope):
        torch = pytest.importorskip("torch")
        x = torch.tensor(AT, requires_grad=True)
        f = interop.torch_function(QUANTISED, **options)
        (found,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        np.testing.assert_array_equal(found.detach(), slope * (AT > 0))

    def test_jax(self, options, slope):
        jax = pytest.importorskip("jax")
        for order in (1, 2):  # a higher order makes its gradient in another way
            f = interop.jax_function(QUANTISED, order=order, **options)
            np.testing.assert_array_equal(jax.grad(lambda x, f=f: f(x).sum())(AT), slope * (AT > 0))


def test_draws_inside_functions_and_branches_count():
    text = """<ir_version: 10, opset_import: ["" : 21, "mine" : 1]> g (float[3] x, bool c) => (float[3] y) { BODY }
    <domain: "mine", opset_import: ["" : 21]> noisy (x) => (y) { n = RandomNormalLike(x)  y = Mul(x, n) }"""
    branch = """y = If(c) <then_branch = t () => (float[3] a) { a = mine.noisy(x) },
        else_branch = e () => (float[3] b) { b = Neg(x) }>"""
    for body in ("y = mine.noisy(x)", branch):
        assert Function(parser.parse_model(text.replace("BODY", body)), None, None).draws
    assert not Function(QUANTISED, None, None).draws
