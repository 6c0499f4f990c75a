"""Says where the shapes of a model itself contradict each other, once a rule's results have turned out not to fit."""

from __future__ import annotations

import re
from contextlib import suppress

import onnx
import onnx.shape_inference

from gradgen.engine.inference import CONTRADICTIONS
from gradgen.engine.names import shortened
from gradgen.engine.protos import all_graphs, all_nodes
from gradgen.engine.reading import Model, normalise_domains, read
from gradgen.errors import GradientError

_ERRORS = (onnx.shape_inference.InferenceError, RuntimeError, ValueError, TypeError)


def clash(model: Model) -> str:
    """The node of a model whose operands do not fit together, with their shapes; empty where onnx sees none.

    A rule is right for what an op admits. So where its results do not fit, the model is looked at first: onnx's inference
    is lenient when a model is read, since what it reports may be its own lack.
    """
    try:
        proto = read(model)[0]
    except GradientError:  # it was read before; meanwhile its file may have gone
        return ""
    normalise_domains(proto)
    nodes = [n for owner in (proto.graph, *proto.functions) for n in all_nodes(owner)]
    labels = [f"{n.op_type} '{shortened(n.name or next(filter(None, n.output), n.op_type))}'" for n in nodes]
    for index, node in enumerate(nodes):  # onnx names nodes in its errors, and their names may be alike or missing
        node.name = f"#{index}"
    try:
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
        return ""
    except _ERRORS as error:
        lines = str(error).splitlines()
    line = next((line for line in lines if any(mark in line for mark in CONTRADICTIONS)), "")
    path = [int(index) for index in re.findall(r"node name: #(\d+)\)", line)]
    if not path:
        return ""
    known = _types(proto)
    read_by = {index: [f"{known[n]} '{shortened(n)}'" for n in nodes[index].input if n in known] for index in path}
    shown = next((index for index in reversed(path) if read_by[index]), path[0])
    place = " in ".join(labels[index] for index in reversed(path))
    reads = f" reads {', '.join(read_by[shown])}" if shown == path[-1] else f" with {', '.join(read_by[shown])}"
    reason = re.sub(r".*(Error\] |node name: #\d+\): )", "", line)
    if "existing shape" in reason:  # that of an output, as the model declares it
        declared = [f"{known[n]} for '{shortened(n)}'" for n in nodes[path[-1]].output if n in known]
        reason = f"{reason}; the model declares {', '.join(declared)}"
    return f"the model's own shapes do not fit together: {place}{reads if read_by[shown] else ''}: {reason}"


def _types(proto: onnx.ModelProto) -> dict[str, str]:
    """The tensor types of a model's values as far as inference gets, in words."""
    with suppress(*_ERRORS):  # what is declared is known all the same
        proto = onnx.shape_inference.infer_shapes(proto)
    found: dict[str, str] = {}
    for graph in all_graphs(proto.graph):
        for tensor in graph.initializer:
            found[tensor.name] = _written(tensor.data_type, list(map(str, tensor.dims)))
        for info in (*graph.value_info, *graph.output, *graph.input):
            kind = info.type.tensor_type
            if kind.HasField("shape"):
                sizes = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]
                found[info.name] = _written(kind.elem_type, sizes)
    return found


def _written(kind: int, sizes: list[str]) -> str:
    return f"{onnx.TensorProto.DataType.Name(kind).lower()}[{', '.join(sizes)}]"
