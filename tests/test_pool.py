"""Gradients of pools where the generated tests do not reach: ties, half types, and what onnxruntime itself computes."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import gradgen
from gradgen.evaluate import Evaluator

NAN = float("nan")


def node_model(op_type, shape, kind=np.float32, outputs=("y",), dynamic=False, out_shape=None, **attributes):
    """A model of one node x → y; `dynamic` gives every dimension of x a name."""
    dims = [f"d{i}" for i in range(len(shape))] if dynamic else list(shape)
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    node = helper.make_node(op_type, ["x"], list(outputs), name="node", **attributes)
    y = helper.make_tensor_value_info("y", elem, out_shape or [None] * len(shape))
    graph = helper.make_graph([node], "pool", [helper.make_tensor_value_info("x", elem, dims)], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def gradient(model, x, ct):
    """The gradient of <ct, y> on onnxruntime."""
    result = gradgen.vjp(model, wrt=["x"], of=["y"])
    onnx.checker.check_model(result, full_check=True)
    return Evaluator(result, strict=True)({"x": x, "grad_y": ct})["grad_x"]


def linear_gradient(model, x, ct):
    """The same for a linear op, from its value at every unit vector."""
    run = Evaluator(model, strict=True)
    origin = run({"x": np.zeros_like(x)})["y"].astype(np.float64)
    found = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        unit = np.zeros_like(x)
        unit[index] = 1
        found[index] = float((ct * (run({"x": unit})["y"] - origin)).sum())
    return found


def cotangent(model, x):
    """A random cotangent of y."""
    y = Evaluator(model, strict=True)({"x": x})["y"]
    return np.random.default_rng(3).standard_normal(y.shape).astype(x.dtype)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_max_pool_gives_a_tie_to_the_first(stride, dynamic):
    x = np.array([[[[1, 1, 0, 3], [1, 1, 3, 3]]]], np.float32)
    model = node_model("MaxPool", x.shape, kernel_shape=[2, 2], strides=[1, stride], dynamic=dynamic)
    ct = np.array([[[[1, 2, 4]]]], np.float32)[..., :: 1 if stride == 1 else 2]
    want = [[1, 0, 0, 4], [0, 0, 2, 0]] if stride == 1 else [[1, 0, 0, 4], [0, 0, 0, 0]]
    np.testing.assert_array_equal(gradient(model, x, ct), [[want]])


@pytest.mark.parametrize("seen", [0, 1], ids=["pool", "relu and pool"])
@pytest.mark.parametrize(
    ("shape", "kernel"),
    [((4, 16, 64, 64), [2, 2]), ((1, 8, 192, 192), [3, 3]), ((3, 2048, 8, 6), [2, 3]), ((1, 1, 512, 513), [1, 3])],
    ids=str,
)
def test_a_large_max_pool_finds_the_places_of_its_maxima_itself(shape, kernel, seen):
    """Integers make ties in most windows, and windows without a positive element."""
    rng = np.random.default_rng(0)
    x = rng.integers(-6, 3, shape).astype(np.float32)
    x[-1, -1, -1, -1] = 9  # the last element of all is a maximum too
    model = node_model("MaxPool", shape, kernel_shape=kernel, strides=kernel)
    if seen:
        model.graph.node.insert(0, helper.make_node("Relu", ["x"], ["positive"], name="relu"))
        model.graph.node[1].input[0] = "positive"
    ct = cotangent(model, x)
    linked = gradgen.vjp(model, wrt=["x"], of=["y"]).graph.node
    assert any("max_pool_vjp__codes" in n.name for n in linked) and len(linked[0].output) == 1
    # The mask of the Relu is on the pooled cotangent.
    assert not seen or [n.op_type for n in linked][-1] == "MaxUnpool"

    (n, c, h, w), (a, b) = shape, kernel
    windows = x.reshape(n, c, h // a, a, w // b, b).transpose(0, 1, 2, 4, 3, 5).reshape(*ct.shape, a * b)
    values = np.maximum(windows, 0) if seen else windows
    place = values.argmax(-1)
    factor = (np.take_along_axis(values, place[..., None], -1)[..., 0] > 0) if seen else 1
    want = np.zeros_like(windows)
    np.put_along_axis(want, place[..., None], (ct * factor)[..., None], -1)
    want = want.reshape(*ct.shape, a, b).transpose(0, 1, 2, 4, 3, 5).reshape(shape)
    np.testing.assert_array_equal(gradient(model, x, ct), want)


def test_nothing_is_written_outside_of_the_image_where_no_element_equals_the_maximum():
    x = np.full((4, 16, 64, 64), np.nan, np.float32)
    model = node_model("MaxPool", x.shape, kernel_shape=[2, 2], strides=[2, 2])
    found = gradient(model, x, np.ones((4, 16, 32, 32), np.float32))
    assert found.shape == x.shape and set(np.unique(found)) <= {0, 1}


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("dynamic", [False, True])
def test_max_pool_sums_overlapping_windows(kind, dynamic):
    x = np.array([[[0, 5, 1, 2, 4]]], kind)
    model = node_model("MaxPool", x.shape, kind, kernel_shape=[3], dynamic=dynamic)
    found = gradient(model, x, np.array([[[1, 2, 4]]], kind))
    assert found.dtype == kind
    np.testing.assert_array_equal(found, [[[0, 3, 0, 0, 4]]])


@pytest.mark.parametrize("dynamic", [False, True])
def test_max_pool_column_major_volume(dynamic):
    x = np.random.default_rng(0).permutation(2 * 3 * 4 * 5 * 2).reshape(2, 2, 3, 4, 5).astype(np.float32)
    settings = {"kernel_shape": [2, 3, 2], "strides": [1, 1, 2], "pads": [1, 0, 0, 0, 1, 1]}
    row_major = node_model("MaxPool", x.shape, **settings)
    column_major = node_model("MaxPool", x.shape, storage_order=1, outputs=("y", "i"), dynamic=dynamic, **settings)
    ct = cotangent(row_major, x)
    np.testing.assert_array_equal(gradient(column_major, x, ct), gradient(row_major, x, ct))


@pytest.mark.parametrize("dynamic", [False, True])
def test_global_max_pool_gives_a_tie_to_the_first(dynamic):
    x = np.array([[[1, 7, 7], [4, 4, 4]]], np.float32)
    model = node_model("GlobalMaxPool", x.shape, dynamic=dynamic)
    found = gradient(model, x, np.array([[[2], [3]]], np.float32))
    np.testing.assert_array_equal(found, [[[0, 2, 0], [3, 0, 0]]])


AVERAGE = [
    {"ceil_mode": c, "count_include_pad": p, "kernel_shape": [k, 2], "strides": [s, 1 + c], "pads": [*pads, 0]}
    for c, p, (k, s, pads) in itertools.product(
        [0, 1], [0, 1], [(3, 2, [1, 0, 1]), (3, 2, [1, 1, 0]), (2, 3, [1, 0, 0]), (3, 1, [2, 0, 1]), (2, 2, [1, 0, 1])]
    )
]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("settings", AVERAGE, ids=str)
def test_average_pool_divides_as_onnxruntime_does(settings, dynamic):
    x = np.zeros((1, 2, 6, 5), np.float32)
    model = node_model("AveragePool", x.shape, dynamic=dynamic, **settings)
    ct = cotangent(model, x)
    np.testing.assert_allclose(gradient(model, x, ct), linear_gradient(model, x, ct), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("include", [0, 1])
def test_average_pool_auto_pad(auto_pad, include, dynamic):
    x = np.zeros((1, 1, 5, 7), np.float32)
    settings = {"kernel_shape": [2, 4], "strides": [1, 3], "auto_pad": auto_pad, "count_include_pad": include}
    model = node_model("AveragePool", x.shape, dynamic=dynamic, **settings)
    ct = cotangent(model, x)
    np.testing.assert_allclose(gradient(model, x, ct), linear_gradient(model, x, ct), rtol=1e-5, atol=1e-6)


def test_average_pool_of_tiles_leaves_the_rest_without_gradient():
    x = np.zeros((1, 1, 5), np.float32)
    model = node_model("AveragePool", x.shape, kernel_shape=[2], strides=[2])
    found = gradient(model, x, np.array([[[2, 6]]], np.float32))
    np.testing.assert_array_equal(found, [[[1, 1, 3, 3, 0]]])


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool_of_zeros_has_gradient_zero(p):
    x = np.array([[[0, 0, 3, 4]]], np.float32)
    model = node_model("LpPool", x.shape, kernel_shape=[2], strides=[2], p=p)
    found = gradient(model, x, np.ones((1, 1, 2), np.float32))
    norm = (3.0**p + 4.0**p) ** (1 / p)
    np.testing.assert_allclose(found[0, 0], [0, 0, (3 / norm) ** (p - 1), (4 / norm) ** (p - 1)], rtol=1e-6)


def test_max_unpool_reads_the_places_of_the_larger_output():
    nodes = [helper.make_node("MaxUnpool", ["x", "i", "s"], ["y"], name="node", kernel_shape=[2], strides=[2])]
    stored = [
        onnx.numpy_helper.from_array(np.array([[[1, 4]]], np.int64), "i"),
        onnx.numpy_helper.from_array(np.array([1, 1, 6], np.int64), "s"),
    ]
    x = helper.make_tensor_value_info("x", 1, [1, 1, 2])
    y = helper.make_tensor_value_info("y", 1, [1, 1, 6])
    graph = helper.make_graph(nodes, "unpool", [x], [y], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    ct = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    np.testing.assert_array_equal(gradient(model, np.zeros((1, 1, 2), np.float32), ct), [[[1, 4]]])


def test_average_pool_counts_windows_as_onnxruntime_does():
    # onnx infers three windows here; the third would start behind the image, and onnxruntime computes two.
    x = np.zeros((1, 1, 6), np.float32)
    model = node_model("AveragePool", x.shape, kernel_shape=[2], strides=[3], ceil_mode=1)
    model.graph.node[0].output[0] = "pooled"
    model.graph.node.append(helper.make_node("ReduceSum", ["pooled"], ["y"], keepdims=0))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    found = gradient(model, x, np.array(2, np.float32))
    np.testing.assert_allclose(found, [[[1, 1, 0, 1, 1, 0]]])


@pytest.mark.parametrize(
    "values", [[1, 2, NAN, 0], [NAN, 1, 3, 2], [NAN, NAN, 1, 2], [1, NAN, NAN, 2], [NAN] * 4, [3, 1, 3, 2]]
)
@pytest.mark.parametrize(
    "op", ["MaxPool <kernel_shape = [4]>", "MaxPool <kernel_shape = [4], strides = [4]>", "GlobalMaxPool"]
)
def test_a_nan_gets_the_cotangent_where_it_is_the_maximum_alone(op, values):
    """Which NaN the runtime passes over is its own business: the gradient goes where the gradient model's result lies."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[1,1,4] x) => (float[1,1,1] y) {{ y = {op} (x) }}'
    )
    x = np.asarray(values, np.float32).reshape(1, 1, 4)
    found = Evaluator(gradgen.vjp(model), strict=True)({"x": x, "grad_y": np.full((1, 1, 1), 5, np.float32)})
    (place,) = np.flatnonzero(found["grad_x"])
    np.testing.assert_array_equal(x.flat[place], found["y"].item())
    assert place == list(map(str, x.flat)).index(str(x.flat[place])), "the first of them"
    assert found["grad_x"].flat[place] == 5


@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"])
@pytest.mark.parametrize("dims", ["0, 2, 3", "n, 2, 3", "n, c, w"])
def test_an_empty_batch(op, dims):
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[{dims}] x) => (float[a,b,c] y) {{ y = {op} (x) }}'
    )
    feeds = {"x": np.zeros((0, 2, 3), np.float32), "grad_y": np.zeros((0, 2, 1), np.float32)}
    assert Evaluator(gradgen.vjp(model), strict=True)(feeds)["grad_x"].shape == (0, 2, 3)
