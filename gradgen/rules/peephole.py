"""Local simplifications that the builder applies while a rule is specialised, keyed by the op that would be emitted.

Each takes the inputs and attributes of the node and returns an equal value that is cheaper, or None. They hold for
every value that an input can take, NaN and infinity included, except that a known zero cotangent stays zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.rules.lang import op, same_dim, same_shape

PEEPHOLES: dict[str, Callable[..., Any]] = {}


def simplify(op_type: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The simpler value, or None."""
    fn = PEEPHOLES.get(op_type)
    return None if fn is None else fn(inputs, {k: a.value for k, a in attrs.items()})


def peephole(*op_types: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a simplification for these ops."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for op_type in op_types:
            PEEPHOLES[op_type] = fn
        return fn

    return register


def _is_scalar(value: Any, number: float) -> bool:
    """A known one-element tensor that holds `number`; only where it does is its content relied on."""
    known = value.peek if value is not None else None
    if known is None or known.size != 1 or known.reshape(-1)[0] != number:
        return False
    value.touched = True
    return True


def _broadcasts_into(small: Any, large: Any) -> bool:
    """Whether the result of an elementwise op on both has the shape of `large`."""
    if small.shape is None or large.shape is None or len(small.shape) > len(large.shape):
        return False
    tail = large.shape[len(large.shape) - len(small.shape) :]
    return all(s == 1 or (s is not None and s == t) for s, t in zip(small.shape, tail, strict=True))


@peephole("Identity")
def _identity(inputs, attrs):
    return inputs[0]


@peephole("Sub")
def _sub(inputs, attrs):
    a, b = inputs
    return a if (b.zero or _is_scalar(b, 0)) and _broadcasts_into(b, a) else None


@peephole("Add")
def _add(inputs, attrs):
    a, b = inputs
    return b if (a.zero or _is_scalar(a, 0)) and _broadcasts_into(a, b) else _sub(inputs, attrs)


@peephole("Mul")
def _mul(inputs, attrs):
    a, b = inputs
    for x, y in ((a, b), (b, a)):
        if x.zero and _broadcasts_into(y, x):
            return x
        if _is_scalar(x, 1) and _broadcasts_into(x, y):
            return y
    return None


@peephole("Div")
def _div(inputs, attrs):
    a, b = inputs
    if (a.zero and _broadcasts_into(b, a)) or (_is_scalar(b, 1) and _broadcasts_into(b, a)):
        return a
    return None


@peephole("Neg")
def _neg(inputs, attrs):
    x = inputs[0]
    if x.zero:
        return x
    return x.producer.inputs[0] if x.producer is not None and x.producer.op_type == "Neg" else None


@peephole("Transpose")
def _transpose(inputs, attrs):
    x = inputs[0]
    perm = attrs.get("perm")
    if perm is None:
        if x.shape is None:
            return None
        if len(x.shape) < 2:
            return x
        return op.Transpose(x, perm=list(range(len(x.shape)))[::-1])
    if list(perm) == sorted(perm):
        return x
    producer = x.producer
    if producer is not None and producer.op_type == "Transpose" and "perm" in producer.attributes:
        inner = producer.attributes["perm"].value
        return op.Transpose(producer.inputs[0], perm=[inner[p] for p in perm])
    return None


@peephole("Cast")
def _cast(inputs, attrs):
    return inputs[0] if inputs[0].dtype is not None and int(inputs[0].dtype) == int(attrs["to"]) else None


@peephole("CastLike")
def _cast_like(inputs, attrs):
    x, like = inputs
    return None if like.dtype is None else op.Cast(x, to=int(like.dtype))


@peephole("Shape")
def _shape(inputs, attrs):
    shape = inputs[0].shape
    if shape is None:
        return None
    part = shape[slice(attrs.get("start", 0), attrs.get("end"))]
    return np_constant(part) if all(isinstance(d, int) for d in part) else None


def np_constant(dims: Sequence[int]) -> Any:
    """A one-dimensional int64 constant."""
    from gradgen.rules.lang import current_builder

    return current_builder().constant(np.asarray(dims, np.int64))


@peephole("Size")
def _size(inputs, attrs):
    from gradgen.rules.lang import current_builder

    size = inputs[0].size
    return None if size is None else current_builder().constant(np.asarray(size, np.int64))


@peephole("Reshape")
def _reshape(inputs, attrs):
    x, target = inputs
    elements = target.elements
    if elements is None or (attrs.get("allowzero", 0) == 0 and 0 in elements):
        return None
    if -1 not in elements and same_shape(x.shape, elements):
        return x
    if target.const is None and -1 not in elements and 0 not in elements:
        sizes = _reshape_sizes(x, elements)
        if sizes is not None:
            result = op.Reshape(x, np_constant(sizes))
            result.shape = tuple(elements)
            return result
    producer = x.producer
    if producer is not None and producer.op_type == "Reshape" and target.const is not None and 0 not in elements:
        return op.Reshape(producer.inputs[0], target) if producer.inputs[0] is not x else None
    return None


def _reshape_sizes(x, elements):
    """A constant target of Reshape for dimensions that are not all known, so that no Shape arithmetic is left."""
    unknown = [i for i, e in enumerate(elements) if not isinstance(e, int)]
    if len(unknown) == 1:
        return [-1 if i in unknown else e for i, e in enumerate(elements)]
    # 0 copies a dimension from its place in x. Beside a -1 it would fail where that dimension is 0.
    if x.shape is not None and all(i < len(x.shape) and same_dim(x.shape[i], elements[i]) for i in unknown):
        return [0 if i in unknown else e for i, e in enumerate(elements)]
    return None


@peephole("Expand")
def _expand(inputs, attrs):
    x, target = inputs
    elements = target.elements
    if elements is None or x.shape is None or len(elements) > len(x.shape):
        return None
    tail = x.shape[len(x.shape) - len(elements) :]
    return x if all(e == 1 or (e is not None and e == d) for e, d in zip(elements, tail, strict=True)) else None


@peephole("Concat")
def _concat(inputs, attrs):
    if len(inputs) == 1:
        return inputs[0]
    # An axis of no elements adds nothing to a vector.
    full = [v for v in inputs if v.const is None or v.const.shape != (0,)]
    return op.Concat(*full, axis=attrs["axis"]) if full and len(full) < len(inputs) else None


@peephole("Sum", "Mean", "Max", "Min")
def _variadic(inputs, attrs):
    return inputs[0] if len(inputs) == 1 else None


@peephole("ReduceSum", "ReduceMean")
def _reduce(inputs, attrs):
    x = inputs[0]
    axes = inputs[1] if len(inputs) > 1 else None
    if x.shape is None or axes is None or axes.const is None:
        return None
    if axes.const.size == 0:
        return x if attrs.get("noop_with_empty_axes", 0) else None
    rank = len(x.shape)
    reduced = {int(a) % rank for a in axes.const} if rank else set()
    if not all(x.shape[a] == 1 for a in reduced):
        return None
    return x if attrs.get("keepdims", 1) else op.Squeeze(x, axes)


@peephole("Squeeze", "Unsqueeze")
def _squeeze(inputs, attrs):
    return inputs[0] if len(inputs) > 1 and inputs[1].const is not None and inputs[1].const.size == 0 else None


@peephole("Pad")
def _pad(inputs, attrs):
    pads = inputs[1].const
    if pads is not None and not np.any(pads):
        return inputs[0]
    if len(inputs) < 4 or inputs[3] is None:
        return None
    # onnxruntime moves a Transpose behind a Pad as if its pads named every axis: written out, they do.
    x, pads, value, axes = inputs
    return op.Pad(x, _pads_of_every_axis(x, pads, axes), value, mode=attrs.get("mode"))


def _pads_of_every_axis(x, pads, axes):
    """Pads of the axes that are named as pads of all axes, zeros at the others."""
    if x.shape is None or axes.const is None:
        axes = op.Cast(axes, to=ir.DataType.INT64)
        rank = op.Size(op.Shape(x))
        axes = op.Mod(axes, rank)
        none = op.Expand(np.zeros(1, np.int64), op.Reshape(rank * 2, np.asarray([1], np.int64)))
        return op.ScatterElements(none, op.Concat(axes, axes + rank, axis=0), pads, axis=0)
    rank, named = len(x.shape), [int(a) for a in axes.const]
    if named == list(range(rank)):
        return pads
    # The zero that stands behind the pads serves all other axes.
    places = [2 * len(named)] * (2 * rank)
    for k, axis in enumerate(named):
        places[axis % rank], places[axis % rank + rank] = k, k + len(named)
    if pads.const is not None:
        return np.append(pads.const, 0)[places]
    return op.Gather(op.Concat(pads, np.zeros(1, np.int64), axis=0), np.asarray(places, np.int64))


@peephole("Tile")
def _tile(inputs, attrs):
    repeats = inputs[1].const
    return inputs[0] if repeats is not None and np.all(repeats == 1) else None


@peephole("Where")
def _where(inputs, attrs):
    condition, x, y = inputs
    if condition.const is None or condition.const.size != 1:
        return None
    taken, other = (x, y) if bool(condition.const.reshape(-1)[0]) else (y, x)
    return taken if _broadcasts_into(other, taken) and _broadcasts_into(condition, taken) else None
