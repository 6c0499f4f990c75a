"""Random nodes and training mode inside models: one draw serves forward and backward, none is repeated or merged."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import gradgen
from gradgen.differences import jacobian_fd
from gradgen.errors import GradientError, GradientWarning
from gradgen.evaluate import Evaluator

RANDOM = {"Dropout", "Bernoulli", "RandomNormalLike", "RandomUniformLike", "Multinomial"}


def parse(signature, body, initializers=""):
    """A model of opset 21 from text."""
    return onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g ({signature}) {f"<{initializers}>" if initializers else ""} {{ {body} }}""")


def run(model, feeds, strict=True, **options):
    """The derived model and everything that one run of it computes, each cotangent a fixed random array."""
    derived = gradgen.vjp(model, **options)
    assert drawn(derived) == drawn(model), "a draw was repeated or merged"
    rng = np.random.default_rng(5)
    seeds = {
        i.name: rng.uniform(0.5, 2, [d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in derived.graph.input
        if i.name not in feeds
    }
    return {**seeds, **Evaluator(derived, strict=strict)({**feeds, **seeds})}


def drawn(model):
    """How many random nodes there are of each op."""
    names = [n.op_type for n in model.graph.node if n.op_type in RANDOM]
    return {n: names.count(n) for n in names}


def floats(*shape, seed=1):
    return np.random.default_rng(seed).uniform(0.5, 2, shape).astype(np.float32)


def test_reparameterised_normal():
    model = parse(
        "float[40, 5] mu, float[5] sigma) => (float[40, 5] y",
        "noise = RandomNormalLike(mu) scaled = Mul(sigma, noise) y = Add(mu, scaled)",
    )
    feeds = {"mu": floats(40, 5), "sigma": floats(5, seed=2)}
    got = run(model, feeds)
    np.testing.assert_array_equal(got["grad_mu"], got["grad_y"])
    noise = (got["y"].astype(np.float64) - feeds["mu"]) / feeds["sigma"]
    assert noise.std() > 0.5
    np.testing.assert_allclose(got["grad_sigma"], (noise * got["grad_y"]).sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("draw", ["RandomUniformLike(x)", "RandomNormalLike <mean: float = 2.0> (x)", "Bernoulli(p)"])
def test_a_factor_that_is_drawn_is_the_gradient(draw):
    model = parse("float[30, 4] x, float[30, 4] p) => (float[30, 4] y", f"r = {draw} y = Mul(x, r)")
    feeds = {"x": floats(30, 4), "p": np.full((30, 4), 0.5, np.float32)}
    got = run(model, feeds, wrt=["x"])
    assert got["y"].std() > 0
    np.testing.assert_allclose(got["grad_x"] * feeds["x"], got["y"] * got["grad_y"], rtol=1e-6)


def test_equal_draws_stay_two():
    model = parse(
        "float[30, 4] x, float[30, 4] z) => (float[30, 4] y",
        "r = RandomUniformLike(x) s = RandomUniformLike(x) a = Mul(x, r) b = Mul(z, s) y = Add(a, b)",
    )
    feeds = {"x": floats(30, 4), "z": floats(30, 4, seed=2)}
    got = run(model, feeds)
    weighted = got["grad_x"] * feeds["x"] + got["grad_z"] * feeds["z"]
    np.testing.assert_allclose(weighted, got["y"] * got["grad_y"], rtol=1e-5)
    assert np.abs(got["grad_x"] - got["grad_z"]).max() > 0.1


def test_equal_dropouts_stay_two_as_all_forward_nodes_do():
    def model(training):
        return parse(
            "float[50, 4] x) => (float[50, 4] y",
            "a = Dropout(x, ratio, training) b = Dropout(x, ratio, training) y = Mul(a, b)",
            f"float ratio = {{0.5}}, bool training = {{{training}}}",
        )

    feeds = {"x": floats(50, 4)}
    got = run(model(1), feeds)
    # d(a·b)/dx with a = x·m/(1 − p), b = x·n/(1 − p): 2·y/x; a quarter of the elements survive both draws.
    np.testing.assert_allclose(got["grad_x"], 2 * got["y"] / feeds["x"] * got["grad_y"], rtol=1e-5)
    assert 0.1 < np.mean(got["y"] != 0) < 0.4
    derived = gradgen.vjp(model(0))
    assert drawn(derived) == {"Dropout": 2}


@pytest.mark.parametrize("op", ["Bernoulli(p)", "RandomNormalLike(p)", "RandomUniformLike(p)"])
def test_the_parameters_of_a_draw_have_a_zero_gradient_that_is_reported(op):
    model = parse("float[3] p) => (float[3] y", f"y = {op}")
    with pytest.warns(GradientWarning, match="'p' does not influence"):
        got = run(model, {"p": np.full(3, 0.5, np.float32)})
    np.testing.assert_array_equal(got["grad_p"], np.zeros(3))


def test_multinomial_stops_the_gradient_to_its_logits():
    model = parse(
        "float[2, 6] x, float[6, 3] table) => (float[2, 4, 3] y",
        "k = Multinomial <sample_size: int = 4> (x) y = Gather(table, k)",
    )
    feeds = {"x": floats(2, 6), "table": floats(6, 3, seed=2)}
    with pytest.warns(GradientWarning, match="'x' does not influence"):
        got = run(model, feeds)
    np.testing.assert_array_equal(got["grad_x"], np.zeros((2, 6)))
    # The rows that were drawn get their cotangents: ⟨table, grad⟩ = ⟨y, ct⟩.
    np.testing.assert_allclose(np.sum(feeds["table"] * got["grad_table"]), np.sum(got["y"] * got["grad_y"]), rtol=1e-5)


MLP = """h = MatMul(x, w1) r = Relu(h) d, mask = Dropout(r, ratio, training) y = MatMul(d, w2)"""


def test_dropout_in_a_trained_network():
    model = parse(
        "float[8, 6] x, float[6, 10] w1, float[10, 3] w2) => (float[8, 3] y, bool[8, 10] mask",
        MLP,
        "float ratio = {0.3}, bool training = {1}",
    )
    feeds = {"x": floats(8, 6), "w1": floats(6, 10, seed=2) - 1, "w2": floats(10, 3, seed=3) - 1}
    got = run(model, feeds, of=["y"])
    x, w1, w2 = (feeds[n].astype(np.float64) for n in ("x", "w1", "w2"))
    kept = got["mask"] / 0.7
    h = x @ w1
    d = np.maximum(h, 0) * kept
    dh = got["grad_y"] @ w2.T * kept * (h > 0)
    np.testing.assert_allclose(got["y"], d @ w2, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["grad_w2"], d.T @ got["grad_y"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["grad_w1"], x.T @ dh, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["grad_x"], dh @ w1.T, rtol=1e-4, atol=1e-5)


def test_dropout_whose_mode_the_caller_decides():
    model = parse(
        "float[40, 5] x, bool training) => (float[40, 5] y", "y = Dropout(x, ratio, training)", "float ratio = {0.5}"
    )
    for training in (False, True):
        feeds = {"x": floats(40, 5), "training": np.array(training)}
        got = run(model, feeds)
        np.testing.assert_allclose(got["grad_x"] * feeds["x"], got["y"] * got["grad_y"], rtol=1e-6)
        assert np.any(got["y"] == 0) == training


def test_second_derivative_reads_the_same_draw():
    model = parse(
        "float[20, 5] x) => (float[20, 5] y",
        "d = Dropout(x, ratio, training) s = Mul(d, d) y = Mul(s, d)",
        "float ratio = {0.5}, bool training = {1}",
    )
    first = gradgen.vjp(model)
    feeds = {"x": floats(20, 5), "grad_y": np.ones((20, 5), np.float32)}
    got = run(first, feeds, wrt=["x"], of=["grad_x"])
    scale = 2 * (got["y"] != 0)
    np.testing.assert_allclose(got["grad_x"], 3 * scale**3 * feeds["x"] ** 2, rtol=1e-5)
    np.testing.assert_allclose(got["grad2_x"], 6 * scale**3 * feeds["x"] * got["grad2_grad_x"], rtol=1e-5)


def test_batch_normalization_in_a_trained_network():
    model = parse(
        "double[6, 4] x, double[4, 3] w, double[3] scale, double[3] bias, double[3] mean, double[3] var) => "
        "(double[6, 3] y, double[3] new_mean",
        "h = MatMul(x, w) n, new_mean, new_var = BatchNormalization <training_mode: int = 1, momentum: float = 0.75> "
        "(h, scale, bias, mean, var) y = Tanh(n)",
    )
    shapes = {"x": (6, 4), "w": (4, 3), "scale": (3,), "bias": (3,), "mean": (3,), "var": (3,)}
    feeds = {n: floats(*s, seed=k).astype(np.float64) for k, (n, s) in enumerate(shapes.items())}
    cotangents = {"y": floats(6, 3, seed=9).astype(np.float64), "new_mean": floats(3, seed=10).astype(np.float64)}
    derived = gradgen.vjp(model)
    got = Evaluator(derived)({**feeds, **{f"grad_{n}": c for n, c in cotangents.items()}})
    for name in ("x", "w", "scale", "bias", "mean"):
        want = jacobian_fd(Evaluator(model), feeds, name, cotangents)[0]
        np.testing.assert_allclose(got[f"grad_{name}"], want, rtol=1e-6, atol=1e-7, err_msg=name)


NORMAL = [
    onnx.helper.make_node("RandomNormalLike", ["mu"], ["noise"]),
    onnx.helper.make_node("Mul", ["sigma", "noise"], ["scaled"]),
    onnx.helper.make_node("Add", ["mu", "scaled"], ["y"]),
]


def test_a_function_takes_the_draw_that_it_needs():
    with pytest.raises(GradientError, match="put 'noise' .* into zs"):
        gradgen.gradient_of_nodes(NORMAL, ["mu", "sigma"], "y")
    function = gradgen.gradient_of_nodes(NORMAL, ["mu", "sigma"], "y", ["noise"])
    assert list(function.input) == ["mu", "sigma", "noise", "dy"]
    assert not RANDOM & {n.op_type for n in function.node}


def test_a_function_needs_no_draw_of_a_dropout_in_inference():
    nodes = [
        onnx.helper.make_node("Dropout", ["x"], ["d"]),
        onnx.helper.make_node("Mul", ["d", "d"], ["y"]),
    ]
    function = gradgen.gradient_of_nodes(nodes, ["x"], "y")
    assert list(function.input) == ["x", "dy"]
    nodes[0].input.extend(["", "training"])
    with pytest.raises(GradientError, match="put 'd' .* into zs"):
        gradgen.gradient_of_nodes(nodes, ["x"], "y", ["training"])
