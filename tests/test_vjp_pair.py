# The pair of a forward and a backward model: its contract, its values beside vjp's, one draw, the fewest bytes kept.
"""Tests of vjp_pair."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from torch_cases import load_cases

import gradgen

DATA = Path(__file__).parent / "data"
Arrays = dict[str, np.ndarray]


def model(text: str, **initializers: np.ndarray) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in initializers.items())
    return proto


def run(proto: onnx.ModelProto, feeds: Arrays, optimise: bool = False) -> Arrays:
    """Run on onnxruntime, with those of the feeds that are inputs."""
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in proto.graph.input if i.name in feeds]
    return dict(
        zip([o.name for o in session.get_outputs()], session.run(None, {n: feeds[n] for n in names}), strict=True)
    )


def names_of(values) -> list[str]:
    return [v.name for v in values]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


MLP = model(
    "g (float[N,3] x) => (float[N,2] y) { h = MatMul(x, w)\n a = Relu(h)\n b = MatMul(a, u)\n y = Softmax(b) }",
    w=draw(3, 4), u=draw(4, 2),
)  # fmt: skip
LSTM = model(
    "g (float[T,N,3] x) => (float[T,1,N,4] y, float[1,N,4] last) { y, last = LSTM <hidden_size = 4> (x, w, r) }",
    w=draw(1, 16, 3), r=draw(1, 16, 4),
)  # fmt: skip
LOOP = model(
    """g (float[3] x, int64 n) => (float[3] y, float[K,3] all) {
    one = Constant <value_int = 1> ()
    go = Cast <to = 9> (one)
    y, all = Loop (n, go, x) <body = b (int64 i, bool c, float[3] a) => (bool d, float[3] z, float[3] s) {
      d = Identity(c)
      t = Sin(a)
      z = Mul(t, w)
      s = Identity(a)
    }> }""",
    w=draw(3),
)
ATTENTION = model(
    """g (float[N,S,8] x) => (float[N,S,8] y) {
    shape = Shape(x)
    q = MatMul(x, w)
    heads = Reshape(q, split)
    k = Transpose <perm = [0, 2, 1, 3]> (heads)
    kt = Transpose <perm = [0, 2, 3, 1]> (heads)
    score = MatMul(k, kt)
    p = Softmax(score)
    o = MatMul(p, k)
    merged = Transpose <perm = [0, 2, 1, 3]> (o)
    y = Reshape(merged, shape)
    }""",
    w=draw(8, 8), split=np.array([0, 0, 2, 4]),
)  # fmt: skip
SEQUENCE = model(
    """g (float[4,3] x) => (float[4,3] y) {
    parts = SplitToSequence <axis = 0> (x)
    zero = Constant <value_int = 0> ()
    first = SequenceAt(parts, zero)
    e = Exp(first)
    more = SequenceInsert(parts, e)
    joined = ConcatFromSequence <axis = 0> (more)
    begin = Constant <value_ints = [1]> ()
    end = Constant <value_ints = [5]> ()
    cut = Slice(joined, begin, end)
    y = Mul(cut, cut)
    }"""
)


def stored(name: str) -> tuple[onnx.ModelProto, Arrays, list[str]]:
    proto = onnx.load(DATA / f"{name}.onnx")
    sizes = {t.name: int(np.prod(t.dims)) for t in proto.graph.initializer}
    shapes = [[d.dim_value or 3 for d in i.type.tensor_type.shape.dim] for i in proto.graph.input]
    feeds = {"x": draw(*shapes[0])}
    if len(shapes) > 1:
        feeds["label"] = np.arange(int(np.prod(shapes[1])), dtype=np.int64).reshape(shapes[1]) % 3
    return proto, feeds, [n for n in gradgen.parameters(proto) if sizes[n] > 1]


CASES = {
    "mlp": (MLP, {"x": draw(5, 3)}, ["x", "w", "u"]),
    "lstm": (LSTM, {"x": draw(5, 2, 3)}, ["x", "w", "r"]),
    "loop": (LOOP, {"x": draw(3, seed=1), "n": np.array(4)}, ["x", "w"]),
    "attention": (ATTENTION, {"x": draw(2, 5, 8)}, ["x", "w"]),
    "sequence": (SEQUENCE, {"x": draw(4, 3)}, ["x"]),
    **{
        name: stored(name)
        for name in ("cnn_static", "cnn_dynamic", "encoder_dynamic", "transformer_static", "transformer_dynamic")
    },
}


def halves(proto: onnx.ModelProto, wrt: list[str], **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        return gradgen.vjp(proto, wrt), *gradgen.vjp_pair(proto, wrt, **options)


def cotangents_of(whole: onnx.ModelProto, results: Arrays) -> Arrays:
    roles = json.loads(next(p.value for p in whole.metadata_props if p.key == "gradgen.names"))
    found = {n: results[r["source"]] for n, r in roles.items() if r["role"] == "cotangent"}
    return {n: draw(*like.shape, seed=7).astype(like.dtype) for n, like in found.items()}


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_vjp(name, closed):
    proto, feeds, wrt = CASES[name]
    whole, forward, backward = halves(proto, wrt, closed=closed)
    for optimise in (False, True):
        kept = run(forward, feeds, optimise)
        seeds = cotangents_of(whole, kept)
        found = run(backward, {**({} if closed else feeds), **kept, **seeds}, optimise)
        want = run(whole, {**feeds, **seeds}, optimise)
        assert list(found) == [f"grad_{n}" for n in wrt]
        for key, array in want.items():
            got = {**kept, **found}[key]
            assert got.dtype == array.dtype and got.shape == array.shape
            if optimise:  # other fusions round otherwise
                np.testing.assert_allclose(got, array, rtol=1e-4, atol=1e-6 * max(1, np.abs(array).max()), err_msg=key)
            else:
                np.testing.assert_array_equal(got, array, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_computed_twice(name):
    proto, _, wrt = CASES[name]
    whole, forward, backward = halves(proto, wrt)
    cheap = {"Constant", "Shape", "Gather", "Concat", "Unsqueeze", "Squeeze", "Slice", "Mul", "Add", "Sub", "Cast"}
    twice = [n.op_type for n in backward.graph.node if n.output[0] in {o for m in forward.graph.node for o in m.output}]
    assert set(twice) <= cheap
    assert len(forward.graph.node) + len(backward.graph.node) <= len(whole.graph.node) + len(twice)


def test_the_contract_of_names():
    forward, backward = gradgen.vjp_pair(MLP, wrt=["w", "x", "u"])
    assert names_of(forward.graph.input) == ["x"]
    assert names_of(forward.graph.output) == ["y", "residual_0"]
    assert names_of(backward.graph.input) == ["x", "y", "residual_0", "grad_y"]
    assert names_of(backward.graph.output) == ["grad_w", "grad_x", "grad_u"]
    roles = [json.loads(m.metadata_props[0].value) for m in (forward, backward)]
    assert roles[0] == {"residual_0": {"role": "residual", "source": "a"}}
    assert roles[1]["grad_y"] == {"role": "cotangent", "source": "y"}
    assert roles[1]["grad_w"] == {"role": "gradient", "source": "w"}
    assert roles[1]["residual_0"] == roles[0]["residual_0"]


def test_a_closed_backward_model_reads_residuals_and_cotangents_alone():
    forward, backward = gradgen.vjp_pair(MLP, wrt=["w", "x"], closed=True)
    residuals = [n for n in names_of(forward.graph.output) if n.startswith("residual_")]
    assert names_of(backward.graph.input) == [*residuals, "grad_y"]


def test_names_that_are_taken_are_left_alone():
    proto = model("g (float[2] residual_0) => (float[2] y) { h = Exp(residual_0)\n t = Tanh(h)\n y = Tanh(t) }")
    forward, backward = gradgen.vjp_pair(proto)
    assert names_of(forward.graph.output)[1:] == ["residual2_0", "residual2_1"]
    feeds = {"residual_0": draw(2)}
    kept = run(forward, feeds)
    found = run(backward, {**feeds, **kept, "grad_y": np.ones(2, np.float32)})["grad_residual_0"]
    x = feeds["residual_0"].astype(np.float64)
    slope = np.exp(x) / np.cosh(np.exp(x)) ** 2 / np.cosh(np.tanh(np.exp(x))) ** 2
    np.testing.assert_allclose(found, slope, rtol=1e-5)


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_dropout_draws_once(closed):
    text = """g (float[N,50] x, bool training) => (float[N,50] y) {
      half = Constant <value_float = 0.5> ()
      d = Dropout(x, half, training)
      y = Mul(d, d) }"""
    forward, backward = gradgen.vjp_pair(model(text), closed=closed)
    assert "Dropout" in names_of_ops(forward) and "Dropout" not in names_of_ops(backward)
    feeds = {"x": draw(40, 50), "training": np.array(True)}
    kept = run(forward, feeds)
    dropped = kept["y"] == 0
    assert 0.4 < dropped.mean() < 0.6
    ones = np.ones((40, 50), np.float32)
    found = run(backward, {**({} if closed else feeds), **kept, "grad_y": ones})["grad_x"]
    np.testing.assert_allclose(found, np.where(dropped, 0, 8 * feeds["x"]), rtol=1e-5)


def names_of_ops(proto: onnx.ModelProto) -> set[str]:
    return {n.op_type for n in proto.graph.node}


def test_noise_is_drawn_once():
    proto = model(
        """g (float[N,4] x) => (float[N,4] y) {
        noise = RandomNormalLike(x)
        product = Mul(x, noise)
        y = Add(product, product) }"""
    )
    forward, backward = gradgen.vjp_pair(proto)
    assert not any(op.startswith("Random") for op in names_of_ops(backward))
    feeds = {"x": draw(3, 4)}
    kept = run(forward, feeds)
    found = run(backward, {**feeds, **kept, "grad_y": np.ones((3, 4), np.float32)})["grad_x"]
    np.testing.assert_allclose(found * feeds["x"], kept["y"], rtol=1e-5)


@pytest.mark.parametrize("case", load_cases()[::7], ids=lambda c: c.name)
def test_models_from_torch(case):
    if case.refused:
        return
    asked = {"wrt": list(case.gradients), "of": list(case.cotangents)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        whole, (forward, backward) = gradgen.vjp(case.path, **asked), gradgen.vjp_pair(case.path, **asked)
    seeds = {f"grad_{n}": array for n, array in case.cotangents.items()}
    kept = run(forward, case.inputs)
    found = {**kept, **run(backward, {**case.inputs, **kept, **seeds})}
    for name, array in run(whole, {**case.inputs, **seeds}).items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_the_pair_of_a_gradient_model():
    first = gradgen.vjp(MLP, wrt=["x"])
    forward, backward = gradgen.vjp_pair(first, wrt=["x", "grad_y"], of=["grad_x"])
    assert names_of(backward.graph.output) == ["grad2_x", "grad2_grad_y"]
    feeds = {"x": draw(5, 3), "grad_y": draw(5, 2)}
    kept = run(forward, feeds)
    seeds = {"grad2_grad_x": draw(5, 3, seed=9)}
    found = run(backward, {**feeds, **kept, **seeds})
    want = run(gradgen.vjp(first, wrt=["x", "grad_y"], of=["grad_x"]), {**feeds, **seeds})
    for name, array in found.items():
        np.testing.assert_array_equal(array, want[name])


def test_a_mask_is_kept_in_place_of_the_value_it_was_made_from():
    forward, _ = gradgen.vjp_pair(model("g (float[N,4] x) => (float[N,4] y) { h = Exp(x)\n r = Relu(h)\n y = Neg(r) }"))
    kinds = {o.name: o.type.tensor_type.elem_type for o in forward.graph.output}
    assert sorted(kinds[n] for n in kinds if n.startswith("residual")) == [
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.BOOL,
    ]


def test_a_gradient_that_is_zero_has_its_shape():
    with pytest.warns(gradgen.GradientWarning, match="does not influence"):
        forward, backward = gradgen.vjp_pair(
            model("g (float[N,4] x, float[M] z) => (float[N,4] y, float[M] c) { y = Exp(x)\n c = Abs(z) }"),
            ["z"],
            ["y"],
        )
    feeds = {"x": draw(2, 4), "z": draw(3)}
    kept = run(forward, feeds)
    found = run(backward, {**feeds, **kept, "grad_y": draw(2, 4)})
    np.testing.assert_array_equal(found["grad_z"], np.zeros(3, np.float32))


def test_an_initializer_that_callers_override_is_an_input_of_both():
    proto = model("g (float[N,3] x, float[3,2] w) => (float[N,2] y) { h = MatMul(x, w)\n y = Tanh(h) }", w=draw(3, 2))
    forward, backward = gradgen.vjp_pair(proto, ["x"])
    other = {"x": draw(4, 3), "w": draw(3, 2, seed=3)}
    kept = run(forward, other)
    seed = draw(4, 2)
    found = run(backward, {**other, **kept, "grad_y": seed})["grad_x"]
    np.testing.assert_allclose(found, (seed * (1 - kept["y"] ** 2)) @ other["w"].T, rtol=1e-4, atol=1e-6)
    forward, backward = gradgen.vjp_pair(proto, ["x"], closed=True)
    assert "w" not in names_of(backward.graph.input)
    found = run(backward, {**run(forward, other), "grad_y": seed})["grad_x"]
    np.testing.assert_allclose(found, (seed * (1 - kept["y"] ** 2)) @ other["w"].T, rtol=1e-4, atol=1e-6)


def test_an_intermediate_value_that_is_differentiated_becomes_an_output():
    forward, backward = gradgen.vjp_pair(MLP, wrt=["x"], of=["a"])
    assert names_of(forward.graph.output)[:2] == ["y", "a"]
    assert names_of(backward.graph.input) == ["a", "grad_a"]


def test_weights_in_an_external_file_stay_there(tmp_path):
    stored_apart = onnx.ModelProto()
    stored_apart.CopyFrom(MLP)  # onnx.save changes what it is given
    onnx.save(stored_apart, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    forward, backward = gradgen.vjp_pair(tmp_path / "m.onnx", wrt=["x"])
    for proto in (forward, backward):
        assert all(t.data_location == onnx.TensorProto.EXTERNAL for t in proto.graph.initializer if t.name in "wu")
    other = tmp_path / "other"
    other.mkdir()
    for name, proto in {"f": forward, "b": backward}.items():
        gradgen.save(proto, other / f"{name}.onnx")
    sessions = [ort.InferenceSession(other / f"{n}.onnx", providers=["CPUExecutionProvider"]) for n in "fb"]
    x = draw(5, 3)
    kept = dict(zip(names_of(forward.graph.output), sessions[0].run(None, {"x": x}), strict=True))
    have = {"x": x, **kept, "grad_y": draw(5, 2)}
    found = sessions[1].run(None, {n: have[n] for n in names_of(backward.graph.input)})[0]
    np.testing.assert_allclose(found, run(gradgen.vjp(MLP), have)["grad_x"], rtol=1e-5, atol=1e-7)


def test_an_ir_model_gives_ir_models():
    found = gradgen.vjp_pair(ir.from_proto(MLP))
    assert all(isinstance(m, ir.Model) for m in found)
    assert names_of(found[1].graph.outputs) == ["grad_x"]
