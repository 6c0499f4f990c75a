"""Patterns of views, transposes, products, masks and parts in the linked backward graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.surgery import is_linked
from gradgen.rules.lang import same_shape
from gradgen.rules.rewriting import only_reader, own_producer, pattern
from gradgen.rules.row_regions import VIEWS
from gradgen.rules.rows import constant_shape


@pattern(*VIEWS, reads=VIEWS)
@pattern(*VIEWS, reads=VIEWS, last=True)  # those that others of the last make
def adjacent_views(node: ir.Node, linker: Any) -> ir.Value | None:
    """A view of a view is one Reshape, or nothing."""
    first = own_producer(node.inputs[0], VIEWS)
    if first is None or first.inputs[0] is None:
        return None
    source, result = first.inputs[0], node.outputs[0]
    if same_shape(ir_shape(source), ir_shape(result)):
        return source
    target = constant_shape(result)
    if target is None:
        return None
    return linker.node("Reshape", [source, linker.constants.get(target)], result, f"{result.name}/view")


@pattern(*VIEWS, reads=("Transpose",))
def transposed_units(node: ir.Node, linker: Any) -> ir.Value | None:
    """A Transpose between views that only insert and drop axes of size 1 is one without these axes, or nothing."""
    middle = own_producer(node.inputs[0], ("Transpose",))
    first = own_producer(middle.inputs[0], ("Unsqueeze",)) if middle is not None else None
    if middle is None or first is None or "perm" not in middle.attributes:
        return None
    source, widened, target = first.inputs[0], ir_shape(first.outputs[0]), constant_shape(node.outputs[0])
    added = linker.knowledge.constant(first.inputs[1])
    if source is None or widened is None or added is None or target is None:
        return None
    inserted = {int(a) % len(widened) for a in added}
    kept = [a for a in range(len(widened)) if a not in inserted]
    perm = [kept.index(a) for a in middle.attributes["perm"].as_ints() if a not in inserted]
    if perm != sorted(perm):
        sizes = ir_shape(source) or ()
        like = ir.Value(type=source.type, shape=ir.Shape([sizes[p] for p in perm]), name=node.outputs[0].name)
        source = linker.node("Transpose", [source], like, f"{like.name}/transposed", perm=perm)
    return linker.node(
        "Reshape", [source, linker.constants.get(target)], node.outputs[0], f"{node.outputs[0].name}/view"
    )


@pattern("Reshape", reads=("Transpose",))
def interleaved_parts(node: ir.Node, linker: Any) -> ir.Value | None:
    """Parts stacked on an axis of their own that is then moved next to another and merged with it are their Concat."""
    middle = own_producer(node.inputs[0], ("Transpose",))
    stack = own_producer(middle.inputs[0], ("Concat",)) if middle is not None else None
    if middle is None or stack is None or "perm" not in middle.attributes:
        return None
    result, moved = ir_shape(node.outputs[0]), ir_shape(middle.outputs[0])
    parts = [ir_shape(v) for v in stack.inputs]
    if result is None or moved is None or any(p is None for p in parts):
        return None
    perm = list(middle.attributes["perm"].as_ints())
    axis = stack.attributes["axis"].as_int() % len(perm)
    at = perm.index(axis)
    others = [p for p in perm if p != axis]
    if others != sorted(others) or any(p is not None and p[axis] != 1 for p in parts) or at + 1 >= len(moved):
        return None
    merged = moved[at + 1]
    if not isinstance(merged, int) or result != (*moved[:at], len(parts) * merged, *moved[at + 2 :]):
        return None
    shape = [*moved[:at], *moved[at + 1 :]]
    pieces = []
    for value in stack.inputs:
        like = ir.Value(type=node.outputs[0].type, shape=ir.Shape(shape), name=node.outputs[0].name)
        target = constant_shape(like)
        if value is None or target is None:
            return None
        pieces.append(linker.node("Reshape", [value, linker.constants.get(target)], like, f"{like.name}/part"))
    return linker.node("Concat", pieces, node.outputs[0], f"{node.outputs[0].name}/joined", axis=at)


@pattern("Transpose", reads=("Transpose",))
def cancelled_transposes(node: ir.Node, linker: Any) -> ir.Value | None:
    """A Transpose of a Transpose is one, or nothing: then even where the first is a forward node, or has other readers."""
    first = node.inputs[0].producer() if node.inputs[0] is not None else None
    if first is None or first.op_type != "Transpose" or first.domain or first.inputs[0] is None:
        return None
    if "perm" not in node.attributes or "perm" not in first.attributes:
        return None
    inner = first.attributes["perm"].as_ints()
    perm = [inner[p] for p in node.attributes["perm"].as_ints()]
    source, result = first.inputs[0], node.outputs[0]
    if perm == sorted(perm):
        return source
    if own_producer(node.inputs[0], ("Transpose",)) is None:
        return None
    return linker.node("Transpose", [source], result, f"{result.name}/transposed", perm=perm)


@pattern("Transpose", reads=("Gemm",))
def transposed_product(node: ir.Node, linker: Any) -> ir.Value | None:
    """The Transpose of a matrix product without addend is the product of the transposed factors."""
    product = own_producer(node.inputs[0], ("Gemm",))
    if product is None or (len(product.inputs) > 2 and product.inputs[2] is not None):
        return None
    flags = [1 - (a.as_int() if (a := product.attributes.get(k)) is not None else 0) for k in ("transB", "transA")]
    attributes: dict[str, Any] = {k: v for k, v in zip(("transA", "transB"), flags, strict=True) if v}
    if "alpha" in product.attributes:
        attributes["alpha"] = product.attributes["alpha"].as_float()
    result = node.outputs[0]
    return linker.node("Gemm", [product.inputs[1], product.inputs[0]], result, f"{result.name}/product", **attributes)


@pattern("Mul", reads=("MaxUnpool",))
def mask_behind_pool(node: ir.Node, linker: Any) -> ir.Value | None:
    """A mask [x > t] on what is spread to the maxima of x's windows is the mask [max > t] before it is spread."""
    for spread, masked in (node.inputs, node.inputs[::-1]):
        unpool, cast = own_producer(spread, ("MaxUnpool",)), own_producer(masked, ("Cast",))
        greater = own_producer(cast.inputs[0], ("Greater",)) if cast is not None else None
        if unpool is None or cast is None or greater is None or unpool.inputs[1] is None:
            continue
        pooled = _maxima(unpool.inputs[1], greater.inputs[0])
        if pooled is None:
            continue
        limit = linker.knowledge.constant(greater.inputs[1])
        if limit is None or limit.size != 1:
            continue
        ct, base = unpool.inputs[0], node.outputs[0].name
        truth = ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=pooled.shape)
        above = linker.node("Greater", [pooled, greater.inputs[1]], truth, f"{base}/above")
        factor = linker.node("Cast", [above], pooled, f"{base}/mask", to=cast.attributes["to"].as_int())
        kept = linker.node("Mul", [ct, factor], pooled, f"{base}/kept")
        attributes = {k: a.value for k, a in unpool.attributes.items()}
        return linker.node("MaxUnpool", [kept, *unpool.inputs[1:]], node.outputs[0], f"{base}/spread", **attributes)
    return None


# How the indices of maxima are computed from a pool's input and result, from the indices back.
CODES = (("Cast", 0), ("Sub", 1), ("MaxPool", 0), ("Mul", 0), ("Cast", 0), ("Equal", 0))


def _maxima(indices: ir.Value, source: ir.Value | None) -> ir.Value | None:
    """The maxima of the windows of `source` that these indices are the places of, None where they are of another."""
    pool = indices.producer()
    if pool is not None and pool.op_type == "MaxPool" and not pool.domain:
        return pool.outputs[0] if pool.inputs[0] is source else None
    value: ir.Value | None = indices
    equal = None
    for op_type, position in CODES:
        equal = value.producer() if value is not None else None
        if equal is None or equal.op_type != op_type or equal.domain or not is_linked(equal):
            return None
        value = equal.inputs[position]
    spread = equal.inputs[1].producer() if equal is not None and equal.inputs[1] is not None else None
    if value is not source or spread is None or spread.op_type != "Resize" or spread.domain:
        return None
    return spread.inputs[0]


@pattern("GatherElements", reads=("Expand",))
def whole_rows(node: ir.Node, linker: Any) -> ir.Value | None:
    """Elements that are gathered by a column of indices repeated along the rows are rows that are gathered."""
    table, indices, result = node.inputs[0], node.inputs[1], node.outputs[0]
    repeat = indices.producer() if indices is not None else None
    if (
        table is None
        or indices is None
        or repeat is None
        or repeat.op_type != "Expand"
        or repeat.domain
        or repeat.inputs[0] is None
    ):
        return None
    column, read, whole = ir_shape(repeat.inputs[0]), ir_shape(result), ir_shape(table)
    if read is None or whole is None or len(read) != 2 or column is None or not same_shape(column, (read[0], 1)):
        return None
    if not same_shape(read[1:], whole[1:]) or ("axis" in node.attributes and node.attributes["axis"].as_int() != 0):
        return None
    like = ir.Value(type=indices.type, shape=ir.Shape(read[:1]), name=result.name)
    rows = linker.node(
        "Reshape", [repeat.inputs[0], linker.constants.get(np.asarray([-1]))], like, f"{result.name}/rows"
    )
    return linker.node("Gather", [table, rows], result, f"{result.name}/gathered", axis=0)


@pattern("Add", reads=("Pad", "Add"))
def pads_that_tile(node: ir.Node, linker: Any) -> ir.Value | None:
    """A sum of zero-padded parts that together fill one axis is their Concat."""
    if not _parent_sum(node) or any(_parent_sum(u.node) for u in node.outputs[0].uses()):
        return None
    parts = _summands(node)
    spans = [_span(part, linker) for part in parts]
    if len(parts) < 2 or any(s is None for s in spans):
        return None
    found = sorted((s for s in spans if s is not None), key=lambda s: s[1])
    axes = {s[0] for s in found}
    result = node.outputs[0]
    if len(axes) != 1 or result.shape is None:
        return None
    axis, position = axes.pop(), 0
    whole = tuple(ir_shape(result) or ())
    for _, start, size, part in found:
        shape = tuple(ir_shape(part) or ())
        # One that is broadcast along another axis is no part of a Concat.
        beside = same_shape((*shape[:axis], *shape[axis + 1 :]), (*whole[:axis], *whole[axis + 1 :]))
        if start != position or len(shape) != len(whole) or not beside:
            return None
        position += size
    if result.shape.dims[axis] != position:
        return None
    return linker.node("Concat", [s[3] for s in found], result, f"{result.name}/joined", axis=axis)


def _parent_sum(node: ir.Node) -> bool:
    return node.op_type == "Add" and not node.domain and node.metadata_props.get("gradgen.sum") == "1"


def _summands(node: ir.Node) -> list[ir.Value]:
    """The leaves of a tree of accumulating Adds."""
    found: list[ir.Value] = []
    pending: list[ir.Value | None] = list(node.inputs)
    while pending:
        value = pending.pop()
        if value is None:
            continue
        inner = value.producer()
        if inner is not None and _parent_sum(inner) and only_reader(value):
            pending.extend(inner.inputs)
        else:
            found.append(value)
    return found


def _span(value: ir.Value, linker: Any) -> tuple[int, int, int, ir.Value] | None:
    """Axis, start, size and content of a part that is zero-padded along one axis."""
    pad = own_producer(value, ("Pad",))
    if pad is None or len(pad.inputs) < 2 or pad.inputs[0] is None or pad.inputs[1] is None:
        return None
    if "mode" in pad.attributes and pad.attributes["mode"].as_string() != "constant":
        return None
    filling = pad.inputs[2] if len(pad.inputs) > 2 else None
    content = None if filling is None else linker.knowledge.constant(filling)
    if filling is not None and (content is None or np.any(content)):
        return None
    part, pads = pad.inputs[0], linker.knowledge.constant(pad.inputs[1])
    if part.shape is None or pads is None:
        return None
    axes = list(range(len(part.shape)))
    if len(pad.inputs) > 3 and pad.inputs[3] is not None:
        known = linker.knowledge.constant(pad.inputs[3])
        if known is None:
            return None
        axes = [int(a) % len(part.shape) for a in known]
    padded = [(a, int(pads[k]), int(pads[k + len(axes)])) for k, a in enumerate(axes) if pads[k] or pads[k + len(axes)]]
    if len(padded) != 1 or min(padded[0][1:]) < 0:
        return None
    axis, before, _ = padded[0]
    size = part.shape.dims[axis]
    return (axis, before, size, part) if isinstance(size, int) else None


@pattern("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Flatten", reads=("DequantizeLinear",))
def moved_off_int8(node: ir.Node, linker: Any) -> ir.Value | None:
    """What moves the elements of a dequantised int8 tensor reads a copy of them, which is the Max of one operand.

    onnxruntime's optimiser carries the quantisation through such an op, and then makes uint8 of int8 in its zero point,
    but not in the node that it has added: the model does not load.
    """
    source = node.inputs[0]
    quantised = None if source is None else source.producer()
    if source is None or quantised is None or quantised.domain or quantised.op_type != "DequantizeLinear":
        return None
    if quantised.inputs[0] is None or quantised.inputs[0].dtype not in (None, ir.DataType.INT8):
        return None
    copy = linker.node("Max", [source], source, f"{source.name}/copy")
    result = node.outputs[0]
    attributes = {name: attr.value for name, attr in node.attributes.items()}
    return linker.node(node.op_type, [copy, *node.inputs[1:]], result, f"{result.name}/moved", **attributes)
