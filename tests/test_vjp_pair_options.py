# The pair of models with checkpoints and with several cotangents: what is kept, what is computed anew, and the values.
"""Tests of `checkpoint=` and `seeds=` of vjp_pair."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from command_line import DIGITS, SAMPLE, refused
from command_line import run as run_command
from onnx import parser
from random_graphs import grow_with_borders

import gradgen
from gradgen.differences import directional
from gradgen.errors import GradientError
from gradgen.evaluate import Evaluator, to_float64
from gradgen.transforms.barrier import MARK

DATA = Path(__file__).parent / "data"
Arrays = dict[str, np.ndarray]
BODY = "".join(f"m{i} = MatMul({f't{i - 1}' if i else 'x'}, w) t{i} = Tanh(m{i}) " for i in range(8))
LADDER = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 6] x, float[6, 6] w) => (float[N, 6] y) {{ {BODY} y = Mul(t7, t7) }}""")
NOISY = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 6] x, float[6, 6] w) => (float[N, 6] y, float[N, 6] t3, float[N, 6] n) {{ {BODY}
    n = RandomNormalLike(t3) a = Mul(t3, n) b = Sin(a) y = Mul(b, b) }}""")


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * 0.5).astype(np.float32)


FEEDS = {"x": drawn(4, 6), "w": drawn(6, 6)}


def run(proto: onnx.ModelProto, held: Arrays) -> Arrays:
    """Run on onnxruntime as it is, with those of the arrays that are inputs."""
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    feeds = {i.name: held[i.name] for i in proto.graph.input}
    return dict(zip(names, session.run(names, feeds), strict=True))


def both(forward: onnx.ModelProto, backward: onnx.ModelProto, held: Arrays) -> Arrays:
    """What the two give, one after the other; the second takes what the first gave."""
    kept = run(forward, held)
    return kept | run(backward, held | kept)


def residuals(forward: onnx.ModelProto) -> dict[str, str]:
    """The sources of the residuals, by their names."""
    roles = json.loads(next(p.value for p in forward.metadata_props if p.key == "gradgen.names"))
    return {o.name: roles[o.name]["source"] for o in forward.graph.output if o.name.startswith("residual")}


def again(proto: onnx.ModelProto) -> list[str]:
    """The values that a model computes anew, in order."""
    marked = [n for n in proto.graph.node if any(p.key == MARK and p.value == "again" for p in n.metadata_props)]
    return [n.output[0].removesuffix("/again") for n in marked]


def encoder(kind: str = "static") -> tuple[onnx.ModelProto, Arrays, list[str]]:
    """A small transformer, its inputs, and the names of its weights."""
    proto = onnx.load(DATA / f"encoder_{kind}.onnx")
    shapes = {i.name: [d.dim_value or 4 for d in i.type.tensor_type.shape.dim] for i in proto.graph.input}
    feeds = {n: np.arange(4) % 10 if n == "label" else drawn(*shape) for n, shape in shapes.items()}
    return proto, feeds, gradgen.parameters(proto)


@pytest.mark.parametrize(
    ("names", "kept"),
    [(["t1", "t4"], ["t1", "t4"]), ("t7", ["t7"]), (["x"], []), ("y", []), ("t*", [f"t{i}" for i in range(8)]),
     (["t1", "m4"], ["t1", "m4"])],
)  # fmt: skip
def test_the_names_alone_are_kept_and_all_else_is_computed_anew(names, kept):
    forward, backward = gradgen.vjp_pair(LADDER, checkpoint=names)
    assert list(residuals(forward).values()) == kept
    assert not again(forward) and len(again(backward)) == len(set(again(backward)))
    assert set(again(backward)).isdisjoint(kept)
    held = FEEDS | {"grad_y": drawn(4, 6, seed=1)}
    found, want = both(forward, backward, held), run(gradgen.vjp(LADDER), held)
    for name in want:
        np.testing.assert_array_equal(found[name], want[name], err_msg=name)


def test_the_last_segment_is_computed_anew_first_and_without_waiting():
    _, backward = gradgen.vjp_pair(LADDER, checkpoint=["t2", "t5"])
    names = again(backward)
    assert names == ["m6", "t6", "m7", "t7", "m3", "t3", "m4", "t4", "m0", "t0", "m1", "t1"]
    reads = {n.output[0]: n.input[0] for n in backward.graph.node}
    entering = {i.name for i in backward.graph.input}
    assert reads["m6/again"] in entering  # others wait for the block before: they read kept values through a Reshape
    assert reads["m3/again"] not in entering and reads["m0/again"] not in entering


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("names", ["auto", ["layer1.norm1_out", "layer1.norm2_out"]], ids=["auto", "named"])
def test_a_transformer_keeps_less(kind, names, closed):
    proto, feeds, wrt = encoder(kind)
    plain = gradgen.vjp_pair(proto, wrt, ["loss"], closed=closed)
    forward, backward = gradgen.vjp_pair(proto, wrt, ["loss"], closed=closed, checkpoint=names)
    held = feeds | {"grad_loss": np.array(0.7, np.float32)}
    found = both(forward, backward, held)
    want = run(gradgen.vjp(proto, wrt, ["loss"]), held)
    for name in want:
        np.testing.assert_array_equal(found[name], want[name], err_msg=name)
    all_kept, kept = run(plain[0], feeds), run(forward, feeds)
    before, after = (sum(a.nbytes for n, a in k.items() if n.startswith("residual")) for k in (all_kept, kept))
    assert after < (0.5 if names == "auto" else 0.25) * before
    assert len(residuals(forward)) < len(residuals(plain[0]))
    assert [i.name for i in backward.graph.input][-1] == "grad_loss"


def test_a_transformer_beside_differences():
    """In float64, where differences are good: neither vjp nor any check of the package is asked."""
    proto, feeds, wrt = encoder()
    forward, backward = (to_float64(m) for m in gradgen.vjp_pair(proto, wrt, ["loss"], checkpoint="auto"))
    stored = onnx.ModelProto()
    stored.CopyFrom(proto)
    for tensor in proto.graph.initializer:
        if tensor.name in wrt[:6]:
            stored.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, 1, list(tensor.dims)))
    weights = {t.name: onnx.numpy_helper.to_array(t).astype(np.float64) for t in proto.graph.initializer}
    point = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in feeds.items()}
    kept = Evaluator(forward)(point)
    run_backward = Evaluator(backward)
    held = point | kept | {"grad_loss": np.asarray(1.0)}
    found = run_backward({n: held[n] for n in run_backward.input_names if n in held})
    rng = np.random.default_rng(3)
    moved = {n: weights[n] for n in wrt[:6]}
    direction = {n: rng.standard_normal(a.shape) for n, a in moved.items()}
    want = directional(Evaluator(to_float64(stored)), point | moved, direction, {"loss": np.asarray(1.0)})
    got = sum(float((found[f"grad_{n}"] * d).sum()) for n, d in direction.items())
    assert got == pytest.approx(want.value, rel=1e-6)


@pytest.mark.parametrize("names", [["t3"], ["t1", "b"], ["x"]])
def test_what_is_drawn_is_kept_and_never_drawn_again(names):
    """y = sin(t3·n)²: what the forward model says of n and t3 gives the gradient to t3."""
    forward, backward = gradgen.vjp_pair(NOISY, ["t3"], ["y"], checkpoint=names)
    closed = gradgen.vjp_pair(NOISY, ["t3"], ["y"], checkpoint=names, closed=True)
    assert "n" in residuals(closed[0]).values() and {"a"} <= set(again(closed[1]))
    for halves in ((forward, backward), closed):
        assert [n.op_type for half in halves for n in half.graph.node].count("RandomNormalLike") == 1
        found = both(*halves, FEEDS | {"grad_y": np.ones((4, 6), np.float32)})
        t, n = (found[k].astype(np.float64) for k in ("t3", "n"))
        np.testing.assert_allclose(found["grad_t3"], np.sin(2 * t * n) * n, rtol=1e-4, atol=1e-6)


def test_what_follows_from_weights_alone_is_no_residual():
    """The later model has the weights themselves."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[N, 6] x, float[6, 6] w) => (float[N, 6] y) <float scale = {0.1}> {
        e = Exp(w) a = MatMul(x, e) b = Tanh(a) k = Constant <value_float = 0.5> () c = Mul(b, k)
        d = DequantizeLinear(q, scale) f = MatMul(c, d) h = Tanh(f) y = Mul(h, h) }""")
    del proto.graph.input[1]
    quantised = np.random.default_rng(0).integers(-9, 9, (6, 6)).astype(np.int8)
    stored = {"w": FEEDS["w"], "q": quantised}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in stored.items())
    held = {"x": FEEDS["x"], "grad_y": drawn(4, 6, seed=1)}
    want = run(gradgen.vjp(proto, ["x", "w"]), held)
    for names, kept in (("b", ["b"]), ("x", [])):
        forward, backward = gradgen.vjp_pair(proto, ["x", "w"], checkpoint=names)
        assert list(residuals(forward).values()) == kept
        assert {"d", "e"} <= set(again(backward)) and "k" not in again(backward)
        found = both(forward, backward, held)
        for name in want:
            np.testing.assert_array_equal(found[name], want[name], err_msg=name)


def test_auto_of_a_small_model_is_the_pair_without():
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { h = Sin(x) y = Tanh(h) }'
    )
    with pytest.warns(gradgen.GradientWarning, match="'auto' finds no place"):
        pair = gradgen.vjp_pair(proto, checkpoint="auto")
    assert pair == gradgen.vjp_pair(proto)


@pytest.mark.parametrize("names", [None, "auto", ["grad_x"], ["t2", "t5"]])
def test_the_pair_of_a_model_that_computes_values_anew_itself(names):
    """What is its forward pass here runs at once, whatever it is called."""
    first = gradgen.vjp(LADDER, checkpoint=["t1", "t3", "t5"])
    asked = {"wrt": ["x", "grad_y"], "of": ["grad_w"]}
    forward, backward = gradgen.vjp_pair(first, **asked, checkpoint=names)
    assert len(again(forward)) == len(again(first)) == 6  # some of them are residuals, and have their names
    assert not {f"{v}/again" for v in again(first)} & {o for n in backward.graph.node for o in n.output}
    held = FEEDS | {"grad_y": drawn(4, 6, seed=1), "grad2_grad_w": drawn(6, 6, seed=2)}
    found, want = both(forward, backward, held), run(gradgen.vjp(first, **asked), held)
    for name in want:
        np.testing.assert_array_equal(found[name], want[name], err_msg=name)


@pytest.mark.parametrize("seed", [7, 84, 162, *range(400, 408)])
def test_random_graphs(seed):
    """Any borders of any graph: the same bits as in one model, and no draw and no kept value twice."""
    graph, proto, asked = grow_with_borders(random.Random(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        whole = gradgen.vjp(proto, wrt=graph.wrt, of=graph.of)
        halves = gradgen.vjp_pair(proto, wrt=graph.wrt, of=graph.of, checkpoint=asked, closed=bool(seed % 2))
    rng = np.random.default_rng(seed)
    held = graph.feeds()
    for name in [i.name for i in whole.graph.input if i.name not in held]:
        like = np.asarray(graph.values[name.removeprefix("grad_")])
        held[name] = rng.standard_normal(like.shape).astype(like.dtype)
    found, want = both(*halves, held), run(whole, held)
    for name in want:
        np.testing.assert_array_equal(found[name], want[name], err_msg=name)
    assert not again(halves[0]) and set(again(halves[1])).isdisjoint(residuals(halves[0]).values())


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("seeds", [1, 3, "K"])
def test_several_cotangents(seeds, closed):
    """Each beside one of its own; the forward model is that of one, and what it keeps holds the draw."""
    single = gradgen.vjp_pair(NOISY, ["x", "w"], ["y"], closed=closed)
    forward, backward = gradgen.vjp_pair(NOISY, ["x", "w"], ["y"], seeds=seeds, closed=closed)
    assert [o.name for o in forward.graph.output] == [o.name for o in single[0].graph.output]
    assert "RandomNormalLike" not in {n.op_type for n in backward.graph.node}
    kept = FEEDS | run(forward, FEEDS)
    for count in (0, 1, 3) if seeds == "K" else (seeds,):
        cotangents = drawn(count, 4, 6, seed=5)
        found = run(backward, kept | {"grad_y": cotangents})
        assert found["grad_x"].shape == (count, 4, 6) and found["grad_w"].shape == (count, 6, 6)
        for k in range(count):  # the single backward model may keep other values, and the draw is another one
            t, n = kept["t3"].astype(np.float64), kept["n"].astype(np.float64)
            slope = cotangents[k] * np.sin(2 * t * n) * n
            w = FEEDS["w"].astype(np.float64)
            values = [FEEDS["x"].astype(np.float64)]
            for _ in range(4):
                values.append(np.tanh(values[-1] @ w))
            weights = np.zeros((6, 6))
            for i in (4, 3, 2, 1):
                slope = slope * (1 - values[i] ** 2)
                weights += values[i - 1].T @ slope
                slope = slope @ w.T
            np.testing.assert_allclose(found["grad_x"][k], slope, rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(found["grad_w"][k], weights, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_several_cotangents_of_a_transformer(kind):
    proto, feeds, wrt = encoder(kind)
    of = ["fc_out"]
    forward, backward = gradgen.vjp_pair(proto, wrt, of, seeds=3)
    single = gradgen.vjp(proto, wrt, of)
    kept = feeds | run(forward, feeds)
    cotangents = drawn(3, *kept["fc_out"].shape, seed=2)
    found = run(backward, kept | {"grad_fc_out": cotangents})
    for k in range(3):
        want = run(single, feeds | {"grad_fc_out": cotangents[k]})
        for name in found:
            largest = np.abs(want[name]).max()
            np.testing.assert_allclose(found[name][k], want[name], rtol=1e-4, atol=1e-5 * largest, err_msg=name)


def test_refusals():
    with pytest.raises(GradientError, match="seeds and checkpoint do not go together: the Scan keeps what its steps"):
        gradgen.vjp_pair(LADDER, seeds=2, checkpoint="auto")
    with pytest.raises(GradientError, match="checkpoint: there is no value 't33'; near matches: 't3'"):
        gradgen.vjp_pair(LADDER, checkpoint=["t33"])
    with pytest.raises(GradientError, match="checkpoint is empty: name at least one value"):
        gradgen.vjp_pair(LADDER, checkpoint=[])
    with pytest.raises(GradientError, match="seeds is a number of cotangents from 1 on, or the name of a dimension"):
        gradgen.vjp_pair(LADDER, seeds=0)


def written(tmp_path: Path, *options: object) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """What `gradgen pair` writes for the digits."""
    targets = (tmp_path / "f.onnx", tmp_path / "b.onnx")
    command = ("pair", DIGITS, "--of", "loss", "--wrt", "conv*", "-o", targets[0], "--backward", targets[1])
    result = run_command(*command, *options)
    assert result.exit_code == 0, result.output
    return onnx.load(targets[0]), onnx.load(targets[1])


def test_the_command_line(tmp_path):
    feeds = dict(np.load(SAMPLE))
    one = feeds | {"grad_loss": np.ones((), np.float32)}
    want = run(gradgen.vjp(DIGITS, ["conv*"], ["loss"]), one)
    halves = written(tmp_path, "--checkpoint", "pool1")
    assert "pool1" in residuals(halves[0]).values() and again(halves[1])
    found = both(*halves, one)
    for name in want:
        np.testing.assert_array_equal(found[name], want[name], err_msg=name)
    for option, seeds in (("2", [1, 0.5]), ("K", [1])):
        found = both(*written(tmp_path, "--seeds", option), feeds | {"grad_loss": np.array(seeds, np.float32)})
        for k, seed in enumerate(seeds):
            np.testing.assert_allclose(
                found["grad_conv1.bias"][k], seed * want["grad_conv1.bias"], rtol=1e-5, atol=1e-7
            )


def test_the_command_says_what_does_not_go_together(tmp_path):
    command = ("pair", DIGITS, "-o", tmp_path / "f.onnx", "--backward", tmp_path / "b.onnx")
    message = refused(run_command(*command, "--seeds", "2", "--checkpoint", "auto"))
    assert message.startswith("seeds and checkpoint do not go together")
    assert "repeat the option: --checkpoint a --checkpoint b" in refused(run_command(*command, "--checkpoint", "a,b"))
    assert not list(tmp_path.iterdir())
