# If with a constant condition whose branches hold such Ifs again: the branch that is taken stays, all else goes.
"""Tests of settling nested conditions that are constants of the model."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import gradgen

# Conditions of the outer If, and of those in its branches.
CASES = [(o, t, e) for o in (False, True) for t in (False, True) for e in (False, True)]
# The derivative of what is computed: Exp or Sin in the one branch, Cos or Neg in the other.
SLOPES = {
    (True, True): np.exp,
    (True, False): np.cos,
    (False, True): lambda x: -np.sin(x),
    (False, False): lambda x: -1 + 0 * x,
}


def inner(name: str, condition: bool, yes: str, no: str) -> str:
    return f"""{name} = g_{name} () => (float[3] {name}_r) {{
        {name}_c = Constant<value = bool {{{int(condition)}}}>()
        {name}_r = If({name}_c) <
            then_branch = t_{name} () => (float[3] {name}_t) {{ {name}_t = {yes}(x) }},
            else_branch = e_{name} () => (float[3] {name}_e) {{ {name}_e = {no}(x) }}>
    }}"""


@pytest.mark.parametrize(("outer", "then_inner", "else_inner"), CASES)
@pytest.mark.parametrize("where", ["node", "initializer"])
def test_nested_constant_conditions(outer, then_inner, else_inner, where):
    stored = f"<bool c = {{{int(outer)}}}>" if where == "initializer" else ""
    constant = "" if stored else f"c = Constant<value = bool {{{int(outer)}}}>()"
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x) => (float[3] y) {stored} {{
            {constant}
            y = If(c) <{inner("then_branch", then_inner, "Exp", "Sin")}, {inner("else_branch", else_inner, "Cos", "Neg")}>
        }}""")
    x = np.array([0.3, -0.7, 1.1], np.float32)
    gradient = gradgen.grad(model, reduce="sum")
    assert all(n.op_type != "If" for n in gradient.graph.node)
    (found,) = onnxruntime.InferenceSession(gradient.SerializeToString()).run(None, {"x": x})
    slope = SLOPES[outer, then_inner if outer else else_inner]
    np.testing.assert_allclose(found, slope(x), rtol=1e-5)
