"""Tests of convolutions in blocks of channels where weights are fed: values, what is blocked, what is left as it was."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnxruntime
import pytest
from blocked_models import arrays, blocked_nodes, convolution, need_blocks, plain
from onnx import numpy_helper, parser

import gradgen
from gradgen import blocking, session


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    need_blocks(tmp_path_factory.mktemp("blocks"))


def check(proto: onnx.ModelProto, **sizes: int) -> None:
    feeds = arrays(proto, **sizes)
    step = gradgen.compile(proto, threads=1, cache=False)
    for _ in range(2):  # what is fed changes from call to call
        found = step(**feeds)
        for value, expected in zip(found.values(), plain(proto, feeds), strict=True):
            np.testing.assert_allclose(value, expected, rtol=0, atol=2e-6 * np.abs(expected).max())
        feeds = {n: (a * 2 - 1 if a.dtype == np.float32 else a) for n, a in feeds.items()}


CASES = {
    "as it is": ("y = Conv<pads=[1,1,1,1]>(x, w)", {}),
    "bias": ("y = Conv<pads=[1,1,1,1]>(x, w, b)", {}),
    "relu": ("c = Conv<pads=[1,1,1,1]>(x, w, b)\n y = Relu(c)", {}),
    "strides, dilations": ("y = Conv<pads=[2,2,2,2], strides=[1,2], dilations=[2,1]>(x, w)", {}),
    "auto_pad": ('y = Conv<auto_pad="SAME_UPPER">(x, w)', {}),
    "no square": ("y = Conv(x, w)", {"w": (32, 16, 1, 5)}),
    "few channels in": ("y = Conv(x, w, b)", {"x": (4, 3, 16, 16), "w": (16, 3, 3, 3)}),
    "part of a block in": ("y = Conv(x, w, b)", {"x": (4, 24, 16, 16), "w": (16, 24, 3, 3)}),
    "part of a block out": ("y = Conv(x, w, b)", {"w": (20, 16, 3, 3)}),
    "both in part": ("y = Conv(x, w, b)", {"x": (4, 24, 16, 16), "w": (36, 24, 3, 3)}),
    "each channel alone": ("y = Conv<group=32>(x, w, b)", {"x": (4, 32, 16, 16), "w": (32, 1, 3, 3)}),
    "alone in part": ("y = Conv<group=24>(x, w, b)", {"x": (4, 24, 16, 16), "w": (24, 1, 3, 3)}),
    "transposed": ("y = ConvTranspose<pads=[1,1,1,1]>(x, w, b)", {"w": (16, 32, 3, 3)}),
    "transposed, not square": ("y = ConvTranspose<pads=[0,1,0,2], dilations=[2,1]>(x, w)", {"w": (16, 32, 2, 4)}),
    "transposed, part out": ("y = ConvTranspose(x, w)", {"w": (16, 20, 3, 3)}),
    "transposed, part in": ("y = ConvTranspose(x, w)", {"x": (4, 24, 16, 16), "w": (24, 16, 3, 3)}),
    "transposed, few in": ("y = ConvTranspose(x, w)", {"x": (4, 8, 16, 16), "w": (8, 16, 3, 3)}),
    "transposed, alone": ("y = ConvTranspose<group=32>(x, w, b)", {"x": (4, 32, 16, 16), "w": (32, 1, 3, 3)}),
    "computed": ("v = Mul(w, w)\n y = Conv(x, v, b)", {}),
    # As no output of the graph the node would go, and with it the name of what is to be ordered.
    "renamed": ("v = Identity(w)\n y = Conv(x, v, b)", {}),
    "computed bias": ("c = Neg(b)\n y = Conv(x, w, c)", {}),
    "computed and read elsewhere": ("v = Mul(w, w)\n c = Conv(x, v)\n z = ReduceSum<keepdims=0>(v)\n y = Add(c, z)", {}),
    "twice the same": ("a = Conv(x, w)\n c = Neg(x)\n d = Conv<strides=[1,1]>(c, w)\n y = Add(a, d)", {}),
    "constant weights, a bias that is fed": ("y = Conv(x, k, b)", {"k": np.full((32, 16, 3, 3), 0.1, np.float32)}),
    "weights from a transposed convolution": (
        "t = ConvTranspose<pads=[1,1,1,1]>(x, w)\n s = Slice(t, i, n)\n c = Conv(t, s)\n y = Neg(c)",
        {"w": (16, 16, 3, 3), "x": (16, 16, 16, 16), "i": np.zeros(4, np.int64), "n": np.asarray([16, 16, 3, 3])}),
    "both ways": ("a = Conv<pads=[1,1,1,1]>(x, w)\n y = ConvTranspose<pads=[1,1,1,1]>(a, w)", {}),
    "in a row": ("a = Conv<pads=[1,1,1,1]>(x, w, b)\n r = Relu(a)\n m = MaxPool<kernel_shape=[2,2]>(r)\n "
                 "y = Conv<pads=[1,1,1,1]>(m, w, b)", {"w": (16, 16, 3, 3)}),
    "read elsewhere too": ("a = Conv(x, w)\n s = ReduceSum<keepdims=0>(w)\n y = Mul(a, s)", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name, blocks):
    nodes, sizes = CASES[name]
    proto = convolution(nodes, **sizes)
    assert "Conv" in blocked_nodes(proto)
    check(proto)


@pytest.mark.parametrize("scale", [False, True])
def test_what_onnxruntime_folds_into_constant_weights_stays_beside(scale, blocks):
    """A product with a constant, a batch normalisation: folded into a stand-in they would be lost."""
    if scale:
        proto = convolution("a = Conv(x, w)\n c = Mul(a, s)\n y = Add(c, s)", s=np.full((1, 32, 1, 1), 3, np.float32))
    else:
        stored = {n: np.linspace(i + 1, i + 2, 32, dtype=np.float32) for i, n in enumerate("stmv")}
        proto = convolution("a = Conv(x, w, b)\n y = BatchNormalization(a, s, t, m, v)", **stored)
    assert blocked_nodes(proto) is not None
    check(proto)


def test_what_nothing_can_change_onnxruntime_still_folds(blocks):
    """A frozen part keeps the batch normalisation in its convolution."""
    stored = {n: np.linspace(i + 1, i + 2, 32, dtype=np.float32) for i, n in enumerate("stmv")}
    kernel = np.random.default_rng(1).standard_normal((32, 16, 3, 3)).astype(np.float32)
    proto = convolution(
        "a = Conv(x, k)\n c = BatchNormalization(a, s, t, m, v)\n r = Relu(c)\n y = Conv(r, w)",
        w=(16, 32, 3, 3),
        k=kernel,
        **stored,
    )
    assert blocking.stand_in(proto).disabled == []
    assert blocked_nodes(proto).count("Conv") == 2
    check(proto)


def test_a_cotangent_that_is_a_constant_is_a_kernel_that_onnxruntime_computes(blocks):
    """Of a sum it is ones, and through a convolution with weights that are fed a kernel that is fed."""
    kernel = np.random.default_rng(1).standard_normal((16, 16, 3, 3)).astype(np.float32)
    primal = convolution("c = Conv<group=16>(x, w)\n y = Conv(c, k)", w=(16, 1, 3, 3), k=kernel)
    for frozen in (True, False):
        check(gradgen.value_and_grad(primal, wrt=["w", "k"][: 2 - frozen], reduce="sum"))


def test_a_constant_output_that_a_stand_in_could_be(tmp_path, blocks):
    found, stand_ins = optimised(convolution("y = Conv(x, w)"), tmp_path)
    kernel = kernel_of(found)
    found.graph.output.insert(0, onnx.helper.make_tensor_value_info("given", 1, [1]))
    found.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(kernel).ravel()[:1], "given"))
    assert blocking.restore(found, stand_ins, 2) is None


def test_weights_that_are_read_twice_are_ordered_once(blocks):
    proto = convolution("a = Conv(x, w)\n c = Neg(x)\n d = Conv(c, w)\n y = Add(a, d)")
    nodes = onnx.load_model_from_string(session._blocked(proto)).graph.node
    assert [n.op_type for n in nodes].count("Transpose") == 3


def test_sizes_that_only_the_run_tells(blocks):
    proto = convolution("y = Conv<pads=[1,1,1,1]>(x, w, b)", x=("N", 16, 16, 16))
    assert blocked_nodes(proto) is not None
    for count in (1, 5):
        check(proto, N=count)


@pytest.mark.parametrize(
    ("nodes", "sizes"),
    [
        ("y = Conv(x, w)", {"w": (32, 16, 1, 1)}),  # a product as it is
        ("y = Conv(x, w)", {"x": (1, 16, 8, 8)}),  # too few places for each weight
        ("y = Conv(x, w)", {"x": ("N", 16, 8, 8)}),
        ("y = Conv(x, w)", {"x": (4, 13, 16, 16), "w": (32, 13, 3, 3)}),
        ("y = Conv(x, w)", {"w": (4, 16, 3, 3)}),
        ("y = Conv<group=2>(x, w)", {"w": (32, 8, 3, 3)}),
        ("y = ConvTranspose<strides=[2,2]>(x, w)", {"w": (16, 32, 3, 3)}),
        ("y = ConvTranspose<output_shape=[17,17]>(x, w)", {"w": (16, 32, 3, 3)}),
        ("y = ConvTranspose<pads=[3,0,0,0]>(x, w)", {"w": (16, 32, 3, 3)}),
        ("y = ConvTranspose(x, w)", {"w": (16, 3, 3, 3)}),
        ("y = ConvTranspose(x, w)", {"w": (16, 8, 3, 3)}),
        ("y = Conv<group=16>(x, w)", {"w": (32, 1, 3, 3)}),
        ("s = Shape(w)\n v = ConstantOfShape(s)\n y = Conv(x, v)", {}),  # the sizes of what is fed are no numbers of it
        ("v = ConstantOfShape(s)\n y = ConvTranspose(x, v)", {"s": np.asarray([16, 32, 3, 3])}),
        ("c = Conv(x, k)\n y = Mul(c, c)", {"k": np.ones((32, 16, 3, 3), np.float32)}),
        (
            "y = Conv(k, w)",
            {"k": np.ones((4, 16, 16, 16), np.float32)},
        ),  # folded whole: nothing is left of the stand-in
    ],
)
def test_what_is_left_as_it_was(nodes, sizes, blocks):
    proto = convolution(nodes, **sizes)
    assert blocked_nodes(proto) is None
    check(proto, N=4)


@pytest.mark.parametrize("opset", [9, 10, 11, 22])
def test_other_opsets(opset, blocks):
    """In those below 11 what pads has other operands."""
    proto = convolution("y = Conv(x, w, b)", w=(20, 16, 3, 3), opset=opset)
    assert (blocked_nodes(proto) is None) is (opset < 11)
    check(proto)


def test_the_size_of_all_that_stands_in_is_limited(blocks, monkeypatch):
    proto = convolution("a = Conv(x, w)\n c = Conv(x, v)\n y = Add(a, c)", extra=", float[32,16,3,3] v")
    monkeypatch.setattr(blocking, "MAX_CODES", 32 * 16 * 9 + 32)
    assert len(blocking.stand_in(proto).stand_ins) == 1
    check(proto)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda node: node.input.pop(),
        lambda node: node.attribute.append(onnx.helper.make_attribute("group", 1.0)),
        lambda node: node.attribute.append(onnx.helper.make_attribute("strides", 1)),
        lambda node: node.output.append(node.output[0]),
    ],
)
def test_what_no_convolution_has_is_left_to_onnxruntime(spoil):
    proto = convolution("y = ConvTranspose(x, w)", w=(16, 32, 3, 3))
    spoil(proto.graph.node[0])
    with pytest.raises(gradgen.GradientError, match="onnxruntime does not load the model"):
        gradgen.compile(proto, cache=False)


def test_what_does_not_load_in_blocks_is_loaded_as_it_was(blocks, monkeypatch):
    monkeypatch.setattr(session, "_blocked", lambda proto: b"no model")
    check(convolution("y = Conv(x, w)"))


def test_no_room_for_the_optimised_model(blocks, monkeypatch):
    def refuse(*args, **settings):
        raise FileNotFoundError("no folder for temporary files")

    monkeypatch.setattr(session.tempfile, "TemporaryDirectory", refuse)
    check(convolution("y = Conv(x, w)"))


def test_other_element_types_are_left_as_they_were():
    text = "g (double[4,16,16,16] x, double[32,16,3,3] w) => (double[A,B,C,D] y) { y = Conv(x, w) }"
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    assert blocked_nodes(proto) is None


def test_constant_kernels_of_transposed_convolutions_are_turned(blocks):
    kernel = np.random.default_rng(1).standard_normal((16, 32, 3, 3)).astype(np.float32)
    proto = convolution("y = ConvTranspose<pads=[1,1,1,1]>(x, k)", k=kernel)
    assert "Conv" in blocked_nodes(proto)
    check(proto)


def test_names_that_a_model_has_already(blocks):
    proto = convolution("y = Conv(x, stand_in, order)")
    for value in proto.graph.input[1:]:
        value.name = {"w": "stand_in", "b": "order"}[value.name]
    assert "Conv" in blocked_nodes(proto)
    check(proto)


def test_subgraphs_see_the_weights(blocks):
    branches = [f"{n} = {n[0]}g () => (float[4,32,14,14] {n[0]}) {{ {n[0]} = Conv(x, {v}) }}" for n, v in
                (("then_branch", "w"), ("else_branch", "v"))]  # fmt: skip
    nodes = f"v = Neg(w)\n a = Conv(x, v)\n i = If<{', '.join(branches)}>(c)\n y = Mul(a, i)"
    proto = convolution(nodes, extra=", bool c")
    assert "Conv" in blocked_nodes(proto)
    for chosen in (True, False):
        feeds = {**arrays(proto), "c": np.asarray(chosen)}
        expected = plain(proto, feeds)[0]
        found = gradgen.compile(proto, cache=False)(**feeds)["y"]
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("input_too", [False, True])
def test_a_step_of_training(input_too, blocks):
    nodes = ("a = Conv<pads=[1,1,1,1]>(x, w, b)\n r = Relu(a)\n c = Conv<pads=[1,1,1,1]>(r, v)\n s = Mul(c, c)\n"
             " y = ReduceMean(s)")  # fmt: skip
    weights = np.random.default_rng(2).standard_normal((32, 32, 3, 3)).astype(np.float32)
    primal = convolution(nodes, v=weights)
    model = gradgen.value_and_grad(primal, wrt=["w", "b", "v"] + ["x"] * input_too)
    step = gradgen.compile(model, feed="v", threads=1, cache=False)
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    assert blocked_nodes(proto).count("Conv") >= 2 + input_too
    feeds = arrays(primal)
    found = step(**feeds, v=weights)
    for name, value in zip(found, plain(model, feeds), strict=True):
        np.testing.assert_allclose(found[name], value, rtol=0, atol=3e-6 * np.abs(value).max())


def test_a_step_of_training_with_channels_alone(blocks):
    """Here the cotangents of the convolution's result are the weights of the one that gives the kernel's."""
    nodes = "a = Conv<pads=[1,1,1,1], strides=[2,2], group=16>(x, w, b)\n s = Mul(a, a)\n y = ReduceMean(s)"
    primal = convolution(nodes, w=(16, 1, 3, 3))
    model = gradgen.value_and_grad(primal, wrt=["w", "b"])
    assert blocked_nodes(model).count("Conv") == 2
    check(model)


def test_the_kept_model_is_blocked_too(tmp_path, blocks):
    proto = convolution("y = Conv<pads=[1,1,1,1]>(x, w, b)")
    feeds = arrays(proto)
    first = gradgen.compile(proto, cache=tmp_path)(**feeds)["y"]
    (kept,) = tmp_path.glob("*.onnx")
    assert blocking.NCHWC in {n.domain for n in onnx.load(kept).graph.node}
    np.testing.assert_array_equal(gradgen.compile(proto, cache=tmp_path)(**feeds)["y"], first)


def optimised(proto: onnx.ModelProto, tmp_path) -> tuple[onnx.ModelProto, list[blocking.StandIn]]:
    prepared = blocking.stand_in(proto)
    options = session.options(1, False)
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(prepared.model.SerializeToString(), options, disabled_optimizers=prepared.disabled)
    return onnx.load(options.optimized_model_filepath), prepared.stand_ins


def kernel_of(proto: onnx.ModelProto) -> onnx.TensorProto:
    node = next(n for n in proto.graph.node if n.op_type == "Conv")
    return next(t for t in proto.graph.initializer if t.name == node.input[1])


def test_an_order_that_is_not_known_leaves_the_model_as_it_was(tmp_path, blocks):
    found, stand_ins = optimised(convolution("y = Conv(x, w)"), tmp_path)
    assert blocking.restore(found, stand_ins, 1) is not None
    kernel = kernel_of(found)
    numbers = numpy_helper.to_array(kernel).copy()
    numbers.flat[[5, 6]] = numbers.flat[[6, 5]]
    kernel.CopyFrom(numpy_helper.from_array(numbers, kernel.name))
    assert blocking.restore(found, stand_ins, 1) is None


def test_a_stand_in_that_something_else_reads_leaves_the_model_as_it_was(tmp_path, blocks):
    found, stand_ins = optimised(convolution("y = Conv(x, w)"), tmp_path)
    found.graph.node.append(onnx.helper.make_node("Neg", [kernel_of(found).name], ["read"]))
    assert blocking.restore(found, stand_ins, 1) is None


def test_a_stand_in_that_is_not_found_leaves_the_model_as_it_was(tmp_path, blocks):
    found, stand_ins = optimised(convolution("y = Conv(x, w)"), tmp_path)
    lost = dataclasses.replace(stand_ins[0], code=stand_ins[0].code * 2)
    assert blocking.restore(found, [*stand_ins, lost], 1) is None
