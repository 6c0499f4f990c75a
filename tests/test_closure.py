# The rules close under differentiation: every op that a gradient contains has a row, and third derivatives are right.
from __future__ import annotations

import warnings

import numpy as np
import pytest
from random_graph_samples import table

import gradgen
from gradgen.differences import directional
from gradgen.engine.registry import registered
from gradgen.evaluate import Evaluator
from gradgen.samples import build
from gradgen.testing import forms

# Ops whose third derivative is not zero.
THIRD = (
    "Div", "Pow", "Exp", "Log", "Sqrt", "Tanh", "Sigmoid", "Gelu", "Softmax", "LogSoftmax", "ReduceProd",
    "LayerNormalization", "InstanceNormalization",
)  # fmt: skip


def nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes(attribute.g)


@pytest.mark.parametrize("op", sorted(table()))
def test_every_op_that_a_rule_emits_has_a_row(op):
    """Traced and structural rules say what they emit only when they run: in all forms, static and dynamic."""
    registry = registered()
    for sample in table()[op]:
        for dynamic in (False, True):
            built = build(sample, np.float32, dynamic=dynamic)
            for _, rules in forms(sample, dtype=np.float32):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", gradgen.GradientWarning)
                    try:
                        model = gradgen.vjp(built.model, wrt=built.wrt, of=built.of, registry=rules)
                    except gradgen.GradientError:  # a form that static shapes alone admit
                        continue
                opset = next(e.version for e in model.opset_import if not e.domain)
                missing = {
                    (n.domain, n.op_type)
                    for n in nodes(model.graph)
                    if registry.find(n.domain, n.op_type, opset) is None
                }
                assert not missing, f"{sample}: {missing}"


def derivative(model, wrt, of):
    """A vjp, and the names of its cotangents and gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        found = gradgen.vjp(model, wrt=wrt, of=of)
    known = {i.name for i in model.graph.input}
    return found, [i.name for i in found.graph.input if i.name not in known], [
        o.name for o in found.graph.output[-len(wrt) :]
    ]  # fmt: skip


@pytest.mark.parametrize("op", THIRD)
def test_third_order(op):
    """The gradient of the gradient of the gradient against differences of the second derivative."""
    sample = table()[op][0]
    built = build(sample)
    rng = np.random.default_rng(11)
    model, feeds, wrt, of = built.model, dict(built.feeds), built.wrt, built.of
    shapes = {name: array.shape for name, array in Evaluator(model)(feeds).items()}
    for _ in range(2):
        model, seeds, gradients = derivative(model, wrt, of)
        feeds.update({seed: rng.uniform(0.3, 1.2, shapes[name]) for seed, name in zip(seeds, of, strict=True)})
        of, shapes = gradients, {g: feeds[name].shape for g, name in zip(gradients, wrt, strict=True)}
    third, seeds, gradients = derivative(model, wrt, of)
    weights = {name: rng.uniform(0.3, 1.2, feeds[source].shape) for name, source in zip(of, wrt, strict=True)}
    found = Evaluator(third)({**feeds, **dict(zip(seeds, weights.values(), strict=True))})
    run = Evaluator(model)
    largest = 0.0
    for name, gradient in zip(wrt, gradients, strict=True):
        direction = rng.standard_normal(feeds[name].shape)
        want = directional(run, feeds, {name: direction}, weights)
        got = float((found[gradient] * direction).sum())
        scale = max(abs(want.value), float(np.abs(found[gradient]).max()), 1e-3)
        assert abs(got - want.value) <= 1e-5 * scale + 3 * want.error, (op, name, got, want)
        largest = max(largest, float(np.abs(found[gradient]).max()))
    assert largest > 1e-3, "the third derivative is not zero"
