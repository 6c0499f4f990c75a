"""Tests of the forms that compile writes for onnxruntime: values, where each one holds, where a node stays as it was."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from blocked_models import need_blocks
from onnx import numpy_helper, parser

import gradgen
from gradgen import runtime_forms

BATCH, WIDE, NARROW = 32, 512, 256
# E rows of 64 elements are enough for a flat axis.
ROWS, TABLE, WIDTH = 1024, 40, 64


def model(text: str, opset: int = 21, **initializers: np.ndarray) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in initializers.items())
    return proto


def operators(proto: onnx.ModelProto, alone: bool = True) -> list[str] | None:
    """The operators of the model that compile hands to onnxruntime; None where it is the model itself."""
    found = runtime_forms.rewritten(proto, alone)
    if found is None:
        return None
    onnx.checker.check_model(found, full_check=True)
    assert [o.name for o in found.graph.output] == [o.name for o in proto.graph.output]
    return [node.op_type for node in found.graph.node]


def check(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], rounding: float = 0.0) -> None:
    """Compare what compile runs, on one thread and on two, with onnxruntime as it runs the model by itself."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feeds)
    for threads in (1, 2):
        found = gradgen.compile(proto, threads=threads, cache=False)(**feeds)
        for value, right in zip(found.values(), expected, strict=True):
            assert value.dtype == right.dtype and value.shape == right.shape
            np.testing.assert_allclose(value, right, rtol=0, atol=rounding * np.abs(right).max(initial=0))


def product(
    nodes: str,
    rows: tuple = (BATCH, WIDE),
    weights: tuple = (NARROW, WIDE),
    bias: tuple = (NARROW,),
    kind: str = "float",
) -> onnx.ModelProto:
    shapes = [f"{kind}[{','.join(map(str, s))}]" if s else kind for s in (rows, weights, bias)]
    outputs = ", ".join(f"{kind}[A{i},B{i}] {n}" for i, n in enumerate("yz") if f"{n} =" in nodes)
    return model(f"g ({shapes[0]} x, {shapes[1]} w, {shapes[2]} b) => ({outputs}) {{ {nodes} }}")


def arrays(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in proto.graph.input}
    return {name: np.asarray(0.2 * rng.standard_normal(shape), np.float32) for name, shape in shapes.items()}


PRODUCTS = {
    "bias": ("y = Gemm<transB=1>(x, w, b)", {}, ["Reshape", "Gemm", "Transpose"]),
    "no bias": ("y = Gemm<transB=1>(x, w)", {}, ["Gemm", "Transpose"]),
    "bias of one row": ("y = Gemm<transB=1>(x, w, b)", {"bias": (1, NARROW)}, ["Reshape", "Gemm", "Transpose"]),
    "bias of one number": ("y = Gemm<transB=1>(x, w, b)", {"bias": (1,)}, ["Gemm", "Transpose"]),
    "scalar bias": ("y = Gemm<transB=1>(x, w, b)", {"bias": ()}, ["Gemm", "Transpose"]),
    "factors": ("y = Gemm<transB=1, alpha=0.5, beta=-2.0>(x, w, b)", {}, ["Reshape", "Gemm", "Transpose"]),
    "few rows": ("y = Gemm<transB=1>(x, w, b)", {"rows": (16, WIDE)}, ["Reshape", "Gemm", "Transpose"]),
    "relu": ("p = Gemm<transB=1>(x, w, b)\n y = Relu(p)", {}, ["Reshape", "Gemm", "Relu", "Transpose"]),
    "an activation with an attribute": (
        "p = Gemm<transB=1>(x, w, b)\n y = LeakyRelu<alpha=0.3>(p)",
        {},
        ["Reshape", "Gemm", "LeakyRelu", "Transpose"],
    ),
    "relu of what is an output too": (
        "z = Gemm<transB=1>(x, w, b)\n y = Relu(z)",
        {},
        ["Reshape", "Gemm", "Transpose", "Relu"],
    ),
    "two readers": (
        "p = Gemm<transB=1>(x, w, b)\n y = Relu(p)\n z = Tanh(p)",
        {},
        ["Reshape", "Gemm", "Transpose", "Relu", "Tanh"],
    ),
    "a reader that is no activation": (
        "p = Gemm<transB=1>(x, w, b)\n y = Exp(p)",
        {},
        ["Reshape", "Gemm", "Transpose", "Exp"],
    ),
    "weights that are computed": (
        "v = Neg(w)\n y = Gemm<transB=1>(x, v, b)",
        {},
        ["Neg", "Reshape", "Gemm", "Transpose"],
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_fed_weights_are_the_left_factor(name):
    nodes, shapes, expected = PRODUCTS[name]
    proto = product(nodes, **shapes)
    assert operators(proto) == operators(proto, alone=False) == expected
    check(proto, arrays(proto), 2e-6)


STAY = {
    "rows that fill no panel": ("y = Gemm<transB=1>(x, w, b)", {"rows": (40, WIDE)}),
    "many rows": ("y = Gemm<transB=1>(x, w, b)", {"rows": (80, WIDE)}),
    "no rows": ("y = Gemm<transB=1>(x, w, b)", {"rows": (0, WIDE)}),
    "rows of no known number": ("y = Gemm<transB=1>(x, w, b)", {"rows": ("N", WIDE)}),
    "small weights": ("y = Gemm<transB=1>(x, w, b)", {"weights": (128, WIDE), "bias": (128,)}),
    "weights as they are multiplied": ("y = Gemm(x, w, b)", {"weights": (WIDE, NARROW)}),
    "rows that are turned": ("y = Gemm<transA=1, transB=1>(x, w, b)", {"rows": (WIDE, BATCH)}),
    "a bias for each row": ("y = Gemm<transB=1>(x, w, b)", {"bias": (BATCH, 1)}),
    "a bias for each element": ("y = Gemm<transB=1>(x, w, b)", {"bias": (BATCH, NARROW)}),
    "another type": ("y = Gemm<transB=1>(x, w, b)", {"kind": "double"}),
}


@pytest.mark.parametrize("name", STAY)
def test_other_products_stay(name):
    nodes, shapes = STAY[name]
    assert operators(product(nodes, **shapes)) is None


def test_constant_weights_stay():
    weights = np.ones((NARROW, WIDE), np.float32)
    text = f"g (float[{BATCH},{WIDE}] x) => (float[A,B] y) {{ y = Gemm<transB=1>(x, w) }}"
    assert operators(model(text, w=weights)) is None
    # Nor is what is computed from constants fed.
    text = f"g (float[{BATCH},{WIDE}] x) => (float[A,B] y) {{ v = Neg(w)\n y = Gemm<transB=1>(x, v) }}"
    assert operators(model(text, w=weights)) is None


def test_weights_that_are_such_a_product():
    text = "g (float[16,2048] x, float[64,64] a, float[2048,64] w) => (float[A,B] y)"
    proto = model(f"{text} {{ v = Gemm<transB=1>(a, w)\n y = Gemm<transB=1>(x, v) }}")
    assert operators(proto) == ["Gemm", "Transpose"] * 2
    check(proto, arrays(proto), 2e-6)


def test_an_activation_in_a_branch_stays_there():
    text = f"""g (float[{BATCH},{WIDE}] x, float[{NARROW},{WIDE}] w, bool c) => (float[A,B] y) {{
        p = Gemm<transB=1>(x, w)
        y = If (c) <then_branch = t () => (float[A,B] a) {{ a = Relu(p) }},
                    else_branch = e () => (float[A,B] a) {{ a = Neg(x) }}>
    }}"""
    proto = model(text)
    assert operators(proto) == ["Gemm", "Transpose", "If"]
    feeds = {n: a for n, a in arrays(proto).items() if n != "c"}
    check(proto, {**feeds, "c": np.asarray(True)}, 2e-6)


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


LOSSES = [
    (reduction, ignored, index, kind)
    for reduction in ("mean", "sum", "none")
    for ignored in (None, -100, 2)
    for index, kind in (("int64", "float"), ("int32", "double"))
]


def loss(attributes: str, index: str = "int64", kind: str = "float", opset: int = 21) -> onnx.ModelProto:
    return model(
        f"g ({kind}[6,5] s, {index}[6] l) => ({kind} y, {kind}[A,B] p)"
        f"{{ y, p = SoftmaxCrossEntropyLoss<{attributes}>(s, l) }}",
        opset,
    )


@pytest.mark.parametrize(("reduction", "ignored", "index", "kind"), LOSSES)
def test_the_loss_in_few_nodes(reduction, ignored, index, kind):
    also = "" if ignored is None else f", ignore_index={ignored}"
    proto = loss(f'reduction="{reduction}"{also}', index, kind)
    if reduction == "none":
        proto.graph.output[0].type.tensor_type.shape.dim.add(dim_value=6)
    found = operators(proto)
    assert found is not None and "SoftmaxCrossEntropyLoss" not in found and len(found) <= 12
    rng = np.random.default_rng(2)
    scores = 3 * rng.standard_normal((6, 5))
    labels = np.asarray([0, 2, 4, 1, 2, 3])
    if ignored == -100:
        labels[[1, 3]] = ignored
    feeds = {"s": scores.astype(np.float32 if kind == "float" else np.float64), "l": labels.astype(index)}
    log_prob = scores - scores.max(1, keepdims=True)
    log_prob -= np.log(np.exp(log_prob).sum(1, keepdims=True))
    kept = labels != (-1 if ignored is None else ignored)
    each = np.where(kept, -log_prob[np.arange(6), labels * kept], 0)
    right = {"mean": each.sum() / kept.sum(), "sum": each.sum(), "none": each}[reduction]
    for threads in (1, 2):
        result = gradgen.compile(proto, threads=threads, cache=False)(**feeds)
        np.testing.assert_allclose(result["y"], right, rtol=1e-6 if kind == "float" else 1e-14)
        np.testing.assert_allclose(result["p"], log_prob, rtol=1e-5 if kind == "float" else 1e-13)


def test_the_loss_of_nothing():
    proto = loss("ignore_index=-100")
    feeds = {"s": np.ones((6, 5), np.float32), "l": np.full(6, -100)}
    with np.errstate(invalid="ignore"):
        assert np.isnan(gradgen.compile(proto, threads=1, cache=False)(**feeds)["y"])


def test_the_loss_of_what_is_ignored_counts_not():
    """Infinite scores of a row that is ignored are no part of the loss."""
    proto = loss("ignore_index=0")
    scores = np.zeros((6, 5), np.float32)
    scores[0, 0] = -np.inf
    labels = np.asarray([0, 1, 2, 3, 4, 1])
    found = gradgen.compile(proto, threads=1, cache=False)(s=scores, l=labels)["y"]
    np.testing.assert_allclose(found, np.log(5), rtol=1e-6)


def test_other_losses_stay():
    weighted = model("g (float[6,5] s, int64[6] l, float[5] w) => (float y) { y = SoftmaxCrossEntropyLoss(s, l, w) }")
    spatial = model("g (float[6,5,3] s, int64[6,3] l) => (float y) { y = SoftmaxCrossEntropyLoss(s, l) }")
    assert operators(weighted) is operators(spatial) is operators(loss("ignore_index=1", opset=12)) is None


def test_a_derivative(tmp_path):
    """A training step in which all the forms hold, beside the same without them."""
    text = f"""g (float[{BATCH},{WIDE}] x, int64[{ROWS},1] i, int64[{BATCH}] label) => (float loss) {{
        h = Gemm<transB=1>(x, w, b)  r = Relu(h)
        e = Expand(i, wide)  t = Gemm(up, r)  n = ScatterElements<axis=0, reduction="add">(zeros, e, t)
        s = Gemm(down, n)  loss = SoftmaxCrossEntropyLoss<ignore_index=-100>(s, label)
    }}"""
    rng = np.random.default_rng(3)
    shapes = {"w": (WIDTH * 4, WIDE), "b": (WIDTH * 4,), "up": (ROWS, BATCH), "down": (BATCH, TABLE)}
    weights = {n: (rng.standard_normal(s) / 16).astype(np.float32) for n, s in shapes.items()}
    zeros = np.zeros((TABLE, WIDTH * 4), np.float32)
    primal = model(text, **weights, wide=np.asarray([ROWS, WIDTH * 4]), zeros=zeros)
    gradient = gradgen.value_and_grad(primal, wrt=list(weights), of=["loss"])
    feeds = {
        "x": rng.standard_normal((BATCH, WIDE)).astype(np.float32),
        "i": rng.integers(0, TABLE, (ROWS, 1)),
        "label": rng.integers(0, WIDTH, BATCH),
    }
    right = onnxruntime.InferenceSession(gradient.SerializeToString()).run(None, feeds)
    for threads in (1, 2):
        found = gradgen.compile(gradient, feed=list(weights), threads=threads, cache=tmp_path)(**feeds)
        for value, expected in zip(found.values(), right, strict=True):
            np.testing.assert_allclose(value, expected, rtol=0, atol=3e-6 * np.abs(expected).max())
    # What runs on one thread alone is kept for one thread alone.
    kept = [{n.op_type for n in onnx.load(f).graph.node} for f in sorted(tmp_path.glob("*.onnx"))]
    assert len(kept) == 2 and sorted("ScatterND" in ops for ops in kept) == [False, True]


@pytest.mark.parametrize("row", [TABLE, -TABLE - 1, 1 << 58, 1 << 62, -(1 << 63), (1 << 63) - 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_out_of_range_are_refused(row, threads):
    """Those too that, times the width of a row, come out in range again."""
    proto = scatter(EXPANDED.format("add"))
    feeds = scattered(proto)
    feeds["i"][7] = row
    with pytest.raises(gradgen.GradientError):
        gradgen.compile(proto, threads=threads, cache=False)(**feeds)


def test_an_ignored_label_that_no_label_can_be():
    proto = loss(f"ignore_index={-(1 << 40)}", "int32")
    assert operators(proto) is not None
    feeds = {
        "s": np.random.default_rng(5).standard_normal((6, 5)).astype(np.float32),
        "l": np.arange(6, dtype=np.int32) % 5,
    }
    check(proto, feeds, 1e-6)


def test_narrow_rows():
    """On one thread ScatterND is for rows of four and more, on several a flat axis for many elements."""
    for width, rows, alone, beside in ((3, ROWS, None, None), (4, 8, "ScatterND", None), (3, 1 << 15, "flat", "flat")):
        text = f"g (float[9,{width}] d, int64[{rows},1] i, float[{rows},{width}] u) => (float[9,{width}] y)"
        nodes = 'j = Expand(i, wide)\n y = ScatterElements<axis=0, reduction="add">(d, j, u)'
        proto = model(f"{text} {{ {nodes} }}", wide=np.asarray([rows, width]))
        for form, found in ((alone, operators(proto)), (beside, operators(proto, alone=False))):
            assert (form is None) == (found is None)
            assert found is None or ("ScatterND" in found) == (form == "ScatterND")


def test_forms_and_blocks_together(tmp_path, tmp_path_factory):
    """What has a form is in the model whose convolutions are blocked too."""
    text = """g (float[4,16,16,16] x, float[16,16,3,3] w, float[6,5] s, int64[6] l) => (float[A,B,C,D] y, float z)
        { y = Conv<pads=[1,1,1,1]>(x, w)  z = SoftmaxCrossEntropyLoss<ignore_index=-1>(s, l) }"""
    need_blocks(tmp_path_factory.mktemp("blocks"))
    gradgen.compile(model(text), threads=1, cache=tmp_path)
    (kept,) = tmp_path.glob("*.onnx")
    nodes = onnx.load(kept).graph.node
    assert "com.microsoft.nchwc" in {n.domain for n in nodes}
    assert "Not" in {n.op_type for n in nodes}  # of the form of the loss alone


def test_the_loss_of_an_empty_batch():
    text = "g (float[N,5] s, int64[N] l) => (float y) { y = SoftmaxCrossEntropyLoss(s, l) }"
    step = gradgen.compile(model(text), threads=1, cache=False)
    assert np.isnan(step(s=np.ones((0, 5), np.float32), l=np.zeros(0, np.int64))["y"])


def test_what_a_caller_may_replace_is_no_constant():
    proto = scatter(FLAT, data=f"float[{TABLE * WIDTH}] d")
    proto.graph.input.append(onnx.helper.make_tensor_value_info("places", onnx.TensorProto.INT64, [WIDTH]))
    assert operators(proto) is None


def test_what_fails_here_is_no_reason_not_to_run(monkeypatch):
    def fail(proto, alone):
        raise ValueError("no")

    monkeypatch.setattr(runtime_forms, "rewritten", fail)
    proto = product("y = Gemm<transB=1>(x, w, b)")
    check(proto, arrays(proto), 2e-6)
    # Nor is a model that onnxruntime refuses.
    monkeypatch.setattr(runtime_forms, "rewritten", lambda proto, alone: onnx.ModelProto())
    check(proto, arrays(proto), 2e-6)
