"""`vjp_pair`: the vector–Jacobian product as two models, one to run now and one to run later."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from gradgen.api import Options, differentiated
from gradgen.arguments import check_switches
from gradgen.engine.external import BASE_KEY
from gradgen.engine.names import Names, free_prefix
from gradgen.engine.reading import Model, read
from gradgen.engine.registry import Registry, Rules, registry_of
from gradgen.engine.serde import to_proto
from gradgen.engine.simplify import remove_unused_initializers
from gradgen.engine.subgraphs import discard, graphs
from gradgen.errors import GradientError
from gradgen.request import NAMES_KEY, noted_roles, roles_of, value_names
from gradgen.rules.rows import forget_open_rows
from gradgen.transforms.barrier import AGAIN, MARK
from gradgen.transforms.common import drop_imports, paused_collector
from gradgen.transforms.partition import ancestors, kept_values


def vjp_pair(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    closed: bool = False,
    straight_through: bool = False,
    portable: bool = False,
    registry: Registry | None = None,
    seeds: int | str | None = None,
    checkpoint: Sequence[str] | str | None = None,
) -> tuple[Any, Any]:
    """The vector–Jacobian product of a model as two models: forward now, backward later.

    Every random node is in the forward model, and nothing that it computes is computed again, but for constants,
    arithmetic on shapes and what `checkpoint` asks for. What the backward model needs is kept where it takes fewest
    bytes.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model. It is not changed.
        wrt: names (or globs) of graph inputs, initializers or intermediate values; by default the float inputs
            that have no initializer.
        of: names of float outputs or intermediate values (which become outputs); by default every float output.
        closed: False lets the backward model read the model's own inputs and outputs, under their names, so that
            nothing is copied that the caller has anyway; True makes it read residuals and cotangents alone.
        straight_through, portable: as in `vjp`.
        registry: rules to use in place of the registered ones.
        seeds: as in `vjp`: the backward model takes that many cotangents at once, along a new leading axis of
            `grad_<output>`, and so do its results lie in `grad_<name>`. The forward model is that of one cotangent.
        checkpoint: names (or globs) of values that are kept for the backward model, or "auto", as in `vjp`; that model
            computes all of the others anew that it needs, those of the last segment too. Random nodes draw once, in the
            forward model. Not together with `seeds`.

    Returns:
        `(forward, backward)`, of the kind that was handed in (ModelProtos for a path).

        forward: the model's inputs → its outputs, then `residual_<i>`: values of any type and shape that the backward
        model reads.

        backward: inputs of the model that it reads, outputs of the model that it reads, `residual_<i>`, and
        `grad_<output>` for each of `of` → `grad_<name>` for each of `wrt`, as `vjp` has them. All of these have the
        names that they have in the forward model, so one dictionary of all feeds and results serves both. Initializers
        that the backward model reads are its own; one that is a graph input too stays one.

        The metadata `gradgen.names` of both maps each name to its role and source.

    Raises:
        GradientError: as `vjp`; and for a residual whose type is unknown.
    """
    check_switches(closed=closed)
    before, as_ir = read(model)
    options = Options(
        straight_through=straight_through, portable=portable, registry=registry, seeds=seeds, checkpoint=checkpoint,
        apart=True,
    )  # fmt: skip
    found = differentiated(before, wrt, of, "vjp", options)
    with paused_collector():
        sides = [ir.from_proto(found), ir.from_proto(found)]
        given, results = _added(before, found)
        kept = _kept(sides[0], given, results, closed, registry_of(registry))
        prefix = free_prefix("residual", map(str, range(len(kept))), Names.of(sides[0].graph))
        residuals = {f"{prefix}{i}": value.name or "" for i, value in enumerate(kept)}
        _make_forward(sides[0].graph, residuals, given, results)
        _make_backward(sides[1].graph, residuals, given, results, closed)
        for side in sides:
            _finish(side, residuals)
        return (sides[0], sides[1]) if as_ir else (to_proto(sides[0]), to_proto(sides[1]))


def _added(before: onnx.ModelProto, after: onnx.ModelProto) -> tuple[list[str], list[str]]:
    """The names of the cotangents and of the gradients that `vjp` has added to a model."""
    known = value_names(before)  # and not the metadata, which may speak of what the model had before it was cut down
    roles = {n: r["role"] for n, r in roles_of(after).items() if n not in known}
    given = [i.name for i in after.graph.input if roles.get(i.name) == "cotangent"]
    return given, [o.name for o in after.graph.output if roles.get(o.name) == "gradient"]


def _kept(model: ir.Model, given: list[str], results: list[str], closed: bool, registry: Registry) -> list[ir.Value]:
    """The values that the backward model reads and that nobody else has."""
    graph = model.graph
    cotangents = [v for v in graph.inputs if v.name in given]
    primal = [v for v in graph.outputs if v.name not in results]
    gradients = [v for v in graph.outputs if v.name in results]
    inputs = set(graph.inputs)
    held = set(graph.initializers.values())
    held = held - inputs if closed else {*held, *inputs, *primal}
    draws = _draws(Rules(registry, model.opset_imports))
    own = ancestors(primal)  # a model may compute values anew already, in what is its forward pass here
    again = [n for n in graph if n.metadata_props.get(MARK) == AGAIN and n not in own]
    later = [*gradients, *(v for node in again for v in node.outputs)]
    return kept_values(graph, primal, cotangents, later, {*held, *cotangents}, draws)


def _draws(rules: Rules) -> Callable[[ir.Node], bool]:
    """Whether a node may draw random numbers, itself or inside its subgraphs."""

    def draws(node: ir.Node) -> bool:
        return rules.may_draw(node) or any(draws(inner) for graph in graphs(node) for inner in graph)

    return draws


def _values(graph: ir.Graph) -> dict[str, ir.Value]:
    return {v.name: v for v in [*graph.inputs, *(v for n in graph for v in n.outputs)] if v.name}


def _make_forward(graph: ir.Graph, residuals: Mapping[str, str], given: list[str], results: list[str]) -> None:
    """Cut a gradient graph down to what runs at once, with the residuals as further outputs."""
    values = _values(graph)
    primal = [v for v in graph.outputs if v.name not in results]
    graph.outputs.clear()
    graph.outputs.extend(primal)
    for name, source in residuals.items():
        value = values[source]
        if value.type is None:
            raise GradientError(f"'{source}' has to be kept for the backward model, and its type is unknown: state it in "
                                "the model's value_info")  # fmt: skip
        if value.producer() is None or value in primal:
            copy = ir.Value(name=name, type=value.type, shape=value.shape)
            graph.append(ir.Node("", "Identity", [value], outputs=[copy], name=name))
            value = copy
        value.name = name
        graph.outputs.append(value)
    _remove_dead(graph)
    _set_inputs(graph, [v for v in graph.inputs if v.name not in given])


def _make_backward(
    graph: ir.Graph, residuals: Mapping[str, str], given: list[str], results: list[str], closed: bool
) -> None:
    """Cut a gradient graph down to what runs later; what it reads of the other half becomes its inputs."""
    values = _values(graph)
    gradients = [v for v in graph.outputs if v.name in results]
    primal = [] if closed else [v for v in dict.fromkeys(graph.outputs) if v not in gradients and v.producer()]
    graph.outputs.clear()
    graph.outputs.extend(gradients)
    entering = []
    for name, value in [*((v.name, v) for v in primal), *((n, values[s]) for n, s in residuals.items())]:
        fresh = ir.Value(name=name, type=value.type, shape=value.shape)
        ir.convenience.replace_all_uses_with(value, fresh)
        entering.append(fresh)
    _remove_dead(graph)
    own = [v for v in graph.inputs if v.name not in given]
    read = [v for v in [*own, *entering] if v.uses() or v.is_graph_output()]
    _set_inputs(graph, [*read, *(v for v in graph.inputs if v.name in given)])


def _remove_dead(graph: ir.Graph) -> None:
    """Remove what no output depends on; all at once, as onnx_ir looks at every output for each removal."""
    needed = ancestors(graph.outputs)
    dead = [n for n in graph if n not in needed]
    for sub in [sub for node in dead for sub in graphs(node)]:
        discard(sub)
    graph.remove(dead, safe=True)


def _set_inputs(graph: ir.Graph, inputs: Sequence[ir.Value]) -> None:
    graph.inputs.clear()
    graph.inputs.extend(inputs)
    remove_unused_initializers(graph)


def _finish(model: ir.Model, residuals: Mapping[str, str]) -> None:
    """Let a model's metadata and imports speak of what it has."""
    graph = model.graph
    public = [v.name or "" for v in [*graph.inputs, *graph.outputs]]
    roles = noted_roles(model.metadata_props)
    roles.update({name: {"role": "residual", "source": source} for name, source in residuals.items()})
    model.metadata_props[NAMES_KEY] = json.dumps({n: r for n, r in roles.items() if n in public}, sort_keys=True)
    drop_imports(model)
    forget_open_rows(graph)
    base = model.metadata_props.get(BASE_KEY)
    for value in graph.initializers.values():
        if base and isinstance(value.const_value, ir.ExternalTensor):
            value.const_value.base_dir = base
