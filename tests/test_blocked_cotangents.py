"""Tests of kernels' cotangents of strided convolutions in blocks: values, which ones, which are left as they were."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from blocked_models import arrays, blocked_nodes, need_blocks
from onnx import numpy_helper, parser

import gradgen
from gradgen import blocking
from gradgen.blocked_cotangents import kernel_cotangents


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    need_blocks(tmp_path_factory.mktemp("blocks"))


def kernel_cotangent(x=(16, 8, 16, 12), w=(16, 8, 3, 3), attributes="strides=[2,2], pads=[1,1,1,1]") -> onnx.ModelProto:
    """The gradient of a convolution to its kernel alone."""
    shapes = [",".join(map(str, s)) for s in (x, w)]
    text = f"g (float[{shapes[0]}] x, float[{shapes[1]}] w) => (float[A,B,C,D] y) {{ y = Conv<{attributes}>(x, w) }}"
    primal = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    derivative = gradgen.vjp(primal, wrt=["w"])
    kept = [o for o in derivative.graph.output if o.name == "grad_w"]
    del derivative.graph.output[:]
    derivative.graph.output.extend(kept)
    derivative.graph.node.remove(next(n for n in derivative.graph.node if n.output[0] == "y"))
    return derivative


TURNED = {
    "stride 2": {},
    "one axis": {"attributes": "strides=[1,2], pads=[1,1,1,1]"},
    "stride 3, no padding": {"x": (8, 8, 18, 18), "attributes": "strides=[3,3]"},
    "padding of each side": {"x": (8, 8, 17, 14), "attributes": "strides=[2,3], pads=[2,1,1,0]"},
    "five taps, one channel": {"x": (8, 1, 20, 20), "w": (8, 1, 5, 5), "attributes": "strides=[2,2], pads=[2,2,2,2]"},
    "taps of two sizes": {"x": (8, 16, 16, 16), "w": (24, 16, 3, 2), "attributes": "strides=[2,2], pads=[1,0,1,0]"},
}


@pytest.mark.parametrize("name", TURNED)
def test_the_kernel_s_cotangent_with_a_stride(blocks, name):
    proto = kernel_cotangent(**TURNED[name])
    prepared = blocking.stand_in(proto)
    assert prepared is not None
    nodes = [n for n in prepared.model.graph.node if n.op_type != "Transpose"]
    assert not {"MatMul", "ReduceSum"} & {n.op_type for n in nodes} and "Conv" in [n.op_type for n in nodes]
    assert blocked_nodes(proto).count("Conv") == 1
    feeds = arrays(proto, **{"A": 0, "B": 0, "C": 0, "D": 0})
    found = gradgen.compile(proto, threads=1, cache=False)(**feeds)["grad_w"]
    expected = numeric_kernel_cotangent(TURNED[name], feeds)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def numeric_kernel_cotangent(case: dict, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """By numpy in float64, tap by tap."""
    w = case.get("w", (16, 8, 3, 3))
    attributes = case.get("attributes", "strides=[2,2], pads=[1,1,1,1]")
    numbers = {k: [int(n) for n in v.split(",")] for k, v in re.findall(r"(\w+)=\[([\d,]+)\]", attributes)}
    top, left, bottom, right = numbers.get("pads", [0, 0, 0, 0])
    x = np.pad(feeds["x"].astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    dy, (sh, sw) = feeds["grad_y"].astype(np.float64), numbers["strides"]
    result = np.zeros(w)
    for i in range(w[2]):
        for j in range(w[3]):
            read = x[:, :, i : i + sh * dy.shape[2] : sh, j : j + sw * dy.shape[3] : sw][
                ..., : dy.shape[2], : dy.shape[3]
            ]
            result[:, :, i, j] = np.einsum("nmhw,nchw->mc", dy, read)
    return result


PATCHES = {
    "stride 1": {"attributes": "pads=[1,1,1,1]"},
    "a batch that fills no block": {"x": (12, 8, 16, 12)},
    "few channels of the result": {"w": (4, 8, 3, 3)},
    "dilated": {"attributes": "strides=[2,2], dilations=[2,2], pads=[0,0,4,4]"},
    "rows that nothing reads": {"x": (16, 8, 17, 12), "w": (16, 8, 2, 2), "attributes": "strides=[2,2]"},
    "groups": {"w": (16, 4, 3, 3), "attributes": "strides=[2,2], pads=[1,1,1,1], group=2"},
}


@pytest.mark.parametrize("name", PATCHES)
def test_other_kernels_keep_their_patches(name):
    assert not turns(kernel_cotangent(**PATCHES[name]))


def turns(proto: onnx.ModelProto) -> bool:
    return bool(kernel_cotangents(ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True)).graph))


@pytest.mark.parametrize("op_type", ["Conv", "Reshape", "MatMul", "ReduceSum"])
def test_what_something_else_reads_stays(op_type):
    for as_output in (True, False):
        proto = kernel_cotangent()
        assert turns(proto)
        read = next(n.output[0] for n in proto.graph.node if n.op_type == op_type and n.input[0] != "grad_y")
        proto.graph.output.append(onnx.helper.make_tensor_value_info("also", onnx.TensorProto.FLOAT, None))
        proto.graph.node.append(onnx.helper.make_node("Neg", [read], ["also"]))
        if as_output:
            del proto.graph.node[-1]
            proto.graph.output[-1].name = read
        assert not turns(proto)


def test_taps_in_another_order_are_no_patches():
    proto = kernel_cotangent()
    name = next(n.input[1] for n in proto.graph.node if n.op_type == "Conv")
    taps = next(t for t in proto.graph.initializer if t.name == name)
    taps.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(numpy_helper.to_array(taps)[::-1]), name))
    assert not turns(proto)


def test_places_that_are_not_turned_are_no_kernel():
    proto = kernel_cotangent(x=(16, 8, 8, 8))  # as many places as channels
    assert turns(proto)
    places = next(n for n in proto.graph.node if n.op_type == "Transpose")
    next(a for a in places.attribute if a.name == "perm").ints[:] = [0, 1, 2]
    assert not turns(proto)


@pytest.mark.parametrize("op_type", ["Transpose", "MatMul"])
def test_a_sum_that_is_not_over_the_batch_is_no_kernel(op_type):
    """Ones times a batch of matrices is the sum of their rows; here there are as many rows as images."""
    proto = kernel_cotangent(x=(8, 2, 8, 8), w=(8, 2, 2, 2), attributes="strides=[2,2]")
    assert turns(proto)
    node = next(n for n in proto.graph.node if n.op_type == "ReduceSum")
    ones = numpy_helper.from_array(np.ones(8, np.float32), "ones")
    proto.graph.initializer.append(ones)
    if op_type == "MatMul":
        node.CopyFrom(onnx.helper.make_node("MatMul", ["ones", node.input[0]], list(node.output)))
    else:  # of the taps, as the axis says
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray([1]), "axis"))
        node.input[1] = "axis"
    assert not turns(proto)


@pytest.mark.parametrize("x", [(8, 8, 3, 3), (16, 8, 15, 13)])
def test_what_would_not_be_blocked_keeps_its_patches(x, monkeypatch):
    """dY of one place, and one that is larger than what may stand in for it; beside a convolution that is blocked."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[{",".join(map(str, x))}] x, float[16,8,3,3] w, float[8,16,16,16] z, float[16,16,3,3] v)
        => (float[A,B,C,D] y, float[E,F,G,H] u) {{ y = Conv<strides=[2,2]>(x, w)\n u = Conv<pads=[1,1,1,1]>(z, v) }}"""
    proto = gradgen.vjp(parser.parse_model(text), wrt=["w"], of=["y", "u"])
    if x[2] > 3:
        monkeypatch.setattr(blocking, "MAX_CODES", 16 * 16 * 9 + 16 * 8 * 9 + 100)
    prepared = blocking.stand_in(proto)
    assert prepared is not None and "MatMul" in [n.op_type for n in prepared.model.graph.node]


def test_a_result_that_is_viewed_with_other_sizes(blocks):
    """Its cotangent has as many places in another shape, and is read as it lies."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[8,8,7,9] x, float[16,8,5,5] w, float[8,16,5,4] z) => (float y) {
        c = Conv<strides=[2,2], pads=[2,2,2,2]>(x, w)  v = Reshape(c, s)  m = Mul(v, z)  y = ReduceSum<keepdims=0>(m) }"""
    primal = parser.parse_model(text)
    primal.graph.initializer.append(numpy_helper.from_array(np.asarray([8, 16, 5, 4]), "s"))
    proto = gradgen.grad(primal, wrt=["w"], of=["y"])
    feeds = arrays(primal)
    found = gradgen.compile(proto, threads=1, cache=False)(**feeds)["grad_w"]
    case = {"w": (16, 8, 5, 5), "attributes": "strides=[2,2], pads=[2,2,2,2]"}
    expected = numeric_kernel_cotangent(case, {"x": feeds["x"], "grad_y": feeds["z"].reshape(8, 16, 4, 5)})
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_a_custom_convolution_is_not_asked():
    proto = kernel_cotangent()
    node = onnx.helper.make_node("Conv", ["x", "x"], ["own"], domain="own", strides=2)
    proto.graph.node.insert(0, node)
    proto.opset_import.append(onnx.helper.make_opsetid("own", 1))
    assert turns(proto)


def test_products_in_another_order_are_no_kernel():
    proto = kernel_cotangent()
    assert turns(proto)
    last = next(n for n in reversed(proto.graph.node) if n.op_type == "Transpose")
    perm = next(a for a in last.attribute if a.name == "perm").ints
    perm[:] = [perm[0], *perm[:0:-1]] if len(perm) > 2 else perm[::-1]
    for value in (*proto.graph.value_info, *proto.graph.output):  # the shapes after it are others
        if value.name in (last.output[0], "grad_w"):
            value.type.tensor_type.ClearField("shape")
    assert not turns(proto)
