"""Models in which compile writes other forms, what it writes, and whether that gives the same values."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser

import gradgen
from gradgen import runtime_forms

BATCH, WIDE, NARROW = 32, 512, 256
# E rows of 64 elements are enough for a flat axis.
ROWS, TABLE, WIDTH = 1024, 40, 64


def model(text: str, opset: int = 21, **initializers: np.ndarray) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in initializers.items())
    return proto


def operators(proto: onnx.ModelProto, alone: bool = True) -> list[str] | None:
    """The operators of the model that compile hands to onnxruntime; None where it is the model itself."""
    found = runtime_forms.rewritten(proto, alone)
    if found is None:
        return None
    onnx.checker.check_model(found, full_check=True)
    assert [o.name for o in found.graph.output] == [o.name for o in proto.graph.output]
    return [node.op_type for node in found.graph.node]


def check(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], rounding: float = 0.0) -> None:
    """Compare what compile runs, on one thread and on two, with onnxruntime as it runs the model by itself."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feeds)
    for threads in (1, 2):
        found = gradgen.compile(proto, threads=threads, cache=False)(**feeds)
        for value, right in zip(found.values(), expected, strict=True):
            assert value.dtype == right.dtype and value.shape == right.shape
            np.testing.assert_allclose(value, right, rtol=0, atol=rounding * np.abs(right).max(initial=0))
