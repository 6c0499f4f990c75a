# The onnx package's node tests, as gradients: every case with floats that onnxruntime runs, against differences.
from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from node_cases import cases, compare, dynamic, frozen, is_single, shipped

import gradgen

CASES = cases()
SHIPPED = shipped()
SINGLE = {name: case for name, case in CASES.items() if is_single(case)}
# Where there are no one-sided derivatives at the data, nor of the pieces beside it: compared on shifted data alone.
ON_A_KINK = {
    "test_acosh_example": "the slope at 1 is infinite, and nothing lies on the other side",
    "test_mod_float_edge_cases_fmod_0_float16": "a dividend of zero, or a multiple: it jumps on both sides",
    "test_mod_float_edge_cases_fmod_0_float32": "a dividend of zero, or a multiple: it jumps on both sides",
    "test_mod_float_edge_cases_fmod_0_float64": "a dividend of zero, or a multiple: it jumps on both sides",
    "test_unique_not_sorted_without_axis": "equal values: one that moves adds an output element",
    "test_unique_sorted_with_axis": "equal values: one that moves adds an output element",
    "test_unique_sorted_with_axis_3d": "equal values: one that moves adds an output element",
    "test_unique_sorted_with_negative_axis": "equal values: one that moves adds an output element",
    "test_unique_sorted_without_axis": "equal values: one that moves adds an output element",
}
FROZEN = {name: case for name, given in SINGLE.items() if (case := frozen(given)) is not None}


def test_the_cases_are_there():
    assert len(CASES) > 1200


def test_a_wrong_gradient_is_seen(monkeypatch):
    right = gradgen.vjp

    def wrong(*arguments, **options):
        model = right(*arguments, **options)
        last = next(node for node in model.graph.node if "grad_x" in node.output)
        last.output[list(last.output).index("grad_x")] = "flipped"
        model.graph.node.append(onnx.helper.make_node("Neg", ["flipped"], ["grad_x"]))
        return model

    monkeypatch.setattr(gradgen, "vjp", wrong)
    assert [r.verdict for r in compare(CASES["test_add"]).records] == ["wrong", "ok"]


def test_few_cases_sit_where_nothing_can_be_compared():
    assert set(ON_A_KINK) <= {*CASES, *SHIPPED}
    for group in (CASES, SHIPPED):
        assert len(set(ON_A_KINK) & set(group)) <= 0.02 * len(group)


@pytest.mark.parametrize("name", ["test_elu_example", "test_floor_example", "test_gridsample_bilinear"])
def test_a_wrong_gradient_is_seen_at_a_kink(name, monkeypatch):
    right = gradgen.vjp

    def wrong(*arguments, wrt, **options):
        model = right(*arguments, wrt=wrt, **options)
        output = f"grad_{wrt[-1]}"
        last = next(node for node in model.graph.node if output in node.output)
        last.output[list(last.output).index(output)] = "smaller"
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.01), "off"))
        model.graph.node.append(onnx.helper.make_node("Sub", ["smaller", "off"], [output]))
        return model

    assert compare(CASES[name]).one_sided
    monkeypatch.setattr(gradgen, "vjp", wrong)
    assert any(problem.startswith("at a kink") for problem in compare(CASES[name]).problems)


def _judge(case):
    outcome = compare(case)
    wrong = [record for record in outcome.records if record.verdict == "wrong"]
    assert not outcome.problems and not wrong and not outcome.refused, (outcome.problems, wrong, outcome.refused)
    assert not outcome.unjudged or case.name in ON_A_KINK, (outcome.unjudged, outcome.notes)
    if outcome.skip:
        pytest.skip(outcome.skip)
    if outcome.moved:
        where = f"one-sided at the data: {outcome.one_sided}; not at all there: {outcome.unjudged}"
        warnings.warn(f"inputs moved by {outcome.moved}; {where}; {'; '.join(outcome.notes)}", stacklevel=1)


@pytest.mark.parametrize("name", sorted(CASES))
def test_gradient(name):
    _judge(CASES[name])


@pytest.mark.parametrize("name", sorted(FROZEN))
def test_gradient_with_constant_settings(name):
    _judge(FROZEN[name])


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_gradient_with_dynamic_shapes(name):
    _judge(dynamic(SINGLE[name]))


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_gradient_of_a_shipped_model(name):
    _judge(SHIPPED[name])
