# Wrong rules, planted: the generated checks must see each of them fail.
"""The checks of gradgen.testing on rules that are wrong."""

from __future__ import annotations

import pytest

from gradgen import testing
from gradgen.engine.registry import Registry, registered
from gradgen.engine.rows import Form, Row
from gradgen.rules.lang import op, traced
from gradgen.rules.library import sum_to
from gradgen.samples import Sample


@traced("dA", "dB")
def right(dC, A, B):
    return sum_to(dC * B, A), sum_to(dC * A, B)


@traced("dA", "dB")
def swapped(dC, A, B):
    return sum_to(dC * A, A), sum_to(dC * B, B)


@traced("dA", "dB")
def scaled(dC, A, B):
    return sum_to(dC * B, A) * 1.00001, sum_to(dC * A, B)


@traced("dA", "dB")
def not_summed(dC, A, B):
    return dC * B, dC * A


@traced("dA", "dB")
def forgets_the_cotangent(dC, A, B):
    return sum_to(dC * 0.0 + B, A), sum_to(dC * A, B)


@traced("dA", "dB")
def wrong_sign_of_b(dC, A, B):
    return sum_to(dC * B, A), op.Neg(sum_to(dC * A, B))


@traced("dA", "dB")
def right_at_first_order_only(dC, A, B):
    # The value is right, but the path through Floor has no derivative: A is read as a constant.
    frozen = op.Floor(A) + (A - op.Floor(A)) * 1.0
    fixed = op.Cast(op.Cast(frozen * 1048576.0, to=7), to=A.dtype) / 1048576.0
    return sum_to(dC * B, A), sum_to(dC * fixed, B)


SAMPLES = [
    Sample("", "Mul", 1, 0, {"A": [3, 4], "B": [3, 4]}, {}),
    Sample("", "Mul", 1, 1, {"A": [2, 1, 4], "B": [3, 1]}, {}),
]
CHECKS = (testing.check_first_order, testing.check_float32, testing.check_dynamic, testing.check_second_order)


def failures(rule, monkeypatch) -> list[str]:
    """The checks that fail with a rule for Mul in place of gradgen's."""
    form = Form(rule.name, "traced", __name__, ("dC", "A", "B"), ("dA", "dB"), function=rule)
    registry = Registry([Row("", "Mul", 1, ("A", "B"), ("C",), (form,))], parent=registered())
    monkeypatch.setattr(testing, "registered", lambda: registry)
    real = testing.vjp
    monkeypatch.setattr(testing, "vjp", lambda *a, **k: real(*a, **{"registry": registry, **k}))
    failed = []
    for check in CHECKS:
        for sample in SAMPLES:
            try:
                check(sample)
            except Exception as error:  # an assertion, or what a wrong shape makes an engine raise
                failed.append(f"{check.__name__}: {type(error).__name__}")
    return failed


def test_a_right_rule_passes(monkeypatch):
    assert failures(right, monkeypatch) == []


@pytest.mark.parametrize(
    "rule", [swapped, scaled, not_summed, forgets_the_cotangent, wrong_sign_of_b], ids=lambda r: r.name
)
def test_a_wrong_rule_is_seen(rule, monkeypatch):
    failed = failures(rule, monkeypatch)
    assert any(f.startswith("check_first_order") for f in failed), failed


def test_a_rule_that_is_wrong_in_second_order_alone_is_seen(monkeypatch):
    failed = failures(right_at_first_order_only, monkeypatch)
    assert any(f.startswith("check_second_order") for f in failed), failed
