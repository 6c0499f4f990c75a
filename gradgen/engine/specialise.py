"""Specialises a rule for one signature, once: traces it or interprets its body, and keeps what is wanted."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.engine.builder import BodyNode, Builder
from gradgen.engine.registry import Registry, form_body, form_function, rule_function
from gradgen.engine.rows import Form
from gradgen.engine.values import AttributeParameter, Value
from gradgen.errors import GradientError
from gradgen.rules.lang import RuleFunction, building

Argument = Value | list[Value | None] | None


@dataclass(eq=False)
class Template:
    """The body of a rule for one signature.

    Attributes:
        inputs: the flat values that the body reads, in the order of the call's values.
        outputs: result values by formal name; a list for a variadic formal.
        nodes: the nodes that the outputs need, in topological order.
        fixed: positions of the inputs whose content the body holds for alone.
    """

    inputs: list[Value]
    outputs: dict[str, Any]
    nodes: list[BodyNode]
    fixed: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.fixed = [k for k, v in enumerate(self.inputs) if v.touched and v.peek is not None]


def flatten(arguments: Mapping[str, Argument]) -> list[Value]:
    """All values of a call in order, without absent ones."""
    flat: list[Value] = []
    for argument in arguments.values():
        flat.extend(v for v in (argument if isinstance(argument, list) else [argument]) if v is not None)
    return flat


def specialise(
    rule: str,
    reads: Sequence[str],
    returns: Sequence[str],
    source: Form | str,
    arguments: Mapping[str, Argument],
    attributes: Mapping[str, ir.Attr],
    wanted: Mapping[str, Any],
    registry: Registry,
    opset: int,
    stand_ins: Mapping[str, Value] | None = None,
) -> Template:
    """Run a rule on typed values and keep the nodes that the wanted results need.

    Args:
        rule: its name, for messages.
        reads: the formal names of its parameters.
        returns: the formal names of its results.
        source: the form, or the name of a compiled function.
        arguments: values by formal name.
        attributes: attributes with every default bound.
        wanted: formal names of the results to keep; for a variadic one the positions.
        registry: where compiled bodies are.
        opset: the ai.onnx opset of the graph.
        stand_ins: for a compiled rule, the output whose absent cotangent is filled with zeros, by cotangent name.
    """
    builder = Builder(registry.body, opset, callee=registry.callee)
    with building(builder):
        results = _run(builder, rule, reads, source, arguments, attributes, registry, stand_ins or {})
    named = dict(zip(returns, results, strict=False))
    kept: dict[str, Any] = {}
    for name, positions in wanted.items():
        result = named.get(name)
        if isinstance(result, list):
            asked = set(positions)
            kept[name] = [v if i in asked else None for i, v in enumerate(result)]
        else:
            kept[name] = result
    inputs = flatten(arguments) + list((stand_ins or {}).values())
    return Template(inputs, kept, needed(builder.nodes, flatten(kept)))


def _run(builder, rule, reads, source, arguments, attributes, registry, stand_ins) -> list[Any]:
    function = _python_function(source)
    if function is not None and function.kind == "traced":
        bound = {
            name: plain(attributes.get(name)) if name in attributes or default is None else default
            for name, default in keywords(function).items()
        }
        results = function.fn(*(arguments.get(name) for name in reads), **bound)
        results = results if isinstance(results, tuple) else (results,)
        return [builder.constant(r) if isinstance(r, int | float | np.ndarray) else r for r in results]
    body = form_body(source, registry) if isinstance(source, Form) else registry.body(rule)
    values: list[Value | None] = []
    for name in reads:
        argument = arguments.get(name)
        if isinstance(argument, list):
            raise GradientError(f"the compiled rule '{rule}' takes a variadic '{name}'; write it as a traced rule")
        if argument is None and name in stand_ins:
            from gradgen.rules.library import zeros_like

            argument = builder.call(zeros_like, [stand_ins[name]], {})
        values.append(argument)
    return builder.inline(body, values, attributes)


def _python_function(source: Form | str) -> RuleFunction | None:
    if isinstance(source, Form):
        return form_function(source) if source.kind == "traced" else None
    module, _, name = source.partition(":")
    return rule_function(module, name) if name else None


def keywords(function: RuleFunction) -> dict[str, Any]:
    """The attributes that a traced rule takes, with the defaults of its signature."""
    found = inspect.signature(function.fn).parameters.values()
    return {p.name: None if p.default is p.empty else p.default for p in found if p.kind is p.KEYWORD_ONLY}


def plain(attr: ir.Attr | None) -> Any:
    """An attribute as plain Python: int, float, str, list, or an onnx_ir tensor or graph."""
    if attr is None:
        return None
    if attr.ref_attr_name is not None:
        return AttributeParameter(attr)
    value = attr.value
    return list(value) if isinstance(value, tuple | list) else value


def needed(nodes: Sequence[BodyNode], outputs: Sequence[Value]) -> list[BodyNode]:
    """The nodes on which the outputs depend, in order."""
    live = set(map(id, outputs))
    kept = []
    for node in reversed(nodes):
        if any(id(v) in live for v in node.outputs):
            kept.append(node)
            live.update(id(v) for v in node.inputs if v is not None)
            live.update(id(v) for _, v in node.captures)
    return kept[::-1]
