# Makes stored and intermediate values of a model into inputs, so that differences can move them.
"""Graph surgery for the checks: what a check moves becomes a graph input."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx.shape_inference

from gradgen.evaluate import Evaluator


def promote_initializers(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A copy of `model` in which feeds may replace the initializers `names`; the stored values stay the defaults.

    Raises:
        ValueError: a name is neither an initializer nor a graph input.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = max(copy.ir_version, 4)  # before 4 an initializer had to be an input, and could not be replaced
    inputs = {value.name for value in copy.graph.input}
    initializers = {tensor.name: tensor for tensor in copy.graph.initializer}
    for name in names:
        if name in inputs:
            continue
        if name not in initializers:
            raise ValueError(f"{name!r} is neither an initializer nor an input of graph {model.graph.name!r}")
        tensor = initializers[name]
        copy.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
    return copy


def cut_values(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A copy of `model` in which the intermediate values `names` are graph inputs; their producers lead nowhere.

    Raises:
        ValueError: no node of the main graph produces a name, or its type cannot be inferred.
    """
    copy = onnx.shape_inference.infer_shapes(model)
    graph = copy.graph
    types = {value.name: value.type for value in (*graph.value_info, *graph.output)}
    producers = {output: node for node in graph.node for output in node.output if output}
    taken = {v for node in graph.node for v in (*node.input, *node.output)}
    for name in names:
        if name not in producers or name not in types:
            raise ValueError(f"{name!r} is no typed intermediate value of graph {graph.name!r}")
        outputs = producers[name].output
        spare = next(n for k in itertools.count() if (n := f"{name}__produced{k or ''}") not in taken)
        taken.add(spare)
        outputs[list(outputs).index(name)] = spare
        graph.input.append(onnx.ValueInfoProto(name=name, type=types[name]))
    return copy


def intermediate_values(
    model: onnx.ModelProto, names: Sequence[str], feeds: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What the values `names`, which need not be outputs, are at `feeds`.

    Raises:
        ValueError: a name is no typed value of the main graph.
    """
    if not names:
        return {}
    inferred = onnx.shape_inference.infer_shapes(model)
    shown = {value.name for value in inferred.graph.output}
    inferred.graph.output.extend(v for v in inferred.graph.value_info if v.name in names and v.name not in shown)
    run = Evaluator(inferred)
    values = run({k: v for k, v in feeds.items() if k in run.input_names})
    missing = [name for name in names if name not in values]
    if missing:
        raise ValueError(
            f"no input, initializer or typed intermediate value {missing[0]!r} in graph {model.graph.name!r}"
        )
    return {name: values[name] for name in names}
