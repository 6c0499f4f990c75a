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

# Bodies of attention in which a row that is masked altogether is the softmax of -inf alone, NaN, which a Where replaces
# afterwards. The derivative of the softmax is NaN there; Attention itself has a rule that knows better.
_MASKED = """
    23_boolmask_fullymasked_row_nan_robustness 23_fullymasked_qk_matmul_output_mode3_zero
    24_fullymasked_qk_matmul_output_mode3_zero 24_qk_matmul_output_mode3_softmax_precision
    4d_causal_nonpad_negative_offset_structural_empty causal_boolmask_nan_robustness local_window_gqa_rank4_mask
"""
NOT_FINITE = {f"test_attention_{name}_expanded" for name in _MASKED.split()}


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
    if case.name in NOT_FINITE:
        assert wrong and all("not finite" in record.reason for record in wrong), "take it off the list"
        pytest.xfail("the derivative of a softmax that is NaN")
    assert not outcome.problems and not wrong and not outcome.refused, (outcome.problems, wrong, outcome.refused)
    if outcome.skip:
        pytest.skip(outcome.skip)
    if outcome.moved:
        warnings.warn(f"inputs moved by {outcome.moved}: {'; '.join(outcome.notes)}", stacklevel=1)


def test_few_are_not_right():
    assert len(NOT_FINITE) <= 0.01 * len(CASES) and set(CASES) >= NOT_FINITE


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
