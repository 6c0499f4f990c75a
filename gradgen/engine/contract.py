"""The contract of a rule's results: the cotangent of x has x's type and shape. A result is checked, and learns from x."""

from __future__ import annotations

import onnx_ir as ir

from gradgen.engine.values import Dim, Shape
from gradgen.errors import GradientError


class MisfitError(GradientError):
    """What a rule or a node gives contradicts what is known of the value: the rule is wrong, or the model is."""


def ir_shape(value: ir.Value | None) -> Shape | None:
    """A value's shape as sizes, names and None; None for an unknown rank."""
    if value is None or value.shape is None:
        return None
    return tuple([d if isinstance(d, int) else d.value for d in value.shape.dims])


def contradict(one: Shape | None, other: Shape | None) -> bool:
    """Whether two shapes cannot be those of one value: known ranks or known sizes differ."""
    if one is None or other is None:
        return False
    return len(one) != len(other) or any(
        a != b for a, b in zip(one, other, strict=True) if isinstance(a, int) and isinstance(b, int)
    )


def merge_shapes(own: Shape | None, like: Shape | None) -> Shape | None:
    """What two shapes of one value say together: sizes before names, the names of `like` before those of `own`."""
    if own is None or like is None:
        return like if own is None else own
    return tuple(_merge_dims(a, b) for a, b in zip(own, like, strict=True))


def _merge_dims(own: Dim, like: Dim) -> Dim:
    return own if like is None or (isinstance(own, int) and not isinstance(like, int)) else like


def learns(value: ir.Value, like: ir.Value) -> bool:
    """Whether `conform` would change the shape of a value."""
    own, wanted = ir_shape(value), ir_shape(like)
    return own != wanted and not contradict(own, wanted) and merge_shapes(own, wanted) != own


def conform(value: ir.Value, like: ir.Value, label: str, hint: str = "") -> None:
    """Check that a value can have the type and shape of another, and give it what is known of both.

    Args:
        value: a result; one that a node computes is changed in place.
        like: the value whose type and shape it has by contract.
        label: who made it, for the message.
        hint: what to do, for the message.

    Raises:
        MisfitError: a known type, rank or size contradicts that of `like`.
    """
    kind, agree = like.type, _same_shape(value.shape, like.shape)
    if value.type is kind and value.shape is like.shape:
        return
    # Elements of a sequence may differ in shape: what is known of one of them contradicts nothing.
    tensor = isinstance(kind, ir.TensorType) or kind is None
    own, wanted = (None, None) if agree else (ir_shape(value), ir_shape(like))
    if _other_type(value.type, kind) or (tensor and contradict(own, wanted)):
        raise MisfitError(f"{label} gives {_written(value)} for '{like.name}', which is {_written(like)}{hint}")
    if value.producer() is None:
        return
    value.type = kind or value.type
    if tensor and agree:
        return
    if not tensor:
        value.shape = like.shape if like.shape is not None else value.shape
        return
    merged = merge_shapes(own, wanted)
    if merged is not None and merged != own:
        value.shape = like.shape if merged == wanted else ir.Shape(merged)


def _same_shape(one: ir.Shape | None, other: ir.Shape | None) -> bool:
    """Whether two shapes say the same; to ask is faster than to write them down."""
    return one is other or (one is not None and other is not None and one.dims == other.dims)


def _other_type(one: ir.TypeProtocol | None, other: ir.TypeProtocol | None) -> bool:
    if one is None or other is None:
        return False
    return type(one) is not type(other) or one.dtype != other.dtype


def _written(value: ir.Value) -> str:
    shape = ir_shape(value)
    kind = "a value of unknown type" if value.type is None else value.type.dtype.name.lower()
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        kind = f"{type(value.type).__name__.removesuffix('Type').lower()} of {kind}"
    return kind if shape is None else f"{kind}[{', '.join('?' if d is None else str(d) for d in shape)}]"
