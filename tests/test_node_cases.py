# The onnx package's node tests, as gradients: every case with floats that onnxruntime runs, against differences.
from __future__ import annotations

import warnings

import onnx
import pytest
from node_cases import cases, compare, dynamic, frozen, is_single, shipped

import gradgen

CASES = cases()
SHIPPED = shipped()
SINGLE = {name: case for name, case in CASES.items() if is_single(case)}
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


def _judge(case):
    outcome = compare(case)
    wrong = [record for record in outcome.records if record.verdict == "wrong"]
    assert not outcome.problems and not wrong and not outcome.refused, (outcome.problems, wrong, outcome.refused)
    if outcome.skip:
        pytest.skip(outcome.skip)
    if outcome.moved:
        warnings.warn(f"inputs moved by {outcome.moved}: {'; '.join(outcome.notes)}", stacklevel=1)


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
