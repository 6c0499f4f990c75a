"""Tensors in files of their own: checked before they are used, read into memory where nothing refers to them later."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from gradgen.errors import GradientError

BASE_KEY = "gradgen.external_data_folder"
PROTO_LIMIT = 2**31 - 1  # bytes: the most that a protobuf message holds
# The bytes of an element, of the types that have a fixed size.
ITEM_SIZES = {int(t): t.itemsize for t in ir.DataType if t not in (ir.DataType.UNDEFINED, ir.DataType.STRING)}
# The folders that gradgen has noted in this process. The note of any other may come from whoever wrote the model.
_NOTED: set[str] = set()


def note_base(base: Path) -> str:
    """What gradgen writes into a model's metadata of the folder of its external data."""
    noted = str(base.resolve())
    _NOTED.add(noted)
    return noted


def noted_base(model: onnx.ModelProto) -> Path | None:
    """The folder that gradgen has noted in a model's metadata, in this process."""
    noted = next((p.value for p in model.metadata_props if p.key == BASE_KEY), "")
    return Path(noted) if noted in _NOTED else None


def base_of(model: onnx.ModelProto | ir.Model) -> tuple[onnx.ModelProto, Path]:
    """A copy of a model as a ModelProto, and the folder that its external data is in.

    That of a ModelProto is what gradgen noted in its metadata in this process, or the working directory; the tensors of
    an onnx_ir model know theirs, and where there are several the tensors of all but the first are read into memory.
    """
    if isinstance(model, onnx.ModelProto):
        check_size(model, "the model")
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
        return proto, noted_base(model) or Path()
    proto = ir.to_proto(model)
    check_size(proto, "the model")
    external = {n: t for n, v in model.graph.initializers.items() if isinstance(t := v.const_value, ir.ExternalTensor)}
    bases = {name: Path(tensor.base_dir) for name, tensor in external.items()}
    inner = {Path(tensor.base_dir) for tensor in _inner_external(model)}
    first = next(iter([*inner, *bases.values()]), Path())
    if len({folder.resolve() for folder in inner}) > 1:
        folders = ", ".join(sorted(f"'{folder}'" for folder in inner))
        raise GradientError(
            f"the external data of nodes and subgraphs is in several folders, {folders}: put it into one"
        )
    for tensor in proto.graph.initializer:
        if bases.get(tensor.name, first).resolve() != first.resolve():
            one = onnx.ModelProto()
            one.graph.initializer.append(tensor)
            settle_external(one, bases[tensor.name], "the model", keep=False)
            tensor.CopyFrom(one.graph.initializer[0])
    return proto, first


def _inner_external(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """The external tensors of nodes' attributes and of subgraphs."""
    for graph in model.graphs():
        for value in graph.initializers.values() if graph is not model.graph else ():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield value.const_value
    for node in model.graph.all_nodes():
        for attr in node.attributes.values():
            if attr.type == ir.AttributeType.TENSOR and isinstance(attr.value, ir.ExternalTensor):
                yield attr.value


def stored_bytes(proto: onnx.ModelProto) -> int:
    """The bytes of the tensors that a model holds in itself."""
    return sum(_size(t) for t in _tensors(proto) if t.data_location != onnx.TensorProto.EXTERNAL and _is_sized(t))


def check_size(proto: onnx.ModelProto, where: str) -> None:
    """Refuse a model that no message holds; raises GradientError."""
    if (size := stored_bytes(proto)) > PROTO_LIMIT:
        raise GradientError(
            f"{where} takes {size / 1e9:.1f} GB in memory, more than the 2 GB that an ONNX file can hold: keep its weights "
            "in external data (onnx.save_model with save_as_external_data=True) and pass the path"
        )


def all_external(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Every tensor of a model that is in a file of its own."""
    return _external(_tensors(proto))


def _external(tensors: Iterable[onnx.TensorProto]) -> list[onnx.TensorProto]:
    return [t for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL]


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from proto.graph.initializer
    yield from _inner(proto)


def _inner(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor but the initializers of the main graph."""
    yield from _graph_tensors(proto.graph, initializers=False)
    for function in proto.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: onnx.GraphProto, initializers: bool = True) -> Iterator[onnx.TensorProto]:
    if initializers:
        yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Any) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute if node.attribute else ():
            kind = attribute.type
            if kind == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif kind == onnx.AttributeProto.TENSORS:
                yield from attribute.tensors
            elif kind in (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS):
                for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                    yield from (sparse.values, sparse.indices)
            elif kind == onnx.AttributeProto.GRAPH:
                yield from _graph_tensors(attribute.g)
            elif kind == onnx.AttributeProto.GRAPHS:
                for graph in attribute.graphs:
                    yield from _graph_tensors(graph)


def settle_external(proto: onnx.ModelProto, base: Path, where: str, keep: bool = True) -> bool:
    """Check the external data of a model, and read into memory what is no initializer of its main graph.

    Args:
        proto: the model; changed in place.
        base: the folder that locations are relative to, and that all of them must lie in.
        where: what refers to the data, for messages.
        keep: False reads the initializers too.

    Returns:
        whether any tensor is still external.

    Raises:
        GradientError: that lists what is missing, too short, outside the folder or badly described.
    """
    problems: dict[str, dict[str, None]] = {}
    for tensor in all_external(proto):
        if problem := _problem(tensor, base):
            kind, what = problem
            problems.setdefault(kind, {})[what] = None
    if problems:
        listed = "; ".join(f"that {kind}: {', '.join(list(whats)[:5])}" for kind, whats in problems.items())
        hint = "" if where.startswith("'") else "; pass the path of the model, or load its data with onnx.load(path)"
        raise GradientError(f"{where} refers to external data {listed}{hint}")
    for tensor in _external(_inner(proto) if keep else _tensors(proto)):
        tensor.raw_data = _content(tensor, base)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return bool(_external(proto.graph.initializer))


def location(tensor: onnx.TensorProto) -> str:
    """The file that holds a tensor, relative to the model's folder."""
    return next((e.value for e in tensor.external_data if e.key == "location"), "")


def _number(tensor: onnx.TensorProto, key: str) -> int | None:
    """The offset or the length of a tensor in its file, None where it is not stated; raises ValueError if it is bad."""
    text = next((e.value for e in tensor.external_data if e.key == key), None)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def _size(tensor: onnx.TensorProto) -> int:
    """The bytes that a tensor of this type and shape takes."""
    return math.ceil(math.prod(tensor.dims) * ITEM_SIZES[tensor.data_type])


def _is_sized(tensor: onnx.TensorProto) -> bool:
    """Whether the type of a tensor is one of a fixed size."""
    return tensor.data_type in ITEM_SIZES


def _problem(tensor: onnx.TensorProto, base: Path) -> tuple[str, str] | None:
    """Why a tensor cannot be read: a kind of problem and what has it; None where it can."""
    name = location(tensor)
    if not name:
        return "has no location", f"that of '{tensor.name}'"
    path, folder = base / name, base.resolve()
    try:
        resolved = path.resolve()
        inside = not Path(name).is_absolute() and resolved.is_relative_to(folder)
        there = inside and resolved.is_file()
    except (OSError, ValueError):
        inside, there = True, False
    if not inside:
        return "lies outside the model's folder", name
    if not there:
        return "is not there", name
    try:
        offset, length = _number(tensor, "offset") or 0, _number(tensor, "length")
        size = _size(tensor)
    except (ValueError, TypeError):
        return "has no valid offset, length or type", f"that of '{tensor.name}' in {name}"
    state = resolved.stat()
    if state.st_nlink > 1:
        return "has several hard links, which onnx refuses to follow (copy the file)", name
    end = offset + max(size, length or 0)
    if state.st_size < end or (length is not None and length < size):
        return "is too short", f"{name} ('{tensor.name}' takes {size} bytes and ends at byte {end})"
    return None


def _content(tensor: onnx.TensorProto, base: Path) -> bytes:
    with (base / location(tensor)).open("rb") as file:
        file.seek(_number(tensor, "offset") or 0)
        return file.read(_size(tensor))
