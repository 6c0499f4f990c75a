# The onnx package's node tests, as gradients: every case of the first operators against float64 differences.
from __future__ import annotations

import warnings

import pytest
from node_cases import cases, compare

CASES = cases()


def test_the_cases_are_there():
    assert len(CASES) > 400


@pytest.mark.parametrize("name", sorted(CASES))
def test_gradient(name):
    outcome = compare(CASES[name])
    wrong = [record for record in outcome.records if record.verdict == "wrong"]
    assert not outcome.problems and not wrong, (outcome.problems, wrong)
    if outcome.skip:
        pytest.skip(outcome.skip)
    if outcome.moved:
        warnings.warn(f"inputs moved by {outcome.moved}: {'; '.join(outcome.notes)}", stacklevel=1)
