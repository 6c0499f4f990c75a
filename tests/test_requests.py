# Requests that cannot be met: unknown names, values that are not float, arguments of another kind, ops without a rule.
"""Tests of the errors that vjp raises about what it is asked for."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import gradgen
import gradgen.interop


def model(text: str, more: str = "", **initializers: np.ndarray) -> onnx.ModelProto:
    """A model of opset 21 from the text of its graph."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21{more}]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in initializers.items())
    return proto


@pytest.mark.parametrize(
    ("wrt", "of", "message"),
    [
        (["xx"], ["y"], r"wrt: there is no value 'xx'; near matches: 'x'"),
        (["x"], ["z"], r"of: there is no value 'z'"),
        ([], ["y"], "wrt is empty"),
        (["x"], [], "of is empty"),
        (["s"], ["y"], "'s' is of int64, and only float tensors have a gradient"),
    ],
)
def test_requests_that_cannot_be_met(wrt, of, message):
    proto = model("g (float[2,3] x) => (float[3,2] y) { y = Reshape(x, s) }", s=np.array([3, 2]))
    with pytest.raises(gradgen.GradientError, match=message):
        gradgen.vjp(proto, wrt=wrt, of=of)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"wrt": "p*z"}, "wrt: nothing matches 'p*z'"),
        ({"wrt": "kernel[a]"}, "wrt: nothing matches 'kernel[a]'; near matches: 'kernel.a', 'kernel.d', 'kernel.c'"),
        ({"wrt": "n*"}, "wrt: 'n*' matches nothing that has a gradient: 'number'"),
        ({"of": "z?"}, "of: nothing matches 'z?'"),
        ({"checkpoint": "zz*"}, "checkpoint: nothing matches 'zz*'"),
        ({"wrt": "Image"}, "wrt: there is no value 'Image'; near matches: 'image'"),
        ({"wrt": "q"}, "wrt: there is no value 'q'; the inputs and initializers are 'image', 'number', 'kernel.a', "
                       "'kernel.b', 'kernel.c' and 1 more"),
        ({"of": "loss"}, "of: there is no value 'loss'; the outputs are 'y'"),
        ({"of": "kernel.e"}, "of: there is no value 'kernel.e'; near matches: 'kernel.d', 'kernel.c', 'kernel.b'"),
    ],
)  # fmt: skip
def test_only_names_that_are_near_are_called_near(asked, message):
    kernels = {f"kernel.{c}": np.ones(3, np.float32) for c in "abcd"}
    proto = model(
        'g (float[3] image, int64[3] number) => (float[3] y) { a = Add(image, "kernel.a") y = Cast<to = 1>(a) }',
        **kernels,
    )
    with pytest.raises(gradgen.GradientError) as caught:
        gradgen.vjp(proto, **asked)
    assert str(caught.value) == message


def test_all_unsupported_nodes_are_listed_at_once():
    proto = model("g (float[3] x) => (float[3] y) { [first] a = my.Op1(x)\n [second] y = my.Op2(a) }")
    proto.opset_import.append(helper.make_opsetid("my", 1))
    with pytest.raises(gradgen.GradientError) as error:
        gradgen.vjp(proto)
    assert "my::Op1" in str(error.value) and "'first'" in str(error.value)
    assert "my::Op2" in str(error.value) and "'second'" in str(error.value)
    assert "register_vjp" in str(error.value)


def test_a_custom_op_with_a_standard_name_is_not_mistaken_for_it():
    proto = model("g (float[3] x) => (float[3] y) { y = my.Mul(x, x) }")
    proto.opset_import.append(helper.make_opsetid("my", 1))
    with pytest.raises(gradgen.GradientError, match="my::Mul"):
        gradgen.vjp(proto)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"wrt": [3]}, r"wrt: a name or a list of names is asked for, not 3 \(int\)"),
        ({"wrt": [None]}, r"not None \(NoneType\)"),
        ({"of": 5}, "of: a name or a list of names"),
        ({"registry": 3}, "registry is a gradgen.Registry, not int"),
    ],
)
def test_arguments_of_another_kind(request_, message):
    with pytest.raises(gradgen.GradientError, match=message):
        gradgen.vjp(model("g (float[3] x) => (float[3] y) { y = Mul(x, x) }"), **request_)


def test_an_op_without_a_rule_is_one_line_with_its_version_and_all_its_inputs():
    proto = model(
        """g (float[3] x, bool c) => (float[3] y) { h = com.x.Foo(x, x)\n y = If(c) <
        then_branch = t () => (float[3] a) { a = com.x.Bar(h, x) }, else_branch = e () => (float[3] b) { b = Abs(h) }
        > }""",
        more=', "com.x" : 4',
    )
    with pytest.raises(gradgen.GradientError) as error:
        gradgen.vjp(proto, wrt=["x"])
    lines = str(error.value).splitlines()[1:-1]
    assert [line.strip() for line in lines] == [
        "com.x::Foo (opset 4), node 'h': no rule for the op; input 0 ('x'), input 1 ('x') depend on wrt",
        "in 'y': com.x::Bar (opset 4), node 'a': no rule for the op; input 0 ('h'), input 1 ('x') depend on wrt",
    ]


def test_values_of_gradgens_own_are_followed_by_the_node_that_they_come_from():
    import onnx_ir as ir

    from gradgen.engine.labels import with_origins

    node = ir.Node("", "Abs", [None], name="a/Foo/Abs", metadata_props={"gradgen.node": "a"})
    node.outputs[0].name = "a/Foo/Abs_1"
    found = with_origins("the rank of 'a/Foo/Abs_1' is unknown", [ir.Value(name="x"), node.outputs[0]])
    assert found == "the rank of 'a/Foo/Abs_1' (computed for 'a') is unknown"


def test_a_squeeze_by_no_axes_means_two_things():
    nodes = [helper.make_node("Squeeze", ["x", "a"], ["y"])]

    def squeezed(shape):
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", 1, shape)],
            [helper.make_tensor_value_info("y", 1, [None, None])],
        )
        graph.initializer.append(numpy_helper.from_array(np.zeros(0, np.int64), "a"))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    with pytest.raises(gradgen.GradientError, match="y: rule 'squeeze_vjp': an empty list of axes"):
        gradgen.vjp(squeezed([1, 3]))
    assert gradgen.vjp(squeezed([2, 3])).graph.output[1].name == "grad_x"


def test_advice_fits_the_model():
    floats, integers = (
        "(int64[3] x) => (float[3] y) { c = Cast<to=1>(x) y = Mul(c, w) }",
        "(int64 x) => (int64 y) { y = Neg(x) }",
    )
    with pytest.raises(
        gradgen.GradientError, match="no float input to differentiate with respect to; name initializers"
    ):
        gradgen.vjp(model(f"g {floats}", w=np.ones(3, np.float32)))
    with pytest.raises(gradgen.GradientError, match="no float input to differentiate with respect to$"):
        gradgen.vjp(model("g (int64[3] x) => (float[3] y) { y = Cast<to=1>(x) }"))
    with pytest.raises(gradgen.GradientError, match="^the model has neither a float input nor a float output[^;]*$"):
        gradgen.vjp(model(f"g {integers}"))
    with pytest.raises(gradgen.GradientError, match="there is no value 'nope'; the computed values are 'c', 'y'$"):
        gradgen.vjp(model("g (float[3] x) => (float[3] y) { c = Sin(x) y = Exp(c) }"), checkpoint="nope")


@pytest.mark.parametrize("call", ["grad", "value_and_grad", "hvp", "hessian", "objective"])
def test_what_else_there_is_for_several_elements(call):
    """Only what the call itself takes is offered; a Hessian has no cotangent to be given."""
    sine = model("g (float[3] x) => (float[3] y) { y = Sin(x) }")
    transform = gradgen.interop.scipy_objective if call == "objective" else getattr(gradgen, call)
    with pytest.raises(gradgen.GradientError) as caught:
        transform(sine)
    message, second = str(caught.value), call in ("hvp", "hessian")
    assert f'pass reduce="sum" for the {"Hessian" if second else "gradient"} of its sum' in message
    assert ('reduce="element"' in message) == (call != "objective")
    assert ("use vjp" in message) == (call in ("grad", "value_and_grad"))


PARAMETERS = "the trainable initializers are wrt=gradgen.parameters(model)"


@pytest.mark.parametrize(
    ("name", "said"),
    [("initializers", PARAMETERS), ("parameters", PARAMETERS), ("inputs", "leave wrt out for all float inputs")],
)
def test_words_of_the_command_line_are_pointed_to_what_python_takes(name, said):
    proto = model("g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Mul(x, w) }")
    with pytest.raises(gradgen.GradientError, match=re.escape(f"there is no value '{name}'; {said}") + "$"):
        gradgen.vjp(proto, wrt=[name])
    near = model(f"g (float[3] {name[:-1]}) => (float[3] y) {{ y = Neg({name[:-1]}) }}")
    with pytest.raises(gradgen.GradientError, match=f"near matches: '{name[:-1]}'; "):
        gradgen.vjp(near, wrt=[name])
    taken = model(f"g (float[3] {name}) => (float[3] y) {{ y = Neg({name}) }}")
    assert gradgen.vjp(taken, wrt=[name]).graph.output[-1].name == f"grad_{name}"
