"""Raising models to opset 21: onnxruntime's results at the old opset are what the raised model must give."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from opset_runs import IMAGE, RNG, check, compare, make, raised, run, tensor_info

from gradgen.engine.knowledge import CONSTANT_MARK
from gradgen.engine.opsets import CHANGES, OLDEST, TARGET, raise_opset
from gradgen.errors import GradientError

NOT_FINITE = np.array([np.inf, -np.inf, np.nan, 1, 7, -7], np.float32)


def test_every_change_between_7_and_21_is_decided():
    versions: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(schema.name, set()).add(schema.since_version)
    changed = {
        op: {since for since in known if OLDEST < since <= TARGET and since > min(known)}
        for op, known in versions.items()
    }
    assert {op: set(decided) for op, decided in CHANGES.items()} == {op: s for op, s in changed.items() if s}


@pytest.mark.parametrize("opset", [7, 9, 10, 11])
def test_dropout(opset):
    assert check("Dropout", opset, {"x": IMAGE}, ratio=0.3) == ["Dropout"]
    ops = check("Dropout", opset, {"x": IMAGE}, outputs=2)
    assert ops == (["Dropout", "Not", "Cast"] if opset < 10 else ["Dropout", "Not"])


@pytest.mark.parametrize("opset", [12, 13])
def test_dropout_with_inputs(opset):
    assert check("Dropout", opset, {"x": IMAGE}, {"r": np.float32(0.4)}, outputs=2) == ["Dropout"]


@pytest.mark.parametrize("opset", [7, 9])
def test_slice(opset):
    check("Slice", opset, {"x": IMAGE}, starts=[1, -3], ends=[2**31 - 1, -1], axes=[1, 3])
    check("Slice", opset, {"x": IMAGE}, starts=[0, 2], ends=[1, 5])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("opset", [7, 9])
def test_pad(opset, mode):
    for value, dtype in itertools.product([0.0, 2.5], [np.float32, np.float64]):
        check("Pad", opset, {"x": IMAGE.astype(dtype)}, pads=[0, 0, 1, 2, 0, 0, 2, 1], mode=mode, value=value)


def test_pad_with_negative_amounts():
    check("Pad", 10, {"x": IMAGE}, pads=[0, -1, 1, 0, 0, 2, -2, 0], value=-1.0)


@pytest.mark.parametrize("opset", [7, 9, 10])
@pytest.mark.parametrize("axis", [1, -1])
def test_top_k(opset, axis):
    if opset < 10:
        check("TopK", opset, {"x": IMAGE}, outputs=2, k=2, axis=axis)
    else:
        check("TopK", opset, {"x": IMAGE}, {"k": np.array([2], np.int64)}, outputs=2, axis=axis)


@pytest.mark.parametrize("bounds", [{}, {"min": -0.5}, {"max": 0.25}, {"min": -0.5, "max": 6.0}])
@pytest.mark.parametrize("dims", [None, "unknown"])
def test_clip(bounds, dims):
    for opset in (7, 10):
        check("Clip", opset, {"x": NOT_FINITE}, dims={"x": dims}, **bounds)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_clip_bounds_have_the_type_of_the_data(dtype):
    x = NOT_FINITE.astype(dtype)  # onnxruntime has no such kernel before 11
    node = helper.make_node("Clip", ["x"], ["y"], min=-0.5, max=2.0)
    (value,) = run(raised(make([node], 9, {"x": x}, ["y"])), {"x": x})
    np.testing.assert_array_equal(value, np.clip(x, dtype(-0.5), dtype(2)))


@pytest.mark.parametrize("opset", [7, 11, 12])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax(op, opset):
    for axis in (None, 0, 1, 2, 3) + ((-1, -2) if opset >= 11 else ()):
        attrs = {} if axis is None else {"axis": axis}
        ops = check(op, opset, {"x": IMAGE}, **attrs)
        assert ops == ([op] if axis in (3, -1) else ["Flatten", op, "Reshape"])
        ops = check(op, opset, {"x": IMAGE}, dims={"x": ["n", "c", "h", "w"]}, **attrs)
        assert ops == ([op] if axis in (3, -1) else ["Shape", "Flatten", op, "Reshape"])
        check(op, opset, {"x": IMAGE}, dims={"x": ["n", 6, 5, 4]}, **attrs)
        check(op, opset, {"x": IMAGE}, dims={"x": "unknown"}, **attrs)
    assert check(op, opset, {"x": IMAGE[:, :, :1, :1]}, axis=1, ulp=2) == [op]
    for empty in (IMAGE[:, :0], IMAGE[:, :, :0], IMAGE[:0]):
        check(op, opset, {"x": empty}, axis=1)
        check(op, opset, {"x": empty}, dims={"x": ["n", *empty.shape[1:]]}, axis=1)


def test_softmax_behind_computed_reshapes():
    """The rank of a computed shape is its length, also behind another such Reshape: no node is added."""
    nodes = []
    for i, value in enumerate("xy"):
        nodes += [
            helper.make_node("Shape", [value], [f"s{i}"]),
            helper.make_node("Gather", [f"s{i}", "zero"], [f"n{i}"]),
            helper.make_node("Concat", [f"n{i}", "rest"], [f"t{i}"], axis=0),
            helper.make_node("Reshape", [value, f"t{i}"], ["yz"[i]]),
        ]
    nodes.append(helper.make_node("Softmax", ["z"], ["out"], axis=2))
    inits = {"zero": np.array([0], np.int64), "rest": np.array([2, -1], np.int64)}
    model = make(nodes, 11, {"x": IMAGE}, ["out"], inits, dims={"x": ["n", "c", "h", "w"]})
    assert "Flatten" not in compare(model, {"x": IMAGE})


@pytest.mark.parametrize("opset", [7, 11, 12])
def test_axes_become_inputs(opset):
    negative = [-1] if opset >= 11 else []
    ones = IMAGE[:1, :, :, :1]
    check("Squeeze", opset, {"x": ones})
    for axes in ([0], [0, 3], negative):
        check("Squeeze", opset, {"x": ones}, axes=axes or [3])
        check("Unsqueeze", opset, {"x": IMAGE}, axes=axes or [2])
    check("Split", opset, {"x": IMAGE}, outputs=3, axis=1)
    check("Split", opset, {"x": IMAGE}, outputs=3, axis=1, split=[1, 3, 2])
    check("Split", opset, {"x": IMAGE}, outputs=1)


def test_split_13():
    assert check("Split", 13, {"x": IMAGE}, outputs=2, axis=3) == ["Split"]
    check("Split", 17, {"x": IMAGE}, {"s": np.array([1, 4], np.int64)}, outputs=2, axis=2)


REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]


@pytest.mark.parametrize("opset", [7, 11, 12, 13, 17])
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_reductions(kind, opset):
    x = np.abs(IMAGE)
    if (kind, opset >= 13) == ("Sum", True):
        check("ReduceSum", opset, {"x": x}, {"axes": np.array([1, -1], np.int64)}, keepdims=0)
        return
    for axes, keepdims in itertools.product([None, [1], [2, 3], [0, -1]], [None, 0, 1]):
        attrs = {name: value for name, value in (("axes", axes), ("keepdims", keepdims)) if value is not None}
        if opset >= 11 or axes != [0, -1]:
            assert check(f"Reduce{kind}", opset, {"x": x}, **attrs) == [f"Reduce{kind}"]


@pytest.mark.parametrize("axis", [0, 1])
def test_scatter(axis):
    indices, updates = np.array([[0, 2], [1, 0]], np.int64), np.array([[1.5, 2], [3, 4]], np.float32)
    x = RNG.standard_normal((3, 3)).astype(np.float32)
    assert check("Scatter", 9, {"x": x, "i": indices, "u": updates}, axis=axis) == ["ScatterElements"]
    for opset in (11, 13, 16):
        check("ScatterElements", opset, {"x": x, "i": indices, "u": updates}, axis=axis)


@pytest.mark.parametrize("attrs", [{}, {"axis": 1}, {"axis": 2}, {"axis": 2, "onesided": 1}, {"inverse": 1}])
def test_dft(attrs):
    x = RNG.standard_normal((2, 5, 6, 1)).astype(np.float32)
    check("DFT", 17, {"x": x}, **attrs)
    check("DFT", 17, {"x": x}, {"n": np.int64(4)}, **attrs)


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent(op, gates, direction):
    ways = 2 if direction == "bidirectional" else 1
    x = RNG.standard_normal((4, 2, 3)).astype(np.float32)
    shapes = {"w": (ways, gates * 5, 3), "r": (ways, gates * 5, 5), "b": (ways, gates * 10)}
    inits = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    check(op, 7, {"x": x}, inits, outputs=3 if op == "LSTM" else 2, hidden_size=5, direction=direction)


LIKE = RNG.standard_normal((3, 4)).astype(np.float32)
INT = np.array([[0, 2], [1, 0]], np.int64)
BYTES = np.array([[0, 3, 255], [128, 127, 1]], np.uint8)
RELABELLED = [
    ("QuantizeLinear", (10, 13, 19), {"x": LIKE}, {"s": np.float32(0.02), "z": np.uint8(128)}, {}),
    ("QuantizeLinear", (13,), {"x": LIKE}, {"s": np.float32([0.02, 0.1, 0.3, 1])}, {}),
    ("DequantizeLinear", (10, 13, 19), {"x": BYTES}, {"s": np.float32(0.02), "z": np.uint8(128)}, {}),
    ("Cast", (7, 9, 13), {"x": LIKE}, {}, {"to": int(onnx.TensorProto.INT64)}),
    ("Cast", (7, 9, 13), {"x": INT}, {}, {"to": int(onnx.TensorProto.FLOAT16)}),
    ("Gemm", (7, 9), {"a": LIKE, "b": LIKE, "c": np.float32([[1.5]])}, {}, {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", (11,), {"a": LIKE, "b": LIKE}, {}, {"transA": 1}),
    ("ConstantOfShape", (9,), {"x": np.array([2, 3], np.int64)}, {}, {}),
    ("OneHot", (9, 10), {"i": np.array([-1, 0, 2, 5, -7], np.int64)}, {"d": np.int64(3), "v": np.float32([0, 1])}, {}),
    ("Gather", (7, 11), {"x": LIKE, "i": INT}, {}, {"axis": 1}),
    ("GatherElements", (11,), {"x": LIKE, "i": INT}, {}, {"axis": 1}),
    ("GatherND", (11,), {"x": LIKE, "i": INT}, {}, {}),
    (
        "ScatterND",
        (11, 13, 16),
        {"x": LIKE, "i": np.array([[0, 2], [1, 0]], np.int64), "u": np.float32([5, 6])},
        {},
        {},
    ),
    ("EyeLike", (9,), {"x": LIKE}, {}, {"k": 1}),
    ("IsInf", (10,), {"x": NOT_FINITE}, {}, {"detect_negative": 0}),
    ("IsNaN", (9, 13), {"x": NOT_FINITE}, {}, {}),
    ("ArgMax", (7, 11, 12), {"x": INT.astype(np.float32)}, {}, {"axis": 1, "keepdims": 0}),
    ("ArgMin", (7, 11, 12), {"x": np.zeros((2, 3), np.float32)}, {}, {}),
    ("PRelu", (7, 9), {"x": IMAGE}, {"s": np.float32([[[0.1]], [[0.2]], [[0.3]], [[0.4]], [[0.5]], [[0.6]]])}, {}),
    ("LeakyRelu", (7,), {"x": LIKE}, {}, {}),
    ("LRN", (7,), {"x": IMAGE}, {}, {"size": 3}),
    ("MeanVarianceNormalization", (9,), {"x": IMAGE}, {}, {}),
    ("Flatten", (7, 9, 11), {"x": IMAGE}, {}, {"axis": 2}),
    ("Reshape", (7, 13), {"x": IMAGE}, {"s": np.array([0, -1, 4], np.int64)}, {}),
    ("Concat", (7,), {"x": LIKE, "y": LIKE}, {}, {"axis": 1}),
    ("DepthToSpace", (7,), {"x": np.arange(32, dtype=np.float32).reshape(1, 8, 2, 2)}, {}, {"blocksize": 2}),
    ("Shape", (7, 13), {"x": IMAGE}, {}, {}),
    ("CumSum", (11,), {"x": LIKE}, {"a": np.int64(1)}, {"exclusive": 1}),
    ("Mod", (10,), {"x": LIKE, "y": np.abs(LIKE)}, {}, {"fmod": 1}),
    ("Pow", (7, 12), {"x": np.abs(LIKE)}, {"p": np.float32(1.7)}, {}),
    ("Max", (7, 8, 12), {"x": LIKE, "y": LIKE[::-1].copy()}, {}, {}),
    ("Min", (8, 12), {"x": LIKE, "y": LIKE[0]}, {}, {}),
    ("Sum", (7, 8), {"x": LIKE, "y": LIKE}, {}, {}),
    ("Clip", (11, 12), {"x": NOT_FINITE}, {"min": np.float32(3), "max": np.float32(2)}, {}),
    ("Erf", (9,), {"x": LIKE}, {}, {}),
    ("TopK", (10,), {"x": LIKE}, {"k": np.array([2], np.int64)}, {}),
]


@pytest.mark.parametrize(("op", "opsets", "inputs", "inits", "attrs"), RELABELLED)
def test_relabelled(op, opsets, inputs, inits, attrs):
    for opset in opsets:
        outputs = 2 if op == "TopK" else 1
        assert check(op, opset, inputs, inits, outputs=outputs, **attrs) == [op]


@pytest.mark.parametrize("directions", [None, [1]])
def test_scan_8_has_a_batch(directions):
    info = [helper.make_tensor_value_info(name, 1, [2]) for name in ("s", "i", "so", "oo")]
    nodes = [
        helper.make_node("Add", ["s", "i"], ["sum"]),
        helper.make_node("Clip", ["sum"], ["so"], max=1.5),
        helper.make_node("Mul", ["so", "i"], ["oo"]),
    ]
    body = helper.make_graph(nodes, "body", info[:2], info[2:])
    attrs = {"directions": directions} if directions else {}
    node = helper.make_node(
        "Scan", ["", "s0", "xs"], ["last", "all"], name="scan", body=body, num_scan_inputs=1, **attrs
    )
    inputs = {
        "s0": RNG.standard_normal((3, 2)).astype(np.float32),
        "xs": RNG.standard_normal((3, 4, 2)).astype(np.float32),
    }
    compare(make([node], 8, inputs, ["last", "all"]), inputs)
    lengths = helper.make_node("Scan", ["n", "s0", "xs"], ["last", "all"], body=body, num_scan_inputs=1)
    model = make([lengths], 8, {"n": np.array([1, 2, 4], np.int64), **inputs}, ["last", "all"])
    with pytest.raises(GradientError, match="sequence_lens"):
        raise_opset(ir.from_proto(model))


@pytest.mark.parametrize("opset", [7, 9, 10, 12])
def test_subgraphs(opset):
    """Constants land in the subgraph that needs them; captures, names and types survive there."""

    def branch(name, op, **attrs):
        nodes = [
            helper.make_node("Identity", ["x"], [f"{name}_x"]),
            helper.make_node(op, [f"{name}_x"], [f"{name}_y"], name="the_op", **attrs),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", 1, None)])

    yes, no = branch("yes", "Softmax", axis=1), branch("no", "ReduceMean", axes=[1], keepdims=1)
    no.node.extend([helper.make_node("Sub", ["no_x", "no_y"], ["no_z"])])
    no.output[0].name = "no_z"
    if opset < 11:
        no.node.extend([helper.make_node("Clip", ["no_z"], ["no_end"], min=0.0, max=0.1, name="the_op_axes")])
        no.output[0].name = "no_end"
    node = helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)
    for flag in (True, False):
        feeds = {"x": IMAGE, "c": np.array(flag)}
        model = make([node], opset, feeds, ["y"])
        compare(model, feeds)
    new = ir.from_proto(raised(model))
    assert [v.name for v in new.graph.initializers.values()] == []
    constants = [v for graph in new.graph.subgraphs() for v in graph.initializers.values()]
    assert constants and all(value.const_value.metadata_props[CONSTANT_MARK] for value in constants)
    names = [v.name for v in constants] + [n.name for n in new.graph.all_nodes() if n.name]
    assert "the_op" in names and len(set(names) - {"the_op"}) == len([n for n in names if n != "the_op"])


def test_loop_7():
    nodes = [
        helper.make_node("Unsqueeze", ["a"], ["b"], axes=[0]),
        helper.make_node("ReduceSum", ["b"], ["c"], axes=[0], keepdims=0),
        helper.make_node("Slice", ["c"], ["d"], starts=[0], ends=[2], axes=[1]),
        helper.make_node("Identity", ["go"], ["on"]),
    ]
    info = [helper.make_tensor_value_info(*given) for given in (("i", 7, []), ("go", 9, []), ("a", 1, [3, 4]))]
    outs = [helper.make_tensor_value_info(*given) for given in (("on", 9, []), ("c", 1, [3, 4]), ("d", 1, [3, 2]))]
    body = helper.make_graph(nodes, "body", info, outs)
    node = helper.make_node("Loop", ["n", "", "a0"], ["last", "all"], body=body)
    feeds = {"n": np.array(3, np.int64), "a0": LIKE}
    compare(make([node], 7, feeds, ["last", "all"]), feeds)


def test_names_that_are_taken_and_metadata():
    nodes = [
        helper.make_node("Clip", ["x"], ["soft_min"], name="soft", min=0.0),
        helper.make_node("Softmax", ["soft_min"], ["soft_min_2"], name="soft_flat", axis=1),
    ]
    nodes[1].metadata_props.add(key="origin", value="here")
    model = make(nodes, 9, {"x": IMAGE}, ["soft_min", "soft_min_2"])
    model.ir_version = 10
    compare(model, {"x": IMAGE})
    new = raised(model)
    (softmax,) = [node for node in new.graph.node if node.op_type == "Softmax"]
    assert softmax.name == "soft_flat" and softmax.metadata_props[0].value == "here"


def test_initializers_that_are_inputs():
    """Fixed before IR 4, as in onnxruntime; overridable from then on, which is no static knowledge."""
    node = helper.make_node("Resize", ["x", "s"], ["y"], mode="nearest")
    scales = {"s": np.array([1, 1, 0.5, 0.5], np.float32)}
    model = make([node], 10, {"x": IMAGE}, ["y"], scales, ir_version=3)
    assert compare(model, {"x": IMAGE}) == ["Resize"]
    model.ir_version = 4
    assert compare(model, {"x": IMAGE}).count("Resize") == 2
    compare(model, {"x": IMAGE, "s": np.array([1, 1, 2, 2], np.float32)})


def test_newer_models_are_left_alone():
    for opset in (21, 23):
        model = ir.from_proto(make([helper.make_node("Relu", ["x"], ["y"])], opset, {"x": IMAGE}, ["y"], ir_version=10))
        before = ir.to_proto(model).SerializeToString()
        raise_opset(model)
        assert ir.to_proto(model).SerializeToString() == before


def test_the_domain_may_be_spelt_out():
    model = make([helper.make_node("Clip", ["x"], ["y"], min=0.0)], 9, {"x": IMAGE}, ["y"])
    model.opset_import[0].domain = model.graph.node[0].domain = "ai.onnx"
    model = ir.from_proto(model)
    raise_opset(model)
    assert model.opset_imports == {"": TARGET} and len(next(iter(model.graph)).inputs) == 2


def refusal(model):
    ir_model = ir.from_proto(model)
    before = ir.to_proto(ir_model).SerializeToString()
    with pytest.raises(GradientError) as caught:
        raise_opset(ir_model)
    untyped = ir.to_proto(ir_model)
    untyped.graph.ClearField("value_info")
    original = onnx.ModelProto.FromString(before)
    original.graph.ClearField("value_info")
    assert [n.SerializeToString() for n in untyped.graph.node] == [n.SerializeToString() for n in original.graph.node]
    return str(caught.value)


def test_all_refusals_are_listed_and_nothing_changes():
    nodes = [
        helper.make_node("Clip", ["x"], ["k"], name="fine", min=0.0),
        helper.make_node("BatchNormalization", [*"kkkkk"], ["a", "b", "c"], name="features", spatial=0),
        helper.make_node("Upsample", ["x"], ["d"], name="up", mode="cubic", scales=[1.0] * 4),
        helper.make_node("Crop", ["x"], ["e"], name="crop"),
    ]
    graph = helper.make_graph(nodes, "g", [tensor_info("x", IMAGE)], [tensor_info("d", IMAGE)])
    text = refusal(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3))
    assert "3 node(s) cannot be raised from opset 8 to 21" in text and "'fine'" not in text
    for words in ("'features'", "spatial=0", "'up'", "cubic", "'crop'", "no such operator"):
        assert words in text


def test_refusals_of_resize():
    for rounding in ("ceil", "round_prefer_ceil"):
        attrs = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": rounding}
        node = helper.make_node("Resize", ["x", "r", "s"], ["y"], **attrs)
        inits = {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 2], np.float32)}
        assert rounding in refusal(make([node], 11, {"x": IMAGE}, ["y"], inits))


def test_refusal_of_integers_in_erf():
    assert "INT32" in refusal(make([helper.make_node("Erf", ["x"], ["y"])], 9, {"x": np.int32([1])}, ["y"]))


def test_opsets_before_7():
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Add", ["r", "r"], ["s"], name="sum", broadcast=1),
        helper.make_node("Dropout", ["s"], ["y"], name="drop", is_test=1),
    ]
    graph = helper.make_graph(nodes, "g", [tensor_info("x", IMAGE)], [tensor_info("y", IMAGE)])
    text = refusal(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=3))
    assert "'sum'" in text and "'drop'" in text and "'relu'" not in text


def test_another_target_is_refused():
    with pytest.raises(ValueError, match="21"):
        raise_opset(ir.from_proto(make([helper.make_node("Relu", ["x"], ["y"])], 9, {"x": IMAGE}, ["y"])), 19)
