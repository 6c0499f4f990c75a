"""Jacobians against float64 differences: static, dynamic, empty, scalar; both modes; samples; compositions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from forward_mode import wide, wide_run
from matrices import at_level, body_of, check_jacobian, differences, drawn, model, near, opened, run_all

import gradgen
from gradgen.errors import GradientError

DENSE = "(float[4,3] x, float[3,2] w, float[2] b) => (float[4,2] y) { h = MatMul(x, w) s = Add(h, b) y = Tanh(s) }"
FEEDS = {"x": drawn(4, 3), "w": drawn(3, 2), "b": drawn(2)}


def test_static_shapes():
    built = check_jacobian(model(DENSE), FEEDS, ["x", "w", "b"], ["y"])
    shapes = {o.name: [d.dim_value for d in o.type.tensor_type.shape.dim] for o in built.graph.output}
    assert shapes == {
        "y": [4, 2],
        "jacobian_y_x": [4, 2, 4, 3],
        "jacobian_y_w": [4, 2, 3, 2],
        "jacobian_y_b": [4, 2, 2],
    }


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_both_modes_are_right(mode):
    check_jacobian(model(DENSE), FEEDS, ["x", "b"], ["y"], mode=mode)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_dimensions_that_are_open_stay_open(mode):
    proto = opened(model(DENSE), {"x": ("N", 3)})
    built = check_jacobian(proto, FEEDS, ["x", "w", "b"], ["y"], mode=mode)
    dims = {o.name: [d.dim_param or d.dim_value for d in o.type.tensor_type.shape.dim] for o in built.graph.output}
    assert dims["jacobian_y_x"] == ["N", 2, "N", 3] and dims["jacobian_y_b"] == ["N", 2, 2]


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_no_dimension_is_known(mode):
    proto = opened(model(DENSE), {"x": ("N", "K"), "w": ("K", "M"), "b": ("M",)})
    check_jacobian(proto, FEEDS, ["x", "w", "b"], ["y"], mode=mode)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("dims", [{}, {"x": ("N", 3)}, {"x": ("N", "K"), "w": ("K", "M")}])
def test_nothing_to_differentiate(dims, mode):
    text = DENSE if dims else DENSE.replace("4,", "0,")
    built = gradgen.jacobian(opened(model(text), dims) if dims else model(text), wrt=["x", "w"], mode=mode)
    found = run_all(built, {**FEEDS, "x": drawn(0, 3)})
    assert found["jacobian_y_x"].shape == (0, 2, 0, 3) and found["jacobian_y_w"].shape == (0, 2, 3, 2)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_an_empty_input_beside_one_that_is_not(mode):
    text = "(float[A] x, float[B] z) => (float[C] y) { s = Concat<axis=0>(x, z) y = Mul(s, s) }"
    for sizes in ((0, 2), (2, 0), (1, 1), (0, 0)):
        feeds = {"x": drawn(sizes[0]), "z": drawn(sizes[1])}
        check_jacobian(model(text), feeds, ["x", "z"], ["y"], mode=mode)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_scalars(mode):
    text = """(float x, float[3] v) => (float y, float[3] z) {
      s = ReduceSum<keepdims=0>(v) p = Mul(s, x) y = Sin(p) z = Mul(v, y) }"""
    feeds = {"x": drawn(), "v": drawn(3)}
    check_jacobian(model(text), feeds, ["x", "v"], ["y", "z"], mode=mode)
    check_jacobian(model(text), feeds, ["x"], ["y"], mode=mode)


def test_one_row_needs_no_scan():
    text = "(float[5] x) => (float y) { s = Mul(x, x) y = ReduceSum<keepdims=0>(s) }"
    assert "Scan" not in {n.op_type for n in check_jacobian(model(text), {"x": drawn(5)}, ["x"], ["y"]).graph.node}


@pytest.mark.parametrize("open_dims", [False, True])
def test_several_outputs_of_other_types(open_dims):
    text = """(float[3] x, double[2] w) => (double[3,2] y, float[3] z, double u) {
      e = Cast<to=11>(x) axes = Constant<value_ints=[1]>() c = Unsqueeze(e, axes) p = Mul(c, w) y = Sin(p) z = Mul(x, x)
      u = ReduceSum<keepdims=0>(y) }"""
    proto = opened(model(text), {"x": ("N",), "w": ("M",)}) if open_dims else model(text)
    feeds = {"x": drawn(3), "w": drawn(2).astype(np.float64)}
    built = gradgen.jacobian(proto, wrt=["x", "w"], of=["y", "z", "u"])
    found = run_all(built, feeds)
    # What is cast to float32 on the way back is good to float32.
    for y in ("y", "z", "u"):
        for x in ("x", "w"):
            near(found[f"jacobian_{y}_{x}"], differences(wide_run(proto), wide(feeds), y, x), 1e-6)


CNN = """(float[2,2,6,6] x, float[3,2,3,3] w) => (float[2,3,2,2] y) {
  c = Conv<pads=[1,1,1,1]>(x, w) p = MaxPool<kernel_shape=[2,2], strides=[3,3]>(c) y = Tanh(p) }"""
CNN_FEEDS = {"x": drawn(2, 2, 6, 6), "w": drawn(3, 2, 3, 3)}


def test_a_convolution_and_a_pool():
    check_jacobian(model(CNN), CNN_FEEDS, ["w"], ["y"])


LSTM = """(float[3,2,2] x, float[1,12,2] w, float[1,12,3] r) => (float[3,1,2,3] y) {
  y = LSTM<hidden_size=3>(x, w, r) }"""
LSTM_FEEDS = {"x": drawn(3, 2, 2), "w": drawn(1, 12, 2), "r": drawn(1, 12, 3)}


def test_a_recurrent_layer():
    check_jacobian(model(LSTM), LSTM_FEEDS, ["x"], ["y"])


LOOP = """(int64 m, float[3] x, float[3] w) => (float[3] s, float[T,3] y) {
  s, y = Loop (m, , x) <body = step (int64 i, bool c, float[3] h) => (bool go, float[3] next, float[3] out) {
    go = Identity(c) a = Mul(h, w) b = Add(a, x) next = Sin(b) out = Mul(next, h) }> }"""
SCAN = """(float[3] x, float[4,3] v) => (float[3] s, float[4,3] y) {
  s, y = Scan <num_scan_inputs=1, body = step (float[3] h, float[3] e) => (float[3] next, float[3] out) {
    a = Mul(h, e) next = Sin(a) out = Add(next, x) }> (x, v) }"""
IF = """(bool c, float[3] x) => (float[3] y) {
  h = Mul(x, x) y = If (c) <then_branch = t () => (float[3] a) { a = Sin(h) },
                            else_branch = e () => (float[3] b) { b = Mul(h, x) }> }"""
CONTROL = {
    "loop": (LOOP, {"m": np.int64(3), "x": drawn(3), "w": drawn(3, seed=1)}, ["x", "w"], ["s", "y"]),
    "no_trip": (LOOP, {"m": np.int64(0), "x": drawn(3), "w": drawn(3, seed=1)}, ["x", "w"], ["s", "y"]),
    "scan": (SCAN, {"x": drawn(3), "v": drawn(4, 3)}, ["x", "v"], ["s", "y"]),
    "then": (IF, {"c": np.bool_(True), "x": drawn(3)}, ["x"], ["y"]),
    "else": (IF, {"c": np.bool_(False), "x": drawn(3)}, ["x"], ["y"]),
}


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(name, mode):
    text, feeds, wrt, of = CONTROL[name]
    check_jacobian(model(text), {k: np.asarray(v) for k, v in feeds.items()}, wrt, of, mode=mode)


def test_the_forward_pass_runs_once():
    """The body holds the seed and what depends on it: none of the forward nodes, nor what the rules make of them alone."""
    built = gradgen.jacobian(model(CNN), wrt=["x", "w"], mode="reverse")
    whole = gradgen.vjp(model(CNN), wrt=["x", "w"])
    body = body_of(built)
    assert not {n.op_type for n in body.node} & {"Conv", "MaxPool", "Tanh"} - {"Conv"}
    assert sum(n.op_type == "Tanh" for n in built.graph.node) == 1
    outside = [n for n in built.graph.node if n.op_type != "Scan"]
    assert len(body.node) + len(outside) <= len(whole.graph.node) + 3 + 4
    seeds = set(body.input[0].name for _ in (1,))
    for node in body.node:
        assert seeds & set(node.input), f"{node.name} does not depend on the seed"
        seeds |= set(node.output)


def test_the_side_with_fewer_elements_is_taken():
    wide_text = "(float[2] x, float[2,50] w) => (float[50] y) { h = MatMul(x, w) y = Tanh(h) }"
    feeds = {"x": drawn(2), "w": drawn(2, 50)}
    proto = model(wide_text)
    built = check_jacobian(proto, feeds, ["x"], ["y"])
    assert steps_of(built, feeds) == 2
    assert steps_of(gradgen.jacobian(proto, wrt=["x"], mode="reverse"), feeds) == 50
    assert steps_of(gradgen.jacobian(opened(proto, {"x": ("N",)}), wrt=["x"]), feeds) == 50


def steps_of(built, feeds):
    """How many steps the Scan of a model takes."""
    (scan,) = [n for n in built.graph.node if n.op_type == "Scan"]
    shown = onnx.ModelProto()
    shown.CopyFrom(built)
    del shown.graph.output[:]
    shown.graph.output.append(onnx.helper.make_tensor_value_info(scan.input[0], onnx.TensorProto.INT64, None))
    return at_level(shown, feeds)[0].size


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("dims", [{}, {"x": ("N", 3)}, {"x": ("N", "K"), "w": ("K", "M"), "b": ("M",)}])
def test_the_jacobian_of_each_sample(dims, mode):
    proto = opened(model(DENSE), dims)
    found = run_all(gradgen.jacobian(proto, wrt=["x"], per_sample=True, mode=mode), FEEDS)["jacobian_y_x"]
    want = differences(wide_run(proto), wide(FEEDS), "y", "x")
    near(found, np.stack([want[n, :, n] for n in range(4)]), 1e-7)


def test_each_sample_takes_one_step_for_each_of_its_elements():
    proto = opened(model(DENSE), {"x": ("N", 3)})
    assert steps_of(gradgen.jacobian(proto, wrt=["x"], per_sample=True), FEEDS) == 2


def test_samples_of_images():
    found = run_all(gradgen.jacobian(model(CNN), wrt=["x"], per_sample=True), CNN_FEEDS)["jacobian_y_x"]
    want = differences(wide_run(model(CNN)), wide(CNN_FEEDS), "y", "x")
    near(found, np.stack([want[n, :, :, :, n] for n in range(2)]), 1e-7)


def test_a_scalar_for_each_sample_and_no_sample():
    text = "(float[N,3] x) => (float[N] y) { s = Sin(x) axes = Constant<value_ints=[1]>() y = ReduceSum<keepdims=0>(s, axes) }"
    built = gradgen.jacobian(model(text), per_sample=True)
    assert "Scan" not in {n.op_type for n in built.graph.node}
    x = drawn(4, 3)
    near(run_all(built, {"x": x})["jacobian_y_x"], np.cos(x.astype(np.float64)), 1e-7)
    assert run_all(built, {"x": x[:0]})["jacobian_y_x"].shape == (0, 3)


def test_random_nodes_draw_once():
    text = "(float[40,3] x, float[3] w) => (float[40,3] y) { n = RandomNormalLike(x) s = Mul(n, w) p = Mul(s, x) y = Mul(p, s) }"
    for mode in ("forward", "reverse"):
        built = gradgen.jacobian(model(text), wrt=["w"], mode=mode)
        assert [n.op_type for n in built.graph.node].count("RandomNormalLike") == 1
        x, w = drawn(40, 3, low=0.5), drawn(3, low=0.5)
        y, jacobian = at_level(built, {"x": x, "w": w})
        want = np.zeros((40, 3, 3))
        want[:, [0, 1, 2], [0, 1, 2]] = 2 * y / w
        np.testing.assert_allclose(jacobian, want, rtol=1e-4, atol=1e-5)


def test_a_training_mode_dropout_and_a_loop_that_draws():
    text = """(int64 m, float[20] x) => (float[20] y) { n = Constant<value_float=0.5>() t = Constant<value=bool {1}>()
      d = Dropout<seed=3>(x, n, t)
      y = Loop (m, , d) <body = step (int64 i, bool c, float[20] h) => (bool go, float[20] next) {
        go = Identity(c) r = RandomUniformLike(h) p = Mul(r, h) next = Add(p, h) }> }"""
    built = gradgen.jacobian(model(text))
    y, jacobian = at_level(built, {"m": np.asarray(2), "x": drawn(20, low=0.5)})
    assert not jacobian[~np.eye(20, dtype=bool)].any()
    np.testing.assert_allclose(np.diag(jacobian) * drawn(20, low=0.5), y, rtol=1e-5)


@pytest.mark.parametrize("wrt", ["x", "h"])
def test_an_unknown_rank(wrt):
    text = "(float[N,3] x, int64[R] s) => (float y) { h = Reshape(x, s) q = Sin(h) y = ReduceSum<keepdims=0>(q) }"
    x, feeds = drawn(2, 3), {"x": drawn(2, 3), "s": np.array([3, 1, 2])}
    found = at_level(gradgen.jacobian(model(text), wrt=[wrt], of=["q"]), feeds)[-1]
    assert found.shape == (3, 1, 2) + ((2, 3) if wrt == "x" else (3, 1, 2))
    np.testing.assert_allclose(found.reshape(6, 6), np.diag(np.cos(x).reshape(-1)), rtol=1e-5)
    curved = at_level(gradgen.hessian(model(text), wrt=[wrt]), feeds)[-1]
    np.testing.assert_allclose(curved.reshape(6, 6), -np.diag(np.sin(x).reshape(-1)), rtol=1e-5)
    with pytest.raises(GradientError, match="asks for ranks, and that of 'q' is unknown: use mode='reverse'"):
        gradgen.jacobian(model(text), wrt=[wrt], of=["q"], mode="forward")
    with pytest.raises(GradientError, match="'q' is of unknown rank, and so has no axis of samples"):
        gradgen.jacobian(model(text), wrt=["x"], of=["q"], per_sample=True)


def test_a_value_is_its_own_jacobian():
    text = "(float[3] x) => (float[3] y) { y = Sin(x) }"
    for name in ("x", "y"):
        found = run_all(gradgen.jacobian(model(text), wrt=[name], of=[name]), {"x": drawn(3)})
        np.testing.assert_array_equal(found[f"jacobian_{name}_{name}"], np.eye(3))


def test_what_a_jacobian_is_built_on_is_no_wrt_later():
    built = gradgen.jacobian(model("(float[3] x) => (float[3] y) { y = Pow(x, e) }", e=np.float32(2)))
    with pytest.raises(GradientError, match="'e' was a constant when 'jacobian_y_x' was made"):
        gradgen.grad(built, wrt=["e"], of=["jacobian_y_x"], reduce="sum")


# Compositions


def test_the_jacobian_of_a_vjp_model():
    first = gradgen.vjp(model(DENSE), wrt=["w"])
    feeds = {**FEEDS, "grad_y": drawn(4, 2)}
    check_jacobian(first, feeds, ["w", "grad_y"], ["grad_w"])


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_the_vjp_of_a_jacobian_model(mode):
    first = gradgen.jacobian(model(DENSE), wrt=["x", "b"], mode=mode)
    second = gradgen.vjp(first, wrt=["x", "w"], of=["jacobian_y_b"])
    ct = drawn(4, 2, 2)
    found = run_all(second, {**FEEDS, "grad_jacobian_y_b": ct})
    for x in ("x", "w"):
        want = differences(wide_run(first), wide(FEEDS), "jacobian_y_b", x)
        near(found[f"grad_{x}"], np.tensordot(ct.astype(np.float64), want, 3), 1e-6)


@pytest.mark.parametrize("name", ["loop", "scan"])
def test_the_vjp_of_a_jacobian_through_control_flow(name):
    text, feeds, wrt, _ = CONTROL[name]
    first = gradgen.jacobian(model(text), wrt=wrt[:1], of=["s"])
    second = gradgen.grad(first, wrt=wrt[1:], of=["jacobian_s_x"], reduce="sum")
    feeds = {k: np.asarray(v) for k, v in feeds.items()}
    want = differences(wide_run(first), wide(feeds), "jacobian_s_x", wrt[1])
    near(run_all(second, feeds)[f"grad_{wrt[1]}"], want.sum((0, 1)), 1e-6)


def test_the_jacobian_of_a_jacobian():
    text = "(float[3] x) => (float[2] y) { a = Sin(x) b = Mul(a, x) y = MatMul(m, b) }"
    first = gradgen.jacobian(model(text, m=drawn(2, 3)))
    check_jacobian(first, {"x": drawn(3)}, ["x"], ["jacobian_y_x"], tolerance=1e-6)


# Names, errors, forms


def test_names_escalate_together_and_are_in_the_metadata():
    text = "(float[3] x, float[3] z) => (float[3] y) { jacobian_y_z = Mul(x, z) y = Sin(jacobian_y_z) }"
    built = gradgen.jacobian(model(text))
    assert [o.name for o in built.graph.output] == ["y", "jacobian2_y_x", "jacobian2_y_z"]
    (names,) = [p.value for p in built.metadata_props if p.key == "gradgen.names"]
    assert '"jacobian2_y_z": {"of": "y", "role": "jacobian", "source": "z"}' in names
    assert [i.name for i in built.graph.input] == ["x", "z"]


def test_names_that_read_alike_stay_apart():
    text = "(float[2] b_c, float[2] c) => (float[2] a, float[2] a_b) { s = Mul(b_c, c) a = Sin(s) a_b = Cos(s) }"
    built = gradgen.jacobian(model(text))
    outputs = [o.name for o in built.graph.output]
    assert len(set(outputs)) == 6
    run_all(built, {"b_c": drawn(2), "c": drawn(2)})


def test_an_intermediate_value_is_differentiated_and_varied():
    proto = model(DENSE)
    built = gradgen.jacobian(proto, wrt=["s"], of=["y"])
    near(run_all(built, FEEDS)["jacobian_y_s"].sum((2, 3)), 1 - run_all(proto, FEEDS)["y"] ** 2, 1e-6)
    assert [o.name for o in gradgen.jacobian(proto, wrt=["x"], of=["h"]).graph.output] == ["y", "h", "jacobian_h_x"]


def test_what_does_not_matter_is_zero_and_said():
    text = "(float[2] x, float[2] z) => (float[2] y) { y = Sin(x) u = Mul(x, z) }"
    with pytest.warns(gradgen.GradientWarning, match="'z' does not influence") as caught:
        built = gradgen.jacobian(model(text), wrt=["x", "z"], mode="reverse")
    assert caught[0].filename == __file__
    assert not run_all(built, {"x": drawn(2), "z": drawn(2)})["jacobian_y_z"].any()


def test_calls_into_the_function_library():
    built = gradgen.jacobian(model(DENSE), wrt=["b"], inline=False)
    assert built.functions
    want = gradgen.jacobian(model(DENSE), wrt=["b"])
    for got, wanted in zip(at_level(built, FEEDS), at_level(want, FEEDS), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(GradientError, match="inline=False goes with mode='reverse'"):
        gradgen.jacobian(model(DENSE), inline=False, mode="forward")


def test_half_precision():
    text = "(float16[3] x) => (float16[3] y) { y = Mul(x, x) }"
    x = np.float16([1, 2, 3])
    for mode in ("forward", "reverse"):
        np.testing.assert_array_equal(at_level(gradgen.jacobian(model(text), mode=mode), {"x": x})[1], np.diag(2 * x))


def test_refusals():
    with pytest.raises(GradientError, match="mode is None, 'forward' or 'reverse', not 'backward'"):
        gradgen.jacobian(model(DENSE), mode="backward")
    with pytest.raises(GradientError, match="per_sample: .* 4 in 'y', 3 in 'w'"):
        gradgen.jacobian(model(DENSE), wrt=["x", "w"], per_sample=True)
    with pytest.raises(GradientError, match="'y' is a scalar, and so has no axis of samples"):
        gradgen.jacobian(model("(float[3] x) => (float y) { y = ReduceSum<keepdims=0>(x) }"), per_sample=True)
    text = "(float[3] x) => (seq(float[3]) y) { y = SequenceConstruct(x, x) }"
    with pytest.raises(GradientError, match="'y' is no tensor"):
        gradgen.jacobian(model(text), of=["y"])


def test_a_model_of_onnx_ir_comes_back_as_one():
    import onnx_ir as ir

    built = gradgen.jacobian(ir.from_proto(model(DENSE)), wrt=["b"])
    assert isinstance(built, ir.Model)
    assert at_level(ir.to_proto(built), FEEDS)[1].shape == (4, 2, 2)


def test_forward_mode_and_jacobians_of_each_other():
    """jvp and hvp of a Jacobian model, Jacobians of jvp and hvp models: through the Scan, and into one."""
    text = "(float[3] x) => (float[2] y) { a = Sin(x) b = Mul(a, x) y = MatMul(m, b) }"
    proto, x, v = model(text, m=drawn(2, 3)), drawn(3), drawn(3, seed=5)
    point = wide({"x": x})
    first = gradgen.jacobian(proto)
    second = differences(wide_run(first), point, "jacobian_y_x", "x")
    along = gradgen.jvp(first, wrt=["x"], of=["jacobian_y_x"])
    near(run_all(along, {"x": x, "tangent_x": v})["tangent_jacobian_y_x"], second @ v, 1e-6)
    pushed = gradgen.jacobian(gradgen.jvp(proto), wrt=["x"], of=["tangent_y"])
    near(run_all(pushed, {"x": x, "tangent_x": v})["jacobian_tangent_y_x"], second @ v, 1e-6)
    curved = gradgen.hvp(first, wrt=["x"], of=["jacobian_y_x"], reduce="sum")
    third = differences(wide_run(gradgen.jacobian(first, of=["jacobian_y_x"])), point, "jacobian_jacobian_y_x_x", "x")
    near(run_all(curved, {"x": x, "vector_x": v})["hvp_x"], third.sum((0, 1)) @ v, 1e-5)
    products = gradgen.hvp(proto, reduce="sum")
    whole = gradgen.hessian(proto, reduce="sum")
    near(
        run_all(gradgen.jacobian(products, wrt=["vector_x"]), {"x": x, "vector_x": v})["jacobian_hvp_x_vector_x"],
        run_all(whole, {"x": x})["hessian_x_x"],
        1e-9,
    )


def test_a_model_of_several_cotangents_has_a_jacobian():
    first = gradgen.vjp(model(DENSE), wrt=["w"], seeds=2)
    check_jacobian(first, {**FEEDS, "grad_y": drawn(2, 4, 2)}, ["b"], ["grad_w"])


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_a_portable_scan_captures_nothing_that_is_computed(mode):
    built = check_jacobian(model(DENSE), FEEDS, ["x", "w"], ["y"], mode=mode, portable=True)
    body = body_of(built)
    stored = {t.name for t in built.graph.initializer}
    known = {v.name for v in body.input} | {t.name for t in body.initializer}
    for node in body.node:
        assert set(node.input) <= known | stored
        known |= set(node.output)
