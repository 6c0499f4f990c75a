"""One-hot seeds: for each element of some values in turn, 1 at that element and 0 at all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.link import Linker
from gradgen.transforms.batched import typed

INT64 = ir.DataType.INT64


def size_of(values: Sequence[ir.Value], lead: int) -> int | None:
    """The number of elements that tensors have together behind their leading axes, where it is known."""
    total = 0
    for value in values:
        shape = ir_shape(value)
        dims = None if shape is None else [d for d in shape[lead:] if isinstance(d, int)]
        if shape is None or dims is None or len(dims) < len(shape) - lead:
            return None
        total += int(np.prod(dims, dtype=np.int64))
    return total


def shape_of(linker: Linker, value: ir.Value, start: int) -> ir.Value:
    """The shape of a tensor from an axis on, as a constant where it is one."""
    shape = ir_shape(value)
    if shape is not None and all(isinstance(d, int) for d in shape[start:]):
        return linker.constants.get(np.asarray(shape[start:], np.int64))
    like = typed(value, (None if shape is None else len(shape) - start,), INT64)
    attributes = {"start": start} if start else {}
    return linker.node("Shape", [value], like, f"{value.name}/shape", **attributes)


class Basis:
    """One-hot seeds of some tensors, whose elements are numbered from one tensor to the next.

    Elements are counted in the graph where sizes are not known. No seed is stored: a step makes its own from its number.

    Args:
        linker: of the graph that holds the tensors.
        values: the tensors.
        lead: how many leading axes are not counted: a seed is 1 at the element of each of these slices.

    Attributes:
        positions: the numbers of the steps, int64; one at least, since runtimes refuse a Scan without a step.
        steps: how many there are, where it is known.
    """

    def __init__(self, linker: Linker, values: Sequence[ir.Value], lead: int):
        self._linker, self._values, self._lead = linker, list(values), lead
        self._sizes = [size_of([v], lead) for v in values]
        self._bounds: list[ir.Value | int] = [0]
        for value, size in zip(values, self._sizes, strict=True):
            self._bounds.append(self._sum(self._bounds[-1], self._count(value) if size is None else size))
        total = self._bounds[-1]
        self.steps = max(total, 1) if isinstance(total, int) else None
        self._complete = len(self._values) == 1 and self.steps == total
        most = self._node("Max", [total, 1], (), "steps") if self.steps is None else self.steps
        self.positions = self._range(0, most, self.steps)
        ends = zip(self._bounds[:-1], self._bounds[1:], self._sizes, strict=True)
        self._numbers = [self._range(start, end, size) for start, end, size in ends]
        self._shapes = [shape_of(linker, v, lead) for v in values]
        self._wholes = [shape_of(linker, v, 0) if lead else None for v in values]

    def seeds(self, inner: Linker, slices: Sequence[ir.Value]) -> list[ir.Value]:
        """The seeds of one step, of which the number is given."""
        found = []
        layout = zip(self._values, self._sizes, self._numbers, self._shapes, self._wholes, strict=True)
        for value, size, numbers, shape, whole in layout:
            assert value.dtype is not None
            base, dims = f"{value.name}/one_hot", ir_shape(value)
            here = inner.node("Equal", [numbers, slices[0]], typed(value, (size,), ir.DataType.BOOL), base)
            flat = inner.node("Cast", [here], typed(value, (size,)), base, to=int(value.dtype))
            inside = typed(value, None if dims is None else dims[self._lead :])
            seed = inner.node("Reshape", [flat, shape], inside, base, allowzero=1)
            found.append(seed if whole is None else inner.node("Expand", [seed, whole], value, base))
        return found

    def part(self, index: int, stacked: ir.Value) -> ir.Value:
        """The steps of one of the tensors, of what all steps gave along axis 0."""
        if self._complete:
            return stacked
        ends = [self._vector(b) for b in self._bounds[index : index + 2]]
        shape = ir_shape(stacked)
        like = typed(stacked, None if shape is None else (self._sizes[index], *shape[1:]))
        return self._linker.node("Slice", [stacked, *ends, self._vector(0)], like, f"{stacked.name}/part")

    def _count(self, value: ir.Value) -> ir.Value:
        if not self._lead:
            return self._node("Size", [value], (), f"{value.name}/size")
        sizes = shape_of(self._linker, value, self._lead)
        return self._node("ReduceProd", [sizes], (), f"{value.name}/size", keepdims=0)

    def _sum(self, one: ir.Value | int, other: ir.Value | int) -> ir.Value | int:
        if isinstance(one, int) and isinstance(other, int):
            return one + other
        return other if one == 0 else self._node("Add", [one, other], (), "end")

    def _range(self, start: ir.Value | int, end: ir.Value | int, size: int | None) -> ir.Value:
        return self._node("Range", [start, end, 1], (size,), "numbers")

    def _vector(self, number: ir.Value | int) -> ir.Value:
        """A number as a vector of one."""
        constants = self._linker.constants
        if isinstance(number, int):
            return constants.get(np.asarray([number], np.int64))
        return self._node("Unsqueeze", [number, constants.get(np.asarray([0], np.int64))], (1,), "bound")

    def _node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | int],
        shape: tuple[int | None, ...],
        base: str,
        **attributes: Any,
    ) -> ir.Value:
        """A node of int64; numbers become constants."""
        constants = self._linker.constants
        values = [constants.get(np.asarray(i, np.int64)) if isinstance(i, int) else i for i in inputs]
        like = typed(values[0], shape, INT64)
        return self._linker.node(op_type, values, like, f"one_hot/{base}", **attributes)
