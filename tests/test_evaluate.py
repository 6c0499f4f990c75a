# The float64 oracle: its operators against onnxruntime in float32, its precision, float64 copies, inlining.
from __future__ import annotations

import math

import numpy as np
import onnx
import onnx.parser
import pytest
from evaluate_cases import CASES, rand, single
from onnx import TensorProto

from gradgen import evaluate_ops_windows
from gradgen.differences import directional
from gradgen.evaluate import Evaluator, evaluator, to_float64
from gradgen.inlining import inline_functions


@pytest.mark.parametrize(("op", "inputs", "attributes", "opset", "outputs", "fixed"), CASES)
def test_float64_agrees_with_onnxruntime(op, inputs, attributes, opset, outputs, fixed):
    model, feeds, wide = _prepared((op, inputs, attributes, opset, outputs, fixed))
    expected = Evaluator(model, strict=True)(feeds)
    actual = Evaluator(to_float64(model), prefer="reference", strict=True)(wide)
    for name, value in expected.items():
        assert actual[name].shape == value.shape
        assert actual[name].dtype == (np.float64 if value.dtype == np.float32 else value.dtype)
        np.testing.assert_allclose(actual[name], value, rtol=2e-5, atol=2e-6)


def _prepared(parameters):
    op, inputs, attributes, opset, outputs, fixed = parameters
    inputs = [None if value is None else np.asarray(value) for value in inputs]
    model = single(op, inputs, attributes, opset, outputs, fixed=fixed)
    feeds = {f"x{i}": value for i, value in enumerate(inputs) if value is not None and i not in fixed}
    return model, feeds, {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in feeds.items()}


def test_nothing_computes_in_float32():
    """A difference quotient with a step of 1e-4 and less resolves eight digits only if nothing rounds to float32."""
    rough = []
    for parameters in CASES:
        model, _, wide = _prepared(parameters.values)
        run = evaluator(to_float64(model))
        rng = np.random.default_rng(0)
        moving = {k: v for k, v in wide.items() if v.dtype == np.float64 and v.ndim}
        weights = {k: rng.normal(size=v.shape) for k, v in run(wide).items() if v.dtype == np.float64}
        direction = {k: rng.normal(size=v.shape) for k, v in moving.items()}
        found = directional(run, wide, direction, weights, steps=[2.0**-k for k in (13, 15, 17, 19)])
        if found.error > 1e-7 * max(1, abs(found.value)):
            rough.append((parameters.id, run.engine, found.error))
    assert not rough


@pytest.mark.parametrize("prefer", ["onnxruntime", "reference"])
def test_erf_and_gelu_are_exact(prefer):
    x = np.linspace(-4, 4, 33)
    gelu = [0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x]
    for op, expected in (("Erf", [math.erf(v) for v in x]), ("Gelu", gelu)):
        run = evaluator(to_float64(single(op, [x.astype(np.float32)])), prefer=prefer)
        np.testing.assert_allclose(run({"x0": x})["y0"], expected, rtol=1e-12, atol=1e-15)


def test_a_convolution_in_blocks_is_the_same(monkeypatch):
    x, w = rand(2, 4, 7, 6), rand(6, 2, 3, 2)
    model = single("Conv", [x, w], {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]})
    run = evaluator(model, prefer="reference")
    whole = run({"x0": x, "x1": w})["y0"]
    monkeypatch.setattr(evaluate_ops_windows, "_BLOCK", 1)
    np.testing.assert_array_equal(run({"x0": x, "x1": w})["y0"], whole)


HEAD = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n'
LOCAL = """net (float[3] x) => (float[3] y) { y = local.outer(x) }
<domain: "local", opset_import: ["" : 21, "local" : 1]> outer (a) => (b) { b = local.inner(a) }
<domain: "local", opset_import: ["" : 21]> inner <alpha: float = 0.5> (a) => (b) {
    c = LeakyRelu <alpha: float = @alpha> (a) k = Constant <value_float = 0.1> () d = CastLike(k, c) b = Add(c, d)
}"""


def test_inlining_keeps_attribute_defaults():
    model = onnx.parser.parse_model(HEAD + LOCAL)
    flat = inline_functions(model)
    assert not flat.functions and len(model.functions) == 2
    x = np.array([-2, 0, 3], np.float32)
    for prefer in ("onnxruntime", "reference"):
        np.testing.assert_allclose(evaluator(model, prefer=prefer)({"x": x})["y"], [-0.9, 0.1, 3.1], rtol=1e-6)


EVERYTHING = """net (float[2, 3] x, float16[2, 3] h, bool c) => (double[a, b] y, int64[m] n, float[2, 3] z)
<float[3] w = {0.1, 0.2, 0.3}, float[2] scales = {2, 2}, float[2, 3] eye_like = {0, 0, 0, 0, 0, 0}> {
    k = Constant <value_float = 0.1> ()
    ks = Constant <value_floats = [0.1, 0.2, 0.3]> ()
    kt = Constant <value = float {0.3}> ()
    hx = Cast <to = 1> (h)
    s1 = Add(x, hx) s2 = Mul(s1, w) s3 = Add(s2, k) s4 = Add(s3, ks) s5 = Add(s4, kt)
    n = Shape(x)
    filled = ConstantOfShape(n)
    ones = ConstantOfShape <value = float[1] {1}> (n)
    eye = EyeLike <dtype = 1> (eye_like)
    s6 = Sum(s5, filled, ones, eye)
    z = If (c) <
        then_branch = yes () => (float[2, 3] t) { q = Constant <value_float = 0.7> () t = Mul(s6, q) },
        else_branch = no () => (float[2, 3] t) { t = Neg(s6) }
    >
    d = Resize <mode = "linear"> (z, , scales)
    y = Cast <to = 11> (d)
}"""


def test_a_double_copy_widens_everything_and_stays_valid():
    model = onnx.parser.parse_model(HEAD + EVERYTHING)
    onnx.checker.check_model(model, full_check=True)
    before = model.SerializeToString()
    copy = to_float64(model)
    assert model.SerializeToString() == before
    onnx.checker.check_model(copy, full_check=True)
    text = onnx.printer.to_text(copy)
    assert "float[2,3]" not in text.replace(" ", "") and "float16" not in text
    resize = next(node for node in copy.graph.node if node.op_type == "Resize")
    producer = next(node for node in copy.graph.node if resize.input[2] in node.output)
    assert (producer.op_type, producer.attribute[0].i) == ("Cast", TensorProto.FLOAT)
    rng = np.random.default_rng(0)
    x, h = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)).astype(np.float16)
    got = evaluator(copy)({"x": x, "h": h.astype(np.float64), "c": np.array(True)})
    attribute = [float(np.float32(v)) for v in (0.1, 0.2, 0.3, 0.7)]  # what the model stores
    w = np.array(attribute[:3])
    expected = ((x + h) * w + attribute[0] + w + attribute[2] + 1 + np.eye(2, 3)) * attribute[3]
    np.testing.assert_allclose(got["z"], expected, rtol=1e-14)
    assert got["z"].dtype == got["y"].dtype == np.float64 and got["n"].dtype == np.int64


def test_widened_values_are_those_of_the_model():
    weights = rand(4, 4).astype(np.float16)
    model = single("MatMul", [rand(4, 4).astype(np.float16), weights], fixed=(1,))
    wide = to_float64(model)
    assert (onnx.numpy_helper.to_array(wide.graph.initializer[0]) == weights.astype(np.float64)).all()


def test_external_data_needs_a_folder(tmp_path):
    model = single("MatMul", [rand(4, 4), rand(4, 4)], fixed=(1,))
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    loaded = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    with pytest.raises(ValueError, match="'x1'.*base_dir"):
        to_float64(loaded)
    x = np.eye(4)
    np.testing.assert_array_equal(evaluator(to_float64(loaded, str(tmp_path)))({"x0": x})["y0"], rand(4, 4))


def test_random_nodes_repeat_their_draw():
    dropout = single("Dropout", [rand(100), np.float32(0.5), np.array(True)], fixed=(1, 2))
    run = evaluator(dropout)
    assert run.engine == "reference" and "Dropout" in run.reason
    first, again = run({"x0": np.ones(100, np.float32)})["y0"], run({"x0": np.ones(100, np.float32)})["y0"]
    assert (first == again).all() and set(first) == {0, 2}


def test_engines_are_named():
    assert evaluator(single("Add", [rand(3), rand(3)])).engine == "onnxruntime"
    assert evaluator(single("Add", [rand(3), rand(3)]), prefer="reference").engine == "reference"
    copy = evaluator(to_float64(single("Conv", [rand(1, 1, 4), rand(1, 1, 2)])))
    assert copy.engine == "reference" and "onnxruntime" in copy.reason
    with pytest.raises(ValueError, match="onnxruntime"):
        evaluator(to_float64(single("Conv", [rand(1, 1, 4), rand(1, 1, 2)])), strict=True)
    with pytest.raises(ValueError, match="'torch'"):
        evaluator(single("Add", [rand(3), rand(3)]), prefer="torch")


def test_an_omitted_output_is_no_absent_input():
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[2,3] x, float[3] s) => (float[2,1] i, float[2,3] y) {
        n, "", i = LayerNormalization (x, s)
        y = Clip (x, "", n)
    }""")
    model.graph.node[0].output[0] = ""
    model.graph.node[0].output[1] = "mean"
    model.graph.node[1].input[2] = ""
    x = rand(2, 3)
    found = evaluator(model, prefer="reference", strict=True)({"x": x, "s": rand(3)})
    np.testing.assert_array_equal(found["y"], x)


def test_feeds_are_left_alone():
    """onnxruntime writes the running statistics of a BatchNormalization in training mode over its inputs."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[4,2] x, float[2] s, float[2] b, float[2] m, float[2] v) => (float[4,2] y, float[2] n) {
        y, rm, rv = BatchNormalization <training_mode = 1> (x, s, b, m, v)
        n = Add (rm, rv)
    }""")
    feeds = {"x": rand(4, 2), "s": rand(2), "b": rand(2), "m": rand(2), "v": rand(2, low=0.5)}
    before = {name: array.copy() for name, array in feeds.items()}
    evaluator(model, strict=True)(feeds)
    for name, array in before.items():
        np.testing.assert_array_equal(feeds[name], array, err_msg=name)


TRAINED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,2] x, float[2] scale, float[2] bias, float[2] mean, float[2] var) => (float[4,2] y) {
    %s
    y, m, v = BatchNormalization <training_mode = 1> (x, %s)
}"""


@pytest.mark.parametrize(
    ("before", "read", "engine"),
    [
        ("", "scale, bias, mean, var", "onnxruntime"),
        ("", "scale, bias, bias, var", "reference"),
        ("", "scale, bias, mean, scale", "reference"),
        ("n = Constant <value_ints = [2]> () s = Reshape(bias, n)", "scale, bias, s, var", "reference"),
    ],
)
def test_a_bias_that_is_the_mean_too_is_not_overwritten(before, read, engine):
    rng = np.random.default_rng(0)
    feeds = {n: rng.uniform(0.5, 2, 2).astype(np.float32) for n in ("scale", "bias", "mean", "var")}
    feeds["x"] = rng.standard_normal((4, 2)).astype(np.float32)
    run = evaluator(onnx.parser.parse_model(TRAINED % (before, read)))
    assert run.engine == engine
    x = feeds["x"]
    expected = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) * feeds["scale"] + feeds["bias"]
    np.testing.assert_allclose(run(feeds)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("labels", [{"classlabels_ints": [4, 1, 5]}, {"classlabels_strings": ["4", "1", "5"]}])
def test_a_linear_classifier_takes_the_best_class(labels):
    weights = [0.5, -0.3, 0.2, 0.7, 0.1, 0.9]
    node = onnx.helper.make_node(
        "SVMClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", coefficients=weights, rho=[0.1],
        kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0], **labels,
    )  # fmt: skip
    x = onnx.helper.make_tensor_value_info("x", TensorProto.DOUBLE, [5, 2])
    kind = TensorProto.INT64 if "classlabels_ints" in labels else TensorProto.STRING
    outputs = [
        onnx.helper.make_tensor_value_info("label", kind, [5]),
        onnx.helper.make_tensor_value_info("scores", TensorProto.FLOAT, [5, 3]),
    ]
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    graph = onnx.helper.make_graph([node], "g", [x], outputs)
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    data = np.random.default_rng(3).standard_normal((5, 2))
    expected = np.array([4, 1, 5])[(data @ np.reshape(weights, (3, 2)).T).argmax(1)]
    for prefer in ("onnxruntime", "reference"):
        run = evaluator(model, prefer=prefer, strict=True)
        assert [int(v) for v in run({"x": data})["label"]] == expected.tolist()
