"""Several cotangents at once, along a leading axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.derive import derive
from gradgen.engine.link import Linker
from gradgen.engine.subgraphs import graphs
from gradgen.errors import GradientError
from gradgen.transforms.batched import repeat, typed
from gradgen.transforms.common import Call


def stacked_vjp(call: Call, seeds: int | str, cut: bool = False) -> Any:
    """The vjp model of a call, whose cotangents and gradients have one more leading axis.

    Args:
        call: what `begin` gave.
        seeds: the size of the axis, at least 1, or the name of a dimension, which may turn out to be 0.
        cut: as for `Call.finish`.

    Raises:
        GradientError: a bad number of seeds; a name that a dimension of the model has; a cotangent that is no tensor of
            known rank.
    """
    named = isinstance(seeds, str) and seeds.isidentifier()
    counted = isinstance(seeds, int | np.integer) and not isinstance(seeds, bool) and seeds > 0
    if not named and not counted:
        raise GradientError(f"seeds is a number of cotangents from 1 on, or the name of a dimension, not {seeds!r}")
    seeds = seeds if named else int(seeds)
    if named and (holder := _named_dimension(call.graph, str(seeds))):
        raise GradientError(
            f"seeds: '{seeds}' is the name of a dimension of '{holder}' already, and the two sizes would be one: choose a "
            "name that the model does not use"
        )
    graph, linker = call.graph, call.linker
    names = call.public.take("grad", call.of, "cotangent", beside=call.wrt)
    titles = call.public.take("grad", call.wrt, "gradient")
    stacked = []
    for value, name in zip(call.targets, names.values(), strict=True):
        shape = _tensor_shape(value)
        stacked.append(ir.Value(name=name, type=value.type, shape=ir.Shape([seeds, *shape])))
    graph.inputs.extend(stacked)
    cotangents, results = pull_back(call)
    read = [_not_empty(v, linker) for v in stacked] if named else stacked
    found = repeat(linker, cotangents, results, call.sources, read, None if named else seeds)
    for value, result, name in zip(found, results, titles.values(), strict=True):
        if named:
            value = _first_rows(value, stacked[0], linker)
        known = ir_shape(result)
        graph.outputs.append(linker.publish(value, name, typed(value, None if known is None else (seeds, *known))))
    call.simplify()
    return call.deliver(cut=cut)


def pull_back(
    call: Call, targets: Sequence[ir.Value] | None = None, warns: bool = True
) -> tuple[list[ir.Value], list[ir.Value]]:
    """Append the backward pass of a call's targets, or of other values of its graph, and simplify the graph.

    Returns:
        values without a producer that stand for the cotangents, and the cotangents of the sources; these are no outputs
        of the graph, whose outputs are the model's own and the call's targets.
    """
    linker, silent = call.linker, [v in call.stopped or not warns for v in call.sources]
    targets = call.targets if targets is None else targets
    cotangents = [linker.value(f"{v.name}/cotangent", v) for v in targets]
    found, replaced = derive(call.graph, call.sources, dict(zip(targets, cotangents, strict=True)), linker)
    call.replace(replaced)
    missing = [
        "" if said else f"'{v.name}' does not influence what is differentiated: its gradient is zero"
        for v, said in zip(call.sources, silent, strict=True)
    ]
    return cotangents, settle(call, call.sources, found, missing)


def settle(
    call: Call, values: Sequence[ir.Value], found: Sequence[ir.Value | None], missing: Sequence[str]
) -> list[ir.Value]:
    """Simplify the graph of a call, which keeps the cotangents or tangents that were found.

    Args:
        call: its outputs become the model's own and the targets.
        values: whose cotangents or tangents they are.
        found: what they are; None is zero.
        missing: the warning where nothing is found.

    Returns:
        a value for each of `values`, which only that one has.
    """
    graph = call.graph
    outputs = call.outputs
    graph.outputs.clear()
    graph.outputs.extend(outputs)
    for value, ct, text in zip(values, found, missing, strict=True):
        call.output(value, ct, call.linker.names.unique(f"{value.name}/derivative"), text)
    results = list(graph.outputs[len(outputs) :])
    graph.outputs.clear()
    graph.outputs.extend(outputs)
    sources, targets = len(call.sources), len(call.targets)
    kept = call.simplify([*call.sources, *call.targets, *results])
    call.sources, call.targets = kept[:sources], kept[sources : sources + targets]
    return kept[sources + targets :]


def _named_dimension(graph: ir.Graph, name: str) -> str | None:
    """The first value in which a dimension has this name, alone or within an expression, graphs of nodes included."""
    values = [*graph.inputs, *graph.outputs]
    for node in ir.traversal.RecursiveGraphIterator(graph):
        values += [*node.outputs, *(v for sub in graphs(node) for v in sub.inputs)]
    for value in values:
        if any(isinstance(d, str) and name in re.findall(r"\w+", d) for d in ir_shape(value) or ()):
            return value.name
    return None


def _tensor_shape(value: ir.Value) -> tuple[int | str | None, ...]:
    """The shape of a value whose cotangents are stacked."""
    shape = ir_shape(value)
    if not isinstance(value.type, ir.TensorType) or shape is None:
        raise GradientError(f"'{value.name}' is not a tensor of known rank: its cotangents cannot lie along a new axis")
    return shape


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
