# Derivatives of products some of whose factors are zero, up to the third, against products written out.
"""Tests of the rules of ReduceProd, CumProd and of scatters that multiply."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from onnx import parser

import gradgen
from gradgen.evaluate import Evaluator

FACTORS = {
    "none": [1.5, -0.5, 2.0, 0.7, -1.2],
    "one": [1.5, 0.0, 2.0, 0.7, -1.2],
    "two": [1.5, 0.0, 2.0, 0.0, -1.2],
    "two in front": [0.0, 0.0, 2.0, 0.7, -1.2],
    "three": [0.0, 0.0, 2.0, 0.0, -1.2],
    "all": [0.0, 0.0, 0.0, 0.0, 0.0],
}
LAST = "last = Constant <value_ints = [4]> ()"
MODELS = {
    "ReduceProd": "y = ReduceProd <keepdims = 0> (x)",
    "CumProd": f"a = Constant <value_int = 0> () p = CumProd(x, a) {LAST} y = Gather(p, last)",
    "ScatterElements": "d, u = Split(x, parts) i = Constant <value_ints = [0, 0, 0, 0]> ()\n"
    'y = ScatterElements <reduction = "mul"> (d, i, u)',
    "ScatterND": "d, u = Split(x, parts) i = Constant <value = int64[4,1] {0, 0, 0, 0}> ()\n"
    'y = ScatterND <reduction = "mul"> (d, i, u)',
}


def derivative(values: list[float], order: int) -> list[float]:
    """The derivative by each factor of the sum of all derivatives of the order before."""
    places = range(len(values))
    found = np.zeros(len(values))
    for chosen in permutations(places, order):
        found[chosen[0]] += np.prod([values[k] for k in places if k not in chosen])
    return found.tolist()


@pytest.mark.parametrize("zeros", FACTORS)
@pytest.mark.parametrize("size", ["5", "n"], ids=["static", "dynamic"])
@pytest.mark.parametrize("op", MODELS)
def test_three_derivatives_of_a_product(op, size, zeros):
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 26]> g (double[{size}] x) => (double[] y)'
        f"<int64[2] parts = {{1, 4}}> {{ {MODELS[op]} }}"
    )
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    if op != "ReduceProd":
        model.graph.output[0].type.tensor_type.shape.dim.add()
    name = "y"
    for order in (1, 2, 3):
        model = gradgen.value_and_grad(model, wrt=["x"], of=[name], reduce="sum")
        name = model.graph.output[-1].name
        found = Evaluator(model)({"x": np.array(FACTORS[zeros])})[name]
        np.testing.assert_allclose(found, derivative(FACTORS[zeros], order), atol=1e-12)
