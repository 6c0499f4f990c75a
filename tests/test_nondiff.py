"""Operators at which a gradient stops: nothing flows through them, and by differences nothing should."""

import numpy as np
import onnx.defs
import onnx.parser
import pytest
from single_node import session

import gradgen
from gradgen.engine.registry import is_random, registered

FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)")


@pytest.mark.parametrize("op_type", ["Floor", "Ceil", "Round", "Sign", "Hardmax", "EyeLike"])
def test_the_slope_is_zero(op_type):
    """The primal does not move when its input moves a little, away from the steps."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2, 3] x) => (float[2, 3] y) { y = ' + op_type + "(x) }"
    )
    x = np.array([[-1.3, 0.2, 2.7], [0.7, -0.4, 1.1]], "f")
    run = session(model)
    for step in (-1e-2, 1e-2):
        np.testing.assert_array_equal(run.run(None, {"x": x + np.float32(step)})[0], run.run(None, {"x": x})[0])
    row = registered().find("", op_type, 21)
    assert row is not None and row.disposition(0) == "zero"


@pytest.mark.parametrize(
    "body",
    [
        "s = Floor(x)  y = Mul(x, s)",
        "b = Greater(x, k)  s = Cast<to = 1>(b)  y = Mul(x, s)",
        "h = Shape(x)  s = Cast<to = 1>(h)  y = Mul(x, s)",
        "i = ArgMax<keepdims = 1>(x)  s = Cast<to = 1>(i)  y = Mul(x, s)",
        "n = IsNaN(x)  s = Cast<to = 1>(n)  y = Add(x, s)",
    ],
)
def test_only_the_other_way_counts(body):
    """y = x·s with s behind a stop has the gradient s."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[3] x) => (float[3] y, float[N] s) <float k = {{0.5}}> {{ {body} }}""")
    found, s = session(gradgen.vjp(model, of=["y"])).run(
        ["grad_x", "s"], {"x": np.array([0.2, 1.5, 2.5], "f"), "grad_y": np.ones(3, "f")}
    )
    np.testing.assert_array_equal(found, np.broadcast_to(1 if "Add" in body else s, 3))


@pytest.mark.filterwarnings("ignore::gradgen.GradientWarning")
def test_a_gradient_that_stops_everywhere_is_zero():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (float[3] y) { y = Round(x) }'
    )
    found = session(gradgen.vjp(model)).run(["grad_x"], {"x": np.ones(3, "f"), "grad_y": np.ones(3, "f")})[0]
    np.testing.assert_array_equal(found, np.zeros(3))


def test_every_op_without_a_float_result_has_a_row():
    """No operator of the standard that yields no floats is left out, quantised ones apart."""
    quantised = {"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "QuantizeLinear"}
    for schema in onnx.defs.get_all_schemas():
        if schema.domain or schema.deprecated or schema.name in quantised or schema.name in ("If", "Loop", "Scan"):
            continue
        if not any("float" in t for f in schema.outputs for t in f.types):
            assert registered().find("", schema.name, 21) is not None, schema.name


def test_random_ops_are_known_as_such():
    for op_type in (
        "RandomNormal",
        "RandomUniform",
        "RandomNormalLike",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
    ):
        row = registered().find("", op_type, 21)
        assert row is not None and row.random and is_random("", op_type)
