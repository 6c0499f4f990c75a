"""Gradients of normalizations where the generated tests do not reach: saved statistics, zero vectors, half types."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import gradgen
from gradgen.differences import directional
from gradgen.evaluate import Evaluator


def node_model(op_type, shapes, outputs=("y",), kind=np.float32, opset=21, kinds=None, **attributes):
    """A model of one node over inputs of these shapes; all its outputs are the graph's."""
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    node = helper.make_node(op_type, list(shapes), list(outputs), name="node", **attributes)
    inputs = [helper.make_tensor_value_info(n, elem, s) for n, s in shapes.items()]
    rank = len(next(iter(shapes.values())))
    types = dict(zip(outputs, kinds or [elem] * len(outputs), strict=True))
    results = [helper.make_tensor_value_info(o, t, [None] * rank) for o, t in types.items() if o]
    graph = helper.make_graph([node], "norm", inputs, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def layer_formula(x, scale, ct, epsilon=1e-5):
    """LayerNormalization's gradients over the last axis, from the Jacobian of x̂, in float64."""
    width = x.shape[-1]
    x, ct = x.reshape(-1, width).astype(np.float64), ct.reshape(-1, width).astype(np.float64)
    centred = x - x.mean(axis=1, keepdims=True)
    sigma = np.sqrt((centred**2).mean(axis=1) + epsilon)
    dx = np.zeros_like(x)
    for row in range(len(x)):
        centre = np.eye(width) - 1 / width
        jacobian = centre / sigma[row] - np.outer(centred[row], centred[row]) / (width * sigma[row] ** 3)
        dx[row] = jacobian.T @ (ct[row] * scale)
    return dx, (ct * centred / sigma[:, None]).sum(axis=0), ct.sum(axis=0)


@pytest.mark.parametrize("shape", [(2, 3, 8), (40, 30, 64), (7, 5)], ids=str)
def test_layer_normalization_against_its_jacobian(shape):
    # The second is large enough for sums by products with ones.
    rng = np.random.default_rng(0)
    width = shape[-1]
    model = node_model("LayerNormalization", {"x": shape, "scale": [width], "bias": [width]})
    x, ct = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    scale, bias = (rng.standard_normal(width).astype(np.float32) for _ in range(2))
    result = gradgen.vjp(model, wrt=["x", "scale", "bias"], of=["y"])
    onnx.checker.check_model(result, full_check=True)
    found = Evaluator(result, strict=True)({"x": x, "scale": scale, "bias": bias, "grad_y": ct})
    want = layer_formula(x, scale, ct)
    for name, expected in zip(("grad_x", "grad_scale", "grad_bias"), want, strict=True):
        got = found[name].reshape(expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max(), err_msg=name)


def test_layer_normalization_adds_few_nodes():
    model = node_model("LayerNormalization", {"x": (2, 3, 8), "scale": [8], "bias": [8]})
    assert len(gradgen.vjp(model, wrt=["x", "scale", "bias"], of=["y"]).graph.node) <= 1 + 12


@pytest.mark.parametrize("of", [["mean"], ["inverse"], ["y", "mean", "inverse"]], ids=str)
def test_layer_normalization_differentiates_its_statistics(of):
    rng = np.random.default_rng(1)
    shapes = {"x": (3, 4), "scale": [4]}
    model = node_model("LayerNormalization", {**shapes}, ("y", "mean", "inverse"))
    feeds = {n: rng.standard_normal(s) for n, s in shapes.items()}
    cts = {
        "y": rng.standard_normal((3, 4)),
        "mean": rng.standard_normal((3, 1)),
        "inverse": rng.standard_normal((3, 1)),
    }
    result = gradgen.vjp(model, wrt=["x"], of=of)
    single = {n: v.astype(np.float32) for n, v in {**feeds, **{f"grad_{o}": cts[o] for o in of}}.items()}
    found = Evaluator(result, strict=True)(single)["grad_x"]

    def forward(point):
        x = point["x"]
        mean = x.mean(axis=1, keepdims=True)
        inverse = 1 / np.sqrt(((x - mean) ** 2).mean(axis=1, keepdims=True) + 1e-5)
        return {"y": (x - mean) * inverse * point["scale"], "mean": mean, "inverse": inverse}

    direction = rng.standard_normal((3, 4))
    want = directional(forward, feeds, {"x": direction}, {o: cts[o] for o in of})
    np.testing.assert_allclose((found * direction).sum(), want.value, rtol=1e-4)


def test_layer_normalization_second_order_through_saved_statistics():
    # In float32 the saved form is taken: its own gradient passes through 1/σ too.
    rng = np.random.default_rng(2)
    shapes = {"x": (3, 6), "scale": [6]}
    feeds = {n: rng.standard_normal(s) for n, s in shapes.items()}
    ct, weight = rng.standard_normal((3, 6)), rng.standard_normal((3, 6))

    def second(kind):
        model = node_model("LayerNormalization", shapes, kind=kind)
        first = gradgen.vjp(model, wrt=["x"], of=["y"])
        twice = gradgen.vjp(first, wrt=["x", "scale", "grad_y"], of=["grad_x"])
        extra = {"grad_y": ct, twice.graph.input[-1].name: weight}
        run = Evaluator(twice, prefer="reference" if kind == np.float64 else "onnxruntime")
        results = run({n: v.astype(kind) for n, v in {**feeds, **extra}.items()})
        return [results[o.name] for o in twice.graph.output[-3:]]

    def gradient(point):
        dx, _, _ = layer_formula(point["x"], point["scale"], point["grad_y"])
        return {"grad_x": dx}

    point = {**feeds, "grad_y": ct}
    for kind, rtol in ((np.float32, 2e-3), (np.float64, 1e-6)):
        for name, found in zip(point, second(kind), strict=True):
            direction = rng.standard_normal(point[name].shape)
            want = directional(gradient, point, {name: direction}, {"grad_x": weight})
            np.testing.assert_allclose((found * direction).sum(), want.value, rtol=rtol, err_msg=f"{name} {kind}")


HALF = [
    ("LayerNormalization", {"x": (3, 8), "scale": [8], "bias": [8]}, {}),
    ("GroupNormalization", {"x": (2, 4, 6), "scale": [4], "bias": [4]}, {"num_groups": 2}),
    ("InstanceNormalization", {"x": (2, 3, 6), "scale": [3], "bias": [3]}, {}),
    ("LpNormalization", {"x": (3, 5)}, {}),
]


@pytest.mark.parametrize(("op_type", "shapes", "settings"), HALF, ids=lambda v: v if isinstance(v, str) else "")
def test_half_precision_agrees_with_single(op_type, shapes, settings):
    rng = np.random.default_rng(4)
    feeds = {n: rng.uniform(0.5, 2, s).astype(np.float16) for n, s in shapes.items()}
    feeds["grad_y"] = rng.standard_normal(shapes["x"]).astype(np.float16)
    found = {}
    for kind in (np.float16, np.float32):
        result = gradgen.vjp(node_model(op_type, shapes, kind=kind, **settings), wrt=list(shapes), of=["y"])
        found[kind] = Evaluator(result, strict=True)({n: v.astype(kind) for n, v in feeds.items()})
    for name in shapes:
        narrow, wide = (found[k][f"grad_{name}"] for k in (np.float16, np.float32))
        assert narrow.dtype == np.float16
        np.testing.assert_allclose(narrow, wide, rtol=5e-3, atol=5e-3 * np.abs(wide).max(), err_msg=name)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_of_the_zero_vector_has_gradient_zero(p):
    result = gradgen.vjp(node_model("LpNormalization", {"x": (2, 3)}, p=p), wrt=["x"], of=["y"])
    x = np.array([[0, 0, 0], [3, 0, -4]], np.float32)
    ct = np.array([[1, 2, 3], [1, 2, 3]], np.float32)
    found = Evaluator(result, strict=True)({"x": x, "grad_y": ct})["grad_x"]
    if p == 1:
        unit, slope = x[1] / 7, np.sign(x[1])
        want = (ct[1] - slope * (ct[1] * unit).sum()) / 7
    else:
        unit = x[1] / 5
        want = (ct[1] - unit * (ct[1] * unit).sum()) / 5
    np.testing.assert_allclose(found, [np.zeros(3), want], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axes", [None, [0, 2]], ids=str)
def test_mean_variance_normalization_through_its_standard_body(axes):
    shape = (2, 3, 4) if axes else (2, 3, 2, 2)
    model = node_model("MeanVarianceNormalization", {"x": shape}, **({"axes": axes} if axes else {}))
    rng = np.random.default_rng(5)
    x, ct, direction = (rng.standard_normal(shape) for _ in range(3))
    result = gradgen.vjp(model, wrt=["x"], of=["y"])
    single = {"x": x.astype(np.float32), "grad_y": ct.astype(np.float32)}
    found = Evaluator(result, strict=True)(single)["grad_x"]
    over = tuple(axes or (0, 2, 3))

    def forward(point):
        centred = point["x"] - point["x"].mean(axis=over, keepdims=True)
        return {"y": centred / (np.sqrt((centred**2).mean(axis=over, keepdims=True)) + 1e-9)}

    want = directional(forward, {"x": x}, {"x": direction}, {"y": ct})
    np.testing.assert_allclose((found * direction).sum(), want.value, rtol=1e-4)


@pytest.mark.parametrize("momentum", [0.9, 0.5])
def test_batch_normalization_training_passes_every_output_back(momentum):
    rng = np.random.default_rng(6)
    shapes = {"x": (3, 2, 4), "scale": [2], "bias": [2], "mean": [2], "var": [2]}
    outputs = ("y", "running_mean", "running_var")
    node = helper.make_node(
        "BatchNormalization", list(shapes), list(outputs), name="node", training_mode=1, momentum=momentum
    )
    inputs = [helper.make_tensor_value_info(n, 1, s) for n, s in shapes.items()]
    ranks = {"y": [3, 2, 4], "running_mean": [2], "running_var": [2]}
    results = [helper.make_tensor_value_info(o, 1, ranks[o]) for o in outputs]
    graph = helper.make_graph([node], "norm", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = {n: rng.uniform(0.5, 2, s) for n, s in shapes.items()}
    cts = {o: rng.standard_normal(ranks[o]) for o in outputs}
    result = gradgen.vjp(model, wrt=list(shapes), of=list(outputs))
    single = {**feeds, **{f"grad_{o}": ct for o, ct in cts.items()}}
    found = Evaluator(result, strict=True)({n: v.astype(np.float32) for n, v in single.items()})

    def forward(point):
        mean, var = (f(point["x"], axis=(0, 2)) for f in (np.mean, np.var))
        column = (slice(None), None)
        normal = (point["x"] - mean[column]) / np.sqrt(var[column] + 1e-5)
        return {
            "y": normal * point["scale"][column] + point["bias"][column],
            "running_mean": point["mean"] * momentum + mean * (1 - momentum),
            "running_var": point["var"] * momentum + var * (1 - momentum),
        }

    own = Evaluator(model, strict=True)({n: v.astype(np.float32) for n, v in feeds.items()})
    for name, value in forward(feeds).items():
        np.testing.assert_allclose(own[name], value, rtol=1e-4, atol=1e-5)
    for name, value in feeds.items():
        direction = rng.standard_normal(value.shape)
        want = directional(forward, feeds, {name: direction}, cts)
        got = (found[f"grad_{name}"] * direction).sum()
        np.testing.assert_allclose(got, want.value, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("shape", "stated"), [((2, 3, 8), True), ((2, 3, 4, 5), True), ((2, 3, 8), False), ((2, 1, 9), True)]
)
def test_instance_normalization_with_a_scale_of_one_saves_its_statistics(shape, stated):
    """As PyTorch exports GroupNorm."""
    model = node_model(
        "InstanceNormalization", {"x": shape if stated else ("N", *shape[1:]), "scale": [shape[1]], "bias": [shape[1]]}
    )
    del model.graph.input[1:]
    for name, number in (("scale", 1), ("bias", 0)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(shape[1], number, np.float32), name))
    result = gradgen.vjp(model, wrt=["x"], of=["y"])
    onnx.checker.check_model(result, full_check=True)
    assert [n.op_type for n in result.graph.node].count("LayerNormalization") == 1
    assert "InstanceNormalization" not in {n.op_type for n in result.graph.node}
    rng = np.random.default_rng(0)
    x, ct = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    found = Evaluator(result, strict=True)({"x": x, "grad_y": ct})
    rows = [a.reshape(*shape[:2], -1) for a in (x, ct)]
    dx = np.stack([layer_formula(a, np.ones(a.shape[-1]), c)[0] for a, c in zip(*rows, strict=True)])
    np.testing.assert_allclose(found["grad_x"].reshape(dx.shape), dx, rtol=1e-4, atol=1e-5)
    spread = np.sqrt(rows[0].var(axis=2, keepdims=True) + 1e-5)
    normal = (rows[0] - rows[0].mean(axis=2, keepdims=True)) / spread
    np.testing.assert_allclose(found["y"].reshape(normal.shape), normal, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [2, "N"])
def test_what_is_saved_has_derivatives_too(batch):
    """Tangents and second derivatives, against differences of the gradient by the formula."""
    model = node_model("InstanceNormalization", {"x": (batch, 3, 8), "scale": [3], "bias": [3]})
    del model.graph.input[1:]
    for name, number in (("scale", 1), ("bias", 0)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(3, number, np.float32), name))
    rng = np.random.default_rng(1)
    x, v, ct = (rng.standard_normal((2, 3, 8)).astype(np.float32) for _ in range(3))

    def gradient(at):
        return layer_formula(at, np.ones(8), ct)[0].reshape(x.shape)

    step = 1e-5
    want = (gradient(x.astype(np.float64) + step * v) - gradient(x.astype(np.float64) - step * v)) / (2 * step)
    once = gradgen.vjp(model, wrt=["x"], of=["y"])
    twice = gradgen.jvp(once, wrt=["x"], of=["grad_x"])
    feeds = dict(zip([i.name for i in twice.graph.input], (x, ct, v), strict=True))
    found = Evaluator(twice, strict=True)(feeds)
    np.testing.assert_allclose(found[twice.graph.output[-1].name], want, rtol=0, atol=2e-5 * np.abs(want).max())
    tangent = gradgen.jvp(model, wrt=["x"], of=["y"])
    found = Evaluator(tangent, strict=True)(dict(zip([i.name for i in tangent.graph.input], (x, v), strict=True)))
    inner = float((found[tangent.graph.output[-1].name] * ct).sum())
    assert abs(inner - float((gradient(x) * v).sum())) <= 1e-5 * np.abs(gradient(x) * v).sum()


@pytest.mark.parametrize(("scale", "bias"), [(2, 0), (1, 1), (None, 0)])
def test_instance_normalization_with_another_scale_stays(scale, bias):
    model = node_model("InstanceNormalization", {"x": (2, 3, 8), "scale": [3], "bias": [3]})
    for name, number in (("scale", scale), ("bias", bias)):
        if number is not None:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(3, number, np.float32), name))
            model.graph.input.remove(next(i for i in model.graph.input if i.name == name))
    result = gradgen.vjp(model, wrt=["x"], of=["y"])
    assert "InstanceNormalization" in {n.op_type for n in result.graph.node}
