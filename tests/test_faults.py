# What onnxruntime computes wrongly in a derivative though not in the primal: values of numpy, at every level of optimisation.
"""Tests of forms that keep onnxruntime from computing a derivative's nodes wrongly."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from text_models import model

import gradgen

LEVELS = [getattr(ort.GraphOptimizationLevel, f"ORT_{n}") for n in
          ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")]  # fmt: skip
X = np.arange(6, dtype=np.float32).reshape(3, 2) / 5
V, CT = np.array([1, -2, 0.5], np.float32), np.array([3, 1], np.float32)


def run(proto: onnx.ModelProto, level: ort.GraphOptimizationLevel, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


@pytest.mark.parametrize("level", LEVELS, ids=str)
@pytest.mark.parametrize("n", ["2", "N"])
def test_a_primal_product_with_a_vector_stays_right_beside_its_gradient(level, n):
    proto = model(f"g (float[3,{n}] x, float[3] v) => (float[{n}] y) "
                  "{ t = Transpose<perm=[1,0]>(x)\n h = Tanh(t)\n y = MatMul(h, v) }")  # fmt: skip
    found = run(gradgen.vjp(proto), level, x=X, v=V, grad_y=CT)
    h = np.tanh(X.astype(np.float64))
    np.testing.assert_allclose(found["y"], h.T @ V, rtol=1e-5)
    np.testing.assert_allclose(found["grad_v"], h @ CT, rtol=1e-5)
    np.testing.assert_allclose(found["grad_x"], np.outer(V, CT) * (1 - h**2), rtol=1e-5)


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_a_tangent_is_multiplied_by_a_vector_rightly(level):
    proto = model("g (float[3,2] x, float[3] v) => (float[2] y, float[2,3] t) "
                  "{ t = Transpose<perm=[1,0]>(x)\n y = MatMul(t, v) }")  # fmt: skip
    found = run(gradgen.jvp(proto, wrt=["x"], of=["y"]), level, x=X, v=V, tangent_x=X * X)
    np.testing.assert_allclose(found["y"], X.T @ V, rtol=1e-5)
    np.testing.assert_allclose(found["tangent_y"], (X * X).T @ V, rtol=1e-5)


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_in_a_branch_and_with_batches(level):
    proto = model("""g (bool b, float[4,3,2] x, float[3] v) => (float[4,2] y) {
        y = If(b) <then_branch = t () => (float[4,2] u) { t = Transpose<perm=[0,2,1]>(x)\n h = Exp(t)\n u = MatMul(h, v) },
                   else_branch = e () => (float[4,2] o) { s = Transpose<perm=[0,2,1]>(x)\n o = MatMul(s, v) }> }""")
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 3, 2)
    ct = np.linspace(1, 2, 8, dtype=np.float32).reshape(4, 2)
    for b in (True, False):
        found = run(gradgen.vjp(proto), level, b=np.array(b), x=x, v=V, grad_y=ct)
        h = np.exp(x) if b else x
        np.testing.assert_allclose(found["y"], np.einsum("nkm,k->nm", h, V), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["grad_v"], np.einsum("nkm,nm->k", h, ct), rtol=1e-5)
        expected = np.einsum("k,nm->nkm", V, ct) * (h if b else 1)
        np.testing.assert_allclose(found["grad_x"], expected, rtol=1e-5)


def test_products_stay_where_nothing_is_transposed():
    proto = model("g (float[2,3] x, float[3] v) => (float[2] y) { y = MatMul(x, v) }")
    assert [n.op_type for n in gradgen.jvp(proto, wrt=["v"]).graph.node] == ["MatMul", "MatMul"]
