"""The public calls: gradient models of models."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.calls import CallLinker
from gradgen.engine.compound import is_optional, is_sequence, zeros
from gradgen.engine.contract import ir_shape
from gradgen.engine.derive import derive
from gradgen.engine.expand import expand_where
from gradgen.engine.forward import STRAY
from gradgen.engine.given import remove_given, with_given
from gradgen.engine.link import CONSTANT_MARK, Constants, Knowledge, Linker
from gradgen.engine.names import Names, free_prefix
from gradgen.engine.prepare import Model, Prepared, learn_constants, prepare
from gradgen.engine.reading import read
from gradgen.engine.registry import Registry, Rules, registered, registry_of
from gradgen.engine.simplify import merge_common, remove_unused, remove_unused_initializers
from gradgen.engine.subgraphs import all_values
from gradgen.engine.through import Through, pass_through, quantises, stops
from gradgen.errors import GradientError, GradientWarning
from gradgen.request import FIXED_KEY, NAMES_KEY, check_fixed, find_values, parameter_values, stored_parameters
from gradgen.rules.lang import OPSET
from gradgen.rules.library import zeros_like
from gradgen.rules.rewrites import rewrite


@dataclass(frozen=True)
class Options:
    """What a call asks for beside the values: see `vjp` and `value_and_grad`."""

    inline: bool = True
    straight_through: bool = False
    registry: Registry | None = None
    reduce: str | None = None


def vjp(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    inline: bool = True,
    straight_through: bool = False,
    registry: Registry | None = None,
) -> Any:
    """The vector–Jacobian product of a model, as a model.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model. It is not changed.
        wrt: names (or globs) of graph inputs, initializers or intermediate values; by default the float inputs
            that have no initializer.
        of: names of float outputs or intermediate values (which become outputs); by default every float output.
        inline: False keeps calls into the function library, for reading.
        straight_through: pass gradients through quantisation, where the true derivative is zero: to the input inside
            the range, to the scale by the learned-step-size rule. By default a GradientWarning names what stops them.
        registry: rules to use in place of the registered ones.

    Returns:
        A model of the kind that was handed in (a ModelProto for a path). Its inputs are the model's own, then
        `grad_<output>` for each of `of`: the cotangents, with the outputs' shapes and types. Its outputs are the
        model's own, then `grad_<name>` for each of `wrt`, in the order asked, with the shape and type of that value.
        Where one of these names is taken, `grad2_`, `grad3_`, … is used throughout; the model's metadata
        `gradgen.names` maps each public name to its role and source.

    Raises:
        GradientError: for names that do not exist, values that are not float, a path through ops without a rule
            (all of them are listed), and models that are not valid.
    """
    return _gradient(model, wrt, of, "vjp", Options(inline, straight_through, registry))


def value_and_grad(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    reduce: str | None = None,
    inline: bool = True,
    straight_through: bool = False,
    registry: Registry | None = None,
) -> Any:
    """The outputs of a model and the gradient of a scalar one, as a model.

    As `vjp`, but `of` (one element each; several are added) is seeded with 1, so the result has no cotangent inputs.
    `reduce="sum"` differentiates the sum of the elements of outputs that have more than one.
    """
    return _gradient(model, wrt, of, "value_and_grad", Options(inline, straight_through, registry, reduce))


def grad(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    reduce: str | None = None,
    inline: bool = True,
    straight_through: bool = False,
    registry: Registry | None = None,
) -> Any:
    """The gradient of a scalar output alone: `value_and_grad` without the primal outputs."""
    return _gradient(model, wrt, of, "grad", Options(inline, straight_through, registry, reduce))


def parameters(model: Model) -> list[str]:
    """The names of a model's trainable initializers: the float ones that a rule differentiates, in the model's order.

    Constants that gradgen has added to a gradient model are no parameters.
    """
    registry = registered()
    with paused_collector():
        if names := stored_parameters(read(model)[0], registry):
            return names
        for types in (False, True):  # Constants that hold the weights have types only after inference
            prepared = prepare(model, registry, types=types)
            graph = prepared.model.graph
            versions = {**graph.opset_imports, "": max(prepared.opset, OPSET)}
            found = parameter_values(graph, Rules(registry, versions))
            if found:
                break
    return [v.name or "" for v in found]


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause garbage collection: a graph is made of many objects that live until the end, and scanning them is dear."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                # What was made meanwhile counts as old: else the first collection would scan all of it at once.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _gradient(
    model: Model, wrt: Sequence[str] | str | None, of: Sequence[str] | str | None, kind: str, options: Options
) -> Any:
    if options.reduce not in (None, "sum"):
        raise GradientError(f"reduce is None or 'sum', not {options.reduce!r}")
    registry = registry_of(options.registry)
    if options.straight_through:
        registry = with_given(registry)
    with paused_collector():
        return _differentiate(prepare(model, registry), wrt, of, kind, registry, options)


def _differentiate(
    prepared: Prepared,
    wrt: Sequence[str] | str | None,
    of: Sequence[str] | str | None,
    kind: str,
    registry: Registry,
    options: Options,
) -> Any:
    graph = prepared.model.graph
    sources, targets = find_values(graph, wrt, of, Rules(registry, graph.opset_imports))
    check_fixed(prepared.model.metadata_props, sources, targets)
    names = Names.of(graph)
    knowledge = Knowledge({*sources, *(v for v in graph.inputs)})
    learn_constants(graph, knowledge, prepared.opset)
    linker_type = Linker if options.inline else CallLinker
    linker = linker_type(graph, registry, prepared.opset, knowledge, names, Constants(graph, names))
    strays: dict[ir.Value, ir.Value] = {}
    expand_where(graph, linker, lambda node: node.domain == STRAY or quantises(node, linker), strays)
    sources, targets = [strays.get(v, v) for v in sources], [strays.get(v, v) for v in targets]
    through = pass_through(graph, sources, linker) if options.straight_through else Through()
    sources, targets = [through.replaced.get(v, v) for v in sources], [through.replaced.get(v, v) for v in targets]
    stopped = _report_stops(graph, sources, targets, linker, through)
    public = Public(names, [v.name or "" for v in sources], [v.name or "" for v in targets], kind)
    outputs = list(graph.outputs)
    if kind == "vjp":
        seeds = {v: _cotangent_input(graph, v, public.cotangents[v.name or ""]) for v in targets}
    else:
        seeds = {v: _ones(v, linker, options.reduce) for v in targets}
    found, replaced = derive(graph, sources, seeds, linker)
    outputs = [replaced.get(v, v) for v in outputs]
    extra = [w for v in targets if (w := replaced.get(v, v)) not in outputs]
    graph.outputs.clear()
    graph.outputs.extend([] if kind == "grad" else [*outputs, *extra])
    sources = [replaced.get(v, v) for v in sources]
    for value, ct, name in zip(sources, found, public.gradients.values(), strict=True):
        graph.outputs.append(_gradient_output(value, ct, name, linker, warn=value not in stopped))
    if options.straight_through:
        remove_given(graph, same=False)
        through.restore_names()
    return _finish(prepared, linker, public)


class Public:
    """The public names of one call, and what each of them is."""

    def __init__(self, names: Names, wrt: list[str], of: list[str], kind: str):
        seeds = of if kind == "vjp" else []
        prefix = free_prefix("grad", [*seeds, *wrt], names)
        self.cotangents = {n: names.add(prefix + n) for n in seeds}
        prefix = free_prefix("grad", wrt, names)
        self.gradients = {n: names.add(prefix + n) for n in wrt}
        self.seeded = [] if kind == "vjp" else of

    def roles(self) -> dict[str, dict[str, str]]:
        """Role and source by public name."""
        roles = {public: {"role": "cotangent", "source": n} for n, public in self.cotangents.items()}
        roles.update({n: {"role": "seeded with 1", "source": n} for n in self.seeded})
        return {**roles, **{public: {"role": "gradient", "source": n} for n, public in self.gradients.items()}}


def _cotangent_input(graph: ir.Graph, value: ir.Value, name: str) -> ir.Value:
    cotangent = ir.Value(name=name, type=value.type, shape=value.shape)
    graph.inputs.append(cotangent)
    return cotangent


def _ones(value: ir.Value, linker: Linker, reduce: str | None) -> ir.Value:
    if is_sequence(value) or is_optional(value):
        kind = "sequence" if is_sequence(value) else "optional"
        raise GradientError(f"'{value.name}' is a {kind}, and a gradient is that of a tensor: use vjp with a cotangent")
    shape = ir_shape(value)
    assert value.dtype is not None
    if shape is not None and all(d == 1 for d in shape):
        return linker.constants.get(np.ones(tuple(1 for _ in shape), value.dtype.numpy()))
    if reduce is None:
        raise GradientError(
            f"'{value.name}' has shape {list(shape) if shape is not None else 'unknown'}, and a gradient is that of "
            'one element: pass reduce="sum" for the gradient of its sum, or use vjp with a cotangent'
        )
    one = linker.constants.get(np.ones((), value.dtype.numpy()))
    start = linker.library(zeros_like, value)
    return linker.node("Add", [start, one], value, f"{value.name}/seed")


def _report_stops(
    graph: ir.Graph, sources: list[ir.Value], targets: list[ir.Value], linker: Linker, through: Through
) -> set[ir.Value]:
    """Warn of what stops a gradient; the sources that it stops."""
    lines, stopped = stops(graph, sources, targets, linker, through)
    if lines:
        more = f"; and {len(lines) - 10} more nodes" if len(lines) > 10 else ""
        hint = "" if through.stand_ins else "; straight_through=True passes it through quantisation"
        warnings.warn("; ".join(lines[:10]) + more + hint, GradientWarning, stacklevel=5)
    return stopped


def _gradient_output(value: ir.Value, ct: ir.Value | None, name: str, linker: Linker, warn: bool) -> ir.Value:
    """The public output that holds a cotangent; zeros where nothing arrived."""
    if ct is None:
        if warn:
            warnings.warn(
                f"'{value.name}' does not influence what is differentiated: its gradient is zero",
                GradientWarning,
                stacklevel=4,
            )
        ct = zeros(linker, value)
    return linker.publish(ct, name, value)


def _finish(prepared: Prepared, linker: Linker, public: Public) -> Any:
    model, graph = prepared.model, prepared.model.graph
    remove_unused(graph)
    merge_common(graph, linker.draws)
    if rewrite(graph, linker):
        remove_unused(graph)
    remove_unused_initializers(graph)
    used = {n.domain for n in ir.traversal.RecursiveGraphIterator(graph)} | {f.domain for f in model.functions.values()}
    for domain in [d for d in model.opset_imports if d not in ("", *used)]:
        del model.opset_imports[domain]
    model.ir_version = max(10, model.ir_version or 10)
    previous = json.loads(model.metadata_props.get(NAMES_KEY, "{}"))
    model.metadata_props[NAMES_KEY] = json.dumps({**previous, **public.roles()}, sort_keys=True)
    fixed = {
        *json.loads(model.metadata_props.get(FIXED_KEY, "[]")),
        *(v.name for v in linker.knowledge.fixed if v.name),
    }
    if fixed:
        model.metadata_props[FIXED_KEY] = json.dumps(sorted(fixed))
    linker.finish(model)
    if not prepared.as_ir:
        return ir.to_proto(model)
    for value in all_values(graph):  # specialised bodies share their shapes, and a caller may change what it gets
        value.shape = None if value.shape is None else ir.Shape(value.shape.dims)
    return model


__all__ = ["CONSTANT_MARK", "grad", "parameters", "value_and_grad", "vjp"]
