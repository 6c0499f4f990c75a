"""Ops of one's own: `gradgen.op` registers an op by its forward function, through which it is differentiated."""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Callable
from typing import Any

import onnx
import onnx.checker

from gradgen.engine.protos import all_nodes
from gradgen.engine.registry import NEWEST, Registry, registry_of
from gradgen.engine.rows import Form, Row
from gradgen.errors import GradientError
from gradgen.rules.lang import OPSET, RuleFunction, unannotated

# What a function was registered as: (domain, op type, version, registry), for checks that are handed the function.
_KNOWN: weakref.WeakKeyDictionary[Any, tuple[str, str, int, Registry]] = weakref.WeakKeyDictionary()


def op(
    domain: str, op_type: str, *, version: int = 1, kernel: bool = False, registry: Registry | None = None
) -> Callable[[Any], Any]:
    """Decorator: an op of one's own, by the function that it computes.

    The function is all that gradgen needs: a model with nodes `domain::op_type` is differentiated through it, and what
    gradgen writes runs on any runtime, because the function stands there in place of the op. `vjp_rule` beside it gives
    the op a gradient of its own; the nodes then stay, and the function is among the model's functions.

    Args:
        domain, op_type: the op; the domain is one of your own.
        version: the first version of the op's domain for which the function holds.
        kernel: whether the runtime has a kernel for the op: nodes of it then stay in the result as they are, and the
            function serves the backward pass alone.
        registry: where to add it; by default the registry that every call uses.

    The decorated function is plain Python for onnxscript, an onnxscript function, or a FunctionProto, written at opset
    21. Its tensor parameters are the op's inputs, annotated ones (`alpha: float = 1.0`) its attributes, its results the
    outputs: by the names that are returned, or `y` (`y0`, `y1`, …) for expressions. It may call other such ops.

    Returns:
        the onnxscript function, which other functions can call and onnxscript can run; a FunctionProto as it is.

    Raises:
        GradientError: for a domain of the standard, a function that onnxscript or the checker refuses, and an op that
            has a body already.
    """

    def register(function: Any) -> Any:
        from gradgen.registration import check_beside

        target, name = registry_of(registry), "ai.onnx" if domain == "" else domain
        _check_key(domain, op_type, version)
        made, proto = _compiled(function, domain, op_type, version)
        _check_body(proto, f"{name}::{op_type}")
        attributes = (*proto.attribute, *(a.name for a in proto.attribute_proto))
        form = Form(
            f"{re.sub(r'[^A-Za-z0-9_]', '_', domain)}_{op_type}_{version}_body", "compiled", "",
            tuple(proto.input), tuple(proto.output), attributes, function=proto,
        )  # fmt: skip
        row = Row(
            domain, op_type, version, form.reads, form.returns, forward=form, kernel=kernel,
            origin=f"the op of {place(function)}",
        )  # fmt: skip
        _check_circle(proto, f"{name}::{op_type}", (domain, op_type), target)
        check_beside(row, target)
        target.add(row)
        target.add_body(form.rule, proto)
        remember(made, domain, op_type, version, target)
        return made

    return register


def remember(function: Any, domain: str, op_type: str, version: int, registry: Registry) -> None:
    """Keep what a function was registered as; a FunctionProto cannot be a key."""
    if not isinstance(function, onnx.FunctionProto):
        _KNOWN[function] = (domain, op_type, version, registry)


def registered_as(function: Any) -> tuple[str, str, int, Registry] | None:
    """Domain, op type, version and registry of a function that was registered, or None."""
    try:
        return _KNOWN.get(function)
    except TypeError:
        return None


def place(function: Any) -> str:
    """Where a function was written, for messages."""
    fn = getattr(function, "function", None) or getattr(function, "fn", None) or function
    code = getattr(fn, "__code__", None)
    if code is None:
        return f"'{getattr(function, 'name', type(function).__name__)}'"
    return f"'{fn.__name__}' ({code.co_filename.rpartition('/')[2]}, line {code.co_firstlineno})"


def _check_key(domain: Any, op_type: Any, version: Any) -> None:
    for role, value in (("domain", domain), ("op_type", op_type)):
        if not isinstance(value, str) or (role == "op_type" and not value.isidentifier()):
            raise GradientError(f"{role} is a name, not {value!r}")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise GradientError(f"version is the first version of the op's domain, an int from 1 on, not {version!r}")
    if domain in {"", "ai.onnx", *(s.domain for s in onnx.defs.get_all_schemas())}:
        raise GradientError(
            f"'{domain or 'ai.onnx'}' is a domain of the standard: an op of your own has its own domain"
        )


def _compiled(function: Any, domain: str, op_type: str, version: int) -> tuple[Any, onnx.FunctionProto]:
    """The function as it is handed back, and its FunctionProto under the op's name."""
    label = f"{domain}::{op_type}"
    if isinstance(function, onnx.FunctionProto):
        proto = onnx.FunctionProto()
        proto.CopyFrom(function)
        proto.domain, proto.name = domain, op_type
        return function, proto
    source = getattr(function, "function", function)
    if isinstance(function, RuleFunction) or not inspect.isfunction(source):
        raise GradientError(
            f"{label}: an op is an onnxscript function, a plain function of onnxscript's language or a FunctionProto, not "
            f"a {type(function).__name__}"
        )
    from onnxscript.values import OnnxFunction

    imports = {} if source is function else function.function_ir.opset_imports
    compiled = scripted(source, domain, version, label, imports.get("", OPSET))
    compiled.function_ir.name = op_type
    _name_results(compiled.function_ir)
    made: Any = OnnxFunction(compiled.opset, source, compiled.function_ir, compiled.source, compiled.kwargs)
    return made, made.to_function_proto()


def scripted(function: Any, domain: str, version: int, label: str, opset: int = OPSET) -> Any:
    """A plain Python function as an onnxscript function; raises GradientError with what onnxscript says of it."""
    import onnxscript
    from onnxscript.values import Opset

    if reason := unannotated(function):
        raise GradientError(f"{label}: {reason}")
    try:
        return onnxscript.script(Opset(domain, version), default_opset=Opset("", opset))(function)
    except Exception as error:  # onnxscript raises many kinds, and each is about the function's text
        if "dynamically compiled" in str(error):
            raise GradientError(f"{label}: put the function into a file: onnxscript reads its source text") from None
        raise GradientError(f"{label}: {' '.join(str(error).split())[:400]}") from error


def _check_circle(proto: onnx.FunctionProto, label: str, key: tuple[str, str], registry: Registry) -> None:
    """Refuse a body that calls its own op, by itself or through the bodies of others."""
    seen: set[tuple[str, str]] = set()
    pending = [proto]
    while pending:
        for called in {(n.domain, n.op_type) for n in all_nodes(pending.pop()) if n.domain} - seen:
            if called == key:
                raise GradientError(f"{label}: its body calls itself")
            seen.add(called)
            row = registry.find(*called, NEWEST)
            body = None if row is None or row.forward is None else row.forward.function
            if isinstance(body, onnx.FunctionProto):
                pending.append(body)


def _name_results(function: Any) -> None:
    """Name results that are expressions: onnxscript calls them `return_val`."""
    taken = {v.name for v in function.inputs} | {v.name for n in function for v in n.outputs}
    unnamed = [v for v in function.outputs if (v.name or "").startswith("return_val")]
    for k, value in enumerate(unnamed):
        name = "y" if len(unnamed) == 1 else f"y{k}"
        while name in taken:
            name += "_"
        value.name = name
        taken.add(name)


def _check_body(proto: onnx.FunctionProto, label: str) -> None:
    """Complete a function's opset imports, and refuse what cannot be the body of an op."""
    used = {"" if n.domain == "ai.onnx" else n.domain for n in all_nodes(proto)}
    known = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    if known.get("", OPSET) != OPSET:
        raise GradientError(f"{label}: it is written at opset {known['']}: write it with onnxscript's opset{OPSET}")
    del proto.opset_import[:]
    proto.opset_import.extend(
        onnx.helper.make_opsetid(d, known.get(d, OPSET if not d else 1)) for d in sorted({"", *used})
    )
    produced = {o for n in proto.node for o in n.output}
    if not proto.output:
        raise GradientError(f"{label}: it returns nothing")
    if passed := [o for o in proto.output if o not in produced]:
        raise GradientError(f"{label}: it returns its input '{passed[0]}'; return op.Identity of it")
    if len(set(proto.output)) != len(proto.output):
        raise GradientError(f"{label}: two returned values are the same; return op.Identity of one")
    context = onnx.checker.C.CheckerContext()
    context.ir_version = 10
    context.opset_imports = {o.domain: o.version for o in proto.opset_import}
    try:
        onnx.checker.check_function(proto, context)
    except onnx.checker.ValidationError as error:
        raise GradientError(f"{label}: {' '.join(str(error).split())[:400]}") from error
