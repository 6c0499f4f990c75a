"""Gradients of Dropout: the identity in inference, the drawn mask in training, one draw for both passes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import gradgen
from gradgen.evaluate import Evaluator


def dropout_model(ratio, training, dtype=TensorProto.FLOAT, mask=False, fed=False, shape=(50, 20)):
    """A model of one Dropout; `ratio` and `training` are inputs where `fed`, else initializers; None is absent."""
    settings = {"ratio": (ratio, np.float32), "training": (training, np.bool_)}
    given = [n for n, (v, _) in settings.items() if v is not None]
    last = max((list(settings).index(n) for n in given), default=-1)
    names = ["data", *[n if n in given else "" for n in list(settings)[: last + 1]]]
    outputs = ["output", "mask"] if mask else ["output"]
    node = helper.make_node("Dropout", names, outputs)
    inputs = [helper.make_tensor_value_info("data", dtype, shape)]
    tensors = {n: np.asarray(*settings[n]) for n in given}
    kinds = {n: helper.np_dtype_to_tensor_dtype(t.dtype) for n, t in tensors.items()}
    if fed:
        inputs += [helper.make_tensor_value_info(n, kinds[n], ()) for n in given]
    fixed = [] if fed else [helper.make_tensor(n, kinds[n], (), [t.item()]) for n, t in tensors.items()]
    infos = [helper.make_tensor_value_info(o, TensorProto.BOOL if o == "mask" else dtype, shape) for o in outputs]
    graph = helper.make_graph([node], "g", inputs, infos, fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, tensors if fed else {}


def run(model, settings, dtype=np.float32):
    """The primal output, the gradient and their inputs, in one run of onnxruntime: one draw."""
    derived = gradgen.vjp(model, wrt=["data"], of=["output"])
    rng = np.random.default_rng(2)
    data, ct = rng.uniform(0.5, 2, (50, 20)).astype(dtype), rng.uniform(0.5, 2, (50, 20)).astype(dtype)
    results = Evaluator(derived, strict=True)({"data": data, "grad_output": ct, **settings})
    return derived, results, data, ct


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize(("ratio", "training"), [(None, None), (0.3, None), (0.3, False), (None, False)])
def test_inference_is_the_identity(ratio, training, fed):
    model, settings = dropout_model(ratio, training, fed=fed)
    derived, results, data, ct = run(model, settings)
    np.testing.assert_array_equal(results["output"], data)
    np.testing.assert_array_equal(results["grad_data"], ct)


def test_inference_adds_nothing_to_the_forward_node():
    model, _ = dropout_model(0.3, False)
    derived, *_ = run(model, {})
    (node,) = [n for n in derived.graph.node if n.op_type == "Dropout"]
    assert len(node.output) == 1 and not {"Mul", "Div"} & {n.op_type for n in derived.graph.node}


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("ratio", [None, 0.25, 0.0])
def test_training_goes_through_the_drawn_mask(ratio, fed, mask):
    model, settings = dropout_model(ratio, True, fed=fed, mask=mask)
    derived, results, data, ct = run(model, settings)
    assert [n.op_type for n in derived.graph.node].count("Dropout") == 1
    kept = results["output"] != 0
    share = 0.5 if ratio is None else ratio
    assert abs(kept.mean() - (1 - share)) < 0.08
    np.testing.assert_allclose(results["output"], np.where(kept, data / (1 - share), 0), rtol=1e-6)
    np.testing.assert_allclose(results["grad_data"], np.where(kept, ct / (1 - share), 0), rtol=1e-6)


def test_two_draws_stay_two():
    nodes = [
        helper.make_node("Dropout", ["data", "ratio", "training"], ["a"]),
        helper.make_node("Dropout", ["data", "ratio", "training"], ["b"]),
        helper.make_node("Mul", ["a", "b"], ["output"]),
    ]
    fixed = [
        helper.make_tensor("ratio", TensorProto.FLOAT, (), [0.5]),
        helper.make_tensor("training", TensorProto.BOOL, (), [True]),
    ]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (50, 20)) for n in ("data", "a", "b", "output")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    derived, results, data, ct = run(model, {})
    assert [n.op_type for n in derived.graph.node].count("Dropout") == 2
    kept_a, kept_b = results["a"] != 0, results["b"] != 0
    assert (kept_a != kept_b).any()
    np.testing.assert_allclose(results["grad_data"], np.where(kept_a & kept_b, 8 * data * ct, 0), rtol=1e-5)


def test_float16():
    model, settings = dropout_model(0.25, True, TensorProto.FLOAT16)
    _, results, _, ct = run(model, settings, np.float16)
    kept = results["output"] != 0
    assert results["grad_data"].dtype == np.float16
    np.testing.assert_allclose(results["grad_data"], np.where(kept, ct / np.float16(0.75), 0), rtol=2e-3)


def test_the_ratio_gets_zero():
    model, settings = dropout_model(0.25, True, fed=True)
    with pytest.warns(gradgen.GradientWarning):
        derived = gradgen.vjp(model, wrt=["ratio", "data"], of=["output"])
    results = Evaluator(derived)(
        {"data": np.ones((50, 20), np.float32), **settings, "grad_output": np.ones((50, 20), np.float32)}
    )
    assert results["grad_ratio"] == 0
