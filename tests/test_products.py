"""The shape of an Einsum whose operands broadcast, and gradients that rest on it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import pytest

import gradgen
from gradgen.differences import check_gradients
from gradgen.rules.products import einsum_shape


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], (2, 4)),
        ("ij,jk", [(2, "n"), ("n", "m")], (2, "m")),
        ("aij,ajk->aik", [(1, 3, 2), (4, 2, 3)], (None, 3, 3)),
        ("aij,ajk->aik", [(1, 3, 2), ("m", 2, 3)], ("m", 3, 3)),
        ("aij,ajk->aik", [("n", 3, 2), ("m", 2, 3)], (None, 3, 3)),
        ("aij,ajk->aik", [("n", 3, 2), ("n", 2, 3)], ("n", 3, 3)),
        ("...ij,...jk->...ik", [("n", 4, 3, 2), (1, 1, 2, 3)], ("n", 4, 3, 3)),
        ("...ij, jk", [(5, 3, 2), (2, 3)], (5, 3, 3)),
        ("i...->...i", [(2, 3, 4)], (3, 4, 2)),
        ("ii->i", [(3, 3)], (3,)),
        ("ii", [(3, 3)], ()),
        ("...ij->...", [(2, 3, 4)], (2,)),
        ("ij->ji", [None], None),
        ("ij->ji", [(2, 3, 4)], None),
    ],
)
def test_shape(equation, shapes, expected):
    assert einsum_shape(equation, shapes) == expected


@pytest.mark.parametrize(
    "shapes", [((2, 1, 3, 2), ("b", "m", 2, 3)), ((2, 1, 3, 2), (1, 4, 2, 3)), (("a", "n", 3, 2), ("b", "m", 2, 3))]
)
def test_a_product_that_broadcasts_inside_a_graph(shapes):
    """Mul with a larger factor shows whether the product's cotangent is reduced to a size that it does not have."""
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Einsum", ["A", "B"], ["E"], equation="...ij,...jk->...ik"),
            onnx.helper.make_node("Mul", ["E", "C"], ["Y"]),
        ],
        "product",
        [info("A", 1, shapes[0]), info("B", 1, shapes[1]), info("C", 1, (2, 4, 3, 3))],
        [info("Y", 1, [None] * 4)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    rng = np.random.default_rng(3)
    feeds = {
        "A": rng.standard_normal((2, 1, 3, 2)).astype(np.float32),
        "B": rng.standard_normal((1, 4, 2, 3)).astype(np.float32),
        "C": rng.standard_normal((2, 4, 3, 3)).astype(np.float32),
    }
    gradient = gradgen.vjp(model)
    onnx.checker.check_model(gradient, full_check=True)
    assert {r.verdict for r in check_gradients(model, gradient, feeds)} == {"ok"}
