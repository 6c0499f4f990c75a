"""Models with Gradient nodes, from text, and checks of what they become."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.checker
import onnxruntime as ort
from onnx import numpy_helper, parser

import gradgen

TRAINING = "ai.onnx.preview.training"


def model(text: str, opset: int = 21, **initializers: np.ndarray) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "{TRAINING}" : 1]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in initializers.items())
    return proto


def gradient(outputs: str, inputs: str, xs: str, y: str, zs: str = "") -> str:
    """The text of a Gradient node; names are separated by blanks."""

    def strings(names: str) -> str:
        return ", ".join(f'"{n}"' for n in names.split())

    named = f", zs = [{strings(zs)}]" if zs else ""
    return f'{outputs} = {TRAINING}.Gradient <xs = [{strings(xs)}]{named}, y = "{y}"> ({inputs})'


def lower(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The lowered model, checked: nothing of the training domain is left."""
    before = proto.SerializeToString()
    found = gradgen.lower_gradient_ops(proto)
    assert proto.SerializeToString() == before
    onnx.checker.check_model(found, full_check=True)
    assert {e.domain for e in found.opset_import} == {""}
    assert all(not n.domain for n in found.graph.node)
    assert [o.name for o in found.graph.output] == [o.name for o in proto.graph.output]
    return found


def run(proto: onnx.ModelProto, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def differences(fn, point: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Central differences of the sum of what a function returns, element by element."""
    found = np.zeros_like(point)
    for index in np.ndindex(point.shape):
        ahead, behind = point.copy(), point.copy()
        ahead[index] += step
        behind[index] -= step
        found[index] = (np.sum(fn(ahead)) - np.sum(fn(behind))) / (2 * step)
    return found


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)
