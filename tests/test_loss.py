"""Gradients of the classification losses against a loop over positions: reductions, weights, ignored labels, ranks."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import gradgen
from gradgen.evaluate import Evaluator

TYPES = {np.float16: TensorProto.FLOAT16, np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}
SHAPES = [(4, 3), (2, 3, 2), (2, 3, 2, 2), (1, 3, 2, 1, 2)]
NAMES = {
    "SoftmaxCrossEntropyLoss": ("scores", "labels", "weights", "output"),
    "NegativeLogLikelihoodLoss": ("input", "target", "weight", "loss"),
}


def loss_model(op_type, scores, labels, weights, dtype, log_prob=False, dynamic=False, **attributes):
    """A model of one loss; every float input is a graph input, the labels too."""
    x, y, w, out = NAMES[op_type]
    arrays = {x: np.asarray(scores, dtype), y: np.asarray(labels)}
    if weights is not None:
        arrays[w] = np.asarray(weights, dtype)
    outputs = [out, "log_prob"] if log_prob else [out]
    node = helper.make_node(op_type, list(arrays), outputs, **attributes)
    shapes = {n: [f"{n}{i}" for i in range(a.ndim)] if dynamic else a.shape for n, a in arrays.items()}
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in arrays.items()}
    inputs = [helper.make_tensor_value_info(n, kinds[n], shapes[n]) for n in arrays]
    rank = arrays[y].shape if attributes.get("reduction", "mean") == "none" else ()
    declared = {out: [None] * len(rank), "log_prob": shapes[x]}
    infos = [helper.make_tensor_value_info(o, TYPES[dtype], declared[o]) for o in outputs]
    graph = helper.make_graph([node], "g", inputs, infos)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), arrays, outputs


def gradients(op_type, scores, labels, weights=None, dtype=np.float32, cotangents=(1.0,), of=None, **options):
    """Gradients to the scores and, where there are some, to the weights."""
    model, arrays, outputs = loss_model(op_type, scores, labels, weights, dtype, **options)
    wrt = [n for n, a in arrays.items() if a.dtype == dtype]
    of = of or outputs
    derived = gradgen.vjp(model, wrt=wrt, of=of)
    onnx.checker.check_model(derived, full_check=True)
    seeds = {f"grad_{n}": np.asarray(ct, dtype) for n, ct in zip(of, cotangents, strict=True)}
    results = Evaluator(derived, strict=True)({**arrays, **seeds})
    for name in wrt:
        assert results[f"grad_{name}"].dtype == dtype and results[f"grad_{name}"].shape == arrays[name].shape
    return [results[f"grad_{n}"].astype(np.float64) for n in wrt]


def expected(op_type, scores, labels, weights, ct, reduction, ignore_index):
    """The derivative of Σ −w·log p (over Σ w for the mean), position by position."""
    scores = np.asarray(scores, np.float64)
    dscores, dweights = np.zeros_like(scores), np.zeros(scores.shape[1])
    kept = [i for i in np.ndindex(np.shape(labels)) if labels[i] != ignore_index]
    unit = np.ones(scores.shape[1]) if weights is None else np.asarray(weights, np.float64)
    total = sum(unit[labels[i]] for i in kept) if reduction == "mean" else 1.0
    logs = {}
    for i in kept:
        row = scores[(i[0], slice(None), *i[1:])]
        logs[i] = row - row.max() - np.log(np.exp(row - row.max()).sum()) if op_type.startswith("Soft") else row
    mean = -sum(unit[labels[i]] * logs[i][labels[i]] for i in kept) / total if reduction == "mean" else 0.0
    for i in kept:
        c = labels[i]
        seed = ct[i] if reduction == "none" else ct
        soft = np.exp(logs[i]) if op_type.startswith("Soft") else 0.0
        dscores[(i[0], slice(None), *i[1:])] = seed * unit[c] / total * (soft - np.eye(scores.shape[1])[c])
        dweights[c] += seed * (-logs[i][c] - mean) / total
    return dscores, dweights


def draw(shape, seed=0):
    rng = np.random.default_rng(seed)
    labels_shape = (shape[0], *shape[2:])
    scores = rng.standard_normal(shape).astype(np.float32)
    labels = rng.integers(0, shape[1], labels_shape)
    return scores, labels, rng.uniform(0.3, 2, shape[1]).astype(np.float32), rng.standard_normal(labels_shape)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op_type", NAMES)
def test_every_reduction_weight_and_ignored_label(op_type, shape, dynamic):
    scores, labels, weights, many = draw(shape)
    for reduction, ignore_index, weighted in itertools.product(
        ("mean", "sum", "none"), (None, 1, -1, -100, 7), (False, True)
    ):
        marked = labels.copy()
        options = {}
        if ignore_index is not None:
            marked.reshape(-1)[[0, 2]] = ignore_index
            options = {"ignore_index": ignore_index}
        ct = many if reduction == "none" else np.asarray(1.7)
        given = weights if weighted else None
        got = gradients(
            op_type, scores, marked, given, cotangents=[ct], reduction=reduction, dynamic=dynamic, **options
        )
        want = expected(op_type, scores, marked, given, ct, reduction, ignore_index)
        for g, w in zip(got, want, strict=False):
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-6, err_msg=f"{reduction} {ignore_index} {weighted}")


@pytest.mark.parametrize("op_type", NAMES)
def test_default_reduction_and_int32_labels(op_type):
    scores, labels, weights, _ = draw((4, 3))
    for ignore_index in (None, 2):
        options = {} if ignore_index is None else {"ignore_index": ignore_index}
        got = gradients(op_type, scores, labels.astype(np.int32), weights, **options)
        want = expected(op_type, scores, labels, weights, 1.0, "mean", ignore_index)
        np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("op_type", NAMES)
def test_all_ignored_gives_zero(op_type, weighted):
    scores, labels, weights, many = draw((4, 3))
    ignored = np.full_like(labels, -100)
    for reduction in ("mean", "sum", "none"):
        ct = many if reduction == "none" else np.asarray(1.0)
        given = weights if weighted else None
        got = gradients(op_type, scores, ignored, given, cotangents=[ct], reduction=reduction, ignore_index=-100)
        np.testing.assert_array_equal(got[0], np.zeros_like(scores))


@pytest.mark.parametrize("op_type", NAMES)
def test_labels_whose_weights_are_zero(op_type):
    scores, labels, _, _ = draw((4, 3))
    got = gradients(op_type, scores, np.zeros_like(labels), [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(got[0], np.zeros_like(scores))


def test_scores_far_apart_do_not_overflow():
    scores = np.array([[1e4, -1e4, 0.0], [-100.0, 100.0, 100.0]], np.float32)
    (got,) = gradients("SoftmaxCrossEntropyLoss", scores, [1, 2], reduction="sum")
    np.testing.assert_allclose(got, [[1, -1, 0], [0, 0.5, -0.5]], atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_log_prob_and_loss_both_with_cotangents(reduction):
    scores, labels, weights, many = draw((2, 3, 2), seed=4)
    ct = many if reduction == "none" else np.asarray(0.7)
    dlog = np.random.default_rng(8).standard_normal(scores.shape)
    p = np.exp(scores - scores.max(1, keepdims=True)).astype(np.float64)
    p /= p.sum(1, keepdims=True)
    through = dlog - p * dlog.sum(1, keepdims=True)
    dscores, dweights = expected("SoftmaxCrossEntropyLoss", scores, labels, weights, ct, reduction, None)
    options = {"weights": weights, "log_prob": True, "reduction": reduction}
    both = gradients("SoftmaxCrossEntropyLoss", scores, labels, cotangents=[ct, dlog], **options)
    np.testing.assert_allclose(both[0], dscores + through, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(both[1], dweights, rtol=1e-4, atol=1e-6)
    alone = gradients("SoftmaxCrossEntropyLoss", scores, labels, cotangents=[dlog], of=["log_prob"], **options)
    np.testing.assert_allclose(alone[0], through, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(alone[1], np.zeros(3))


@pytest.mark.parametrize("op_type", NAMES)
def test_float16_on_onnxruntime(op_type):
    scores, labels, weights, _ = draw((4, 3))
    scores, weights = scores.astype(np.float16), weights.astype(np.float16)
    for given in (weights, None):
        got = gradients(op_type, scores, labels, given, dtype=np.float16, ignore_index=-1)
        want = expected(op_type, scores, labels, given, 1.0, "mean", -1)
        for g, w in zip(got, want, strict=False):
            np.testing.assert_allclose(g, w, rtol=2e-2, atol=3e-3)


@pytest.mark.parametrize(("options", "most"), [({}, 5), ({"ignore_index": -100}, 7)])
def test_few_nodes(options, most):
    scores, labels, _, _ = draw((4, 3))
    model, _, _ = loss_model("SoftmaxCrossEntropyLoss", scores, labels, None, np.float32, **options)
    derived = gradgen.vjp(model, wrt=["scores"], of=["output"])
    operators = [n.op_type for n in derived.graph.node]
    assert len(operators) <= 1 + most and "Where" not in operators, operators


def of_known_classes(op_type, classes, labels="int64", kind="float", **attributes):
    """A model of one loss of a batch of any size, N, and a number of classes or its name."""
    text = ", ".join(f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in attributes.items())
    count = "N" if attributes.get("reduction") == "none" else ""
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g ({kind}[N, {classes}] x, {labels}[N] l) => ({kind}[{count}] y)
        {{ y = {op_type}<{text}>(x, l) }}""".replace("[]", "")
    )


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ignore_index", [-1, -3, -100, 3, 40])
@pytest.mark.parametrize("op_type", NAMES)
def test_rows_of_a_table_where_the_classes_are_known(op_type, ignore_index, dtype, kind):
    name = {np.float32: "float", np.float64: "double"}[dtype]
    x = np.random.default_rng(5).standard_normal((6, 3)).astype(dtype)
    for reduction in ("mean", "sum", "none"):
        model = of_known_classes(op_type, 3, kind, name, ignore_index=ignore_index, reduction=reduction)
        derived = gradgen.vjp(model, wrt=["x"])
        operators = [n.op_type for n in derived.graph.node]
        assert "Gather" in operators and not {"ScatterElements", "Shape", "Max", "Cast"} & set(operators), operators
        for labels in ([0, ignore_index, 2, 1, ignore_index, 2], [ignore_index] * 6, [0, 0, 1, 1, 2, 2]):
            labels = np.array(labels, kind)
            ct = np.random.default_rng(6).standard_normal(6) if reduction == "none" else np.asarray(1.7)
            feeds = {"x": x, "l": labels, "grad_y": ct.astype(dtype)}
            got = Evaluator(derived, strict=True)(feeds)["grad_x"]
            kept = (labels != ignore_index).any()
            want = expected(op_type, x, labels, None, ct, reduction, ignore_index)[0] if kept else np.zeros((6, 3))
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7 if dtype is np.float32 else 1e-14)


@pytest.mark.parametrize("op_type", NAMES)
def test_no_table_for_many_classes_a_class_that_is_ignored_or_a_map(op_type):
    for classes, ignore_index, table in (
        ("64", -100, True), ("65", -100, False), ("64", -300, False), ("10", 2, False), ("10", 10, True),
        ("10", 10000, False), ("M", -100, False),
    ):  # fmt: skip
        derived = gradgen.vjp(of_known_classes(op_type, classes, ignore_index=ignore_index), wrt=["x"])
        operators = [n.op_type for n in derived.graph.node]
        assert ("Gather" in operators, "ScatterElements" in operators) == (table, not table), (classes, ignore_index)


@pytest.mark.parametrize("op_type", NAMES)
def test_negative_labels_that_are_not_the_ignored_one(op_type):
    """They are ignored where `ignore_index` is negative, and count from the end elsewhere, for every form."""
    x = np.random.default_rng(7).standard_normal((2, 3)).astype(np.float32)
    last = expected(op_type, x, np.array([1, 2]), None, 1.0, "sum", None)[0][1]
    for classes in (3, "M"):
        for ignore_index, label, want in (
            (-100, -2, np.zeros(3)),
            (-2, -1, np.zeros(3)),
            (-1, -2, np.zeros(3)),
            (9, -1, last),
        ):
            model = of_known_classes(op_type, classes, ignore_index=ignore_index, reduction="sum")
            feeds = {"x": x, "l": np.array([1, label]), "grad_y": np.float32(1)}
            got = Evaluator(gradgen.vjp(model, wrt=["x"]), strict=True)(feeds)["grad_x"][1]
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7, err_msg=f"{classes} {ignore_index} {label}")
