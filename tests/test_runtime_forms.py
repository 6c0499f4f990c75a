"""Tests of the forms that compile writes for onnxruntime: values, where each one holds, where a node stays as it was."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from blocked_models import need_blocks
from form_models import BATCH, NARROW, ROWS, TABLE, WIDE, WIDTH, check, model, operators

import gradgen
from gradgen import runtime_forms


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


def test_an_ignored_label_that_no_label_can_be():
    proto = loss(f"ignore_index={-(1 << 40)}", "int32")
    assert operators(proto) is not None
    feeds = {
        "s": np.random.default_rng(5).standard_normal((6, 5)).astype(np.float32),
        "l": np.arange(6, dtype=np.int32) % 5,
    }
    check(proto, feeds, 1e-6)


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


def test_what_fails_here_is_no_reason_not_to_run(monkeypatch):
    def fail(proto, alone):
        raise ValueError("no")

    monkeypatch.setattr(runtime_forms, "rewritten", fail)
    proto = product("y = Gemm<transB=1>(x, w, b)")
    check(proto, arrays(proto), 2e-6)
    # Nor is a model that onnxruntime refuses.
    monkeypatch.setattr(runtime_forms, "rewritten", lambda proto, alone: onnx.ModelProto())
    check(proto, arrays(proto), 2e-6)
