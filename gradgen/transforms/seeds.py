"""Seeds of a reverse pass beyond one cotangent and ones: several cotangents at once, one element chosen at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.link import Linker
from gradgen.engine.registry import Registry
from gradgen.engine.simplify import merge_common, remove_unused_initializers
from gradgen.errors import GradientError
from gradgen.rules.library import zeros_like
from gradgen.transforms.batched import linker_of, repeat, typed


def stack_cotangents(model: ir.Model, public: Any, seeds: int | str, registry: Registry) -> None:
    """Give a vjp model's cotangents and gradients a new leading axis, in place.

    Args:
        model: the finished vjp model.
        public: the names of its cotangents and gradients, as `differentiate` gives them.
        seeds: the size of the axis, at least 1, or the name of a dimension, which may turn out to be 0.
        registry: the rules.

    Raises:
        GradientError: a bad number of seeds; a cotangent that is no tensor of known rank.
    """
    named = isinstance(seeds, str) and seeds.isidentifier()
    if not named and (isinstance(seeds, bool | str) or not isinstance(seeds, int) or seeds < 1):
        raise GradientError(f"seeds is a number of cotangents from 1 on, or the name of a dimension, not {seeds!r}")
    graph, linker = model.graph, linker_of(model, registry)
    count, total = len(public.cotangents), len(public.gradients)
    cotangents, gradients = graph.inputs[-count:], graph.outputs[-total:]
    stacked = []
    for value, name in zip(cotangents, public.cotangents.values(), strict=True):
        if not isinstance(value.type, ir.TensorType) or (shape := ir_shape(value)) is None:
            raise GradientError(f"'{name}' is not a tensor of known rank: its cotangents cannot be stacked")
        value.name = linker.names.unique(f"{name}/slice")
        stacked.append(ir.Value(name=name, type=value.type, shape=ir.Shape([seeds, *shape])))
    kept, results = list(graph.outputs[:-total]), list(gradients)
    graph.inputs[-count:] = stacked
    graph.outputs.clear()
    graph.outputs.extend(kept)
    read = [_not_empty(v, linker) for v in stacked] if named else stacked
    found = repeat(linker, cotangents, results, read, None if named else seeds)
    for value, result, name in zip(found, results, public.gradients.values(), strict=True):
        if named:
            value = _first_rows(value, stacked[0], linker)
        shape = ir_shape(result)
        like = typed(value, None if shape is None else (seeds, *shape))
        graph.outputs.append(linker.publish(value, name, like))
    merge_common(graph, linker.draws)
    remove_unused_initializers(graph)


def _not_empty(stacked: ir.Value, linker: Linker) -> ir.Value:
    """The stacked cotangents, with one of zeros where there are none: runtimes refuse a Scan without a step."""
    constant, base, shape = linker.constants.get, f"{stacked.name}/seeds", ir_shape(stacked) or ()
    assert stacked.dtype is not None
    length = typed(stacked, (1,), ir.DataType.INT64)
    count = linker.node("Shape", [stacked], length, f"{base}/count", start=0, end=1)
    missing = linker.node("Sub", [constant(np.asarray([1], np.int64)), count], length, f"{base}/missing")
    missing = linker.node("Max", [missing, constant(np.asarray([0], np.int64))], length, f"{base}/missing")
    rest = linker.node("Shape", [stacked], typed(stacked, (len(shape) - 1,), ir.DataType.INT64), base, start=1)
    sizes = linker.node("Concat", [missing, rest], typed(stacked, (len(shape),), ir.DataType.INT64), base, axis=0)
    zero = constant(np.zeros((), stacked.dtype.numpy()))
    filling = linker.node("Expand", [zero, sizes], typed(stacked, (None, *shape[1:])), f"{base}/filling")
    return linker.node("Concat", [stacked, filling], typed(stacked, (None, *shape[1:])), f"{base}/filled", axis=0)


def _first_rows(value: ir.Value, stacked: ir.Value, linker: Linker) -> ir.Value:
    """As many slices of a result as there are cotangents."""
    length = typed(stacked, (1,), ir.DataType.INT64)
    end = linker.node("Shape", [stacked], length, f"{value.name}/count", start=0, end=1)
    zero = linker.constants.get(np.asarray([0], np.int64))
    return linker.node("Slice", [value, zero, end, zero], value, f"{value.name}/kept")


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
    row = linker.node("Unsqueeze", [index, linker.constants.get(zero)], typed(index, (1, len(shape))), base)
    start = linker.library(zeros_like, value)
    return linker.node("ScatterND", [start, row, linker.constants.get(one)], value, base)
