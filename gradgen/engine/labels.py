"""How messages name nodes and values, so that a reader finds them in the model."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gradgen.engine.names import shortened


def node_label(node: ir.Node) -> str:
    """A node's name; that of its first output where it has none. Very long ones are shortened."""
    return shortened(node.name or next((v.name for v in node.outputs if v.name), "") or node.op_type)


def with_origins(text: str, values: Sequence[ir.Value]) -> str:
    """A message in which the values that gradgen computes are followed by the node that they come from."""
    for value in values:
        producer = value.producer()
        source = None if producer is None else producer.metadata_props.get("gradgen.node")
        if source:
            text = text.replace(f"'{value.name}'", f"'{value.name}' (computed for '{source}')")
    return text
