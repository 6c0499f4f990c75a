"""The cotangent of one element of a value, which an input of the model chooses when it runs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.link import Linker
from gradgen.errors import GradientError
from gradgen.rules.library import zeros_like


def chosen_element(value: ir.Value, name: str, linker: Linker) -> ir.Value:
    """A cotangent that is 1 at one element of a value and 0 elsewhere; a new graph input holds the element's index.

    Raises:
        GradientError: the rank of the value is unknown.
    """
    shape = ir_shape(value)
    if shape is None:
        raise GradientError(
            f"the rank of '{value.name}' is unknown, so that no index can choose an element: use vjp with a cotangent"
        )
    assert value.dtype is not None
    index = ir.Value(name=name, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([len(shape)]))
    linker.graph.inputs.append(index)
    zero, one = np.asarray([0], np.int64), np.ones(1, value.dtype.numpy())
    base = f"{value.name}/seed"
    row = linker.node(
        "Unsqueeze",
        [index, linker.constants.get(zero)],
        ir.Value(type=index.type, shape=ir.Shape([1, len(shape)]), name=name),
        base,
    )
    start = linker.library(zeros_like, value)
    return linker.node("ScatterND", [start, row, linker.constants.get(one)], value, base)
