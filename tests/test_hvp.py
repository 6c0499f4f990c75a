"""Hessian-vector products against float64 differences of the gradient; compositions of transforms on onnxruntime."""

import json
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from forward_mode import Arrays, check_hvp, directions, model_of, prefixed, wide, wide_run
from forward_models import MODELS
from loops import model

import gradgen
from gradgen.differences import directional
from gradgen.evaluate import Evaluator

LEVELS = ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"]


@pytest.mark.parametrize("name", ["mlp_static", "cnn_dynamic", "encoder_static", "transformer_dynamic"])
def test_models(name: str) -> None:
    proto, feeds, wrt = model_of(name)
    check_hvp(proto, feeds, wrt)
    check_hvp(proto, feeds, wrt[:1])


@pytest.mark.parametrize("name", MODELS)
def test_control_flow_and_recurrence(name: str) -> None:
    proto, feeds = MODELS[name]
    wrt = [n for n, a in feeds.items() if a.dtype.kind == "f"]
    outputs = [o.name for o in proto.graph.output]
    check_hvp(proto, feeds, wrt, of=outputs[-1:], reduce="sum")


def test_the_hessian_is_joint() -> None:
    """hvp_x = H_xx v_x + H_xz v_z."""
    proto = model("g (double[2] x, double[2] z) => (double y) { p = Mul (x, z)  y = ReduceSum <keepdims = 0> (p) }")
    run = Evaluator(gradgen.hvp(proto))
    x, z, v, w = np.ones(2), np.ones(2), np.array([1.0, 2.0]), np.array([3.0, 5.0])
    found = run({"x": x, "z": z, "vector_x": v, "vector_z": w})
    np.testing.assert_array_equal(found["hvp_x"], w)
    np.testing.assert_array_equal(found["hvp_z"], v)


def test_several_elements_need_reduce_and_a_linear_model_has_no_hessian() -> None:
    proto = model("g (double[2] x) => (double[2] y) { y = Neg (x) }")
    with pytest.raises(gradgen.GradientError, match="reduce"):
        gradgen.hvp(proto)
    with pytest.warns(gradgen.GradientWarning, match="does not depend on 'x'"):
        result = gradgen.hvp(proto, reduce="sum")
    np.testing.assert_array_equal(Evaluator(result)({"x": np.ones(2), "vector_x": np.ones(2)})["hvp_x"], [0, 0])


def test_names_have_roles() -> None:
    proto = model("g (double[2] x) => (double y) { e = Exp (x)  y = ReduceSum <keepdims = 0> (e) }")
    first = gradgen.hvp(proto)
    assert [i.name for i in first.graph.input] == ["x", "vector_x"]
    assert [o.name for o in first.graph.output] == ["hvp_x"]
    second = gradgen.hvp(first, wrt=["x"], reduce="sum")
    assert [i.name for i in second.graph.input] == ["x", "vector_x", "vector2_x"]
    assert [o.name for o in second.graph.output] == ["hvp2_x"]
    roles = json.loads(next(p.value for p in second.metadata_props if p.key == "gradgen.names"))
    assert roles["hvp2_x"] == {"role": "hvp out", "source": "x"}
    assert roles["vector_x"] == {"role": "vector in", "source": "x"}


# Each composition of two transforms: what it is derived from, what the outer transform differentiates.


def block() -> tuple[onnx.ModelProto, Arrays]:
    """A convolution, a pool, a norm and a softmax, of two inputs and an output of several elements."""
    proto = model(
        """g (float[2,1,4,4] x, float[2,1,3,3] w) => (float[2,8] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w)
            r = Sigmoid (c)
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
            f = Flatten (p)
            one = Constant <value = float[8] {1, 0.5, 2, 1, 1, 0.7, 1, 1.5}> ()
            n = LayerNormalization (f, one)
            s = Softmax (n)
            y = Mul (s, f)
        }"""
    )
    rng = np.random.default_rng(8)
    feeds = {"x": rng.standard_normal((2, 1, 4, 4)), "w": rng.standard_normal((2, 1, 3, 3))}
    return proto, {n: a.astype(np.float32) for n, a in feeds.items()}


def vjp(proto: onnx.ModelProto) -> onnx.ModelProto:
    return gradgen.vjp(proto, wrt=["x", "w"], of=[proto.graph.output[-1].name])


def jvp(proto: onnx.ModelProto) -> onnx.ModelProto:
    return gradgen.jvp(proto, wrt=["x", "w"], of=[proto.graph.output[-1].name])


def hvp(proto: onnx.ModelProto) -> onnx.ModelProto:
    return gradgen.hvp(proto, wrt=["x", "w"], of=[proto.graph.output[-1].name], reduce="sum")


COMPOSITIONS = [(vjp, vjp), (jvp, vjp), (vjp, jvp), (jvp, jvp), (hvp, vjp), (vjp, hvp), (hvp, jvp), (jvp, hvp)]


@pytest.mark.parametrize(("outer", "inner"), COMPOSITIONS, ids=lambda f: f.__name__)
def test_compositions_on_every_level(outer: Callable, inner: Callable) -> None:
    proto, feeds = block()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        first = inner(proto)
        second = outer(first)
    onnx.checker.check_model(second, full_check=True)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in second.graph.input}
    rng = np.random.default_rng(9)
    fed = {n: feeds.get(n, rng.standard_normal(s).astype(np.float32)) for n, s in shapes.items()}
    results = [_run(second, fed, level) for level in LEVELS]
    precise = wide_run(second)(wide(fed))
    for level, found in zip(LEVELS, results, strict=True):
        for name, value in precise.items():
            scale = np.abs(value).max() + 1e-3
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4 * scale, err_msg=f"{level} {name}")
    _check_composition(outer, first, second, wide(fed), precise)


def _run(proto: onnx.ModelProto, feeds: Arrays, level: str) -> Arrays:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in proto.graph.output], session.run(None, feeds), strict=True))


def _check_composition(
    outer: Callable, first: onnx.ModelProto, second: onnx.ModelProto, fed: Arrays, got: Arrays
) -> None:
    """The outer transform of the last output of the inner model, against differences of the inner model."""
    inner = wide_run(first)
    own = [i.name for i in first.graph.input]
    target = first.graph.output[-1].name
    point = {n: fed[n] for n in own}
    added = [n for n in fed if n not in own]
    last = [o.name for o in second.graph.output]
    if outer is jvp:
        v = dict(zip(["x", "w"], (fed[n] for n in added), strict=True))
        u = directions({target: got[last[-1]]}, [target], 4)
        want = directional(inner, point, v, u)
        _close(float((u[target] * got[last[-1]]).sum()), want)
        return
    v = directions(point, ["x", "w"], 4)
    analytic = sum(float((v[n] * got[name]).sum()) for n, name in zip(["x", "w"], last[-2:], strict=True))
    if outer is vjp:
        _close(analytic, directional(inner, point, v, {target: fed[added[0]]}))
        return
    gradient = wide_run(gradgen.grad(first, wrt=["x", "w"], of=[target], reduce="sum"))
    names = list(gradient(point))
    moved = dict(zip(["x", "w"], (fed[n] for n in added), strict=True))
    want = directional(gradient, point, moved, dict(zip(names, (v["x"], v["w"]), strict=True)))
    _close(analytic, want)


def _close(got: float, want) -> None:
    assert want.finite and abs(want.value) > 1e-4
    assert abs(got - want.value) <= 1e-5 * abs(want.value) + 3 * want.error, (got, want)


def test_a_model_with_cotangent_inputs() -> None:
    """The Hessian of <grad_y, y>, from the model that vjp wrote."""
    proto = model("g (double[3] x) => (double[3] y) { y = Exp (x) }")
    result = gradgen.hvp(gradgen.jvp(proto), wrt=["x"], of=["tangent_y"], reduce="sum")
    x, t, v = np.array([0.1, -0.4, 0.7]), np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 2.0])
    found = Evaluator(result)({"x": x, "tangent_x": t, "vector_x": v})
    np.testing.assert_allclose(found["hvp_x"], np.exp(x) * t * v)
    result = gradgen.hvp(gradgen.vjp(proto), wrt=["x"], of=["grad_x"], reduce="sum")
    found = Evaluator(result)({"x": x, "vector_x": v, **prefixed("grad_", {"y": t})})
    np.testing.assert_allclose(found["hvp_x"], np.exp(x) * t * v)
