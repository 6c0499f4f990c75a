"""Finds the values that a call names: wrt and of, with globs and near matches."""

from __future__ import annotations

import difflib
import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from gradgen.arguments import name_list
from gradgen.engine.knowledge import CONSTANT_MARK, is_constant
from gradgen.engine.protos import all_nodes
from gradgen.engine.registry import Registry, Rules
from gradgen.engine.values import FLOATS
from gradgen.errors import GradientError
from gradgen.rules.lang import OPSET
from gradgen.wording import words

_FLOAT_CODES = {int(t) for t in FLOATS}
NAMES_KEY = "gradgen.names"
FIXED_KEY = "gradgen.fixed"
SEEDED = "seeded with 1"
DERIVED = ("gradient", "tangent out", "hvp out", "jacobian", "hessian")
"""The roles of outputs that hold derivatives."""
KEYWORDS = {"initializers": "initializers", "parameters": "initializers", "inputs": "inputs"}
"""Words of the command line and of frameworks, and the advice of gradgen.wording on what to write in their place."""

_CHOICES = {"wrt": "the inputs and initializers", "of": "the outputs", "checkpoint": "the computed values"}


def find_values(
    graph: ir.Graph, wrt: Sequence[str] | str | None, of: Sequence[str] | str | None, rules: Rules
) -> tuple[list[ir.Value], list[ir.Value]]:
    """The values to differentiate with respect to, and those that are differentiated.

    Raises:
        GradientError: that lists every unknown name with near matches, and every value that is not float.
    """
    values = {v.name: v for v in [*graph.inputs, *graph.initializers.values()] if v.name}
    outer = list(values)
    for node in graph:
        values.update((v.name, v) for v in node.outputs if v.name)
    problems: list[str] = []
    if wrt is None:
        sources = [v for v in graph.inputs if v.name not in graph.initializers and v.dtype in FLOATS]
        if not sources:
            hint = f"; {words('stored')}" if parameter_values(graph, rules) else ""
            problems.append(f"the model has no float input to differentiate with respect to{hint}")
    else:
        sources = _resolve("wrt", wrt, values, outer, problems)
    if of is None:
        targets = list(dict.fromkeys(v for v in graph.outputs if v.dtype in FLOATS))
        if not targets:
            if wrt is None and not sources:  # a model of integers, of which one line says it all
                raise GradientError("the model has neither a float input nor a float output: there is no derivative")
            problems.append("the model has no float output to differentiate")
    else:
        targets = _resolve("of", of, values, [v.name or "" for v in graph.outputs], problems)
    if problems:
        raise GradientError("; ".join(problems))
    return sources, targets


def noted_roles(metadata: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Role and source of each public name of a gradient model, as its metadata has them; raises GradientError."""
    roles = _noted(metadata, NAMES_KEY, {})
    if not isinstance(roles, dict) or not all(
        isinstance(r, dict) and isinstance(r.get("role"), str) and isinstance(r.get("source"), str)
        for r in roles.values()
    ):
        raise GradientError(f"the model's metadata '{NAMES_KEY}' is not what gradgen writes: remove it")
    return roles


def noted_fixed(metadata: Mapping[str, str]) -> list[str]:
    """The constants on which a gradient model relies, as its metadata has them; raises GradientError."""
    fixed = _noted(metadata, FIXED_KEY, [])
    if not isinstance(fixed, list) or not all(isinstance(name, str) for name in fixed):
        raise GradientError(f"the model's metadata '{FIXED_KEY}' is not what gradgen writes: remove it")
    return fixed


def _noted(metadata: Mapping[str, str], key: str, default: Any) -> Any:
    try:
        return json.loads(metadata[key]) if key in metadata else default
    except (ValueError, RecursionError) as error:
        raise GradientError(f"the model's metadata '{key}' is not what gradgen writes: remove it") from error


def value_names(model: onnx.ModelProto) -> set[str]:
    """The names of the values of a model's graph: none of these is new in a gradient model of it."""
    graph = model.graph
    return {*(i.name for i in (*graph.input, *graph.initializer)), *(o for node in graph.node for o in node.output)}


def roles_of(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    """Role and source of each public name of a gradient model."""
    return noted_roles({p.key: p.value for p in model.metadata_props})


def check_fixed(metadata: Mapping[str, str], sources: Sequence[ir.Value], targets: Sequence[ir.Value]) -> None:
    """Refuse the derivative of a gradient with respect to a constant on whose content that gradient relies.

    A gradient model was specialised to the content of some scalars (an exponent of 2, a factor of 1): it is right, but
    it no longer shows how the gradients depend on them.
    """
    fixed, roles = set(noted_fixed(metadata)), noted_roles(metadata)
    asked = sorted(v.name for v in sources if v.name and v.name in fixed)
    gradients = [v.name for v in targets if roles.get(v.name or "", {}).get("role") in DERIVED]
    if asked and gradients:
        raise GradientError(
            f"wrt: {', '.join(map(repr, asked))} was a constant when '{gradients[0]}' was made, and is built into it; name "
            "it in the wrt of that call too"
        )


def _resolve(
    role: str, asked: Sequence[str] | str, values: dict[str, ir.Value], first: list[str], problems: list[str]
) -> list[ir.Value]:
    names = name_list(role, asked)
    if not names:
        problems.append(f"{role} is empty: name at least one value")
    found: dict[str, ir.Value] = {}
    for name in names:
        if name in values:
            found[name] = values[name]
            continue
        matches = _glob(name, first, values) or _glob(name, list(values), values)
        found.update((m, values[m]) for m in matches)
        others = [] if matches else [n for n in values if _is_glob(name) and fnmatch.fnmatchcase(n, name)]
        if others:
            problems.append(f"{role}: '{name}' matches nothing that has a gradient: {_few(others)}")
        elif not matches:
            problems.append(_unknown(role, name, values, first))
    for name, value in found.items():
        if value.dtype not in FLOATS:
            kind = "unknown type" if value.dtype is None else value.dtype.name.lower()
            problems.append(f"{role}: '{name}' is of {kind}, and only float tensors have a gradient")
    return list(found.values())


def _unknown(role: str, name: str, values: Iterable[str], first: Sequence[str] = ()) -> str:
    spelt: dict[str, str] = {}
    for value in [*first, *values]:
        spelt.setdefault(value.lower(), value)
    near = [spelt[n] for n in difflib.get_close_matches(name.lower(), list(spelt), n=3, cutoff=0.6)]
    advice = f"; {words(KEYWORDS[name])}" if role == "wrt" and name in KEYWORDS else ""
    if near:
        hint = f"; near matches: {', '.join(map(repr, near))}"
    elif advice or _is_glob(name) or not first:
        hint = ""
    else:  # nothing is near: what there is says more, and is not called near
        hint = f"; {_CHOICES.get(role, 'there')} are {_few(first)}"
    return f"{role}: {'nothing matches' if _is_glob(name) else 'there is no value'} '{name}'{hint}{advice}"


def resolve(role: str, names: Sequence[str], values: dict[str, ir.Value]) -> list[ir.Value]:
    """The values with these names or globs, of any type.

    Raises:
        GradientError: that lists every name that no value has, with near matches.
    """
    if not names:
        raise GradientError(f"{role} is empty: name at least one value")
    matches = {
        name: [name] if name in values else [n for n in values if fnmatch.fnmatchcase(n, name)] for name in names
    }
    named = [n for n, v in values.items() if v.producer() is not None]
    if problems := [_unknown(role, name, values, named) for name, found in matches.items() if not found]:
        raise GradientError("; ".join(problems))
    return [values[n] for n in dict.fromkeys(n for found in matches.values() for n in found)]


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _is_glob(name: str) -> bool:
    return any(c in name for c in "*?[")


def _glob(pattern: str, names: list[str], values: dict[str, ir.Value]) -> list[str]:
    if not _is_glob(pattern):
        return []
    return [
        n for n in names if fnmatch.fnmatchcase(n, pattern) and values[n].dtype in FLOATS and not is_constant(values[n])
    ]


def parameter_values(graph: ir.Graph, rules: Rules) -> list[ir.Value]:
    """The float initializers that at least one rule differentiates.

    Where a model has none and keeps its weights in Constant nodes, the outputs of those of rank 1 and more.
    """
    stored = [v for v in graph.initializers.values() if v.dtype in FLOATS and not is_constant(v)]
    if not stored:
        constants = [n.outputs[0] for n in graph if not n.domain and n.op_type == "Constant"]
        stored = [v for v in constants if v.dtype in FLOATS and v.shape is not None and len(v.shape) > 0]
    return [v for v in stored if any(_differentiable(u, rules) for u in v.uses())]


def stored_parameters(proto: onnx.ModelProto, registry: Registry) -> list[str]:
    """The same of a model as it is written, without functions and without a look at Constant nodes."""
    if proto.functions:
        return []
    stored = [t.name for t in proto.graph.initializer if t.data_type in _FLOAT_CODES and not _marked(t)]
    versions = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in proto.opset_import}
    rules = Rules(registry, {**versions, "": max(versions.get("", OPSET), OPSET)})
    wanted, found = set(stored), set()
    for node in all_nodes(proto.graph):
        for index, name in enumerate(node.input):
            if name in wanted and name not in found:
                row = rules.of(node)
                if row is None or row.disposition(index) in ("rule", "body"):
                    found.add(name)
    return [name for name in stored if name in found]


def _marked(tensor: onnx.TensorProto) -> bool:
    return any(p.key == CONSTANT_MARK for p in tensor.metadata_props)


def _differentiable(use: Any, rules: Rules) -> bool:
    row = rules.of(use.node)
    return row is None or row.disposition(use.idx) in ("rule", "body")
