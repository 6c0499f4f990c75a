"""Reads and writes ModelProtos as onnx_ir does, with equal results, sooner where a graph is large.

What nearly all of a large graph consists of is done here: types are read once for all values that have the same; plain
nodes and values are written as bytes, in protobuf's encoding, and read by protobuf, many at a time. Whatever else there
is, onnx_ir reads and writes.
"""

from __future__ import annotations

import copy
from typing import Any

import onnx
import onnx_ir as ir

from gradgen.engine.subgraphs import every_node
from gradgen.engine.surgery import is_noted

_TYPES = ir.AttributeType
# Attributes that many nodes share, and that are small.
_SHARED = frozenset({_TYPES.INT, _TYPES.INTS, _TYPES.FLOAT, _TYPES.FLOATS, _TYPES.STRING, _TYPES.STRINGS})


def _tag(message: Any, field: str) -> bytes:
    """What precedes the length of a field that holds a text or a message."""
    number = message.DESCRIPTOR.fields_by_name[field].number
    assert number < 16
    return bytes([number << 3 | 2])


_NODE = _tag(onnx.GraphProto, "node")
_VALUES = {field: _tag(onnx.GraphProto, field) for field in ("input", "value_info", "output")}
_INPUT, _OUTPUT, _NAME, _OP_TYPE, _DOMAIN, _ATTRIBUTE, _METADATA = (
    _tag(onnx.NodeProto, field)
    for field in ("input", "output", "name", "op_type", "domain", "attribute", "metadata_props")
)
_NO_INPUT, _NO_OUTPUT = _INPUT + b"\0", _OUTPUT + b"\0"
_KEY, _VALUE = (_tag(onnx.StringStringEntryProto, field) for field in ("key", "value"))
_VALUE_NAME, _VALUE_TYPE = _tag(onnx.ValueInfoProto, "name"), _tag(onnx.ValueInfoProto, "type")


_LENGTHS = [bytes([n]) for n in range(128)]


def _sized(content: bytes) -> bytes:
    """A text or a message behind its length."""
    size = len(content)
    if size < 128:
        return _LENGTHS[size] + content
    length = bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes(length) + content


class _Texts(dict[str, bytes]):
    """Texts as they are written, by what they say."""

    def __missing__(self, text: str) -> bytes:
        found = self[text] = _sized(text.encode())
        return found


def from_proto(proto: onnx.ModelProto) -> ir.Model:
    """The onnx_ir model of a ModelProto, whose `value_info` it takes: as that of `onnx_ir.from_proto(proto)`."""
    # Functions read what is known of their values themselves, before IR 10 from among the graph's.
    if proto.functions:
        return ir.from_proto(proto)
    infos, outputs = list(proto.graph.value_info), {info.name for info in proto.graph.output}
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(i for i in infos if i.name in outputs or i.doc_string or i.metadata_props)
    described = {info.name: info.type for info in infos}
    for info in proto.graph.value_info:
        described.pop(info.name, None)
    model = ir.from_proto(proto)
    shapes: dict[bytes, ir.Shape | None] = {}
    inputs = set(model.graph.inputs)
    stored = (v for v in model.graph.initializers.values() if v not in inputs)
    for value in (*stored, *(v for node in model.graph for v in node.outputs)):
        found = described.get(value.name or "")
        if found is None:
            continue
        key = found.SerializeToString()
        if key not in shapes:
            shapes[key] = ir.serde.deserialize_type_proto_for_shape(found)
        value.shape = shapes[key]  # can be shared, since nobody can change a shape that was read
        value.type = ir.serde.deserialize_type_proto_for_type(found)
    return model


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The ModelProto of a model: equal to `onnx_ir.to_proto(model)`.

    The model itself loses the shapes of values of unknown type, its subgraphs' too: a file has no place for them, and
    onnx_ir, which writes subgraphs, would log a warning for each.
    """
    graph = model.graph
    stored = graph.initializers.values()
    values = [*graph.inputs, *graph.outputs, *stored, *(v for node in every_node(graph) for v in node.outputs)]
    for value in values:
        if value.type is None and value.shape is not None:
            value.shape = None
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
        self._nodes: list[bytes] = []
        self._values: list[bytes] = []
        self._texts = _Texts()
        # What many have in common; it is known again by the ids of what the graph holds, and so keeps alive, and a type
        # by what it says too: the shapes of initializers are objects of their own.
        self._types: dict[tuple[Any, ...], bytes] = {}
        self._attributes: dict[int, bytes] = {}
        self._metadata: dict[tuple[tuple[str, str], ...], bytes] = {}

    def write(self, graph: ir.Graph) -> None:
        """Write the values and the nodes of a graph."""
        proto = self._proto
        for value in graph.inputs:
            self._value("input", value)
        inputs = {value.name for value in graph.inputs}
        for value in graph.initializers.values():
            if value.name not in inputs and _is_described(value):
                self._value("value_info", value)
            if value.const_value is not None:
                value.const_value.name = value.name
                ir.serde.serialize_tensor_into(proto.initializer.add(), value.const_value)
        for node in graph:
            self._node(node)
            for value in node.outputs:
                if not value.is_graph_output() and value.name and _is_described(value):
                    self._value("value_info", value)
        for value in graph.outputs:
            self._value("output", value)
        self._flush()

    def _flush(self) -> None:
        """Let protobuf read what is written so far."""
        self._proto.MergeFromString(b"".join([*self._nodes, *self._values]))
        self._nodes.clear()
        self._values.clear()

    def _value(self, field: str, value: ir.Value) -> None:
        kind, shape = value.type, value.shape
        if type(kind) is not ir.TensorType or value.metadata_props or value.doc_string or not value.name:
            self._flush()
            ir.serde.serialize_value_into(getattr(self._proto, field).add(), value)
            return
        key = (kind.dtype, kind.denotation, id(shape))
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = self._type(kind, shape)
        self._values.append(_VALUES[field] + _sized(_VALUE_NAME + self._texts[value.name] + found))

    def _type(self, kind: ir.TensorType, shape: ir.Shape | None) -> bytes:
        said = None if shape is None else tuple([(d, shape.get_denotation(i)) for i, d in enumerate(shape.dims)])
        key = (kind.dtype, kind.denotation, said)
        found = self._types.get(key)
        if found is None:
            proto = onnx.TypeProto()
            ir.serde.serialize_type_into(proto, kind)
            if shape is not None:
                ir.serde.serialize_shape_into(proto, shape)
            found = self._types[key] = _VALUE_TYPE + _sized(proto.SerializeToString())
        return found

    def _node(self, node: ir.Node) -> None:
        attributes = [self._attribute(a) for a in node.attributes.data.values()]
        if node.overload or node.doc_string or node.device_configurations or not all(attributes):
            self._flush()
            ir.serde.serialize_node_into(self._proto.node.add(), node, model_ir_version=self._ir_version)
            return
        texts = self._texts
        parts = [_OUTPUT + texts[value.name or ""] for value in node.outputs]
        while parts and parts[-1] == _NO_OUTPUT:
            parts.pop()
        parts += [_NO_INPUT if value is None else _INPUT + texts[value.name or ""] for value in node.inputs]
        parts.append(_OP_TYPE + texts[node.op_type])
        if node.name:
            parts.append(_NAME + texts[node.name])
        if node.domain:
            parts.append(_DOMAIN + texts[node.domain])
        if node.metadata_props:
            parts.append(self._props(tuple(node.metadata_props.items())))
        self._nodes.append(_NODE + _sized(b"".join([*parts, *attributes])))

    def _attribute(self, attr: ir.Attr) -> bytes:
        """An attribute of a node; nothing where it may be large, or is a reference."""
        found = self._attributes.get(id(attr))
        if found is None:
            plain = attr.type in _SHARED and not attr.is_ref()
            found = _ATTRIBUTE + _sized(ir.serde.serialize_attribute(attr).SerializeToString()) if plain else b""
            self._attributes[id(attr)] = found
        return found

    def _props(self, props: tuple[tuple[str, str], ...]) -> bytes:
        found = self._metadata.get(props)
        if found is None:
            texts = self._texts
            entries = [_KEY + texts[key] + _VALUE + texts[value] for key, value in sorted(props)]
            found = self._metadata[props] = b"".join([_METADATA + _sized(entry) for entry in entries])
        return found


def _is_described(value: ir.Value) -> bool:
    """Whether anything is known of a value beside its name."""
    return bool(value.type is not None or value.shape is not None or value.metadata_props or value.doc_string)
