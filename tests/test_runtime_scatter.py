"""Tests of rows that are added up as compile writes it: values, where each form holds, where a node stays as it was."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from form_models import ROWS, TABLE, WIDTH, check, model, operators
from onnx import numpy_helper

import gradgen


def scatter(nodes: str, column: str = f"int64[{ROWS},1] i", data: str = f"float[{TABLE},{WIDTH}] d") -> onnx.ModelProto:
    kind = data.split("[")[0]
    rank = "A,B" if "," in data else "A"
    text = f"g ({data}, {column}, {kind}[{ROWS},{WIDTH}] u) => ({kind}[{rank}] y) {{ {nodes} }}"
    numbers = {"wide": [ROWS, WIDTH], "one": [-1], "width": WIDTH, "places": range(WIDTH), "back": range(WIDTH)[::-1]}
    return model(text, **{name: np.asarray(value) for name, value in numbers.items()})


def scattered(proto: onnx.ModelProto, dtype: type = np.float32) -> dict[str, np.ndarray]:
    """Row numbers that repeat, negative ones among them."""
    rng = np.random.default_rng(1)
    size = tuple(d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim)
    shape = tuple(d.dim_value for d in proto.graph.input[1].type.tensor_type.shape.dim)
    kind = onnx.helper.tensor_dtype_to_np_dtype(proto.graph.input[1].type.tensor_type.elem_type)
    return {
        "d": rng.standard_normal(size).astype(dtype),
        "i": rng.integers(-TABLE, TABLE, shape).astype(kind),
        "u": rng.standard_normal((ROWS, WIDTH)).astype(dtype),
    }


EXPANDED = 'j = Expand(i, wide)\n y = ScatterElements<axis=0, reduction="{}">(d, j, u)'
FLAT = """m = Mul(i, width)\n a = Add(m, places)\n j = Reshape(a, one)\n v = Reshape(u, one)
    y = ScatterElements<axis=0, reduction="add">(d, j, v)"""


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_rows_are_scattered(reduction, kind):
    proto = scatter(EXPANDED.format(reduction), data=f"{kind}[{TABLE},{WIDTH}] d")
    alone, beside = operators(proto), operators(proto, alone=False)
    assert alone is not None and alone.count("ScatterND") == 1 and "ScatterElements" not in alone
    assert beside is not None and beside.count("ScatterElements") == 1 and "ScatterND" not in beside
    check(proto, scattered(proto, np.float32 if kind == "float" else np.float64))


@pytest.mark.parametrize("threads", [None, 1, 2])
def test_only_one_thread_adds_up_rows_by_scatternd(threads, tmp_path):
    """Several lose what they add to the same row."""
    gradgen.compile(scatter(EXPANDED.format("add")), threads=threads, cache=tmp_path)
    (kept,) = tmp_path.glob("*.onnx")
    assert ("ScatterND" in [n.op_type for n in onnx.load(kept).graph.node]) == (threads == 1)


def gathered(op: str, indices: str) -> onnx.ModelProto:
    """The gradient of a Gather whose number of rows is open."""
    text = f"g (float[V,{WIDTH}] x, int64[{indices}] i) => (float[E,{WIDTH}] y) {{ y = {op}(x, i) }}"
    return gradgen.vjp(model(text), wrt=["x"])


@pytest.mark.parametrize(("op", "indices"), [("Gather", "E"), ("GatherND", "E,1")])
def test_an_open_number_of_rows(op, indices):
    proto = gathered(op, indices)
    alone = operators(proto)
    assert alone is not None and "ScatterND" in alone and "ScatterElements" not in alone
    assert operators(proto, alone=False) is None
    rng = np.random.default_rng(4)
    for rows in (0, 1, 300):
        i = rng.integers(-TABLE, TABLE, (rows, 1) if op == "GatherND" else rows)
        feeds = {
            "x": rng.standard_normal((TABLE, WIDTH)).astype(np.float32),
            "i": i,
            "grad_y": rng.standard_normal((rows, WIDTH)).astype(np.float32),
        }
        check(proto, feeds)


def test_a_column_of_another_length_stays():
    """The column has to be counted by the very number that it is expanded to."""
    for op_type, position in (("Size", 0), ("Concat", 0)):
        proto = gathered("Gather", "E")
        other = next(n for n in proto.graph.node if n.op_type == op_type)
        proto.graph.node.insert(0, onnx.helper.make_node(op_type, list(other.input), ["other"]))
        for attribute in other.attribute:
            proto.graph.node[0].attribute.append(attribute)
        target = next(n for n in proto.graph.node if n.output[0].endswith("/Reshape_1"))
        if op_type == "Size":
            counts = [n for n in proto.graph.node if n.op_type == "Concat"]
            proto.graph.initializer.append(numpy_helper.from_array(np.asarray([1]), "single"))
            counts[-1].input[position] = "single"
        else:
            target.input[1] = "other"
            proto.graph.node.insert(list(proto.graph.node).index(target), proto.graph.node.pop(0))
        assert operators(proto) is None


def test_a_column_that_is_counted_by_another_value_stays():
    proto = gathered("GatherND", "E,1")
    next(n for n in proto.graph.node if n.op_type == "Size").input[0] = "i"
    assert operators(proto) is None


def test_rows_are_added_up():
    """By numpy, whatever onnxruntime does."""
    proto = scatter(EXPANDED.format("add"))
    feeds = scattered(proto)
    expected = feeds["d"].copy()
    np.add.at(expected, feeds["i"][:, 0], feeds["u"])
    for threads in (1, 2):
        np.testing.assert_array_equal(gradgen.compile(proto, threads=threads, cache=False)(**feeds)["y"], expected)


def test_a_flat_axis_is_of_rows_on_one_thread():
    proto = scatter(FLAT, data=f"float[{TABLE * WIDTH}] d")
    alone = operators(proto)
    assert alone is not None and "ScatterND" in alone and not {"ScatterElements", "Mul", "Add"} & set(alone)
    assert operators(proto, alone=False) is None
    check(proto, scattered(proto))


def test_two_scatters_share_their_places():
    nodes = EXPANDED.format("add").replace("y =", "z =") + '\n y = ScatterElements<axis=-2, reduction="add">(z, j, u)'
    proto = scatter(nodes)
    beside = operators(proto, alone=False)
    assert beside is not None and beside.count("ScatterElements") == 2 and beside.count("Mul") == 1
    check(proto, scattered(proto))


@pytest.mark.parametrize("nodes", [EXPANDED.format("add"), EXPANDED.format("none")])
def test_no_rows_at_all(nodes):
    proto = scatter(nodes)
    for value, shape in zip(proto.graph.input, ((TABLE, WIDTH), ("E", 1), ("E", WIDTH)), strict=True):
        del value.type.tensor_type.shape.dim[:]
        for d in shape:
            value.type.tensor_type.shape.dim.add(**{"dim_value" if isinstance(d, int) else "dim_param": d})
    proto.graph.node[0].input[1] = "shape"
    proto.graph.node.insert(0, onnx.helper.make_node("Shape", ["u"], ["shape"]))
    alone = operators(proto)
    assert alone is not None and "ScatterND" in alone
    for rows in (0, 5):
        feeds = scattered(scatter(nodes))
        check(proto, {"d": feeds["d"], "i": feeds["i"][:rows], "u": feeds["u"][:rows]})


ELSEWHERE = {
    "one row for all": scatter(EXPANDED.format("add"), column="int64[1,1] i"),
    "32-bit indices": scatter(EXPANDED.format("add"), column=f"int32[{ROWS},1] i"),
    "wider rows in the table": scatter(EXPANDED.format("add"), data=f"float[{TABLE},{WIDTH + 1}] d"),
    "another axis": scatter(EXPANDED.format("add").replace("axis=0", "axis=1"), data=f"float[{ROWS},{WIDTH}] d"),
    "a table that ends within a row": scatter(FLAT, data=f"float[{TABLE * WIDTH + 1}] d"),
    "places from the end": scatter(FLAT.replace("Add(m, places)", "Add(m, back)"), data=f"float[{TABLE * WIDTH}] d"),
    "other places": scatter(FLAT.replace("Add(m, places)", "Sub(m, places)"), data=f"float[{TABLE * WIDTH}] d"),
    "half precision": scatter(EXPANDED.format("add"), data=f"float16[{TABLE},{WIDTH}] d"),
    "another factor": scatter(FLAT.replace("Mul(i, width)", "Mul(i, one)"), data=f"float[{TABLE * WIDTH}] d"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_scatters_stay(name):
    assert operators(ELSEWHERE[name]) is None


@pytest.mark.parametrize("row", [TABLE, -TABLE - 1, 1 << 58, 1 << 62, -(1 << 63), (1 << 63) - 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_out_of_range_are_refused(row, threads):
    """Those too that, times the width of a row, come out in range again."""
    proto = scatter(EXPANDED.format("add"))
    feeds = scattered(proto)
    feeds["i"][7] = row
    with pytest.raises(gradgen.GradientError):
        gradgen.compile(proto, threads=threads, cache=False)(**feeds)


def test_narrow_rows():
    """On one thread ScatterND is for rows of four and more, on several a flat axis for many elements."""
    for width, rows, alone, beside in ((3, ROWS, None, None), (4, 8, "ScatterND", None), (3, 1 << 15, "flat", "flat")):
        text = f"g (float[9,{width}] d, int64[{rows},1] i, float[{rows},{width}] u) => (float[9,{width}] y)"
        nodes = 'j = Expand(i, wide)\n y = ScatterElements<axis=0, reduction="add">(d, j, u)'
        proto = model(f"{text} {{ {nodes} }}", wide=np.asarray([rows, width]))
        for form, found in ((alone, operators(proto)), (beside, operators(proto, alone=False))):
            assert (form is None) == (found is None)
            assert found is None or ("ScatterND" in found) == (form == "ScatterND")


def test_what_a_caller_may_replace_is_no_constant():
    proto = scatter(FLAT, data=f"float[{TABLE * WIDTH}] d")
    proto.graph.input.append(onnx.helper.make_tensor_value_info("places", onnx.TensorProto.INT64, [WIDTH]))
    assert operators(proto) is None
