"""Checkpointing: values of the forward pass that are computed anew when the backward pass needs them, not kept."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence

import onnx
import onnx_ir as ir

from gradgen.arguments import name_list
from gradgen.engine.labels import node_label
from gradgen.engine.link import Linker
from gradgen.engine.names import Names
from gradgen.engine.plan import Step
from gradgen.engine.simplify import remove_unused
from gradgen.engine.subgraphs import captures, graphs, operands, rename
from gradgen.engine.surgery import clone_graph
from gradgen.engine.walk import pull
from gradgen.errors import GradientError
from gradgen.request import resolve
from gradgen.transforms.barrier import AGAIN, MARK, Barriers, Unheld
from gradgen.transforms.borders import choose, is_cheap
from gradgen.transforms.common import warn

AUTO = "auto"
NO_CUT = (
    "checkpoint: 'auto' finds no place where a cut would save memory: everything is kept, as it is without checkpoint"
)


class Checkpoint:
    """One call's request to compute values anew.

    The backward pass is in one order with the steps of the forward pass, from the last to the first. The borders cut
    the forward pass into segments, and with them the backward pass into blocks. What a block reads of its segment is
    computed anew in front of the block, from the values that are kept, by nodes that cannot start before the block in
    front of it is done (see `Barriers`). The last segment is not computed anew where its block follows at once.

    Args:
        graph: the graph, before it is differentiated.
        asked: names of values to keep, or "auto".
        apart: whether the backward pass runs in a model of its own, later. Then the last segment is computed anew too.

    Raises:
        GradientError: for names that no value has, and for "auto" beside names.
    """

    def __init__(self, graph: ir.Graph, asked: Sequence[str] | str, apart: bool = False):
        names = name_list("checkpoint", asked)
        values = {v.name: v for v in [*graph.inputs, *graph.initializers.values()] if v.name}
        values.update((v.name, v) for node in graph for v in node.outputs if v.name)
        self._auto = set(names) == {AUTO} and AUTO not in values
        if not self._auto:
            _check_auto(names, values)
        self._borders = [] if self._auto else resolve("checkpoint", names, values)
        self._graph, self._apart = graph, apart
        self._inputs = {v for v in graph.inputs if v.name not in graph.initializers}
        self._steps: list[Step] = []
        self._step_of: dict[ir.Node, int] = {}
        self._forward: set[ir.Node] = set()

    def pull(self, step: Step, incoming: Sequence[ir.Value | None], linker: Linker) -> list[tuple[ir.Value, ir.Value]]:
        """Apply a step's rule, and note which nodes were appended for the step."""
        if not self._steps:
            self._forward = set(self._graph)
        pairs = pull(step, incoming, linker)
        for node in reversed(self._graph):
            if node in self._forward or node in self._step_of:
                break
            self._step_of[node] = len(self._steps)
        self._steps.append(step)
        return pairs

    def borders(self, replaced: Mapping[ir.Value, ir.Value]) -> set[ir.Value]:
        """The values that were named, or what stands in for them since the graph was differentiated."""
        return {replaced.get(v, v) for v in self._borders}

    def apply(self, graph: ir.Graph, linker: Linker, replaced: dict[ir.Value, ir.Value]) -> None:
        """Let the backward pass of a finished graph read values that are computed anew.

        Args:
            graph: the graph, with its outputs.
            linker: its linker.
            replaced: the values for which others stand in since the graph was differentiated.
        """
        nodes = list(graph)
        start = next((i for i, node in enumerate(nodes) if node in self._step_of), len(nodes))
        forward, backward = nodes[:start], nodes[start:]
        places = self._places({node: i for i, node in enumerate(forward)}, backward)
        if not places:
            if self._auto:
                warn(NO_CUT)
            return
        steady = {node for node in forward if _is_kept(node, linker)}
        free = _free_values(graph, forward, self._inputs, steady)
        kept = {v for node in steady for v in node.outputs} | self._inputs
        if self._auto:
            cuts, borders = choose(forward, backward, free | kept)
        else:
            position = {v: i for i, node in enumerate(forward) for v in node.outputs}
            borders = self.borders(replaced)
            cuts = sorted({position[v] for v in borders if v in position})
        if self._auto and not cuts:
            warn(NO_CUT)
            return
        segments = [bisect_left(cuts, place) for place in places]
        if self._apart:  # what follows from weights alone is dear to hand over, and the later model has the weights
            free = _free_values(graph, forward, self._inputs, steady, derived=False)
        found = _Recomputation(graph, linker, forward, free, kept | borders).run(segments, backward, self._apart)
        if self._auto and not found:
            warn(NO_CUT)

    def _places(self, position: dict[ir.Node | None, int], backward: Sequence[ir.Node]) -> list[int]:
        """For each node of the backward pass the position of the forward node that it belongs to; it never grows."""
        ends, last = [], len(position)
        for step in self._steps:
            known = [p for v in step.outputs if (p := position.get(v.producer())) is not None]
            last = min(last, max(known, default=last))
            ends.append(last)
        placed = [ends[self._step_of[node]] if node in self._step_of else None for node in backward]
        floor, floors = 0, []
        for place in reversed(placed):
            floor = floor if place is None else place
            floors.append(floor)
        places, last = [], len(position)
        for node, place, floor in zip(backward, placed, reversed(floors), strict=True):
            if place is None:  # a rewrite has put it there, in place of nodes that read the same values
                reads = [p for v in operands(node) if (p := position.get(v.producer())) is not None]
                place = max(floor, *reads) if reads else last
            last = min(last, place)
            places.append(last)
        return places


def _check_auto(names: Sequence[str], values: Container[str]) -> None:
    """Refuse "auto" beside names, and what is meant to be "auto", with a GradientError."""
    meant = [n for n in names if n.lower() == AUTO and n not in values]
    if meant and len(set(names)) > 1:
        raise GradientError(
            f"checkpoint: '{meant[0]}' stands alone, as it chooses by itself what is kept: leave out either it or the names"
        )
    if meant:
        raise GradientError(f"checkpoint: there is no value '{meant[0]}'; did you mean '{AUTO}'?")


class _Recomputation:
    """Rewires the blocks of the backward pass, from the first to the last that runs.

    Args:
        forward: the nodes of the forward pass, in order.
        free: values that cost nothing to keep, and that anything may read at any time.
        kept: values that are read later, and never computed anew.
    """

    def __init__(
        self, graph: ir.Graph, linker: Linker, forward: Sequence[ir.Node], free: set[ir.Value], kept: set[ir.Value]
    ):
        self._graph, self._linker = graph, linker
        self._position = {node: i for i, node in enumerate(forward)}
        self._free, self._kept = free, kept
        self._again: dict[ir.Value, ir.Value] = {}

    def run(self, segments: Sequence[int], backward: Sequence[ir.Node], apart: bool) -> bool:
        """Rewire every block; the first one, whose segment has just been computed, only where it runs `apart`.

        Returns:
            whether anything is computed anew.
        """
        blocks: list[list[ir.Node]] = []
        for i, node in enumerate(backward):
            if i == 0 or segments[i] != segments[i - 1]:
                blocks.append([])
            blocks[-1].append(node)
        if apart:
            self._rewire(blocks[0], Unheld(self._linker.anchored(blocks[0][0])))
        for before, block in zip(blocks, blocks[1:], strict=False):
            linker = self._linker.anchored(block[0])
            barriers = Barriers(linker, before)
            if barriers.trigger() is not None:
                self._rewire(block, barriers)
            elif apart:
                self._rewire(block, Unheld(linker))
        remove_unused(self._graph)
        for node in self._position:
            if node.graph is self._graph:
                _leave_out(node)
        return bool(self._again)

    def _rewire(self, block: Sequence[ir.Node], barriers: Barriers | Unheld) -> None:
        read = dict.fromkeys(v for node in block for v in operands(node) if self._is_forward(v))
        self._compute(list(read), barriers)
        found = {v: self._value(v, barriers) for v in read}
        for node in block:
            _replace_reads(node, found)

    def _is_forward(self, value: ir.Value) -> bool:
        return value not in self._free and (value in self._kept or value.producer() in self._position)

    def _value(self, value: ir.Value, barriers: Barriers | Unheld) -> ir.Value:
        """What stands for a value of the forward pass in this block."""
        if value in self._again:
            return self._again[value]
        return barriers.after(value) if self._is_forward(value) else value

    def _compute(self, values: list[ir.Value], barriers: Barriers | Unheld) -> None:
        """Compute values anew, and what they need, from what is kept."""
        pending, nodes = list(values), set()
        while pending:
            value = pending.pop()
            node = value.producer()
            if value in self._again or value in self._free or value in self._kept or node not in self._position:
                continue
            if node not in nodes:
                nodes.add(node)
                pending.extend(operands(node))
        for node in sorted(nodes, key=self._position.__getitem__):
            self._clone(node, barriers)

    def _clone(self, node: ir.Node, barriers: Barriers | Unheld) -> None:
        names = self._linker.names
        inputs = [None if v is None else self._value(v, barriers) for v in node.inputs]
        attributes: list[ir.Attr] = []
        captured: dict[ir.Value, ir.Value | None] = {v: self._value(v, barriers) for v in captures(node)}
        for attribute in node.attributes.values():
            attributes.append(_with_graphs(attribute, captured, names))
        outputs = [ir.Value(name=v.name and names.unique(f"{v.name}/again"), type=v.type, shape=v.shape)
                   for v in node.outputs]  # fmt: skip
        clone = ir.Node(
            node.domain, node.op_type, inputs, attributes, overload=node.overload, outputs=outputs,
            name=names.unique(f"{node_label(node)}/again"), metadata_props={**node.metadata_props, MARK: AGAIN},
        )  # fmt: skip
        barriers.linker.append(clone)
        self._again.update(zip(node.outputs, outputs, strict=True))


def _with_graphs(attribute: ir.Attr, captured: dict[ir.Value, ir.Value | None], names: Names) -> ir.Attr:
    """An attribute for a copy of its node: graphs are copied, and read other outer values."""
    if attribute.type == ir.AttributeType.GRAPH:
        copy = clone_graph(attribute.value, dict(captured))
        rename(copy, names)
        return ir.AttrGraph(attribute.name, copy)
    if attribute.type == ir.AttributeType.GRAPHS:
        copies = [clone_graph(graph, dict(captured)) for graph in attribute.value]
        for copy in copies:
            rename(copy, names)
        return ir.AttrGraphs(attribute.name, copies)
    return attribute


def _replace_reads(node: ir.Node, found: dict[ir.Value, ir.Value]) -> None:
    for index, value in enumerate(node.inputs):
        if value in found:
            node.replace_input_with(index, found[value])
    for graph in graphs(node):
        for inner in graph:
            _replace_reads(inner, found)
        for index, value in enumerate(graph.outputs):
            if value in found:
                graph.outputs[index] = found[value]


def _free_values(
    graph: ir.Graph, forward: Sequence[ir.Node], inputs: set[ir.Value], steady: set[ir.Node], derived: bool = True
) -> set[ir.Value]:
    """What is in memory anyway, or takes next to none: weights, if `derived` what follows from them alone, sizes."""
    free = {v for v in graph.initializers.values() if v not in inputs}
    for node in forward:
        read = list(operands(node))
        fixed = node not in steady and (derived or not read) and all(v in free for v in read)
        free.update(v for v in node.outputs if fixed or is_cheap(v))
    return free


def _is_kept(node: ir.Node, linker: Linker) -> bool:
    """Whether the results of a node are never computed anew.

    It draws random numbers, or nobody knows that it does not: an op of another domain that has no row may do anything.
    Or one of its results is an output of the model, which is there anyway: it may be the next state of one that the
    node reads, such as running statistics, which a runtime may write over the old one.
    """
    return any(v.is_graph_output() for v in node.outputs) or _may_draw(node, linker)


def _may_draw(node: ir.Node, linker: Linker) -> bool:
    if linker.draws(node) or any(_may_draw(inner, linker) for graph in graphs(node) for inner in graph):
        return True
    return node.domain not in ("", "ai.onnx") and linker.rules.of(node) is None


def _leave_out(node: ir.Node) -> None:
    """Leave out optional outputs that only the values computed anew still read."""
    if node.domain or graphs(node) or len(node.outputs) < 2:
        return
    schema = onnx.defs.get_schema(node.op_type, onnx.defs.onnx_opset_version(), "")
    optional = [f.option == onnx.defs.OpSchema.FormalParameterOption.Optional for f in schema.outputs]
    unread = [
        k for k, value in enumerate(node.outputs)
        if k < len(optional) and optional[k] and not value.uses() and not value.is_graph_output()
    ]  # fmt: skip
    required = len(node.outputs) - sum(optional[: len(node.outputs)])
    if required and unread == list(range(required, len(node.outputs))):
        node.resize_outputs(required)
        return
    # The last ones stay where others are read: BatchNormalization has one output or three, and never two.
    for k in unread:
        if any(later not in unread for later in range(k, len(node.outputs))):
            node.outputs[k].name = ""
