"""Rules that move elements where the generated tests do not reach: contents known at run time, types, node counts."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import gradgen

FAR = 2**63 - 1


def node_model(
    node: onnx.NodeProto,
    feeds: dict[str, np.ndarray],
    dims: dict[str, list[Any]],
    ranks: list[int],
    constants: dict[str, np.ndarray],
    opset: int = 21,
    out: int | None = None,
) -> onnx.ModelProto:
    """A model of one node, whose inputs have these dimensions and whose outputs have these ranks."""
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in feeds.items()}
    out = out or kinds[node.input[0]]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, kinds[n], dims[n]) for n in feeds],
        [helper.make_tensor_value_info(o, out, [None] * r) for o, r in zip(node.output, ranks, strict=True)],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def backward_ops(model: onnx.ModelProto) -> list[str]:
    """The nodes of a derivative but the constants and the forward node, which is the first."""
    return [n.op_type for n in model.graph.node if n.op_type != "Constant"][1:]


def gradient(
    op_type: str,
    x: np.ndarray,
    integers: dict[str, Any],
    parts: list[np.ndarray],
    *,
    known: bool,
    sizes: str = "",
    **attributes: Any,
) -> tuple[np.ndarray, np.ndarray, onnx.ModelProto]:
    """The gradient to x, the one that the moved positions tell, and the derivative.

    `parts` are the outputs of the op for the tensor of flat positions of x, by numpy; -1 is an element that does not
    come from x. `known` makes the integers constants; the dimensions of x are `known` (default: where the integers
    are), `named` or `open`.
    """
    arrays = {n: np.asarray(v, None if np.asarray(v).dtype == bool else np.int64) for n, v in integers.items() if n}
    outputs = [f"y{k}" for k in range(len(parts))]
    node = helper.make_node(op_type, ["x", *integers], outputs, **attributes)
    feeds = {"x": x} if known else {"x": x, **arrays}
    dims: dict[str, list[Any]] = {n: [f"{n}{i}" for i in range(a.ndim)] for n, a in feeds.items()}
    sizes = sizes or ("known" if known else "named")
    dims["x"] = {"known": list(x.shape), "named": dims["x"], "open": [None] * x.ndim}[sizes]
    model = node_model(node, feeds, dims, [p.ndim for p in parts], arrays if known else {})
    derivative = gradgen.vjp(model, wrt=["x"], of=outputs)
    onnx.checker.check_model(derivative, full_check=True)
    # Eighths, which half precision adds without rounding.
    cts = [(np.round(np.linspace(-8, 16, p.size)) / 8).reshape(p.shape).astype(x.dtype) for p in parts]
    found = run(derivative, {**feeds, **{f"grad_{o}": ct for o, ct in zip(outputs, cts, strict=True)}})["grad_x"]
    want = np.zeros(x.size)
    for part, ct in zip(parts, cts, strict=True):
        taken = part.reshape(-1) >= 0
        np.add.at(want, part.reshape(-1)[taken], ct.reshape(-1)[taken])
    return found, want.reshape(x.shape), derivative


def check(op_type: str, x: np.ndarray, integers: dict[str, Any], parts: list[np.ndarray], **attributes: Any) -> None:
    """The gradient with everything known, with names for dimensions, and with nothing known but ranks."""
    for known, sizes in itertools.product((True, False), ("known", "named", "open")):
        found, want, _ = gradient(op_type, x, integers, parts, known=known, sizes=sizes, **attributes)
        assert found.dtype == x.dtype and found.shape == x.shape
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5, err_msg=f"integers known: {known}, sizes {sizes}")


def ramp(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape))).reshape(shape).astype(dtype)


def positions(*shape: int) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape)


BOUNDS = [0, 2, -3, 100, FAR, -FAR]


@pytest.mark.parametrize(("start", "end"), itertools.product(BOUNDS, BOUNDS))
def test_slice_of_stride_one_with_bounds_known_or_not(start, end):
    check("Slice", ramp(5, 2), {"s": [start], "e": [end]}, [positions(5, 2)[start:end]])


@pytest.mark.parametrize("step", [-1, 2, -2, 4, -7])
@pytest.mark.parametrize(("start", "end"), [(1, 50), (-1, -FAR), (4, 0), (0, 100), (100, 1), (3, 3)])
def test_slice_of_any_stride(start, end, step):
    integers = {"s": [start], "e": [end], "a": [-1], "t": [step]}
    check("Slice", ramp(2, 6), integers, [positions(2, 6)[:, start:end:step]])


@pytest.mark.parametrize("far", [2**31 - 1, FAR])
def test_a_slice_backwards_to_the_largest_integer_follows_the_runtime(far):
    # Old exporters write it for "to the end" in either direction, and onnxruntime reads it so; onnx and numpy do not.
    integers = {"s": [4], "e": [far], "a": [0], "t": [-3]}
    found, want, _ = gradient("Slice", ramp(6), integers, [positions(6)[4::-3]], known=False)
    np.testing.assert_array_equal(found, want)


def test_slice_of_several_axes():
    integers = {"s": [1, -1, 0], "e": [FAR, -FAR, 3], "a": [2, 0, 1], "t": [2, -2, 1]}
    check("Slice", ramp(3, 4, 5), integers, [positions(3, 4, 5)[::-2, 0:3, 1::2]])
    check("Slice", ramp(3, 4, 5), {"s": [1, -3], "e": [2, -1], "a": [-3, 2]}, [positions(3, 4, 5)[1:2, :, -3:-1]])


def test_a_slice_where_another_axis_is_open():
    x = ramp(3, 7)
    constants = {"s": np.array([5, -1]), "e": np.array([0, -FAR]), "a": np.array([1, 0]), "t": np.array([-2, -1])}
    model = node_model(helper.make_node("Slice", ["x", *"seat"], ["y"]), {"x": x}, {"x": ["N", 7]}, [2], constants)
    derivative = gradgen.vjp(model)
    assert "ScatterElements" not in backward_ops(derivative) and "Shape" not in backward_ops(derivative)
    ct = ramp(3, 3)
    want = np.zeros((3, 7))
    want[::-1, 5:0:-2] = ct
    np.testing.assert_allclose(run(derivative, {"x": x, "grad_y": ct})["grad_x"], want)


def transposed_slice(kind: str, axes: list[int], stored: bool) -> tuple[onnx.ModelProto, np.ndarray]:
    """A slice between two transposes, along axes that the graph or the caller names."""
    bounds = ["starts", "ends", "axes"]
    text = f"""<ir_version: 10, opset_import: ["": 21]>
    g (float[N, 3, 4, K] x{"" if stored else f", {kind}[{len(axes)}] axes"}) => (float[A, B, C, D] y) {{
        t = Transpose <perm = [0, 2, 3, 1]> (x)
        s = Slice (t, {", ".join(bounds)})
        y = Transpose <perm = [0, 3, 1, 2]> (s)
    }}"""
    dtype = {"int32": np.int32, "int64": np.int64}[kind]
    contents = {"starts": [1] * len(axes), "ends": [1000] * len(axes), "axes": axes}
    model = onnx.parser.parse_model(text)
    for name in bounds if stored else bounds[:2]:
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(contents[name], dtype), name))
    return model, np.asarray(axes, dtype)


@pytest.mark.parametrize("stored", [True, False], ids=["known", "fed"])
@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("axes", [[1], [-2], [2, 0], [3, -3]], ids=str)
def test_a_slice_between_transposes(axes, kind, stored):
    # onnxruntime moves a Transpose behind a Pad without a look at the axes that the Pad names.
    model, named = transposed_slice(kind, axes, stored)
    x = ramp(2, 3, 4, 5)
    taken: list[Any] = [slice(None)] * 4
    for axis in axes:
        taken[axis] = slice(1, None)
    ct = ramp(*x.transpose(0, 2, 3, 1)[tuple(taken)].transpose(0, 3, 1, 2).shape)
    expected = np.zeros((2, 4, 5, 3), np.float32)
    expected[tuple(taken)] = ct.transpose(0, 2, 3, 1)
    found = run(gradgen.vjp(model), {"x": x, "grad_y": ct} | ({} if stored else {"axes": named}))
    np.testing.assert_array_equal(found["grad_x"], expected.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [[1, 2, 2, 3], [0, 0, 0, 0], [-1, 1, 1, -2], [0, -1, -2, 0], [2, 0, 0, 3]])
def test_pad_in_every_mode(mode, pads):
    def moved(index: np.ndarray, axis: int, before: int, after: int) -> np.ndarray:
        # Cut first, then pad what is left: np.pad cannot cut.
        index = np.take(index, range(max(0, -before), index.shape[axis] - max(0, -after)), axis)
        sides = [(0, 0)] * index.ndim
        sides[axis] = (max(0, before), max(0, after))
        return np.pad(index, sides, mode, **({"constant_values": -1} if mode == "constant" else {}))

    index = moved(moved(positions(3, 4), 0, pads[0], pads[2]), 1, pads[1], pads[3])
    check("Pad", ramp(3, 4), {"pads": pads}, [index], mode=mode)
    swapped = [pads[1], pads[0], pads[3], pads[2]]
    check("Pad", ramp(3, 4), {"pads": swapped, "": None, "axes": [-1, 0]}, [index], mode=mode)


def test_pad_of_one_element_and_around_many_times():
    check("Pad", ramp(1), {"pads": [2, 3]}, [np.zeros(6, int)], mode="edge")
    check("Pad", ramp(2), {"pads": [9, 12]}, [np.pad(positions(2), (9, 12), "wrap")], mode="wrap")


def test_a_long_signal_is_folded_without_an_index():
    _, _, derivative = gradient(
        "Pad", ramp(1, 4000), {"pads": [0, 200, 0, 200]}, [np.pad(positions(1, 4000), ((0, 0), (200, 200)), "reflect")],
        known=True, mode="reflect",
    )  # fmt: skip
    assert set(backward_ops(derivative)) == {"Slice", "Pad", "Sum"}


def test_the_constant_of_a_pad_gets_the_border_without_cancellation():
    x, value = ramp(2, 3), np.array(0.5, np.float32)
    ct = np.full((4, 4), 1e8, np.float32)
    ct[0], ct[-1], ct[:, -1] = 0.25, 0.25, 0.25
    node = helper.make_node("Pad", ["x", "pads", "value"], ["y"])
    constants = {"pads": np.array([1, 0, 1, 1])}
    feeds = {"x": x, "value": value}
    derivative = gradgen.vjp(node_model(node, feeds, {"x": ["N", 3], "value": []}, [2], constants), wrt=["x", "value"])
    found = run(derivative, {**feeds, "grad_y": ct})
    np.testing.assert_array_equal(found["grad_x"], ct[1:3, :3])
    assert found["grad_value"] == np.float32(0.25 * 10)


def test_the_constant_of_a_pad_that_repeats_its_content_gets_nothing():
    feeds = {"x": ramp(3), "value": np.array(0.5, np.float32)}
    node = helper.make_node("Pad", ["x", "pads", "value"], ["y"], mode="edge")
    model = node_model(node, feeds, {"x": [3], "value": []}, [1], {"pads": np.array([1, 1])})
    found = run(gradgen.vjp(model, wrt=["x", "value"]), {**feeds, "grad_y": ramp(5)})
    assert found["grad_value"] == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_types(dtype):
    check("Pad", ramp(4, dtype=dtype), {"pads": [2, 1]}, [np.pad(positions(4), (2, 1), "reflect")], mode="reflect")
    check("Slice", ramp(5, dtype=dtype), {"s": [4], "e": [0], "a": [0], "t": [-2]}, [positions(5)[4:0:-2]])
    check("Tile", ramp(2, 2, dtype=dtype), {"r": [2, 1]}, [np.tile(positions(2, 2), (2, 1))])


@pytest.mark.parametrize("repeats", [[2, 3], [1, 1], [0, 2], [1, 4], [3, 1]])
def test_tile(repeats):
    check("Tile", ramp(2, 3), {"r": repeats}, [np.tile(positions(2, 3), repeats)])
    check("Tile", ramp(2, 1), {"r": repeats}, [np.tile(positions(2, 1), repeats)])


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("sizes", [[2, 1, 4], [0, 7, 0]])
def test_split_by_sizes(axis, sizes):
    x = ramp(7, 2) if axis == 0 else ramp(2, 7)
    parts = np.split(positions(*x.shape), np.cumsum(sizes)[:-1], axis)
    check("Split", x, {"sizes": sizes}, parts, axis=axis)


@pytest.mark.parametrize("used", [["y0"], ["y1"], ["y3"], ["y0", "y2"], ["y1", "y2"]])
@pytest.mark.parametrize("dims", [[2, 7], ["N", "T"], [None, None]])
def test_parts_of_a_split_that_nobody_uses(used, dims):
    x = ramp(2, 7)
    node = helper.make_node("Split", ["x"], ["y0", "y1", "y2", "y3"], axis=1, num_outputs=4)
    model = node_model(node, {"x": x}, {"x": dims}, [2] * 4, {})
    want = np.zeros_like(x)
    feeds = {"x": x}
    for k, at in enumerate([slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 7)]):
        if f"y{k}" in used:
            feeds[f"grad_y{k}"] = want[:, at] = ramp(2, 7)[:, at] + k
    derivative = gradgen.vjp(model, of=used)
    np.testing.assert_array_equal(run(derivative, feeds)["grad_x"], want)


@pytest.mark.parametrize("shape", [(1, 3, 1, 2), (2, 3), (1, 1)])
def test_squeeze_of_every_axis_of_size_one(shape):
    index = positions(*shape).squeeze()
    found, want, derivative = gradient("Squeeze", ramp(*shape), {}, [index], known=True)
    np.testing.assert_allclose(found, want)
    assert backward_ops(derivative) in (["Reshape"], ["Identity"])
    found, want, _ = gradient("Squeeze", ramp(*shape), {}, [index], known=False)
    np.testing.assert_allclose(found, want)


def test_views_whose_shape_is_known_at_run_time():
    check("Reshape", ramp(4, 3), {"shape": [2, -1]}, [positions(2, 6)])
    check("Reshape", ramp(2, 0, 3), {"shape": [3, 0]}, [positions(3, 0)], allowzero=1)
    check("Unsqueeze", ramp(4, 3), {"axes": [-1, 0]}, [positions(1, 4, 3, 1)])
    check("Squeeze", ramp(1, 4, 1), {"axes": [-1]}, [positions(1, 4)])
    check("Flatten", ramp(2, 3, 4), {}, [positions(6, 4)], axis=-1)


@pytest.mark.parametrize("shape", [[3, 4], [2, 1, 4], [1], [3, 1]])
def test_expand(shape):
    index = np.broadcast_to(positions(3, 1), np.broadcast_shapes((3, 1), tuple(shape)))
    check("Expand", ramp(3, 1), {"shape": shape}, [index])


def test_expand_to_a_known_target_needs_no_shape_arithmetic():
    model = node_model(
        helper.make_node("Expand", ["x", "shape"], ["y"]), {"x": ramp(3, 1)}, {"x": [None, 1]}, [2],
        {"shape": np.array([1, 4])},
    )  # fmt: skip
    assert backward_ops(gradgen.vjp(model)) == ["ReduceSum"]


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress(axis):
    keep = [True, False, True, False, True] if axis is None else [False, True, True]
    index = np.compress(keep, positions(4, 3), axis)
    check("Compress", ramp(4, 3), {"keep": keep}, [index], **({} if axis is None else {"axis": axis}))


def test_center_crop_or_pad_through_its_body():
    index = np.full((2, 6), -1)
    index[:, 1:5] = positions(4, 4)[1:3]
    for known in (True, False):
        found, want, _ = gradient("CenterCropPad", ramp(4, 4), {"shape": [2, 6]}, [index], known=known)
        np.testing.assert_allclose(found, want)


def test_concat_of_one_value_twice_and_of_unknown_sizes():
    x, z = ramp(2, 3), ramp(4, 3)
    node = helper.make_node("Concat", ["x", "z", "x"], ["y"], axis=-2)
    ct = ramp(8, 3)
    for dims in ({"x": [2, 3], "z": [4, 3]}, {"x": ["N", 3], "z": ["M", 3]}, {"x": [None, None], "z": [None, None]}):
        found = run(gradgen.vjp(node_model(node, {"x": x, "z": z}, dims, [2], {})), {"x": x, "z": z, "grad_y": ct})
        np.testing.assert_allclose(found["grad_x"], ct[:2] + ct[6:], rtol=1e-6)
        np.testing.assert_array_equal(found["grad_z"], ct[2:6])


CASTS = [(np.float32, TensorProto.FLOAT16), (np.float16, TensorProto.FLOAT), (np.float32, TensorProto.DOUBLE)]


@pytest.mark.parametrize(("dtype", "to"), CASTS)
def test_cast_between_floats(dtype, to):
    x = ramp(3, dtype=dtype)
    model = node_model(helper.make_node("Cast", ["x"], ["y"], to=to), {"x": x}, {"x": [3]}, [1], {}, out=to)
    derivative = gradgen.vjp(model)
    assert backward_ops(derivative) == ["Cast"]
    ct = ramp(3, dtype=helper.tensor_dtype_to_np_dtype(to))
    found = run(derivative, {"x": x, "grad_y": ct})["grad_x"]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, ct.astype(dtype))


@pytest.mark.parametrize("to", [TensorProto.INT32, TensorProto.BOOL])
def test_a_cast_to_what_is_no_float_stops(to):
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=to),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "x"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.array([0, 1.7, -2.2, 3], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        found = run(gradgen.vjp(model), {"x": x, "grad_y": np.ones(4, np.float32)})["grad_x"]
    np.testing.assert_array_equal(found, x.astype(helper.tensor_dtype_to_np_dtype(to)).astype(np.float32))


SINGLE = [
    ("Reshape", {"shape": [4, 3]}, [2], {}, ["Reshape"]),
    ("Flatten", {}, [2], {"axis": 2}, ["Reshape"]),
    ("Transpose", {}, [3], {}, ["Transpose"]),
    ("Unsqueeze", {"axes": [0]}, [4], {}, ["Squeeze"]),
    ("Expand", {"shape": [5, 1, 1, 1]}, [4], {}, ["ReduceSum"]),
    ("Slice", {"s": [1], "e": [FAR], "a": [1]}, [3], {}, ["Pad"]),
    ("Slice", {"s": [-1], "e": [-FAR], "a": [0], "t": [-1]}, [3], {}, ["Slice"]),
    ("Slice", {"s": [0], "e": [FAR], "a": [1], "t": [2]}, [3], {}, ["Unsqueeze", "Pad", "Reshape", "Pad"]),
    ("Pad", {"pads": [0, 1, 0, 0, 0, 2]}, [3], {}, ["Slice"]),
    ("Tile", {"repeats": [2, 1, 3]}, [3], {}, ["Reshape", "ReduceSum"]),
    ("Split", {}, [3, 3, 3], {"axis": 1, "num_outputs": 3}, ["Concat"]),
]


@pytest.mark.parametrize(("op_type", "integers", "ranks", "attributes", "want"), SINGLE)
@pytest.mark.parametrize("batch", [2, "N"])
def test_static_shapes_and_one_open_dimension_leave_no_shape_arithmetic(
    op_type, integers, ranks, attributes, want, batch
):
    outputs = [f"y{k}" for k in range(len(ranks))]
    node = helper.make_node(op_type, ["x", *integers], outputs, **attributes)
    constants = {n: np.asarray(v, np.int64) for n, v in integers.items()}
    model = node_model(node, {"x": ramp(2, 3, 2)}, {"x": [batch, 3, 2]}, ranks, constants)
    assert backward_ops(gradgen.vjp(model)) == want


def test_two_open_dimensions_are_copied_where_they_stand():
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "T", 8]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4),
    ]
    graph = helper.make_graph(
        nodes, "g", values[:1], values[1:], [numpy_helper.from_array(np.array([0, 0, 2, 4]), "shape")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    derivative = gradgen.vjp(model)
    assert backward_ops(derivative) == ["Reshape"]
    for shape in ((2, 3), (0, 3), (2, 0)):
        ct = ramp(*shape, 2, 4)
        found = run(derivative, {"x": np.zeros((*shape, 8), np.float32), "grad_y": ct})["grad_x"]
        np.testing.assert_array_equal(found, ct.reshape(*shape, 8))
