"""Zeros and sums of values of any type: element by element for sequences, by presence for optionals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.contract import contradict, ir_shape, merge_shapes
from gradgen.engine.values import UnknownTypeError

BOOL = ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
INT64 = ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))


def is_sequence(value: ir.Value) -> bool:
    """Whether a value is a sequence of tensors."""
    return isinstance(value.type, ir.SequenceType)


def is_optional(value: ir.Value) -> bool:
    """Whether a value is an optional tensor or sequence."""
    return isinstance(value.type, ir.OptionalType)


def element(value: ir.Value) -> ir.Value:
    """The type of what a sequence or an optional holds, to be used as `like`.

    Raises:
        UnknownTypeError: its type is not known.
    """
    if not isinstance(value.type, ir.SequenceType | ir.OptionalType):
        raise UnknownTypeError(f"the type of what '{value.name}' holds is unknown")
    return ir.Value(name=value.name, type=value.type.elem_type, shape=value.shape)


def zeros(linker: Any, like: ir.Value) -> ir.Value:
    """Zeros of the type, shape and structure of a value."""
    from gradgen.rules.library import zeros_like

    if is_sequence(like):
        return map_elements(linker, [like], like, lambda inner, items: zeros(inner, items[0]))
    if is_optional(like):
        return map_present(linker, [like], like, lambda inner, items: zeros(inner, items[0]))
    return linker.library(zeros_like, like)


def add(linker: Any, parts: Sequence[ir.Value], like: ir.Value) -> ir.Value:
    """The sum of two values of one type."""
    if is_sequence(like):
        return map_elements(linker, parts, like, lambda inner, items: add(inner, items, element(like)))
    if is_optional(like):
        return map_present(linker, parts, like, lambda inner, items: add(inner, items, element(like)))
    return linker.add(parts, like)


def view(linker: Any, value: ir.Value, like: ir.Value) -> ir.Value:
    """A value from outside a subgraph, as one of the shape of another in it.

    Two branches may give one output in different shapes, and what reads it may fit one of them alone: where the other
    one is taken nothing of that runs, but its types must hold together. So a branch says nothing of the outer value:
    what it knows beyond that is known of a copy.
    """
    own, wanted = ir_shape(value), ir_shape(like)
    if not isinstance(like.type, ir.TensorType):
        return value
    if not contradict(own, wanted):
        same = value.producer() is None or merge_shapes(own, wanted) == own
        return value if same else linker.node("Identity", [value], like, f"{like.name}/cotangent")
    length = ir.Value(type=INT64.type, shape=ir.Shape([len(like.shape or ())]))
    shape = linker.node("Shape", [like], length, f"{like.name}/shape")
    return linker.node("Reshape", [value, shape], like, f"{like.name}/cotangent", allowzero=1)


def map_elements(
    linker: Any,
    sequences: Sequence[ir.Value],
    like: ir.Value,
    fn: Callable[[Any, list[ir.Value]], ir.Value],
    *,
    start: ir.Value | None = None,
    length: ir.Value | None = None,
    onto: ir.Value | None = None,
) -> ir.Value:
    """The sequence of what `fn` makes of the elements of sequences.

    It takes as many as the first sequence has, or `length` of them from the position `start` on; `onto` is a sequence
    to which the results are appended.
    """
    base, item = f"{like.name}/element", element(like)
    if length is None:
        length = linker.node("SequenceLength", [sequences[0]], INT64, f"{like.name}/length")
    if onto is None:
        bare = ir.Value(type=like.type)  # no element shape: equal empty sequences may become one
        onto = linker.node("SequenceEmpty", [], bare, f"{like.name}/none", dtype=int(item.dtype or 1))
    step, go, before = (linker.value(base, kind) for kind in (INT64, BOOL, like))
    body = ir.Graph([step, go, before], [], nodes=[], opset_imports={"": linker.opset}, name="each")
    inner = linker.within(body)
    position = step if start is None else inner.node("Add", [start, step], INT64, base)
    items = [inner.node("SequenceAt", [s, position], element(s), base) for s in sequences]
    after = inner.node("SequenceInsert", [before, fn(inner, items)], like, base)
    body.outputs.extend([inner.node("Identity", [go], BOOL, base), after])
    return linker.structured("Loop", [length, None, onto], {"body": body}, [like], base)[0]


def map_present(
    linker: Any, optionals: Sequence[ir.Value], like: ir.Value, fn: Callable[[Any, list[ir.Value]], ir.Value]
) -> ir.Value:
    """What `fn` makes of the contents of optionals that are all present, or all absent."""
    base = f"{like.name}/content"

    def present(inner: Any) -> ir.Value:
        items = [inner.node("OptionalGetElement", [o], element(o), base) for o in optionals]
        return inner.node("Optional", [fn(inner, items)], like, base)

    has = linker.node("OptionalHasElement", [optionals[0]], BOOL, base)
    return choose(linker, has, present, lambda inner: inner.node("Identity", [optionals[0]], like, base), like)


def as_sequence(linker: Any, optional: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Whether an optional holds something, and what it holds as a sequence: its own, or one of at most one tensor."""
    item = element(optional)
    assert item.type is not None
    whole = item if is_sequence(item) else ir.Value(name=item.name, type=ir.SequenceType(item.type), shape=item.shape)
    base = f"{optional.name}/content"

    def held(inner: Any) -> ir.Value:
        content = inner.node("OptionalGetElement", [optional], item, base)
        return content if is_sequence(item) else inner.node("SequenceConstruct", [content], whole, base)

    def none(inner: Any) -> ir.Value:
        return inner.node("SequenceEmpty", [], ir.Value(type=whole.type), base, dtype=int(item.dtype or 1))

    has = linker.node("OptionalHasElement", [optional], BOOL, base)
    return has, choose(linker, has, held, none, whole)


def as_optional(linker: Any, has: ir.Value, sequence: ir.Value, like: ir.Value) -> ir.Value:
    """The optional of which `as_sequence` made these."""
    item, base = element(like), f"{like.name}/content"

    def held(inner: Any) -> ir.Value:
        first = linker.constants.get(np.asarray(0, np.int64))
        content = sequence if is_sequence(item) else inner.node("SequenceAt", [sequence, first], item, base)
        return inner.node("Optional", [content], like, base)

    def none(inner: Any) -> ir.Value:
        kind = ir.AttrTypeProto("type", ir.TypeAndShape(item.type, item.shape))
        return inner.node("Optional", [], like, base, type=kind)

    return choose(linker, has, held, none, like)


def choose(
    linker: Any, condition: ir.Value, yes: Callable[[Any], ir.Value], no: Callable[[Any], ir.Value], like: ir.Value
) -> ir.Value:
    """An If whose branches are written by functions of a linker."""
    branches = {}
    for name, write in (("then_branch", yes), ("else_branch", no)):
        graph = ir.Graph([], [], nodes=[], opset_imports={"": linker.opset}, name=name)
        graph.outputs.append(write(linker.within(graph)))
        branches[name] = graph
    return linker.structured("If", [condition], branches, [like], f"{like.name}/choice")[0]
