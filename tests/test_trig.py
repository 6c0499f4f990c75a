"""Trigonometric and hyperbolic functions at the edges of their domains and for large arguments, in float32."""

import math

import numpy as np
import onnx.parser
import pytest
from single_node import gradients, session

import gradgen
from gradgen.evaluate import Evaluator

INF, NAN = np.inf, np.nan
same = np.testing.assert_array_equal
close = np.testing.assert_allclose


@pytest.mark.parametrize(
    "op_type, x, want",
    [
        ("Asin", [1.0, -1.0], [INF, INF]),
        ("Acos", [1.0, -1.0], [-INF, -INF]),
        ("Atanh", [1.0, -1.0], [INF, INF]),
        ("Acosh", [1.0], [INF]),
    ],
)
def test_edges_are_infinite_for_a_cotangent_and_zero_for_none(op_type, x, want):
    same(gradients(op_type, {"x": x}, 2.0), want)
    same(gradients(op_type, {"x": x}, -2.0), np.negative(want))
    same(gradients(op_type, {"x": x}, 0.0), np.zeros(len(x)))


@pytest.mark.parametrize(
    "op_type, outside", [("Asin", 1.5), ("Acos", -3.0), ("Atanh", 2.0), ("Acosh", 0.5), ("Acosh", -2.0)]
)
def test_beyond_the_domain_no_cotangent_gives_no_gradient(op_type, outside):
    same(gradients(op_type, {"x": [outside]}, 0.0), [0])


@pytest.mark.parametrize("op_type", ["Asin", "Acos", "Acosh"])
def test_beyond_the_domain_a_cotangent_gives_nan(op_type):
    assert np.isnan(gradients(op_type, {"x": [0.5 if op_type == "Acosh" else 1.5]}, 1.0)).all()


def test_acosh_below_its_domain_is_nan_on_the_far_side_too():
    """x² − 1 is positive below −1, where the function is not defined."""
    assert np.isnan(gradients("Acosh", {"x": [-2.0]}, 1.0)).all()


@pytest.mark.parametrize("op_type", ["Asin", "Acos"])
def test_close_to_the_edge(op_type):
    """1 − x² loses half the digits here, (1 − x)(1 + x) none."""
    x = np.float32(1) - np.float32(2**-20)
    exact = 1 / math.sqrt((1 - float(x)) * (1 + float(x)))
    close(gradients(op_type, {"x": [x]}), [exact if op_type == "Asin" else -exact], rtol=3e-7)


def test_acosh_of_a_large_number():
    close(gradients("Acosh", {"x": [3e30]}), [1 / 3e30], rtol=1e-6)


@pytest.mark.parametrize(
    "op_type, x, want",
    [
        ("Tanh", [0.0, 50.0, -50.0, INF], [1, 0, 0, 0]),
        ("Atan", [0.0, 1e30, -1e30, INF], [1, 0, 0, 0]),
        ("Asinh", [0.0, 1e30, INF], [1, 0, 0]),
        ("Erf", [50.0, -50.0, INF], [0, 0, 0]),
        ("Tan", [0.0, -0.0], [1, 1]),
        ("Sinh", [0.0], [1]),
        ("Cosh", [0.0], [0]),
        ("Sin", [0.0], [1]),
        ("Cos", [0.0], [0]),
    ],
)
def test_zeros_and_limits(op_type, x, want):
    same(gradients(op_type, {"x": x}, 1.0), want)


def test_erf_at_zero_has_no_rounded_factor():
    """2/√π keeps the digits of float64."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (double[1] x) => (double[1] y) { y = Erf(x) }'
    )
    found = Evaluator(gradgen.vjp(model))({"x": np.zeros(1), "grad_y": np.ones(1)})["grad_x"]
    close(found, [2 / math.sqrt(math.pi)], rtol=1e-15)


@pytest.mark.parametrize(
    "op_type, inside, slope",
    [
        ("Asin", 0.5, 1 / math.sqrt(0.75)),
        ("Acos", 0.5, -1 / math.sqrt(0.75)),
        ("Atanh", 0.5, 1 / 0.75),
        ("Acosh", 2.0, 1 / math.sqrt(3)),
    ],
)
def test_the_second_derivative_survives_a_zero_cotangent(op_type, inside, slope):
    """A zero cotangent inside the domain must not hide how the gradient depends on it."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[1] x) => (float[1] y) { y = ' + op_type + "(x) }"
    )
    again = gradgen.vjp(gradgen.vjp(model, wrt=["x"]), wrt=["grad_y"], of=["grad_x"])
    seed = [i.name for i in again.graph.input][-1]
    fed = {"x": np.array([inside], "f"), "grad_y": np.zeros(1, "f"), seed: np.ones(1, "f")}
    found = session(again).run([again.graph.output[-1].name], fed)[0]
    close(found, [slope], rtol=1e-6)
