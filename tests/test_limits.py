# What is not run for a check: loops that would not end, and values that fit no memory; in verify and in --check.
"""Tests of gradgen.limits: what is refused, what is not, and that both ways to check a model ask."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from command_line import run
from onnx import parser

import gradgen

HUGE = 2**62


def model(text: str, more: str = "") -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "m" : 1]> {text} {more}')


LOOPED = """g (float[3] x) => (float[3] y) <int64 n = {{{steps}}}, bool yes = {{1}}> {{ {before} y = Loop({given}, x) <
    body = b (int64 i, bool c, float[3] h) => (bool d, float[3] k) {{ {on} k = Sin(h) }}> }}"""
ON = "d = Identity(c)"


@pytest.mark.parametrize(
    ("steps", "before", "given", "on", "said"),
    [
        (HUGE, "", "n, yes", ON, f"runs {HUGE} times"),
        (HUGE, "", "n, ", "d = Constant<value = bool {1}>()", f"runs {HUGE} times"),
        (1, "", ", yes", ON, "runs without end"),
        (HUGE, "m = Identity(n) t = Identity(yes)", "m, t", "e = Identity(c) d = Identity(e)", f"runs {HUGE} times"),
        (1, f"m = Constant<value_int = {HUGE}>()", "m, yes", ON, f"runs {HUGE} times"),
        (1, f"m = Constant<value_ints = [{HUGE}]>()", "m, ", "d = Identity(yes)", f"runs {HUGE} times"),
        (HUGE, "", "n, yes", "o = Constant<value_int = 3>() d = Less(i, o)", None),  # it ends by its condition
        (HUGE, "", "n, yes", "d = Constant<value = bool {0}>()", None),
        (3, "m = Identity(n)", "m, yes", ON, None),
    ],
)
def test_a_loop_that_would_not_end_is_refused(steps, before, given, on, said):
    proto = model(LOOPED.format(steps=steps, before=before, given=given, on=on))
    if said is None:
        assert [r.verdict for r in gradgen.verify(proto)] == ["ok"]
        return
    with pytest.raises(gradgen.GradientError, match=f"Loop 'y' {said}, and .* feed a smaller one, or check a model of"):
        gradgen.verify(proto)


SIBLINGS = """g (float[3] x, bool c) => (float[3] y) {{ y = If(c) <
    then_branch = a () => (float[3] u) <int64 n = {{{first}}}, bool t = {{1}}> {{ u = Loop(n, t, x) <
        body = b (int64 i, bool d, float[3] z) => (bool e, float[3] w) {{ e = Identity(d) w = Sin(z) }}> }},
    else_branch = e () => (float[3] v) {{ n = Constant<value_int = {second}>() nn = Cast<to = 1>(n) v = Mul(x, nn) }}> }}"""


@pytest.mark.parametrize(("first", "second", "refused"), [(3, HUGE, False), (HUGE, 3, True)])
def test_branches_have_names_of_their_own(first, second, refused):
    proto = model(SIBLINGS.format(first=first, second=second))
    onnx.checker.check_model(proto, full_check=True)
    if refused:
        with pytest.raises(gradgen.GradientError, match=f"Loop 'u' runs {HUGE} times"):
            gradgen.verify(proto, wrt=["x"], feeds={"c": np.array(True)})
    else:
        assert [r.verdict for r in gradgen.verify(proto, wrt=["x"], feeds={"c": np.array(True)})] == ["ok"]


NESTED = """g (float[3] x) => (float[3] y) <int64 n = {{{outer}}}, int64 m = {{{inner}}}, bool t = {{1}}> {{ y = Loop(n, t, x) <
    body = b (int64 i, bool d, float[3] z) => (bool e, float[3] w) {{ e = Identity(d) w = Loop(m, t, z) <
        body = r (int64 j, bool f, float[3] p) => (bool s, float[3] q) {{ s = Identity(f) q = Sin(p) }}> }}> }}"""


@pytest.mark.parametrize(("outer", "inner", "refused"), [(4000, 4000, True), (2, 3, False), (0, 3, False)])
def test_the_steps_of_loops_in_loops_are_multiplied(outer, inner, refused):
    proto = model(NESTED.format(outer=outer, inner=inner))
    if refused:
        with pytest.raises(gradgen.GradientError, match="Loop 'w' runs 16000000 times"):
            gradgen.verify(proto)
    else:
        assert [r.verdict for r in gradgen.verify(proto)] == ["ok"]


@pytest.mark.parametrize("steps", [3, HUGE])
def test_the_trip_count_of_a_function_is_what_it_is_called_with(steps):
    proto = model(
        f"g (float[3] x) => (float[3] y) <int64 k = {{{steps}}}> {{ y = m.Again(x, k) }}",
        """<domain: "m", opset_import: ["" : 21]> Again (a, n) => (b) { t = Constant<value = bool {1}>() b = Loop(n, t, a) <
        body = r (int64 j, bool f, float[3] p) => (bool s, float[3] q) { s = Identity(f) q = Sin(p) }> }""",
    )
    if steps > 3:
        with pytest.raises(gradgen.GradientError, match=f"Loop 'b' runs {HUGE} times"):
            gradgen.verify(proto)
    else:
        assert [r.verdict for r in gradgen.verify(proto)] == ["ok"]


@pytest.mark.parametrize("stored", [True, False])
def test_a_trip_count_that_is_fed_is_the_one_that_counts(stored):
    text = LOOPED.format(steps=HUGE, before="", given="n, yes", on=ON)
    proto = model(text.replace("(float[3] x)", "(float[3] x, int64 n)", 1))
    if not stored:
        del proto.graph.initializer[0]
    assert [r.verdict for r in gradgen.verify(proto, feeds={"n": np.array(3)})] == ["ok"]
    with pytest.raises(gradgen.GradientError, match=f"runs {HUGE} times"):
        gradgen.verify(proto, feeds={} if stored else {"n": np.array(HUGE)})


def test_a_loop_that_is_not_valid_is_told_so():
    proto = model(LOOPED.format(steps=3, before="", given="n, yes", on=ON))
    del proto.graph.node[0].attribute[0].g.input[1:]
    with pytest.raises(gradgen.GradientError, match="the model is not valid: "):
        gradgen.verify(proto)


DOUBLED = " ".join(f"d{k + 1} = Concat<axis = 0>(d{k}, d{k})" for k in range(40))
DOUBLED = f"g (float[3] d0) => (float y) {{ {DOUBLED} y = ReduceSum<keepdims = 0>(d40) }}"


def test_a_value_that_fits_no_memory_is_refused():
    with pytest.raises(gradgen.GradientError, match=r"'d29' has 1610612736 elements, and .* Feed smaller inputs"):
        gradgen.verify(model(DOUBLED))


@pytest.mark.parametrize("command", [("verify",), ("grad", "--check", "--reduce", "sum"), ("vjp", "--check")])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOOPED.format(steps=HUGE, before="", given="n, yes", on=ON), f"runs {HUGE} times"),
        (DOUBLED, "elements, and a check"),
    ],
    ids=["loop", "size"],
)
def test_both_ways_to_check_ask(tmp_path, command, text, said):
    path, target = tmp_path / "m.onnx", tmp_path / "g.onnx"
    onnx.save(model(text), path)
    result = run(*command, path, *(["-o", target] if "--check" in command else []))
    assert result.exit_code == 2 and said in result.stderr
    assert "--check" not in command or f"'{target}' is written, but the check could not run: " in result.stderr
