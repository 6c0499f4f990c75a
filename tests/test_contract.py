# The contract of rules: a result of another size or type than its input is refused, and what is known is kept.
"""Tests of gradgen.engine.contract and of what the walk does with it."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import parser
from onnxscript import opset21 as op21
from onnxscript import script
from onnxscript.values import Opset

import gradgen
from gradgen.engine.contract import conform, merge_shapes
from gradgen.engine.registry import Registry, registered
from gradgen.rules.lang import op, traced

MINE = Opset("mine", 1)


def model(types: str, body: str = "c = mine.Plus(a, b)") -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21, "mine" : 1]>\ng ({types}) => (float[2,3] c) {{ {body} }}'
    )


def rules(rule, **options) -> Registry:
    registry = Registry(parent=registered())
    gradgen.register_vjp("mine", "Plus", rule, inputs=["a", "b"], outputs=["c"], registry=registry, **options)
    return registry


@script(MINE, default_opset=op21)
def plus_vjp(dc):
    """Forgets that b was broadcast."""
    da = op21.Identity(dc)
    db = op21.Neg(dc)
    return da, db


@traced("da", "db")
def unchanged(dc):
    return dc, dc


@traced("da", "db")
def widened(dc, b):
    return dc, op.Cast(op.ReduceSum(dc, [0], keepdims=0), to=ir.DataType.DOUBLE)


@pytest.mark.parametrize("rule", [plus_vjp, unchanged])
@pytest.mark.parametrize("body", ["c = mine.Plus(a, b)", "e = mine.Plus(a, b)\n c = Exp(e)"])
def test_a_result_of_the_wrong_shape_is_refused(rule, body):
    with pytest.raises(gradgen.GradientError, match=r"rule '.*' gives float\[2, 3\] for 'b', which is float\[3\]"):
        gradgen.vjp(model("float[2,3] a, float[3] b", body), registry=rules(rule))


@pytest.mark.parametrize("rule", [plus_vjp, unchanged])
def test_a_result_of_the_wrong_rank_is_refused_with_open_sizes(rule):
    with pytest.raises(gradgen.GradientError, match=r"gives .* for 'b', which is float\[N\]"):
        gradgen.vjp(model("float[2,3] a, float[N] b"), registry=rules(rule))


def test_a_result_of_the_wrong_type_is_refused():
    with pytest.raises(gradgen.GradientError, match=r"gives double\[3\] for 'b', which is float\[3\].*CastLike"):
        gradgen.vjp(model("float[2,3] a, float[3] b"), registry=rules(widened))


def test_the_right_result_passes():
    @traced("da", "db")
    def plus(dc):
        return dc, op.ReduceSum(dc, [0], keepdims=0)

    result = gradgen.vjp(model("float[2,3] a, float[3] b"), registry=rules(plus))
    onnx.checker.check_model(result, full_check=False)


def test_a_pass_through_in_a_branch_is_refused():
    body = """c = If(p) <then_branch = t () => (float[2,3] y) { y = mine.Plus(a, b) },
        else_branch = e () => (float[2,3] z) { z = Identity(a) }>"""
    with pytest.raises(gradgen.GradientError, match=r"for 'b', which is float\[3\]"):
        gradgen.vjp(model("float[2,3] a, float[3] b, bool p", body), wrt=["a", "b"], registry=rules(unchanged))


def value(shape, kind=ir.DataType.FLOAT, made=True) -> ir.Value:
    shape = None if shape is None else ir.Shape(shape)
    found = ir.Value(name="v", type=None if kind is None else ir.TensorType(kind), shape=shape)
    return ir.Node("", "Relu", [None], outputs=[found]).outputs[0] if made else found


@pytest.mark.parametrize(
    ("own", "like", "merged"),
    [
        ((2, 3), None, (2, 3)),
        (None, ("N", 3), ("N", 3)),
        ((2, None), ("N", 3), (2, 3)),
        (("M", "K"), ("N", None), ("N", "K")),
        ((), (), ()),
    ],
)
def test_what_is_known_of_both_is_kept(own, like, merged):
    assert merge_shapes(own, like) == merged
    result = value(own)
    conform(result, value(like), "it")
    assert tuple(d if isinstance(d, int) else d.value for d in result.shape.dims) == merged


def test_what_no_node_computes_is_checked_and_not_changed():
    outer = value(("N", None), made=False)
    conform(outer, value((2, 3)), "it")
    assert [d.value for d in outer.shape.dims] == ["N", None]
    with pytest.raises(gradgen.GradientError, match="it gives"):
        conform(outer, value((2,)), "it")


def test_an_unknown_type_is_learnt():
    result = value(None, None)
    conform(result, value((2,), ir.DataType.FLOAT16), "it")
    assert result.dtype == ir.DataType.FLOAT16
