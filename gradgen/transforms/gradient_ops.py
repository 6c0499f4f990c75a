"""Nodes of the standard's Gradient operator, with the tensors that they name as inputs that a graph keeps track of."""

from __future__ import annotations

import difflib
from collections import ChainMap
from collections.abc import Iterable, Sequence

import onnx
import onnx_ir as ir

from gradgen.engine.derive import TRAINING as DOMAIN
from gradgen.engine.protos import Scope, all_nodes
from gradgen.engine.shaping import fill_type, value_of
from gradgen.errors import GradientError
from gradgen.rules.lang import INTERNAL

Owner = onnx.GraphProto | onnx.FunctionProto


def is_gradient(node: onnx.NodeProto) -> bool:
    """Whether a node is of the standard's Gradient operator."""
    return node.domain == DOMAIN and node.op_type == "Gradient"


def count_gradients(proto: onnx.ModelProto) -> int:
    """How many Gradient nodes a model has, those in subgraphs and functions included."""
    return sum(is_gradient(n) for owner in (proto.graph, *proto.functions) for n in all_nodes(owner))


def is_marked(node: ir.Node | onnx.NodeProto) -> bool:
    """Whether a node is what `mark_gradients` makes of a Gradient node."""
    return node.domain == INTERNAL and node.op_type == "Gradient"


def mark_gradients(proto: onnx.ModelProto) -> None:
    """Turn the Gradient nodes of a model into nodes whose inputs are the given values, those named in `xs` and `zs`, y.

    Names in attributes would be lost where functions are inlined or subgraphs renamed.

    Raises:
        GradientError: that lists, for each node, names that do not exist and numbers that do not fit.
    """
    problems: list[str] = []
    stored = [t.name for t in proto.graph.initializer]
    marked = [_mark(proto.graph, ChainMap({}), stored, problems)]
    for function in proto.functions:
        marked.append(_mark(function, ChainMap({}), function.input, problems))
    if problems:
        raise GradientError("\n".join(problems))
    for owner, found in zip([proto, *proto.functions], marked, strict=True):
        if found or (owner is proto and any(marked)):  # functions will be inlined
            owner.opset_import.append(onnx.helper.make_opsetid(INTERNAL, 1))


def _mark(owner: Owner, outer: ChainMap[str, None], more: Iterable[str], problems: list[str]) -> bool:
    """Mark the nodes of a graph or a function; whether there were any."""
    if not any(is_gradient(n) for n in all_nodes(owner)):
        return False
    inputs = [i.name for i in owner.input] if isinstance(owner, onnx.GraphProto) else []
    there = outer.new_child(dict.fromkeys([*inputs, *more]))
    later = {o for n in owner.node for o in n.output}
    for node in owner.node:
        for attribute in node.attribute:
            for sub in [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs:
                _mark(sub, there, [t.name for t in sub.initializer], problems)
        if is_gradient(node):
            found = _problems(node, there, later)
            label = f"Gradient node '{node.name or next(filter(None, node.output), '')}': "
            problems.extend(label + p for p in found)
            if not found:
                _rewrite(node)
        there.update(dict.fromkeys(o for o in node.output if o))
    return True


def _names(node: onnx.NodeProto, attribute: str) -> list[str]:
    found = next((a for a in node.attribute if a.name == attribute), None)
    return [] if found is None else [s.decode() for s in (found.strings or ([found.s] if found.s else []))]


def _problems(node: onnx.NodeProto, there: ChainMap[str, None], later: set[str]) -> list[str]:
    xs, zs, y = (_names(node, role) for role in ("xs", "zs", "y"))
    problems = [f"its attribute '{role}' is missing" for role, names in (("xs", xs), ("y", y)) if not names]
    for role, names in (("xs", xs), ("zs", zs), ("y", y)):
        for name in names:
            if name in there:
                continue
            near = difflib.get_close_matches(name, list(there), n=3, cutoff=0.5)
            hint = f"; near matches: {', '.join(map(repr, near))}" if near else ""
            where = "is computed after the node" if name in later else f"is no value that it can see{hint}"
            problems.append(f"{role}: '{name}' {where}")
    problems += [f"'{n}' is named twice in xs and zs" for n in dict.fromkeys([*xs, *zs]) if [*xs, *zs].count(n) > 1]
    if len(node.input) != len(xs) + len(zs) or not all(node.input):
        count = sum(map(bool, node.input))
        problems.append(f"it has {count} inputs, and xs and zs name {len(xs) + len(zs)}: give a value for each name")
    if len(node.output) > len(xs):
        problems.append(f"it has {len(node.output)} outputs, and xs names {len(xs)}")
    return problems


def _rewrite(node: onnx.NodeProto) -> None:
    xs, zs, y = (_names(node, role) for role in ("xs", "zs", "y"))
    node.domain = INTERNAL
    node.input.extend([*xs, *zs, *y])
    del node.attribute[:]
    node.attribute.append(onnx.helper.make_attribute("xs", len(xs)))


def fill_gradients(known: Sequence[Scope]) -> bool:
    """Give the outputs of marked nodes the types of the given values; whether there were any without."""
    found = False
    for scope in known:
        for node in scope.graph.node:
            if not is_marked(node):
                continue
            for given, name in zip(node.input, node.output, strict=False):
                source = value_of(scope, given)
                if not name or source is None or source.shape is None or source.dtype is None:
                    continue
                found |= fill_type(scope, name, source)
    return found
