# Checkpointing: what is computed anew, what is kept, when it runs, and that no value changes.
"""Tests of `checkpoint=` of `vjp`, `grad` and `value_and_grad`."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from click.testing import CliRunner
from random_graphs import grow_with_borders
from text_models import model

import gradgen
from gradgen.cli import cli
from gradgen.differences import directional
from gradgen.errors import GradientError
from gradgen.evaluate import Evaluator, to_float64
from gradgen.transforms.barrier import MARK

DATA = Path(__file__).parent / "data"
LEVELS = [getattr(ort.GraphOptimizationLevel, f"ORT_{n}") for n in
          ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")]  # fmt: skip


def ladder(rungs=8, batch="4", tail=""):
    """Products with a weight and Tanh in turns: values m0, t0, m1, t1, …, output y; `tail` comes before the last."""
    body = "".join(f"m{i} = MatMul({f't{i - 1}' if i else 'x'}, w) t{i} = Tanh(m{i}) " for i in range(rungs))
    last = tail or f"y = Mul(t{rungs - 1}, t{rungs - 1})"
    return model(f"g (float[{batch}, 6] x, float[6, 6] w) => (float[{batch}, 6] y) {{ {body} {last} }}")


def feeds(batch=4, seed=0):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((batch, 6)).astype(np.float32),
            "w": (rng.standard_normal((6, 6)) * 0.5).astype(np.float32)}  # fmt: skip


def marked(proto, kind):
    """The nodes that checkpointing has added: "again" or "barrier"."""
    return [n for n in proto.graph.node if any(p.key == MARK and p.value == kind for p in n.metadata_props)]


def again(proto):
    """How many nodes of each op are computed anew."""
    return Counter(n.op_type for n in marked(proto, "again"))


def run(proto, inputs, level=LEVELS[0], **options):
    chosen = ort.SessionOptions()
    chosen.log_severity_level, chosen.graph_optimization_level = 3, level
    chosen.intra_op_num_threads = 1
    for name, value in options.items():
        setattr(chosen, name, value)
    session = ort.InferenceSession(proto.SerializeToString(), chosen, providers=["CPUExecutionProvider"])
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(inputs)), strict=True))
    return found, session


def derived(proto, checkpoint, call=gradgen.vjp, **options):
    result = call(proto, checkpoint=checkpoint, **options)
    onnx.checker.check_model(result, full_check=True)
    return result


def check_same(proto, checkpoint, inputs, levels=LEVELS[:2], **options):
    """Both models compute the same bits; returns the one that computes values anew."""
    plain, result = derived(proto, None, **options), derived(proto, checkpoint, **options)
    assert [o.name for o in result.graph.output] == [o.name for o in plain.graph.output]
    for level in levels:
        want, got = run(plain, inputs, level)[0], run(result, inputs, level)[0]
        for name in want:
            np.testing.assert_array_equal(got[name], want[name], err_msg=name)
    return result


def seeded(proto, inputs, seed=1, **options):
    """The inputs, and random cotangents."""
    rng = np.random.default_rng(seed)
    plain = derived(proto, None, **options)
    outputs = run(proto, inputs)[0]
    names = [i.name for i in plain.graph.input if i.name not in inputs]
    return {
        **inputs,
        **{n: rng.standard_normal(outputs[n.removeprefix("grad_")].shape).astype(np.float32) for n in names},
    }


def test_names_are_kept_and_the_rest_is_computed_anew_once():
    result = check_same(ladder(), ["t1", "t3", "t5"], seeded(ladder(), feeds()), levels=LEVELS)
    # Of the segments m0…t1, m2…t3, m4…t5 the Tanh inside and what leads to it; the borders themselves are kept.
    assert again(result) == {"MatMul": 3, "Tanh": 3}
    assert {n.output[0] for n in marked(result, "again")} == {f"{v}{i}/again" for v in "mt" for i in (0, 2, 4)}
    assert Counter(n.op_type for n in result.graph.node)["Tanh"] == 8 + 3
    # What is computed anew starts from kept values alone, and these are read behind barriers.
    reads = {v for n in marked(result, "again") for v in n.input}
    assert not reads & {f"{v}{i}" for v in "mt" for i in range(8)}


def test_the_forward_pass_alone_reads_what_is_not_kept():
    result = derived(ladder(), ["t1", "t3", "t5"])
    position = {o: i for i, n in enumerate(result.graph.node) for o in n.output}
    first_barrier = position[marked(result, "barrier")[0].output[0]]
    late = {v for n in list(result.graph.node)[first_barrier:] for v in n.input}
    assert {v for v in late if v in {f"t{i}" for i in range(6)}} == {"t1", "t3", "t5"}


def test_it_runs_when_the_backward_pass_gets_there(tmp_path):
    """With onnxruntime's default options: behind the gradients of all later segments, in front of its own block."""
    result = derived(ladder(), ["t1", "t3", "t5"], wrt=["x"])
    found, session = run(result, seeded(ladder(), feeds(), wrt=["x"]), LEVELS[3], enable_profiling=True,
                         profile_file_prefix=str(tmp_path / "p"))  # fmt: skip
    events = json.loads(Path(session.end_profiling()).read_text())
    order = [e["name"].removesuffix("_kernel_time") for e in events if e["name"].endswith("_kernel_time")]
    names = {n.output[0]: n.name for n in result.graph.node}
    at = {v: order.index(names[v]) for v in ("t4/again", "t2/again", "t0/again")}
    # The cotangent of a product in a later segment needs the mask of the Tanh behind it.
    products = [order.index(n.name) for n in result.graph.node if n.name in order and "matmul_vjp" in n.name]
    assert at["t4/again"] < at["t2/again"] < at["t0/again"]
    for value, later in (("t4/again", 2), ("t2/again", 4), ("t0/again", 6)):
        assert sum(p < at[value] for p in products) >= later


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_no_optimisation_of_onnxruntime_merges_it(level, tmp_path):
    result = derived(ladder(), ["t1", "t3", "t5"])
    run(result, seeded(ladder(), feeds()), level, optimized_model_filepath=str(tmp_path / "o.onnx"))
    ops = Counter(n.op_type for n in onnx.load(tmp_path / "o.onnx").graph.node)
    assert ops["Tanh"] == 8 + 3


@pytest.mark.parametrize("name", ["mlp", "cnn", "encoder"])
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_models(name, kind):
    proto = onnx.load(DATA / f"{name}_{kind}.onnx")
    rng = np.random.default_rng(0)
    inputs = {}
    for i in proto.graph.input:
        shape = [d.dim_value or 4 for d in i.type.tensor_type.shape.dim]
        inputs[i.name] = np.arange(4) % 10 if i.name == "label" else rng.standard_normal(shape).astype(np.float32)
    options = {"call": gradgen.value_and_grad, "wrt": gradgen.parameters(proto), "of": ["loss"]}
    borders = {"mlp": ["relu2"], "cnn": ["pool1", "relu2"], "encoder": ["layer1.norm1_out", "layer1.norm2_out"]}[name]
    result = check_same(proto, borders, inputs, **options)
    assert again(result)
    # onnxruntime fuses other nodes where a value has fewer readers: the last bits may then differ.
    plain = derived(proto, None, **options)
    want, got = (run(m, inputs, LEVELS[3])[0] for m in (plain, result))
    largest = max(np.abs(v).max() for v in want.values())
    for output in want:
        np.testing.assert_allclose(got[output], want[output], rtol=1e-4, atol=1e-6 * largest, err_msg=output)


def test_an_output_that_only_the_backward_pass_reads_is_left_out_of_the_forward_pass():
    proto = onnx.load(DATA / "cnn_static.onnx")
    result = derived(proto, ["pool1"], call=gradgen.value_and_grad, wrt=gradgen.parameters(proto), of=["loss"])
    pools = [n for n in result.graph.node if n.op_type == "MaxPool"]
    first = next(n for n in pools if n.output[0] == "pool1")
    assert len(first.output) == 1
    assert [len(n.output) for n in marked(result, "again") if n.op_type == "MaxPool"] == [2]


def test_auto_chooses_narrow_places():
    """A layer of the ladder widens to 60 columns and narrows again: the cuts are where there are 6."""
    body = "".join(f"a{i} = MatMul({f'c{i - 1}' if i else 'x'}, u) b{i} = Tanh(a{i}) c{i} = MatMul(b{i}, v) "
                   for i in range(12))  # fmt: skip
    proto = model(f"g (float[N, 6] x, float[6, 60] u, float[60, 6] v) => (float[N, 6] y) {{ {body} y = Tanh(c11) }}")
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal(s).astype(np.float32) * 0.3 for n, s in
              {"x": (4, 6), "u": (6, 60), "v": (60, 6)}.items()}  # fmt: skip
    result = check_same(proto, "auto", seeded(proto, inputs))
    count = again(result)
    assert 3 <= count["Tanh"] < 12
    held = {n.input[0] for n in marked(result, "barrier") if n.op_type == "Reshape" and n.name.count("/held")}
    kept = {v for v in held if v[0] in "abc"}
    assert kept and {v[0] for v in kept} == {"c"}


def test_auto_of_a_small_model_changes_nothing():
    proto = model("g (float[3] x) => (float[3] y) { y = Tanh(x) }")
    with pytest.warns(gradgen.GradientWarning, match="'auto' finds no place where a cut would save memory") as caught:
        result = gradgen.vjp(proto, checkpoint="auto")
    assert len(caught) == 1 and result == derived(proto, None)


def test_auto_that_cuts_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again(gradgen.vjp(ladder(12), checkpoint=["auto", "auto"]))


def test_a_value_named_auto_is_a_name():
    proto = model("g (float[3] x) => (float[3] y) { a = Exp(x) b = Sin(a) auto = Tanh(b) c = Exp(auto) y = Sin(c) }")
    result = check_same(proto, "auto", seeded(proto, {"x": np.ones(3, np.float32)}))
    assert again(result) == {"Exp": 1}


def test_random_nodes_draw_once():
    tail = "d = RandomNormalLike(t5) e = Mul(t5, d) f = Sin(e) y = Mul(f, f)"
    text = ladder(6, tail=tail)
    result = derived(text, ["t1", "t3", "f"])
    assert Counter(n.op_type for n in result.graph.node)["RandomNormalLike"] == 1
    assert again(result)["Mul"] == 1  # e, from the draw that was kept
    # One draw serves both passes: y = sin(t5·d)², so dy/dt5 can be computed from what the forward pass returns.
    text.graph.output.extend(onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4, 6]) for n in ("d", "t5"))
    inputs = {**feeds(), "grad_y": np.ones((4, 6), np.float32)}
    got = run(derived(text, ["t1", "t3", "f"], wrt=["t5"], of=["y"]), inputs)[0]
    want = inputs["grad_y"] * np.sin(2 * got["t5"].astype(np.float64) * got["d"]) * got["d"]
    np.testing.assert_allclose(got["grad_t5"], want, rtol=1e-4, atol=1e-6)


def test_dropout_in_training_mode_draws_once():
    tail = "flag = Constant <value = bool {1}> () p = Constant <value = float {0.5}> () d, mask = Dropout(t5, p, flag) " \
           "e = Tanh(d) y = Mul(e, e)"  # fmt: skip
    result = derived(ladder(6, tail=tail), ["t1", "t3", "e"], wrt=["t5"], of=["y"])
    assert Counter(n.op_type for n in result.graph.node)["Dropout"] == 1
    inputs = {**feeds(), "grad_y": np.ones((4, 6), np.float32)}
    got = run(result, inputs)[0]
    assert 0 < (got["y"] == 0).sum() < 24
    np.testing.assert_array_equal(got["grad_t5"] == 0, got["y"] == 0)


CONTROL = {
    "If": "big = If (c) <then_branch = a () => (float[4, 6] p) { q = Exp(t1) p = Mul(q, q) }, "
    "else_branch = b () => (float[4, 6] r) { r = Sin(t1) }>",
    "Loop": "big = Loop (n, , t1) <body = a (int64 i, bool k, float[4, 6] s) => (bool kk, float[4, 6] r) "
    "{ kk = Identity(k) q = Mul(s, s) z = Sin(t0) q2 = Add(q, z) r = Tanh(q2) }>",
    "Scan": "big0, big = Scan <num_scan_inputs = 1, body = a (float[6] s, float[6] v) => (float[6] u, float[6] o) "
    "{ p = Mul(s, v) u = Tanh(p) o = Identity(u) }> (v0, t1)",
}


@pytest.mark.parametrize("op", CONTROL)
def test_control_flow_is_computed_anew_as_a_unit(op):
    extra = {"If": ("bool c", np.array(True)), "Loop": ("int64 n", np.array(3)),
             "Scan": ("float[6] v0", np.ones(6, np.float32))}[op]  # fmt: skip
    proto = model(
        f"g (float[4, 6] x, float[6, 6] w, {extra[0]}) => (float[4, 6] y) {{ m0 = MatMul(x, w) t0 = Tanh(m0) "
        f"m1 = MatMul(t0, w) t1 = Tanh(m1) {CONTROL[op]} m2 = MatMul(big, w) t2 = Tanh(m2) m3 = MatMul(t2, w) "
        "t3 = Sin(m3) y = Mul(t3, t3) }"
    )
    inputs = {**feeds(), extra[0].split()[-1]: extra[1]}
    options = {"wrt": ["x", "w"]}
    result = check_same(proto, ["t0", "t2"], seeded(proto, inputs, **options), **options)
    assert again(result)[op] == 1
    assert again(result)["Tanh"] == 1


def test_running_statistics_are_updated_once():
    """onnxruntime may write the new ones over those that it is fed."""
    proto = model(
        "g (float[4, 6] x, float[6] s, float[6] mean, float[6] var) => (float[4, 6] y, float[6] m, float[6] v) { "
        "a = Sin(x) n, m, v = BatchNormalization <training_mode: int = 1> (a, s, s, mean, var) b = Sin(n) c = Exp(b) "
        "d = Sin(c) y = Mul(d, d) }"
    )
    ones = np.ones(6, np.float32)
    inputs = {"x": feeds()["x"], "s": ones, "mean": ones * 0, "var": ones, "grad_y": np.ones((4, 6), np.float32)}
    options = {"wrt": ["x", "s"], "of": ["y"]}
    copies = {k: v.copy() for k, v in inputs.items()}
    want, result = run(derived(proto, None, **options), copies)[0], derived(proto, ["b"], **options)
    assert again(result) == {"Sin": 1}
    got = run(result, inputs)[0]
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])
    np.testing.assert_allclose(got["m"], 0.1 * np.sin(inputs["x"]).mean(0), rtol=1e-5, atol=1e-6)


def test_a_skip_connection_is_computed_anew_once():
    proto = ladder(8, tail="s = Mul(t0, t7) y = Mul(s, t2)")
    result = check_same(proto, ["t3", "t5"], seeded(proto, feeds()))
    assert max(Counter(n.output[0].split("/")[0] for n in marked(result, "again")).values()) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -0.0])
def test_no_cotangent_disturbs_what_is_computed_anew(value):
    inputs = {**feeds(), "grad_y": np.full((4, 6), value, np.float32)}
    check_same(ladder(), ["t1", "t4"], inputs)


def test_an_empty_batch():
    inputs = {**feeds(0), "grad_y": np.zeros((0, 6), np.float32)}
    got = run(check_same(ladder(batch="N"), ["t1", "t4"], inputs), inputs)[0]
    assert got["grad_x"].shape == (0, 6) and not got["grad_w"].any()


@pytest.mark.parametrize("checkpoint", [["t1", "t3"], "auto"])
def test_it_can_be_differentiated_again(checkpoint):
    """Second order against float64 differences of the first, which reads none of the code that computes anew."""
    proto = ladder(6)
    first = derived(proto, checkpoint)
    assert again(first)
    inputs = {k: v.astype(np.float64) for k, v in seeded(proto, feeds()).items()}
    second = gradgen.vjp(first, wrt=["x", "w", "grad_y"], of=["grad_x", "grad_w"])
    assert len(marked(second, "again")) >= len(marked(first, "again"))
    onnx.checker.check_model(second, full_check=True)
    plain = Evaluator(to_float64(derived(proto, None)))
    rng = np.random.default_rng(2)
    weights = {n: rng.standard_normal(inputs[n.removeprefix("grad_")].shape) for n in ("grad_x", "grad_w")}
    found = Evaluator(to_float64(second))({**inputs, **{f"grad2_{n}": w for n, w in weights.items()}})
    for name in ("x", "w", "grad_y"):
        direction = rng.standard_normal(inputs[name].shape)
        want = directional(plain, inputs, {name: direction}, weights)
        assert float((found[f"grad2_{name}"] * direction).sum()) == pytest.approx(want.value, rel=1e-6), name


def test_the_second_derivative_can_be_checkpointed_too():
    first = derived(ladder(6), ["t1", "t3"])
    inputs = seeded(ladder(6), feeds())
    options = {"wrt": ["x"], "of": ["grad_w"]}
    inputs["grad2_grad_w"] = np.ones((6, 6), np.float32)
    check_same(first, "auto", inputs, **options)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["t1", "t33"], "checkpoint: there is no value 't33'; near matches: 't3'"),
        ([], "checkpoint is empty: name at least one value"),
        (["z*"], "checkpoint: nothing matches 'z*'"),
        (["auto", "t3"], "checkpoint: 'auto' stands alone"),
        (["t3", "Auto"], "checkpoint: 'Auto' stands alone"),
        ("Auto", "checkpoint: there is no value 'Auto'; did you mean 'auto'?"),
        ([3], "checkpoint: a name or a list of names is asked for, not 3 (int)"),
    ],
)
def test_names_that_do_not_exist(names, message):
    with pytest.raises(GradientError) as caught:
        gradgen.vjp(ladder(), checkpoint=names)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("names", ["t*", ["x"], ["y"], "t7", ["m3", "x", "t3"]])
def test_any_names(names):
    check_same(ladder(), names, seeded(ladder(), feeds()))


def test_calls_into_the_library():
    result = derived(ladder(), ["t1", "t3"], inline=False)
    assert again(result) and result.functions
    inputs = seeded(ladder(), feeds())
    want, got = run(derived(ladder(), None, inline=False), inputs)[0], run(result, inputs)[0]
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])


@pytest.mark.parametrize(("command", "options"), [("vjp", []), ("grad", ["--reduce", "sum", "--value"])])
def test_the_command_line(command, options, tmp_path):
    onnx.save(ladder(), tmp_path / "m.onnx")
    names = ["--checkpoint", "t1", "--checkpoint", "t3", "--check"]
    done = CliRunner().invoke(
        cli, [command, str(tmp_path / "m.onnx"), "-o", str(tmp_path / "g.onnx"), *options, *names]
    )
    assert done.exit_code == 0, done.output
    assert again(onnx.load(tmp_path / "g.onnx")) == {"MatMul": 2, "Tanh": 2}
    done = CliRunner().invoke(cli, [command, str(tmp_path / "m.onnx"), "-o", str(tmp_path / "g.onnx"), *options,
                                    "--checkpoint", "auto"])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert again(onnx.load(tmp_path / "g.onnx"))


@pytest.mark.parametrize("seed", [7, 84, 95, 162, 254, *range(300, 312)])
def test_random_graphs(seed):
    """Any borders of any graph: the results of the node-by-node run have the same bits."""
    graph, proto, asked = grow_with_borders(random.Random(seed))
    values = graph.feeds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        plain, result = (gradgen.vjp(proto, wrt=graph.wrt, of=graph.of, checkpoint=c) for c in (None, asked))
    onnx.checker.check_model(result)
    rng = np.random.default_rng(seed)
    inputs = {}
    for name in [i.name for i in plain.graph.input]:
        like = np.asarray(values.get(name, graph.values.get(name.removeprefix("grad_"))))
        inputs[name] = values[name] if name in values else rng.standard_normal(like.shape).astype(like.dtype)
    want, got = run(plain, inputs)[0], run(result, inputs)[0]
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)


def test_cotangents_that_are_sequences():
    """A block whose results are sequences alone holds nothing back; one with a tensor beside them does."""
    proto = model(
        "g (float[4, 6] x) => (float[4, 6] y) { a = Sin(x) s = SplitToSequence <axis: int = 0> (a, one) "
        "b = ConcatFromSequence <axis: int = 0> (s) c = Sin(b) d = Exp(c) e = Sin(d) y = Mul(e, e) }".replace(
            "{ a", "<int64 one = {2}> { a"
        )
    )
    inputs = seeded(proto, {"x": feeds()["x"]})
    for names in (["a"], ["b"], ["c"], ["a", "b", "d"]):
        check_same(proto, names, inputs)
