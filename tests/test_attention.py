"""Gradients of attention and its kin where the generated tests do not reach: masks, empty rows, caches, half types."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import gradgen
from gradgen.differences import check_gradients, directional
from gradgen.evaluate import Evaluator

Arrays = dict[str, np.ndarray]


def node_model(
    op_type: str,
    feeds: Mapping[str, np.ndarray | None],
    outputs: Mapping[str, int],
    opset: int,
    dynamic: bool = False,
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; None is an operand left out, `outputs` gives ranks ("" leaves one out)."""
    given = {n: a for n, a in feeds.items() if a is not None}
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in given.items()}
    inputs = [
        helper.make_tensor_value_info(n, kinds[n], [f"{n}{i}" for i in range(a.ndim)] if dynamic else a.shape)
        for n, a in given.items()
    ]
    first = next(iter(kinds.values()))
    results = [helper.make_tensor_value_info(o, first, [None] * r) for o, r in outputs.items() if not o.startswith("-")]
    names = [n if a is not None else "" for n, a in feeds.items()]
    listed = ["" if o.startswith("-") else o for o in outputs]
    node = helper.make_node(op_type, names, listed, name="node", domain=domain, **attributes)
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(
        helper.make_graph([node], "attention", inputs, results), opset_imports=opsets, ir_version=10
    )


def normal(*shape: int, seed: int = 0, kind: Any = np.float32) -> np.ndarray:
    # Away from the seeds with which checks draw their cotangents.
    return np.random.default_rng(1000 + seed).standard_normal(shape).astype(kind)


def heads(query=(2, 2, 3, 4), key=(2, 2, 5, 4), width=3) -> Arrays:
    shapes = {"Q": query, "K": key, "V": (*key[:-1], width)}
    return {n: normal(*s, seed=i) for i, (n, s) in enumerate(shapes.items())}


def agrees(model: onnx.ModelProto, feeds: Arrays, wrt: list[str], strict: bool = True) -> onnx.ModelProto:
    """The gradient model, after it was compared with differences in float64 and loaded on onnxruntime."""
    of = [o.name for o in model.graph.output]
    with warnings.catch_warnings():
        warnings.simplefilter("error", gradgen.GradientWarning)
        result = gradgen.vjp(model, wrt=wrt, of=of)
    onnx.checker.check_model(result, full_check=True)
    for record in check_gradients(model, result, feeds):
        assert record.verdict == "ok", f"{record.name}: {record.verdict}, {record.reason} (error {record.error:.2g})"
        assert record.norm > 0
    if strict:
        Evaluator(result, strict=True)
    return result


def agrees_in_double(model: onnx.ModelProto, feeds: Arrays, wrt: list[str], single: onnx.ModelProto) -> None:
    """As `agrees` for a primal that onnxruntime refuses: differences by the reference evaluator.

    The gradients of `single`, the model in float32, are those in float64.
    """
    primal = Evaluator(model, prefer="reference", strict=True)
    result = gradgen.vjp(model, wrt=wrt, of=["Y"])
    ct = normal(*primal(feeds)["Y"].shape, seed=50, kind=np.float64)
    found = Evaluator(result)({**feeds, "grad_Y": ct})
    narrow = {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in {**feeds, "grad_Y": ct}.items()}
    on_runtime = Evaluator(gradgen.vjp(single, wrt=wrt, of=["Y"]), strict=True)(narrow)
    for i, name in enumerate(wrt):
        direction = normal(*feeds[name].shape, seed=60 + i, kind=np.float64)
        want = directional(primal, feeds, {name: direction}, {"Y": ct}).value
        got = found[f"grad_{name}"]
        assert got.shape == feeds[name].shape
        assert float(np.sum(got * direction)) == pytest.approx(want, rel=1e-6, abs=1e-7), name
        scale = np.abs(got).max()
        np.testing.assert_allclose(on_runtime[f"grad_{name}"], got, rtol=1e-4, atol=2e-5 * scale, err_msg=name)


def check_mask(feeds: Arrays, opset: int, dynamic: bool) -> None:
    """Attention with a mask that onnxruntime's kernel does not take, but the standard does."""
    wide = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in feeds.items()}
    models = [node_model("Attention", arrays, {"Y": 4}, opset, dynamic) for arrays in (wide, feeds)]
    agrees_in_double(models[0], wide, [n for n, a in wide.items() if a.dtype.kind == "f"], models[1])


def run(model: onnx.ModelProto, feeds: Arrays, wrt: list[str]) -> Arrays:
    """The gradients on onnxruntime where every cotangent is 1."""
    result = gradgen.vjp(model, wrt=wrt, of=["Y"])
    shape = Evaluator(model, strict=True)(feeds)["Y"].shape
    found = Evaluator(result, strict=True)({**feeds, "grad_Y": np.ones(shape, feeds["Q"].dtype)})
    return {n: found[f"grad_{n}"] for n in wrt}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (1, 1, 5), (2, 1, 1, 5), (1, 2, 3, 5)], ids=str)
def test_gradient_to_a_mask_is_summed_over_what_was_broadcast(shape, dynamic):
    feeds = {**heads(), "attn_mask": normal(*shape, seed=9)}
    check_mask(feeds, 23, dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(1,), (3, 1), (2, 1, 1)], ids=str)
def test_a_mask_of_one_column_is_broadcast_before_opset_24(shape, dynamic):
    """Adding one number to a whole row changes nothing: the gradient is that without a mask, and 0 to the mask."""
    feeds = {**heads(), "attn_mask": normal(*shape, seed=9)}
    bare = {n: a for n, a in feeds.items() if n != "attn_mask"}
    want = run(node_model("Attention", bare, {"Y": 4}, 23), bare, list(bare))
    result = gradgen.vjp(node_model("Attention", feeds, {"Y": 4}, 23, dynamic), wrt=list(feeds))
    found = Evaluator(result, strict=True)({**feeds, "grad_Y": np.ones((2, 2, 3, 3), np.float32)})
    for name, gradient in want.items():
        np.testing.assert_allclose(found[f"grad_{name}"], gradient, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(found["grad_attn_mask"], np.zeros(shape), atol=1e-6)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.bool_])
def test_mask_that_ends_before_the_keys(kind, dynamic):
    mask = normal(3, 4, seed=9) if kind == np.float32 else normal(3, 4, seed=9) > -1
    feeds = {**heads(), "attn_mask": mask}
    check_mask(feeds, 24, dynamic)


def test_a_mask_that_goes_on_behind_the_keys_is_cut_off():
    """What the op does not read has no gradient: the body of opset 28 takes a longer mask, the kernels do not."""
    feeds = {**heads(), "attn_mask": normal(3, 7, seed=9)}
    short = {**feeds, "attn_mask": feeds["attn_mask"][:, :5]}
    names = ["Q", "K", "V", "attn_mask"]
    results = [gradgen.vjp(node_model("Attention", arrays, {"Y": 4}, 24), wrt=names) for arrays in (feeds, short)]
    of_long, of_short = (
        {f"grad_{n}": run[f"grad_{n}"] for n in names}
        for run in (
            Evaluator(result, strict=True)({**arrays, "grad_Y": np.ones((2, 2, 3, 3), np.float32)})
            for result, arrays in zip(results, (feeds, short), strict=True)
        )
    )
    assert not of_long["grad_attn_mask"][:, 5:].any()
    of_long["grad_attn_mask"] = of_long["grad_attn_mask"][:, :5]
    for name, want in of_short.items():
        np.testing.assert_allclose(of_long[name], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.bool_])
@pytest.mark.parametrize("opset", [23, 24])
def test_row_without_a_key_gives_zero(kind, opset):
    allowed = np.ones((3, 5), bool)
    allowed[1] = False
    allowed[2, :3] = False
    mask = allowed if kind == np.bool_ else np.where(allowed, 0.5, -np.inf).astype(kind)
    feeds = {**heads(), "attn_mask": mask}
    wrt = [n for n, a in feeds.items() if a.dtype.kind == "f"]
    model = node_model("Attention", feeds, {"Y": 4}, opset)
    found = run(model, feeds, wrt)
    assert all(np.isfinite(g).all() for g in found.values())
    assert not found["Q"][:, :, 1].any() and found["Q"][:, :, [0, 2]].any()
    # The other rows are those of a problem without the second query.
    rest = {**feeds, "Q": feeds["Q"][:, :, [0, 2]], "attn_mask": feeds["attn_mask"][[0, 2]]}
    want = run(node_model("Attention", rest, {"Y": 4}, opset), rest, wrt)
    np.testing.assert_allclose(found["Q"][:, :, [0, 2]], want["Q"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["K"], want["K"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["V"], want["V"], rtol=1e-5, atol=1e-6)
    if kind == np.float32:
        np.testing.assert_allclose(found["attn_mask"][[0, 2]], want["attn_mask"], rtol=1e-5, atol=1e-6)
        assert not found["attn_mask"][~allowed].any()


def test_queries_before_the_first_valid_key_give_zero():
    # One valid key and three queries: by the alignment to the end the first two see none.
    feeds = {**heads(), "attn_mask": None, "past_key": None, "past_value": None, "nonpad_kv_seqlen": np.array([1, 5])}
    model = node_model("Attention", feeds, {"Y": 4}, 24, is_causal=1)
    given = {n: a for n, a in feeds.items() if a is not None}
    found = run(model, given, ["Q", "K", "V"])
    assert not found["Q"][0, :, :2].any() and not found["V"][0, :, 1:].any()
    assert found["V"][0, :, 0] == pytest.approx(1, abs=1e-6)
    agrees(model, given, ["Q", "K", "V"])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_shown_scores_have_a_cotangent(mode, dynamic):
    feeds = {**heads((1, 4, 3, 2), (1, 2, 4, 2)), "attn_mask": normal(3, 4, seed=8)}
    outputs = {"Y": 4, "-1": 4, "-2": 4, "scores": 4}
    attributes: dict[str, Any] = {"softcap": 1.5, "qk_matmul_output_mode": mode, "scale": 0.3}
    model = node_model("Attention", feeds, outputs, 24, dynamic, **attributes)
    wrt = ["Q", "K", "V", *(["attn_mask"] if mode > 1 else [])]
    agrees(model, feeds, wrt)


def test_shown_scores_alone_and_caches_alone():
    feeds = {**heads((1, 2, 3, 2), (1, 2, 4, 2)), "attn_mask": None}
    feeds |= {"past_key": normal(1, 2, 2, 2, seed=5), "past_value": normal(1, 2, 2, 3, seed=6)}
    given = {n: a for n, a in feeds.items() if a is not None}
    model = node_model("Attention", feeds, {"Y": 4, "key": 4, "value": 4, "scores": 4}, 23)
    for of, reach in (("key", ["K", "past_key"]), ("value", ["V", "past_value"]), ("scores", ["Q", "K", "past_key"])):
        result = gradgen.vjp(model, wrt=reach, of=[of])
        assert {r.verdict for r in check_gradients(model, result, given)} == {"ok"}, of


@pytest.mark.parametrize("dynamic", [False, True])
def test_three_dimensions_with_groups_cache_and_mask(dynamic):
    feeds = {"Q": normal(2, 3, 16), "K": normal(2, 2, 8, seed=1), "V": normal(2, 2, 6, seed=2)}
    feeds |= {"attn_mask": normal(4, 3, 5, seed=3)}
    feeds |= {"past_key": normal(2, 2, 3, 4, seed=4), "past_value": normal(2, 2, 3, 3, seed=5)}
    outputs = {"Y": 3, "present_key": 4, "present_value": 4}
    attributes: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1, "softcap": 2.0}
    model = node_model("Attention", feeds, outputs, 24, dynamic, **attributes)
    agrees(model, feeds, list(feeds))


@pytest.mark.parametrize("window", [(1, -1), (-1, 0), (0, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("length", [3, 7])
def test_windows(window, length):
    # With more queries than keys some see none.
    feeds = heads((1, 2, length, 4), (1, 2, 4, 4))
    left, right = window
    model = node_model("Attention", feeds, {"Y": 4}, 25, left_window_size=left, right_window_size=right)
    agrees(model, feeds, list(feeds))


def test_attention_in_float16():
    feeds = {n: a.astype(np.float16) for n, a in heads().items()}
    found = run(node_model("Attention", feeds, {"Y": 4}, 23, softmax_precision=1), feeds, list(feeds))
    wide = {n: a.astype(np.float32) for n, a in feeds.items()}
    want = run(node_model("Attention", wide, {"Y": 4}, 23), wide, list(feeds))
    for name, got in found.items():
        assert got.dtype == np.float16
        np.testing.assert_allclose(got.astype(np.float32), want[name], rtol=2e-2, atol=5e-3)


def test_no_rows_and_no_keys_are_lost_to_inference():
    # onnx infers a total length of 0 where the lengths are unknown.
    feeds = heads()
    model = node_model("Attention", feeds, {"Y": 4, "-1": 4, "-2": 4, "scores": 4}, 24, dynamic=True)
    result = gradgen.vjp(model, wrt=["Q"], of=["scores"])
    seed = next(i for i in result.graph.input if i.name == "grad_scores")
    assert not any(d.HasField("dim_value") for d in seed.type.tensor_type.shape.dim)


def test_plain_attention_adds_few_nodes_and_saves_the_probabilities():
    feeds = heads()
    result = gradgen.vjp(node_model("Attention", feeds, {"Y": 4}, 23), wrt=list(feeds), of=["Y"])
    ops = [n.op_type for n in result.graph.node]
    assert ops.count("Softmax") == 1 and ops.count("MatMul") == 6 and "Attention" not in ops
    assert len(ops) <= 20


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding_adds_up_positions_that_are_read_twice(interleaved):
    feeds = {"X": normal(2, 3, 4, 6), "cos": normal(9, 2, seed=1), "sin": normal(9, 2, seed=2)}
    feeds["ids"] = np.array([[0, 8, 8, 1], [8, 0, 3, 3]])
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": 4}
    model = node_model("RotaryEmbedding", feeds, {"Y": 4}, 23, **attributes)
    result = agrees(model, feeds, ["X", "cos", "sin"])
    ct = normal(2, 3, 4, 6, seed=3)
    found = Evaluator(result, strict=True)({**feeds, "grad_Y": ct})
    assert not found["grad_cos"][[2, 4, 5, 6, 7]].any()
    # A rotation turns back: what was not rotated passes.
    np.testing.assert_array_equal(found["grad_X"][..., 4:], ct[..., 4:])


def test_rotary_embedding_in_float16():
    feeds = {"X": normal(1, 2, 8), "cos": normal(3, 2, seed=1), "sin": normal(3, 2, seed=2)}
    half = {n: a.astype(np.float16) for n, a in feeds.items()}
    ids, gradients = np.array([[1, 1]]), {}
    for kind, arrays in (("half", half), ("single", {n: a.astype(np.float32) for n, a in half.items()})):
        full: Arrays = {**arrays, "ids": ids}
        result = gradgen.vjp(node_model("RotaryEmbedding", full, {"Y": 3}, 23, num_heads=2), wrt=list(arrays))
        ct = np.ones((1, 2, 8), arrays["X"].dtype)
        gradients[kind] = Evaluator(result, strict=True)({**full, "grad_Y": ct})
    for name in feeds:
        got = gradients["half"][f"grad_{name}"]
        assert got.dtype == np.float16
        np.testing.assert_allclose(got.astype(np.float32), gradients["single"][f"grad_{name}"], rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_product_with_zeros(exclusive, reverse, dynamic):
    x = np.array([[2, 0, 3, 0.5, 4, 1.5, 0.25], [0, 2, 0, 3, 1, 0, 2]], np.float32)
    ct = normal(2, 7, seed=1)
    model = node_model("CumProd", {"x": x, "axis": np.asarray(1)}, {"y": 2}, 26, exclusive=exclusive, reverse=reverse)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(1), "axis"))
    if dynamic:
        # Neither the axis nor the sizes are known.
        del model.graph.initializer[:]
        for i, dim in enumerate(model.graph.input[0].type.tensor_type.shape.dim):
            dim.dim_param = f"x{i}"
    else:
        del model.graph.input[1:]
    result = gradgen.vjp(model, wrt=["x"], of=["y"])
    feeds = {"x": x, "grad_y": ct, **({"axis": np.asarray(1)} if dynamic else {})}
    found = Evaluator(result, strict=True)(feeds)["grad_x"]
    # The product of the other factors, for each pair of a factor and a result.
    want = np.zeros(x.shape)
    place = np.arange(7)
    for i in range(7):
        for j in range(7):
            taken = (place >= j if reverse else place <= j) & ((place != j) | (not exclusive))
            if taken[i]:
                want[:, i] += ct[:, j] * np.prod(x[:, taken & (place != i)], axis=1, dtype=np.float64)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_bit_patterns():
    # To an integer the gradient stops; between two float types nothing is known of it.
    x = normal(3, kind=np.float16)
    model = node_model("BitCast", {"x": x}, {"y": 1}, 26, to=TensorProto.BFLOAT16)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    with pytest.raises(gradgen.GradientError, match="bit pattern"):
        gradgen.vjp(model, wrt=["x"], of=["y"])


@pytest.mark.parametrize("alpha", [1.0, 0.7])
def test_swiglu_through_its_body(alpha):
    feeds = {"A": normal(3, 4), "B": normal(3, 4, seed=1)}
    # onnxruntime has no Swish of opset 28.
    agrees(node_model("SwiGLU", feeds, {"Y": 2}, 28, alpha=alpha), feeds, ["A", "B"], strict=False)


@pytest.mark.parametrize("length", [1, 2, 6])
def test_causal_convolution_of_a_sequence_shorter_than_its_kernel(length):
    feeds = {"x": normal(2, 3, length), "w": normal(3, 1, 4, seed=1), "b": normal(3, seed=2)}
    feeds["past"] = normal(2, 3, 3, seed=3)
    model = node_model("CausalConvWithState", feeds, {"y": 3, "state": 3}, 27, activation="silu")
    agrees(model, feeds, list(feeds))


def modifier(constant: str) -> onnx.GraphProto:
    """The scores times a value from outside, less those of the first key: the graph has constants of its own."""
    nodes = [
        helper.make_node("Mul", ["scores", constant], ["scaled"]),
        helper.make_node("Slice", ["scaled", "zero", "one", "last"], ["first"]),
        helper.make_node("Sub", ["scaled", "first"], ["modified"]),
    ]
    fixed = [onnx.numpy_helper.from_array(np.array([v]), n) for n, v in (("zero", 0), ("one", 1), ("last", 3))]
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * 4) for n in ("scores", "modified")]
    return helper.make_graph(nodes, "modifier", kinds[:1], kinds[1:], fixed)


# The second is the name of a value inside the standard's body.
@pytest.mark.parametrize("name", ["temperature", "Prob"])
def test_flex_attention_through_its_body(name):
    feeds = heads((1, 4, 3, 2), (1, 2, 4, 2))
    model = node_model("FlexAttention", feeds, {"Y": 4}, 26, domain="ai.onnx.preview", score_mod=modifier(name))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(0.5, np.float32), name))
    result = gradgen.vjp(model, wrt=list(feeds), of=["Y"])
    onnx.checker.check_model(result, full_check=True)
    # By hand; what is taken off every score of a row does not change its softmax.
    q, k, v = (feeds[n].astype(np.float64) for n in "QKV")
    scores = q @ np.repeat(k, 2, axis=1).swapaxes(2, 3) / np.sqrt(2) * 0.5
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    found = Evaluator(result, strict=True)({**feeds, "grad_Y": np.ones((1, 4, 3, 3), np.float32)})
    want = p.reshape(1, 2, 6, 4).sum(axis=2)
    dp = np.ones((1, 4, 3, 3)) @ np.repeat(v, 2, axis=1).swapaxes(2, 3)
    dscores = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) / np.sqrt(2) * 0.5
    np.testing.assert_allclose(found["grad_Q"], dscores @ np.repeat(k, 2, axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["grad_V"], np.repeat(want[..., None], 3, axis=3), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["Y"], p @ np.repeat(v, 2, axis=1), rtol=1e-4, atol=1e-5)


def test_other_bodies_of_the_standard():
    x = normal(2, 3, 4, 2)
    agrees(node_model("MeanVarianceNormalization", {"x": x}, {"y": 4}, 13), {"x": x}, ["x"])
    feeds = {"x": normal(3, 5), "shape": np.array([4, 2])}
    agrees(node_model("CenterCropPad", feeds, {"y": 2}, 18), feeds, ["x"])
