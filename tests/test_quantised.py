"""Quantised models: zero derivatives that are reported, and straight-through gradients against formulas in numpy."""

from __future__ import annotations

import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import gradgen
from gradgen.cli import cli
from gradgen.errors import GradientWarning
from gradgen.evaluate import Evaluator

DATA = Path(__file__).parent / "data"
KINDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "int4": (-8, 7), "uint4": (0, 15)}
RNG = np.random.default_rng(0)


def model_of(nodes, inputs, outputs, constants=(), opset=21):
    """A model; inputs and outputs are (name, type, shape), constants are tensors."""
    infos = [[helper.make_tensor_value_info(*v) for v in vs] for vs in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *infos, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def tensor(name, values, kind="float32"):
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, kind, kind)))
    array = np.asarray(values)
    return helper.make_tensor(name, dtype, array.shape, array.reshape(-1).tolist())


def fake_quantised(shape, scale, zero, kind, **attributes):
    """y = dequantise(quantise(x)), over x and scale."""
    stored = [tensor("zero", np.broadcast_to(zero, np.shape(scale)), kind)] if zero is not None else []
    names = ["scale", *(["zero"] if stored else [])]
    if not stored:
        attributes_q = {
            **attributes,
            "output_dtype": helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, kind, kind))),
        }
    else:
        attributes_q = attributes
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["q"], **attributes_q),
        helper.make_node("DequantizeLinear", ["q", *names], ["y"], **attributes),
    ]
    inputs = [("x", 1, shape), ("scale", 1, np.shape(scale))]
    return model_of(nodes, inputs, [("y", 1, shape)], stored)


def through(model, feeds, **options):
    """The results of the straight-through gradient model, whose primal outputs are the model's own, bit for bit."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", GradientWarning)
        derived = gradgen.vjp(model, straight_through=True, **options)
    onnx.checker.check_model(derived, full_check=True)
    assert {n.domain for n in derived.graph.node} == {""}
    primal = Evaluator(model, strict=True)(feeds)
    cotangents = {
        i.name: RNG.uniform(0.5, 1.5, [d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in derived.graph.input
        if i.name not in feeds
    }
    results = Evaluator(derived, strict=True)({**feeds, **cotangents})
    for name, value in primal.items():
        np.testing.assert_array_equal(results[name], value, err_msg=name)
    return {**cotangents, **results}


def learned_step_size(x, scale, zero, low, high):
    """The mask of the range, and the derivative of every element to its scale."""
    rounded = np.rint(x / scale) + zero
    inside = (rounded >= low) & (rounded <= high)
    return inside, np.where(inside, rounded - zero - x / scale, np.clip(rounded, low, high) - zero)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zero", [None, 3])
def test_one_scale(kind, zero):
    low, high = KINDS[kind]
    scale = np.float32(4.0 / (high - low))
    x = RNG.uniform(-3, 5, (6, 7)).astype(np.float32)
    got = through(fake_quantised((6, 7), scale, zero, kind), {"x": x, "scale": scale})
    inside, step = learned_step_size(x, scale, zero or 0, low, high)
    assert 0.1 < inside.mean() < 0.9
    np.testing.assert_allclose(got["grad_x"], got["grad_y"] * inside, rtol=1e-5)
    np.testing.assert_allclose(
        got["grad_scale"], np.sum(got["grad_y"] * step), rtol=1e-3, atol=1e-3 * (high - low) * 0.01
    )


@pytest.mark.parametrize("axis", [0, -1])
def test_a_scale_for_each_index_of_an_axis(axis):
    shape = (3, 4, 3)
    scale = np.array([0.01, 0.02, 0.005], np.float32)
    x = RNG.uniform(-2, 2, shape).astype(np.float32)
    got = through(fake_quantised(shape, scale, 5, "int8", axis=axis), {"x": x, "scale": scale})
    wide = np.expand_dims(scale, (1, 2) if axis == 0 else (0, 1))
    inside, step = learned_step_size(x, wide, 5, -128, 127)
    np.testing.assert_allclose(got["grad_x"], got["grad_y"] * inside, rtol=1e-5)
    over = (1, 2) if axis == 0 else (0, 1)
    np.testing.assert_allclose(got["grad_scale"], (got["grad_y"] * step).sum(over), rtol=1e-4, atol=1e-3)


def test_a_scale_for_each_block():
    scale = RNG.uniform(0.005, 0.02, (2, 3)).astype(np.float32)
    x = RNG.uniform(-2, 2, (2, 5)).astype(np.float32)
    model = fake_quantised((2, 5), scale, 5, "int8", axis=1, block_size=2)
    got = through(model, {"x": x, "scale": scale})
    inside, step = learned_step_size(x, np.repeat(scale, 2, axis=1)[:, :5], 5, -128, 127)
    np.testing.assert_allclose(got["grad_x"], got["grad_y"] * inside, rtol=1e-5)
    each = np.pad(got["grad_y"] * step, ((0, 0), (0, 1))).reshape(2, 3, 2).sum(2)
    np.testing.assert_allclose(got["grad_scale"], each, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bit_floats(kind):
    bound = float(ml_dtypes.finfo(getattr(ml_dtypes, kind)).max)
    scale = np.float32(2.0 / bound)
    x = RNG.uniform(-3, 3, (6, 7)).astype(np.float32)
    got = through(fake_quantised((6, 7), scale, 0, kind), {"x": x, "scale": scale})
    inside = np.abs(x / scale) <= bound
    np.testing.assert_allclose(got["grad_x"], got["grad_y"] * inside, rtol=1e-5)
    step = got["y"] / scale - np.where(inside, x / scale, 0)
    np.testing.assert_allclose(got["grad_scale"], np.sum(got["grad_y"] * step), rtol=1e-3, atol=bound * 1e-3)


def test_a_cast_to_an_eight_bit_float():
    nodes = [
        helper.make_node("Cast", ["x"], ["e"], to=TensorProto.FLOAT8E4M3FN),
        helper.make_node("Cast", ["e"], ["y"], to=TensorProto.FLOAT),
    ]
    model = model_of(nodes, [("x", 1, (4,))], [("y", 1, (4,))])
    x = np.array([-600, -3.3, 0.7, 447], np.float32)
    got = through(model, {"x": x})
    np.testing.assert_array_equal(got["grad_x"], got["grad_y"] * [0, 1, 1, 1])
    with pytest.warns(GradientWarning, match="'e' = Cast stops the gradient of 'x'; straight_through=True"):
        gradgen.vjp(model)


def test_dimensions_that_are_unknown():
    scale, x = np.float32(0.05), RNG.uniform(-8, 8, (5, 3)).astype(np.float32)
    model = fake_quantised(("n", "m"), scale, 3, "int8")
    derived = gradgen.vjp(model, straight_through=True)
    ct = np.ones((5, 3), np.float32)
    got = Evaluator(derived, strict=True)({"x": x, "scale": scale, "grad_y": ct})
    inside, step = learned_step_size(x, scale, 3, -128, 127)
    np.testing.assert_allclose(got["grad_x"], inside, rtol=1e-5)
    np.testing.assert_allclose(got["grad_scale"], step.sum(), rtol=1e-4)


def test_the_default_is_zero_and_reported():
    model = fake_quantised((3,), np.float32(0.1), 3, "int8")
    with pytest.warns(GradientWarning) as caught:
        derived = gradgen.vjp(model)
    (text,) = {str(w.message) for w in caught}
    assert text == (
        "'q' = QuantizeLinear stops the gradient of 'x', 'scale'; straight_through=True passes it through quantisation"
    )
    got = Evaluator(derived, strict=True)(
        {"x": np.ones(3, np.float32), "scale": np.float32(0.1), "grad_y": np.ones(3, np.float32)}
    )
    np.testing.assert_array_equal(got["grad_x"], np.zeros(3))
    # y = (q − 3)·scale: the scale that dequantises has a derivative of its own, q = 13.
    np.testing.assert_allclose(got["grad_scale"], 30)


def test_quantised_values_may_be_moved():
    names = ["scale", "zero"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["q"]),
        helper.make_node("MaxPool", ["q"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Transpose", ["p"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["t", "flat"], ["r"]),
        helper.make_node("Concat", ["r", "more"], ["c"], axis=0),
        helper.make_node("DequantizeLinear", ["c", *names], ["y"]),
    ]
    constants = [tensor("scale", np.float32(0.1)), tensor("zero", 0, "uint8"), tensor("flat", [-1], "int64"),
                 tensor("more", [1, 2], "uint8")]  # fmt: skip
    model = model_of(nodes, [("x", 1, (1, 2, 4, 4))], [("y", 1, (10,))], constants)
    x = RNG.permutation(32).reshape(1, 2, 4, 4).astype(np.float32)  # 26 and above saturate at 25.5
    got = through(model, {"x": x})
    want = np.zeros((2, 4, 4), np.float32)
    ct = got["grad_y"][:8].reshape(2, 2, 2)  # rows, columns, channels
    for c in range(2):
        for i in range(2):
            for j in range(2):
                window = np.minimum(x[0, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2], 25.5)
                a, b = np.unravel_index(window.argmax(), (2, 2))
                kept = x[0, c, 2 * i + a, 2 * j + b] <= 25.5
                want[c, 2 * i + a, 2 * j + b] = ct[i, j, c] * kept
    np.testing.assert_allclose(got["grad_x"][0], want, rtol=1e-5)


def test_a_quantised_product():
    scales = {"sx": 0.05, "sw": 0.03, "sy": 0.02}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["qx"]),
        helper.make_node("QLinearMatMul", ["qx", "sx", "zx", "w", "sw", "zw", "sy", "zy"], ["qy"]),
        helper.make_node("DequantizeLinear", ["qy", "sy", "zy"], ["y"]),
    ]
    w = RNG.integers(-100, 100, (4, 3))
    zeros = {"zx": (5, "uint8"), "zw": (2, "int8"), "zy": (100, "uint8")}
    constants = [tensor(n, np.float32(v)) for n, v in scales.items()]
    constants += [tensor("w", w, "int8"), *(tensor(n, *v) for n, v in zeros.items())]
    model = model_of(nodes, [("x", 1, (5, 4))], [("y", 1, (5, 3))], constants)
    x = RNG.uniform(-1, 2, (5, 4)).astype(np.float32)
    got = through(model, {"x": x})
    inside, _ = learned_step_size(x, np.float32(0.05), 5, 0, 255)
    dx = np.clip(np.rint(x / np.float32(0.05)) + 5, 0, 255) - 5
    product = (dx * 0.05) @ ((w - 2) * 0.03)
    out_inside, _ = learned_step_size(product, 0.02, 100, 0, 255)
    assert 0.2 < out_inside.mean() < 1
    want = (got["grad_y"] * out_inside) @ ((w - 2) * 0.03).T * inside
    np.testing.assert_allclose(got["grad_x"], want, rtol=1e-4, atol=1e-5)


def test_a_quantised_convolution():
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["qx"]),
        helper.make_node(
            "QLinearConv", ["qx", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"], ["qy"], pads=[1, 1, 1, 1]
        ),
        helper.make_node("DequantizeLinear", ["qy", "sy", "zy"], ["y"]),
    ]
    w = RNG.integers(-100, 100, (2, 1, 3, 3))
    sw = np.array([0.02, 0.03], np.float32)
    constants = [
        tensor("sx", np.float32(0.05)), tensor("sw", sw), tensor("sy", np.float32(0.5)), tensor("zx", 5, "uint8"),
        tensor("w", w, "int8"), tensor("zw", [0, 0], "int8"), tensor("zy", 128, "uint8"),
        tensor("b", [50, -60], "int32"),
    ]  # fmt: skip
    model = model_of(nodes, [("x", 1, (1, 1, 4, 4))], [("y", 1, (1, 2, 4, 4))], constants)
    x = RNG.uniform(-1, 2, (1, 1, 4, 4)).astype(np.float32)
    got = through(model, {"x": x})
    inside, _ = learned_step_size(x, np.float32(0.05), 5, 0, 255)
    weights = w * sw.reshape(2, 1, 1, 1)
    want = np.zeros((6, 6))
    for c in range(2):
        for i in range(4):
            for j in range(4):  # nothing saturates at the output: |y| < 64
                want[i : i + 3, j : j + 3] += got["grad_y"][0, c, i, j] * weights[c, 0]
    assert np.abs(got["y"]).max() < 63
    np.testing.assert_allclose(got["grad_x"][0, 0], want[1:5, 1:5] * inside[0, 0], rtol=1e-4, atol=1e-4)


def test_dynamic_quantisation():
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z", "zw"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Mul", ["s", "sw"], ["m"]),
        helper.make_node("Mul", ["f", "m"], ["y"]),
    ]
    w = RNG.integers(-100, 100, (4, 3))
    constants = [tensor("w", w, "int8"), tensor("zw", 2, "int8"), tensor("sw", np.float32(0.03))]
    model = model_of(nodes, [("x", 1, (5, 4))], [("y", 1, (5, 3))], constants)
    x = RNG.uniform(-1, 2, (5, 4)).astype(np.float32)
    got = through(model, {"x": x})
    scale = (x.max() - x.min()) / 255
    zero = np.rint(-x.min() / scale)
    inside, step = learned_step_size(x, scale, zero, 0, 255)
    back = got["grad_y"] @ ((w - 2) * 0.03).T
    want = back * inside
    ds = np.sum(back * step) / 255
    want[np.unravel_index(x.argmax(), x.shape)] += ds
    want[np.unravel_index(x.argmin(), x.shape)] -= ds
    np.testing.assert_allclose(got["grad_x"], want, rtol=1e-3, atol=1e-3)


def test_the_value_in_the_middle_may_be_differentiated():
    model = fake_quantised((3,), np.float32(0.1), 3, "int8")
    model.graph.node.append(helper.make_node("Mul", ["y", "y"], ["z"]))
    model.graph.output.append(helper.make_tensor_value_info("z", 1, (3,)))
    feeds = {"x": np.array([0.5, 2.0, 90.0], np.float32), "scale": np.float32(0.1)}
    got = through(model, feeds, wrt=["x", "y"], of=["z"])
    np.testing.assert_allclose(got["grad_y"], 2 * got["y"] * got["grad_z"], rtol=1e-6)
    np.testing.assert_allclose(got["grad_x"], got["grad_y"] * [1, 1, 0], rtol=1e-5)


def test_a_cast_to_integers_stops_and_is_reported():
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    model = model_of(nodes, [("x", 1, (3,))], [("y", 1, (3,))])
    for straight in (False, True):
        with pytest.warns(GradientWarning, match="'i' = Cast stops the gradient of 'x'"):
            derived = gradgen.vjp(model, straight_through=straight)
        got = Evaluator(derived, strict=True)({"x": np.ones(3, np.float32), "grad_y": np.full(3, 2, np.float32)})
        np.testing.assert_array_equal(got["grad_x"], [2, 2, 2])


class Network:
    """A network, a point, and its gradients there: its own, and those of its quantised forms."""

    def __init__(self, name, folder):
        self.path, self.out = DATA / f"{name}.onnx", folder / "quantised.onnx"
        self.model = onnx.load(self.path)
        rng = np.random.default_rng(0)
        kinds = {i.name: i.type.tensor_type for i in self.model.graph.input}
        self.wrt = [n for n, t in kinds.items() if t.elem_type == TensorProto.FLOAT]
        self.feeds = {
            n: rng.uniform(-1, 1, [d.dim_value for d in t.shape.dim]).astype(
                helper.tensor_dtype_to_np_dtype(t.elem_type)
            )
            for n, t in kinds.items()
        }

    def get_next(self):
        """A point to calibrate at, which onnxruntime asks a reader for: of a wider range, so that little saturates."""
        self.left -= 1
        rng = np.random.default_rng(abs(self.left))
        wider = {
            n: (rng.uniform(-2, 2, v.shape).astype(v.dtype) if v.dtype == np.float32 else v)
            for n, v in self.feeds.items()
        }
        return wider if self.left >= 0 else None

    def quantised(self, scheme, **options):
        quantization = pytest.importorskip("onnxruntime.quantization")
        if scheme == "dynamic":
            quantization.quantize_dynamic(self.path, self.out)
        else:
            self.left = 40
            kinds = {k: quantization.QuantType[v] for k, v in options.items()}
            quantization.quantize_static(
                self.path, self.out, self, quant_format=quantization.QuantFormat[scheme], **kinds
            )
        return onnx.load(self.out)

    def gradient(self, model, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("error", GradientWarning)
            derived = gradgen.vjp(model, wrt=self.wrt, straight_through=True, **options)
        seeds = {
            i.name: np.ones([d.dim_value for d in i.type.tensor_type.shape.dim], np.float32)
            for i in derived.graph.input
            if i.name.startswith("grad_")
        }
        got = Evaluator(derived, strict=True)({**self.feeds, **seeds})
        return np.concatenate([got[f"grad_{n}"].reshape(-1) for n in self.wrt]).astype(np.float64)


def cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


@pytest.mark.parametrize("name", ["mlp_static", "cnn_static", "transformer_static"])
def test_finely_quantised_networks_have_the_gradients_of_the_network(name, tmp_path):
    network = Network(name, tmp_path)
    fine = network.quantised("QDQ", activation_type="QUInt16", weight_type="QInt16")
    want = network.gradient(network.model)
    assert cosine(network.gradient(fine), want) > 0.99999


@pytest.mark.parametrize("name", ["mlp_static", "cnn_static"])
def test_fused_integer_operators_have_the_gradients_of_the_pairs_around_float_ones(name, tmp_path):
    network = Network(name, tmp_path)
    pairs = network.gradient(network.quantised("QDQ", activation_type="QUInt8"))
    fused = network.gradient(network.quantised("QOperator", activation_type="QUInt8"))
    np.testing.assert_allclose(fused, pairs, rtol=1e-3, atol=1e-5 * np.abs(pairs).max())
    # Eight bits decide a few ReLUs and maxima otherwise.
    assert cosine(fused, network.gradient(network.model)) > 0.9


@pytest.mark.parametrize("scheme", ["QOperator", "dynamic"])
def test_other_quantised_networks(scheme, tmp_path):
    network = Network("transformer_static", tmp_path)
    quantised = network.quantised(scheme, **({} if scheme == "dynamic" else {"activation_type": "QUInt8"}))
    assert cosine(network.gradient(quantised), network.gradient(network.model)) > 0.99


def test_command_line(tmp_path):
    onnx.save(fake_quantised((3,), np.float32(0.1), 3, "int8"), tmp_path / "m.onnx")
    runner = CliRunner()
    plain = runner.invoke(cli, ["vjp", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "a.onnx")])
    assert plain.exit_code == 0 and "'q' = QuantizeLinear stops the gradient of 'x', 'scale'" in plain.output
    passed = runner.invoke(cli, ["vjp", "--straight-through", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "b.onnx")])
    assert passed.exit_code == 0 and "stops" not in passed.output
    assert len(onnx.load(tmp_path / "b.onnx").graph.node) > len(onnx.load(tmp_path / "a.onnx").graph.node)
