# RNN, GRU and LSTM: attributes and optional inputs at random, ragged sequences, cotangents of some outputs, edges.
"""Tests of the rules of recurrent layers against central differences in float64."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from recurrent_models import GATES, OUTPUTS, Arrays, batch_first, draw, model

import gradgen
from gradgen.evaluate import Evaluator


def gradient(proto: onnx.ModelProto, wrt: list[str], of: list[str]) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        result = gradgen.vjp(proto, wrt=wrt, of=of)
    onnx.checker.check_model(result, full_check=True)
    return result


def cotangents(proto: onnx.ModelProto, feeds: Arrays) -> Arrays:
    rng = np.random.default_rng(1)
    outputs = Evaluator(proto, prefer="reference", strict=True)(feeds)
    return {n: rng.uniform(0.5, 1.5, y.shape) * rng.choice([-1, 1], y.shape) for n, y in outputs.items()}


def quotient(proto: onnx.ModelProto, feeds: Arrays, cts: Arrays, name: str, direction: np.ndarray) -> float:
    run, step = Evaluator(proto, prefer="reference", strict=True), 1e-6
    ends = [run({**feeds, name: feeds[name] + sign * step * direction}) for sign in (1, -1)]
    return sum(float(np.vdot(ct, ends[0][n] - ends[1][n])) for n, ct in cts.items()) / (2 * step)


def wide(feeds: Arrays) -> Arrays:
    return {n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in feeds.items()}


def check(
    op: str, feeds: Arrays, attributes: dict, outputs: list[str], fixed_lengths: bool = False,
    sizes: tuple[int | str, ...] = ("a", "b", "c")
) -> Arrays:  # fmt: skip
    """The gradients in float64, compared with differences in a random direction each, and in float32."""
    double, rng = wide(feeds), np.random.default_rng(2)
    proto = model(op, double, attributes, outputs, fixed_lengths, sizes)
    wrt = [n for n in feeds if n != "sequence_lens"]
    given = {n: v for n, v in double.items() if not (fixed_lengths and n == "sequence_lens")}
    cts = cotangents(proto, given)
    seeds = {f"grad_{n}": ct for n, ct in cts.items()}
    found = Evaluator(gradient(proto, wrt, outputs), prefer="reference", strict=True)({**given, **seeds})
    gradients = {n: found[f"grad_{n}"] for n in wrt}
    for name in wrt:
        direction = rng.standard_normal(feeds[name].shape)
        terms = gradients[name] * direction
        want = quotient(proto, given, cts, name, direction)
        assert gradients[name].shape == feeds[name].shape
        assert abs(terms.sum() - want) <= 1e-7 * max(np.abs(terms).sum(), 1), f"{name}: {terms.sum()}, not {want}"
    if not attributes.get("layout"):
        single = {n: v.astype(np.float32) if v.dtype == np.float64 else v for n, v in {**given, **seeds}.items()}
        narrow = gradient(model(op, feeds, attributes, outputs, fixed_lengths, sizes), wrt, outputs)
        results = Evaluator(narrow, strict=True)(single)
        for name in wrt:
            scale = np.abs(gradients[name]).max(initial=1e-2)
            np.testing.assert_allclose(results[f"grad_{name}"], gradients[name], rtol=1e-4, atol=1e-5 * scale)
    return gradients


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("op", GATES)
def test_everything_at_random(op, seed):
    feeds, attributes = draw(op, seed, parameters=6)
    rng = np.random.default_rng(seed)
    if rng.random() < 0.3:
        feeds, attributes = batch_first(feeds), {**attributes, "layout": 1}
    outputs = [n for n in OUTPUTS[op] if rng.random() < 0.6] or [OUTPUTS[op][-1]]
    check(op, feeds, attributes, outputs, fixed_lengths=bool(rng.integers(2)))


BATCH, HIDDEN = 2048, 5  # with three inputs, large enough for the saved forms


def saves(proto: onnx.ModelProto, wrt: list[str], of: list[str]) -> bool:
    """Whether the gates come out of the forward pass: then no node of the op is left, and none computes them again."""
    nodes = gradient(proto, wrt, of).graph.node
    assert any("_fwd" in n.name for n in nodes) == (not any(n.op_type in GATES for n in nodes))
    return any("_vjp__saved" in n.name or "_vjp__plain" in n.name for n in nodes)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_a_large_layer_saves_its_gates(op, seed):
    """For any number of steps: the saved form needs to know how much a step computes, and not how many there are."""
    feeds, attributes = draw(op, seed, batch=BATCH, hidden=HIDDEN)
    feeds = {n: v for n, v in feeds.items() if n != "sequence_lens" and (n != "P" or seed < 4)}
    attributes = {n: attributes[n] for n in ("hidden_size", "direction")}
    attributes |= {"linear_before_reset" if op == "GRU" else "input_forget": seed % 2}
    outputs = [n for k, n in enumerate(OUTPUTS[op]) if seed >> k & 1] or OUTPUTS[op]
    sizes = ("steps", BATCH, 3)
    proto = model(op, feeds, attributes, outputs, sizes=sizes)
    assert saves(proto, ["X", "W"], outputs)
    # Without peepholes and coupled gates no state has to be handed out.
    names = [n.name for n in gradient(proto, ["X"], outputs).graph.node]
    plain = op == "LSTM" and "P" not in feeds and not attributes["input_forget"]
    assert any("_vjp__plain" in name for name in names) == plain
    check(op, feeds, attributes, outputs, sizes=sizes)


@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_a_layer_that_is_small_or_unusual_is_left_as_it_is(op):
    feeds, _ = draw(op, 3, batch=BATCH, hidden=HIDDEN)
    feeds = {n: v[:1] if n in "WR" else v for n, v in feeds.items() if n in "XWR"}
    plain, sizes, defaults = {"hidden_size": HIDDEN}, (4, BATCH, 3), ["Sigmoid", "Tanh", "Tanh"][: GATES[op] - 1]

    def saved(given: Arrays, attributes: dict, sizes: tuple[int | str, ...] = sizes) -> bool:
        return saves(model(op, given, attributes, ["Y"], sizes=sizes), ["X"], ["Y"])

    assert saved(feeds, plain) and saved(feeds, {**plain, "activations": defaults})
    assert not saved(feeds, plain, (4, "batch", 3))
    assert not saved({**feeds, "X": feeds["X"][:, :4]}, plain, (4, 4, 3))
    assert not saved({**feeds, "sequence_lens": np.full(BATCH, 2, np.int32)}, plain)
    assert not saved(feeds, {**plain, "clip": 3.0})
    assert not saved(feeds, {**plain, "activations": ["HardSigmoid", *defaults[1:]]})
    assert not saved({**feeds, "X": feeds["X"].swapaxes(0, 1)}, {**plain, "layout": 1}, (BATCH, 4, 3))


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("op", GATES)
def test_what_lies_beyond_the_end_of_a_sequence_is_not_read(op, direction):
    """Padding may hold anything, and gets exactly 0; so do the first states of a sequence of no steps."""
    feeds, attributes = draw(op, 1)
    attributes = {"hidden_size": 2, "direction": direction}
    feeds = {n: v[:1] if n not in ("X", "sequence_lens") else v for n, v in feeds.items()}
    shape = (1, 3, 2)
    feeds |= {"sequence_lens": np.array([4, 2, 0], np.int32), "initial_h": np.full(shape, 0.5, np.float32)}
    proto = model(op, feeds, attributes)
    padding = np.arange(4)[:, None] >= feeds["sequence_lens"]
    garbage = {**feeds, "X": np.where(padding[:, :, None], np.float32(np.nan), feeds["X"])}
    wrt = [n for n in feeds if n != "sequence_lens"]
    run = Evaluator(gradient(proto, wrt, OUTPUTS[op]), strict=True)
    seeds = {f"grad_{n}": ct.astype(np.float32) for n, ct in cotangents(proto, feeds).items()}
    clean, dirty = run({**feeds, **seeds}), run({**garbage, **seeds})
    for name in wrt:
        np.testing.assert_array_equal(clean[f"grad_{name}"], dirty[f"grad_{name}"], err_msg=name)
    assert not clean["grad_X"][padding].any() and clean["grad_X"][~padding].all()
    assert not clean["grad_initial_h"][:, 2].any() and clean["grad_initial_h"][:, :2].all()


@pytest.mark.parametrize("op", GATES)
def test_constant_lengths_that_are_all_full_cost_nothing(op):
    feeds, attributes = draw(op, 0)
    attributes = {"hidden_size": 2, "direction": attributes["direction"]}
    feeds["sequence_lens"] = np.full(3, 4, np.int32)
    full = model(op, feeds, attributes, fixed_lengths=True)
    full.graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, (4, 3, 3)))
    assert not [n for n in gradient(full, ["X"], ["Y"]).graph.node if n.op_type in ("Less", "Where")]


@pytest.mark.parametrize("op", GATES)
def test_a_sequence_of_one_step_needs_no_scan(op):
    feeds, attributes = draw(op, 2)
    feeds, attributes = {**feeds, "X": feeds["X"][:1]}, {"hidden_size": 2, "direction": attributes["direction"]}
    feeds.pop("sequence_lens", None)
    check(op, feeds, attributes, OUTPUTS[op])
    proto = model(op, feeds, attributes)
    proto.graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, (1, 3, 3)))
    assert "Scan" not in [n.op_type for n in gradient(proto, ["X", "W"], ["Y"]).graph.node]


@pytest.mark.parametrize("op", GATES)
def test_an_input_of_unknown_rank(op):
    feeds, attributes = draw(op, 4, parameters=6)
    proto = model(op, feeds, attributes, ["Y"])
    for value in proto.graph.input:
        value.type.tensor_type.ClearField("shape")
        value.type.tensor_type.shape.SetInParent()
    names = [v.name for v in proto.graph.input if v.name in ("X", "W", "R")]
    known = gradient(model(op, feeds, attributes, ["Y"]), names, ["Y"])
    del proto.graph.input[:]
    flat = [onnx.helper.make_tensor_value_info(f"{n}_flat", 1, [None]) for n in names]
    flat += [onnx.helper.make_tensor_value_info(f"{n}_shape", 7, [None]) for n in names]
    others = [v for v in known.graph.input if v.name in feeds and v.name not in names]
    proto.graph.input.extend([*flat, *others])
    for n in names:
        proto.graph.node.insert(0, onnx.helper.make_node("Reshape", [f"{n}_flat", f"{n}_shape"], [n]))
    open_ranks = gradient(proto, [f"{n}_flat" for n in names], ["Y"])
    seeds = {"grad_Y": cotangents(model(op, feeds, attributes, ["Y"]), feeds)["Y"].astype(np.float32)}
    want = Evaluator(known, strict=True)({**feeds, **seeds})
    given = {f"{n}_flat": feeds[n].reshape(-1) for n in names}
    given |= {f"{n}_shape": np.asarray(feeds[n].shape) for n in names}
    given |= {v.name: feeds[v.name] for v in others}
    found = Evaluator(open_ranks, strict=True)({**given, **seeds})
    for n in names:
        np.testing.assert_allclose(found[f"grad_{n}_flat"], want[f"grad_{n}"].reshape(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "parameter"), [("Affine", "alpha"), ("ScaledTanh", "alpha"), ("ThresholdedRelu", "alpha")]
)
def test_parameters_about_which_runtimes_disagree_are_asked_for(name, parameter):
    feeds, _ = draw("RNN", 0)
    feeds = {n: feeds[n][:1] if n != "X" else feeds[n] for n in "XWR"}
    proto = model("RNN", feeds, {"hidden_size": 2, "activations": [name]})
    with pytest.raises(gradgen.GradientError, match=f"node: rule 'rnn_vjp': .*'{name}' has no activation_{parameter}"):
        gradgen.vjp(proto, wrt=["X"], of=["Y"])


def test_a_relu_that_is_cut_off_gets_nothing():
    """CONVENTIONS: Relu's derivative at 0 is 0; a clipped input passes its gradient at the bound, and not beyond."""
    one = np.ones((1, 1, 1), np.float32)
    feeds = {"X": np.array([0.0, 0.5, 0.75, 0.25], np.float32).reshape(4, 1, 1), "W": one, "R": 0 * one}
    proto = model("RNN", feeds, {"hidden_size": 1, "activations": ["Relu"], "clip": 0.5})
    seeds = {"grad_Y": np.ones((4, 1, 1, 1), np.float32)}
    found = Evaluator(gradient(proto, ["X"], ["Y"]), strict=True)({**feeds, **seeds})
    np.testing.assert_array_equal(found["grad_X"].reshape(-1), [0, 1, 0, 1])
