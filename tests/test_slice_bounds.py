# Slice with bounds outside the axis: ONNX and onnxruntime clamp them, Python and numpy differ for a negative step.
"""Tests of the gradient of Slice at bounds beyond both ends, against onnxruntime's own forward pass."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import gradgen
from gradgen.evaluate import Evaluator

BOUNDS = [-(2**62), -9, -4, -3, -1, 0, 1, 2, 3, 9, 2**62]


def sliced(size: int, start: int, end: int, step: int, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"])], "g",
        [helper.make_tensor_value_info("x", kind, [size])], [helper.make_tensor_value_info("y", kind, [None])],
    )  # fmt: skip
    for name, value in zip("seat", (start, end, 0, step), strict=True):
        graph.initializer.append(numpy_helper.from_array(np.array([value], np.int64), name))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.parametrize("step", [-3, -2, -1, 1, 2])
@pytest.mark.parametrize("size", [0, 1, 3])
def test_the_elements_that_onnxruntime_takes_get_the_cotangents(size, step):
    x = np.arange(size, dtype=np.float32)
    for start in BOUNDS:
        for end in BOUNDS:
            model = sliced(size, start, end, step)
            (taken,) = run(model, x=x)
            ct = np.arange(1, taken.size + 1, dtype=np.float32)
            want = np.zeros(size, np.float32)
            want[taken.astype(int)] = ct
            result = gradgen.vjp(model)
            onnx.checker.check_model(result, full_check=True)
            np.testing.assert_array_equal(run(result, x=x, grad_y=ct)[1], want, err_msg=f"{start}:{end}:{step}")


def test_an_integer_slice_is_not_folded_to_what_the_reference_evaluator_makes_of_it():
    """`y = x · Size(Slice(k, …))`, where k is constant and one element is taken."""
    model = sliced(3, -5, -9, -1, TensorProto.INT64)
    del model.graph.input[:], model.graph.output[:]
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 3, 4]), "x"))
    model.graph.node.append(helper.make_node("Expand", ["u", "y"], ["z"]))
    model.graph.input.append(helper.make_tensor_value_info("u", TensorProto.FLOAT, [1]))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [2]))
    result = gradgen.vjp(model, wrt=["u"])
    u, ct = np.ones(1, np.float32), np.array([3, 4], np.float32)
    np.testing.assert_array_equal(run(result, u=u, grad_z=ct)[1], [7])


@pytest.mark.parametrize("bounds", [(-5, -9, -1), (9, -9, -2), (-9, 9, 1), (2, -9, -1)])
def test_the_evaluator_of_the_checks_clamps_alike(bounds):
    model = sliced(3, *bounds)
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(Evaluator(model, prefer="reference")({"x": x})["y"], run(model, x=x)[0])
