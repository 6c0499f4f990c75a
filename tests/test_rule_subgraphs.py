# Traced rules that emit nodes with graphs: Scan over states and sequences, If, captures, nesting.
"""Tests of gradgen.rules.lang.subgraph and scan."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

import gradgen
from gradgen.engine.registry import Registry, registered
from gradgen.rules.lang import op, scan, subgraph, traced

X = np.array([1.0, -2.0, 3.0], np.float32)


def gradient(rule: Any, n: str = "n") -> onnx.ModelProto:
    """The gradient model of z = (x + w) + w where `rule` stands for the rule of Add: it is called B."""
    registry = Registry(parent=registered())
    gradgen.register_vjp("", "Add", rule, linear=False, registry=registry)
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
g (float[{n}] x, float[1] w) => (float[{n}] z) {{ v = Squeeze(w)
 y = Add(x, v)
 z = Add(y, v) }}"""
    result = gradgen.vjp(parser.parse_model(text), wrt=["x"], registry=registry)
    onnx.checker.check_model(result, full_check=True)
    return result


def run(model: onnx.ModelProto, x: np.ndarray, w: float, ct: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["grad_x"], {"x": x, "w": np.asarray([w], np.float32), "grad_z": ct})[0]


@traced("dA")
def decayed(dC, A, B):
    """dx_t = dC_t + w·dx_(t+1): a Scan from the last step, which captures w."""

    def step(states, elements):
        total = elements[0] + states[0] * B
        return [total], [total]

    _, (result,) = scan(step, [B * 0.0], [dC], reverse=True)
    return result


@pytest.mark.parametrize("n", ["n", "3"])
def test_a_scan_from_the_last_step_captures_a_value(n):
    ct = np.array([1.0, 2.0, 4.0], np.float32)
    model = gradient(decayed, n)
    once = np.array([[1, 0.5, 0.25], [0, 1, 0.5], [0, 0, 1]])
    np.testing.assert_allclose(run(model, X, 0.5, ct), once @ once @ ct)
    assert sum(node.op_type == "Scan" for node in model.graph.node) == 2


def test_the_values_of_a_body_have_types_and_names_of_their_own():
    model = gradient(decayed)
    bodies = [a.g for node in model.graph.node for a in node.attribute if a.name == "body"]
    names = [o for g in bodies for node in g.node for o in node.output]
    assert len(bodies) == 2 and len(set(names)) == len(names)
    for body in bodies:
        known = {v.name for v in (*body.input, *body.output, *body.value_info) if v.type.tensor_type.elem_type}
        assert {o for node in body.node for o in node.output} <= known
    stacked = next(node.output[-1] for node in model.graph.node if node.op_type == "Scan")
    declared = {v.name: v.type.tensor_type for v in (*model.graph.value_info, *model.graph.output)}
    assert [d.dim_param for d in declared[stacked].shape.dim] == ["n"]


@traced("dA")
def branched(dC, A, B):
    """dx = dC·w where the sum of x is positive, else a Scan inside the branch: running sums of dC times w."""

    def running(states, elements):
        total = states[0] + elements[0] * B
        return [total], [total]

    def otherwise():
        return scan(running, [B * 0.0], [dC])[1]

    positive = op.Greater(op.ReduceSum(A, keepdims=0), 0.0)
    return op.If(positive, then_branch=subgraph([], lambda: dC * B), else_branch=subgraph([], otherwise))


@pytest.mark.parametrize("shift", [0, -1, -5])
def test_a_scan_inside_a_branch_reads_values_of_both_graphs(shift):
    """The sums are 2 + 3·shift for the first call and 1.5 more for the second."""
    ct = np.array([1.0, 2.0, 4.0], np.float32)
    want = ct
    for x in (X + shift + 0.5, X + shift):
        want = 0.5 * (want if x.sum() > 0 else np.tri(3) @ want)
    np.testing.assert_allclose(run(gradient(branched), X + np.float32(shift), 0.5, ct), want)


@traced("dA")
def constant_results(dC, A, B):
    """Results that are a parameter, a captured value, a constant and one value twice: copied inside the body."""

    def step(states, elements):
        return [states[0]], [elements[0], B, 2.0, elements[0]]

    _, (a, b, c, d) = scan(step, [B], [dC])
    return a + b * c + d


def test_a_body_may_return_what_it_does_not_compute():
    model = gradient(constant_results)
    np.testing.assert_allclose(run(model, X, 0.5, X), 2 * (2 * X + 1) + 1)
