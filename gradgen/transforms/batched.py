"""Runs the part of a graph that depends on given values once for each of several contents of them, by a Scan.

A vjp model is linear in its cotangents, a jvp model in its tangents: for many cotangents, only what reads them has to
be repeated. The forward pass, and all of the backward pass that no cotangent reaches, stay where they are, and the body
of the Scan captures what it needs of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.link import Linker
from gradgen.engine.subgraphs import graphs, operands
from gradgen.engine.values import Dim, Shape
from gradgen.errors import GradientError

Seeding = Callable[[Linker, list[ir.Value]], Sequence[ir.Value]]


def dependents(graph: ir.Graph, values: Iterable[ir.Value]) -> list[ir.Node]:
    """The nodes of a graph that read any of these values, themselves or through others, in the graph's order."""
    reached, found = set(values), []
    for node in graph:
        if any(v in reached for v in operands(node)):
            found.append(node)
            reached.update(node.outputs)
    return found


def repeat(
    linker: Linker,
    seeds: Sequence[ir.Value],
    results: Sequence[ir.Value],
    shaped: Sequence[ir.Value],
    stacked: Sequence[ir.Value],
    steps: Dim,
    seeding: Seeding | None = None,
) -> list[ir.Value]:
    """Compute results for each of several contents of the seeds, stacked along a new leading axis.

    Args:
        linker: of the graph. What depends on the seeds moves from it into the body of a Scan at its end; where there is
            one step, it stays.
        seeds: values without a producer that the graph reads. No input or output of it depends on them any more.
        results: values of the graph.
        shaped: values of the graph that do not depend on the seeds and have the shapes of the results.
        stacked: values of the graph of known rank, whose slices along axis 0 the steps read, at least one.
        steps: how many slices there are: a size, a name of a dimension, or None. There is at least one.
        seeding: writes the content of the seeds, from a linker for the step and the slices; by default the slices.

    Returns:
        one value per result, of the shape [steps, *result].

    Raises:
        GradientError: a node that draws random numbers depends on the seeds.
    """
    graph, moved = linker.graph, dependents(linker.graph, seeds)
    for node in moved:
        _refuse_draws(node, linker)
    for node in moved:
        graph.remove(node)
    if steps == 1:
        flat = [linker.node("Squeeze", [s, _first(linker)], _slice_of(s), f"{s.name}/slice") for s in stacked]
        contents = _fill(linker, linker, seeds, seeding, flat, moved)
        return [
            linker.node("Unsqueeze", [contents.get(r, r), _first(linker)], typed(r, (1, *s) if (s := ir_shape(r))
            is not None else None), f"{r.name}/stacked") for r in results
        ]  # fmt: skip
    slices = [linker.value(f"{s.name}/slice", _slice_of(s)) for s in stacked]
    body = ir.Graph(slices, [], nodes=[], opset_imports={"": linker.opset}, name=linker.names.unique("step"))
    inner = linker.within(body)
    contents = _fill(linker, inner, seeds, seeding, slices, moved)
    for result in results:
        value, name = contents.get(result, result), linker.names.unique(f"{result.name}/step")
        producer = value.producer()
        if value.shape is None:  # onnxruntime asks for the rank of what a step gives
            one_axis = linker.constants.get(np.asarray([-1], np.int64))
            value = inner.node("Reshape", [value, one_axis], typed(value, (None,)), name)
        elif producer is None or producer.graph is not body or value in body.outputs:
            value = inner.node("Identity", [value], value, name)
        value.name = name
        body.outputs.append(value)
    like = [typed(v, (steps, *(ir_shape(v) or ()))) for v in body.outputs]
    base = f"{results[0].name}/stacked"
    found = linker.structured("Scan", list(stacked), {"body": body}, like, base, num_scan_inputs=len(stacked))
    return [
        _reshaped(linker, value, shape) if result.shape is None else value
        for value, result, shape in zip(found, results, shaped, strict=True)
    ]


def _reshaped(linker: Linker, stacked: ir.Value, shaped: ir.Value) -> ir.Value:
    """Flat slices, each in the shape of a value of unknown rank."""
    length = ir.Value(name=stacked.name, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([None]))
    base = f"{stacked.name}/shape"
    parts = [
        linker.node("Shape", [stacked], typed(length, (1,)), base, start=0, end=1),
        linker.node("Shape", [shaped], length, base),
    ]
    shape = linker.node("Concat", parts, length, base, axis=0)
    return linker.node("Reshape", [stacked, shape], typed(stacked, None), f"{stacked.name}/shaped", allowzero=1)


def typed(value: ir.Value, shape: Shape | None, dtype: ir.DataType | None = None) -> ir.Value:
    """A value to be used as `like`: the type of another, and a shape."""
    kind = value.type if dtype is None else ir.TensorType(dtype)
    return ir.Value(name=value.name, type=kind, shape=None if shape is None else ir.Shape(shape))


def _fill(
    linker: Linker,
    inner: Linker,
    seeds: Sequence[ir.Value],
    seeding: Seeding | None,
    slices: list[ir.Value],
    moved: Sequence[ir.Node],
) -> Mapping[ir.Value, ir.Value]:
    """Append to the inner linker's graph the content of the seeds and the nodes that depend on it."""
    contents = dict(zip(seeds, slices if seeding is None else seeding(inner, slices), strict=True))
    for seed, content in contents.items():
        ir.convenience.replace_all_uses_with(seed, content)
    for node in moved:
        inner.graph.append(node)
    return contents


def _refuse_draws(node: ir.Node, linker: Linker) -> None:
    if linker.draws(node):
        raise GradientError(
            f"'{node.name}' ({node.op_type}) draws random numbers in a way that depends on a seed: it would draw anew "
            "for each of them"
        )
    for graph in graphs(node):
        for inner in graph:
            _refuse_draws(inner, linker)


def _slice_of(value: ir.Value) -> ir.Value:
    shape = ir_shape(value)
    assert shape, f"'{value.name}' is scanned, so its rank is known"
    return typed(value, shape[1:])


def _first(linker: Linker) -> ir.Value:
    return linker.constants.get(np.asarray([0], np.int64))
