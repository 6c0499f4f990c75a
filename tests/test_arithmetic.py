"""Arithmetic at ties, edges and poles, where finite differences say nothing; expected values are worked out by hand."""

import numpy as np
import onnx
import onnx.parser
import pytest
from single_node import gradients, session

import gradgen

INF, NAN = np.inf, np.nan
same = np.testing.assert_array_equal
close = np.testing.assert_allclose


def test_abs_at_zero():
    same(gradients("Abs", {"x": [-2.0, -0.0, 0.0, 3.0]}, [5.0, 5.0, 5.0, 5.0]), [-5, 0, 0, 5])


@pytest.mark.parametrize("op_type", ["Max", "Min"])
def test_ties_are_split_evenly(op_type):
    a, b = gradients(op_type, {"a": [1.0, 2.0, 2.0], "b": [1.0, 3.0, 1.0]}, [4.0, 6.0, 8.0])
    first, second = ([2, 0, 8], [2, 6, 0]) if op_type == "Max" else ([2, 6, 0], [2, 0, 8])
    same(a, first)
    same(b, second)


def test_ties_among_three_with_broadcasting():
    a, b, c = gradients(
        "Max", {"a": [[1.0], [5.0]], "b": [1.0, 2.0, 0.0], "c": 1.0}, [[3.0, 4.0, 6.0], [1.0, 1.0, 1.0]]
    )
    # Row 0: all three tie; b alone; a and c tie. Row 1: a alone.
    same(a, [[1 + 0 + 3], [3]])
    same(b, [1, 4, 0])
    same(c, 1 + 3)


def test_an_input_given_twice_gets_its_whole_cotangent():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (float[3] y) { y = Max(x, x) }'
    )
    result = session(gradgen.vjp(model)).run(["grad_x"], {"x": np.ones(3, "f"), "grad_y": np.full(3, 7, "f")})
    same(result[0], [7, 7, 7])


@pytest.mark.parametrize("op_type", ["Max", "Min", "Sum", "Mean"])
def test_one_operand_is_the_identity(op_type):
    same(gradients(op_type, {"a": [1.0, -2.0]}, [3.0, 4.0]), [3, 4])


def test_where_gives_exactly_zero_to_the_branch_not_taken():
    condition = np.array([True, False, True, False])
    x, y = gradients(
        "Where", {"c": condition, "x": [1.0, INF, 2.0, NAN], "y": [NAN, 1.0, -INF, 2.0]}, [INF, NAN, 3.0, -INF]
    )
    same(x, [INF, 0, 3, 0])
    same(y, [0, NAN, 0, -INF])


@pytest.mark.parametrize(
    "op_type, x, at_one, at_zero",
    [
        ("Sqrt", [0.0, 4.0, -1.0], [INF, 0.25, NAN], [0, 0, 0]),
        ("Log", [0.0, 4.0, -1.0], [INF, 0.25, -1], [0, 0, 0]),
        ("Reciprocal", [0.0, 4.0, -2.0], [-INF, -0.0625, -0.25], [0, 0, 0]),
    ],
)
def test_poles_are_infinite_for_a_cotangent_and_zero_for_none(op_type, x, at_one, at_zero):
    same(gradients(op_type, {"x": x}, 1.0), at_one)
    same(gradients(op_type, {"x": x}, -1.0), np.negative(at_one))
    same(gradients(op_type, {"x": x}, 0.0), at_zero)


def test_div_at_a_zero_divisor():
    a, b = gradients("Div", {"a": [3.0, 3.0, 3.0], "b": [0.0, 0.0, 2.0]}, [1.0, 0.0, 1.0])
    same(a, [INF, 0, 0.5])
    same(b, [-INF, 0, -0.75])


@pytest.mark.parametrize(
    "body",
    ["y = Sqrt(x)", "y = Log(x)", "y = Reciprocal(x)", "one = Sqrt(k)  y = Div(one, x)", "y = Pow(x, p)",
     "y = Pow(x, half)", "y = Pow(x, minus)"],
)  # fmt: skip
def test_a_where_in_front_of_a_pole_is_safe(body):
    """Where(x > 0, f(x), 0) has the gradient f' for x > 0 and 0 elsewhere, at the pole too."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] z)
        <float[1] k = {{1.0}}, float[1] p = {{0.3}}, float[1] half = {{0.5}}, float[1] minus = {{-1.0}},
         float[1] nothing = {{0.0}}> {{ {body}  c = Greater(x, nothing)  z = Where(c, y, nothing) }}""")
    found = session(gradgen.value_and_grad(model, reduce="sum")).run(
        ["grad_x"], {"x": np.array([0.0, 4.0, -1.0, 0.25], "f")}
    )[0]
    f = {"Sqrt": lambda x: 0.5 / np.sqrt(x), "Log": lambda x: 1 / x, "Reciprocal": lambda x: -1 / x**2}
    slope = {"y = Pow(x, p)": lambda x: 0.3 * x**-0.7, "y = Pow(x, half)": f["Sqrt"]}.get(
        body, f["Sqrt"] if "y = Sqrt" in body else f["Log"] if "Log" in body else f["Reciprocal"]
    )
    close(found, [0, slope(4.0), 0, slope(0.25)], rtol=1e-6)


def test_a_where_in_front_of_a_remainder_of_zero_is_safe():
    """fmod(a, 0) is NaN; where it is left out, both gradients are 0. Elsewhere they are 1 and −trunc(a / b)."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[4] a, float[4] b) => (float[4] z) <float[1] nothing = {0.0}> {
        y = Mod <fmod = 1> (a, b)  c = Greater(b, nothing)  z = Where(c, y, nothing) }""")
    feeds = {"a": np.array([3.0, 5.0, -7.0, 0.0], "f"), "b": np.array([0.0, 2.0, 3.0, 0.0], "f")}
    a, b = session(gradgen.value_and_grad(model, reduce="sum")).run(["grad_a", "grad_b"], feeds)
    same(a, [0, 1, 1, 0])
    same(b, [0, -2, 2, 0])


POWERS = [0.0, 1.0, 2.0, 3.0, 0.5, -1.0, 5.0, -2.0, 1.5]


@pytest.mark.parametrize("y", POWERS)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_pow_to_the_base(y, known, kind):
    """y·x^(y−1) for every sign of the base, 0 where y = 0, by a known exponent and by one that is an input."""
    if kind is np.int64 and y % 1:
        pytest.skip("not a whole exponent")
    x = np.array([-2.0, -1.0, 0.0, 0.25, 4.0])
    with np.errstate(all="ignore"):
        want = np.zeros(5) if y == 0 else y * np.power(x, y - 1)
    got = gradients("Pow", {"x": x, "y": np.array(y, kind)}, 3.0, wrt="x", constants=["y"] if known else [])
    if y == -1.0:
        want = np.abs(want) * -1  # at 0: −1/x² has the same sign on both sides
    close(got, 3 * want, rtol=1e-6)
    assert np.isfinite(got[:2]).all() or y % 1


@pytest.mark.parametrize("known", [True, False])
def test_pow_with_exponents_that_differ(known):
    x = np.array([[-3.0, -2.0, 0.0, 0.0, 0.0, 2.0]])
    y = np.array([2.0, -1.0, 0.0, 1.0, 2.0, 0.0])
    got = gradients("Pow", {"x": x, "y": y}, wrt="x", constants=["y"] if known else [])
    close(got, [[-6, -0.25, 0, 1, 0, 0]], rtol=1e-6)


def test_pow_to_the_exponent_at_a_zero_base():
    """x^y·ln x, 0 where x = 0 and y ≥ 0."""
    got = gradients("Pow", {"x": [0.0, 0.0, 0.0, 2.0, 1.0], "y": [0.0, 2.0, 0.5, 3.0, 7.0]}, wrt="y")
    close(got, [0, 0, 0, 8 * np.log(2), 0], rtol=1e-6)


def test_pow_to_the_exponent_without_a_cotangent():
    same(gradients("Pow", {"x": [0.0, -2.0, -2.0], "y": [-1.0, 2.0, 0.5]}, 0.0, wrt="y"), [0, 0, 0])


def test_pow_with_an_exponent_of_another_type():
    close(gradients("Pow", {"x": [0.5, 2.0], "y": np.array([2, 3], np.int32)}, wrt="x"), [1, 12])
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2] x, double[2] y) => (float[2] z) { z = Pow(x, y) }'
    )
    fed = {"x": np.array([0.5, 2.0], "f"), "y": np.array([2.0, 3.0]), "grad_z": np.ones(2, "f")}
    dx, dy = session(gradgen.vjp(model)).run(["grad_x", "grad_y"], fed)
    assert dx.dtype == np.float32 and dy.dtype == np.float64
    close(dx, [1, 12], rtol=1e-6)
    close(dy, [np.log(0.5) / 4, 8 * np.log(2)], rtol=1e-6)


def test_pow_squares_without_a_power():
    """A known exponent of 2 costs two multiplications."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (float[3] y) <float p = {2.0}> { y = Pow(x, p) }'
    )
    assert [n.op_type for n in gradgen.vjp(model).graph.node] == ["Pow", "Mul", "Mul"]


def test_div_by_a_known_number_is_one_division():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (float[3] y) <float p = {3.0}> { y = Div(x, p) }'
    )
    assert [n.op_type for n in gradgen.vjp(model).graph.node] == ["Div", "Div"]


@pytest.mark.parametrize("a, b", [(7.3, 2.0), (-7.3, 2.0), (7.3, -2.0), (-7.3, -2.0), (1.0, 0.1), (0.3, 5.0)])
def test_mod_towards_zero(a, b):
    """The derivative to the divisor is −trunc(a/b), with the quotient that fmod itself takes."""
    da, db = gradients("Mod", {"a": [a], "b": [b]}, 2.0, fmod=1)
    exact = np.fmod(np.float32(a), np.float32(b))
    same(da, [2])
    same(db, [-2 * np.round((np.float64(np.float32(a)) - exact) / np.float64(np.float32(b)))])


def test_the_second_derivative_survives_a_zero_cotangent():
    """A zero cotangent inside the domain must not hide how the gradient depends on it: d(ct·f')/d(ct) = f'."""
    for body, want in (("Sqrt(x)", 0.25), ("Log(x)", 0.25), ("Reciprocal(x)", -0.0625), ("Pow(x, p)", 12.0 * 4)):
        model = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 21]> g (float[1] x, float[1] p) => (float[1] y) { y = ' + body + " }"
        )
        again = gradgen.vjp(gradgen.vjp(model, wrt=["x"]), wrt=["grad_y"], of=["grad_x"])
        seed = [i.name for i in again.graph.input][-1]
        fed = {"x": np.array([4.0], "f"), "p": np.array([3.0], "f"), "grad_y": np.zeros(1, "f"), seed: np.ones(1, "f")}
        found = session(again).run([again.graph.output[-1].name], fed)[0]
        close(found, [want], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_float_types(dtype):
    close(gradients("Pow", {"x": [2.0, 0.5], "y": [3.0, 2.0]}, wrt="x", dtype=dtype), [12, 1], rtol=2e-3)
    close(gradients("Div", {"a": [2.0, 0.5], "b": [4.0, 2.0]}, wrt="b", dtype=dtype), [-0.125, -0.125], rtol=2e-3)
    close(gradients("Sqrt", {"x": [4.0, 0.25]}, dtype=dtype), [0.25, 1], rtol=2e-3)
    close(gradients("Max", {"x": [4.0, 0.25], "y": [4.0, 1.0]}, wrt="x", dtype=dtype), [0.5, 0], rtol=2e-3)


@pytest.mark.parametrize("op_type", ["Exp", "Sinh", "Cosh"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_overflow_in_a_branch_that_is_not_taken_gives_zero(op_type, dtype):
    kind = {np.float16: "float16", np.float32: "float", np.float64: "double"}[dtype]
    if op_type != "Exp" and dtype != np.float32:
        kind, dtype = "float", np.float32  # onnxruntime has these in float32 alone
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({kind}[2] x, bool[2] c) => ({kind}[2] y)'
        f"{{ a = {op_type}(x)\n y = Where(c, x, a) }}"
    )
    runner = session(gradgen.vjp(proto))
    feeds = {"x": np.array([1000, 0.5], dtype), "c": np.array([True, False]), "grad_y": np.ones(2, dtype)}
    slope = {"Exp": np.exp, "Sinh": np.cosh, "Cosh": np.sinh}[op_type](0.5)
    np.testing.assert_allclose(runner.run(["grad_x"], feeds)[0], np.array([1, slope], dtype), rtol=2e-3)
