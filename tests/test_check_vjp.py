# The check of a rule on samples: what it takes, what it finds, what it refuses.
"""Tests of gradgen.testing.check_vjp."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnxscript import opset21 as op
from onnxscript import script
from onnxscript.values import Opset
from own_ops import MINE, swish2

import gradgen
from gradgen.rules.lang import op as traced_op
from gradgen.rules.lang import traced
from gradgen.testing import check_vjp


def with_rule(rule, **options) -> None:
    gradgen.vjp_rule("my.domain", "Swish2", registry=gradgen.Registry(parent=MINE), **options)(rule)


def plain_vjp(dy, x, beta: float = 1.0):
    b = op.CastLike(beta, x)
    s = op.Sigmoid(x * b)
    dx = dy * (s + x * b * s * (1.0 - s))
    return dx


def narrow_vjp(dy, x):
    dx = op.Cast(dy * x, to=1)
    return dx


SAMPLES = [{"x": [3, 4]}, {"x": [2], "beta": 0.5}, {"x": []}, {"x": [0, 3]}, {"x": np.array([0.5, -1.5]), "beta": 2.0}]


def test_check_vjp_takes_what_is_right():
    check_vjp(swish2, SAMPLES)
    check_vjp("my.domain::Pair", [{"x": [2, 3], "w": [2, 3]}, {"x": [3], "w": [3], "gain": 0.5}], registry=MINE)
    with_rule(right := script(Opset("my.rules", 1), default_opset=op)(plain_vjp))
    check_vjp(right, SAMPLES)
    check_vjp("Gather", [{"data": [3, 4], "indices": np.array([0, 0, 2])}])


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        (lambda dx: dx * 1.001, r"Swish2, sample 0-x=\[3,4\], first order: .*gradient of x"),
        (lambda dx: dx + 0.01, "first order"),
    ],
)
def test_check_vjp_names_what_is_wrong(plant, reason):
    @traced("dx", linear=False)
    def planted_vjp(dy, x, *, beta=1.0):
        s = traced_op.Sigmoid(x * beta)
        return plant(dy * (s + x * beta * s * (1.0 - s)))

    with_rule(planted_vjp, linear=False)
    with pytest.raises(AssertionError, match=f"(?s){reason}"):
        check_vjp(planted_vjp, SAMPLES)


def test_check_vjp_finds_what_holds_in_float64_alone_and_for_known_dimensions_alone():
    def right(dy, x, beta):
        s = traced_op.Sigmoid(x * beta)
        return dy * (s + x * beta * s * (1.0 - s))

    @traced("dx")
    def rounded_vjp(dy, x, *, beta=1.0):
        return right(dy, x, beta) * (1.0 if x.dtype == onnx.TensorProto.DOUBLE else 1.01)

    @traced("dx")
    def static_vjp(dy, x, *, beta=1.0):
        return right(dy, x, beta) * (1.0 if x.static else 1.01)

    @traced("dx")
    def first_vjp(dy, x, *, beta=1.0):
        frozen = traced_op.Sigmoid(traced_op.Floor(x * beta * 1e6) * 1e-6)
        return dy * (frozen + x * beta * frozen * (1.0 - frozen))

    for rule, check in (
        (rounded_vjp, "float32 on onnxruntime"),
        (static_vjp, "unknown dimensions"),
    ):
        with_rule(rule)
        with pytest.raises(AssertionError, match=f"(?s)sample 0-x=\\[3,4\\], {check}: .*gradient of x"):
            check_vjp(rule, SAMPLES)
    with_rule(first_vjp)
    with pytest.raises(AssertionError, match="(?s)second order: .*with respect to x"):
        check_vjp(first_vjp, [{"x": np.array([0.5, -1.25]), "@tolerance": 1e-4}])


@pytest.mark.parametrize(
    ("rule", "samples", "reason"),
    [
        (narrow_vjp, [{"x": [3]}], r"'narrow_vjp' \(test_check_vjp.py, line \d+\) is not registered"),
        ("my.domain::Swish2", [{"x": [3]}], "has no rule and no body"),
        (swish2, [{"z": [3]}], r"\['z'\] are no input \['x'\] or attribute \['beta'\]"),
        (swish2, [], "give at least one sample"),
    ],
)
def test_check_vjp_says_what_it_cannot_check(rule, samples, reason):
    with pytest.raises(gradgen.GradientError, match=reason):
        check_vjp(rule, samples)


def test_check_vjp_needs_what_the_op_computes():
    registry = gradgen.Registry()
    gradgen.register_vjp("my.domain", "Bare", narrow_vjp, registry=registry)
    with pytest.raises(gradgen.GradientError, match="has no schema and no forward body"):
        check_vjp("my.domain::Bare", [{"x": [3]}], registry=registry)
