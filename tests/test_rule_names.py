# Registering a rule: the op, its version and the names of what is returned must be what they claim to be.
"""Tests of how `register_vjp` refuses names, and `registry=` what is no registry."""

from __future__ import annotations

import pytest
from onnx import parser
from onnxscript import opset21 as op
from onnxscript import script
from onnxscript.values import Opset

import gradgen

RULES = Opset("my.rules", 1)

TRACED = """from gradgen.engine.rows import Form, Row
FORM = Form("relu_vjp", "traced", "not_on_the_path", ("dY", "X"), ("dX",))
LIBRARIES, ROWS = [], (Row("", "Relu", 1, ("X",), ("Y",), (FORM,)),)
"""


@script(RULES, default_opset=op)
def good(dY, X):
    dX = dY * X
    return dX


@script(RULES, default_opset=op)
def named_otherwise(dY, X):
    gX = dY * X
    return gX


@script(RULES, default_opset=op)
def named_for_nothing(dY, X):
    dZ = dY * X
    return dZ


@script(RULES, default_opset=op)
def an_expression(dY, X):
    return dY * X


@pytest.mark.parametrize(
    ("domain", "op_type", "rule", "version", "message"),
    [
        ("", "Reluu", good, 1, r"ai.onnx has no op 'Reluu' \(near matches: Relu"),
        ("ai.onnx", "softmax", good, 1, r"ai.onnx has no op 'softmax' \(near matches: .*Softmax"),
        ("ai.onnx.ml", "Scalar", good, 1, r"near matches: Scaler"),
        ("", "Relu", good, "x", "version is .* not 'x'"),
        ("", "Relu", good, 0, "version is .* not 0"),
        ("", 3, good, 1, "op_type is a str, not 3"),
        (None, "Relu", good, 1, "domain is a str, not None"),
        ("mine", "Foo", named_otherwise, 1, r"returns \['gX'\]; .* for the gradient of 'X', dX"),
        ("mine", "Foo", an_expression, 1, r"for the gradient of 'X', dX"),
        ("mine", "Foo", named_for_nothing, 1, r"reads \['X'\], .* inputs= and outputs= do"),
    ],
)
def test_what_names_no_op_or_input_is_refused(domain, op_type, rule, version, message):
    registry = gradgen.Registry()
    with pytest.raises(gradgen.GradientError, match=message):
        gradgen.register_vjp(domain, op_type, rule, version=version, registry=registry)
    assert registry.find(str(domain), str(op_type), 21) is gradgen.Registry().find(str(domain), str(op_type), 21)


def test_ops_of_domains_of_ones_own_have_any_name():
    registry = gradgen.Registry()
    gradgen.register_vjp("mine", "Reluu", good, registry=registry)
    gradgen.register_vjp("", "Relu", good, registry=registry)  # one that the standard has
    assert registry.find("mine", "Reluu", 1) and registry.find("", "Relu", 21).forms[0].rule == "ai_onnx_Relu_1_vjp"


def test_a_folder_is_no_registry():
    with pytest.raises(gradgen.GradientError, match=r"not str; gradgen.Registry.load\(folder\) reads"):
        gradgen.vjp("model.onnx", registry="mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (", "holds a broken library, generate it again"),
        ("LIBRARIES = ['a.onnxtxt']", "holds a broken library"),
        (TRACED, "the rule 'relu_vjp' is in the module 'not_on_the_path': put its folder on the Python path"),
    ],
)
def test_a_library_that_cannot_be_used(tmp_path, text, message):
    (tmp_path / "registry.py").write_text(text)
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { y = Relu(x) }'
    )
    with pytest.raises(gradgen.GradientError, match=message):
        gradgen.vjp(model, registry=gradgen.Registry.load(tmp_path))
