"""Rewrites of sums, as the terms of a tangent and the contributions to a cotangent make them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.knowledge import is_constant
from gradgen.engine.surgery import count_uses, is_linked, remove_node
from gradgen.rules.lang import same_shape
from gradgen.rules.rewriting import only_reader, own_producer, pattern

# Ops that are linear in an input, by its position: a sign moves through them, without a change of a bit.
SIGNED = {
    **dict.fromkeys(("Mul", "MatMul", "Div"), (0, 1)),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"), (0,)),
    **dict.fromkeys(("Expand", "Neg"), (0,)),
}
BROADCAST = ("Add", "Mul", "Sub", "Div")
SUMMED = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
TERMS = 4  # of one Sum, as all of them are held until it is computed
READERS = 16  # of one expanded value that are asked whether they need it
SPREAD = 32_768  # elements from which on onnxruntime divides an Add among threads; a Sum it does not


@pattern("Add", reads=tuple(SIGNED))
def negated_addend(node: ir.Node, linker: Any) -> ir.Value | None:
    """What is computed from a negated value, and is linear in it, is subtracted instead."""
    for k in (1, 0):
        value, other = node.inputs[k], node.inputs[1 - k]
        found = _negation(value)
        if found is None or other is value:
            continue
        negation, reader = found
        if reader is None:
            value = negation.inputs[0]
        else:
            first, position = reader
            first.replace_input_with(position, negation.inputs[0])
            remove_node(negation)
        return linker.node("Sub", [other, value], node.outputs[0], f"{node.outputs[0].name}/difference")
    return None


def _negation(value: ir.Value | None) -> tuple[ir.Node, tuple[ir.Node, int] | None] | None:
    """The Neg that a value's sign comes from, behind nodes that nothing else reads, and which of these reads it where."""
    pending: list[tuple[ir.Value | None, tuple[ir.Node, int] | None]] = [(value, None)]
    while pending:
        operand, reader = pending.pop()
        node = own_producer(operand, tuple(SIGNED))
        if node is None:
            continue
        if node.op_type == "Neg":
            return node, reader
        pending.extend((node.inputs[k], (node, k)) for k in reversed(SIGNED[node.op_type]))
    return None


@pattern("Mul", reads=("ReduceSum",))
def mean_of_sum(node: ir.Node, linker: Any) -> ir.Value | None:
    """A sum over axes of known sizes, divided by the number of its terms, is their mean.

    By a constant of a rule's: a model's own scalar stays, since the result may be differentiated with respect to it.
    """
    for total, factor in (node.inputs, node.inputs[::-1]):
        reduced = own_producer(total, ("ReduceSum",))
        scale = linker.knowledge.constant(factor) if factor is not None and is_constant(factor) else None
        if reduced is None or total is None or scale is None or scale.size != 1 or scale.dtype.kind != "f":
            continue
        shape = ir_shape(reduced.inputs[0]) if reduced.inputs[0] is not None else None
        axes = linker.knowledge.constant(reduced.inputs[1]) if len(reduced.inputs) > 1 and reduced.inputs[1] else None
        if shape is None or axes is None or not axes.size or not same_shape(ir_shape(total), ir_shape(node.outputs[0])):
            continue
        sizes = [shape[int(a)] for a in axes.reshape(-1)]
        if not all(isinstance(d, int) and d > 0 for d in sizes):
            continue
        count = int(np.prod([d for d in sizes if isinstance(d, int)]))
        if scale.reshape(()) != np.asarray(1 / count, scale.dtype):
            continue
        attributes = {k: a.value for k, a in reduced.attributes.items()}
        return linker.node("ReduceMean", reduced.inputs, node.outputs[0], f"{node.outputs[0].name}/mean", **attributes)
    return None


@pattern(*BROADCAST, reads=("Expand", "Unsqueeze"), first=True)
def needless_expand(node: ir.Node, linker: Any) -> ir.Value | None:
    """An operand that is expanded to the shape that the other one has anyway is broadcast by the op itself.

    So is one that gets leading axes of size 1. Repeated rows that another reader needs are there anyway: they are read as
    they are, since this op may then work on matrices of rows too.
    """
    result = ir_shape(node.outputs[0])
    for k, other in ((0, node.inputs[1]), (1, node.inputs[0])):
        operand = node.inputs[k]
        expand = operand.producer() if operand is not None else None
        if expand is None or expand.domain or not is_linked(expand) or other is None:
            continue
        source, shape = expand.inputs[0] if expand.inputs else None, ir_shape(other)
        expanded = expand.op_type == "Expand" and same_shape(shape, result)
        if source is None or source is other or not (expanded or _leads(expand, shape, linker)):
            continue
        if expanded and _repeats_rows(expand) and _is_needed(expand.outputs[0]):
            continue
        inputs = [source, other] if k == 0 else [other, source]
        total = node.metadata_props.get("gradgen.sum")
        value = linker.node(node.op_type, inputs, node.outputs[0], f"{node.outputs[0].name}/broadcast")
        if total and (producer := value.producer()) is not None:
            producer.metadata_props["gradgen.sum"] = total
        return value
    return None


def _repeats_rows(expand: ir.Node) -> bool:
    """Whether an Expand repeats rows of a batch, and not elements of a row, nor one row alone."""
    source, result = ir_shape(expand.inputs[0]), ir_shape(expand.outputs[0])
    if source is None or result is None or len(result) < 3 or not same_shape(source[-1:], result[-1:]):
        return False
    return any(d != 1 for d in source[:-1])


def _is_needed(value: ir.Value) -> bool:
    """Whether an expanded value has a reader that does not broadcast it itself; of many readers none is asked."""
    if count_uses(value) > READERS:
        return False
    for use in value.uses():
        node = use.node
        if node.op_type not in BROADCAST or node.domain or not is_linked(node):
            return True
        if not same_shape(ir_shape(node.inputs[1 - use.idx]), ir_shape(node.outputs[0])):
            return True
    return value.is_graph_output()


def _leads(node: ir.Node, beside: Any, linker: Any) -> bool:
    """Whether a node does no more than to add leading axes, of which a shape beside its result has no fewer."""
    if node.op_type != "Unsqueeze" or beside is None:
        return False
    wide, axes = ir_shape(node.outputs[0]), linker.knowledge.constant(node.inputs[1])
    if wide is None or axes is None or len(beside) < len(wide):
        return False
    return sorted(int(a) % len(wide) for a in axes) == list(range(axes.size))


@pattern("Add", reads=("Add",), last=True)
def nested_sum(node: ir.Node, linker: Any) -> ir.Value | None:
    """A sum to which one after the other was added is one Sum, which adds in that order; last, as others look for pairs.

    Of few elements: on several threads a large Sum takes twice as long. Where the size is not known, of tangents alone.
    """
    result = node.outputs[0]
    shape = ir_shape(result)
    if shape is None or not all(isinstance(d, int) for d in shape):
        if "pushed" not in linker.knowledge.purposes:
            return None
    elif math.prod(shape) >= SPREAD:  # type: ignore[arg-type]
        return None
    if result.dtype not in SUMMED or (only_reader(result) and any(_is_sum(u.node) for u in result.uses())):
        return None
    terms: list[ir.Value | None] = []
    inner: ir.Node | None = node
    while inner is not None and len(terms) < TERMS - 1:
        one, other = inner.inputs
        inner = own_producer(one, ("Add",))
        if inner is None:
            one, other = other, one
            inner = own_producer(one, ("Add",))
        terms.append(other)
    terms.append(one)
    return linker.node("Sum", terms[::-1], result, f"{result.name}/sum") if len(terms) > 2 else None


def _is_sum(node: ir.Node) -> bool:
    return node.op_type == "Add" and not node.domain and is_linked(node)
