# The bounds of a gradient at kinks and jumps: Relu, Floor, Round, Sqrt, Sign, and a maximum of equal values.
from __future__ import annotations

import numpy as np
import pytest
from one_sided import bounds
from onnx import parser


def at(body, point, cotangent=2.0):
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[n] x) => (float[m] y) {{ y = {body} }}'
    )
    feeds = {"x": np.array(point, np.float32)}
    size = 1 if "Max" in body else len(point)
    return bounds(model, feeds, "x", {"y": np.full(size, cotangent, np.float32)})


@pytest.mark.parametrize(
    ("body", "point", "low", "high"),
    [
        ("Relu(x)", [-1, 0, 1], [0, 0, 2], [0, 2, 2]),
        ("LeakyRelu<alpha = 3.0>(x)", [0], [2], [6]),
        ("Exp(x)", [0, 1], [2, 2 * np.e], [2, 2 * np.e]),
        ("Floor(x)", [1.0, 1.5], [0, 0], [0, 0]),
        ("Round(x)", [0.5], [0], [0]),
        ("Sqrt(x)", [0.0, 4.0], [np.nan, 0.5], [np.nan, 0.5]),
        ("Sign(x)", [0.0], [0], [0]),
        ("ReduceMax(x)", [1, 2, 2], [0, 0, 0], [0, 2, 2]),
    ],
)
def test_bounds(body, point, low, high):
    found = at(body, point)
    np.testing.assert_allclose(found, (low, high), rtol=1e-7, atol=1e-9)


def test_each_output_element_has_its_own_interval():
    found = at("Abs(x)", [0.0, 3.0], cotangent=-1.0)
    np.testing.assert_allclose(found, ([-1, -1], [1, -1]), atol=1e-9)
