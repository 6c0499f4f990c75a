"""Gradients of convolutions that the generated tests do not reach: sizes known at run time alone, edges, many nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest

import gradgen
from gradgen.differences import directional
from gradgen.evaluate import Evaluator, to_float64

DYNAMIC = [
    {"strides": [2, 2], "pads": [1, 0, 1, 2]},
    {"strides": [3, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 4], "auto_pad": "SAME_LOWER"},
    {"auto_pad": "SAME_UPPER"},
    {"strides": [2, 3], "auto_pad": "VALID"},
    {"strides": [1, 2], "dilations": [2, 1], "pads": [2, 2, 1, 0]},
]


def build(op_type: str, shapes: Mapping[str, Sequence[Any]], **attributes: Any) -> onnx.ModelProto:
    """A float32 model of one node; a dimension may be a name."""
    node = onnx.helper.make_node(op_type, list(shapes), ["Y"], name="node", **attributes)
    declared = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes.items()]
    rank = len(shapes["X"])
    result = onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, [f"y{i}" for i in range(rank)])
    graph = onnx.helper.make_graph([node], "single", declared, [result])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def derivative(primal: onnx.ModelProto, wrt: Sequence[str] = ()) -> onnx.ModelProto:
    model = gradgen.vjp(primal, wrt=list(wrt) or [i.name for i in primal.graph.input], of=["Y"])
    onnx.checker.check_model(model, full_check=True)
    return model


def compare(primal: onnx.ModelProto, model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], strict: bool = True):
    """The gradients, in float32 on onnxruntime, against float64 differences of the primal in a random direction."""
    rng = np.random.default_rng(11)
    feeds = {n: rng.uniform(-1, 1, s).astype(np.float32) for n, s in shapes.items()}
    wide = {n: a.astype(np.float64) for n, a in feeds.items()}
    run = Evaluator(to_float64(primal))
    ct = rng.uniform(-1, 1, run(wide)["Y"].shape)
    if strict:
        results = Evaluator(model, strict=True)({**feeds, "grad_Y": ct.astype(np.float32)})
    else:
        results = Evaluator(to_float64(model))({**wide, "grad_Y": ct})
    for name, value in wide.items():
        found = results[f"grad_{name}"]
        assert found.shape == value.shape
        direction = rng.standard_normal(value.shape)
        want = directional(run, wide, {name: direction}, {"Y": ct}).value
        scale = max(abs(want), float(np.abs(found * direction).sum()), 1e-3)
        assert abs(float(np.sum(found * direction)) - want) <= 2e-5 * scale, name
    return results


def ops(model: onnx.ModelProto) -> list[str]:
    """The ops that the derivative adds to its one primal node."""
    return [n.op_type for n in model.graph.node][1:]


@pytest.mark.parametrize("attributes", DYNAMIC, ids=str)
def test_one_derivative_serves_every_size(attributes: dict[str, Any]) -> None:
    primal = build("Conv", {"X": ["N", 2, "H", "W"], "W": [3, 2, 2, 3], "B": [3]}, **attributes)
    model = derivative(primal)
    for batch, height, width in [(2, 7, 8), (1, 5, 9), (3, 6, 6), (1, 3, 3), (0, 5, 5)]:
        compare(primal, model, {"X": [batch, 2, height, width], "W": [3, 2, 2, 3], "B": [3]})


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 3], "output_padding": [1, 2]},
        {"strides": [2, 2], "pads": [1, 0, 0, 2]},
        {"strides": [3, 1], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER", "output_padding": [1, 0]},
    ],
    ids=str,
)
def test_transposed_with_sizes_known_at_run_time(attributes: dict[str, Any]) -> None:
    primal = build("ConvTranspose", {"X": ["N", 2, "H", "W"], "W": [2, 3, 4, 3], "B": [3]}, **attributes)
    model = derivative(primal)
    for batch, height, width in [(2, 4, 3), (1, 2, 5), (0, 3, 3)]:
        compare(primal, model, {"X": [batch, 2, height, width], "W": [2, 3, 4, 3], "B": [3]})


def test_transposed_to_a_given_shape_from_unknown_sizes() -> None:
    primal = build("ConvTranspose", {"X": ["N", 2, "H"], "W": [2, 3, 4]}, strides=[3], output_shape=[10])
    model = derivative(primal)
    for size in (3, 4, 5):
        compare(primal, model, {"X": [2, 2, size], "W": [2, 3, 4]})


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ([1, 2, 4, 5, 3], [2, 2, 3, 2, 2], {"auto_pad": "SAME_UPPER"}),
        ([1, 2, 5, 4, 3], [2, 2, 2, 3, 2], {"auto_pad": "SAME_LOWER", "strides": [2, 3, 2]}),
        ([2, 1, 4], [2, 1, 2], {"pads": [3, 4]}),
        ([1, 1, 4, 3], [1, 1, 1, 2], {"pads": [2, 3, 1, 2], "strides": [3, 2]}),
        ([1, 2, 9], [2, 2, 2], {"strides": [4]}),
        ([1, 2, 8, 7], [3, 2, 1, 1], {"strides": [3, 3]}),
        ([2, 4, 5], [8, 1, 3], {"group": 4}),
        ([1, 2, 3, 3], [2, 2, 3, 3], {}),
        ([1, 3, 1], [2, 3, 1], {"pads": [1, 1], "strides": [3]}),
    ],
    ids=str,
)
def test_edges_of_windows(x: list[int], w: list[int], attributes: dict[str, Any]) -> None:
    primal = build("Conv", {"X": x, "W": w, "B": w[:1]}, **attributes)
    compare(primal, derivative(primal), {"X": x, "W": w, "B": w[:1]})
    names = [*["N", x[1]], *(f"s{i}" for i in range(len(x) - 2))]
    dynamic = build("Conv", {"X": names, "W": w, "B": w[:1]}, **attributes)
    compare(dynamic, derivative(dynamic), {"X": x, "W": w, "B": w[:1]})


def test_rows_that_no_window_reaches_get_zeros() -> None:
    primal = build("Conv", {"X": [1, 1, 8], "W": [1, 1, 2]}, strides=[3])
    results = compare(primal, derivative(primal), {"X": [1, 1, 8], "W": [1, 1, 2]})
    assert (results["grad_X"][0, 0, [2, 5]] == 0).all() and (results["grad_X"][0, 0, [0, 1, 3, 4, 6, 7]] != 0).all()


def test_many_channels_tile_the_one_hot_kernel() -> None:
    shapes: dict[str, list[Any]] = {"X": [1, 210, 4, 4], "W": [210, 1, 3, 3]}
    primal = build("Conv", {**shapes, "X": ["N", 210, 4, 4]}, group=210)
    model = derivative(primal)
    assert "Tile" in ops(model)
    compare(primal, model, shapes)


def test_output_padding_beyond_the_stride_under_dilation() -> None:
    # onnxruntime refuses the primal; the standard allows it: one more window fits, and belongs to no input.
    shapes: dict[str, list[Any]] = {"X": [1, 2, 4], "W": [2, 2, 3]}
    primal = build("ConvTranspose", shapes, dilations=[3], output_padding=[2])
    compare(primal, derivative(primal), shapes, strict=False)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types_keep_their_type(dtype: Any) -> None:
    primal = build("Conv", {"X": ["N", 2, 5, 5], "W": [3, 2, 3, 3], "B": [3]}, pads=[1, 1, 1, 1])
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for value in [*primal.graph.input, *primal.graph.output]:
        value.type.tensor_type.elem_type = kind
    model = derivative(primal)
    assert {o.type.tensor_type.elem_type for o in model.graph.output} == {kind}
    rng = np.random.default_rng(2)
    feeds = {
        n: rng.integers(-2, 3, s).astype(dtype) for n, s in [("X", (2, 2, 5, 5)), ("W", (3, 2, 3, 3)), ("B", (3,))]
    }
    results = Evaluator(model)({**feeds, "grad_Y": np.ones((2, 3, 5, 5), dtype)})
    assert results["grad_X"].dtype == results["grad_W"].dtype == dtype
    # With a cotangent of ones the middle of each kernel sees all of X, and each bias every place of the output.
    np.testing.assert_array_equal(results["grad_W"][:, :, 1, 1], np.tile(feeds["X"].sum((0, 2, 3)), (3, 1)))
    np.testing.assert_array_equal(results["grad_B"], np.full(3, 50, dtype))


def test_few_nodes_and_no_shape_arithmetic() -> None:
    shapes: dict[str, list[Any]] = {"X": ["N", 8, 9, 9], "W": [16, 8, 3, 3], "B": [16]}
    found = ops(derivative(build("Conv", shapes, strides=[2, 2])))
    assert len(found) <= 10 and not {"Shape", "Concat", "Pad", "Slice"} & set(found), found
    assert ops(derivative(build("Conv", shapes), ["X"])) == ["ConvTranspose"]
    same: dict[str, list[Any]] = {"X": ["N", 8, "H", "W"], "W": [16, 8, 3, 3]}
    assert ops(derivative(build("Conv", same, auto_pad="SAME_LOWER"), ["X"])) == ["ConvTranspose"]
    assert ops(derivative(build("ConvTranspose", {"X": ["N", 8, "H"], "W": [8, 4, 3]}), ["X"])) == ["Conv"]


def test_a_kernel_of_one_element_needs_no_patches() -> None:
    shapes: dict[str, list[Any]] = {"X": ["N", 8, 9, 9], "W": [16, 8, 1, 1]}
    assert ops(derivative(build("Conv", shapes), ["W"])).count("Conv") == 0
    assert ops(derivative(build("Conv", shapes, strides=[2, 2]), ["W"])).count("Conv") == 1


def test_patches_of_blocks_that_are_known_at_run_time_alone() -> None:
    node = onnx.helper.make_node("Col2Im", ["X", "image", "block"], ["Y"], name="node", strides=[2, 1])
    declared = [
        onnx.helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, ["N", "C", "L"]),
        onnx.helper.make_tensor_value_info("image", onnx.TensorProto.INT64, [2]),
        onnx.helper.make_tensor_value_info("block", onnx.TensorProto.INT64, [2]),
    ]
    result = onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, ["N", "c", "h", "w"])
    graph = onnx.helper.make_graph([node], "single", declared, [result])
    primal = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    model = derivative(primal, ["X"])
    ct = np.random.default_rng(4).standard_normal((2, 3, 5, 4)).astype(np.float32)
    feeds = {"X": np.zeros((2, 18, 6), np.float32), "image": np.array([5, 4]), "block": np.array([3, 2])}
    found = Evaluator(model, strict=True)({**feeds, "grad_Y": ct})["grad_X"]
    windows = np.lib.stride_tricks.sliding_window_view(ct, (3, 2), axis=(2, 3))[:, :, ::2]
    np.testing.assert_array_equal(found, windows.transpose(0, 1, 4, 5, 2, 3).reshape(2, 18, 6))


@pytest.mark.parametrize("attributes", [{"output_shape": [7, 5]}, {"auto_pad": "SAME_UPPER"}, {"pads": [1, 0, 0, 1]}])
def test_a_transposed_convolution_whose_rank_is_not_inferred(attributes: dict[str, Any]) -> None:
    """With a kernel of unknown size the standard infers no rank, and what follows has none either."""
    shapes: dict[str, list[Any]] = {"X": ["n", "c", "h", "w"], "W": ["C", "K", "p", "q"]}
    primal = build("ConvTranspose", shapes, strides=[2, 1], **attributes)
    primal.graph.node.append(onnx.helper.make_node("ReduceSumSquare", ["Y"], ["Z"], name="square", keepdims=0))
    primal.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("Z", onnx.TensorProto.FLOAT, []))
    model = gradgen.grad(primal, wrt=["X", "W"])
    rng = np.random.default_rng(6)
    feeds = {"X": rng.standard_normal((1, 2, 3, 4)), "W": rng.standard_normal((2, 2, 3, 2))}
    found = Evaluator(model, strict=True)({n: a.astype(np.float32) for n, a in feeds.items()})
    for name, value in feeds.items():
        direction = rng.standard_normal(value.shape)
        want = directional(Evaluator(to_float64(primal)), feeds, {name: direction}, {"Z": np.ones(())})
        np.testing.assert_allclose((found[f"grad_{name}"] * direction).sum(), want.value, rtol=1e-4)


def test_few_channels_over_a_large_image_are_copied_by_row_and_column() -> None:
    """dY with rows of zeros between its copies, and a one-hot kernel [1, 3], in place of nine copies of X."""
    found = ops(derivative(build("Conv", {"X": [2, 4, 24, 6], "W": [4, 4, 3, 3]}, pads=[1, 1, 1, 1])))
    assert sorted(found) == sorted(
        ["ConvTranspose", "Expand", "Concat", "Conv", *["Reshape"] * 3, *["Transpose"] * 2, "MatMul", "ReduceSum"]
    )
    large = derivative(build("Conv", {"X": [64, 4, 16, 16], "W": [8, 4, 3, 3]}, pads=[1, 1, 1, 1]))
    small = derivative(build("Conv", {"X": [2, 4, 16, 16], "W": [8, 4, 3, 3]}, pads=[1, 1, 1, 1]))
    assert "Concat" in ops(large) and "Concat" not in ops(small)


@pytest.mark.parametrize(("count", "kind"), [(2, "Conv"), (3, "ConvTranspose")])
def test_a_cotangent_of_few_channels_is_convolved(count: int, kind: str) -> None:
    shapes: dict[str, list[Any]] = {"X": ["N", 4, "H", "W"], "W": [count, 4, 3, 3]}
    model = gradgen.vjp(build("Conv", shapes, pads=[0, 1, 2, 0]), wrt=["X"])
    assert ops(model)[-1] == kind


def test_pads_beyond_the_kernel_are_transposed() -> None:
    shapes: dict[str, list[Any]] = {"X": [1, 4, 5], "W": [1, 4, 2]}
    primal = build("Conv", shapes, pads=[2, 0])
    model = derivative(primal)
    assert "ConvTranspose" in ops(model)
    compare(primal, model, shapes)


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [([3, 3], {"pads": [1, 1, 1, 1]}), ([2, 5], {"pads": [0, 4, 1, 0], "dilations": [2, 1]}),
     ([4, 2], {"pads": [3, 0, 2, 1], "strides": [1, 2], "dilations": [2, 3]}), ([3, 3], {"auto_pad": "SAME_LOWER"})],
    ids=str,
)  # fmt: skip
def test_the_separable_form(kernel: list[int], attributes: dict[str, Any]) -> None:
    shapes = {"X": [2, 3, 25, 9], "W": [2, 3, *kernel], "B": [2]}
    primal = build("Conv", shapes, **attributes)
    model = derivative(primal)
    assert any("conv_vjp__separable" in n.name for n in model.graph.node)
    compare(primal, model, shapes)


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [([3, 3], {"pads": [1, 1, 1, 1]}), ([2, 5], {"pads": [0, 4, 1, 0], "dilations": [2, 1]}),
     ([4, 2], {"pads": [3, 0, 2, 1], "strides": [1, 2], "dilations": [2, 3]})],
    ids=str,
)  # fmt: skip
def test_the_separable_form_in_a_large_batch(kernel: list[int], attributes: dict[str, Any]) -> None:
    shapes = {"X": [16, 4, 15, 70], "W": [3, 4, *kernel], "B": [3]}
    primal = build("Conv", shapes, **attributes)
    model = derivative(primal)
    assert any("conv_vjp__separable" in n.name for n in model.graph.node)
    compare(primal, model, shapes)


@pytest.mark.parametrize("batch", [0, "N"])
def test_the_separable_form_of_no_images(batch: int | str) -> None:
    shapes = {"X": [0, 4, 24, 6], "W": [2, 4, 3, 3]}
    primal = build("Conv", {**shapes, "X": [batch, 4, 24, 6]}, pads=[1, 1, 1, 1])
    model = derivative(primal)
    assert any("conv_vjp__separable" in n.name for n in model.graph.node)
    assert not compare(primal, model, shapes)["grad_W"].any()


@pytest.mark.parametrize(
    ("image", "kernel", "pads"),
    [
        ([2, 48, 8, 8], [48, 48, 3, 3], [1, 1, 1, 1]),
        ([2, 64, 7, 9], [32, 64, 3, 3], [0, 1, 2, 1]),  # tiles that reach beyond the result
        ([3, 32, 5, 6], [64, 32, 3, 3], [0, 0, 0, 0]),
        ([1, 48, 4, 4], [48, 48, 3, 3], [3, 3, 3, 3]),
        ([2, 48, 9], [48, 48, 3], [1, 0]),
        ([2, 130, 6, 5], [128, 130, 3, 3], [1, 1, 1, 1]),  # dX by tiles too
        ([1, 128, 11], [128, 128, 3], [0, 2]),
        ([0, 48, 6, 6], [48, 48, 3, 3], [1, 1, 1, 1]),
        ([0, 128, 6, 6], [128, 128, 3, 3], [1, 1, 1, 1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_the_form_by_tiles(image: list[int], kernel: list[int], pads: list[int], unknown: int) -> None:
    """Of so many axes of the image in front the sizes are not stated."""
    shapes = {"X": image, "W": kernel, "B": kernel[:1]}
    primal = build("Conv", {**shapes, "X": [*"NC"[:unknown], *image[unknown:]]}, pads=pads)
    model = derivative(primal)
    assert any("conv_vjp__winograd" in n.name for n in model.graph.node)
    steps = [
        a.ints for n in model.graph.node if n.op_type == "ConvTranspose" for a in n.attribute if a.name == "strides"
    ]
    assert any(len(s) == len(image) - 1 for s in steps) is (min(kernel[:2]) >= 128)
    results = compare(primal, model, shapes)
    # Of so many elements each is held to a formula of its own.
    rng = np.random.default_rng(11)
    x = rng.uniform(-1, 1, image).astype(np.float32).astype(np.float64)
    rng.uniform(-1, 1, kernel), rng.uniform(-1, 1, kernel[:1])
    sides = [(0, 0), (0, 0), *zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, sides), kernel[2:], axis=tuple(range(2, x.ndim)))
    ct = rng.uniform(-1, 1, (image[0], kernel[0], *windows.shape[2 : x.ndim])).astype(np.float32)
    axes = [0, *range(2, x.ndim)]
    expected = np.tensordot(ct.astype(np.float64), windows, (axes, axes))
    np.testing.assert_allclose(results["grad_W"], expected, rtol=0, atol=3e-6 * max(np.abs(expected).max(), 1e-9))


@pytest.mark.parametrize(
    ("image", "kernel", "attributes"),
    [
        ([3, 8, 6, 7], [3, 3], {"pads": [1, 1, 1, 1]}),
        ([2, 4, 9, 8], [3, 2], {"strides": [2, 3], "pads": [0, 1, 2, 0]}),
        ([1, 2, 10, 11], [2, 3], {"strides": [3, 2], "dilations": [2, 1]}),  # rows that are in no window
        ([2, 2, 5, 5], [3, 3], {"dilations": [2, 2]}),
        ([2, 2, 8, 8], [2, 2], {"strides": [4, 4]}),
        ([2, 2, 5, 6], [3, 3], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ([2, 2, 4, 4], [4, 4], {}),
        ([2, 2, 4, 4], [1, 1], {"strides": [2, 2]}),
    ],
    ids=str,
)
def test_each_channel_alone(image: list[int], kernel: list[int], attributes: dict[str, Any]) -> None:
    shapes = {"X": image, "W": [image[1], 1, *kernel], "B": image[1:2]}
    primal = build("Conv", shapes, group=image[1], **attributes)
    model = derivative(primal)
    assert any("conv_vjp__depthwise" in n.name for n in model.graph.node)
    compare(primal, model, shapes)


def test_tiles_of_a_kernel_whose_sizes_an_attribute_states() -> None:
    shapes = {"X": [2, 32, 6, 6], "W": [64, 32, 3, 3]}
    primal = build("Conv", {**shapes, "W": [64, 32, "h", "w"]}, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    model = derivative(primal)
    assert any("conv_vjp__winograd" in n.name for n in model.graph.node)
    compare(primal, model, shapes)


def test_few_channels_get_no_tiles() -> None:
    model = derivative(build("Conv", {"X": [2, 32, 8, 8], "W": [32, 32, 3, 3]}))
    assert not any("conv_vjp__winograd" in n.name for n in model.graph.node)


def test_a_convolution_of_a_value_whose_rank_is_not_inferred() -> None:
    """Behind a Reshape to a shape that is an input, and in front of whatever needs no rank."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[A] x, int64[R] s, float[3,2,1,1] w) => (float y) {
        a = Reshape(x, s)\n b = Conv(a, w)\n c = Mul(b, b)\n y = ReduceSum<keepdims=0>(c) }"""
    model = gradgen.grad(onnx.parser.parse_model(text), wrt=["x", "w"])
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(24).astype(np.float32), rng.standard_normal((3, 2, 1, 1)).astype(np.float32)
    found = Evaluator(model, strict=True)({"x": x, "s": np.array([2, 2, 3, 2]), "w": w})
    image, kernel = x.reshape(2, 2, 6).astype(np.float64), w.reshape(3, 2).astype(np.float64)
    out = np.einsum("kc,ncl->nkl", kernel, image)
    np.testing.assert_allclose(
        found["grad_x"], 2 * np.einsum("kc,nkl->ncl", kernel, out).reshape(-1), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        found["grad_w"].reshape(3, 2), 2 * np.einsum("nkl,ncl->kc", out, image), rtol=1e-4, atol=1e-5
    )
