# The branches for the ranks of a value: what an If gives is what each of them gives.
"""Tests of gradgen.rules.ranks.chosen, which asks a rule for its results once for each rank."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from gradgen.engine.builder import Builder
from gradgen.engine.values import Value
from gradgen.rules.lang import building, op
from gradgen.rules.ranks import chosen


@pytest.mark.parametrize(
    ("different", "agrees"),
    [(lambda y: (y, None), True), (lambda y: (None, y), False), (lambda y: (y, y), False), (lambda y: y, False)],
)
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_branches_with_other_results_are_not_joined(rank, different, agrees):
    x = Value(ir.DataType.FLOAT, None)

    def trace(at: int):
        y = op.Neg(x)
        return different(y) if at == rank else (y, None)

    with building(Builder(opset=21)):
        if agrees:
            first, second = chosen(x, [2, 3, 4], trace)
            assert first is not None and second is None
        else:
            with pytest.raises(AssertionError, match=r"for ranks \[4, 3, 2\] the results are"):
                chosen(x, [2, 3, 4], trace)
