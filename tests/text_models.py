# Models written as text, for tests of single rewrites.
from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper, parser


def model(text: str, **initializers: np.ndarray) -> onnx.ModelProto:
    """A model of opset 21 from the text of its graph, with these initializers."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in initializers.items())
    return proto
