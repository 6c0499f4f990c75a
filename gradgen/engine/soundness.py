"""Looks at a model before anything else does: what would take the engine, onnx or numpy down is refused in words.

Here is what onnx's checker passes over, and what must not reach onnx's own code: sizes that it allocates without a look,
depths that it descends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import onnx
import onnx_ir as ir

from gradgen.engine.external import ITEM_SIZES
from gradgen.engine.protos import all_nodes
from gradgen.errors import GradientError

MAX_RANK = 64  # numpy's
MAX_DEPTH = 16  # of graphs within graphs; a file of more than 33 levels cannot be parsed at all
MAX_NODES = 100_000  # that the functions of a model may stand for, beside 20 for each that is written

_TYPES = {int(t) for t in ir.DataType}
_STANDARD = ("", "ai.onnx")
_SMALL_BYTES = 1 << 20
# The field that lists the elements of a tensor without raw data; small integers and floats lie in that of int32.
_LISTED: dict[int, str] = {
    onnx.TensorProto.FLOAT: "float_data",
    onnx.TensorProto.COMPLEX64: "float_data",
    onnx.TensorProto.DOUBLE: "double_data",
    onnx.TensorProto.COMPLEX128: "double_data",
    onnx.TensorProto.INT64: "int64_data",
    onnx.TensorProto.UINT32: "uint64_data",
    onnx.TensorProto.UINT64: "uint64_data",
    onnx.TensorProto.STRING: "string_data",
}
_SMALL = {"axis", "group", "batch_axis", "blocksize"}  # attributes that onnx's own code takes for an int32
# Attributes that say yes or no. What onnx takes 7 for differs from operator to operator, and from that of runtimes.
_FLAGS = {
    "align_corners", "ceil_mode", "center_point_box", "count_include_pad", "exclusive", "fmod", "is_causal", "keepdims",
    "largest", "noop_with_empty_axes", "reverse", "sorted", "transA", "transB", "allowzero", "input_forget",
    "linear_before_reset", "onesided", "training_mode", "select_last_index", "exclude_outside",
}  # fmt: skip
Graph = onnx.GraphProto | onnx.FunctionProto


def check_sound(proto: onnx.ModelProto) -> None:
    """Refuse absurd sizes and depths, unknown types, tensors of the wrong length, names that are no text.

    Raises:
        GradientError: that names the first such thing.
    """
    try:
        "".join((proto.producer_name, proto.producer_version, proto.domain, proto.doc_string))
        "".join(text for entry in proto.metadata_props for text in (entry.key, entry.value))
        for entry in proto.opset_import:
            if not 0 < entry.version < 2**31:
                raise GradientError(f"the model is not valid: it imports version {entry.version} of '{entry.domain}'")
        for graph, within in _graphs(proto):
            _check_graph(graph, within)
    except (UnicodeDecodeError, TypeError) as error:  # what is no UTF-8 is read as bytes, or not at all
        raise GradientError("the model is not valid: a name or a text in it is not UTF-8") from error


def _graphs(proto: onnx.ModelProto) -> Iterator[tuple[Graph, bool]]:
    """Every graph and function of a model, and whether it lies in a function; no recursion, so that depth is seen."""
    waiting: list[tuple[Graph, int, bool]] = [(proto.graph, 1, False), *((f, 1, True) for f in proto.functions)]
    while waiting:
        graph, depth, within = waiting.pop()
        if depth > MAX_DEPTH:
            raise GradientError(f"the model nests graphs in graphs, more than {MAX_DEPTH} levels deep")
        yield graph, within
        for node in graph.node:
            if attributes := node.attribute:
                for attribute in attributes:
                    if attribute.HasField("g"):
                        waiting.append((attribute.g, depth + 1, within))
                    waiting.extend([(inner, depth + 1, within) for inner in attribute.graphs])


def _check_graph(graph: Graph, within: bool) -> None:
    if isinstance(graph, onnx.GraphProto):
        for info in (*graph.input, *graph.output):
            _check_type(info)
        for tensor in graph.initializer:
            _check_tensor(tensor, tensor.name)
        for sparse in graph.sparse_initializer:
            _check_sparse(sparse, sparse.values.name)
    for info in graph.value_info:
        _check_type(info)
    for node in graph.node:
        "".join((node.name, node.op_type, node.domain, node.doc_string, *node.input, *node.output))
        if node.attribute:
            _check_attributes(node, within)
    "".join((graph.name, graph.doc_string))


def _check_type(info: onnx.ValueInfoProto) -> None:
    kind, name = info.type, "".join((info.name, ""))
    form = kind.WhichOneof("value")
    while form in ("sequence_type", "optional_type"):
        kind = getattr(kind, form).elem_type
        form = kind.WhichOneof("value")
    if form == "map_type":
        raise GradientError(f"'{name}' is a map: gradgen knows tensors, sequences and optionals")
    if form != "tensor_type":
        return
    tensor = kind.tensor_type
    if tensor.elem_type not in _TYPES:
        raise GradientError(f"the model is not valid: '{name}' has the unknown element type {tensor.elem_type}")
    dims = tensor.shape.dim
    if len(dims) > MAX_RANK:
        raise GradientError(f"'{name}' has rank {len(dims)}: gradgen takes ranks up to {MAX_RANK}")
    "".join([d.dim_param for d in dims])


def _check_tensor(tensor: onnx.TensorProto, name: str) -> None:
    """Refuse what cannot be read; fields that are missing or wrong, the checker sees."""
    if tensor.data_type not in _TYPES:
        raise GradientError(f"the model is not valid: tensor '{name}' has the unknown element type {tensor.data_type}")
    dims = list(tensor.dims)
    if len(dims) > MAX_RANK:
        raise GradientError(f"tensor '{name}' has rank {len(dims)}: gradgen takes ranks up to {MAX_RANK}")
    if dims and not 0 <= min(dims) <= max(dims) < 2**48:
        raise GradientError(f"the model is not valid: tensor '{name}' has shape {dims}")
    "".join((tensor.name, tensor.doc_string))
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.data_type == onnx.TensorProto.UNDEFINED:
        return
    if not tensor.HasField("raw_data"):
        held, count = (
            len(getattr(tensor, _LISTED.get(tensor.data_type, "int32_data"))),
            _entries(tensor.data_type, dims),
        )
        if held != count:
            raise GradientError(
                f"the model is not valid: tensor '{name}' of shape {dims} has {held} entries in place of {count}"
            )
        return
    if tensor.data_type not in ITEM_SIZES:
        return
    size = math.ceil(math.prod(dims) * ITEM_SIZES[tensor.data_type])
    # To ask for the length is to copy the bytes: of large tensors the checker asks, which sees them where they are.
    small = size <= _SMALL_BYTES or size > 2**40
    if small and len(tensor.raw_data) != size:
        raise GradientError(
            f"the model is not valid: tensor '{name}' of shape {dims} takes {size} bytes and has {len(tensor.raw_data)}"
        )


def _entries(data_type: int, dims: list[int]) -> int:
    """How many entries of its field a tensor fills: two for a complex number, one for two of half a byte or four of a quarter."""
    if data_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
        return 2 * math.prod(dims)
    size = ITEM_SIZES.get(data_type, 1)
    return math.ceil(math.prod(dims) * (size if size <= 0.5 else 1))  # floats of six bits are not packed


def _check_sparse(sparse: onnx.SparseTensorProto, name: str) -> None:
    for tensor in (sparse.values, sparse.indices):
        _check_tensor(tensor, name)
    if len(sparse.dims) > MAX_RANK:
        raise GradientError(f"the sparse tensor '{name}' has rank {len(sparse.dims)}: gradgen takes up to {MAX_RANK}")


def _check_attributes(node: onnx.NodeProto, within: bool) -> None:
    place = node.name or (node.output[0] if node.output else "")
    for attribute in node.attribute:
        "".join((attribute.name, attribute.ref_attr_name, attribute.doc_string))
        if attribute.ref_attr_name and not within:
            raise GradientError(
                f"the model is not valid: {node.op_type} '{place}' refers to the attribute "
                f"'{attribute.ref_attr_name}' of a function, and is in none"
            )
        if attribute.HasField("t"):
            _check_tensor(attribute.t, place)
        if attribute.HasField("sparse_tensor"):
            _check_sparse(attribute.sparse_tensor, place)
        if attribute.s and node.domain in _STANDARD:
            attribute.s.decode()
        wrong = attribute.name in _FLAGS and not 0 <= attribute.i <= 1
        wrong |= attribute.name in _SMALL and not -(2**31) <= attribute.i < 2**31
        # onnx's inference makes room for as many results as the attribute says.
        wrong |= node.op_type == "Split" and attribute.name == "num_outputs" and attribute.i != len(node.output)
        if node.domain in _STANDARD and wrong:
            raise GradientError(
                f"the model is not valid: {node.op_type} '{place}' has {attribute.name}={attribute.i} and "
                f"{len(node.output)} outputs"
            )


def check_bodies(proto: onnx.ModelProto) -> None:
    """Refuse nodes whose subgraphs have other numbers of inputs or outputs than they need, and wrong functions.

    Called when onnx's checker has found no fault: calls are no circles, operators have their attributes.

    Raises:
        GradientError: that names the first such node, or the function.
    """
    written = 0
    for graph, _ in _graphs(proto):
        written += len(graph.node)
        for node in graph.node:
            if (wanted := _BODIES.get(node.op_type)) and node.domain in _STANDARD:
                _check_body(node, *wanted(node))
    sizes: dict[tuple[str, str], int] = {}
    functions = {(f.domain, f.name): f for f in proto.functions}
    for function in proto.functions:
        made = {*function.input, *(o for node in function.node for o in node.output)}
        label = f"function '{function.domain}::{function.name}'"
        if function.domain in _STANDARD:
            raise GradientError(f"the {label} is in the domain of the standard: give it a domain of its own")
        if missing := [o for o in function.output if o not in made]:
            raise GradientError(f"the model is not valid: the {label} does not compute its output '{missing[0]}'")
    if functions and (size := _expanded(proto.graph, functions, sizes)) > MAX_NODES + 20 * written:
        raise GradientError(f"the functions of the model call one another so often that they stand for {size} nodes")


def _expanded(owner: Graph, functions: Mapping[tuple[str, str], onnx.FunctionProto], sizes: dict) -> int:
    """How many nodes a graph or a function has when calls are written out."""
    total = 0
    for node in all_nodes(owner):
        key = (node.domain, node.op_type)
        if key in functions and key not in sizes:
            sizes[key] = _expanded(functions[key], functions, sizes)
        total += sizes.get(key, 1)
    return total


def _check_body(node: onnx.NodeProto, inputs: int | None, outputs: int) -> None:
    for attribute in node.attribute:
        if not attribute.HasField("g"):
            continue
        found, given = len(attribute.g.output), len(attribute.g.input)
        if found != outputs or (inputs is not None and given != inputs):
            raise GradientError(
                f"the model is not valid: {node.op_type} '{node.name or ', '.join(node.output)}' has a subgraph of "
                f"{given} inputs and {found} outputs where {inputs if inputs is not None else 'any'} and {outputs} are "
                "needed"
            )


def _scan(node: onnx.NodeProto) -> tuple[int | None, int]:
    scanned = next((a.i for a in node.attribute if a.name == "num_scan_inputs"), 0)
    if not 1 <= scanned <= len(node.input):
        raise GradientError(
            f"the model is not valid: Scan '{node.name or ', '.join(node.output)}' has num_scan_inputs={scanned} and "
            f"{len(node.input)} inputs"
        )
    return None, len(node.output)


# The numbers of inputs and outputs of a node's subgraphs; None is any.
_BODIES: dict[str, Callable[[onnx.NodeProto], tuple[int | None, int]]] = {
    "If": lambda node: (0, len(node.output)),
    "Loop": lambda node: (len(node.input), 1 + len(node.output)),
    "Scan": _scan,
    "SequenceMap": lambda node: (len(node.input), len(node.output)),
}
