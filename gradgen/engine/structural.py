"""What a structural rule gets: a node with subgraphs, its cotangents, and ways to differentiate a step of it.

FunctionProtos cannot capture outer values, so the rule of a node with subgraphs is a Python function
`fn(context) -> iterable of (value, cotangent)` that appends nodes of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine import compound, draws
from gradgen.engine.activity import Activity, analyse_body
from gradgen.engine.flow import Flow, flows_of
from gradgen.engine.link import Linker
from gradgen.engine.registry import form_function
from gradgen.engine.simplify import remove_unused
from gradgen.engine.subgraphs import captures, rename
from gradgen.engine.surgery import clone_graph, insert_output
from gradgen.engine.values import is_float

Pair = tuple[ir.Value, ir.Value]


@dataclass(eq=False)
class Backward:
    """One run of a subgraph and its backward pass, in a graph of their own.

    Attributes:
        flow: what connects the subgraph with the node.
        graph: a copy of the subgraph with the backward pass appended. Its inputs are those of the subgraph; the rule
            decides what its inputs and outputs become.
        inputs: the inputs of the copy, by their positions in the subgraph.
        copied: from values of the subgraph to those of the copy.
        seeds: the cotangent of an output, by its position: new values that have to become inputs.
        cotangents: the cotangent of an input, by its position; None where nothing arrived.
        captured: the cotangents of active captured values.
        cut: the cotangents of values of the subgraph that were asked for in place of captured ones.
    """

    flow: Flow
    graph: ir.Graph
    inputs: list[ir.Value]
    copied: dict[ir.Value, ir.Value | None]
    seeds: dict[int, ir.Value] = field(default_factory=dict)
    cotangents: dict[int, ir.Value | None] = field(default_factory=dict)
    captured: list[Pair] = field(default_factory=list)
    cut: list[Pair] = field(default_factory=list)


class StructuralContext:
    """One application of a structural rule.

    Attributes:
        node: the forward node.
        inputs, outputs: its operands and results.
        cotangents: one per output, None where nothing arrived.
        active: the captured values whose cotangents are wanted.
        flows: how its subgraphs are connected with it.
    """

    def __init__(self, step: Any, cotangents: Sequence[ir.Value | None], linker: Linker):
        self.step = step
        self.node: ir.Node = step.node
        self.inputs: list[ir.Value | None] = step.inputs
        self.outputs: list[ir.Value] = step.outputs
        self.cotangents = list(cotangents)
        self.linker = linker
        self.active = [v for v in captures(self.node) if v in step.active]
        self.flows = flows_of(self.node, step.row)

    # Differentiating

    def copy(self, graph: ir.Graph) -> tuple[ir.Graph, dict[ir.Value, ir.Value | None]]:
        """A copy of a subgraph, which reads the same outer values, and the map from values to their copies."""
        copied: dict[ir.Value, ir.Value | None] = {}
        clone = clone_graph(graph, copied)
        rename(clone, self.linker.names)
        for old, new in copied.items():
            content = self.linker.knowledge.constant(old)
            if content is not None and new is not None:
                self.linker.knowledge.learn(new, content)
        return clone, copied

    def backward(
        self,
        flow: Flow,
        seeds: Mapping[int, ir.Value] | None = None,
        cut: Mapping[ir.Value, Sequence[ir.Value]] | None = None,
    ) -> Backward:
        """The backward pass of one run of a subgraph, whose forward values are computed anew.

        `seeds` are cotangents of its outputs from outside, by position, where the subgraph can read them there. `cut`
        names values of the subgraph whose cotangents are wanted in place of that of a captured value.
        """
        cut = cut or {}
        linker, node = self.linker, self.node
        receiving = {v for v, ct in zip(node.outputs, self.cotangents, strict=False) if ct is not None}
        activity = analyse_body(flow, node, self.step.active, receiving, linker.rules)
        graph, copied = self.copy(flow.graph)
        run = Backward(flow, graph, list(graph.inputs), copied)
        live = [j for j, v in enumerate(flow.graph.inputs) if activity.receives(v)]
        seeded = {o for o, k in flow.leaves if node.outputs[k] in receiving}
        seeded |= {o for o, j in flow.repeats if j in live}
        for o, value in enumerate(flow.graph.outputs):
            if o in seeded and activity.receives(value):
                run.seeds[o] = self.value(f"{value.name}/cotangent", value) if seeds is None else seeds[o]
        outer = [v for v in self.active if activity.receives(v)]
        inner = [v for captured in outer for v in cut.get(captured, ())]
        outer = [v for v in outer if v not in cut]
        wrt = [*(run.inputs[j] for j in live), *outer, *(copied[v] or v for v in inner)]
        found = iter(self.differentiate(graph, wrt, run.seeds))
        run.cotangents = {j: next(found) for j in live}
        run.captured = [(v, ct) for v in outer if (ct := next(found)) is not None]
        run.cut = [(v, ct) for v in inner if (ct := next(found)) is not None]
        return run

    def differentiate(
        self, graph: ir.Graph, wrt: Sequence[ir.Value], seeds: Mapping[int, ir.Value]
    ) -> list[ir.Value | None]:
        """Append to a graph the backward pass of its outputs; `seeds` holds their cotangents by position.

        Returns the cotangent of each wrt inside the graph, None where the outputs do not depend on it.
        """
        from gradgen.engine.derive import plan_graph
        from gradgen.engine.walk import Cotangents, reverse

        linker = self.linker.within(graph)
        targets = {o: graph.outputs[o] for o in seeds}
        steps, replaced = plan_graph(graph, wrt, list(targets.values()), linker, self.step.origin)
        start = Cotangents(linker, {})
        for o, value in targets.items():
            target = replaced.get(value, value)
            start.add(target, compound.view(linker, seeds[o], target), self.step.origin)
        found = reverse(steps, {v: t for v in start.values() if (t := start.total(v)) is not None}, linker)
        return [found.total(replaced.get(v, v)) for v in wrt]

    def input_cotangent(self, run: Backward, position: int) -> ir.Value:
        """The cotangent of an input of a subgraph, in the graph of its backward pass; zeros where nothing arrived."""
        return run.cotangents.get(position) or self.zeros(run.inputs[position], run.graph)

    def finish(self, graph: ir.Graph, results: Sequence[ir.Value], like: Sequence[ir.Value]) -> None:
        """Make `results` the outputs of a graph, with the types and shapes of `like`, and remove its inputs and what is
        not needed."""
        linker, origin = self.linker.within(graph), self.step.origin
        outputs = [
            linker.node("Identity", [result], value, f"{origin}/{value.name}/cotangent")
            for result, value in zip(results, like, strict=True)
        ]
        graph.outputs.clear()
        graph.outputs.extend(outputs)
        graph.inputs.clear()
        remove_unused(graph)

    def residuals(self, run: Backward) -> list[Pair]:
        """What the finished graph of a step reads of the forward pass and cannot compute anew: values that repeat, and
        random draws. Pairs of the forward subgraph's value and the one that stands for it, which has to become an
        input.
        """
        repeated = [j for _, j in run.flow.repeats]
        saved = draws.take_out(run.graph, run.copied, self.linker)
        return [(run.flow.graph.inputs[j], run.inputs[j]) for j in repeated if run.inputs[j].uses()] + saved

    def sum(self, graph: ir.Graph, total: ir.Value, part: ir.Value) -> ir.Value:
        """A sum that grows by a contribution, inside a subgraph."""
        return compound.add(self.linker.within(graph), [total, part], total)

    # Writing

    def emit_one(self, op_type: str, inputs: Sequence[ir.Value | None], like: ir.Value, **attributes: Any) -> ir.Value:
        """Append a node; its output has the type and shape of `like`."""
        return self.linker.node(
            op_type, inputs, like, f"{self.step.origin}/{self.step.form.rule}/{op_type}", **attributes
        )

    def zeros(self, like: ir.Value, graph: ir.Graph | None = None) -> ir.Value:
        """Zeros of the type and shape of a value, in a subgraph or beside the node."""
        return compound.zeros(self.linker if graph is None else self.linker.within(graph), like)

    def pull(self, op_type: str, inputs: Sequence[ir.Value], ct: ir.Value, **attributes: Any) -> list[Pair]:
        """The derivative of an op with these inputs, which is not computed here: (input, contribution) pairs."""
        from gradgen.engine.plan import make_step, pull_back

        attrs = ir.convenience.convert_attributes(attributes)
        node = ir.Node("", op_type, inputs, attrs, outputs=[self.value(op_type, ct)], name=self.step.origin)
        row = self.linker.rules.find("", op_type)
        assert row is not None
        activity = Activity({*self.step.active, *node.outputs}, set(node.outputs), [node])
        pairs = pull_back(make_step(node, row, activity, self.linker), [ct], self.linker)
        for index in range(len(inputs)):
            node.replace_input_with(index, None)
        return pairs

    def constant(self, number: int) -> ir.Value:
        """An int64 scalar."""
        return self.linker.constants.get(np.asarray(number, np.int64))

    def add(self, graph: ir.Graph, value: ir.Value) -> None:
        """Make a value of a forward subgraph one more of its outputs."""
        like = value
        if value.producer() is None or value.is_graph_output():
            value = self.linker.within(graph).node("Identity", [value], like, f"{self.step.origin}/{like.name}/saved")
        graph.outputs.append(value)

    def named(self, value: ir.Value) -> ir.Value:
        """An output of the forward node, which gets a name where it was left out."""
        value.name = value.name or self.linker.names.unique(f"{self.step.origin}/output")
        return value

    def emit(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        graphs: Mapping[str, ir.Graph],
        like: Sequence[ir.Value],
        **attributes: Any,
    ) -> list[ir.Value]:
        """Append a node with subgraphs; its outputs have the types and shapes of `like`."""
        base = f"{self.step.origin}/{self.step.form.rule}"
        outputs = self.linker.structured(op_type, inputs, graphs, like, base, **attributes)
        node = outputs[0].producer()
        assert node is not None
        node.metadata_props.update({"gradgen.rule": self.step.form.rule, "gradgen.node": self.step.origin})
        return outputs

    def output(self, index: int, like: ir.Value) -> ir.Value:
        """One more output of the forward node, which holds a value of its subgraphs, in front of the one at `index`."""
        out = insert_output(self.node, index)
        out.name, out.type = self.linker.names.unique(f"{self.step.origin}/{like.name}/saved"), like.type
        return out

    def value(self, hint: str, like: ir.Value) -> ir.Value:
        """A new value with the type and shape of another, to become an input of a subgraph."""
        return self.linker.value(f"{self.step.origin}/{hint}", like)


def reverse_structural(step: Any, cotangents: Sequence[ir.Value | None], linker: Linker) -> list[Pair]:
    """Apply a structural rule; returns (value, contribution) pairs."""
    receives = [ct if is_float(v.dtype) else None for v, ct in zip(step.outputs, cotangents, strict=True)]
    context = StructuralContext(step, receives, linker)
    return [(v, ct) for v, ct in form_function(step.form).fn(context) if ct is not None]
