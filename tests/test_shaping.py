# Types of whole models: defaults that onnx's inference gets wrong, computed shapes, ops it does not know; in branches too.
"""Tests of gradgen.engine.shaping, and of what relies on it."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

import gradgen
from gradgen.engine.prepare import prepare
from gradgen.engine.protos import all_nodes
from gradgen.engine.registry import registered
from gradgen.engine.shaping import infer_types_of

# A frame of 8 has 5 one-sided frequencies, and one-sided is the default.
STFT = "STFT(x, step, window, length)"
CONSTANTS = "step = Constant<value_int = 4>()\n length = Constant<value_int = 8>()"

BRANCH = f"""<ir_version: 10, opset_import: ["" : 21]>
g (float[1,24,1] x, float[8] window, bool p) => (float[1,5,5,2] y) {{
 {CONSTANTS}
 y = If(p) <then_branch = t () => (float[a,b,c,d] s) {{ s = {STFT} }},
   else_branch = e () => (float[e,f,g,h] z) {{ u = {STFT}
 z = Neg(u) }}>
}}"""


def shapes(model) -> dict[str, list]:
    return {
        v.name: list(v.shape.dims)
        for g in model.graphs()
        for n in g
        for v in n.outputs
        if v.name and v.shape is not None
    }


def test_a_default_that_is_not_zero_in_a_branch():
    prepared = prepare(parser.parse_model(BRANCH), registered())
    found = shapes(prepared.model)
    assert found["u"] == [1, 5, 5, 2] and found["s"] == [1, 5, 5, 2]
    assert all("onesided" not in n.attributes for g in prepared.model.graphs() for n in g), "the model's nodes stay"


def test_the_gradient_of_a_spectrum_in_a_branch():
    model = parser.parse_model(BRANCH)
    result = gradgen.vjp(model, wrt=["x", "window"])
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(1, 24, 1)).astype("f"), "window": rng.normal(size=8).astype("f")}
    seed = rng.normal(size=(1, 5, 5, 2)).astype("f")
    session = ort.InferenceSession(result.SerializeToString(), providers=["CPUExecutionProvider"])
    forward = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for taken in (True, False):
        found = session.run(["grad_x", "grad_window"], {**feeds, "p": np.array(taken), "grad_y": seed})
        for name, gradient in zip(feeds, found, strict=True):
            direction = rng.normal(size=feeds[name].shape).astype("f")
            ends = [
                forward.run(None, {**feeds, name: feeds[name] + sign * direction, "p": np.array(taken)})[0]
                for sign in (1, -1)
            ]
            expected = np.sum((ends[0] - ends[1]) / 2 * seed)  # the op is linear in either operand
            np.testing.assert_allclose(np.sum(gradient * direction), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("opset", [17, 21])
def test_a_function_infers_a_default_that_is_not_zero(opset):
    function = parser.parse_function(
        f"""<opset_import: ["" : {opset}], domain: "f">
        F (x, window) => (y) {{ {CONSTANTS}
 u = {STFT}
 y = ReduceSum<keepdims = 0>(u) }}"""
    )
    types = {n: onnx.helper.make_tensor_type_proto(1, s) for n, s in (("x", [1, 24, 1]), ("window", [8]))}
    gradient = gradgen.gradient_of_function(function, ["x", "window"], "y", types=types)
    constants = [onnx.numpy_helper.to_array(a.t) for n in gradient.node for a in n.attribute if n.op_type == "Constant"]
    spread = [c.tolist() for c in constants if c.shape == (4,)]
    assert [1, 5, 5, 2] in spread and [1, 5, 8, 2] not in spread


COMPUTED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[6] x, int64[3] shape, bool p) => (float[k,l,m] y) {{
 y = If(p) <then_branch = t () => (float[a,b,c] s) {{ q = {op}
 s = Neg(q) }},
   else_branch = e () => (float[d,e,f] z) {{ z = Reshape(x, shape) }}>
}}"""


@pytest.mark.parametrize("op", ["Reshape(x, shape)", "ConstantOfShape(shape)"])
def test_the_rank_of_a_computed_shape_in_a_branch(op):
    typed = infer_types_of(parser.parse_model(COMPUTED.format(op=op)))
    infos = [v for n in typed.graph.node for a in n.attribute for v in a.g.value_info]
    rank = next(len(v.type.tensor_type.shape.dim) for v in infos if v.name == "q")
    assert rank == 3


def test_an_expand_to_fewer_axes_keeps_those_of_its_input():
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[4,1] x, int64[1] shape) => (y) { y = Expand(x, shape) }"""
    )
    (info,) = [v for v in infer_types_of(proto).graph.output if v.name == "y"]
    assert [d.dim_value for d in info.type.tensor_type.shape.dim] in ([4, 0], [0, 0])
    assert len(info.type.tensor_type.shape.dim) == 2


def test_what_a_row_says_of_an_op_holds_in_a_branch():
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[2,3] x, bool p) => (float[a,b] y) {
         y = If(p) <then_branch = t () => (float[c,d] s) { q = com.microsoft.QuickGelu(x)
 s = Neg(q) },
           else_branch = e () => (float[e,f] z) { z = Identity(x) }>
        }"""
    )
    found = shapes(prepare(proto, registered()).model)
    assert found["q"] == [2, 3] and found["s"] == [2, 3]


def test_inference_leaves_the_nodes_as_they_were():
    proto = parser.parse_model(BRANCH)
    before = [n.SerializeToString() for n in all_nodes(proto.graph) if n.op_type != "If"]
    typed = infer_types_of(proto)
    assert [n.SerializeToString() for n in all_nodes(typed.graph) if n.op_type != "If"] == before
