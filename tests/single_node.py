"""Gradients of one node on onnxruntime, for tests of single values."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.helper
import onnx.numpy_helper
import onnxruntime

import gradgen


def build(
    op_type: str, inputs: Mapping[str, Any], outputs: int = 1, constants: Collection[str] = (), **attributes: Any
) -> onnx.ModelProto:
    """A model of one node; `inputs` holds arrays in the order of its operands, `constants` names some of them."""
    node = onnx.helper.make_node(op_type, list(inputs), [f"y{i}" for i in range(outputs)], name="node", **attributes)
    declared = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
        if n not in constants
    ]
    fixed = [onnx.numpy_helper.from_array(inputs[n], n) for n in constants]
    results = [onnx.helper.make_empty_tensor_value_info(o) for o in node.output]
    graph = onnx.helper.make_graph([node], "single", declared, results, fixed)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def gradients(
    op_type: str,
    inputs: Mapping[str, Any],
    cotangent: Any = None,
    wrt: Any = None,
    constants: Collection[str] = (),
    dtype: Any = np.float32,
    **attributes: Any,
) -> Any:
    """The gradients to `wrt` (all float inputs) as a list, or alone where there is one.

    Floats in `inputs` are of `dtype`; the cotangent is broadcast to the shape of the result, and 1 by default.
    """
    arrays = {n: np.asarray(a) for n, a in inputs.items()}
    arrays = {n: a.astype(dtype) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    asked = [wrt] if isinstance(wrt, str) else wrt or [n for n, a in arrays.items() if a.dtype.kind == "f"]
    primal = build(op_type, arrays, constants=constants, **attributes)
    model = gradgen.vjp(primal, wrt=asked)
    onnx.checker.check_model(model, full_check=True)
    fed = {n: a for n, a in arrays.items() if n not in constants}
    y = session(primal).run(None, fed)[0]
    ct = np.broadcast_to(np.asarray(1.0 if cotangent is None else cotangent, dtype), y.shape)
    results = session(model).run([f"grad_{n}" for n in asked], {**fed, "grad_y0": ct})
    for name, result in zip(asked, results, strict=True):
        assert result.shape == arrays[name].shape and result.dtype == arrays[name].dtype, name
    return results[0] if len(asked) == 1 else results


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A quiet session on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
