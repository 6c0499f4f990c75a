"""Gradients of activations where generated samples do not reach: ties, breaks, far out, float64 constants, float16."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import gradgen
from gradgen.evaluate import Evaluator

TYPES = {np.float16: TensorProto.FLOAT16, np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}
LATER = {"Swish": 24}
INF = math.inf


def node_model(op_type, feeds, dtype, constants=(), **attributes):
    """A model of one node whose inputs are `feeds`; those named in `constants` are initializers, None is absent."""
    schema = onnx.defs.get_schema(op_type)
    given = [feeds.get(f.name) is not None for f in schema.inputs]
    names = [f.name if g else "" for f, g in zip(schema.inputs, given, strict=True)]
    names = names[: max(i for i, g in enumerate(given) if g) + 1]
    arrays = {n: np.asarray(feeds[n], dtype) for n in names if n}
    output = schema.outputs[0].name
    node = helper.make_node(op_type, names, [output], **attributes)
    inputs = [helper.make_tensor_value_info(n, TYPES[dtype], a.shape) for n, a in arrays.items() if n not in constants]
    fixed = [onnx.numpy_helper.from_array(arrays[n], n) for n in arrays if n in constants]
    shape = np.broadcast_shapes(arrays[names[0]].shape)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info(output, TYPES[dtype], shape)], fixed)
    opset = helper.make_opsetid("", LATER.get(op_type, 21))
    return helper.make_model(graph, opset_imports=[opset], ir_version=10), arrays, output


def gradients(op_type, feeds, dtype=np.float32, cotangent=None, constants=(), **attributes):
    """The gradients by input, for a cotangent of ones unless one is given; float64 by whichever engine has it."""
    model, arrays, output = node_model(op_type, feeds, dtype, constants, **attributes)
    wrt = [n for n in arrays if n not in constants]
    derived = gradgen.vjp(model, wrt=wrt, of=[output])
    assert "Where" not in {n.op_type for n in derived.graph.node}
    shape = next(iter(arrays.values())).shape
    ct = np.ones(shape, dtype) if cotangent is None else np.asarray(cotangent, dtype)
    run = Evaluator(derived, strict=dtype is not np.float64)
    results = run({n: arrays[n] for n in wrt} | {f"grad_{output}": ct})
    for name in wrt:
        assert results[f"grad_{name}"].dtype == dtype and results[f"grad_{name}"].shape == arrays[name].shape
    return {n: results[f"grad_{n}"] for n in wrt}


def slopes(op_type, x, dtype=np.float32, **attributes):
    """The derivative at each element of x."""
    name = onnx.defs.get_schema(op_type).inputs[0].name
    return gradients(op_type, {name: x}, dtype, **attributes)[name]


@pytest.mark.parametrize(
    ("op_type", "x", "want", "attributes"),
    [
        ("Relu", [0.0, -0.0], [0, 0], {}),
        ("LeakyRelu", [0.0, -0.0], [0.25, 0.25], {"alpha": 0.25}),
        ("LeakyRelu", [0.0, -1.0, 1.0], [1.5, 1.5, 1], {"alpha": 1.5}),
        ("LeakyRelu", [0.0, -1.0, 1.0], [-0.5, -0.5, 1], {"alpha": -0.5}),
        ("LeakyRelu", [0.0, -1.0, 1.0], [0, 0, 1], {"alpha": 0.0}),
        ("Elu", [0.0], [1], {}),
        ("Elu", [0.0], [0.25], {"alpha": 0.25}),
        ("Selu", [0.0], [6], {"alpha": 3.0, "gamma": 2.0}),
        ("Celu", [0.0], [1], {"alpha": 0.5}),
        ("ThresholdedRelu", [1.0, 1.001, 0.999], [0, 1, 0], {}),
        ("Shrink", [0.5, -0.5, 0.0, 0.75, -0.75], [0, 0, 0, 1, 1], {"bias": 0.25}),
        ("HardSigmoid", [-2.0, 2.0, 0.0], [0, 0, 0.25], {"alpha": 0.25}),
        ("HardSwish", [-3.0, 3.0, 0.0, -2.0, 2.0, -4.0, 4.0], [0, 1, 0.5, -1 / 6, 7 / 6, 0, 1], {}),
        ("Softsign", [0.0], [1], {}),
    ],
)
def test_at_ties_and_breaks(op_type, x, want, attributes):
    np.testing.assert_allclose(slopes(op_type, x, **attributes), np.asarray(want, np.float32), rtol=1e-6)


SELU_GAMMA, SELU_ALPHA = float(np.float32(1.05070102214813232421875)), float(np.float32(1.67326319217681884765625))


@pytest.mark.parametrize("x", [100.0, 1e4, 1e30])
@pytest.mark.parametrize(
    ("op_type", "low", "high", "attributes"),
    [
        ("Relu", 0, 1, {}),
        ("Sigmoid", 0, 0, {}),
        ("Softplus", 0, 1, {}),
        ("Mish", 0, 1, {}),
        ("Swish", 0, 1, {}),
        ("Swish", 0, 1, {"alpha": 30.0}),
        ("Gelu", 0, 1, {}),
        ("Gelu", 0, 1, {"approximate": "tanh"}),
        ("Elu", 0, 1, {}),
        ("Elu", 0, 1, {"alpha": 0.5}),
        ("Elu", 0, 1, {"alpha": 1e8}),
        ("Celu", 0, 1, {"alpha": 0.5}),
        ("Selu", 0, SELU_GAMMA, {}),
        ("HardSigmoid", 0, 0, {}),
        ("HardSwish", 0, 1, {}),
        ("Softsign", None, None, {}),
    ],
)
def test_far_out_nothing_overflows(op_type, low, high, attributes, x):
    got = slopes(op_type, [-x, x], **attributes)
    if low is None:
        low = high = 1 / (1 + x) ** 2
    np.testing.assert_allclose(got, [low, high], rtol=1e-6, atol=1e-30)


def test_infinite_inputs_of_rectifiers():
    for op_type in ("Relu", "Elu", "LeakyRelu", "HardSwish", "Celu", "Softplus", "HardSigmoid"):
        assert np.isfinite(slopes(op_type, [-INF, INF])).all(), op_type


def test_elu_keeps_its_relative_precision_far_below_zero():
    np.testing.assert_allclose(slopes("Elu", [-30.0]), [math.exp(-30)], rtol=1e-5)
    np.testing.assert_allclose(slopes("Selu", [-30.0]), [SELU_GAMMA * SELU_ALPHA * math.exp(-30)], rtol=1e-5)


def _phi(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _tanh_gelu(x):
    x = max(-12.0, min(x, 12.0))  # for cosh: beyond it is 0 or 1
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * (1 + math.tanh(u)) + 0.5 * x / math.cosh(u) ** 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)


def _mish(x):
    soft = math.log1p(math.exp(x))
    return math.tanh(soft) + x / math.cosh(soft) ** 2 / (1 + math.exp(-x))


FIFTH = float(np.float32(0.2))
FORMULAS = [
    ("Gelu", {}, lambda x: 0.5 * math.erfc(-x / math.sqrt(2)) + x * _phi(x)),
    ("Gelu", {"approximate": "tanh"}, _tanh_gelu),
    ("Mish", {}, _mish),
    ("Sigmoid", {}, lambda x: 1 / (2 + math.exp(x) + math.exp(-x))),
    ("Softplus", {}, lambda x: 1 / (1 + math.exp(-x))),
    ("Softsign", {}, lambda x: 1 / (1 + abs(x)) ** 2),
    ("LeakyRelu", {"alpha": 0.2}, lambda x: 1 if x > 0 else FIFTH),
    ("Elu", {"alpha": 0.2}, lambda x: 1 if x > 0 else FIFTH * math.exp(x)),
    ("Selu", {}, lambda x: SELU_GAMMA * (1 if x > 0 else SELU_ALPHA * math.exp(x))),
    ("HardSigmoid", {}, lambda x: FIFTH if abs(x) < 2.5 else 0),
    ("HardSwish", {}, lambda x: 0 if x <= -3 else 1 if x >= 3 else x / 3 + 0.5),
    ("Swish", {"alpha": 0.2}, lambda x: _swish(x, FIFTH)),
]


def _swish(x, alpha):
    s = 1 / (1 + math.exp(-alpha * x))
    return s + alpha * x * s * (1 - s)


@pytest.mark.parametrize(("op_type", "attributes", "formula"), FORMULAS)
def test_float64_has_the_constants_of_float64(op_type, attributes, formula):
    x = np.array([-6.3, -3.1, -2.2, -1.0, -0.4, -1e-3, 1e-3, 0.3, 1.1, 2.3, 3.2, 5.9])
    got = slopes(op_type, x, np.float64, **attributes)
    np.testing.assert_allclose(got, [formula(v) for v in x], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("op_type", "attributes", "formula"), FORMULAS)
def test_float16_on_onnxruntime(op_type, attributes, formula):
    x = np.array([-300.0, -6.3, -2.2, -0.4, 0.3, 2.3, 5.9, 300.0], np.float16)
    got = slopes(op_type, x, np.float16, **attributes)
    want = [formula(float(v)) for v in x]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-2, atol=4e-3)


def test_gelu_evaluates_its_function_once_for_both_passes():
    for kind, count, saved in ((np.float32, 2**18, True), (np.float32, 2**18 + 1, False), (np.float64, 9, False)):
        x = onnx.helper.make_tensor_value_info("x", onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)), [count])
        y = onnx.helper.make_tensor_value_info("y", x.type.tensor_type.elem_type, [count])
        graph = onnx.helper.make_graph([onnx.helper.make_node("Gelu", ["x"], ["y"])], "gelu", [x], [y])
        model = gradgen.vjp(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]), of=["y"])
        ops = [n.op_type for n in model.graph.node]
        assert ops.count("Erf") == 1 and ("Gelu" not in ops) is saved


def test_prelu_a_slope_per_channel():
    x = np.array([[[-1.0, 0.0], [2.0, -3.0]]])
    ct = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    got = gradients("PRelu", {"X": x, "slope": [[0.5], [1e-9]]}, cotangent=ct)
    np.testing.assert_allclose(got["X"], np.array([[[0.5, 1.0], [3.0, 4e-9]]]), rtol=1e-6)
    np.testing.assert_allclose(got["slope"], np.array([[-1.0], [-12.0]]))
    assert gradients("PRelu", {"X": [INF, -1.0], "slope": [0.5]})["slope"] == [-1.0]


@pytest.mark.parametrize("constants", [(), ("min", "max")])
def test_clip_at_its_bounds(constants):
    x, ct = [-1.0, -0.5, 0.0, 0.5, 1.0, INF, -INF], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
    got = gradients("Clip", {"input": x, "min": -0.5, "max": 0.5}, cotangent=ct, constants=constants)
    np.testing.assert_array_equal(got["input"], [0, 2, 4, 8, 0, 0, 0])
    if not constants:
        assert got["min"] == 1 + 64 and got["max"] == 16 + 32


@pytest.mark.parametrize("constants", [(), ("min", "max")])
def test_clip_with_crossed_bounds_is_the_maximum(constants):
    x, ct = [-1.0, -0.5, 0.0, 0.5, 1.0], [1.0, 2.0, 4.0, 8.0, 16.0]
    got = gradients("Clip", {"input": x, "min": 0.5, "max": -0.5}, cotangent=ct, constants=constants)
    np.testing.assert_array_equal(got["input"], [0, 0, 0, 0, 0])
    if not constants:
        assert got["min"] == 0 and got["max"] == 31


def test_clip_with_one_bound_or_none():
    x, ct = [-1.0, 0.5, 1.0], [1.0, 2.0, 4.0]
    low = gradients("Clip", {"input": x, "min": 0.5}, cotangent=ct)
    high = gradients("Clip", {"input": x, "max": 0.5}, cotangent=ct)
    np.testing.assert_array_equal(low["input"], [0, 2, 4])
    np.testing.assert_array_equal(high["input"], [1, 2, 0])
    assert low["min"] == 1 and high["max"] == 4
    np.testing.assert_array_equal(gradients("Clip", {"input": x}, cotangent=ct)["input"], ct)


def test_clip_with_equal_bounds():
    got = gradients("Clip", {"input": [0.0, 1.0, 2.0], "min": 1.0, "max": 1.0}, cotangent=[1.0, 2.0, 4.0])
    np.testing.assert_array_equal(got["input"], [0, 2, 0])
    assert got["min"] == 1 and got["max"] == 4


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_softmaxes_of_large_inputs_by_the_jacobian(op_type, axis):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 3, 4)) * 3 + rng.choice([0.0, 90.0], (2, 3, 4))
    ct = rng.standard_normal((2, 3, 4))
    got = gradients(op_type, {"input": x}, cotangent=ct, axis=axis)["input"]
    rows, out = np.moveaxis(x.astype(np.float32).astype(np.float64), axis, -1), np.moveaxis(ct, axis, -1)
    want = np.empty_like(rows)
    for place in np.ndindex(rows.shape[:-1]):
        p = np.exp(rows[place] - rows[place].max())
        p /= p.sum()
        eye = np.eye(len(p))
        jacobian = p[:, None] * (eye - p) if op_type == "Softmax" else eye - p
        want[place] = out[place] @ jacobian
    np.testing.assert_allclose(got, np.moveaxis(want, -1, axis), rtol=1e-4, atol=1e-5)


def test_softmaxes_beside_minus_infinity():
    x, ct = [[0.0, -INF, 0.0]], [[1.0, 5.0, 3.0]]
    np.testing.assert_allclose(gradients("Softmax", {"input": x}, cotangent=ct)["input"], [[-0.5, 0, 0.5]])
    ct = [[1.0, 0.0, 3.0]]
    np.testing.assert_allclose(gradients("LogSoftmax", {"input": x}, cotangent=ct)["input"], [[-1, 0, 1]])


@pytest.mark.parametrize(
    ("op_type", "attributes", "most"),
    [
        ("Relu", {}, 3),
        ("LeakyRelu", {}, 4),
        ("Elu", {}, 3),
        ("Celu", {}, 3),
        ("Softplus", {}, 2),
        ("Sigmoid", {}, 3),
        ("ThresholdedRelu", {}, 3),
        ("Softmax", {}, 4),
        ("LogSoftmax", {}, 4),
        ("Clip", {}, 3),
    ],
)
def test_few_nodes(op_type, attributes, most):
    name = onnx.defs.get_schema(op_type).inputs[0].name
    feeds, constants = {name: np.zeros((2, 3))}, ()
    if op_type == "Clip":
        feeds, constants = {**feeds, "min": 0.0, "max": 6.0}, ("min", "max")
    model, _, output = node_model(op_type, feeds, np.float32, constants, **attributes)
    derived = gradgen.vjp(model, wrt=[name], of=[output])
    assert len(derived.graph.node) <= 1 + most, [n.op_type for n in derived.graph.node]


def masked_rows(op_type, ending):
    """A softmax whose first row is -inf alone, which is NaN and which the nodes of `ending` leave out."""
    text = f"""g (float[3, 4] x) => (float[m, n] y) {{ a = {op_type}(x)
        {ending} }}"""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


@pytest.mark.parametrize(
    "ending",
    [
        "zero = Constant<value_float=0.0>()\n n = IsNaN(a)\n y = Where(n, zero, a)",
        "d = Cast<to=11>(a)\n e = Cast<to=1>(d)\n zero = Constant<value_float=0.0>()\n n = IsNaN(e)\n y = Where(n, zero, e)",
        "i = Constant<value_ints=[1, 2]>()\n y = Gather(a, i)",
        "t = Transpose(a)\n s = Constant<value_ints=[1]>()\n e = Constant<value_ints=[3]>()\n y = Slice(t, s, e, s)",
        "i = Constant<value_ints=[1, 2]>()\n k = Constant<value_ints=[2, 1]>()\n j = Reshape(i, k)\n y = GatherND(a, j)",
    ],
    ids=["where", "casts", "gather", "slice", "gathernd"],
)
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_a_row_of_minus_infinity_that_is_left_out(op_type, ending):
    model = masked_rows(op_type, ending)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    x[0] = -np.inf
    primal = Evaluator(model)({"x": x})["y"]
    assert np.isfinite(primal).all()
    ct = np.random.default_rng(1).standard_normal(primal.shape).astype(np.float32)
    found = Evaluator(gradgen.vjp(model))({"x": x, "grad_y": ct})["grad_x"]
    assert (found[0] == 0).all()
    # The other rows are those of the model in which the first row holds anything else, and is left out all the same.
    x[0] = 0
    ct_of = ct * (primal != 0) if "Where" in ending else ct
    other = Evaluator(gradgen.vjp(model))({"x": x, "grad_y": ct_of})["grad_x"]
    np.testing.assert_allclose(found[1:], other[1:], rtol=1e-6)
    assert np.abs(found[1:]).min() > 0


@pytest.mark.parametrize("size", [6, 65_535, 65_536])
@pytest.mark.parametrize("transform", [gradgen.vjp, gradgen.jvp])
def test_relu_of_nan_touches_no_other_element(transform, size):
    """The gradient there is 0, and so is a tangent of 65,536 elements or more; a smaller one is NaN (docs/gradients.md)."""
    x = np.ones(size)
    x[:6] = [math.nan, 1, -1, 0, INF, -INF]
    proto, *_ = node_model("Relu", {"X": x}, np.float32)
    result = transform(proto)
    direction = next(i.name for i in result.graph.input if i.name != "X")
    found = Evaluator(result, strict=True)({"X": x.astype(np.float32), direction: np.full(size, 2, np.float32)})
    derivative = found[result.graph.output[-1].name]
    np.testing.assert_array_equal(derivative[1:6], [2, 0, 0, 2, 0])
    np.testing.assert_equal(float(derivative[0]), math.nan if transform is gradgen.jvp and size < 65_536 else 0.0)
