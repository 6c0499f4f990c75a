"""Gradients of indexed operators with repeated, negative and run-time indices, ties, zeros, and in half precision."""

from __future__ import annotations

import warnings

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import gradgen
from gradgen.errors import GradientWarning
from gradgen.evaluate import Evaluator


def model(text: str, opset: int = 21) -> onnx.ModelProto:
    """A model from the text of its graph."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')


def derivative(m: onnx.ModelProto, wrt: list[str], of: list[str]) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientWarning)
        return gradgen.vjp(m, wrt=wrt, of=of)


def run(m: onnx.ModelProto, feeds: dict) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def gradients(text: str, feeds: dict, dy, wrt: tuple[str, ...] = ("x",)) -> list[np.ndarray]:
    """The cotangents of `wrt`, where the model computes y."""
    m = derivative(model(text), list(wrt), ["y"])
    results = run(m, {**feeds, "grad_y": np.asarray(dy, feeds[wrt[0]].dtype)})
    return [results[f"grad_{n}"] for n in wrt]


def f32(values) -> np.ndarray:
    return np.asarray(values, np.float32)


def cotangent(*shape: int) -> np.ndarray:
    return np.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape)


@pytest.mark.parametrize("kind", ["int64", "int32"])
@pytest.mark.parametrize("shape", ["4,3", "100,3", "n,m"])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_gather_with_indices_at_run_time(kind, shape, axis):
    """Every form: few rows, many rows, unknown sizes; negative and repeated indices are summed."""
    sizes = {"4,3": (4, 3), "100,3": (100, 3), "n,m": (5, 3)}[shape]
    index = np.asarray([[0, 2, -1], [0, -2, 1]], kind)
    out = "a,b,c"
    text = f"g (float[{shape}] x, {kind}[p,q] i) => (float[{out}] y) {{ y = Gather<axis={axis}>(x, i) }}"
    x = np.zeros(sizes, np.float32)
    dy = cotangent(*np.take(x, index, axis).shape)
    want = np.zeros(sizes)
    where = (index,) if axis in (0, -2) else (slice(None), index)
    np.add.at(want, where, dy)
    (got,) = gradients(text, {"x": x, "i": index}, dy)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["int64", "int32"])
@pytest.mark.parametrize("op", ["Gather", "GatherND"])
def test_many_rows_are_added_up_element_by_element(op, kind):
    """In one flat axis; negative and repeated indices are summed."""
    index = np.random.default_rng(0).integers(-100, 100, 300).astype(kind)
    shape = {"Gather": "[20,15]", "GatherND": "[20,15,1]"}[op]
    text = f"g (float[100,250] x, int64{shape} i) => (float[20,15,250] y) {{ y = {op}(x, i) }}"
    text = text.replace("int64", kind) if op == "Gather" else text
    feeds = {"x": np.zeros((100, 250), np.float32), "i": index.reshape((20, 15) if op == "Gather" else (20, 15, 1))}
    feeds["i"] = feeds["i"] if op == "Gather" else feeds["i"].astype(np.int64)
    dy = cotangent(20, 15, 250)
    want = np.zeros((100, 250))
    np.add.at(want, index, dy.reshape(300, 250))
    (got,) = gradients(text, feeds, dy)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    scatter = [n for n in derivative(model(text), ["x"], ["y"]).graph.node if n.op_type == "ScatterElements"]
    assert len(scatter) == 1 and "__flat" in scatter[0].name


@pytest.mark.parametrize("index", [-1, 0, 3, [1, 2], [-3, -2], [-1, 0], [2, 1], []], ids=str)
@pytest.mark.parametrize("shape", ["2,4,3", "n,m,k"])
def test_gather_with_known_indices(index, shape):
    """One index and runs are padded, all others scattered; with unknown sizes too."""
    array = np.asarray(index, np.int64)
    dims = ",".join(map(str, array.shape))
    values = ", ".join(map(str, array.reshape(-1)))
    kind = f"int64[{dims}] i = {{{values}}}" if array.ndim else f"int64 i = {{{values}}}"
    out = "a,b,c" if array.ndim else "a,b"
    text = f"g (float[{shape}] x) => (float[{out}] y) <{kind}> {{ y = Gather<axis=1>(x, i) }}"
    x = np.zeros((2, 4, 3), np.float32)
    dy = cotangent(*np.take(x, array, 1).shape)
    want = np.zeros(x.shape)
    np.add.at(want, (slice(None), array), dy)
    (got,) = gradients(text, {"x": x}, dy)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_repeated_indices_in_other_types(op, dtype):
    dims = "[n,1]" if op == "GatherND" else "[n]"
    text = f"g ({dtype}[100] x, int64{dims} i) => ({dtype}[n] y) {{ y = {op}(x, i) }}"
    kind = {"float16": np.float16, "double": np.float64}[dtype]
    index = np.asarray([7, -1, 7, 99])
    (got,) = gradients(
        text, {"x": np.zeros(100, kind), "i": index[:, None] if op == "GatherND" else index}, [1, 2, 4, 8]
    )
    want = np.zeros(100)
    want[7], want[99] = 5, 10
    np.testing.assert_array_equal(got, want)
    assert got.dtype == kind


def test_gather_nd_of_one_element():
    """Inference knows no shape for this scalar, the model declares it."""
    (got,) = gradients(
        "g (float[n] x) => (float y) <int64[1] i = {-2}> { y = GatherND(x, i) }", {"x": f32([1, 2, 3])}, 5
    )
    np.testing.assert_array_equal(got, [0, 5, 0])


@pytest.mark.parametrize("depth", [1, 2])
def test_gather_nd_with_batches_at_run_time(depth):
    out = "2,p" + ",k" * (2 - depth)
    text = f"g (float[b,m,k] x, int64[2,p,{depth}] i) => (float[{out}] y) {{ y = GatherND<batch_dims=1>(x, i) }}"
    x = np.zeros((2, 3, 2), np.float32)
    index = np.asarray([[[0, 1], [-1, 0], [0, 1]], [[2, -1], [2, 1], [1, 0]]])[..., :depth]
    dy = cotangent(*(2, 3, 2)[: 4 - depth])
    want = np.zeros(x.shape)
    for b in range(2):
        np.add.at(want[b], tuple(np.moveaxis(index[b], -1, 0)), dy[b])
    (got,) = gradients(text, {"x": x, "i": index}, dy)
    np.testing.assert_array_equal(got, want)


def scatter_text(reduction: str, dims: str = "4", op: str = "ScatterElements", kind: str = "float") -> str:
    index = "[n,1]" if op == "ScatterND" else "[n]"
    return (
        f"g ({kind}[{dims}] x, int64{index} i, {kind}[n] u) => ({kind}[{dims}] y) "
        f'{{ y = {op}<reduction="{reduction}">(x, i, u) }}'
    )


def scatter(op: str, reduction: str, x, index, u, dy, dims: str = "4") -> list[np.ndarray]:
    i = np.asarray(index, np.int64)
    feeds = {"x": f32(x), "i": i[:, None] if op == "ScatterND" else i, "u": f32(u)}
    return gradients(scatter_text(reduction, dims, op), feeds, dy, ("x", "u"))


SCATTERS = pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
DIMS = pytest.mark.parametrize("dims", ["4", "m"])


@SCATTERS
@DIMS
def test_scatter_keeps_the_last_of_repeated_indices(op, dims):
    dx, du = scatter(op, "none", [1, 2, 3, 4], [1, 3, -3, -1, 0], [5, 6, 7, 8, 9], [1, 2, 3, 4], dims)
    np.testing.assert_array_equal(dx, [0, 0, 3, 0])
    np.testing.assert_array_equal(du, [0, 0, 2, 4, 1])


def test_scatter_in_rows_keeps_the_last_of_repeated_indices():
    """Repeats are told apart row by row."""
    text = "g (float[n,m] x, int64[n,k] i, float[n,k] u) => (float[n,m] y) { y = ScatterElements<axis=-1>(x, i, u) }"
    feeds = {"x": np.zeros((2, 3), np.float32), "i": np.asarray([[0, 0, 2], [1, 0, -2]]), "u": f32(np.zeros((2, 3)))}
    dx, du = gradients(text, feeds, [[1, 2, 3], [4, 5, 6]], ("x", "u"))
    np.testing.assert_array_equal(dx, [[0, 2, 0], [0, 0, 6]])
    np.testing.assert_array_equal(du, [[0, 1, 3], [0, 4, 5]])


@SCATTERS
@DIMS
def test_scatter_add(op, dims):
    dx, du = scatter(op, "add", [1, 2, 3, 4], [1, 3, 1, -1], [5, 6, 7, 8], [1, 2, 3, 4], dims)
    np.testing.assert_array_equal(dx, [1, 2, 3, 4])
    np.testing.assert_array_equal(du, [2, 4, 2, 4])


@SCATTERS
@DIMS
@pytest.mark.parametrize(("reduction", "sign"), [("max", 1), ("min", -1)])
def test_scatter_extremum_ties_are_split_evenly(op, dims, reduction, sign):
    """Element 0 loses, 1 ties with two updates, 2 wins, 3 is untouched."""
    x, u = np.asarray([1.0, 5, 9, 0]), np.asarray([5.0, 2, 5, 8, 4])
    dx, du = scatter(op, reduction, sign * x, [1, 0, 1, -2, -3], sign * u, [6, 9, 3, 7], dims)
    np.testing.assert_array_equal(dx, [0, 3, 3, 7])
    np.testing.assert_array_equal(du, [3, 6, 3, 0, 0])


def factors(x, index, u, dy) -> tuple[np.ndarray, np.ndarray]:
    """Cotangents of a scatter that multiplies: products of the other factors, one by one."""
    index = np.asarray(index) % len(x)
    dx = [dy[t] * np.prod([u[k] for k in range(len(u)) if index[k] == t]) for t in range(len(x))]
    du = [
        dy[index[j]] * x[index[j]] * np.prod([u[k] for k in range(len(u)) if index[k] == index[j] and k != j])
        for j in range(len(u))
    ]
    return np.asarray(dx), np.asarray(du)


@SCATTERS
@DIMS
@pytest.mark.parametrize("x", [[2, 3, 4, 5], [0, 3, 0, 5]], ids=str)
@pytest.mark.parametrize("u", [[2, 3, 4, 5, 6], [0, 3, 4, 0, 6], [0, 0, 4, 0, 0]], ids=str)
def test_scatter_product_with_zeros(op, dims, x, u):
    index, dy = [1, 2, 1, -2, 0], [1, 2, 3, 4]
    got = scatter(op, "mul", x, index, u, dy, dims)
    for g, want in zip(got, factors(x, index, u, dy), strict=True):
        np.testing.assert_array_equal(g, want)


def test_scatter_of_slices():
    """ScatterND writes rows; the last of two writes to a row stays, all of its elements."""
    text = "g (float[n,m] x, int64[k,1] i, float[k,m] u) => (float[n,m] y) { y = ScatterND(x, i, u) }"
    feeds = {"x": np.zeros((3, 2), np.float32), "i": np.asarray([[2], [0], [-1]]), "u": np.zeros((3, 2), np.float32)}
    dx, du = gradients(text, feeds, [[1, 2], [3, 4], [5, 6]], ("x", "u"))
    np.testing.assert_array_equal(dx, [[0, 0], [3, 4], [0, 0]])
    np.testing.assert_array_equal(du, [[0, 0], [1, 2], [5, 6]])


@SCATTERS
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max"])
def test_scatter_of_nothing(op, reduction):
    dx, du = scatter(op, reduction, [1, 2, 3, 4], [], [], [1, 2, 3, 4], "m")
    np.testing.assert_array_equal(dx, [1, 2, 3, 4])
    assert du.shape == (0,)


@pytest.mark.parametrize(("reduction", "want"), [("none", [0, 2, 4]), ("max", [0, 2, 4])])
def test_scatter_in_float16(reduction, want):
    feeds = {"x": np.zeros(4, np.float16), "i": np.asarray([1, 1, -1]), "u": np.asarray([5, 6, 7], np.float16)}
    _, du = gradients(scatter_text(reduction, kind="float16"), feeds, [1, 2, 3, 4], ("x", "u"))
    np.testing.assert_array_equal(du, want)
    assert du.dtype == np.float16


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
def test_second_derivative_with_repeated_indices(op):
    """y = Σ w·x[i]³: the Hessian is diagonal, 6·x·Σ w over the places that read x."""
    index = "[k,1]" if op == "GatherND" else "[k]"
    text = (
        f"g (double[n] x, int64{index} i, double[k] w) => (double y) <double three = {{3.0}}> "
        f"{{ r = {op}(x, i) c = Pow(r, three) p = Mul(c, w) y = ReduceSum<keepdims=0>(p) }}"
    )
    second = derivative(derivative(model(text), ["x"], ["y"]), ["x"], ["grad_x"])
    i, w, x = np.asarray([0, 2, 0, -1]), np.asarray([1.0, 10.0, 100.0, 1000.0]), np.asarray([2.0, 3.0, 5.0])
    feeds = {"x": x, "i": i[:, None] if op == "GatherND" else i, "w": w, "grad_y": np.ones(())}
    (seed,) = [v.name for v in second.graph.input if v.name not in feeds]
    direction = np.asarray([1.0, -2.0, 0.5])
    got = Evaluator(second)({**feeds, seed: direction})[second.graph.output[-1].name]
    np.testing.assert_allclose(got, 6 * x * np.asarray([101, 0, 1010]) * direction)


def test_unique_goes_to_the_first():
    text = "g (float[n] x) => (float[k] y) { y = Unique(x) }"
    (got,) = gradients(text, {"x": f32([3, 1, 3, 2, 1])}, [10, 20, 30])
    np.testing.assert_array_equal(got, [30, 10, 0, 20, 0])


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter_with_places_at_run_time(mode):
    m = model(
        "g (float[b,n,d] x, float[b,k,d] u, int64[b] w) => (float[b,n,d] y) "
        f'{{ y = TensorScatter<axis=1, mode="{mode}">(x, u, w) }}',
        24,
    )
    start = [1, 0] if mode == "linear" else [2, 1]
    dy = cotangent(2, 3, 1)
    feeds = {"x": np.zeros((2, 3, 1)), "u": np.zeros((2, 2, 1)), "w": np.asarray(start)}
    feeds = {k: v if k == "w" else f32(v) for k, v in feeds.items()}
    got = run(derivative(m, ["x", "u"], ["y"]), {**feeds, "grad_y": f32(dy)})
    want = dy.copy()
    du = np.zeros((2, 2, 1))
    for b in range(2):
        for k in range(2):
            du[b, k] = dy[b, (start[b] + k) % 3]
            want[b, (start[b] + k) % 3] = 0
    np.testing.assert_array_equal(got["grad_x"], want)
    np.testing.assert_array_equal(got["grad_u"], du)
