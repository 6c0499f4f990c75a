# Gradient nodes of the standard: onnx's own cases, finite differences, other values than the named ones, subgraphs.
"""Tests of lower_gradient_ops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnx_ir as ir
import pytest
from click.testing import CliRunner
from lowering_models import TRAINING, differences, draw, gradient, lower, model, run
from onnx import numpy_helper, parser

import gradgen
from gradgen.cli import cli
from gradgen.evaluate import Evaluator

SIMPLE = Path(onnx.backend.test.__file__).parent / "data" / "simple"


def ops(proto: onnx.ModelProto) -> list[str]:
    return [n.op_type for n in proto.graph.node]


@pytest.mark.parametrize("name", ["gradient_of_add", "gradient_of_add_and_mul"])
def test_the_cases_of_onnx(name):
    folder = SIMPLE / f"test_{name}"
    lowered = lower(onnx.load(folder / "model.onnx"))
    names = [i.name for i in lowered.graph.input]
    for data in sorted(folder.glob("test_data_set_*")):
        inputs, outputs = (
            [numpy_helper.to_array(onnx.load_tensor(f)) for f in sorted(data.glob(f"{kind}_*.pb"))]
            for kind in ("input", "output")
        )
        found = run(lowered, **dict(zip(names, inputs, strict=True)))
        for array, want in zip(found.values(), outputs, strict=True):
            np.testing.assert_array_equal(array, want)


TWO_LAYERS = "h = MatMul(x, w)\n t = Tanh(h)\n y = MatMul(t, z)"


def two_layers(x: np.ndarray, w: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.tanh(x @ w) @ z


def test_inputs_that_are_the_named_tensors():
    text = f"""g (double[N,3] x, double[3,4] w, double[4,2] z) => (double[N,2] y, double[3,4] dw, double[4,2] dz) {{
      {TWO_LAYERS}
      {gradient("dw, dz", "w, z, x", "w z", "y", "x")} }}"""
    lowered = lower(model(text))
    x, w, z = draw(5, 3), draw(3, 4), draw(4, 2)
    found = run(lowered, x=x, w=w, z=z)
    np.testing.assert_allclose(found["y"], two_layers(x, w, z), rtol=1e-12)
    np.testing.assert_allclose(found["dw"], differences(lambda v: two_layers(x, v, z), w), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(found["dz"], differences(lambda v: two_layers(x, w, v), z), rtol=1e-7, atol=1e-8)
    assert ops(lowered).count("Tanh") == 1 and ops(lowered).count("MatMul") == 2  # nothing is computed twice


def test_an_intermediate_tensor_is_an_independent_variable():
    text = f"""g (double[N,3] x, double[3,4] w, double[4,2] z) => (double[N,2] y, double[N,4] dh, double[N,3] dx) {{
      h = MatMul(x, w)
      s = ReduceSum(x)
      t = Tanh(h)
      p = MatMul(t, z)
      y = Mul(p, s)
      {gradient("dh, dx", "h, x, z", "h x", "y", "z")} }}"""
    x, w, z = draw(5, 3), draw(3, 4), draw(4, 2)
    found = run(lower(model(text)), x=x, w=w, z=z)

    def value(h, x):
        return (np.tanh(h) @ z) * x.sum()

    np.testing.assert_allclose(found["dh"], differences(lambda v: value(v, x), x @ w), rtol=1e-7, atol=1e-8)
    # Not through h, which the node takes as given.
    np.testing.assert_allclose(found["dx"], differences(lambda v: value(x @ w, v), x), rtol=1e-7, atol=1e-7)


def test_inputs_that_are_other_tensors():
    text = f"""g (double[N,3] x, double[3,4] w, double[4,2] z, double[M,4] h1, double[4,2] z1)
        => (double[N,2] y, double[M,4] dh, double[4,2] dz) {{
      {TWO_LAYERS}
      {gradient("dh, dz", "h1, z1", "h z", "y")} }}"""
    x, w, z, h1, z1 = draw(5, 3), draw(3, 4), draw(4, 2), draw(7, 4, seed=1), draw(4, 2, seed=1)
    found = run(lower(model(text)), x=x, w=w, z=z, h1=h1, z1=z1)
    np.testing.assert_allclose(found["y"], two_layers(x, w, z), rtol=1e-12)
    want = differences(lambda v: np.tanh(v) @ z1, h1)
    np.testing.assert_allclose(found["dh"], want, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(found["dz"], differences(lambda v: np.tanh(h1) @ v, z1), rtol=1e-7, atol=1e-8)


def test_one_tensor_given_for_two_names_has_two_derivatives():
    text = f"""g (double[3] a, double[3] b, double[3] v) => (double[3] y, double[3] da, double[3] db) {{
      s = Sin(a)
      y = Mul(s, b)
      {gradient("da, db", "v, v", "a b", "y")} }}"""
    a, b, v = draw(3), draw(3, seed=1), draw(3, seed=2)
    found = run(lower(model(text)), a=a, b=b, v=v)
    np.testing.assert_allclose(found["da"], np.cos(v) * v, rtol=1e-12)
    np.testing.assert_allclose(found["db"], np.sin(v), rtol=1e-12)


def test_a_given_tensor_that_y_reads_elsewhere_is_a_constant_there():
    text = f"""g (double[3] a, double[3] b) => (double[3] y, double[3] da) {{
      e = Exp(b)
      y = Mul(a, e)
      {gradient("da", "b", "a", "y")} }}"""
    a, b = draw(3), draw(3, seed=1)
    found = run(lower(model(text)), a=a, b=b)
    np.testing.assert_allclose(found["da"], np.exp(b), rtol=1e-12)


NESTED = f"""g (double[N,3] x, double[3,2] w, double[N,2] l)
    => (double o, double[N,3] dx, double[3,2] dw, double[N,3] dwx, double[3,2] dww) {{
  p = MatMul(x, w)
  e = Sub(p, l)
  c = Mul(e, e)
  q = Mul(c, e)
  o = ReduceSum <keepdims = 0> (q)
  {gradient("dx, dw", "x, w, l", "x w", "o", "l")}
  {gradient("dwx, dww", "x, w, l", "x w", "dw", "l")} }}"""


def test_second_order():
    x, w, label = draw(4, 3), draw(3, 2), draw(4, 2, seed=5)

    def slope(x, w):
        return x.T @ (3 * (x @ w - label) ** 2)

    found = run(lower(model(NESTED)), x=x, w=w, l=label)
    np.testing.assert_allclose(found["dw"], slope(x, w), rtol=1e-10)
    np.testing.assert_allclose(found["dx"], 3 * (x @ w - label) ** 2 @ w.T, rtol=1e-10)
    np.testing.assert_allclose(found["dwx"], differences(lambda v: slope(v, w), x), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found["dww"], differences(lambda v: slope(x, v), w), rtol=1e-6, atol=1e-6)


def test_second_order_at_another_point():
    text = f"""g (double[3] x, double[3] v) => (double[3] y, double[3] d, double[3] dd) {{
      y = Sin(x)
      {gradient("d", "x", "x", "y")}
      {gradient("dd", "v", "x", "d")} }}"""
    x, v = draw(3), draw(3, seed=1)
    found = run(lower(model(text)), x=x, v=v)
    np.testing.assert_allclose(found["d"], np.cos(x), rtol=1e-12)
    np.testing.assert_allclose(found["dd"], -np.sin(v), rtol=1e-12)


def test_third_order():
    nodes = "\n".join(gradient(f"d{k + 1}", "x", "x", f"d{k}" if k else "y") for k in range(3))
    found = run(lower(model(f"g (double[3] x) => (double[3] d3) {{ y = Exp(x)\n {nodes} }}")), x=draw(3))
    np.testing.assert_allclose(found["d3"], np.exp(draw(3)), rtol=1e-12)


def test_outputs_that_are_left_out():
    text = f"""g (double[3] a, double[3] b) => (double[3] db) {{
      y = Mul(a, b)
      {gradient(",db", "a, b", "a b", "y")} }}"""
    proto = model(text.replace(",db =", '"", db ='))
    assert list(proto.graph.node[1].output) == ["", "db"]
    found = run(lower(proto), a=draw(3), b=draw(3, seed=1))
    np.testing.assert_array_equal(found["db"], draw(3))


def test_what_is_not_named_keeps_its_value():
    text = f"""g (double[2,3] x) => (double[2,4] y, double[2,3] dx) {{
      h = MatMul(x, w)
      y = Sin(h)
      {gradient("dx", "x", "x", "y")} }}"""
    x, w = draw(2, 3), draw(3, 4)
    found = run(lower(model(text, w=w)), x=x)
    np.testing.assert_allclose(found["dx"], np.cos(x @ w) @ w.T, rtol=1e-12)


def test_a_weight_that_is_differentiated_twice():
    text = f"""g (double[3] x) => (double[3] y, double ds, double dds) {{
      p = Pow(x, s)
      y = Mul(p, p)
      {gradient("ds", "s", "s", "y")}
      {gradient("dds", "s", "s", "ds")} }}"""
    x, s = np.abs(draw(3)) + 0.5, np.array(2.0)
    found = run(lower(model(text, s=s)), x=x)
    np.testing.assert_allclose(found["ds"], np.sum(x**4 * 2 * np.log(x)), rtol=1e-10)
    np.testing.assert_allclose(found["dds"], np.sum(x**4 * 4 * np.log(x) ** 2), rtol=1e-10)


def test_a_value_that_has_no_influence():
    text = f"""g (double[3] a, double[2] b) => (double[3] y, double[2] db) {{
      y = Sin(a)
      {gradient("db", "b, a", "b", "y", "a")} }}"""
    with pytest.warns(gradgen.GradientWarning, match="Gradient node 'db': 'b' does not influence 'y'"):
        lowered = lower(model(text))
    np.testing.assert_array_equal(run(lowered, a=draw(3), b=draw(2))["db"], np.zeros(2))


def test_dropout_is_drawn_once():
    text = f"""g (float[400] x) => (float[400] y, float[400] dx) {{
      on = Constant <value_int = 1> ()
      training = Cast <to = 9> (on)
      half = Constant <value_float = 0.5> ()
      d = Dropout(x, half, training)
      y = Mul(d, d)
      {gradient("dx", "x", "x", "y")} }}"""
    lowered = lower(model(text))
    assert ops(lowered).count("Dropout") == 1
    x = draw(400).astype(np.float32)
    found = run(lowered, x=x)
    dropped = found["y"] == 0
    assert 100 < dropped.sum() < 300
    np.testing.assert_allclose(found["dx"], np.where(dropped, 0, 8 * x), rtol=1e-5)


def test_noise_that_does_not_depend_on_the_given_values_is_drawn_once():
    text = f"""g (double[50] x, double[50] v) => (double[50] y, double[50] noise, double[50] dx) {{
      noise = RandomNormal <shape = [50], dtype = 11> ()
      s = Sin(x)
      y = Mul(s, noise)
      {gradient("dx", "v", "x", "y")} }}"""
    x, v = draw(50), draw(50, seed=1)
    found = run(lower(model(text)), x=x, v=v)
    np.testing.assert_allclose(found["dx"], np.cos(v) * found["noise"], rtol=1e-12)


def test_in_a_function_of_the_model():
    proto = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        g (double[3] x) => (double[3] p, double[3] q) {{ p = own.Slope(x)
          q = own.Slope(p) }}
        <domain: "own", opset_import: ["" : 21, "{TRAINING}" : 1]>
        Slope (a) => (d) {{ y = Sin(a)
          {gradient("d", "a", "a", "y")} }}"""
    )
    found = gradgen.lower_gradient_ops(proto)
    result = run(found, x=draw(3))
    np.testing.assert_allclose(result["q"], np.cos(np.cos(draw(3))), rtol=1e-12)


def test_an_old_opset():
    text = f"""g (float[2,3] x) => (float[2,3] y, float[2,3] dx) {{
      y = Softmax <axis = 1> (x)
      {gradient("dx", "x", "x", "z")} }}""".replace(
        "y = Softmax <axis = 1> (x)", "y = Softmax <axis = 1> (x)\n z = Mul(y, y)"
    )
    x = draw(2, 3).astype(np.float32)

    def value(v):
        e = np.exp(v)
        return (e / e.sum(1, keepdims=True)) ** 2

    found = run(lower(model(text, opset=11)), x=x)
    np.testing.assert_allclose(found["dx"], differences(value, x.astype(np.float64)), rtol=1e-4, atol=1e-6)


def test_the_result_is_differentiated():
    text = f"""g (double[3] x) => (double[3] d) {{ y = Sin(x)
      {gradient("d", "x", "x", "y")} }}"""
    derivative = gradgen.vjp(gradgen.lower_gradient_ops(model(text)))
    found = Evaluator(derivative, strict=True)({"x": draw(3), "grad_d": np.ones(3)})
    np.testing.assert_allclose(found["grad_x"], -np.sin(draw(3)), rtol=1e-12)


def test_a_model_without_gradient_nodes_is_returned_as_it_is():
    proto = parser.parse_model('<ir_version: 8, opset_import: ["" : 13]> g (float[3] x) => (float[3] y) { y = Sin(x) }')
    assert gradgen.lower_gradient_ops(proto) == proto


def test_an_ir_model_gives_an_ir_model():
    found = gradgen.lower_gradient_ops(ir.from_proto(model(NESTED)))
    assert isinstance(found, ir.Model)
    assert [v.name for v in found.graph.outputs] == ["o", "dx", "dw", "dwx", "dww"]


BAD = {
    "there is no such tensor": (
        gradient("d", "x", "x", "why"),
        "Gradient node 'd': y: 'why' is no value that it can see",
    ),
    "a near match": (gradient("d", "x", "xx", "y"), "xs: 'xx' is no value that it can see; near matches: 'x'"),
    "too few inputs": (gradient("d", "x", "x w", "y"), "it has 1 inputs, and xs and zs name 2"),
    "too many outputs": (gradient("d, e", "x", "x", "y"), "it has 2 outputs, and xs names 1"),
    "twice": (gradient("d", "x, x", "x", "y", "x"), "'x' is named twice in xs and zs"),
    "computed later": (gradient("d", "x", "x", "late"), "y: 'late' is computed after the node"),
    "an integer": (gradient("d", "i", "i", "y"), "Gradient node 'd': xs: 'i' is of int64"),
    "no rule": (
        gradient("d", "x", "x", "u"),
        "Gradient node 'd': no gradient for these nodes on the path:\n  own::Odd",
    ),
    "a draw": (gradient("d", "w", "x", "r"), "draws random numbers, which is never repeated: pass the named tensors"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_name_the_node_and_the_reason(case):
    node, message = BAD[case]
    proto = model(
        f"""g (double[3] x, double[3] w, int64[3] i, bool t) => (double[3] d, double[3] late) {{
        y = Mul(x, w)
        u = own.Odd(x)
        half = Constant <value_float = 0.5> ()
        r = Dropout(x, half, t)
        {node}
        late = Sin(y) }}"""
    )
    proto.opset_import.append(onnx.helper.make_opsetid("own", 1))
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("u", onnx.TensorProto.DOUBLE, [3]))
    with pytest.raises(gradgen.GradientError) as error:
        gradgen.lower_gradient_ops(proto)
    assert message in str(error.value)


def test_the_command(tmp_path):
    onnx.save(model(NESTED), tmp_path / "m.onnx")
    done = CliRunner().invoke(cli, ["lower", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out.onnx")])
    assert done.exit_code == 0, done.output
    assert TRAINING not in {e.domain for e in onnx.load(tmp_path / "out.onnx").opset_import}
    assert "2 Gradient nodes lowered" in done.output
    done = CliRunner().invoke(cli, ["lower", str(tmp_path / "out.onnx"), "-o", str(tmp_path / "again.onnx")])
    assert done.exit_code == 0 and "it has no Gradient node: the model is written as it is" in done.stderr
    onnx.save(model(f"g (float[3] x) => (float[3] d) {{ {gradient('d', 'x', 'x', 'y')} }}"), tmp_path / "bad.onnx")
    done = CliRunner().invoke(cli, ["lower", str(tmp_path / "bad.onnx"), "-o", str(tmp_path / "out.onnx")])
    assert done.exit_code == 2
    assert done.output == "gradgen: Gradient node 'd': y: 'y' is no value that it can see\n"


def test_a_gradient_of_a_model_with_gradient_nodes_is_refused_with_the_way():
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1]>
        g (float[3] x) => (float[3] d) {
            y = Sin(x)  d = ai.onnx.preview.training.Gradient <xs = ["x"], y = "y"> (x) }""")
    with pytest.raises(gradgen.GradientError, match="lower_gradient_ops"):
        gradgen.vjp(proto)
