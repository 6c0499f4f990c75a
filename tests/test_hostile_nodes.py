# Nodes that onnx's checker takes and the standard does not, names of megabytes, types that nobody states.
"""More tests of hostile input: what is refused in words, and what gives a small, valid, silent result."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

import gradgen
from gradgen.engine.names import shortened
from gradgen.engine.serde import to_proto
from gradgen.engine.soundness import _check_tensor
from gradgen.evaluate import evaluator
from gradgen.wording import readable

LONG = "n" * 1_000_000
LOST = """g (float[24] x, int64[k] s, float[2] c, float[2] b) => (float[p, q, r] y) {
    h = Reshape(x, s) y = GroupNormalization<num_groups = 2>(h, c, b) }"""
LOOP = """g (float[3] x) => (float[3] y) <int64 n = {2}, bool c = {1}> { h = Mul(x, x) y = Loop(n, c, h) <
    body = b (int64 i, bool d, float[3] z) => (bool e, float[3] w) { e = Identity(d) w = Mul(z, x) }> }"""


def model(text: str, opset: int = 21) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')


def spread(window: int) -> np.ndarray:
    """How many windows of 3 × 3 read each element of a 6 × 6 image, beyond whose border `window` elements are."""
    line = np.array([sum(0 <= i - s <= 2 for s in range(-window, 4 + window)) for i in range(6)], np.float32)
    return np.outer(line, line)


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]])
@pytest.mark.parametrize(("auto_pad", "side"), [("SAME_UPPER", 6), ("SAME_LOWER", 6), ("VALID", 4)])
def test_auto_pad_decides_where_a_pool_has_pads_too(auto_pad, side, pads):
    """As onnxruntime has it; the standard has no such node, and onnx's inference goes by the pads."""
    call = f'AveragePool<auto_pad = "{auto_pad}", pads = {pads}, kernel_shape = [3, 3], count_include_pad = 1>'
    result = gradgen.vjp(model(f"g (float[1,1,6,6] x) => (float[a,b,c,d] y) {{ y = {call}(x) }}"))
    onnx.checker.check_model(result, full_check=True)
    x = np.random.default_rng(0).standard_normal((1, 1, 6, 6)).astype(np.float32)
    found = evaluator(result, strict=True)({"x": x, "grad_y": np.full((1, 1, side, side), 9, np.float32)})
    np.testing.assert_allclose(found["grad_x"][0, 0], spread(1 if side == 6 else 0), rtol=1e-6)


def test_a_convolution_with_auto_pad_and_pads_contradicts_its_declaration():
    proto = model("""g (float[1,1,6,6] x, float[1,1,3,3] w) => (float[1,1,4,4] y) {
        y = Conv<auto_pad = "SAME_UPPER", pads = [0, 0, 0, 0]>(x, w) }""")
    with pytest.raises(gradgen.GradientError, match=r"'y' is declared float\[1,1,4,4\] and is float\[1,1,6,6\]"):
        gradgen.vjp(proto)


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_indices_that_name_more_dimensions_than_there_are(reduction):
    call = f'ScatterND<reduction = "{reduction}">(x, i, u)'
    proto = model(f"g (float[5,3] x, int64[3] i, float[3,3] u) => (float[5,3] y) {{ y = {call} }}", 20)
    with pytest.raises(gradgen.GradientError, match="the indices names 3 dimensions of data, which has 2"):
        gradgen.vjp(proto)


def test_an_addend_of_a_product_with_more_dimensions_than_it():
    """onnx's inference of Gemm does not look at C."""
    proto = model("g (float[2,3] x, float[3,4] w, float[5,2,2,4] c) => (float[2,4] y) { y = Gemm(x, w, c) }")
    with pytest.raises(gradgen.GradientError, match="an operand of 4 dimensions is not broadcast to a result of 2"):
        gradgen.vjp(proto)


def test_the_rank_of_a_deprecated_operator_is_left_open():
    """GroupNormalization 18, of which onnx infers nothing, against the same with a shape that is known."""
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal(24), "c": rng.standard_normal(2), "b": rng.standard_normal(2)}
    feeds = {n: v.astype(np.float32) for n, v in feeds.items()}
    ct = rng.standard_normal((2, 4, 3)).astype(np.float32)
    result = gradgen.vjp(model(LOST, 18))
    onnx.checker.check_model(result, full_check=True)
    found = evaluator(result, strict=True)({**feeds, "s": np.array([2, 4, 3]), "grad_y": ct})
    groups = feeds["x"].reshape(4, 6).astype(np.float64)
    centred = groups - groups.mean(1, keepdims=True)
    deviation = np.sqrt(groups.var(1, keepdims=True) + 1e-5)
    scaled = (ct.reshape(2, 2, 6) * feeds["c"][:, None]).reshape(4, 6)
    normal = centred / deviation
    want = (scaled - scaled.mean(1, keepdims=True) - normal * (scaled * normal).mean(1, keepdims=True)) / deviation
    np.testing.assert_allclose(found["grad_x"], want.reshape(24), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["grad_c"], (ct.reshape(4, 6) * normal).reshape(2, 2, 6).sum((0, 2)), rtol=1e-4)


@pytest.mark.parametrize("kind", sorted(set(onnx.TensorProto.DataType.values()) - {0}))
def test_the_entries_of_a_tensor_are_counted_by_its_type(kind):
    """As many as onnx writes are right, and one more or one less is not."""
    for size in range(6):
        tensor = onnx.helper.make_tensor("t", kind, [size], [b"a"] * size if kind == 8 else [1] * size)
        _check_tensor(tensor, "t")
        (entries,) = [getattr(tensor, f.name) for f, _ in tensor.ListFields() if f.name.endswith("_data")] or [[]]
        if size:
            entries.append(entries[0])
            with pytest.raises(gradgen.GradientError, match="entries in place of"):
                _check_tensor(tensor, "t")
            del entries[-2:]
            with pytest.raises(gradgen.GradientError, match="entries in place of"):
                _check_tensor(tensor, "t")


@pytest.mark.parametrize("place", ["node", "input", "output", "value"])
@pytest.mark.parametrize("transform", [gradgen.vjp, gradgen.jvp, gradgen.hvp])
def test_very_long_names_are_not_repeated(transform, place):
    """A result has those of the model, a public name or two for each, and what is derived has short ones."""
    proto = model(LOOP.replace("h", "HIDDEN") if place == "value" else LOOP)
    if place == "node":
        proto.graph.node[1].name = LONG
    else:
        text = {"input": "x", "output": "y", "value": "HIDDEN"}[place]
        for node in (*proto.graph.node, *proto.graph.node[1].attribute[0].g.node):
            for names in (node.input, node.output):
                names[:] = [LONG if n == text else n for n in names]
        for info in (*proto.graph.input, *proto.graph.output):
            info.name = LONG if info.name == text else info.name
    result = transform(proto, **({"reduce": "sum"} if transform is gradgen.hvp else {}))
    onnx.checker.check_model(result, full_check=True)
    assert result.ByteSize() < 25 * len(LONG)


def test_warnings_shorten_long_names_as_errors_do():
    proto = model(f"g (float[3] x, float[3] {LONG}) => (float[3] y) {{ y = Sin(x) }}")
    with pytest.warns(gradgen.GradientWarning) as caught:
        gradgen.vjp(proto)
    assert "n" * 149 + "..." + "n" * 99 in str(caught[0].message) and len(str(caught[0].message)) < 1000


def test_a_name_is_shortened_once():
    """What nodes are called after a long name is short enough for a message."""
    once = shortened(LONG)
    assert once == shortened(once) == readable(once) == readable(LONG)
    assert shortened(LONG[:300]) == readable(LONG[:300]) == LONG[:300]


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_a_convolution_without_axes_of_space_is_refused_without_a_word(op, caplog):
    """onnx_ir logs a line where the type of an attribute is to be guessed: strides for no axis at all."""
    proto = model(f"""g (float[k] x, int64[m] s, float w) => (float y) {{
        h = Reshape(x, s) c = {op}(h, w) y = ReduceSum<keepdims = 0>(c) }}""")
    with caplog.at_level(logging.WARNING), pytest.raises(gradgen.GradientError, match="0 dimensions where there are 2"):
        gradgen.vjp(proto, wrt=["x"])
    assert not caplog.records


def test_a_shape_of_unknown_type_is_left_out_without_a_word(caplog):
    """onnx_ir logs a line for each such value; in the model that is written they are gone too."""
    x, y = ir.Value(name="x", shape=ir.Shape([3])), ir.Value(name="y", shape=ir.Shape([3]))
    h = ir.Value(name="h", shape=ir.Shape([3]))
    nodes = [ir.Node("", "Sin", [x], outputs=[h]), ir.Node("", "Sin", [h], outputs=[y])]
    graph = ir.Graph([x], [y], nodes=nodes, opset_imports={"": 21}, name="g")
    with caplog.at_level(logging.WARNING):
        proto = to_proto(ir.Model(graph, ir_version=10))
    assert not caplog.records
    assert [value.shape for value in (x, h, y)] == [None] * 3
    assert [info.name for info in (*proto.graph.input, *proto.graph.output)] == ["x", "y"]
