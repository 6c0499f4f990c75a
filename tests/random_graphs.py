# Random graphs of ops from the rule table: what a property test differentiates.
from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper
from random_graph_grower import Grower
from random_graph_parts import PARTS, STOPPING
from random_graph_samples import LEFT_OUT, smallest_opset, table
from random_graph_values import Leaf, kind_of, opset_imports

OPSETS = (21, 21, 21, 22, 23, 24, 25, 26, 28)


@dataclass
class RandomGraph:
    """A grown graph, with what it is differentiated by and of."""

    nodes: list[onnx.NodeProto]
    leaves: list[Leaf]
    values: dict[str, np.ndarray]
    opset: int
    domains: dict[str, int]
    wrt: list[str]
    of: list[str]
    drawn: list[str]

    def feeds(self, move: float = 0.0, seed: int = 0) -> dict[str, np.ndarray]:
        """The content of all leaves, moved by normal noise of the size `move` where they may be."""
        rng = np.random.default_rng(seed)
        found = {}
        for leaf in self.leaves:
            noise = move * rng.standard_normal(leaf.array.shape)
            found[leaf.name] = (leaf.array + noise).astype(leaf.array.dtype) if leaf.moves and move else leaf.array
        return found

    def model(self, feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
        """The model, the stored leaves with the content that `feeds` gives them."""
        inputs, stored = [], []
        for leaf in self.leaves:
            if leaf.stored:
                stored.append(numpy_helper.from_array(feeds[leaf.name], leaf.name))
            else:
                inputs.append(helper.make_tensor_value_info(leaf.name, kind_of(leaf.array), leaf.dims))
        outputs = [
            helper.make_tensor_value_info(o, kind_of(self.values[o]), [None] * self.values[o].ndim) for o in self.of
        ]
        graph = helper.make_graph(self.nodes, "random", inputs, outputs, stored)
        return helper.make_model(graph, opset_imports=opset_imports(self.opset, self.domains), ir_version=10)


def grow(choices: random.Random, ops: Sequence[str]) -> RandomGraph:
    """A graph of these ops in this order, each fed with what is there; an op that never fits is left out."""
    opset = choices.choice(OPSETS)
    opset = max([opset, *(smallest_opset(op) for op in ops if op not in PARTS)])
    grower = Grower(choices, opset)
    for op in ops:
        grower.add(op)
    return finish(grower)


def all_ops() -> list[str]:
    """Everything that can be drawn."""
    return sorted({*table(), *PARTS} - LEFT_OUT)


def draw_ops(choices: random.Random, seen: Mapping[str, int], among: Sequence[str] | None = None) -> list[str]:
    """3 to 12 ops, those that were seldom on a differentiated path more often; one in ten stops a gradient."""
    ruled = [op for op in among or all_ops() if op not in STOPPING]
    weights = [1 / (1 + seen.get(op, 0)) for op in ruled]
    ops = choices.choices(ruled, weights, k=choices.randint(3, 12))
    return [choices.choice(sorted(STOPPING)) if choices.random() < 0.1 else op for op in ops]


def grow_with_borders(choices: random.Random) -> tuple[RandomGraph, onnx.ModelProto, list[str] | str]:
    """A graph, its model, and what `checkpoint` may be asked to keep of it."""
    graph = grow(choices, draw_ops(choices, {}))
    proto = graph.model(graph.feeds())
    names = [o for n in proto.graph.node for o in n.output if o]
    asked = choices.sample(names, min(len(names), choices.randint(1, 4))) if choices.random() < 0.8 else "auto"
    return graph, proto, asked


def finish(grower: Grower) -> RandomGraph:
    """Choose what is differentiated: most of the ends, now and then a value on the way, with respect to most leaves."""
    read = {name for node in grower.nodes for name in reads(node)}
    made = {name for node in grower.nodes for name in node.output if name}
    floats = [v.name for v in grower.pool if v.name in made]
    ends = [n for n in floats if n not in read]
    of = [n for n in ends if grower.chance(0.85)] or ends[-1:] or floats[-1:]
    of += [n for n in floats if n not in ends and grower.chance(0.05)]
    moving = [leaf.name for leaf in grower.leaves if leaf.moves]
    wrt = [n for n in moving if grower.chance(0.9)] or moving
    return RandomGraph(
        grower.nodes, grower.leaves, grower.values, grower.opset, grower.domains, wrt, of, list(grower.drawn)
    )


def reads(node: onnx.NodeProto) -> list[str]:
    """The names that a node and its subgraphs read."""
    inner = [n for a in node.attribute if a.HasField("g") for n in a.g.node]
    return [*node.input, *(name for n in inner for name in reads(n))]
