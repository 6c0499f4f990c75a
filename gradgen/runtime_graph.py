"""What `compile` asks of a graph before onnxruntime gets it: shapes, what is fed, constants, what makes a value."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from gradgen.engine.propagation import inferred_values


def inferred(proto: onnx.ModelProto) -> ir.Model:
    """The model with the shapes that are inferred; its constants are not copied for that."""
    known = inferred_values(proto)
    model = ir.from_proto(proto)
    for node in model.graph:
        for value in node.outputs:
            if value.name in known and known[value.name].type.HasField("tensor_type"):
                found = ir.serde.deserialize_value_info_proto(known[value.name], None)
                value.type, value.shape = found.type, found.shape
    return model


def fed(graph: ir.Graph) -> set[ir.Value | None]:
    """The values that something fed decides on, and not by its sizes alone."""
    found: set[ir.Value | None] = {value for value in graph.inputs if not value.is_initializer()}
    for node in graph:
        inner = any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values())
        if node.op_type not in ("Shape", "Size") and (inner or not found.isdisjoint(node.inputs)):
            found.update(node.outputs)
    return found - {None}


def sizes(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape of a value of which all sizes are known."""
    if value is None or value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return None
    return tuple(value.shape.numpy())


def numbers(value: ir.Value | None) -> np.ndarray | None:
    """The numbers of a constant."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()


def producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node that makes a value, if it is of this op of the standard."""
    node = None if value is None else value.producer()
    return node if node is not None and not node.domain and node.op_type == op_type else None
