# Values, leaves and trial runs of nodes: what random graphs are grown of.
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import helper


class IllegalError(Exception):
    """The node that was tried does not run on these inputs."""


@dataclass(frozen=True)
class Value:
    """A value of the graph: its name and what it holds at the point where the graph was grown."""

    name: str
    array: np.ndarray


@dataclass
class Leaf:
    """An input or an initializer of the graph.

    Attributes:
        array: its content.
        moves: whether it is a float that gradients are taken of, and that may be moved off a kink.
        stored: whether it is an initializer.
        dims: the dimensions that an input declares.
    """

    name: str
    array: np.ndarray
    moves: bool
    stored: bool
    dims: list[int | str] = field(default_factory=list)


def opset_imports(opset: int, domains: dict[str, int]) -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in domains.items())]


def kind_of(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def run(
    nodes: Sequence[onnx.NodeProto], feeds: dict[str, np.ndarray], opset: int, domains: dict[str, int]
) -> list[np.ndarray]:
    """What nodes compute on onnxruntime: the outputs of the last one.

    Raises:
        IllegalError: it does not load or run, or a float result is not finite or too large, or one is empty.
    """
    inputs = [helper.make_tensor_value_info(n, kind_of(a), a.shape) for n, a in feeds.items()]
    outputs = [helper.make_empty_tensor_value_info(o) for o in nodes[-1].output if o]
    graph = helper.make_graph(list(nodes), "node", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opset_imports(opset, domains), ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    quiet = onnxruntime.RunOptions()
    quiet.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found = session.run(None, feeds, quiet)
    except Exception as error:  # onnxruntime raises types of its own
        raise IllegalError(str(error)) from error
    for array in found:
        if not isinstance(array, np.ndarray):
            raise IllegalError("a result is no tensor")
        if array.size == 0 or array.size > 400 or array.dtype.kind == "f" and not np.abs(array).max() < 1e4:
            raise IllegalError("a result is empty, large or not finite")
    return found
