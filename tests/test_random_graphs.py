# Random graphs of ops from the whole rule table: no gradient is wrong, few are refused, few sit where there is none.
"""`tools/random_graph_table.py --count 2000` does the same on more graphs and prints what came out."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import onnx
import pytest
import random_graph_checks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_graph_checks import differentiated, judge
from random_graph_parts import STOPPING
from random_graph_values import Leaf
from random_graphs import RandomGraph, all_ops, grow

import gradgen

COUNT = 300
RULED = [op for op in all_ops() if op not in STOPPING]


@pytest.fixture(scope="module")
def verdicts():
    """Counts of the graphs that the property below was tried on."""
    return Counter()


@settings(
    max_examples=COUNT, derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)  # fmt: skip
@given(
    ops=st.lists(st.sampled_from(RULED + sorted(STOPPING)[:8]), min_size=3, max_size=12),
    choices=st.randoms(use_true_random=False),
)
def test_no_gradient_is_wrong(verdicts, ops, choices):
    verdict = judge(grow(choices, ops))
    verdicts[verdict.kind] += 1
    assert verdict.kind != "wrong", verdict.reason


def test_few_are_refused_or_discarded(verdicts):
    tried = sum(verdicts.values())
    if tried < COUNT:
        pytest.skip("the property was not tried in this process")
    assert verdicts["discarded"] < 0.05 * tried and verdicts["refused"] < 0.02 * tried, verdicts


@pytest.mark.parametrize("op", RULED)
def test_every_op_is_reached(op):
    """Alone, with an op in front and one behind it, some graph has it on a differentiated path."""
    for seed in range(30):
        graph = grow(random.Random(seed), ["Sin", op, "Sum"])
        if op in graph.drawn and op in differentiated(graph):
            return
    pytest.fail(f"{op} is on no differentiated path")


def test_a_wrong_gradient_is_seen(monkeypatch):
    right = gradgen.vjp

    def wrong(*arguments, **options):
        model = right(*arguments, **options)
        name = next(o.name for o in model.graph.output if o.name.startswith("grad_"))
        last = next(node for node in model.graph.node if name in node.output)
        last.output[list(last.output).index(name)] = "flipped"
        model.graph.node.append(onnx.helper.make_node("Neg", ["flipped"], [name]))
        return model

    graphs = [grow(random.Random(seed), ["Add", "Sin", "Mul"]) for seed in range(8)]
    assert {judge(graph).kind for graph in graphs} == {"right"}
    monkeypatch.setattr(gradgen, "vjp", wrong)
    assert [judge(graph).kind for graph in graphs].count("wrong") >= 6


def lossy(right, share):
    """A vjp whose first gradient loses a share of itself in float32 alone: there 1e-30 · 1e-30 is 0."""

    def vjp(*arguments, **options):
        model = right(*arguments, **options)
        name = next(o.name for o in model.graph.output if o.name.startswith("grad_"))
        last = next(node for node in model.graph.node if name in node.output)
        last.output[list(last.output).index(name)] = "whole"
        held = {"tiny": 1e-30, "huge": 1e30, "share": share, "rest": 1 - share}
        model.graph.initializer.extend(onnx.numpy_helper.from_array(np.float32(v), n) for n, v in held.items())
        make = onnx.helper.make_node
        model.graph.node.extend([
            make("Mul", ["tiny", "tiny"], ["k0"]), make("Mul", ["k0", "huge"], ["k1"]), make("Mul", ["k1", "huge"], ["k2"]),
            make("Mul", ["k2", "share"], ["part"]), make("Add", ["part", "rest"], ["factor"]),
            make("Mul", ["whole", "factor"], [name]),
        ])  # fmt: skip
        return model

    return vjp


def test_what_is_wrong_in_float32_alone_is_seen(monkeypatch):
    graphs = [grow(random.Random(seed), ["Add", "Sin", "Mul"]) for seed in range(8)]
    monkeypatch.setattr(gradgen, "vjp", lossy(gradgen.vjp, 0.01))
    verdicts = [judge(graph) for graph in graphs]
    assert sum(v.kind == "wrong" and "in float32" in v.reason for v in verdicts) >= 5  # in two, that gradient is zero


def test_what_is_wrong_in_float32_alone_is_seen_where_rounding_errs_too(monkeypatch):
    """A layer norm of what a sum has rounded to a hundredth: the gradient in float32 errs by more than a thousandth."""
    held = {"x": [0.1, 0.7, 2.1, 1.2], "base": [3e4] * 4, "c": [0.01] * 4, "w": [0.5, 1.5, -1.0, 2.0]}
    leaves = [Leaf(n, np.array(v, np.float32), False, n in ("base", "c"), [4]) for n, v in held.items()]
    make = onnx.helper.make_node
    nodes = [
        make("Add", ["x", "base"], ["p"]),
        make("LayerNormalization", ["p", "w"], ["q"]),
        make("Mul", ["q", "c"], ["y"]),
    ]
    graph = RandomGraph(nodes, leaves, {n: np.zeros(4, np.float32) for n in "pqy"}, 21, {}, ["x"], ["y"], [])
    assert judge(graph).kind == "right"
    monkeypatch.setattr(random_graph_checks, "_noise", lambda *_: 0.0)
    assert judge(graph).kind == "wrong"  # this is what rounding inside the graph does
    monkeypatch.undo()
    monkeypatch.setattr(gradgen, "vjp", lossy(gradgen.vjp, 0.5))
    verdict = judge(graph)
    assert verdict.kind == "wrong" and "in float32" in verdict.reason


@pytest.mark.parametrize(("tenth", "kind"), [(0.1, "discarded"), (0.12, "right")])
def test_nothing_is_compared_where_float32_rounds_to_another_value(tenth, kind):
    """5·0.1 is 0.5 in float32, and rounds to 0; the float64 copy has a little more and rounds to 1."""
    held = {"x": tenth, "five": 5.0, "base": 200.0, "w": 0.7}
    leaves = [Leaf(n, np.full(3, v, np.float32), n == "w", False, [3]) for n, v in held.items()]
    make = onnx.helper.make_node
    nodes = [
        make("Mul", ["x", "five"], ["p"]), make("Round", ["p"], ["r"]), make("Add", ["r", "base"], ["s"]),
        make("Mul", ["s", "w"], ["y"]),
    ]  # fmt: skip
    values = {name: np.zeros(3, np.float32) for name in "prsy"}
    assert judge(RandomGraph(nodes, leaves, values, 21, {}, ["w"], ["y"], [])).kind == kind
