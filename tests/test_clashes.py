"""Where a model's own shapes clash, the message names the node and the shapes, and no rule."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import parser

import gradgen

HEAD = '<ir_version: 10, opset_import: ["" : 21, "my" : 1]>\n'
TYPES = "float[2, 3] x, float[4, 2] w"
PRODUCT = (
    r"the model's own shapes do not fit together: MatMul '{}' {} float\[2, 3\] 'x', float\[4, 2\] 'w': Incompatible d"
)
CASES = {
    "a product": ("y = MatMul(x, w)", PRODUCT.format("y", "reads")),
    "a node with a name": ("[layer] y = MatMul(x, w)", PRODUCT.format("layer", "reads")),
    "in the middle": ("a = Neg(x) b = MatMul(a, w) y = Relu(b)", r"MatMul 'b' reads float\[2, 3\] 'a', float\[4, 2\] 'w'"),
    "a sum": ("y = Add(x, w)", r"fit together: Add 'y' reads float\[2, 3\] 'x', float\[4, 2\] 'w': Incompatible dimensions$"),
    "in a branch": (
        "c = Constant<value_ints = [1]>() p = Cast<to = 9>(c) y = If(p) <then_branch = t () => (float[N, M] u) "
        "{ u = Mul(x, w) }, else_branch = e () => (float[N, M] v) { v = Neg(x) }>",
        r"Mul 'u' in If 'y' reads float\[2, 3\] 'x', float\[4, 2\] 'w'",
    ),
    "in a function": ("y = my.Product(x, w)", PRODUCT.format("c' in Product 'y", "with")),
}  # fmt: skip
FUNCTION = '\n<domain: "my", opset_import: ["" : 21]> Product (a, b) => (c) { c = MatMul(a, b) }'


def model(body: str) -> onnx.ModelProto:
    return parser.parse_model(f"{HEAD}m ({TYPES}) => (float[N, M] y) {{ {body} }}{FUNCTION if 'my.' in body else ''}")


@pytest.mark.parametrize("body, words", CASES.values(), ids=list(CASES))
def test_a_models_own_clash_is_said(body: str, words: str, tmp_path) -> None:
    onnx.save(model(body), tmp_path / "m.onnx")
    for given in (model(body), ir.from_proto(model(body)), tmp_path / "m.onnx"):
        with pytest.raises(gradgen.GradientError, match=words) as caught:
            gradgen.vjp(given)
        assert "rule" not in str(caught.value)


@pytest.mark.parametrize("call", [gradgen.verify, gradgen.vjp_pair, gradgen.jacobian])
def test_every_call_says_it(call) -> None:
    with pytest.raises(gradgen.GradientError, match=CASES["a product"][1]):
        call(model("y = MatMul(x, w)"))


def test_the_model_is_not_changed() -> None:
    given = model("y = MatMul(x, w)")
    before = given.SerializeToString(deterministic=True)
    with pytest.raises(gradgen.GradientError):
        gradgen.vjp(given)
    assert given.SerializeToString(deterministic=True) == before
