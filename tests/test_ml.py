"""Gradients of ai.onnx.ml beyond the samples: values to replace, integer inputs, labels, what is refused or zero."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import gradgen
from gradgen.errors import GradientError, GradientWarning
from gradgen.evaluate import Evaluator


def model_of(nodes, shape, outputs, dtype=TensorProto.FLOAT):
    """A model over `x`; outputs are (name, type, shape)."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(*o) for o in outputs],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def ml(op_type, inputs, outputs, **attributes):
    return helper.make_node(op_type, inputs, outputs, domain="ai.onnx.ml", **attributes)


def run(model, x, ct, **options):
    derived = gradgen.vjp(model, **options)
    onnx.checker.check_model(derived, full_check=True)
    return derived, Evaluator(derived, strict=True)({"x": x, "grad_y": ct})


@pytest.mark.parametrize("old", [np.nan, -3.0])
def test_imputed_elements_get_nothing(old):
    x = np.array([[1.0, old], [old, 2.5]], np.float32)
    node = ml("Imputer", ["x"], ["y"], imputed_value_floats=[0.25, 0.75], replaced_value_float=old)
    ct = np.array([[1, 2], [3, 4]], np.float32)
    _, got = run(model_of([node], (2, 2), [("y", 1, (2, 2))]), x, ct)
    np.testing.assert_array_equal(got["y"], [[1, 0.75], [0.25, 2.5]])
    np.testing.assert_array_equal(got["grad_x"], [[1, 0], [0, 4]])


def test_normalizer_of_a_zero_row_passes_its_cotangent():
    x = np.array([[0, 0], [3, 4]], np.float32)
    model = model_of([ml("Normalizer", ["x"], ["y"], norm="L2")], (2, 2), [("y", 1, (2, 2))])
    _, got = run(model, x, np.ones((2, 2), np.float32))
    np.testing.assert_array_equal(got["y"][0], [0, 0])
    assert np.isfinite(got["grad_x"]).all()
    # (I − y·yᵀ)·1 / 5 with y = (0.6, 0.8)
    np.testing.assert_allclose(got["grad_x"][1], [(1 - 0.6 * 1.4) / 5, (1 - 0.8 * 1.4) / 5], rtol=1e-5)


def test_a_classifier_keeps_its_labels():
    nodes = [
        ml("Scaler", ["x"], ["s"], scale=[2.0], offset=[0.5]),
        ml("LinearClassifier", ["s"], ["label", "y"], coefficients=[0.3, -0.5, 0.7, 1.2], intercepts=[0.1, 0.2],
           classlabels_ints=[3, 8], post_transform="SOFTMAX"),
    ]  # fmt: skip
    model = model_of(nodes, (4, 2), [("label", TensorProto.INT64, (4,)), ("y", 1, (4, 2))])
    x = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    ct = np.random.default_rng(1).standard_normal((4, 2)).astype(np.float32)
    _, got = run(model, x, ct)
    w = np.array([[0.3, -0.5], [0.7, 1.2]])
    scores = (x - 0.5) * 2 @ w.T + [0.1, 0.2]
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_array_equal(got["label"], np.where(p[:, 1] > p[:, 0], 8, 3))
    np.testing.assert_allclose(got["y"], p, rtol=1e-5)
    np.testing.assert_allclose(got["grad_x"], p * (ct - (ct * p).sum(1, keepdims=True)) @ w * 2, rtol=1e-4, atol=1e-6)


def test_string_labels_stay_with_the_node():
    node = ml("SVMClassifier", ["x"], ["label", "y"], coefficients=[0.5, -0.3], support_vectors=[1.0, 2.0, -1.0, 0.5],
              vectors_per_class=[1, 1], kernel_type="RBF", kernel_params=[0.5, 0.0, 3.0], rho=[0.1],
              classlabels_strings=["a", "b"])  # fmt: skip
    model = model_of([node], (2, 2), [("label", TensorProto.STRING, (2,)), ("y", 1, (2, 2))])
    x, ct = np.array([[0.2, 0.4], [1.0, -1.0]], np.float32), np.array([[1, 2], [0, 1]], np.float32)
    _, got = run(model, x, ct)
    v = np.array([[1.0, 2.0], [-1.0, 0.5]])
    k = np.exp(-0.5 * ((x[:, None] - v) ** 2).sum(2)) * [0.5, -0.3]
    want = ((ct[:, 1] - ct[:, 0])[:, None] * k)[:, :, None] * -(x[:, None] - v)
    np.testing.assert_allclose(got["y"][:, 1], k.sum(1) + 0.1, rtol=1e-5)
    np.testing.assert_allclose(got["grad_x"], want.sum(1), rtol=1e-4, atol=1e-6)


def test_probabilities_of_a_support_vector_machine_are_refused():
    node = ml("SVMClassifier", ["x"], ["label", "y"], coefficients=[0.5, -0.3], support_vectors=[1.0, 2.0, -1.0, 0.5],
              vectors_per_class=[1, 1], rho=[0.1], kernel_params=[0.5, 0.0, 3.0], prob_a=[-0.4], prob_b=[0.2],
              classlabels_ints=[0, 1])  # fmt: skip
    model = model_of([node], (2, 2), [("label", TensorProto.INT64, (2,)), ("y", 1, (2, 2))])
    with pytest.raises(GradientError, match="SVMClassifier.*prob_a"):
        gradgen.vjp(model)


def test_a_double_input_gets_a_double_gradient():
    node = ml("LinearRegressor", ["x"], ["y"], coefficients=[0.5, -2.0], intercepts=[1.0])
    _, got = run(
        model_of([node], (3, 2), [("y", 1, (3, 1))], TensorProto.DOUBLE), np.ones((3, 2)), np.ones((3, 1), np.float32)
    )
    assert got["grad_x"].dtype == np.float64
    np.testing.assert_array_equal(got["grad_x"], [[0.5, -2.0]] * 3)


def test_trees_and_thresholds_are_constant_and_that_is_reported():
    tree = ml("TreeEnsembleRegressor", ["x"], ["t"], nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
              nodes_featureids=[0, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=[0.5, 0.0, 0.0],
              nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], target_treeids=[0, 0], target_nodeids=[1, 2],
              target_ids=[0, 0], target_weights=[1.0, 2.0], n_targets=1)  # fmt: skip
    nodes = [tree, ml("Binarizer", ["x"], ["b"], threshold=0.3), helper.make_node("Mul", ["t", "b"], ["y"])]
    model = model_of(nodes, (3, 1), [("y", 1, (3, 1))])
    with pytest.warns(GradientWarning, match="'x' does not influence"):
        _, got = run(model, np.array([[0.1], [0.4], [0.9]], np.float32), np.ones((3, 1), np.float32))
    np.testing.assert_array_equal(got["grad_x"], np.zeros((3, 1)))
    np.testing.assert_array_equal(got["y"], [[0], [1], [2]])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("stated", [False, True])
def test_a_normaliser_is_right_where_its_shape_is_known(norm, stated):
    """onnxruntime's own kernel works in place then, and its L2 loses the signs, beside a differentiated path too."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        ml("Normalizer", ["a"], ["b"], norm=norm),
        helper.make_node("Mul", ["b", "w"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["y"], keepdims=0),
    ]
    model = model_of(nodes, [2, 6], [("y", TensorProto.FLOAT, [])])
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 2, 6)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    if stated:
        model.graph.value_info.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [2, 6]))
    size = {
        "MAX": lambda v: v.max(1, keepdims=True),
        "L1": lambda v: np.abs(v).sum(1, keepdims=True),
        "L2": lambda v: np.sqrt((v * v).sum(1, keepdims=True)),
    }[norm]
    gradient = gradgen.value_and_grad(model, wrt=["w"], of=["y"])
    found = Evaluator(gradient, strict=True)({"x": x})
    np.testing.assert_allclose(found["grad_w"], -x / size(-x), rtol=1e-6)
    np.testing.assert_allclose(found["y"], (-x / size(-x) * w).sum(), rtol=1e-5)
