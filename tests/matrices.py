"""What the tests of Jacobians and Hessians share: differences of every element, and runs at every optimisation level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime as ort
from forward_mode import wide, wide_run
from onnx import numpy_helper, parser

import gradgen

Arrays = dict[str, np.ndarray]
Function = Callable[[Mapping[str, np.ndarray]], Arrays]
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
STEP = 1e-3


def model(text: str, **initializers: np.ndarray) -> onnx.ModelProto:
    """A model of opset 21 from the text of its graph."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in initializers.items())
    return proto


def drawn(*shape: int, seed: int = 0, low: float = -1.0) -> np.ndarray:
    """Random float32 numbers up to 1."""
    return np.random.default_rng([seed, *shape]).uniform(low, 1, shape).astype(np.float32)


def differences(run: Function, feeds: Mapping[str, np.ndarray], y: str, x: str) -> np.ndarray:
    """The Jacobian of output y with respect to input x, of the shape of y followed by that of x.

    Central differences in float64, with one step of Richardson's extrapolation.
    """
    base = np.asarray(feeds[x], np.float64)
    shape = np.shape(run(feeds)[y])

    def moved(index: tuple[int, ...], by: float) -> np.ndarray:
        point = base.copy()
        point[index] += by
        return run({**feeds, x: point})[y]

    found = np.zeros((*shape, *base.shape))
    for index in np.ndindex(base.shape):
        coarse, fine = ((moved(index, h) - moved(index, -h)) / (2 * h) for h in (STEP, STEP / 2))
        found[(..., *index)] = (4 * fine - coarse) / 3
    return found


def run_all(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """A model's outputs in float64; onnxruntime gives the same, nearly, at every optimisation level."""
    onnx.checker.check_model(proto, full_check=True)
    names = [o.name for o in proto.graph.output]
    feeds = {i.name: np.asarray(feeds[i.name]) for i in proto.graph.input}
    want = wide_run(proto)(wide(feeds))
    for level in LEVELS:
        for name, value in zip(names, at_level(proto, feeds, level), strict=True):
            scale = np.abs(want[name]).max(initial=1e-3)
            np.testing.assert_allclose(value, want[name], rtol=1e-3, atol=1e-4 * scale, err_msg=f"{name}, {level}")
            check_shape(proto, name, value)
    return want


def at_level(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], level: str = "ORT_ENABLE_ALL") -> list:
    """A model's outputs on onnxruntime."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})


def check_shape(proto: onnx.ModelProto, name: str, value: np.ndarray) -> None:
    """An array has the shape that its model declares."""
    (info,) = [o for o in proto.graph.output if o.name == name]
    if not info.type.tensor_type.HasField("shape"):
        return
    dims = info.type.tensor_type.shape.dim
    assert len(dims) == value.ndim, name
    assert all(d.dim_value == s for d, s in zip(dims, value.shape, strict=True) if d.HasField("dim_value")), name


def check_jacobian(
    proto: onnx.ModelProto, feeds: Arrays, wrt: Sequence[str], of: Sequence[str], tolerance: float = 1e-7, **options
) -> onnx.ModelProto:
    """Every Jacobian against differences; returns the model."""
    built = gradgen.jacobian(proto, wrt=wrt, of=of, **options)
    assert [o.name for o in built.graph.output][-len(of) * len(wrt) :] == [f"jacobian_{y}_{x}" for y in of for x in wrt]
    found, run = run_all(built, feeds), wide_run(proto)
    for y in of:
        for x in wrt:
            near(found[f"jacobian_{y}_{x}"], differences(run, wide(feeds), y, x), tolerance)
    return built


def check_hessian(
    proto: onnx.ModelProto, feeds: Arrays, wrt: Sequence[str], tolerance: float = 1e-6, **options
) -> onnx.ModelProto:
    """Every block of a Hessian against differences of the gradient; returns the model."""
    built = gradgen.hessian(proto, wrt=wrt, **options)
    assert [o.name for o in built.graph.output][-(len(wrt) ** 2) :] == [f"hessian_{x}_{z}" for x in wrt for z in wrt]
    found = run_all(built, feeds)
    gradient = wide_run(gradgen.grad(proto, wrt=wrt, **options))
    for x in wrt:
        for z in wrt:
            want = differences(gradient, wide(feeds), f"grad_{x}", z)
            near(found[f"hessian_{x}_{z}"], want, tolerance)
    assert any(np.abs(found[f"hessian_{x}_{z}"]).max() > 1e-3 for x in wrt for z in wrt), "it shows nothing"
    return built


def near(found: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    """Equal to within a part of the largest element."""
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=0, atol=tolerance * np.abs(want).max(initial=1e-2))


def opened(proto: onnx.ModelProto, names: Mapping[str, Sequence[int | str]]) -> onnx.ModelProto:
    """A model whose inputs have named dimensions in place of sizes; the sizes of other values are forgotten."""
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    del result.graph.value_info[:]
    for info in result.graph.input:
        for dim, name in zip(info.type.tensor_type.shape.dim, names.get(info.name, ()), strict=False):
            if isinstance(name, str):
                dim.dim_param = name
    for info in result.graph.output:
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
    return result


def body_of(proto: onnx.ModelProto) -> onnx.GraphProto:
    """The body of a model's only Scan."""
    (scan,) = [n for n in proto.graph.node if n.op_type == "Scan"]
    return next(a.g for a in scan.attribute if a.name == "body")
