# Holds random draws fixed: copies of a model and of its gradient in which what was drawn once is a constant.
"""Random nodes with one draw, the same in a model and in the gradient model that was made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gradgen.engine.protos import all_nodes
from gradgen.evaluate import RANDOM, Evaluator, may_drop
from gradgen.inlining import inline_functions

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Draw:
    """What one random node drew.

    Attributes:
        content: its result; of a Dropout the mask, None where it was not in training mode.
        ratio: of a Dropout, in the type of its result.
    """

    content: np.ndarray | None
    ratio: np.ndarray | None = None


def number_draws(model: onnx.ModelProto, kept: Callable[[onnx.FunctionProto], bool] | None = None) -> onnx.ModelProto:
    """A copy of `model` in which each random node has a seed of its own, by which its gradient model's is known.

    Functions that draw are inlined, but those that are `kept`: two calls are two draws. A model without random nodes
    is returned as it is.
    """
    if any(_draws(node) for function in model.functions for node in all_nodes(function)):
        model = inline_functions(model, kept)
    owners = (model.graph, *model.functions)
    if not any(_draws(node) for owner in owners for node in all_nodes(owner)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    number = 0
    for owner in (copy.graph, *copy.functions):
        for node in all_nodes(owner):
            if _draws(node):
                number += 1
                others = [a for a in node.attribute if a.name != "seed"]
                del node.attribute[:]
                seed = number if node.op_type == "Dropout" else float(number)
                node.attribute.extend([*others, helper.make_attribute("seed", seed)])
    return copy


def draw(model: onnx.ModelProto, feeds: Arrays) -> dict[float, Draw]:
    """What the random nodes of the main graph draw at `feeds`, by their seeds, in one run of a numbered model.

    Raises:
        ValueError: no engine loads the model. What an engine raises when it runs.
    """
    if not any(_draws(node) for node in model.graph.node):
        return {}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    shown: dict[str, str] = {}

    def show(name: str) -> str:
        if name not in shown:
            shown[name] = f"shown by gradgen {len(shown)}"
            copy.graph.node.append(helper.make_node("Identity", [name], [shown[name]]))
            copy.graph.output.append(onnx.ValueInfoProto(name=shown[name]))
        return shown[name]

    asked: list[tuple[onnx.NodeProto, list[str]]] = []
    for count, node in enumerate(copy.graph.node[: len(model.graph.node)]):
        if not _draws(node):
            continue
        if node.op_type != "Dropout":
            asked.append((node, [show(node.output[0])]))
            continue
        if len(node.output) < 2 or not node.output[1]:
            del node.output[1:]
            node.output.append(f"mask by gradgen {count}")
        ratio = [show(node.input[1])] if node.input[1] else []
        asked.append((node, [show(node.output[0]), show(node.output[1]), show(node.input[2]), *ratio]))
    try:
        run = Evaluator(copy, strict=True)
        found = run(feeds)
    except Exception:  # engines raise types of their own; the other one may know an op that this one lacks
        found = Evaluator(copy, prefer="reference", strict=True)(feeds)
    drawn: dict[float, Draw] = {}
    for node, names in asked:
        values = [found[name] for name in names]
        if node.op_type != "Dropout":
            drawn[_seed(node)] = Draw(values[0])
            continue
        rate = values[3] if len(values) > 3 else np.float32(0.5)
        mask = values[1] if np.all(values[2]) else None
        drawn[_seed(node)] = Draw(mask, np.asarray(rate).astype(values[0].dtype))
    return drawn


def pin(model: onnx.ModelProto, drawn: Mapping[float, Draw]) -> onnx.ModelProto:
    """A copy of a numbered model, or of its gradient, in which the nodes of the main graph give what was drawn."""
    if not drawn:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    nodes: list[onnx.NodeProto] = []
    for node in copy.graph.node:
        found = drawn.get(_seed(node)) if _draws(node) else None
        nodes += [node] if found is None else _pinned(node, found)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def free_draws(model: onnx.ModelProto) -> bool:
    """Whether a model still draws: in a subgraph or a function."""
    return any(_draws(node) for owner in (model.graph, *model.functions) for node in all_nodes(owner))


def _pinned(node: onnx.NodeProto, found: Draw) -> list[onnx.NodeProto]:
    if node.op_type != "Dropout":
        assert found.content is not None
        return [_constant(node.output[0], found.content)]
    if found.content is None:
        del node.input[2:]  # without the mode it is the identity, which no engine takes for a draw
        return [node]
    assert found.ratio is not None
    result = node.output[0] or f"{node.output[1]}/result"
    mask = node.output[1] if len(node.output) > 1 and node.output[1] else f"{result}/mask"
    one, ratio, keep, scaled, zero = (f"{result}/{part}" for part in ("one", "ratio", "keep", "scaled", "zero"))
    return [
        _constant(mask, found.content),
        _constant(one, np.ones_like(found.ratio)),
        _constant(ratio, found.ratio),
        _constant(zero, np.zeros_like(found.ratio)),
        helper.make_node("Sub", [one, ratio], [keep]),
        helper.make_node("Div", [node.input[0], keep], [scaled]),
        helper.make_node("Where", [mask, scaled, zero], [result]),
    ]


def _constant(name: str, content: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(content)))


def _draws(node: onnx.NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and (node.op_type in RANDOM or may_drop(node))


def _seed(node: onnx.NodeProto) -> float:
    return next((float(onnx.helper.get_attribute_value(a)) for a in node.attribute if a.name == "seed"), 0.0)
