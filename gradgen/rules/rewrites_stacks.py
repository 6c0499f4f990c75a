"""Patterns of parts along an axis of their own in the linked backward graph: stacked, moved and repeated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.rules.lang import same_shape
from gradgen.rules.rewriting import own_producer, pattern
from gradgen.rules.row_regions import VIEWS
from gradgen.rules.rows import constant_shape

COPIED = 32  # elements from which on a Tile takes no longer than an Expand
TILED = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


@pattern(*VIEWS, reads=("Transpose",))
def stacked_parts(node: ir.Node, linker: Any) -> ir.Value | None:
    """Parts that are stacked on an axis of their own, which is then moved, are joined along the axis that it comes to."""
    middle, result = own_producer(node.inputs[0], ("Transpose",)), node.outputs[0]
    stack = own_producer(middle.inputs[0], ("Concat",)) if middle is not None else None
    if middle is None or stack is None or "perm" not in middle.attributes:
        return None
    parts, axis = _parts(stack)
    perm, target = list(middle.attributes["perm"].as_ints()), constant_shape(result)
    if not parts or target is None or perm[-1] == axis:
        return None
    order = [p - (p > axis) for p in perm if p != axis]
    joined = _joined(parts, order[perm.index(axis)], result, linker)
    if order != sorted(order):
        sizes = joined.shape or ()
        like = ir.Value(type=joined.type, shape=ir.Shape([sizes[p] for p in order]), name=result.name)
        joined = linker.node("Transpose", [joined], like, f"{result.name}/transposed", perm=order)
    return _viewed(joined, target, result, linker)


@pattern("Concat", reads=VIEWS, last=True)
def stack_of_parts(node: ir.Node, linker: Any) -> ir.Value | None:
    """Parts that are stacked are joined along the axis behind, with one view; last, as others look for the stack."""
    result = node.outputs[0]
    parts, axis = _parts(node)
    target = constant_shape(result)
    if len(parts) < 2 or target is None or axis == len(target) - 1:
        return None
    joined = _joined(parts, axis, result, linker)
    return linker.node("Reshape", [joined, linker.constants.get(target)], result, f"{result.name}/view")


def _parts(stack: ir.Node) -> tuple[list[ir.Value], int]:
    """The parts of one shape that a Concat stacks, each with an axis more that nothing else reads; and this axis."""
    whole = ir_shape(stack.outputs[0]) or ()
    axis, parts = stack.attributes["axis"].as_int() % max(len(whole), 1), list[ir.Value]()
    for value in stack.inputs:
        view = own_producer(value, VIEWS)
        part = None if view is None else view.inputs[0]
        shape = ir_shape(part)
        if part is None or shape is None or not same_shape(ir_shape(value), (*shape[:axis], 1, *shape[axis:])):
            return [], axis
        if parts and not same_shape(shape, ir_shape(parts[0])):
            return [], axis
        parts.append(part)
    return parts, axis


def _joined(parts: list[ir.Value], axis: int, like: ir.Value, linker: Any) -> ir.Value:
    """Parts of one shape joined along an axis."""
    sizes: list[Any] = list(ir_shape(parts[0]) or ())
    sizes[axis] = len(parts) * sizes[axis] if isinstance(sizes[axis], int) else None
    whole = ir.Value(type=like.type, shape=ir.Shape(sizes), name=like.name)
    return linker.node("Concat", parts, whole, f"{like.name}/joined", axis=axis)


@pattern(*VIEWS, reads=("Expand",), last=True)
def repeated_parts(node: ir.Node, linker: Any) -> ir.Value | None:
    """A view of parts repeated along an axis that was added for it is one of their Tile along the axis behind.

    Where the parts are so large that onnxruntime, which copies one after the other, takes no longer; last, as others
    look for the Expand. Engines that portable models are for are not known to.
    """
    expand, result = own_producer(node.inputs[0], ("Expand",)), node.outputs[0]
    view = own_producer(expand.inputs[0], VIEWS) if expand is not None else None
    source, target = view.inputs[0] if view is not None else None, constant_shape(result)
    if source is None or target is None or view is None or expand is None:
        return None
    sizes, wide, whole = ir_shape(source), ir_shape(view.outputs[0]), ir_shape(expand.outputs[0])
    if sizes is None or whole is None or len(whole) != len(sizes) + 1:
        return None
    if "portable" in linker.knowledge.purposes or result.dtype not in TILED:
        return None
    for axis in range(len(sizes)):
        outer, part, times = sizes[:axis], sizes[axis:], whole[axis]
        if not same_shape(wide, (*outer, 1, *part)) or not same_shape(whole, (*outer, times, *part)):
            continue
        known = [d for d in part if isinstance(d, int)]
        if not isinstance(times, int) or times < 1 or len(known) < len(part) or math.prod(known) < COPIED:
            continue
        repeats = linker.constants.get(np.asarray([times if k == axis else 1 for k in range(len(sizes))]))
        like = ir.Value(type=source.type, shape=ir.Shape([*outer, times * known[0], *known[1:]]), name=result.name)
        tiled = linker.node("Tile", [source, repeats], like, f"{result.name}/tiled")
        return _viewed(tiled, target, result, linker)
    return None


def _viewed(value: ir.Value, target: np.ndarray, result: ir.Value, linker: Any) -> ir.Value:
    """A value in the shape of a result, for which a Reshape is given `target`; itself if it has that."""
    if same_shape(ir_shape(value), ir_shape(result)):
        return value
    return linker.node("Reshape", [value, linker.constants.get(target)], result, f"{result.name}/view")
