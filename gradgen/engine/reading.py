"""Reads what a caller hands in: a path, a ModelProto or an onnx_ir model, as a valid ModelProto in one common form."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import onnx.parser
import onnx_ir as ir
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError

from gradgen.arguments import existing_file, is_path
from gradgen.engine.external import BASE_KEY, all_external, base_of, check_size, note_base, settle_external
from gradgen.engine.protos import all_graphs, all_nodes, subgraphs
from gradgen.engine.soundness import check_bodies, check_sound
from gradgen.errors import GradientError
from gradgen.rules.lang import OPSET

DENSE_LIMIT = 2**30  # bytes: a model that holds more cannot be serialised together with anything else

Model = Any
"""A path, an onnx.ModelProto or an onnx_ir.Model."""


def read(model: Model) -> tuple[onnx.ModelProto, bool]:
    """The ModelProto of what a caller handed in, and whether that was an onnx_ir model.

    Initializers of the main graph stay in their external file, which the metadata then names; all other external data
    is read into memory.

    Raises:
        GradientError: for a file that is missing or no model, and for external data that cannot be read or that lies
            outside the model's folder.
    """
    if is_path(model):
        path = existing_file(model)
        proto, base, where = _load(path), path.parent, f"'{path}'"
        check_sound(proto)
    elif isinstance(model, onnx.ModelProto | ir.Model):
        if isinstance(model, onnx.ModelProto):
            check_sound(model)  # before it is copied
        proto, base = base_of(model)
        where = "the model"
    else:
        raise GradientError(f"a model is a path, an onnx.ModelProto or an onnx_ir.Model, not {type(model).__name__}")
    stored_apart = all_external(proto)
    external = bool(stored_apart) and settle_external(proto, base, where)
    if stored_apart or is_path(model):  # of any other, base_of has seen the size
        check_size(proto, where)
    props = {p.key: p.value for p in proto.metadata_props if p.key != BASE_KEY}
    if external:
        props[BASE_KEY] = note_base(base)
    onnx.helper.set_model_props(proto, props)
    return proto, isinstance(model, ir.Model)


def _load(path: Path) -> onnx.ModelProto:
    try:
        proto = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise GradientError(f"cannot read '{path}': {error.strerror or error}") from error
    except (DecodeError, text_format.ParseError, json_format.ParseError, onnx.parser.ParseError, ValueError) as error:
        raise GradientError(f"'{path}' is not an ONNX model: {in_words(error)}") from error
    if not isinstance(proto, onnx.ModelProto) or not _has_graph(proto):
        raise GradientError(f"'{path}' is not an ONNX model: it has no graph")
    return proto


def in_words(error: Exception) -> str:
    """What an error of a reader of models says, in a line; the parser of the text form says it in bytes."""
    said = error.args[0] if error.args else ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(error)
    return " ".join(text.split())[:300]


def _has_graph(proto: onnx.ModelProto) -> bool:
    return proto.HasField("graph") and bool(proto.graph.node or proto.graph.output)


def check(proto: onnx.ModelProto) -> None:
    """Refuse what the standard does not admit, in one line."""
    if not _has_graph(proto):
        raise GradientError("the model has no graph")
    if not proto.opset_import:
        raise GradientError("the model imports no operator set")
    newest = onnx.defs.onnx_opset_version()
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version > newest:
            raise GradientError(f"the model needs opset {entry.version}; the installed onnx knows up to {newest}")
    try:
        onnx.checker.check_model(checkable(proto))
    except (onnx.checker.ValidationError, RuntimeError, TypeError, ValueError) as error:
        line = " ".join(str(error).split())
        raise GradientError(f"the model is not valid: {line[:500]}") from error
    check_bodies(proto)


def checkable(proto: onnx.ModelProto) -> onnx.ModelProto:
    """What the checker is given: external initializers as inputs, and what it refuses without cause put in other words.

    It takes GroupNormalization 18 for deprecated, which runtimes run and which a later opset defines anew. And it asks
    every input and output for a rank, though there is none to be stated where the run decides it.
    """
    version = next((e.version for e in proto.opset_import if not e.domain), OPSET)
    external = [t for t in proto.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    revived = any(_revived(n, version) for n in all_nodes(proto.graph))
    if not external and not revived and not any(rankless(i) for i in (*proto.graph.input, *proto.graph.output)):
        return proto
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(proto)
    inputs = {i.name for i in skeleton.graph.input}
    for tensor in external:
        if tensor.name not in inputs:
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            skeleton.graph.input.append(info)
        skeleton.graph.initializer.remove(tensor)
    for info in (*skeleton.graph.input, *skeleton.graph.output):
        if rankless(info):
            info.type.tensor_type.shape.SetInParent()
    if revived:
        skeleton.opset_import.append(onnx.helper.make_opsetid("gradgen.revived", 1))
        for node in all_nodes(skeleton.graph):
            if _revived(node, version):
                node.domain = "gradgen.revived"
    return skeleton


def rankless(info: onnx.ValueInfoProto) -> bool:
    """Whether an input or output is a tensor of which no rank is stated."""
    return info.type.HasField("tensor_type") and not info.type.tensor_type.HasField("shape")


def _revived(node: onnx.NodeProto, version: int) -> bool:
    """Whether the op is deprecated at this opset and defined again by opset 21."""
    return not node.domain and version < OPSET and _deprecated(node.op_type, version, OPSET)


@functools.cache
def _deprecated(op_type: str, version: int, later: int) -> bool:
    """Whether an op is deprecated at a version of the standard, and no longer at a later one."""
    try:
        schemas = [onnx.defs.get_schema(op_type, v, "") for v in (version, later)]
    except onnx.defs.SchemaError:
        return False
    return schemas[0].deprecated and not schemas[1].deprecated


def _every_node(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for owner in (proto.graph, *proto.functions):
        yield from all_nodes(owner)


def normalise_domains(proto: onnx.ModelProto) -> None:
    """Write the standard domain as the empty one everywhere."""
    for node in _every_node(proto):
        if node.domain == "ai.onnx":
            node.domain = ""
    for owner in (proto, *proto.functions):
        for entry in owner.opset_import:
            if entry.domain == "ai.onnx":
                entry.domain = ""


def settle_pads(proto: onnx.ModelProto) -> None:
    """Remove `pads` beside an `auto_pad`: the standard has no node with both, runtimes go by auto_pad, onnx by pads."""
    for node in _every_node(proto):
        if node.domain or len(node.attribute) < 2:
            continue
        given = {a.name: a for a in node.attribute if a.name in ("auto_pad", "pads")}
        if len(given) == 2 and given["auto_pad"].s not in (b"", b"NOTSET"):
            node.attribute.remove(given["pads"])


def open_dimensions(proto: onnx.ModelProto) -> None:
    """Exporters write an unknown size as -1 or as "?": it is neither a size nor a name that two dimensions share."""
    infos = (info for g in all_graphs(proto.graph) for info in (*g.input, *g.output, *g.value_info))
    for info in infos:
        for dim in info.type.tensor_type.shape.dim:
            size = dim.dim_value  # 0 where there is none
            if size < 0 or (not size and dim.dim_param in ("?", "-1", "None")):
                dim.Clear()


def densify(proto: onnx.ModelProto) -> None:
    """Write sparse initializers and sparse constants as dense tensors of the same content."""
    for node in _every_node(proto):
        for attribute in node.attribute if node.op_type == "Constant" and not node.domain else ():
            if attribute.name == "sparse_value":
                dense = _dense(attribute.sparse_tensor, node.output[0])
                attribute.CopyFrom(onnx.helper.make_attribute("value", dense))
    inner = (graph for owner in proto.functions for g in subgraphs(owner.node) for graph in all_graphs(g))
    for graph in (*all_graphs(proto.graph), *inner):
        graph.initializer.extend(_dense(t, t.values.name) for t in graph.sparse_initializer)
        del graph.sparse_initializer[:]


def _dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    values = onnx.numpy_helper.to_array(sparse.values)
    indices = onnx.numpy_helper.to_array(sparse.indices)
    dims = tuple(sparse.dims)
    if int(np.prod(np.asarray(dims, dtype=object))) * values.itemsize > DENSE_LIMIT:
        raise GradientError(f"the sparse tensor '{name}' of shape {list(dims)} is too large to be written out")
    array = np.full(dims, "", object) if values.dtype == object else np.zeros(dims, values.dtype)
    if values.size:
        place = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dims)
        array.reshape(-1)[place] = values
    dense = onnx.numpy_helper.from_array(array, name)
    dense.data_type = sparse.values.data_type
    return dense
