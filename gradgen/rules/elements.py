"""What ops make of shapes, where onnx's inference of one node sees types alone: two tables, keyed by op.

`ELEMENTS` has the elements of integer tensors that are computed from shapes, `STATED` the shapes that such tensors state
for a result. Each entry takes a node over typed values (gradgen.engine.values) and returns sizes, dimension names and
None (unknown), or None where it cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

Dim = int | str | None
Elements = tuple[Dim, ...] | None
Entry = Callable[[Any], Elements]

ELEMENTS: dict[str, Entry] = {}
STATED: dict[str, tuple[int, Entry]] = {}

SCALARS = {"Range": (0, 1, 2)}
"""Inputs that have no axis by the standard, by op. The standard's own body of AffineGrid gives vectors of one element:
onnxruntime takes these as long as no inference shows what they are, which a branch that is known to be taken does."""

TYPE_ONLY = {("Shape", 0), ("Size", 0), ("CastLike", 1)}
"""Inputs of which an op reads the shape or the type, not the value: (op, position)."""


def elements(*op_types: str) -> Callable[[Entry], Entry]:
    """Register what the elements of the result of these ops are; their first input is there."""

    def register(fn: Entry) -> Entry:
        ELEMENTS.update(dict.fromkeys(op_types, fn))
        return fn

    return register


def stated(op_type: str, position: int) -> Callable[[Entry], Entry]:
    """Register what shape an op's result has, given the elements of the input at a position."""

    def register(fn: Entry) -> Entry:
        STATED[op_type] = position, fn
        return fn

    return register


def shape_elements(node: Any) -> Elements:
    """The elements of an integer tensor computed from shapes."""
    fn = ELEMENTS.get(node.op_type)
    return None if fn is None or not node.inputs or node.inputs[0] is None else fn(node)


def stated_shape(node: Any) -> Elements:
    """The shape of a node's result that the elements of one of its inputs state."""
    position, fn = STATED.get(node.op_type, (0, None))
    if fn is None or len(node.inputs) <= position or any(v is None for v in node.inputs[: position + 1]):
        return None
    return None if node.inputs[position].elements is None else fn(node)


def _is_vector(value: Any) -> bool:
    return value.shape is not None and len(value.shape) <= 1


@elements("Shape")
def _shape(node):
    attrs, shape = node.attributes, node.inputs[0].shape
    bounds = [attrs[k].value if k in attrs else default for k, default in (("start", 0), ("end", None))]
    return None if shape is None else shape[slice(*bounds)]


@elements("Size")
def _size(node):
    return None if node.inputs[0].size is None else (node.inputs[0].size,)


@elements("Concat")
def _concat(node):
    if any(v is None or v.elements is None for v in node.inputs):
        return None
    return tuple(e for v in node.inputs for e in v.elements)


@elements("Identity", "Reshape")
def _same(node):
    return node.inputs[0].elements if _is_vector(node.outputs[0]) else None


@elements("Squeeze", "Unsqueeze")
def _one(node):
    found = _same(node)
    return found if found is not None and len(found) == 1 else None


@elements("Cast")
def _cast(node):
    return node.inputs[0].elements if node.outputs[0].dtype == ir.DataType.INT64 else None


@elements("Gather")
def _gather(node):
    first, index = (
        node.inputs[0],
        node.inputs[1].const if len(node.inputs) == 2 and node.inputs[1] is not None else None,
    )
    if index is None or index.ndim > 1 or first.elements is None or first.shape is None or len(first.shape) != 1:
        return None
    if not (abs(index + 0.5) < len(first.elements)).all():
        return None
    return tuple(first.elements[int(i)] for i in index.reshape(-1))


@elements("Slice")
def _slice(node):
    first, *others = node.inputs
    bounds = [v.const.reshape(-1) for v in others if v is not None and v.const is not None]
    if first.elements is None or first.shape is None or len(first.shape) != 1:
        return None
    if len(bounds) != len(others) or len(bounds) < 2 or any(b.size != 1 for b in bounds):
        return None
    start, end = int(bounds[0][0]), int(bounds[1][0])
    step = int(bounds[3][0]) if len(bounds) > 3 else 1
    return first.elements[start:end:step] if step > 0 and abs(start) < 2**31 else None


@stated("ConstantOfShape", 0)
def _constant_of_shape(node):
    return node.inputs[0].elements


@stated("Expand", 1)
def _expand(node):
    source, target = node.inputs[0].shape, node.inputs[1].elements
    if source is None:
        return None
    rank = max(len(source), len(target))
    padded = [(1,) * (rank - len(dims)) + tuple(dims) for dims in (source, target)]
    return tuple(e if s == 1 or s == e else (s if e == 1 else None) for s, e in zip(*padded, strict=True))


@stated("Reshape", 1)
def _reshape(node):
    target = node.inputs[1].elements
    keeps_zero = "allowzero" in node.attributes and node.attributes["allowzero"].value == 1
    return None if -1 in target or (0 in target and not keeps_zero) else target
