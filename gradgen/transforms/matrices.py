"""Jacobians and Hessians: models that pull back one-hot cotangents, one for each element of what is differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.api import Options, Public, delivered, differentiate, paused_collector
from gradgen.engine.contract import ir_shape
from gradgen.engine.link import Linker
from gradgen.engine.names import Names, free_prefix
from gradgen.engine.prepare import Model, Prepared, prepare
from gradgen.engine.registry import Registry, registry_of
from gradgen.engine.simplify import merge_common, remove_unused_initializers
from gradgen.engine.values import Dim, Shape
from gradgen.errors import GradientError
from gradgen.request import record_names
from gradgen.transforms.batched import linker_of, repeat, typed

INT64 = ir.DataType.INT64


def jacobian(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    per_sample: bool = False,
    inline: bool = True,
    registry: Registry | None = None,
) -> Any:
    """The Jacobians of a model's outputs, as a model.

    The forward pass runs once; the backward pass runs once for each element of what is differentiated, in a Scan.

    Args:
        model, wrt, of, inline, registry: as in `vjp`.
        per_sample: take the first axis of each of `of` and `wrt` for the samples of a batch, none of which influences
            another: the Jacobian of each sample, in one backward pass for each element of one sample's output.

    Returns:
        A model of the kind that was handed in, with the model's inputs. Its outputs are the model's own, then
        `jacobian_<y>_<x>` for each y of `of` and each x of `wrt`, of the shape of y followed by that of x; with
        `per_sample` the shape is [samples, y without its first axis, x without its first axis]. Where one of these names
        is taken, `jacobian2_`, … is used throughout.

    Raises:
        GradientError: as `vjp`; with `per_sample`, for values that do not have the same number of samples.
    """
    options, found = Options(inline, registry=registry), registry_of(registry)
    with paused_collector():
        prepared = prepare(model, found)
        public = differentiate(prepared, wrt, of, "vjp", found, options)
        _stack_rows(prepared, public, found, "jacobian", per_sample)
        return delivered(prepared)


def hessian(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    reduce: str | None = None,
    inline: bool = True,
    registry: Registry | None = None,
) -> Any:
    """The Hessian of a scalar output, as a model.

    Args:
        model, wrt, of, reduce, inline, registry: as in `value_and_grad`.

    Returns:
        A model of the kind that was handed in. Its outputs are the model's own, then `hessian_<x>_<z>` for each x and
        each z of `wrt`: the second derivatives, of the shape of x followed by that of z. Where one of these names is
        taken, `hessian2_`, … is used throughout.

    Raises:
        GradientError: as `value_and_grad`, and for ops whose gradient has no derivative.
    """
    options, found = Options(inline, registry=registry, reduce=reduce), registry_of(registry)
    with paused_collector():
        prepared = prepare(model, found)
        first = differentiate(
            prepared, wrt, of, "value_and_grad", found, Options(True, registry=registry, reduce=reduce)
        )
        again = prepare(prepared.model, found)
        again.as_ir = prepared.as_ir
        gradients = list(first.gradients.values())
        public = differentiate(again, list(first.gradients), gradients, "vjp", found, options, quiet=True)
        _stack_rows(again, public, found, "hessian", sources={g: n for n, g in first.gradients.items()})
        return delivered(again)


@dataclass
class _Rows:
    """The elements of one differentiated value, each of which makes one row of its Jacobians.

    Attributes:
        name: its name.
        value: it.
        start, count: the position of its first element among those of all such values, and how many it has, as values
            (int64 scalars).
        size: how many, where that is known.
    """

    name: str
    value: ir.Value
    start: ir.Value
    count: ir.Value
    size: int | None


def _stack_rows(
    prepared: Prepared,
    public: Public,
    registry: Registry,
    stem: str,
    per_sample: bool = False,
    sources: dict[str, str] | None = None,
) -> None:
    """Turn a vjp model into one of Jacobians, in place.

    `sources` names what the differentiated values are the gradients of, for a Hessian: these are no outputs any more.
    """
    model, graph = prepared.model, prepared.model.graph
    linker = linker_of(model, registry)
    cotangents = list(graph.inputs[-len(public.cotangents) :])
    gradients = list(graph.outputs[-len(public.gradients) :])
    outputs = list(graph.outputs[: -len(public.gradients)])
    targets = {v.name: v for v in outputs}
    del graph.inputs[-len(public.cotangents) :]
    graph.outputs.clear()
    for names, values in ((public.cotangents, cotangents), (public.gradients, gradients)):
        for name, value in zip(names, values, strict=True):
            value.name = linker.names.unique(f"{name}/rows")
    lead = 1 if per_sample else 0
    if per_sample:
        _check_samples([targets[n] for n in public.cotangents], dict(zip(public.gradients, gradients, strict=True)))
    rows, total, size = _positions(linker, [(n, targets[n]) for n in public.cotangents], lead)
    if size is None:
        total = _int(linker, "Max", [total, _constant(linker, 1)], "rows/steps")
    steps = None if size is None else max(size, 1)
    stop = total if size is None else _constant(linker, max(size, 1))
    positions = _range(linker, _constant(linker, 0), stop, steps)
    ranges = [_range(linker, r.start, _end(linker, r), r.size) for r in rows]
    shapes = [_shape_of(linker, r.value, lead) for r in rows]
    whole = [_shape_of(linker, r.value, 0) if lead else None for r in rows]

    def one_hot(inner: Linker, slices: list[ir.Value]) -> list[ir.Value]:
        seeds = []
        for row, span, shape, all_samples in zip(rows, ranges, shapes, whole, strict=True):
            assert row.value.dtype is not None
            base, dims = f"{row.name}/row", ir_shape(row.value)
            here = inner.node("Equal", [span, slices[0]], typed(span, (row.size,), ir.DataType.BOOL), base)
            flat = inner.node("Cast", [here], typed(row.value, (row.size,)), base, to=int(row.value.dtype))
            like = typed(row.value, None if dims is None else dims[lead:])
            seed = inner.node("Reshape", [flat, shape], like, base, allowzero=1)
            if all_samples is not None:
                seed = inner.node("Expand", [seed, all_samples], row.value, base)
            seeds.append(seed)
        return seeds

    found = repeat(linker, cotangents, gradients, [positions], steps, one_hot)
    labels = [(r.name, x) for r in rows for x in public.gradients]
    titles = _names(linker.names, stem, [((sources or {}).get(y, y), x) for y, x in labels])
    graph.outputs.extend(v for v in outputs if v.name not in (sources or {}))
    by_row = [(r, value) for r in rows for value in found]
    roles = {}
    for (row, value), (y, x), name in zip(by_row, labels, titles, strict=True):
        if len(rows) > 1 or size is None or size == 0:
            value = _rows_of(linker, value, row)
        if per_sample:
            value = _samples_first(linker, value)
        shape, target = _block(linker, row.value, value, lead)
        like = typed(value, shape)
        graph.outputs.append(
            linker.publish(linker.node("Reshape", [value, target], like, f"{name}/block", allowzero=1), name, like)
        )
        roles[name] = {"role": stem, "source": x, "of": (sources or {}).get(y, y)}
    for value in outputs:
        if value.name in (sources or {}):
            value.name = linker.names.unique(f"{value.name}/value")
    merge_common(graph, linker.draws)
    remove_unused_initializers(graph)
    record_names(model, roles, drop=[*public.cotangents.values(), *public.gradients.values(), *(sources or {})])


def _names(taken: Names, stem: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """A public name for each pair of values; names with underscores may read alike, and then get a number."""
    prefix = free_prefix(stem, [f"{y}_{x}" for y, x in pairs], taken)
    return [taken.unique(f"{prefix}{y}_{x}") for y, x in pairs]


def _check_samples(targets: Sequence[ir.Value], gradients: dict[str, ir.Value]) -> None:
    samples: dict[int, str] = {}
    for value, name in [*((v, v.name or "") for v in targets), *((v, n) for n, v in gradients.items())]:
        shape = ir_shape(value)
        if not shape:
            kind = "a scalar" if shape == () else "of unknown rank"
            raise GradientError(f"per_sample: '{name}' is {kind}, and so has no axis of samples")
        if isinstance(shape[0], int):
            samples.setdefault(shape[0], name)
    if len(samples) > 1:
        listed = ", ".join(f"{count} in '{name}'" for count, name in samples.items())
        raise GradientError(f"per_sample: the first axis is that of the samples, and there are {listed}")


def _positions(
    linker: Linker, targets: Sequence[tuple[str, ir.Value]], lead: int
) -> tuple[list[_Rows], ir.Value, int | None]:
    """The rows of each target, laid out one after the other; how many there are, as a value and where it is known."""
    rows: list[_Rows] = []
    start, known = _constant(linker, 0), 0
    for name, value in targets:
        shape = ir_shape(value)
        dims = None if shape is None else shape[lead:]
        size = None if dims is None or not all(isinstance(d, int) for d in dims) else _product(dims)
        count = _count(linker, value, lead) if size is None else _constant(linker, size)
        rows.append(_Rows(name, value, start, count, size))
        known = None if known is None or size is None else known + size
        start = _constant(linker, known) if known is not None else _end(linker, rows[-1])
    return rows, start, known


def _product(dims: Sequence[Dim]) -> int:
    return int(np.prod([d for d in dims if isinstance(d, int)], dtype=np.int64))


def _count(linker: Linker, value: ir.Value, lead: int) -> ir.Value:
    """The number of elements of a value, or of one sample of it."""
    if not lead:
        return _int(linker, "Size", [value], f"{value.name}/rows")
    return _int(linker, "ReduceProd", [_shape_of(linker, value, lead)], f"{value.name}/rows", keepdims=0)


def _end(linker: Linker, row: _Rows) -> ir.Value:
    start, count = (linker.knowledge.constant(v) for v in (row.start, row.count))
    if start is not None and count is not None:
        return _constant(linker, int(start + count))
    if start is not None and not start:
        return row.count
    return _int(linker, "Add", [row.start, row.count], f"{row.name}/end")


def _range(linker: Linker, start: ir.Value, stop: ir.Value, size: int | None) -> ir.Value:
    like = typed(start, (size,))
    return linker.node("Range", [start, stop, _constant(linker, 1)], like, "rows/positions")


def _shape_of(linker: Linker, value: ir.Value, start: int) -> ir.Value:
    """The shape of a value from an axis on, as a constant where it is one."""
    shape = ir_shape(value)
    if shape is not None and all(isinstance(d, int) for d in shape[start:]):
        return linker.constants.get(np.asarray(shape[start:], np.int64))
    like = typed(value, (None if shape is None else len(shape) - start,), INT64)
    attributes = {"start": start} if start else {}
    return linker.node("Shape", [value], like, f"{value.name}/shape", **attributes)


def _rows_of(linker: Linker, value: ir.Value, row: _Rows) -> ir.Value:
    """The part of a stacked result that belongs to one of the differentiated values."""
    zero = linker.constants.get(np.asarray([0], np.int64))
    ends = []
    for end in (row.start, _end(linker, row)):
        known = linker.knowledge.constant(end)
        if known is not None:
            ends.append(linker.constants.get(known.reshape(1)))
        else:
            ends.append(linker.node("Unsqueeze", [end, zero], typed(end, (1,)), f"{row.name}/bound"))
    shape = ir_shape(value)
    like = typed(value, None if shape is None else (row.size, *shape[1:]))
    return linker.node("Slice", [value, *ends, zero], like, f"{row.name}/rows")


def _samples_first(linker: Linker, value: ir.Value) -> ir.Value:
    shape = ir_shape(value)
    assert shape is not None
    like = typed(value, (shape[1], shape[0], *shape[2:]))
    perm = [1, 0, *range(2, len(shape))]
    return linker.node("Transpose", [value], like, f"{value.name}/samples", perm=perm)


def _block(linker: Linker, target: ir.Value, value: ir.Value, lead: int) -> tuple[Shape | None, ir.Value]:
    """The shape of a Jacobian: what is known of it, and as a value."""
    own, stacked = ir_shape(target), ir_shape(value)
    shape = None if own is None or stacked is None else (*own, *stacked[1 + lead :])
    if shape is not None and all(isinstance(d, int) for d in shape):
        return shape, linker.constants.get(np.asarray(shape, np.int64))
    parts = [_shape_of(linker, target, 0), _shape_of(linker, value, 1 + lead)]
    like = typed(value, (None if shape is None else len(shape),), INT64)
    return shape, linker.node("Concat", parts, like, f"{target.name}/jacobian", axis=0)


def _constant(linker: Linker, number: int) -> ir.Value:
    return linker.constants.get(np.asarray(number, np.int64))


def _int(linker: Linker, op_type: str, inputs: Sequence[ir.Value], base: str, **attributes: Any) -> ir.Value:
    return linker.node(op_type, inputs, typed(inputs[0], (), INT64), base, **attributes)


__all__ = ["hessian", "jacobian"]
