"""Gradients of reductions, CumSum, TopK and OneHot at ties, zeros and edges, and with axes known at run time only."""

from __future__ import annotations

import warnings

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import gradgen
from gradgen.errors import GradientWarning
from gradgen.evaluate import Evaluator

INF = np.inf


def model(text: str) -> onnx.ModelProto:
    """A model at opset 21 from the text of its graph."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def derivative(m: onnx.ModelProto, wrt: list[str], of: list[str]) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientWarning)
        return gradgen.vjp(m, wrt=wrt, of=of)


def run(m: onnx.ModelProto, feeds: dict) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def gradient(text: str, feeds: dict, dy) -> np.ndarray:
    """The cotangent of x, where the model computes y."""
    m = derivative(model(text), ["x"], ["y"])
    return run(m, {**feeds, "grad_y": np.asarray(dy, feeds["x"].dtype)})["grad_x"]


def f32(values) -> np.ndarray:
    return np.asarray(values, np.float32)


PRIMALS = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
}


def differences(primal, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """dy · ∂primal/∂x by central differences in float64."""
    result, eps = np.zeros(x.shape), 1e-6
    for i in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[i] = eps
        result[i] = np.sum(dy * (primal(x + step) - primal(x - step))) / (2 * eps)
    return result


@pytest.mark.parametrize("op", PRIMALS)
@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("axes", [[1], [-1, 0], []], ids=str)
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("shape", ["2,3,2", "a,b,c"])
def test_axes_known_at_run_time(op, noop, axes, keepdims, shape):
    """One derivative serves whatever axes are fed; empty ones reduce everything, or nothing with noop."""
    text = (
        f"g (float[{shape}] x, int64[n] axes) => (float y) "
        f"{{ y = {op}<keepdims={keepdims}, noop_with_empty_axes={noop}>(x, axes) }}"
    )
    # The rank of the output depends on the axes: a graph that is to be valid declares it.
    rank = 3 if keepdims or (not axes and noop) else 3 - len(axes) if axes else 0
    if rank:
        text = text.replace("float y", f"float[{','.join('pqr'[:rank])}] y")
    x = np.random.default_rng(1).permutation(np.linspace(0.3, 2.0, 12)).reshape(2, 3, 2)
    over = tuple(axes) if axes else (() if noop else None)

    def primal(v):
        return PRIMALS[op](v, axis=over, keepdims=bool(keepdims))

    dy = np.random.default_rng(2).uniform(0.5, 1.5, np.shape(primal(x)))
    got = gradient(text, {"x": f32(x), "axes": np.asarray(axes, np.int64)}, dy)
    np.testing.assert_allclose(got, differences(primal, x, dy), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("op", PRIMALS)
@pytest.mark.parametrize("axes", [None, [], [0], [-1]], ids=str)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_scalar_data(op, axes, keepdims):
    """A scalar has nothing to reduce: onnxruntime ignores its axes."""
    feeds = {"x": f32(1.5)} if axes is None else {"x": f32(1.5), "axes": np.asarray(axes, np.int64)}
    declared = "float x" if axes is None else "float x, int64[n] axes"
    text = f"g ({declared}) => (float y) {{ y = {op}<keepdims={keepdims}>({', '.join(feeds)}) }}"
    got = gradient(text, feeds, 2.0)
    assert got.shape == ()
    np.testing.assert_allclose(got, differences(PRIMALS[op], np.asarray(1.5), np.asarray(2.0)), rtol=1e-5)


@pytest.mark.parametrize("op", PRIMALS)
@pytest.mark.parametrize("axis", [0, 1])
def test_empty_data(op, axis):
    shape = (0, 3) if axis else (0, 2)
    text = f"g (float[n,m] x) => (float[k] y) <int64[1] a = {{{axis}}}> {{ y = {op}<keepdims=0>(x, a) }}"
    got = gradient(text, {"x": np.zeros(shape, np.float32)}, np.ones(shape[1 - axis]))
    assert got.shape == shape


def row(op: str, x, dy) -> np.ndarray:
    return gradient(
        f"g (float[n,m] x) => (float[n] y) <int64[1] a = {{1}}> {{ y = {op}<keepdims=0>(x, a) }}", {"x": f32(x)}, dy
    )


@pytest.mark.parametrize(("op", "sign"), [("ReduceMax", 1), ("ReduceMin", -1)])
def test_ties_are_split_evenly(op, sign):
    x = sign * f32([[2, 2, 1], [3, 3, 3], [INF, 0, INF], [-INF, -INF, -INF]])
    want = [[3, 3, 0], [2, 2, 2], [1, 0, 1], [1, 1, 1]]
    np.testing.assert_allclose(row(op, x, [6, 6, 2, 3]), want)


def test_product_with_zeros():
    x = f32([[2, 3, 4], [0, 3, 4], [2, 0, 0], [0, 0, 0], [-0.0, 5, 1]])
    want = [[12, 8, 6], [12, 0, 0], [0, 0, 0], [0, 0, 0], [5, 0, 0]]
    np.testing.assert_array_equal(row("ReduceProd", x, [1, 1, 1, 1, 1]), want)


def test_hessian_of_product_with_zeros():
    """∂²/∂xi∂xj of a product is the product of all other factors, also where factors are zero."""
    m = derivative(model("g (double[4] x) => (double y) { y = ReduceProd<keepdims=0>(x) }"), ["x"], ["y"])
    second = derivative(m, ["x"], ["grad_x"])
    for values in ([2.0, 3.0, 5.0, 7.0], [0.0, 3.0, 5.0, 7.0], [0.0, 3.0, 0.0, 7.0], [0.0, 0.0, 0.0, 7.0]):
        x = np.asarray(values)
        want = np.zeros((4, 4))
        for i, j in np.ndindex(4, 4):
            want[i, j] = 0 if i == j else np.prod([x[k] for k in range(4) if k not in (i, j)])
        seed = next(i.name for i in second.graph.input if i.name not in ("x", "grad_y"))
        result = next(o.name for o in reversed(second.graph.output))
        evaluate = Evaluator(second)
        got = [evaluate({"x": x, "grad_y": np.ones(()), seed: direction})[result] for direction in np.eye(4)]
        np.testing.assert_allclose(got, want, atol=1e-12)


def test_norms_at_zero():
    x = [[0, 0], [3, 4], [0, -2]]
    np.testing.assert_allclose(row("ReduceL2", x, [5, 5, 5]), [[0, 0], [3, 4], [0, -5]])
    np.testing.assert_array_equal(row("ReduceL1", x, [5, 5, 5]), [[0, 0], [5, 5], [0, -5]])
    np.testing.assert_array_equal(row("ReduceSumSquare", x, [1, 1, 1]), [[0, 0], [6, 8], [0, -4]])


def test_log_sum_exp_is_shifted():
    """Where exp overflows or underflows the gradient is finite, and a row of −∞ gives 0."""
    third = 1 / (1 + np.exp(1.0))
    text = "g (double[n,m] x) => (double[n] y) <int64[1] a = {1}> { y = ReduceLogSumExp<keepdims=0>(x, a) }"
    x = np.asarray([[-INF, -INF], [1000, 1001], [-2000, -2000], [-INF, 2]])
    want = [[0, 0], [third, 1 - third], [1, 1], [0, 1]]
    np.testing.assert_allclose(gradient(text, {"x": x}, [1, 1, 2, 1]), want, rtol=1e-12)


def test_log_sum_at_its_pole():
    np.testing.assert_array_equal(
        row("ReduceLogSum", [[1, -1], [0, 0], [1, -1], [1, 3]], [1, -2, 0, 2]),
        [[INF] * 2, [-INF] * 2, [0, 0], [0.5, 0.5]],
    )


def test_mean_of_many_in_float16():
    """n is beyond the range of float16, 1/n is not."""
    count = 70_000
    got = gradient(
        "g (float16[n] x) => (float16 y) { y = ReduceMean<keepdims=0>(x) }", {"x": np.ones(count, np.float16)}, 1.0
    )
    np.testing.assert_allclose(got, np.full(count, 1 / count), rtol=5e-3)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumulative_sum_with_an_axis_at_run_time(exclusive, reverse):
    text = (
        "g (float[n,m] x, int64 axis) => (float[n,m] y) "
        f"{{ y = CumSum<exclusive={exclusive}, reverse={reverse}>(x, axis) }}"
    )
    matrix = np.tri(3, k=-exclusive)
    matrix = matrix.T if reverse else matrix
    dy = np.arange(6.0).reshape(2, 3)
    got = gradient(text, {"x": np.zeros((2, 3), np.float32), "axis": np.asarray(-1)}, dy)
    np.testing.assert_allclose(got, dy @ matrix)


def test_top_k_ties_go_to_what_was_picked():
    text = "g (float[n,m] x, int64[1] k) => (float[n,p] y, int64[n,p] i) { y, i = TopK<axis=1>(x, k) }"
    got = gradient(text, {"x": f32([[1, 2, 2, 2], [5, 5, 1, 0]]), "k": np.asarray([2])}, [[1, 10], [1, 10]])
    np.testing.assert_array_equal(got, [[0, 1, 10, 0], [1, 10, 0, 0]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_top_k_in_every_type(dtype):
    kind = {np.float16: "float16", np.float32: "float", np.float64: "double"}[dtype]
    text = f"g ({kind}[3] x, int64[1] k) => ({kind}[p] y, int64[p] i) {{ y, i = TopK<largest=0>(x, k) }}"
    got = gradient(text, {"x": np.asarray([3, 1, 2], dtype), "k": np.asarray([2])}, [1, 10])
    np.testing.assert_array_equal(got, [0, 1, 10])
    assert got.dtype == dtype


def test_one_hot_values():
    """On and off values are summed apart; an index out of range leaves its row off."""
    text = "g (int64[n] i, float[2] x) => (float[n,3] y) <int64 d = {3}> { y = OneHot(i, d, x) }"
    dy = np.arange(1.0, 13.0).reshape(4, 3)
    got = gradient(text, {"i": np.asarray([0, -1, 7, 1]), "x": f32([0, 1])}, dy)
    on = dy[0, 0] + dy[1, 2] + dy[3, 1]
    np.testing.assert_allclose(got, [dy.sum() - on, on])


@pytest.mark.parametrize(
    ("node", "shape", "result"),
    [
        ("y = ReduceProd <keepdims = 0> (x)", "4", "double"),
        ("m = Reshape(x, s) y = ReduceProd <keepdims = 0> (m, a)", "4", "double"),
        ("c = CumProd(x, z) e = Gather(c, l) y = Squeeze(e)", "4", "double"),
        ("y = ReduceProd <keepdims = 0> (x)", "n", "double"),
    ],
)
def test_third_derivatives_of_a_product_with_zeros(node, shape, result):
    """∂³/∂xi∂xj∂xk of a product of four is the factor that is left, also where all are zero."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 26]> g (double[{shape}] x) => ({result} y) '
        f"<int64[3] s = {{2, 1, 2}}, int64[3] a = {{0, 1, -1}}, int64 z = {{0}}, int64[1] l = {{3}}> {{ {node} }}"
    )
    gradient, seeds = "y", []
    for _ in range(3):
        before = {i.name for i in proto.graph.input}
        proto = gradgen.vjp(proto, wrt=["x"], of=[gradient])
        gradient = proto.graph.output[-1].name
        seeds += [i.name for i in proto.graph.input if i.name not in before]
    run = Evaluator(proto)
    for values in ([2.0, 3.0, 5.0, 7.0], [0.0, 3.0, 0.0, 7.0], [0.0, 0.0, 0.0, 7.0], [0.0] * 4):
        x = np.asarray(values)
        for i, j in np.ndindex(4, 4):
            directions = [np.ones(()), np.eye(4)[i], np.eye(4)[j]]
            want = [0 if len({i, j, k}) < 3 else x[6 - i - j - k] for k in range(4)]
            np.testing.assert_allclose(run({"x": x, **dict(zip(seeds, directions, strict=True))})[gradient], want)
