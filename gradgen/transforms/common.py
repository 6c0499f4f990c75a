"""What every transform of a model does first and last: values found, a linker, public names, a model that is whole."""

from __future__ import annotations

import gc
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.arguments import check_switches
from gradgen.engine.calls import CallLinker
from gradgen.engine.clashes import clash
from gradgen.engine.compound import is_optional, is_sequence, zeros
from gradgen.engine.contract import MisfitError, ir_shape
from gradgen.engine.expand import expand_where
from gradgen.engine.forward import STRAY
from gradgen.engine.given import remove_given, with_given
from gradgen.engine.knowledge import Constants, Knowledge
from gradgen.engine.link import Linker
from gradgen.engine.names import Names, free_prefix
from gradgen.engine.prepare import Model, Prepared, learn_constants, prepare
from gradgen.engine.registry import Registry, Rules
from gradgen.engine.serde import to_proto
from gradgen.engine.simplify import merge_common, remove_unused, remove_unused_initializers
from gradgen.engine.subgraphs import all_values, every_node
from gradgen.engine.through import Through, pass_through, quantises, stops
from gradgen.errors import GradientError, GradientWarning, only_gradient_errors
from gradgen.request import FIXED_KEY, NAMES_KEY, SEEDED, check_fixed, find_values, noted_fixed, noted_roles
from gradgen.rules.faults import avoid_faults
from gradgen.rules.library import zeros_like
from gradgen.rules.portable import make_portable
from gradgen.rules.rewriting import rewrite
from gradgen.rules.rows import forget_open_rows
from gradgen.transforms.elements import chosen_element
from gradgen.wording import words


@contextmanager
def paused_collector(model: Model = None) -> Iterator[None]:
    """What a transform runs in: without garbage collection, and with GradientErrors alone.

    A graph is made of many objects that live until the end, and scanning them is dear. What onnx, numpy or a rule
    raises about a model becomes a GradientError, with the cause attached. Where a rule's result does not fit, and the
    shapes of `model`, the one that is transformed, do not fit together themselves, that is what is said.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        with only_gradient_errors():
            yield
    except MisfitError as error:
        if model is not None and (wrong := clash(model)):
            raise GradientError(wrong) from error
        raise
    finally:
        if enabled:
            if not gc.get_freeze_count():
                # What was made meanwhile counts as old: else the first collection would scan all of it at once.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def warn(message: str) -> None:
    """A GradientWarning at the line that called gradgen."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gradgen":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, GradientWarning, stacklevel=level)


def check_reduce(reduce: str | None) -> None:
    """Refuse what `reduce` cannot be, with a GradientError."""
    if reduce not in (None, "sum", "element"):
        raise GradientError(f"reduce is None, 'sum' or 'element', not {reduce!r}")


class Public:
    """The public names of one call, and what each of them is.

    Attributes:
        roles: role and source by public name, as they are written into the model's metadata.
    """

    def __init__(self, names: Names):
        self._names = names
        self._prefixes: dict[str, str] = {}
        self.roles: dict[str, dict[str, str]] = {}

    def take(self, stem: str, sources: Sequence[str], role: str, beside: Sequence[str] = ()) -> dict[str, str]:
        """Names `<stem>_<source>` by source, with one stem for all; `beside` are sources whose names have to be free.

        A second call for a stem goes on from the prefix of the first one.
        """
        prefix = free_prefix(stem, [*sources, *beside], self._names, self._prefixes.get(stem, ""))
        self._prefixes[stem] = prefix
        taken = {n: self._names.add(prefix + n) for n in sources}
        self.roles.update({public: {"role": role, "source": n} for n, public in taken.items()})
        return taken

    def take_pairs(self, stem: str, of: Sequence[str], wrt: Sequence[str]) -> dict[tuple[str, str], str]:
        """Names `<stem>_<y>_<x>` by pairs; names that read alike because of an underscore get a number."""
        pairs = [(y, x) for y in of for x in wrt]
        prefix = free_prefix(stem, [f"{y}_{x}" for y, x in pairs], self._names)
        taken = {(y, x): self._names.unique(f"{prefix}{y}_{x}", whole=True) for y, x in pairs}
        self.roles.update({public: {"role": stem, "source": x, "of": y} for (y, x), public in taken.items()})
        return taken


@dataclass(eq=False)
class Call:
    """A model that is being transformed.

    Attributes:
        prepared: the model.
        linker: the linker of its graph.
        sources, targets: the values that `wrt` and `of` name.
        straight_through: whether gradients pass through quantisation.
        through: what such a call did to the graph.
        stopped: sources whose derivative is known to stop, which was said.
        public: the names that the call adds.
    """

    prepared: Prepared
    linker: Linker
    sources: list[ir.Value]
    targets: list[ir.Value]
    straight_through: bool
    through: Through
    stopped: set[ir.Value]
    public: Public

    @property
    def graph(self) -> ir.Graph:
        """The model's graph."""
        return self.prepared.model.graph

    @property
    def wrt(self) -> list[str]:
        """The names of the sources."""
        return [v.name or "" for v in self.sources]

    @property
    def of(self) -> list[str]:
        """The names of the targets."""
        return [v.name or "" for v in self.targets]

    @property
    def outputs(self) -> list[ir.Value]:
        """The model's own outputs, then the targets that are none."""
        own = list(self.graph.outputs)
        return [*own, *(v for v in self.targets if v not in own)]

    def input(self, like: ir.Value, name: str) -> ir.Value:
        """One more input of the model, with the type and shape of a value."""
        value = ir.Value(name=name, type=like.type, shape=like.shape)
        self.graph.inputs.append(value)
        return value

    def replace(self, replaced: dict[ir.Value, ir.Value]) -> None:
        """Take note of values for which others stand in."""
        self.sources = [replaced.get(v, v) for v in self.sources]
        self.targets = [replaced.get(v, v) for v in self.targets]

    def output(self, value: ir.Value, found: ir.Value | None, name: str, missing: str = "") -> None:
        """One more output of the model, of the type and shape of a value; zeros, and a warning, where nothing is found."""
        if found is None:
            if missing:
                warn(missing)
            found = zeros(self.linker, value)
        self.graph.outputs.append(self.linker.publish(found, name, value))

    def seeds(self, reduce: str | None, kind: str = "gradient") -> dict[ir.Value, ir.Value]:
        """The cotangents with which the gradient of the targets starts; `reduce` as in `value_and_grad`.

        `kind` is the derivative that a caller asked for, for messages.
        """
        chosen = [v for v in self.targets if reduce == "element" and ir_shape(v) != ()]
        names = self.public.take("index", [v.name or "" for v in chosen], "index")
        seeded = {v.name or "": {"role": SEEDED, "source": v.name or ""} for v in self.targets}
        self.public.roles.update({n: role for n, role in seeded.items() if n not in names})
        return {
            v: chosen_element(v, names[v.name or ""], self.linker) if v in chosen else self.ones(v, reduce, kind)
            for v in self.targets
        }

    def ones(self, value: ir.Value, reduce: str | None, kind: str = "gradient") -> ir.Value:
        """The cotangent 1 of a value of one element; with `reduce`, of each element of a tensor."""
        linker = self.linker
        if is_sequence(value) or is_optional(value):
            form = "sequence" if is_sequence(value) else "optional"
            way = ": use vjp with a cotangent" if kind == "gradient" else ""
            raise GradientError(f"'{value.name}' is a {form}, and a {kind} is that of a tensor{way}")
        shape = ir_shape(value)
        assert value.dtype is not None
        if shape is not None and all(d == 1 for d in shape):
            return linker.constants.get(np.ones(tuple(1 for _ in shape), value.dtype.numpy()))
        if reduce is None:
            others = words("element") + (words("cotangent") if kind == "gradient" else "")
            raise GradientError(
                f"'{value.name}' has shape {list(shape) if shape is not None else 'unknown'}, and a {kind} is that of "
                f"one element: pass {words('sum')} for the {kind} of its sum{others}"
            )
        one = linker.constants.get(np.ones((), value.dtype.numpy()))
        start = linker.library(zeros_like, value)
        return linker.node("Add", [start, one], value, f"{value.name}/seed")

    def finish(self, then: Callable[[], None] | None = None, cut: bool = False) -> Any:
        """The model, of the kind that was handed in: simplified, with its metadata.

        `then` is called once the graph is simplified: what it adds stays as it is. `cut` is whether the model is cut up
        later, so that any value may become an input or output.
        """
        self.simplify()
        return self.deliver(then, cut)

    def simplify(self, keep: Sequence[ir.Value] = ()) -> list[ir.Value]:
        """Remove from the graph what neither its outputs nor `keep` need, and merge what is equal.

        Returns:
            the values that now stand where those of `keep` did.
        """
        graph, linker = self.graph, self.linker
        own = len(graph.outputs)
        graph.outputs.extend(keep)
        if self.straight_through:
            remove_given(graph)
            self.through.restore_names()
            self.straight_through = False
        remove_unused(graph)
        merge_common(graph, linker.draws)
        if rewrite(graph, linker):
            remove_unused(graph)
        found = list(graph.outputs)
        graph.outputs.clear()
        graph.outputs.extend(found[:own])
        return found[own:]

    def deliver(self, then: Callable[[], None] | None = None, cut: bool = False) -> Any:
        """The model, of the kind that was handed in, with its metadata; `then` and `cut` as for `finish`."""
        prepared, model = self.prepared, self.prepared.model
        previous = noted_roles(model.metadata_props)
        if any(r["role"] in (SEEDED, "index") for r in self.public.roles.values()):  # what an earlier call has seeded
            previous = {n: r for n, r in previous.items() if r["role"] != SEEDED}
        model.metadata_props[NAMES_KEY] = json.dumps({**previous, **self.public.roles}, sort_keys=True)
        complete(model, self.linker, then)
        if not cut:
            forget_open_rows(model.graph)
        if not prepared.as_ir:
            return to_proto(model)
        for value in all_values(
            model.graph
        ):  # specialised bodies share their shapes, and a caller may change what it gets
            value.shape = None if value.shape is None else ir.Shape(value.shape.dims)
        return model


def complete(model: ir.Model, linker: Linker, then: Callable[[], None] | None = None) -> None:
    """Make a simplified graph a model that is whole: portable if that was asked for, imports, functions, metadata.

    `then` as for `Call.finish`.
    """
    if "portable" in linker.knowledge.purposes:
        make_portable(model.graph, linker)
    if then is not None:
        then()
    avoid_faults(model.graph, linker)
    remove_unused_initializers(model.graph)
    drop_imports(model)
    model.ir_version = max(10, model.ir_version or 10)
    fixed = {*noted_fixed(model.metadata_props), *(v.name for v in linker.knowledge.fixed if v.name)}
    if fixed:
        model.metadata_props[FIXED_KEY] = json.dumps(sorted(fixed))
    linker.finish(model)


def drop_imports(model: ir.Model) -> None:
    """Remove the imports of domains, beside the standard's, of which a model has neither a node nor a function."""
    imported = [domain for domain in model.opset_imports if domain]
    if not imported:
        return
    used = {n.domain for n in every_node(model.graph)} | {f.domain for f in model.functions.values()}
    for domain in imported:
        if domain not in used:
            del model.opset_imports[domain]


def begin(
    model: Model,
    wrt: Sequence[str] | str | None,
    of: Sequence[str] | str | None,
    registry: Registry,
    *,
    inline: bool = True,
    straight_through: bool = False,
    portable: bool = False,
) -> Call:
    """Prepare a model and find the values that a call names; what stops a derivative between them is said in a warning.

    Raises:
        GradientError: for what is no valid model, names that do not exist, values that are not float.
    """
    check_switches(inline=inline, straight_through=straight_through, portable=portable)
    registry = with_given(registry) if straight_through else registry
    prepared = prepare(model, registry)
    graph = prepared.model.graph
    sources, targets = find_values(graph, wrt, of, Rules(registry, graph.opset_imports))
    check_fixed(prepared.model.metadata_props, sources, targets)
    names = Names.of(graph)
    knowledge = Knowledge({*sources, *(v for v in graph.inputs)})
    knowledge.purposes.update({"portable"} if portable else ())
    learn_constants(graph, knowledge, prepared.opset)
    linker_type = Linker if inline else CallLinker
    linker = linker_type(graph, registry, prepared.opset, knowledge, names, Constants(graph, names))
    call = Call(prepared, linker, sources, targets, straight_through, Through(), set(), Public(names))
    strays: dict[ir.Value, ir.Value] = {}
    expand_where(graph, linker, lambda node: node.domain == STRAY or quantises(node, linker), strays)
    call.replace(strays)
    if straight_through:
        call.through = pass_through(graph, call.sources, linker)
        call.replace(call.through.replaced)
    call.stopped = say_stops(graph, call.sources, call.targets, linker, call.through)
    return call


def say_stops(
    graph: ir.Graph, sources: Sequence[ir.Value], targets: Sequence[ir.Value], linker: Linker, through: Through
) -> set[ir.Value]:
    """Say in a warning what stops derivatives between sources and targets; the sources whose derivatives stop."""
    lines, stopped = stops(graph, sources, targets, linker, through)
    if lines:
        more = f"; and {len(lines) - 10} more nodes" if len(lines) > 10 else ""
        hint = "" if through.stand_ins else "; straight_through=True passes it through quantisation"
        warn("; ".join(lines[:10]) + more + hint)
    return stopped
