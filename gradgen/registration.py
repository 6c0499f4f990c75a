"""Rules of one's own: `register_vjp` and the decorator `vjp_rule`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import onnx
import onnx.checker

from gradgen.authoring import place, remember, scripted
from gradgen.coverage import near_matches
from gradgen.engine.registry import Registry, registry_of
from gradgen.engine.rows import Form, Row
from gradgen.errors import GradientError
from gradgen.fitting import check_contract, depends_on
from gradgen.functions import gradient_of_function
from gradgen.linearity import nonlinear_results
from gradgen.rules.lang import OPSET, RuleFunction, parameters


def register_vjp(
    domain: str,
    op_type: str,
    rule: Any,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    version: int = 1,
    linear: bool = True,
    registry: Registry | None = None,
) -> None:
    """Add the backward rule of an op.

    Args:
        domain, op_type: the op; a node of another domain is never mistaken for it.
        rule: an onnxscript function, a FunctionProto, or a traced rule (gradgen.rules.lang.traced). Its parameters
            named `d<output>` are cotangents, those named as inputs or outputs are values, all others attributes; its
            results are named `d<input>`.
        inputs, outputs: the op's formal names, for an op without a schema; by default what the rule's names say:
            results `d<input>` in order, then the values it reads, and cotangents `d<output>`.
        version: the first version of the op's domain for which the rule holds.
        linear: False for a rule that is not linear in its cotangent (clipped or guided gradients).
        registry: where to add it; by default the one that every call uses.

    Raises:
        GradientError: for an op that a domain of the standard does not have, names that fit no formal of the op, a
            missing cotangent, a body that the checker refuses, a rule declared linear that is shown not to be linear in
            its cotangent, and an op that has a rule already.
    """
    domain, given = "" if domain == "ai.onnx" else domain, rule
    _check_key(domain, op_type, version)
    registry = registry_of(registry)
    label = f"rule of {domain or 'ai.onnx'}::{op_type}"
    reads, returns, attributes, body = _contract(rule, label)
    if strays := [r for r in returns if not r.startswith("d")]:
        values = [r for r in reads if not r.startswith("d")] or ["x"]
        raise GradientError(
            f"{label}: it returns {strays}; assign each result to a name d<input> and return that name: for the gradient "
            f"of '{values[0]}', d{values[0]}"
        )
    beside = registry.find(domain, op_type, version)
    beside = beside if beside is not None and beside.forward is not None and beside.since == version else None
    if beside is not None and inputs is None and outputs is None:
        formals = beside.inputs, beside.outputs
    else:
        formals = _formals(domain, op_type, inputs, outputs, reads, returns)
    _check(label, formals, reads, returns)
    # The name holds the op, so that a rule never stands in for another op's that is called the same.
    name = "_".join(re.sub(r"\W", "_", part) for part in (domain or "ai_onnx", op_type, str(version), "vjp"))
    kind = "compiled" if body is not None else "traced"
    function = body if body is not None else rule
    form = Form(name, kind, "", tuple(reads), tuple(returns), tuple(attributes), linear=linear, function=function)
    bare = [n.rstrip("*") for n in formals[0]]
    zero = tuple(n for n in bare if f"d{n}" not in returns)
    row = Row(
        domain, op_type, version, formals[0], formals[1], (form,), zero=zero,
        forward=None if beside is None else beside.forward, kernel=beside is None or beside.kernel,
        origin=f"the rule of {place(given)}",
    )  # fmt: skip
    if row.forward is not None:
        check_contract(row, registry)
    if linear:
        _check_linear(label, row, body, registry)
    registry.add(row)
    if body is not None:
        registry.add_body(name, body)
    remember(given, domain, op_type, version, registry)


def check_beside(row: Row, registry: Registry) -> None:
    """Refuse an op's body that does not fit the rule that was registered for the op before it."""
    ruled = registry.own(row.domain, row.op_type, row.since)
    if ruled is None or not ruled.forms or ruled.forward is not None:
        return
    form = ruled.forms[-1]
    label = f"rule of {row.domain}::{row.op_type}"
    _check(label, (row.inputs, row.outputs), list(form.reads), list(form.returns))
    merged = replace(ruled, inputs=row.inputs, outputs=row.outputs, forward=row.forward, kernel=row.kernel)
    check_contract(merged, registry)


def vjp_rule(domain: str, op_type: str, **options: Any) -> Callable[[Any], Any]:
    """Decorator form of `register_vjp`, over an onnxscript function or a traced rule."""

    def register(rule: Any) -> Any:
        register_vjp(domain, op_type, rule, **options)
        return rule

    return register


def _check_key(domain: Any, op_type: Any, version: Any) -> None:
    """Refuse what names no op: a rule under a misspelt name would never be used."""
    for role, value in (("domain", domain), ("op_type", op_type)):
        if not isinstance(value, str):
            raise GradientError(f"{role} is a str, not {value!r}")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise GradientError(f"version is the first version of the op's domain, an int from 1 on, not {version!r}")
    known = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain}
    if known and op_type not in known:
        raise GradientError(
            f"{domain or 'ai.onnx'} has no op '{op_type}'{near_matches(op_type, known)}; an op of your own has a domain of "
            "its own"
        )


def _contract(rule: Any, label: str) -> tuple[list[str], list[str], list[str], onnx.FunctionProto | None]:
    """What a rule reads, returns and takes, and its body if it is compiled."""
    if isinstance(rule, RuleFunction):
        if rule.kind == "traced":
            reads, attributes = parameters(rule.fn)
            return reads, list(rule.returns), attributes, None
        from gradgen.generator.compile import Compiler

        rule = Compiler().proto(rule)
    elif inspect.isfunction(rule) and rule.__name__.isidentifier():
        rule = scripted(rule, "gradgen.custom", 1, label).to_function_proto()
    elif hasattr(rule, "to_function_proto"):
        rule = rule.to_function_proto()
    if not isinstance(rule, onnx.FunctionProto):
        kind = "function" if inspect.isfunction(rule) else type(rule).__name__
        raise GradientError(
            f"{label}: a rule is an onnxscript function, a FunctionProto or a traced rule, not a {kind}"
        )
    context = onnx.checker.C.CheckerContext()
    context.ir_version = 10
    context.opset_imports = {o.domain: o.version for o in rule.opset_import} or {"": OPSET}
    try:
        onnx.checker.check_function(rule, context)
    except onnx.checker.ValidationError as error:
        raise GradientError(f"{label}: {error}") from error
    attributes = [*rule.attribute, *(a.name for a in rule.attribute_proto)]
    return list(rule.input), list(rule.output), attributes, rule


def _formals(
    domain: str, op_type: str, inputs: Any, outputs: Any, reads: list[str], returns: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    try:
        schema = onnx.defs.get_schema(op_type, domain=domain)
    except onnx.defs.SchemaError:
        schema = None
    if schema is not None:
        variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
        mark = [tuple(f.name + "*" * (f.option == variadic) for f in fs) for fs in (schema.inputs, schema.outputs)]
        return (tuple(inputs) if inputs else mark[0]), (tuple(outputs) if outputs else mark[1])
    if inputs is None:
        named = [r.removeprefix("d") for r in returns]
        values = [r for r in reads if not r.startswith("d") or r in named]
        order = [r for r in values if r in named] if set(named) <= set(values) else named
        inputs = order + [r for r in values if r not in order and outputs is not None and r not in outputs]
    if outputs is None:
        outputs = [r.removeprefix("d") for r in reads if r.startswith("d") and r not in inputs]
    return tuple(inputs), tuple(outputs)


def _is_cotangent(name: str, outputs: Sequence[str], inputs: Sequence[str]) -> bool:
    return name.startswith("d") and name[1:] in [o.rstrip("*") for o in outputs] and name not in inputs


def _check(label: str, formals: tuple[tuple[str, ...], tuple[str, ...]], reads: list[str], returns: list[str]) -> None:
    inputs, outputs = [[n.rstrip("*") for n in names] for names in formals]
    problems = []
    strangers = [r for r in reads if r not in inputs and r not in outputs and not _is_cotangent(r, outputs, inputs)]
    if strangers:
        problems.append(
            f"it reads {strangers}, which are no input {inputs}, output {outputs} or cotangent d<output> (results d<input> "
            "tell the inputs of an op without a schema, or inputs= and outputs= do)"
        )
    if not any(_is_cotangent(r, outputs, inputs) for r in reads):
        problems.append(f"it takes no cotangent: a parameter is named d<output>, the outputs are {outputs}")
    if strays := [r for r in returns if not (r.startswith("d") and r[1:] in inputs)]:
        problems.append(f"it returns {strays}; results are named d<input>, the inputs are {inputs}")
    if not returns or len(set(returns)) != len(returns):
        problems.append("it must return each result once, and at least one")
    if problems:
        raise GradientError(f"{label}: " + "; ".join(problems))


def _check_linear(label: str, row: Row, body: onnx.FunctionProto | None, registry: Registry) -> None:
    """Refuse a rule that is not linear in its cotangents.

    A rule is linear up to a constant exactly if its own derivative does not read the cotangent. That says nothing of
    ops whose derivative is zero or unknown, nor of the constant: numbers do.
    """
    form = row.forms[0]
    cotangents = [r for r in form.reads if _is_cotangent(r, row.outputs, row.inputs)]
    wrong = {}
    for output in body.output if body is not None else ():
        assert body is not None
        try:
            gradient = gradient_of_function(body, cotangents, output, [n for n in body.input if n not in cotangents])
        except GradientError:
            continue  # an op in the body has no rule of its own: nothing can be said
        if used := [c for c in cotangents if depends_on(gradient, c)]:
            wrong[output] = used
    probed = Registry([row], {} if body is None else {row.forms[0].rule: body}, parent=registry)
    wrong = wrong or dict.fromkeys(nonlinear_results(row, probed), cotangents)
    for output, used in wrong.items():
        raise GradientError(f"{label}: '{output}' is not linear in {used}; declare it with linear=False")
