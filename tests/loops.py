"""Checks for models of loops and sequences: gradients of first and second order against float64 differences."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
from onnx import parser

import gradgen
from gradgen.differences import directional, jacobian_fd
from gradgen.evaluate import Evaluator


def model(text):
    """A checked model of opset 21 from the text of its graph."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    onnx.checker.check_model(proto, full_check=True)
    return proto


def check(proto, feeds, wrt=None, of=None, second=True, tolerance=1e-6):
    """Gradients of every named value in float64 on onnxruntime, and of those the derivative in a random direction.

    Returns the gradient model.
    """
    feeds = {k: np.asarray(v) for k, v in feeds.items()}
    floats = [k for k, v in feeds.items() if v.dtype == np.float64]
    wrt = wrt or floats
    first = derive(proto, wrt, of)
    run = Evaluator(proto, strict=True)
    outputs = run(feeds)
    rng = np.random.default_rng(0)
    seeded = [i.name.removeprefix("grad_") for i in first.graph.input if i.name.startswith("grad_")]
    cotangents = {n: rng.standard_normal(np.shape(outputs[n])) for n in seeded}
    seeds = {f"grad_{n}": ct for n, ct in cotangents.items()}
    found = Evaluator(first, strict=True)({**feeds, **seeds})
    for name in outputs:
        np.testing.assert_array_equal(found[name], outputs[name], err_msg=name)
    for name in wrt:
        want, _, kinks = jacobian_fd(run, feeds, name, cotangents)
        assert not kinks.any()
        assert found[f"grad_{name}"].shape == feeds[name].shape
        scale = np.abs(want).max(initial=1e-3)
        np.testing.assert_allclose(found[f"grad_{name}"], want, rtol=tolerance, atol=tolerance * scale, err_msg=name)
    for open_proto in (without_sizes(proto), without_sizes(proto, ranks=False)):
        if not runs(open_proto, feeds):  # onnxruntime wants to know the rank of a Scan's states
            continue
        again = Evaluator(derive(open_proto, wrt, of), strict=True)({**feeds, **seeds})
        for name in wrt:
            np.testing.assert_allclose(
                again[f"grad_{name}"], found[f"grad_{name}"], rtol=1e-9, atol=1e-12, err_msg=name
            )
    if second:
        check_again(first, {**feeds, **seeds}, [*wrt, *seeds], [f"grad_{n}" for n in wrt], tolerance)
    return first


def check_again(first, feeds, wrt, gradients, tolerance):
    """The derivative of a gradient model's results in one random direction for each value."""
    rng = np.random.default_rng(1)
    second = derive(first, wrt, gradients)
    run = Evaluator(first, strict=True)
    weights = {n: rng.standard_normal(v.shape) for n, v in run(feeds).items() if n in gradients}
    inputs = [i.name for i in second.graph.input][-len(gradients) :]
    found = Evaluator(second, strict=True)({**feeds, **dict(zip(inputs, weights.values(), strict=True))})
    names = [o.name for o in second.graph.output][-len(wrt) :]
    for name, output in zip(wrt, names, strict=True):
        direction = rng.standard_normal(feeds[name].shape)
        want = directional(run, feeds, {name: direction}, weights)
        got = float((found[output] * direction).sum())
        scale = max(abs(want.value), float(np.abs(found[output]).sum()) * 1e-2, 1e-3)
        assert abs(got - want.value) <= max(10 * tolerance, 3 * want.error / scale) * scale, (name, got, want.value)


def derive(proto, wrt, of=None):
    """The checked gradient model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        result = gradgen.vjp(proto, wrt=wrt, of=of)
    onnx.checker.check_model(result, full_check=True)
    return result


def without_sizes(proto, ranks=True):
    """A copy that states no sizes; without `ranks`, its subgraphs state no number of dimensions, scalars apart."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)

    def visit(graph, inner):
        for info in [*graph.input, *graph.output]:
            kind = info.type
            while not kind.HasField("tensor_type"):
                kind = kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind.optional_type.elem_type
            if inner and not ranks and kind.tensor_type.shape.dim:
                kind.tensor_type.ClearField("shape")
            for dim in kind.tensor_type.shape.dim:
                dim.Clear()
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    visit(attribute.g, True)

    visit(copy.graph, False)
    return copy


def runs(proto, feeds):
    """Whether onnxruntime runs a model."""
    try:
        Evaluator(proto, strict=True)(feeds)
    except Exception:
        return False
    return True
