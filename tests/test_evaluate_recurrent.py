# RNN, GRU, LSTM and Scan of the float64 oracle against onnxruntime in float32, all attributes at random.
"""Tests of gradgen.evaluate_ops_recurrent."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from recurrent_models import GATES, batch_first, draw, model

from gradgen.evaluate import Evaluator


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("op", GATES)
def test_as_onnxruntime(op, seed):
    feeds, attributes = draw(op, seed)
    proto = model(op, feeds, attributes)
    want = Evaluator(proto, strict=True)(feeds)
    found = Evaluator(proto, prefer="reference", strict=True)(feeds)
    for name in want:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-4, atol=1e-5, err_msg=f"{name} {attributes}")


@pytest.mark.parametrize("op", GATES)
def test_batch_first(op):
    """layout=1, which onnxruntime does not know, is layout=0 on exchanged axes."""
    feeds, attributes = draw(op, 3)
    feeds.pop("sequence_lens", None)
    want = Evaluator(model(op, feeds, attributes), prefer="reference", strict=True)(feeds)
    swapped = batch_first(feeds)
    found = Evaluator(model(op, swapped, {**attributes, "layout": 1}), prefer="reference", strict=True)(swapped)
    for name in want:
        axes = (2, 0, 1, 3) if name == "Y" else (1, 0, 2)
        np.testing.assert_array_equal(found[name], want[name].transpose(axes))


SCAN = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2] s, float[n,2] a, float[2,n] b) => (float[2] t, float[m,2] y, float[2,m] z) {
  t, y, z = Scan <num_scan_inputs: int = 2, scan_input_axes: ints = [0, 1], scan_input_directions: ints = [0, 1],
    scan_output_axes: ints = [0, 1], scan_output_directions: ints = [1, 0],
    body: graph = body (float[2] s_in, float[2] p, float[2] q) => (float[2] s_out, float[2] u, float[2] v) {
      w = Mul(s_in, p)
      s_out = Add(w, q)
      u = Sub(s_in, s)
      v = Identity(q)
    }> (s, a, b)
}"""


@pytest.mark.parametrize("n", [3, 1])
def test_scan_with_axes_and_directions_as_onnxruntime(n):
    rng = np.random.default_rng(0)
    feeds = {"s": rng.random(2), "a": rng.random((n, 2)), "b": rng.random((2, n))}
    feeds = {k: v.astype(np.float32) for k, v in feeds.items()}
    proto = parser.parse_model(SCAN)
    want = Evaluator(proto, strict=True)(feeds)
    found = Evaluator(proto, prefer="reference", strict=True)(feeds)
    for name in want:
        assert found[name].shape == want[name].shape
        np.testing.assert_allclose(found[name], want[name], rtol=1e-6)


def test_scan_over_no_steps():
    """The states are handed on, the stacks are empty. (onnxruntime 1.32 dies of this model.)"""
    feeds = {"s": np.ones(2, np.float32), "a": np.zeros((0, 2), np.float32), "b": np.zeros((2, 0), np.float32)}
    found = Evaluator(parser.parse_model(SCAN), prefer="reference", strict=True)(feeds)
    np.testing.assert_array_equal(found["t"], feeds["s"])
    assert (found["y"].shape, found["z"].shape) == ((0, 2), (2, 0))


LOOP = """<ir_version: 10, opset_import: ["" : 21]>
g (int64 n, bool c, float[2] s) => (float[2] t, float[m,2,1] y, bool[k] z) {{
  t, y, z = Loop ({trips}, {condition}, s) <body = b (int64 i, bool going, float[2] s_in)
    => (bool on, float[2] s_out, float[2,1] y_out, bool z_out) {{
      one = Constant <value_ints = [-1, 1]> ()
      most = Constant <value_float = 4.0> ()
      s_out = Add (s_in, s_in)
      y_out = Reshape (s_out, one)
      largest = ReduceMax <keepdims = 0> (s_out)
      on = Less (largest, most)
      z_out = Identity (going)
  }}>
}}"""


@pytest.mark.parametrize(
    ("trips", "condition", "count", "going"),
    [("n", "c", 5, True), ("n", '""', 2, True), ("n", '""', 9, True), ('""', "c", 1, True), ("n", "c", 5, False),
     ("n", "c", 0, True)],
)  # fmt: skip
def test_loop(trips, condition, count, going):
    proto = parser.parse_model(LOOP.format(trips=trips, condition=condition))
    feeds = {"n": np.array(count), "c": np.array(going), "s": np.array([0.6, -0.2], np.float32)}
    want = Evaluator(proto, strict=True)(feeds)
    found = Evaluator(proto, prefer="reference", strict=True)(feeds)
    for name in want:
        np.testing.assert_array_equal(found[name], want[name])


@pytest.mark.parametrize("position", [0, 1, 2, -1, -2])
def test_an_element_is_inserted(position):
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[2] a, float[1] b, float[1] c, int64 p) => (float[n] y) {
        q = SequenceConstruct (a, b)
        r = SequenceInsert (q, c, p)
        y = ConcatFromSequence <axis = 0> (r)
    }""")
    feeds = {"a": np.array([1, 2], np.float32), "b": np.array([3], np.float32), "c": np.array([4], np.float32)}
    feeds["p"] = np.array(position)
    want = Evaluator(proto, strict=True)(feeds)["y"]
    np.testing.assert_array_equal(Evaluator(proto, prefer="reference", strict=True)(feeds)["y"], want)


def test_the_element_of_an_optional():
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[2] a) => (float[2] y, bool h) {
        o = Optional (a)
        h = OptionalHasElement (o)
        y = OptionalGetElement (o)
    }""")
    found = Evaluator(proto, prefer="reference", strict=True)({"a": np.array([1, 2], np.float32)})
    np.testing.assert_array_equal(found["y"], [1, 2])
    assert found["h"]
