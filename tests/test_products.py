"""Shapes that the standard's inference gets wrong, and gradients that rest on them."""

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
    records = check_gradients(model, gradient, feeds)
    assert all(r.verdict == "ok" for r in records), records


def test_attention_with_a_past_of_unknown_length():
    """onnx takes the past's length for 0; what has a larger size shows it where it is added."""
    info = onnx.helper.make_tensor_value_info
    past = [2, 1, "p", 2]
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Attention", ["Q", "K", "V", "", "P", "P"], ["Y", "key", "value", "S"],
                                  q_num_heads=2, kv_num_heads=1),
            onnx.helper.make_node("Mul", ["S", "C"], ["Z"]),
        ],
        "attention",
        [info("Q", 1, [2, 3, 4]), info("K", 1, [2, 2, 2]), info("V", 1, [2, 2, 2]), info("P", 1, past),
         info("C", 1, [2, 2, 3, 5])],
        [info("Y", 1, [2, 3, 4]), info("Z", 1, [None] * 4)],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)
    rng = np.random.default_rng(5)
    sizes = {"Q": (2, 3, 4), "K": (2, 2, 2), "V": (2, 2, 2), "P": (2, 1, 3, 2), "C": (2, 2, 3, 5)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
    gradient = gradgen.vjp(model)
    onnx.checker.check_model(gradient, full_check=True)
    records = check_gradients(model, gradient, feeds)
    assert all(r.verdict == "ok" for r in records), records


@pytest.mark.parametrize("onesided", [0, 1])
def test_a_transform_of_a_length_known_at_run_time_alone(onesided):
    """onnx takes the length of the input for it where it knows the axis."""
    info = onnx.helper.make_tensor_value_info
    axis = onnx.helper.make_tensor("axis", 7, [], [1])
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("DFT", ["X", "length", "axis"], ["F"], onesided=onesided),
            onnx.helper.make_node("Mul", ["F", "F"], ["Y"]),
        ],
        "transform",
        [info("X", 1, [2, 5, 1]), info("length", 7, [])],
        [info("Y", 1, [None] * 3)],
        [axis],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    feeds = {"X": np.random.default_rng(6).standard_normal((2, 5, 1)).astype(np.float32), "length": np.array(8)}
    gradient = gradgen.vjp(model)
    onnx.checker.check_model(gradient, full_check=True)
    records = check_gradients(model, gradient, feeds)
    assert all(r.verdict == "ok" for r in records), records
