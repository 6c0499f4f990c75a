"""Writes an onnx_ir model as a ModelProto: the same one that onnx_ir writes, sooner where a graph is large.

Here are the plain nodes and values that make up nearly all of a large graph, whose equal parts (types, attributes,
metadata) are made once and copied. Whatever else there is, onnx_ir writes.
"""

from __future__ import annotations

import copy
from typing import Any

import onnx
import onnx_ir as ir

from gradgen.engine.surgery import is_noted

_TYPES = ir.AttributeType
# Attributes that many nodes share, and that are small.
_SHARED = frozenset({_TYPES.INT, _TYPES.INTS, _TYPES.FLOAT, _TYPES.FLOATS, _TYPES.STRING, _TYPES.STRINGS})


def write(model: ir.Model) -> onnx.ModelProto:
    """The ModelProto of a model: equal to `onnx_ir.to_proto(model)`."""
    graph = model.graph
    values = (*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs))
    # Notes may be how tensors are quantised; before IR 10, what is known of functions is written into the graph.
    if (model.ir_version or 0) < 10 or any(map(is_noted, values)):
        return ir.to_proto(model)
    frame = copy.copy(model)
    frame.graph = ir.Graph(
        (),
        (),
        nodes=(),
        opset_imports=graph.opset_imports,
        name=graph.name,
        doc_string=graph.doc_string,
        metadata_props=graph.metadata_props,
    )
    proto = ir.to_proto(frame)
    _Writer(proto.graph, model.ir_version).write(graph)
    return proto


class _Writer:
    """Writes a graph into a GraphProto."""

    def __init__(self, proto: onnx.GraphProto, ir_version: int | None):
        self._proto = proto
        self._ir_version = ir_version
        # What many have in common; it is known again by the ids of what the graph holds, and so keeps alive.
        self._types: dict[tuple[Any, ...], onnx.TypeProto] = {}
        self._attributes: dict[int, onnx.AttributeProto] = {}
        self._entries: dict[tuple[str, str], onnx.StringStringEntryProto] = {}

    def write(self, graph: ir.Graph) -> None:
        """Write the values and the nodes of a graph."""
        proto, infos = self._proto, self._proto.value_info
        for value in graph.inputs:
            self._value(proto.input, value)
        inputs = {value.name for value in graph.inputs}
        for value in graph.initializers.values():
            if value.name not in inputs and _is_described(value):
                self._value(infos, value)
            if value.const_value is not None:
                value.const_value.name = value.name
                ir.serde.serialize_tensor_into(proto.initializer.add(), value.const_value)
        for node in graph:
            self._node(node)
            for value in node.outputs:
                if not value.is_graph_output() and value.name and _is_described(value):
                    self._value(infos, value)
        for value in graph.outputs:
            self._value(proto.output, value)

    def _value(self, infos: Any, value: ir.Value) -> None:
        kind, shape = value.type, value.shape
        if type(kind) is not ir.TensorType or value.metadata_props or value.doc_string:
            ir.serde.serialize_value_into(infos.add(), value)
            return
        key = (kind.dtype, kind.denotation, id(shape))
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = onnx.TypeProto()
            ir.serde.serialize_type_into(found, kind)
            if shape is not None:
                ir.serde.serialize_shape_into(found, shape)
        infos.add(name=value.name, type=found)

    def _node(self, node: ir.Node) -> None:
        attributes, outputs = node.attributes, [value.name for value in node.outputs]
        unusual = node.overload or node.doc_string or node.device_configurations or not all(outputs)
        if unusual or (attributes and any(a.type not in _SHARED or a.is_ref() for a in attributes.values())):
            ir.serde.serialize_node_into(self._proto.node.add(), node, model_ir_version=self._ir_version)
            return
        self._proto.node.add(
            op_type=node.op_type,
            domain=node.domain or None,
            name=node.name or None,
            input=["" if value is None else value.name for value in node.inputs],
            output=outputs,
            attribute=[self._attribute(a) for a in attributes.values()] if attributes else (),
            metadata_props=[self._entry(e) for e in sorted(node.metadata_props.items())],
        )

    def _attribute(self, attr: ir.Attr) -> onnx.AttributeProto:
        found = self._attributes.get(id(attr))
        if found is None:
            found = self._attributes[id(attr)] = onnx.AttributeProto()
            ir.serde.serialize_attribute_into(found, attr)
        return found

    def _entry(self, entry: tuple[str, str]) -> onnx.StringStringEntryProto:
        found = self._entries.get(entry)
        if found is None:
            found = self._entries[entry] = onnx.StringStringEntryProto(key=entry[0], value=entry[1])
        return found


def _is_described(value: ir.Value) -> bool:
    """Whether anything is known of a value beside its name."""
    return bool(value.type is not None or value.shape is not None or value.metadata_props or value.doc_string)
