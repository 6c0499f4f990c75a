# Versions of rules: a custom domain has versions of its own, and the standard's do not count there.
"""Tests of which row holds for a node, by the versions that its model imports."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper, parser

import gradgen
from gradgen.engine.registry import Registry, Rules
from gradgen.rules.lang import op, traced


def rule(factor: float):
    def scaled_vjp(dy):
        return op.Mul(dy, factor)

    scaled_vjp.__name__ = f"scaled{int(factor)}_vjp"
    return traced("dx")(scaled_vjp)


def registry(*versions: int) -> Registry:
    found = Registry()
    for version in versions:
        options = {"inputs": ["x"], "outputs": ["y"], "version": version, "registry": found}
        gradgen.register_vjp("my", "Scaled", rule(version), **options)
    return found


def model(version: int, opset: int = 21, body: str = "y = my.Scaled(x)") -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}, "my" : {version}]>\n'
        f"g (float[3] x, bool p) => (float[3] y) {{ {body} }}"
    )


def factors(proto: onnx.ModelProto) -> list[float]:
    """The constants of the graph, one for each version's rule."""
    return [float(onnx.numpy_helper.to_array(t).reshape(-1)[0]) for t in proto.graph.initializer]


BRANCH = """y = If(p) <then_branch = t () => (float[3] s) { s = my.Scaled(x) },
    else_branch = e () => (float[3] z) { z = Identity(x) }>"""


@pytest.mark.parametrize("body", ["y = my.Scaled(x)", BRANCH])
@pytest.mark.parametrize(("imported", "used"), [(2, 2), (3, 2), (99, 2), (100, 100), (120, 100)])
def test_the_row_of_the_version_that_the_model_imports(imported, used, body):
    assert factors(gradgen.vjp(model(imported, body=body), wrt=["x"], registry=registry(2, 100))) == [used]


@pytest.mark.parametrize("body", ["y = my.Scaled(x)", BRANCH])
def test_a_rule_for_a_later_version_is_not_applied(body):
    with pytest.raises(gradgen.GradientError, match=r"my::Scaled \(opset 1\).*no rule"):
        gradgen.vjp(model(1, body=body), wrt=["x"], registry=registry(2))


@pytest.mark.parametrize(("version", "kept"), [(1, False), (2, True)])
def test_a_function_of_the_model_is_inlined_where_no_rule_of_its_version_holds(version, kept):
    proto = model(version)
    body = [helper.make_node("Neg", ["x"], ["y"])]
    proto.functions.append(helper.make_function("my", "Scaled", ["x"], ["y"], body, [helper.make_opsetid("", 21)]))
    kinds = [n.op_type for n in gradgen.vjp(proto, registry=registry(2)).graph.node]
    assert ("Scaled" in kinds) == kept


def test_a_function_says_which_version_it_imports():
    nodes = [helper.make_node("Scaled", ["x"], ["y"], domain="my")]
    for version in (1, 2):
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", version)]
        function = helper.make_function("f", "F", ["x"], ["y"], nodes, imports)
        if version == 2:
            assert gradgen.gradient_of_function(function, ["x"], "y", registry=registry(2)).node
            continue
        with pytest.raises(gradgen.GradientError, match=r"my::Scaled \(opset 1\)"):
            gradgen.gradient_of_function(function, ["x"], "y", registry=registry(2))


def test_each_domain_has_its_own_version():
    rules = Rules(registry(2), {"": 22, "my": 1})
    assert rules.find("my", "Scaled") is None and rules.opset == 22
    assert Rules(registry(2), {"": 22, "my": 2}).find("my", "Scaled").since == 2
    assert rules.version("ai.onnx") == 22 and rules.version("other") == 1
