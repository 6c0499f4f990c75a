# The public calls: contract of names and order, requests, errors, dtypes and dynamic dimensions.
"""Tests of vjp, grad, value_and_grad and parameters."""

from __future__ import annotations

import json
import warnings

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import gradgen


def model(text: str, **initializers: np.ndarray) -> onnx.ModelProto:
    """A model of opset 21 from the text of its graph."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in initializers.items())
    return proto


def run(proto: onnx.ModelProto, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    """Run on onnxruntime, with the checker's full inference before."""
    onnx.checker.check_model(proto, full_check=True)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


LINEAR = "g (float[N,3] x) => (float[N,2] y) { h = MatMul(x, w)\n y = Add(h, b) }"
W = np.arange(6, dtype=np.float32).reshape(3, 2)
B = np.ones(2, np.float32)
X = np.arange(12, dtype=np.float32).reshape(4, 3)


def linear() -> onnx.ModelProto:
    return model(LINEAR, w=W, b=B)


def test_names_and_order_are_the_contract():
    proto = gradgen.vjp(linear(), wrt=["b", "x", "w"], of=["y"])
    assert [i.name for i in proto.graph.input] == ["x", "grad_y"]
    assert [o.name for o in proto.graph.output] == ["y", "grad_b", "grad_x", "grad_w"]


def test_values():
    ct = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
    found = run(gradgen.vjp(linear(), wrt=["x", "w", "b"]), x=X, grad_y=ct)
    np.testing.assert_allclose(found["y"], X @ W + B, rtol=1e-6)
    np.testing.assert_allclose(found["grad_x"], ct @ W.T, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found["grad_w"], X.T @ ct, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found["grad_b"], ct.sum(0), rtol=1e-6, atol=1e-6)


def test_the_default_is_float_inputs_and_float_outputs():
    proto = gradgen.vjp(linear())
    assert [o.name for o in proto.graph.output] == ["y", "grad_x"]


def test_a_dynamic_dimension_stays_dynamic_and_costs_no_shape_arithmetic():
    proto = gradgen.vjp(linear(), wrt=["x", "w", "b"])
    assert proto.graph.output[1].type.tensor_type.shape.dim[0].dim_param == "N"
    assert not {n.op_type for n in proto.graph.node} & {"Shape", "NonZero", "Expand", "Where"}


def test_dimensions_of_two_names_are_compared_without_an_empty_part():
    proto = gradgen.vjp(model("g (float[N] x, float[M] y) => (float[K] z) { z = Mul(x, y) }"))
    assert "Concat" not in {n.op_type for n in proto.graph.node}
    x, y = np.float32([2, 3, 4]), np.float32([5])
    result = run(proto, x=x, y=y, grad_z=np.float32([1, 10, 100]))
    np.testing.assert_array_equal(result["grad_x"], [5, 50, 500])
    np.testing.assert_array_equal(result["grad_y"], [2 + 30 + 400])


def test_globs_and_repeated_names():
    proto = gradgen.vjp(linear(), wrt=["[wb]", "w"])
    assert [o.name for o in proto.graph.output] == ["y", "grad_w", "grad_b"]


def test_an_intermediate_value_as_wrt_and_as_of():
    found = run(gradgen.vjp(linear(), wrt=["h", "x"], of=["h"]), x=X, grad_h=np.ones((4, 2), np.float32))
    # The cotangent of h is an input grad_h, so the gradients take another prefix.
    np.testing.assert_array_equal(found["grad2_h"], np.ones((4, 2)))
    np.testing.assert_allclose(found["grad2_x"], np.ones((4, 2)) @ W.T)
    np.testing.assert_allclose(found["h"], X @ W)


def test_value_and_grad_seeds_one_element():
    proto = model("g (float[3] x) => (float y) { s = Mul(x, x)\n y = ReduceSum<keepdims=0>(s) }")
    x = np.array([1, 2, 3], np.float32)
    found = run(gradgen.value_and_grad(proto), x=x)
    assert list(found) == ["y", "grad_x"]
    np.testing.assert_array_equal(found["grad_x"], 2 * x)
    assert list(run(gradgen.grad(proto), x=x)) == ["grad_x"]


def test_value_and_grad_of_several_elements_needs_reduce():
    with pytest.raises(gradgen.GradientError, match='reduce="sum"'):
        gradgen.value_and_grad(linear())
    found = run(gradgen.value_and_grad(linear(), wrt=["b"], reduce="sum"), x=X)
    np.testing.assert_array_equal(found["grad_b"], [4, 4])


def test_an_unconnected_wrt_is_zero_with_a_warning():
    proto = model("g (float[3] x, float[N,2] u) => (float[3] y) { y = Mul(x, x) }")
    with pytest.warns(gradgen.GradientWarning, match="'u' does not influence"):
        result = gradgen.vjp(proto, wrt=["x", "u"])
    found = run(result, x=np.ones(3, np.float32), u=np.ones((5, 2), np.float32), grad_y=np.ones(3, np.float32))
    np.testing.assert_array_equal(found["grad_u"], np.zeros((5, 2)))


def test_an_integer_branch_and_an_unsupported_op_off_the_path_are_no_obstacle():
    proto = model(
        """g (float[4,3] x, float[4,3] u) => (float[4,3] y, int64[3] top) {
        d = Unique(u)
        n = Size(d)
        f = Cast<to=1>(n)
        top = ArgMax<axis=0, keepdims=0>(x)
        y = Mul(x, f) }"""
    )
    found = run(gradgen.vjp(proto, wrt=["x"]), x=X, u=X, grad_y=np.ones((4, 3), np.float32))
    np.testing.assert_array_equal(found["grad_x"], np.full((4, 3), 12))


def test_a_value_used_twice_by_one_node():
    proto = model("g (float[3] x) => (float[3] y) { y = Mul(x, x) }")
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(run(gradgen.vjp(proto), x=x, grad_y=np.ones(3, np.float32))["grad_x"], 2 * x)


def test_an_input_that_is_an_output():
    proto = model("g (float[3] x) => (float[3] y) { y = Identity(x) }")
    proto.graph.output.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]))
    result = gradgen.vjp(proto, wrt=["x"], of=["x", "y"])
    names = json.loads(next(p.value for p in result.metadata_props if p.key == "gradgen.names"))
    gradient = next(n for n, r in names.items() if r["role"] == "gradient")
    seeds = {
        n: np.full(3, k + 1.0, np.float32)
        for k, n in enumerate(n for n, r in names.items() if r["role"] == "cotangent")
    }
    assert gradient not in seeds
    np.testing.assert_array_equal(run(result, x=np.ones(3, np.float32), **seeds)[gradient], np.full(3, 3.0))


def test_taken_names_move_the_whole_call_to_another_prefix():
    proto = model("g (float[3] x, float[3] grad_x) => (float[3] y) { y = Mul(x, grad_x) }")
    result = gradgen.vjp(proto, wrt=["x", "grad_x"])
    assert [o.name for o in result.graph.output] == ["y", "grad2_x", "grad2_grad_x"]
    assert [i.name for i in result.graph.input] == ["x", "grad_x", "grad2_y"]


def test_a_result_can_be_differentiated_again():
    proto = model("g (float[3] x) => (float[3] y) { s = Mul(x, x)\n y = Mul(s, x) }")
    x, one = np.array([1, 2, 3], np.float32), np.ones(3, np.float32)
    first = gradgen.vjp(proto)
    second = gradgen.vjp(first, wrt=["x"], of=["grad_x"])
    assert second.graph.output[-1].name == "grad2_x"
    assert second.graph.input[-1].name == "grad2_grad_x"
    found = run(second, x=x, grad_y=one, grad2_grad_x=one)
    np.testing.assert_allclose(found["grad2_x"], 6 * x)
    third = gradgen.vjp(second, wrt=["x"], of=["grad2_x"])
    np.testing.assert_allclose(run(third, x=x, grad_y=one, grad2_grad_x=one, grad3_grad2_x=one)["grad3_x"], 6 * one)


@pytest.mark.parametrize(("kind", "dtype"), [("float16", np.float16), ("float", np.float32), ("double", np.float64)])
def test_the_element_type_stays(kind, dtype):
    proto = model(f"g ({kind}[3] x) => ({kind}[3] y) {{ s = Mul(x, x)\n y = Add(s, x) }}")
    found = run(gradgen.vjp(proto), x=np.array([1, 2, 3], dtype), grad_y=np.ones(3, dtype))
    assert found["grad_x"].dtype == dtype
    np.testing.assert_array_equal(found["grad_x"], [3, 5, 7])


def test_an_ir_model_gives_an_ir_model_and_is_not_changed():
    source = ir.from_proto(linear())
    before = ir.to_proto(source).SerializeToString(deterministic=True)
    assert isinstance(gradgen.vjp(source), ir.Model)
    assert ir.to_proto(source).SerializeToString(deterministic=True) == before
    proto = linear()
    kept = proto.SerializeToString(deterministic=True)
    gradgen.vjp(proto)
    assert proto.SerializeToString(deterministic=True) == kept


def test_the_same_model_gives_the_same_bytes():
    one, two = (gradgen.vjp(linear(), wrt=["x", "w", "b"]).SerializeToString(deterministic=True) for _ in range(2))
    assert one == two


def test_parameters_are_the_float_initializers_that_a_rule_differentiates():
    proto = model("g (float[2,3] x) => (float[3,2] y) { r = Reshape(x, s)\n m = Mul(r, w)\n y = Add(m, b) }",
                  s=np.array([3, 2]), w=np.ones((3, 2), np.float32), b=np.ones(2, np.float32))  # fmt: skip
    assert gradgen.parameters(proto) == ["w", "b"]
    assert gradgen.parameters(gradgen.value_and_grad(proto, reduce="sum")) == ["w", "b"]


def test_constant_nodes_that_hold_the_weights_are_parameters():
    proto = model("g (float[3] x) => (float[3] y) { w = Constant<value_floats=[1.0,2.0,3.0]>()\n y = Mul(x, w) }")
    assert gradgen.parameters(proto) == ["w"]
    found = run(gradgen.vjp(proto, wrt=["w"]), x=np.array([4, 5, 6], np.float32), grad_y=np.ones(3, np.float32))
    np.testing.assert_array_equal(found["grad_w"], [4, 5, 6])


def test_overridable_initializers_stay_overridable_and_are_no_static_knowledge():
    proto = model("g (float[2,3] x, int64[2] s) => (float[?,?] y) { y = Reshape(x, s) }", s=np.array([3, 2]))
    result = gradgen.vjp(proto, wrt=["x"])
    assert [i.name for i in result.graph.input] == ["x", "s", "grad_y"]
    ct = np.arange(6, dtype=np.float32)
    found = run(result, x=np.zeros((2, 3), np.float32), s=np.array([6, 1]), grad_y=ct.reshape(6, 1))
    np.testing.assert_array_equal(found["grad_x"], ct.reshape(2, 3))


def test_initializers_that_ir_3_lists_as_inputs_are_fixed_as_runtimes_have_it():
    proto = linear()
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 2]))
    proto.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [2]))
    proto.ir_version = 3
    result = gradgen.vjp(proto)
    assert result.ir_version == 10
    assert [i.name for i in result.graph.input] == ["x", "grad_y"]


def test_minus_one_and_question_marks_are_no_sizes_and_no_names():
    proto = model("g (float[N,M] x, float[N,M] u) => (float[?,?] y) { y = Mul(x, u) }")
    for info in proto.graph.input:
        info.type.tensor_type.shape.dim[0].dim_value = -1
        info.type.tensor_type.shape.dim[1].dim_param = "?"
    x, u = np.ones((1, 3), np.float32), np.full((4, 1), 2, np.float32)
    found = run(gradgen.vjp(proto), x=x, u=u, grad_y=np.ones((4, 3), np.float32))
    np.testing.assert_array_equal(found["grad_x"], np.full((1, 3), 8))


def test_no_inline_keeps_calls_into_the_library():
    result = gradgen.vjp(linear(), wrt=["x", "w"], inline=False)
    assert {f.domain for f in result.functions} == {"gradgen.vjp"}
    ct = np.ones((4, 2), np.float32)
    found = run(result, x=X, grad_y=ct)
    np.testing.assert_allclose(found["grad_x"], ct @ W.T)
    np.testing.assert_allclose(found["grad_w"], X.T @ ct)


def test_backward_nodes_say_where_they_come_from():
    result = gradgen.vjp(linear(), wrt=["w"])
    metadata = [{p.key: p.value for p in n.metadata_props} for n in result.graph.node[2:]]
    assert any(m.get("gradgen.rule", "").startswith("matmul_vjp") and m.get("gradgen.node") for m in metadata)


def test_a_local_function_with_attribute_defaults_is_differentiated_through_its_body():
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
        g (float[3] x) => (float[3] y) { y = my.leaky(x) }
        <domain: "my", opset_import: ["" : 21]>
        leaky <alpha: float = 0.5>(x) => (y) { y = LeakyRelu<alpha: float = @alpha>(x) }"""
    )
    found = run(gradgen.vjp(proto), x=np.array([-1, 2, -3], np.float32), grad_y=np.ones(3, np.float32))
    np.testing.assert_array_equal(found["grad_x"], [0.5, 1, 0.5])


def test_an_op_without_a_rule_is_differentiated_through_its_standard_body():
    from gradgen.engine.registry import registered

    assert registered().find("", "MeanVarianceNormalization", 21) is None
    proto = model("g (double[2,3,4,4] x) => (double[2,3,4,4] y) { y = MeanVarianceNormalization<axes=[0,2,3]>(x) }")
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 4))
    ct = np.random.default_rng(1).standard_normal(x.shape)
    result = gradgen.vjp(proto)
    from gradgen.evaluate import Evaluator

    def primal(x):
        m = x.mean((0, 2, 3), keepdims=True)
        return ((x - m) / (np.sqrt(((x - m) ** 2).mean((0, 2, 3), keepdims=True)) + 1e-9) * ct).sum()

    direction = np.random.default_rng(2).standard_normal(x.shape)
    want = (primal(x + 1e-5 * direction) - primal(x - 1e-5 * direction)) / 2e-5
    got = (Evaluator(result)({"x": x, "grad_y": ct})["grad_x"] * direction).sum()
    assert abs(got - want) < 1e-6 * abs(want)


def test_if_is_differentiated_where_it_branches():
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x, float[3] w, bool c) => (float[3] y) {
            h = Mul(x, w)
            y = If(c) <
                then_branch = t () => (float[3] a) { s = Mul(h, h)\n a = Mul(s, w) },
                else_branch = e () => (float[3] b) { b = Identity(x) }
            >
        }"""
    )
    result = gradgen.vjp(proto, wrt=["x", "w"])
    x, w, ct = (np.array(v, np.float32) for v in ([1, 2, 3], [4, 5, 6], [1, 1, 2]))
    found = run(result, x=x, w=w, c=np.array(True), grad_y=ct)
    np.testing.assert_allclose(found["grad_x"], ct * 2 * x * w**3)
    np.testing.assert_allclose(found["grad_w"], ct * 3 * x**2 * w**2)
    found = run(result, x=x, w=w, c=np.array(False), grad_y=ct)
    np.testing.assert_allclose(found["grad_x"], ct)
    np.testing.assert_allclose(found["grad_w"], 0 * w)
    second = gradgen.vjp(result, wrt=["x"], of=["grad_w"])
    found = run(second, x=x, w=w, c=np.array(True), grad_y=ct, grad2_grad_w=np.ones(3, np.float32))
    np.testing.assert_allclose(found["grad2_x"], ct * 6 * x * w**2)


def test_unsupported_nodes_inside_a_branch_are_listed_with_the_others():
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
        g (float[3] x, bool c) => (float[3] y) {
            h = my.Outer(x)
            [choice] y = If(c) <
                then_branch = t () => (float[3] a) { a = my.Inner(h) },
                else_branch = e () => (float[3] b) { b = Identity(x) }
            >
        }"""
    )
    with pytest.raises(gradgen.GradientError) as error:
        gradgen.vjp(proto)
    assert "my::Outer" in str(error.value) and "my::Inner" in str(error.value) and "choice" in str(error.value)


def test_no_warning_where_everything_is_connected():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradgen.vjp(linear(), wrt=["x", "w", "b"])


@pytest.mark.parametrize(("op", "value"), [("Mul", 1.0), ("Div", 1.0), ("Pow", 2.0), ("Pow", 1.0), ("Pow", 3.0)])
def test_what_a_gradient_was_specialised_to_is_no_constant_of_its_derivative(op, value):
    text = f"g (double[2,3] x) => (double y) {{ a = {op}(x, s)\n b = Mul(a, a)\n y = ReduceSum<keepdims=0>(b) }}"
    proto = model(text, s=np.array([value]))
    first = gradgen.value_and_grad(proto, wrt=["x"])
    with pytest.raises(gradgen.GradientError, match="'s' was a constant when 'grad_x' was made"):
        gradgen.vjp(first, wrt=["s"], of=["grad_x"])
    gradgen.vjp(first, wrt=["x"], of=["grad_x"])
    gradgen.vjp(first, wrt=["s"], of=["y"])
    both = gradgen.value_and_grad(proto, wrt=["x", "s"])
    second = gradgen.vjp(both, wrt=["s"], of=["grad_x"])
    x = np.linspace(0.5, 2, 6).reshape(2, 3)
    found = run(second, x=x, grad2_grad_x=np.ones((2, 3)))["grad2_s"][0]
    inner = {"Mul": lambda s: 2 * x * s * s, "Div": lambda s: 2 * x / s**2, "Pow": lambda s: 2 * s * x ** (2 * s - 1)}[
        op
    ]
    want = (inner(value + 1e-5).sum() - inner(value - 1e-5).sum()) / 2e-5
    assert abs(found - want) < 1e-7 * abs(want)


def test_a_scalar_that_a_gradient_reads_can_be_differentiated_later():
    text = "g (double[3] x) => (double y) { a = Mul(x, s)\n b = Mul(a, a)\n y = ReduceSum<keepdims=0>(b) }"
    first = gradgen.value_and_grad(model(text, s=np.array([1.5])), wrt=["x"])
    second = gradgen.vjp(first, wrt=["s"], of=["grad_x"])
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(run(second, x=x, grad_grad_x=np.ones(3))["grad_s"], [(4 * x * 1.5).sum()])


def test_dimension_names_of_a_function_belong_to_one_call():
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "l" : 1]>
        g (double[A] x, double[B] z) => (double[C] y) { p = l.f(x)\n q = l.f(z)\n y = Mul(p, q) }
        <domain: "l", opset_import: ["" : 21]> f (x) => (y) { a = Identity(x)\n y = Mul(a, a) }"""
    )
    proto.functions[0].value_info.append(helper.make_tensor_value_info("a", TensorProto.DOUBLE, ["N"]))
    x, z = np.array([1.0, 2, 3]), np.array([2.0])
    found = run(gradgen.vjp(proto), x=x, z=z, grad_y=np.ones(3))
    np.testing.assert_allclose(found["grad_x"], 2 * x * z**2)
    np.testing.assert_allclose(found["grad_z"], [(x**2 * 2 * z).sum()])


def test_a_wrt_whose_gradient_is_another_wrt():
    proto = model("g (float x, float w) => (float y) { a = Mul(x, w)\n b = Exp(x)\n y = Mul(a, b) }")
    x, w = np.array(0.5, np.float32), np.array(3, np.float32)
    found = run(gradgen.value_and_grad(proto, wrt=["a", "b"]), x=x, w=w)
    np.testing.assert_allclose(found["grad_a"], np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(found["grad_b"], x * w, rtol=1e-6)


def test_changing_a_result_does_not_change_the_next():
    first = gradgen.vjp(ir.from_proto(linear()), wrt=["w"])
    for node in first.graph:
        node.metadata_props["mine"] = "1"
        for value in node.outputs:
            if value.shape is not None:
                for k in range(len(value.shape)):
                    value.shape[k] = "Q"
    second = gradgen.vjp(ir.from_proto(linear()), wrt=["w"])
    assert not any("mine" in n.metadata_props for n in second.graph)
    assert all("Q" not in str(v.shape) for n in second.graph for v in n.outputs)
