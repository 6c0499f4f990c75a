"""Links rules into a graph: describes a call's signature, specialises it once, clones the small result."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import onnx_ir as ir

from gradgen.engine.bodies import bind_captures
from gradgen.engine.contract import MisfitError, conform
from gradgen.engine.keys import attribute_key
from gradgen.engine.knowledge import Constants, Knowledge
from gradgen.engine.labels import with_origins
from gradgen.engine.names import Names, shortened
from gradgen.engine.registry import Registry, Rules, is_random
from gradgen.engine.rows import Form
from gradgen.engine.specialise import Template, specialise
from gradgen.engine.subgraphs import fit, graphs, graphs_of
from gradgen.engine.values import UnknownTypeError, Value
from gradgen.errors import GradientError
from gradgen.rules.lang import RuleFunction

Arguments = Mapping[str, Any]


class Linker:
    """Appends nodes to a graph: clones of specialised rules, and single nodes.

    Args:
        graph: the graph that nodes are appended to (a subgraph's linker shares all else with its parent's).
        registry: rules and bodies.
        opset: the graph's ai.onnx opset.
        knowledge: what is known of its values.
        names: the names that are taken.
        constants: the pool of constants.
    """

    def __init__(
        self, graph: ir.Graph, registry: Registry, opset: int, knowledge: Knowledge, names: Names, constants: Constants
    ):
        self.graph = graph
        self.registry = registry
        self.opset = opset
        self.knowledge = knowledge
        self.names = names
        self.constants = constants
        self.rules = Rules(registry, {**constants.imports, "": opset})
        self._anchor: ir.Node | None = None
        self.public: set[str] = set()

    def anchored(self, node: ir.Node) -> Linker:
        """A linker that puts its nodes in front of one of the graph's."""
        linker = self.within(self.graph)
        linker.move(node)
        return linker

    def move(self, node: ir.Node) -> None:
        """Put nodes in front of this one of the graph's from now on."""
        self._anchor = node

    def draws(self, node: ir.Node) -> bool:
        """Whether a node draws random numbers, and so must never be repeated."""
        row = self.rules.of(node)
        if row is not None and isinstance(row.random, str):
            switch = next((v for i, v in enumerate(node.inputs) if row.input_name(i) == row.random), None)
            known = None if switch is None else self.knowledge.constant(switch)
            return switch is not None and (known is None or bool(np.any(known)))
        if row is not None and row.random is not None:
            return bool(row.random)
        return row is None and node.domain in ("", "ai.onnx") and not graphs(node) and is_random("", node.op_type)

    def version(self, node: ir.Node) -> int:
        """The version of a node's operator set that its model imports."""
        return self.rules.version(node.domain)

    def append(self, node: ir.Node) -> None:
        """Put a node at the linker's place."""
        if self._anchor is None:
            self.graph.append(node)
        else:
            self.graph.insert_before(self._anchor, node)

    def within(self, graph: ir.Graph) -> Linker:
        """A linker for a subgraph."""
        return type(self).along(self, graph)

    @classmethod
    def along(cls, linker: Linker, graph: ir.Graph) -> Self:
        """One of this kind that shares all but its place with another."""
        made = cls(graph, linker.registry, linker.opset, linker.knowledge, linker.names, linker.constants)
        made.rules = linker.rules  # with the rows that have been looked up
        return made

    def finish(self, model: ir.Model) -> None:
        """Add to the model what its nodes need: the bodies of ops that no runtime knows, as functions."""
        importlib.import_module("gradgen.engine.custom").add_functions(model, self.rules)

    def vjp(
        self,
        form: Form,
        arguments: Arguments,
        attributes: Mapping[str, ir.Attr],
        wanted: Mapping[str, Any],
        stand_ins: Mapping[str, ir.Value],
        origin: str,
    ) -> dict[str, Any]:
        """Link a form of a backward rule; returns its wanted results by formal name."""
        return self._link(
            form.rule, form.reads, form.returns, form, form.attributes,
            arguments, attributes, wanted, stand_ins, origin,
        )  # fmt: skip

    def forward(
        self,
        form: Form,
        arguments: Arguments,
        attributes: Mapping[str, ir.Attr],
        wanted: Mapping[str, Any],
        origin: str,
    ) -> dict[str, Any]:
        """Link a form's `<op>_fwd`; returns its wanted results by formal name."""
        assert form.fwd is not None
        return self._link(
            form.fwd, form.fwd_reads, form.fwd_returns, f"{form.module}:{form.fwd}", form.fwd_attributes,
            arguments, attributes, wanted, {}, origin,
        )  # fmt: skip

    def library(self, function: RuleFunction, *values: ir.Value) -> ir.Value:
        """Link a call of a library function."""
        names: dict[str, str] = {}
        described = [self.knowledge.describe(v, names) for v in values]
        template = self._cached(
            (function.name, tuple(map(_signature, described))),
            lambda: _library_template(function, described, self.registry, self.opset),
        )
        return self.clone(template, list(values), names, function.name, "")["result"]

    def node(
        self, op_type: str, inputs: Sequence[ir.Value | None], like: ir.Value, base: str, **attributes: Any
    ) -> ir.Value:
        """Append one node whose result has the type and shape of `like`."""
        out = ir.Value(name=self.names.unique(base), type=like.type, shape=like.shape)
        node = ir.Node("", op_type, inputs, ir.convenience.convert_attributes(attributes), outputs=[out])
        node.name = self.names.unique(f"{out.name}/{op_type}")
        node.metadata_props["gradgen.node"] = shortened(like.name or "")
        self.append(node)
        return out

    def value(self, base: str, like: ir.Value) -> ir.Value:
        """A new value with the type and shape of another, to become an input of a subgraph."""
        return ir.Value(name=self.names.unique(base), type=like.type, shape=like.shape)

    def structured(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        graphs: Mapping[str, ir.Graph],
        like: Sequence[ir.Value],
        base: str,
        **attributes: Any,
    ) -> list[ir.Value]:
        """Append one node with subgraphs whose results have the types and shapes of `like`; None is no attribute."""
        outputs = [ir.Value(name=self.names.unique(base), type=v.type, shape=v.shape) for v in like]
        given = {k: v for k, v in attributes.items() if v is not None}
        attrs = [*(ir.AttrGraph(k, g) for k, g in graphs.items()), *ir.convenience.convert_attributes(given)]
        node = ir.Node("", op_type, inputs, attrs, outputs=outputs, name=self.names.unique(f"{base}/{op_type}"))
        node.metadata_props["gradgen.node"] = shortened(base)
        self.append(node)
        return outputs

    def add(self, pair: Sequence[ir.Value], like: ir.Value) -> ir.Value:
        """Append the sum of two contributions to the cotangent of `like`."""
        out = self.node("Add", pair, like, f"{like.name}/cotangent")
        producer = out.producer()
        assert producer is not None
        producer.metadata_props["gradgen.sum"] = "1"
        return out

    def publish(self, value: ir.Value, name: str, like: ir.Value) -> ir.Value:
        """Give a result, of the type and shape of `like`, its public name; one that has a name already is copied.

        Raises:
            GradientError: its type or shape contradicts that of `like`.
        """
        conform(value, like, f"the backward pass of '{name}'")
        producer = value.producer()
        named = value.is_graph_output() or value.name in self.public
        if producer is None or named or "gradgen.node" not in producer.metadata_props:
            source, value = value, self.node("Identity", [value], like, f"{name}/value")
            conform(value, source, f"the backward pass of '{name}'")
        value.name = name
        self.public.add(name)
        return value

    def _link(
        self, rule, reads, returns, source, takes, arguments, attributes, wanted, stand_ins, origin
    ) -> dict[str, Any]:
        names: dict[str, str] = {}
        described: dict[str, Any] = {}
        actual: list[ir.Value] = []
        for name in reads:
            argument = arguments.get(name)
            if isinstance(argument, list):
                described[name] = [None if v is None else self.knowledge.describe(v, names) for v in argument]
                actual.extend(v for v in argument if v is not None)
            elif argument is not None:
                described[name] = self.knowledge.describe(argument, names)
                actual.append(argument)
        filled = {name: self.knowledge.describe(v, names) for name, v in stand_ins.items()}
        actual.extend(stand_ins.values())
        bound = {k: attributes[k] for k in takes if k in attributes}
        key = (
            rule,
            source if isinstance(source, str) else (source.module, id(source.function)),
            self.opset,
            tuple([(n, _signatures(a)) for n, a in described.items()]),
            tuple([(n, _signature(v)) for n, v in filled.items()]),
            tuple([(k, attribute_key(a)) for k, a in sorted(bound.items())]),
            tuple([(n, w if isinstance(w, bool) else tuple(w)) for n, w in wanted.items()]),
        )
        try:
            given = (rule, reads, returns, source, described, bound, wanted, self.registry, self.opset, filled)
            template = self._cached(key, lambda: specialise(*given))
        except UnknownTypeError as error:
            reason = with_origins(str(error), actual)
            raise GradientError(f"{origin}: rule '{rule}' cannot be applied: {reason}") from error
        except GradientError as error:
            kind = MisfitError if isinstance(error, MisfitError) else GradientError
            raise kind(f"{origin}: rule '{rule}': {error}") from error
        except Exception as error:  # a rule computes with attributes and sizes of which nobody knows whether they fit
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise GradientError(f"{origin}: rule '{rule}' cannot be applied to this node: {reason}") from error
        return self.clone(template, actual, names, rule, origin)

    def _cached(self, key: tuple, make: Any) -> Template:
        template = self.registry.templates.get(key)
        if template is None:
            template = make()
            self.registry.templates[key] = template
        return template

    def clone(
        self, template: Template, actual: Sequence[ir.Value], names: Mapping[str, str], rule: str, origin: str
    ) -> dict[str, Any]:
        """Append the nodes of a specialised rule.

        Args:
            template: the rule.
            actual: the values that stand for its inputs.
            names: the names of dimensions in it, by the graph's.
            rule, origin: its name and that of the forward node, for names and metadata.

        Returns:
            the results by formal name, a list for a variadic one.
        """
        for position in template.fixed:
            self.knowledge.fix(actual[position])
        back = {short: name for name, short in names.items()}
        env: dict[int, ir.Value] = {id(t): a for t, a in zip(template.inputs, actual, strict=True)}
        metadata = {"gradgen.rule": rule, "gradgen.node": origin}
        base = f"{origin}/{rule}" if origin else rule

        def resolve(value: Value | None) -> ir.Value | None:
            if value is None:
                return None
            found = env.get(id(value))
            if found is None:
                assert value.peek is not None, f"{rule}: {value} has no producer"
                found = env[id(value)] = self.constants.get(value.peek)
            return found

        for body in template.nodes:
            outputs = []
            for value in body.outputs:
                out = ir.Value(
                    name=self.names.unique(f"{base}/{body.op_type}"),
                    shape=value.ir_shape(back),
                    type=None if value.dtype is None else ir.TensorType(value.dtype),
                )
                env[id(value)] = out
                outputs.append(out)
            inputs = [resolve(v) for v in body.inputs]
            attributes = bind_captures(body, resolve) if body.attributes else {}
            for graph in graphs_of(attributes) if attributes else ():
                fit(graph, self.names, f"{base}/{body.op_type}", back, metadata)
            node = ir.Node(
                body.domain, body.op_type, inputs, attributes, outputs=outputs, metadata_props=dict(metadata)
            )
            node.name = outputs[0].name
            self.append(node)
        return {
            name: [resolve(v) for v in result] if isinstance(result, list) else resolve(result)
            for name, result in template.outputs.items()
        }


def _library_template(function: RuleFunction, values: list[Value], registry: Registry, opset: int) -> Template:
    from gradgen.engine.builder import Builder
    from gradgen.engine.specialise import needed
    from gradgen.rules.lang import building

    builder = Builder(registry.body, opset, callee=registry.callee)
    with building(builder):
        result = builder.call(function, values, {})
    return Template(values, {"result": result}, needed(builder.nodes, [result]))


def _signature(value: Value | None) -> Any:
    if value is None:
        return None
    const = None if value.peek is None else (value.peek.dtype.str, value.peek.tobytes())
    return (value.dtype, value.shape, const)


def _signatures(argument: Any) -> Any:
    return tuple(map(_signature, argument)) if isinstance(argument, list) else _signature(argument)
