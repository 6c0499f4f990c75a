# Fuzzing: a thousand mutants of models, each refused in words or differentiated into a valid model.
"""Runs tests/mutants.py over ranges of mutants, each range in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mutants
import onnx
import pytest

import gradgen

SCRIPT = Path(mutants.__file__)
COUNT, RANGE = 1000, 250


@pytest.mark.skipif(sys.platform != "linux", reason="the limits are those of Linux")
@pytest.mark.parametrize("first", range(0, COUNT, RANGE))
def test_mutants_are_refused_or_differentiated(first):
    last = first + RANGE
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(first), str(last)], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"mutant {lines[-1] if lines else first} ended the process: {done.stderr[-1000:]}"
    assert [int(line.split()[0]) for line in lines] == list(range(first, last))
    wrong = [line for line in lines if line.split(maxsplit=1)[1] not in ("refused", "differentiated")]
    assert not wrong, "\n".join(wrong)
    counts = {kind: sum(line.endswith(kind) for line in lines) for kind in ("refused", "differentiated")}
    assert counts["refused"] > 100 and counts["differentiated"] > 15, counts  # else the mutants are not worth much


def test_a_mutant_is_the_same_in_every_run():
    models = mutants.seeds()
    assert len(models) > 20
    first = [mutants.mutant(number, models) for number in range(40)]
    assert first == [mutants.mutant(number, models) for number in range(40)]
    assert len(set(first) - set(models)) > 30  # some mutations find nothing to change


@pytest.mark.parametrize("size", [2**31, 2**33, 2**61])
@pytest.mark.parametrize("call", ["Conv(x, w)", "Concat<axis = 2>(x, x)", "AveragePool<kernel_shape = [2, 2]>(x)"])
def test_sizes_whose_products_overflow_are_differentiated_or_refused(size, call):
    """Models that onnx's checker takes, whose gradients it may not: that onnx overflows is no fault of theirs."""
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,1,{size},{size}] x, float[1,1,3,3] w) => (float[a,b,c,d] y) {{ y = {call} }}""")
    onnx.checker.check_model(proto, full_check=True)
    assert mutants.outcome(proto.SerializeToString()) in ("differentiated", "refused")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda *_: (_ for _ in ()).throw(RecursionError("too deep")), "RecursionError: too deep"),
        (lambda *_: (_ for _ in ()).throw(gradgen.GradientError("no")), "refused"),
        (lambda proto: onnx.ModelProto(ir_version=10), "the model is valid, its vjp is not"),
        (lambda proto: proto, "differentiated"),
    ],
)
def test_an_outcome_that_must_not_be_is_seen(monkeypatch, fault, said):
    monkeypatch.setattr("gradgen.vjp", fault, raising=False)
    assert mutants.outcome(mutants.seeds()[0]).startswith(said)
