# Gradient nodes of the standard inside subgraphs, and through nodes that have some.
"""Tests of lower_gradient_ops with If and Loop."""

from __future__ import annotations

import numpy as np
import pytest
from lowering_models import differences, draw, gradient, lower, model, run

import gradgen


def test_in_the_body_of_a_loop():
    """Newton's method: the derivative at each iterate."""
    text = f"""g (double x0, int64 n) => (double x) {{
      one = Constant <value_int = 1> ()
      go = Cast <to = 9> (one)
      x = Loop (n, go, x0) <body = b (int64 i, bool c, double a) => (bool d, double next) {{
        d = Identity(c)
        square = Mul(a, a)
        y = Sub(square, two)
        {gradient("slope", "a", "a", "y")}
        step = Div(y, slope)
        next = Sub(a, step)
      }}> }}"""
    found = run(lower(model(text, two=np.array(2.0))), x0=np.array(1.0), n=np.array(6))
    np.testing.assert_allclose(found["x"], np.sqrt(2), rtol=1e-12)


def test_a_loop_with_a_gradient_in_it_is_differentiated():
    text = f"""g (double[3] x, int64 n) => (double[3] y, double[3] dx) {{
      one = Constant <value_int = 1> ()
      go = Cast <to = 9> (one)
      y = Loop (n, go, x) <body = b (int64 i, bool c, double[3] a) => (bool d, double[3] next) {{
        d = Identity(c)
        e = Sin(a)
        {gradient("slope", "a", "a", "e")}
        next = Mul(slope, a)
      }}>
      {gradient("dx", "x, n", "x", "y", "n")} }}"""

    def value(x):
        for _ in range(3):
            x = np.cos(x) * x
        return x

    x = draw(3)
    found = run(lower(model(text)), x=x, n=np.array(3))
    np.testing.assert_allclose(found["y"], value(x), rtol=1e-12)
    np.testing.assert_allclose(found["dx"], differences(value, x), rtol=1e-6, atol=1e-8)


def test_in_a_branch_with_values_of_the_graph_around_it():
    text = f"""g (double[3] x, bool c) => (double[3] z) {{
      z = If (c) <
        then_branch = t () => (double[3] u) {{ y = Sin(x)
          {gradient("u", "x", "x", "y")} }},
        else_branch = e () => (double[3] v) {{ v = Neg(x) }}> }}"""
    lowered = lower(model(text))
    x = draw(3)
    np.testing.assert_allclose(run(lowered, x=x, c=np.array(True))["z"], np.cos(x), rtol=1e-12)
    np.testing.assert_allclose(run(lowered, x=x, c=np.array(False))["z"], -x)


def test_a_node_with_a_body_runs_again_at_other_values():
    text = f"""g (double[3] x, double[3] v, int64 n) => (double[3] y, double[3] dx) {{
      one = Constant <value_int = 1> ()
      go = Cast <to = 9> (one)
      y = Loop (n, go, x) <body = b (int64 i, bool c, double[3] a) => (bool d, double[3] next) {{
        d = Identity(c)
        s = Sin(a)
        next = Mul(s, x)
      }}>
      {gradient("dx", "v, n", "x", "y", "n")} }}"""

    def value(x):
        a = x
        for _ in range(3):
            a = np.sin(a) * x
        return a

    x, v = draw(3), draw(3, seed=1)
    found = run(lower(model(text)), x=x, v=v, n=np.array(3))
    np.testing.assert_allclose(found["y"], value(x), rtol=1e-12)
    np.testing.assert_allclose(found["dx"], differences(value, v), rtol=1e-6, atol=1e-8)


def test_a_path_that_leads_out_of_the_body_is_refused():
    text = f"""g (double[3] x, bool c) => (double[3] z) {{
      h = Exp(x)
      z = If (c) <
        then_branch = t () => (double[3] u) {{ y = Sin(h)
          {gradient("u", "x", "x", "y")} }},
        else_branch = e () => (double[3] v) {{ v = Neg(x) }}> }}"""
    with pytest.raises(
        gradgen.GradientError, match="Gradient node 'u': y: 'y' depends on 'x' through 'h', which is compu"
    ):
        gradgen.lower_gradient_ops(model(text))
