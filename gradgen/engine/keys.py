"""Keys by which equal attributes are known to be equal."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir


def attribute_key(attr: ir.Attr) -> Any:
    """A key that equal attributes share and different ones do not; a graph is equal to itself alone."""
    if attr.ref_attr_name is not None:
        return ("ref", attr.ref_attr_name)
    if attr.type == ir.AttributeType.TENSOR:
        return _tensor_key(attr.value)
    if attr.type == ir.AttributeType.TENSORS:
        return tuple(map(_tensor_key, attr.value))
    if attr.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return id(attr.value)
    return (attr.type, repr(attr.value))


def _tensor_key(tensor: Any) -> tuple:
    # Strings have no bytes of their own.
    content = tuple(tensor.string_data()) if tensor.dtype == ir.DataType.STRING else tensor.tobytes()
    return (str(tensor.dtype), tuple(tensor.shape), content)
