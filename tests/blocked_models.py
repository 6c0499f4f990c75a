"""Models of convolutions whose weights are fed, and what compile makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from gradgen import blocking, session


def need_blocks(folder: Path) -> None:
    """Skip where onnxruntime blocks nothing, not even for constant weights."""
    proto = convolution("y = Conv(x, k)", k=np.ones((32, 16, 3, 3), np.float32))
    options = session.options(1, False)
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    onnxruntime.InferenceSession(proto.SerializeToString(), options)
    if not any(n.domain == "com.microsoft.nchwc" for n in onnx.load(options.optimized_model_filepath).graph.node):
        pytest.skip("onnxruntime has no blocked layout of channels on this processor")


def convolution(
    nodes: str, x=(4, 16, 16, 16), w=(32, 16, 3, 3), extra: str = "", opset: int = 21, **constants
) -> onnx.ModelProto:
    """A model with the inputs x, w and b, one bias for each channel of the result."""
    bias = w[1] if "ConvTranspose" in nodes and w[1] > 1 else w[0]
    shapes = [",".join(map(str, s)) for s in (x, w)]
    text = f"g (float[{shapes[0]}] x, float[{shapes[1]}] w, float[{bias}] b{extra}) => (float[A,B,C,D] y) {{ {nodes} }}"
    proto = parser.parse_model(f'<ir_version: 7, opset_import: ["" : {opset}]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items())
    return proto


def arrays(proto: onnx.ModelProto, **sizes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    stored = {t.name for t in proto.graph.initializer}
    found = {}
    for value in proto.graph.input:
        if value.name not in stored:
            dims = [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
            kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            found[value.name] = rng.standard_normal(dims).astype(kind)
    return found


def plain(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feeds)


def blocked_nodes(proto: onnx.ModelProto) -> list[str] | None:
    """The operators in blocks of the model that compile runs, None where it is left as it was."""
    found = session._blocked(proto)
    if found is None:
        return None
    return [n.op_type for n in onnx.load_model_from_string(found).graph.node if n.domain == blocking.NCHWC]
