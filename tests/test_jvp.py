"""Jacobian-vector products against float64 differences of the primal; names, warnings, and what is refused."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from forward_mode import DATA, directions, model_of, prefixed, wide, wide_run
from forward_models import MODELS
from loops import model, without_sizes
from test_node_counts import nodes

import gradgen
from gradgen.differences import directional
from gradgen.evaluate import Evaluator
from gradgen.rules.lang import op, traced


def check_jvp(proto, feeds, wrt=None, of=None):
    """Every `of` at once, weighed at random, along a random direction of every wrt."""
    point = wide(feeds)
    wrt = wrt or [n for n, a in point.items() if a.dtype == np.float64]
    result = gradgen.jvp(proto, wrt=wrt, of=of)
    onnx.checker.check_model(result, full_check=True)
    v = directions(point, wrt, 1)
    found = wide_run(result)({**point, **prefixed("tangent_", v)})
    primal = wide_run(proto)
    base = primal(point)
    tangents = {n.removeprefix("tangent_"): a for n, a in found.items() if n.startswith("tangent_")}
    assert list(tangents) == (of or list(base))
    for name, value in base.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12)
    u = directions(base, list(tangents), 2)
    got = sum((u[n] * tangents[n]).sum() for n in tangents)
    want = directional(primal, point, v, u)
    assert want.finite and not want.kink and abs(want.value) > 1e-4
    assert abs(got - want.value) <= 1e-6 * abs(want.value) + 3 * want.error
    return result


@pytest.mark.parametrize(
    "name", ["mlp_static", "cnn_dynamic", "encoder_static", "encoder_dynamic", "transformer_dynamic"]
)
def test_models(name: str) -> None:
    proto, feeds, wrt = model_of(name)
    check_jvp(proto, feeds, wrt)
    check_jvp(proto, feeds, wrt[1:4])


@pytest.mark.parametrize("name", MODELS)
def test_control_flow_and_recurrence(name: str) -> None:
    proto, feeds = MODELS[name]
    result = check_jvp(proto, feeds)
    assert not any(n.domain for n in nodes(result.graph))


@pytest.mark.parametrize("name", ["loop", "collect", "then", "lstm"])
def test_without_sizes(name: str) -> None:
    proto, feeds = MODELS[name]
    check_jvp(without_sizes(proto), feeds)


# Nodes of the jvp of the loss, forward pass included, over nodes of the primal: to the input, to all parameters, to both.
# Layers of the small CNN are Conv or Gemm (2 products for each, Conv's with an Add), Relu (2), MaxPool (4), and loss (5).
LIMITS = {"mlp": (3.0, 3.4, 3.5), "cnn": (3.1, 3.5, 3.7), "encoder": (3.0, 3.4, 3.4), "transformer": (2.7, 2.9, 2.9),
          "chain": (2.4, 3.0, 3.0)}  # fmt: skip


@pytest.mark.parametrize("size", ["static", "dynamic"])
@pytest.mark.parametrize("name", LIMITS)
def test_few_nodes(name: str, size: str) -> None:
    primal = onnx.load(DATA / f"{name}_{size}.onnx")
    weights = {t.name: int(np.prod(t.dims)) for t in primal.graph.initializer}
    parameters = [n for n in gradgen.parameters(primal) if weights[n] > 1]  # one element is the scale of attention
    for wrt, limit in zip((["x"], parameters, ["x", *parameters]), LIMITS[name], strict=True):
        ratio = len(list(nodes(gradgen.jvp(primal, wrt=wrt).graph))) / len(primal.graph.node)
        assert ratio <= limit, f"{name}, {len(wrt)} of wrt: {ratio:.2f} nodes for each node of the primal"


LOSS = """g (double[N,3] x, int64[N] l, double[3] w) => (double{n} y)
{{ y = SoftmaxCrossEntropyLoss<{attributes}> (x, l{weights}) }}"""


@pytest.mark.parametrize("weights", ["", ", w"])
@pytest.mark.parametrize("ignored", ["", ", ignore_index = 1", ", ignore_index = -7"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_loss_of_a_tangent(reduction: str, ignored: str, weights: str) -> None:
    """What softmax, picking and weighing give in numpy; the mean over nothing is 0, as it is for the gradient."""
    proto = model(LOSS.format(n="[N]" if reduction == "none" else "", weights=weights,
                              attributes=f'reduction = "{reduction}"{ignored}'))  # fmt: skip
    result = gradgen.jvp(proto, wrt=["x"])
    assert [n.op_type for n in result.graph.node].count("NegativeLogLikelihoodLoss") == 1
    rng = np.random.default_rng(4)
    x, t, w = rng.standard_normal((4, 3)), rng.standard_normal((4, 3)), np.array([0.5, 2.0, 3.0])
    out = int(ignored.rpartition(" ")[2]) if ignored else None
    cases = [np.array([0, 2, 1, 0])] if out != -7 else [np.array([0, -7, 1, 0])]
    cases += [np.full(4, out)] if out is not None else []
    for labels in cases:
        kept = np.array([n != out for n in labels], float)
        safe = np.where(labels < 0, 0, labels)
        share = kept * (w[safe] if weights else 1)
        p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        each = -share * (t[range(4), safe] - (p * t).sum(1))
        total = share.sum() or 1.0
        want = {"mean": each.sum() / total, "sum": each.sum(), "none": each}[reduction]
        found = Evaluator(result)({"x": x, "l": labels, "w": w, "tangent_x": t})["tangent_y"]
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("portable", [False, True])
def test_a_varying_weight_or_another_engine_takes_the_transpose(portable: bool) -> None:
    proto = model(LOSS.format(n="", weights=", w", attributes='reduction = "sum"'))
    feeds = {"x": np.array([[0.3, -0.2, 1.0], [0.4, 0.1, -2.0]]), "l": np.array([2, 0]), "w": np.array([0.5, 2.0, 3.0])}
    result = gradgen.jvp(proto, wrt=["x"] if portable else ["x", "w"], portable=portable)
    assert "NegativeLogLikelihoodLoss" not in [n.op_type for n in result.graph.node]
    check_jvp(proto, feeds, ["x"] if portable else ["x", "w"])


def test_a_small_mask_is_one_node_and_a_large_one_is_fast() -> None:
    for size, kinds in (("N", ["Relu", "Sign", "Mul"]), (8, ["Relu", "Sign", "Mul"]),
                        (65536, ["Relu", "Greater", "Cast", "Mul"])):  # fmt: skip
        proto = model(f"g (double[{size}] x) => (double[{size}] y) {{ y = Relu (x) }}")
        assert [n.op_type for n in gradgen.jvp(proto).graph.node] == kinds
        assert "Sign" not in [n.op_type for n in gradgen.hvp(proto, reduce="sum").graph.node]
    found = Evaluator(gradgen.jvp(model("g (double[4] x) => (double[4] y) { y = Relu (x) }")))
    got = found({"x": np.array([-1.0, 0, 1e-300, np.inf]), "tangent_x": np.array([1.0, 2, 3, 4])})
    np.testing.assert_array_equal(got["tangent_y"], [0, 0, 3, 4])


def test_nothing_depends_on_what_the_cotangents_would_be() -> None:
    """No node of the backward pass is left: each MatMul of the chain is there twice."""
    primal = onnx.load(DATA / "chain_dynamic.onnx")
    ops = [n.op_type for n in gradgen.jvp(primal, wrt=["x"]).graph.node]
    assert ops.count("MatMul") == 2 * [n.op_type for n in primal.graph.node].count("MatMul")
    assert not {"Shape", "Expand", "Transpose"} & set(ops)


@pytest.mark.parametrize(
    ("text", "want"),
    [("Sqrt (x)", [0, np.inf, 0.25]), ("Log (x)", [0, np.inf, 0.25]), ("Div (x, x)", None), ("Acos (x)", None)],
)
def test_at_a_pole_the_tangent_decides(text, want):
    proto = model(f"g (double[3] x) => (double[3] y) {{ y = {text} }}")
    result = gradgen.jvp(proto)
    if want is None:  # no guard of the backward pass is left, which would read what stands for no cotangent
        assert not any("any" in i for n in result.graph.node for i in n.input)
        return
    feeds = {"x": np.array([0.0, 0.0, 4.0]), "tangent_x": np.array([0.0, 1.0, 1.0])}
    np.testing.assert_array_equal(Evaluator(result)(feeds)["tangent_y"], want)


def test_names_escalate_and_have_roles() -> None:
    proto = model("g (double[2] x) => (double[2] y) { y = Exp (x) }")
    first = gradgen.jvp(proto)
    second = gradgen.jvp(first, wrt=["x", "tangent_x"], of=["tangent_y", "y"])
    assert [i.name for i in second.graph.input] == ["x", "tangent_x", "tangent2_x", "tangent2_tangent_x"]
    assert [o.name for o in second.graph.output] == ["y", "tangent_y", "tangent2_tangent_y", "tangent2_y"]
    roles = json.loads(next(p.value for p in second.metadata_props if p.key == "gradgen.names"))
    assert roles["tangent_x"] == {"role": "tangent in", "source": "x"}
    assert roles["tangent2_tangent_y"] == {"role": "tangent out", "source": "tangent_y"}
    again = gradgen.jvp(model("g (double[2] x) => (double[2] y, double[2] x2) { y = Exp (x)  x2 = Neg (x) }"), of=["x"])
    assert [i.name for i in again.graph.input] == ["x", "tangent_x"]
    assert [o.name for o in again.graph.output][-1] == "tangent2_x"


def test_an_output_that_depends_on_nothing_gets_zeros_and_a_warning() -> None:
    proto = model("g (double[2] x, double[3] z) => (double[2] y, double[3] w) { y = Exp (x)  w = Exp (z) }")
    with pytest.warns(gradgen.GradientWarning, match="'w' does not depend on what is varied") as caught:
        result = gradgen.jvp(proto, wrt="x")
    assert caught[0].filename == __file__
    feeds = {"x": np.ones(2), "z": np.ones(3), "tangent_x": np.ones(2)}
    np.testing.assert_array_equal(Evaluator(result)(feeds)["tangent_w"], np.zeros(3))


def test_an_intermediate_value_and_a_shared_cotangent() -> None:
    proto = model("g (double[2] x, double[2] z) => (double[2] y) { a = Add (x, z)  b = Sin (a)  y = Mul (b, b) }")
    feeds = {"x": np.array([0.3, 0.5]), "z": np.array([0.2, -0.9])}
    check_jvp(proto, feeds)
    result = gradgen.jvp(proto, wrt=["b"], of=["a", "y"])
    found = Evaluator(result)({**feeds, "tangent_b": np.array([1.0, 2.0])})
    b = np.sin(feeds["x"] + feeds["z"])
    np.testing.assert_allclose(found["tangent_y"], 2 * b * [1.0, 2.0])
    np.testing.assert_array_equal(found["tangent_a"], [0, 0])


def test_a_sequence_varies() -> None:
    proto = model(
        "g (seq(double[2]) s, double[2] x) => (double[2] y)"
        "{ i = Constant <value = int64 {1}> ()  e = SequenceAt (s, i)  y = Mul (e, x) }"
    )
    result = gradgen.jvp(proto, wrt=["s", "x"])
    s, ts = [np.ones(2), np.array([2.0, 3.0])], [np.ones(2), np.array([5.0, 7.0])]
    x, tx = np.array([0.5, 0.25]), np.array([1.0, -1.0])
    session = onnxruntime.InferenceSession(result.SerializeToString())
    (found,) = session.run(["tangent_y"], {"s": s, "x": x, "tangent_s": ts, "tangent_x": tx})
    np.testing.assert_allclose(found, ts[1] * x + s[1] * tx)


def test_a_draw_is_not_repeated() -> None:
    proto = model("g (float[64] x) => (float[64] y) { noise = RandomNormalLike (x)  e = Exp (x)  y = Mul (e, noise) }")
    result = gradgen.jvp(proto)
    assert [n.op_type for n in result.graph.node].count("RandomNormalLike") == 1
    x = np.linspace(-1, 1, 64).astype(np.float32)
    found = Evaluator(result)({"x": x, "tangent_x": np.ones(64, np.float32)})
    np.testing.assert_allclose(found["tangent_y"], found["y"], rtol=1e-5)


@traced("dinput")
def clipped_vjp(doutput, input):
    return op.Clip(doutput, -1.0, 1.0)


def test_rules_that_are_not_linear_are_refused_all_at_once() -> None:
    proto = model("g (double[2] x) => (double y) { a = Exp (x)  b = Sin (a)  y = ReduceSum <keepdims = 0> (b) }")
    registry = gradgen.Registry()
    for name in ("Exp", "Sin"):
        gradgen.register_vjp("", name, clipped_vjp, linear=False, registry=registry)
    gradgen.vjp(proto, registry=registry)
    for call in (gradgen.jvp, gradgen.hvp):
        with pytest.raises(gradgen.GradientError) as caught:
            call(proto, registry=registry)
        lines = str(caught.value).splitlines()[1:3]
        assert [line.partition(": rule")[0].strip() for line in lines] == [
            "ai.onnx::Exp, node 'a'",
            "ai.onnx::Sin, node 'b'",
        ]


def test_what_is_no_float_is_refused_as_by_vjp() -> None:
    proto = model("g (double[2] x, int64[2] k) => (double[2] y) { f = CastLike (k, x)  y = Mul (x, f) }")
    with pytest.raises(gradgen.GradientError, match="'k' is of int64"):
        gradgen.jvp(proto, wrt=["k"])


def test_no_dead_copy_of_a_loop_stays() -> None:
    """A forward Loop and one for the tangents: a Loop that no condition ends tells its trip count itself."""
    for name, count in (("loop", 2), ("collect", 2)):
        ops = [n.op_type for n in gradgen.jvp(MODELS[name][0], wrt=["x", "w"]).graph.node]
        assert ops.count("Loop") == count


def test_a_loop_of_the_function_library_states_no_types() -> None:
    cumulative = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("CumProd", ["x", "a"], ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, ["N"])],
            [onnx.helper.make_tensor_value_info("y", 1, ["N"])],
            [onnx.helper.make_tensor("a", 7, [], [0])],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 26)],
        ir_version=11,
    )
    result = gradgen.jvp(cumulative)
    x, t = np.array([2, 3, 5], np.float32), np.array([1, 0, 1], np.float32)
    found = Evaluator(result)({"x": x, "tangent_x": t})
    np.testing.assert_allclose(found["tangent_y"], [1, 3, 15 + 6])
