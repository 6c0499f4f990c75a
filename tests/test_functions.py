# Gradients as FunctionProtos: inputs and outputs, zs, stop, types, opsets, random nodes, attribute parameters.
"""Tests of gradient_of_nodes and gradient_of_function."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, parser

import gradgen
from gradgen.engine.registry import Registry, registered
from gradgen.rules.lang import traced

F32 = helper.make_tensor_type_proto(TensorProto.FLOAT, [3])

FUNCTION = """<domain: "d", opset_import: ["" : 21]>
f (x, w, b) => (y) { a = Mul(x, w)
 c = Add(a, b)
 y = Mul(c, c) }"""


def function(text: str = FUNCTION) -> onnx.FunctionProto:
    return parser.parse_function(text)


def call(proto: onnx.FunctionProto, attributes: dict | None = None, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    """Run a function through a model that calls it."""
    onnx.checker.check_function(proto, context(proto))
    node = helper.make_node(
        proto.name, list(proto.input), list(proto.output), domain=proto.domain, **(attributes or {})
    )
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in feeds.items()}
    inputs = [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in feeds.items()]
    outputs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in proto.output]
    graph = helper.make_graph([node], "g", inputs, outputs)
    imports = [*proto.opset_import, helper.make_opsetid(proto.domain, 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=[proto], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip(proto.output, session.run(None, feeds), strict=True))


def context(proto: onnx.FunctionProto):
    found = onnx.checker.C.CheckerContext()
    found.ir_version, found.opset_imports = 10, {o.domain: o.version for o in proto.opset_import}
    return found


X, W, B, DY = (np.array(v, np.float32) for v in ([1, 2, 3], [4, 5, 6], [1, 1, 2], [1, -1, 2]))


def test_inputs_are_xs_zs_dy_and_outputs_grad_x():
    proto = gradgen.gradient_of_function(function(), ["w", "x"], "y", ["b"])
    assert list(proto.input) == ["w", "x", "b", "dy"]
    assert list(proto.output) == ["grad_w", "grad_x"]
    found = call(proto, x=X, w=W, b=B, dy=DY)
    np.testing.assert_allclose(found["grad_x"], DY * 2 * (X * W + B) * W)
    np.testing.assert_allclose(found["grad_w"], DY * 2 * (X * W + B) * X)


def test_types_give_the_static_forms():
    proto = gradgen.gradient_of_function(function(), ["x"], "y", ["w", "b"], types={"x": F32, "w": F32, "b": F32})
    assert [n.op_type for n in proto.node] == ["Mul", "Add", "Mul", "Add", "Mul"]


def test_value_info_counts_as_types():
    typed = function()
    typed.value_info.extend(helper.make_value_info(n, F32) for n in "xwb")
    assert len(gradgen.gradient_of_function(typed, ["x"], "y", ["w", "b"]).node) == 5


def test_zs_are_read_instead_of_recomputed_and_derivatives_flow_through_their_producers():
    types = {"x": F32, "w": F32, "b": F32}
    proto = gradgen.gradient_of_function(function(), ["x", "w"], "y", ["c"], types=types)
    assert list(proto.input) == ["x", "w", "c", "dy"]
    assert {o for n in proto.node for o in n.output}.isdisjoint({"a", "c", "y"})
    c = X * W + B
    np.testing.assert_allclose(call(proto, x=X, w=W, c=c, dy=DY)["grad_w"], DY * 2 * c * X)


def test_y_may_be_supplied_itself():
    text = '<domain: "d", opset_import: ["" : 21]> f (x) => (y) { y = Tanh(x) }'
    proto = gradgen.gradient_of_function(function(text), ["x"], "y", ["y"], types={"x": F32})
    assert "Tanh" not in [n.op_type for n in proto.node]
    y = np.tanh(X)
    np.testing.assert_allclose(call(proto, x=X, y=y, dy=DY)["grad_x"], DY * (1 - y * y), rtol=1e-5)


def test_stop_names_constants():
    proto = gradgen.gradient_of_function(function(), ["x", "b"], "y", ["w"], stop=["a"])
    found = call(proto, x=X, w=W, b=B, dy=DY)
    np.testing.assert_array_equal(found["grad_x"], 0 * X)
    np.testing.assert_allclose(found["grad_b"], DY * 2 * (X * W + B))


def test_an_intermediate_x_is_an_input_and_its_producer_is_not_run():
    proto = gradgen.gradient_of_function(function(), ["c"], "y")
    assert list(proto.input) == ["c", "dy"]
    np.testing.assert_allclose(call(proto, c=X, dy=DY)["grad_c"], DY * 2 * X)


@pytest.mark.parametrize(
    ("xs", "zs", "message"),
    [
        (["x"], ["w"], "needs 'b': put them into xs or zs"),
        (["q"], [], "xs: there is no value 'q'"),
        (["x", "c"], ["w", "b"], "'c' depends on 'x'"),
        (["x"], ["x"], "'x' is in xs and in zs"),
        ([], [], "xs is empty"),
        ([3], [], r"xs: a name or a list of names is asked for, not 3 \(int\)"),
    ],
)
def test_requests_that_cannot_be_met(xs, zs, message):
    with pytest.raises(gradgen.GradientError, match=message):
        gradgen.gradient_of_function(function(), xs, "y", zs)


def test_stop_cannot_name_an_x():
    with pytest.raises(gradgen.GradientError, match="'x' is in xs and in stop"):
        gradgen.gradient_of_function(function(), ["x"], "y", ["w", "b"], stop=["x"])


def test_one_name_stands_for_a_list_of_one():
    nodes = [helper.make_node("Mul", ["input", "scale"], ["y"])]
    proto = gradgen.gradient_of_nodes(nodes, "input", "y", "scale", stop="scale")
    assert list(proto.input) == ["input", "scale", "dy"]
    assert list(proto.output) == ["grad_input"]


def test_taken_names_move_the_whole_call_to_another_prefix():
    nodes = [helper.make_node("Mul", ["x", "w"], ["grad_x"]), helper.make_node("Mul", ["grad_x", "x"], ["y"])]
    proto = gradgen.gradient_of_nodes(nodes, ["x", "w"], "y", types={"x": F32, "w": F32})
    assert list(proto.output) == ["grad2_x", "grad2_w"]
    np.testing.assert_allclose(call(proto, x=X, w=W, dy=DY)["grad2_x"], DY * 2 * X * W)


@pytest.mark.parametrize(("xs", "y"), [("x", "n"), ("n", "y")])
def test_what_is_not_float_is_refused(xs, y):
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=TensorProto.INT64),
        helper.make_node("Cast", ["n"], ["y"], to=TensorProto.FLOAT),
    ]
    with pytest.raises(gradgen.GradientError, match="'n' is of int64, and only float tensors"):
        gradgen.gradient_of_nodes(nodes, xs, y, types={"x": F32})


def test_the_random_outputs_that_are_lacking_are_named_as_the_caller_knows_them():
    nodes = [helper.make_node("Dropout", ["x", "r", "t"], ["d", "m"]), helper.make_node("Mul", ["d", "d"], ["y"])]
    with pytest.raises(gradgen.GradientError, match=r"put 'd' \(Dropout\) into zs"):
        gradgen.gradient_of_nodes(nodes, ["x"], "y", ["r", "t", "m"], types={"x": F32})


def test_nodes_take_the_opset_that_they_need():
    nodes = [helper.make_node("Swish", ["x"], ["y"])]
    assert onnx.defs.get_schema("Swish").since_version == 24
    proto = gradgen.gradient_of_nodes(nodes, ["x"], "y", types={"x": F32})
    assert {o.domain: o.version for o in proto.opset_import}[""] == 24
    sigmoid = 1 / (1 + np.exp(-X))
    np.testing.assert_allclose(
        call(proto, x=X, dy=DY)["grad_x"], DY * (sigmoid + X * sigmoid * (1 - sigmoid)), rtol=1e-5
    )


def test_an_old_function_is_raised():
    text = '<domain: "d", opset_import: ["" : 12]> f (x) => (y) { y = ReduceSum<axes=[0], keepdims=0>(x) }'
    proto = gradgen.gradient_of_function(function(text), ["x"], "y", types={"x": F32})
    assert proto.opset_import[0].version == 21
    np.testing.assert_array_equal(call(proto, x=X, dy=np.array(2, np.float32))["grad_x"], [2, 2, 2])


def test_attribute_parameters_are_kept():
    text = """<domain: "d", opset_import: ["" : 21]>
    f <alpha: float = 0.5>(x) => (y) { y = LeakyRelu<alpha: float = @alpha>(x) }"""
    proto = gradgen.gradient_of_function(function(text), ["x"], "y", types={"x": F32})
    assert [a.name for a in proto.attribute_proto] == ["alpha"]
    x = np.array([-1, 2, -3], np.float32)
    np.testing.assert_allclose(call(proto, {"alpha": 0.25}, x=x, dy=np.ones(3, np.float32))["grad_x"], [0.25, 1, 0.25])


def test_a_random_node_is_never_repeated():
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("Mul", ["x", "r"], ["y"]),
    ]
    with pytest.raises(gradgen.GradientError, match="put 'r'"):
        gradgen.gradient_of_nodes(nodes, ["x"], "y", types={"x": F32})
    proto = gradgen.gradient_of_nodes(nodes, ["x"], "y", ["r"], types={"x": F32, "r": F32})
    np.testing.assert_allclose(call(proto, x=X, r=W, dy=DY)["grad_x"], DY * W)


def test_a_rule_that_needs_a_rank_is_refused_by_name_without_types():
    nodes = [helper.make_node("Concat", ["x", "w"], ["y"], axis=-1)]
    proto = gradgen.gradient_of_nodes(nodes, ["x", "w"], "y", types={"x": F32, "w": F32})
    np.testing.assert_array_equal(call(proto, x=X, w=W, dy=np.arange(6, dtype=np.float32))["grad_w"], [3, 4, 5])
    nodes = [helper.make_node("Einsum", ["x", "x"], ["y"], equation="...i,...i->...")]
    with pytest.raises(gradgen.GradientError, match=r"rule 'einsum_vjp.*types="):
        gradgen.gradient_of_nodes(nodes, ["x"], "y")


@pytest.mark.parametrize(
    ("attributes", "body", "value"),
    [
        ("alpha: float = 2.0", "y = Gemm<alpha: float = @alpha>(x, w)", {"alpha": 3.0}),
        ("p: ints = [1, 0]", "t = Transpose<perm: ints = @p>(x)\n y = Mul(t, w)", None),
    ],
)
def test_attribute_parameters_of_traced_rules_are_handed_on_or_refused_by_name(attributes, body, value):
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 2])
    proto = function(f'<domain: "d", opset_import: ["" : 21]> f <{attributes}>(x, w) => (y) {{ {body} }}')
    x, w, dy = (np.arange(4, dtype=np.float32).reshape(2, 2) + k for k in range(3))
    if value is None:
        with pytest.raises(gradgen.GradientError, match="'perm', a parameter of the function"):
            gradgen.gradient_of_function(proto, ["x"], "y", ["w"], types={"x": kind, "w": kind})
        return
    found = gradgen.gradient_of_function(proto, ["x"], "y", ["w"], types={"x": kind, "w": kind})
    np.testing.assert_allclose(call(found, value, x=x, w=w, dy=dy)["grad_x"], 3 * dy @ w.T)


def test_equal_nodes_of_an_unknown_op_are_not_merged():
    nodes = """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
    g (float[3] x) => (float[3] y) { a = my.Noise(x)\n b = my.Noise(x)\n d = Sub(a, b)\n s = Mul(x, x)\n y = Add(s, d) }"""
    proto = gradgen.vjp(parser.parse_model(nodes), wrt=["s"], of=["y"])
    assert [n.op_type for n in proto.graph.node].count("Noise") == 2


def test_versions_of_operator_sets_by_domain():
    """A domain's nodes are of the version that is given: a rule that is registered from version 2 on applies then alone."""

    @traced("dx")
    def twice_vjp(dy):
        return dy * 2.0

    registry = Registry(parent=registered())
    gradgen.register_vjp("mine", "Twice", twice_vjp, inputs=["x"], outputs=["y"], version=2, registry=registry)
    nodes = [onnx.helper.make_node("Twice", ["x"], ["h"], domain="mine"), onnx.helper.make_node("Exp", ["h"], ["y"])]
    function = gradgen.gradient_of_nodes(nodes, ["x"], "y", opset={"": 22, "mine": 2}, registry=registry)
    assert {o.domain: o.version for o in function.opset_import} == {"": 22, "mine": 2}
    with pytest.raises(gradgen.GradientError, match="Twice"):
        gradgen.gradient_of_nodes(nodes, ["x"], "y", registry=registry)
