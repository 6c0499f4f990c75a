"""Gradients of If: branches, constant conditions, shapes that differ, recurrent layers inside, second order."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from loops import check, model
from onnx import parser

import gradgen

RNG = np.random.default_rng(5)


def draw(*shape):
    return RNG.uniform(-1, 1, shape)


@pytest.mark.parametrize("c", [True, False])
def test_branches_with_several_outputs(c):
    text = """
    g (bool c, double[3] x, double[3] w) => (double[3] y, double[N] z, int64 n) {
      h = Mul(x, w)
      y, z, n = If(c) <
        then_branch = a () => (double[3] y1, double[3] z1, int64 n1) {
          s = Mul(h, h) y1 = Sin(s) z1 = Mul(x, s) n1 = Constant <value_int=1> ()
        },
        else_branch = b () => (double[3] y2, double[2] z2, int64 n2) {
          y2 = Identity(w) n2 = Constant <value_int=2> ()
          k = Constant <value_ints=[0, 2]> ()
          z2 = Gather(h, k)
        }
      >
    }"""
    check(model(text), {"c": np.bool_(c), "x": draw(3), "w": draw(3)})
    check(model(text), {"c": np.bool_(c), "x": draw(3), "w": draw(3)}, of=["z"])


def test_a_branch_that_no_cotangent_reaches_gives_zeros():
    text = """
    g (bool c, double[3] x, double[3] w) => (double[3] y) {
      y = If(c) < then_branch = a () => (double[3] t) { t = Floor(w) }, else_branch = b () => (double[3] e) { e = Mul(x, w) } >
    }"""
    for c in (True, False):
        check(model(text), {"c": np.bool_(c), "x": draw(3), "w": draw(3)}, second=not c)


def test_a_constant_decides():
    """The branch takes the place of the node; the other one may hold what has no gradient."""
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
        g (double[N,2] x, double[2] w) => (double[M] y) <int64 rate = {16000}> {
            known = Constant <value_int=16000> ()
            same = Equal(rate, known)
            shape = Shape(x)
            y = If(same) <
                then_branch = t () => (double[K] a) {
                    rank = Size(shape)
                    two = Constant <value_int=2> ()
                    flat = Equal(rank, two)
                    a = If(flat) <
                        then_branch = tt () => (double[K] c) {
                            axes = Constant <value_ints=[1]> ()
                            m = Mul(x, w)
                            c = ReduceSum <keepdims=0> (m, axes)
                        },
                        else_branch = te () => (double[K] d) { d = my.Inner(x) }
                    >
                },
                else_branch = e () => (double[K] b) { b = my.Other(x) }
            >
        }"""
    )
    result = gradgen.vjp(proto, wrt=["x", "w"])
    assert "If" not in {n.op_type for n in result.graph.node}
    del proto.opset_import[1]
    text = """
    g (double[N,2] x, double[2] w) => (double[M] y) {
        axes = Constant <value_ints=[1]> ()
        m = Mul(x, w)
        y = ReduceSum <keepdims=0> (m, axes)
    }"""
    check(model(text), {"x": draw(3, 2), "w": draw(2)})


@pytest.mark.parametrize("c", [True, False])
def test_what_training_changes_decides_nothing(c):
    """A condition on a float initializer is left to the run."""
    text = """
    g (double[2] x) => (double[2] y) <double limit = {0.5}, double[2] w = {0.3, 0.6}> {
      k = ReduceSum <keepdims=0> (w)
      c = Less(k, limit)
      y = If(c) < then_branch = a () => (double[2] t) { t = Mul(x, w) }, else_branch = b () => (double[2] e) { e = Sin(x) } >
    }"""
    result = check(model(text), {"x": draw(2)})
    assert "If" in {n.op_type for n in result.graph.node}


def test_initializers_of_a_branch_are_shared():
    proto = model(
        """
        g (bool c, double[2] x) => (double[2] y) {
          y = If(c) <
            then_branch = a () => (double[2] t) <double[2] w = {1.5, 2.0}> { s = Mul(x, w) t = Mul(s, x) },
            else_branch = b () => (double[2] e) <double[2] w = {0.5, 3.0}> { e = Mul(x, w) }
          >
        }"""
    )
    for c in (True, False):
        result = check(proto, {"c": np.bool_(c), "x": draw(2)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(gradgen.parameters(proto)) == 2
    inner = [g.g for n in result.graph.node for g in n.attribute if g.name == "then_branch"]
    assert not any(g.initializer for g in inner)
